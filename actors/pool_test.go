package actors

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

var poolSteps = flag.Int("pool.steps", 2000, "steps of the randomised pool test")

func seedPools() *config.Pools {
	return &config.Pools{
		Caps: map[string]int{"openai": 12}, DefaultCap: 3, MaxQueue: 2000, SaturatedAfter: 500 * time.Millisecond,
		Classes: map[string]config.Class{
			subjects.ClassInteractive: {Slots: 6, Weight: 3},
			subjects.ClassIngestion:   {Slots: 8, Weight: 1},
		},
	}
}

func testAdmission(t testing.TB, p *config.Pools, emit func(string, any)) *admission {
	t.Helper()
	sys := newSystem(slog.New(slog.DiscardHandler))
	t.Cleanup(sys.close)
	if emit == nil {
		emit = func(string, any) {}
	}
	return newAdmission(sys, p, emit)
}

// pass lets d pass; the tests run in bubbles of fake time. A timer that is due at
// once crashes Go 1.26's race detector there.
func pass(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

// gate is a way to get slots: ours, or the control's nested semaphores.
type gate func(ctx context.Context, class string) (release func(), err error)

// acceptance is the seed's scenario in fake time: 20 ingestion calls and then 3
// interactive ones against one provider, each served in a second. It returns
// the longest wait of an interactive call and the peaks in flight.
func acceptance(t *testing.T, take gate) (longest time.Duration, peak, ingestionPeak int64) {
	t.Helper()
	var inFlight, ingestion, peakAll, peakIngestion atomic.Int64
	waits := make(chan time.Duration, 3)
	done := make(chan struct{})
	call := func(class string) {
		defer func() { done <- struct{}{} }()
		start := time.Now()
		release, err := take(context.Background(), class)
		if err != nil {
			t.Error(err)
			return
		}
		defer release()
		raise(&peakAll, inFlight.Add(1))
		defer inFlight.Add(-1)
		if class == subjects.ClassInteractive {
			waits <- time.Since(start)
		} else {
			raise(&peakIngestion, ingestion.Add(1))
			defer ingestion.Add(-1)
		}
		pass(time.Second)
	}
	for range 20 {
		go call(subjects.ClassIngestion)
		synctest.Wait()
	}
	for range 3 {
		go call(subjects.ClassInteractive)
		synctest.Wait()
	}
	for range 23 {
		<-done
	}
	for range 3 {
		longest = max(longest, <-waits)
	}
	return longest, peakAll.Load(), peakIngestion.Load()
}

func raise(peak *atomic.Int64, n int64) {
	for {
		old := peak.Load()
		if n <= old || peak.CompareAndSwap(old, n) {
			return
		}
	}
}

func TestSeedAcceptance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := testAdmission(t, seedPools(), nil)
		longest, peak, ingestion := acceptance(t, func(ctx context.Context, class string) (func(), error) {
			s, err := a.acquire(ctx, "openai", "m", class)
			return s.release, err
		})
		if longest > time.Second {
			t.Errorf("an interactive call waited %v, more than one service time", longest)
		}
		if peak > 12 || ingestion > 8 {
			t.Errorf("peak in flight %d (cap 12), ingestion %d (slots 8)", peak, ingestion)
		}
	})
}

// TestNestedSemaphoresFail is the control: the same scenario on the naive
// version, which holds the provider's slot while it waits for the class's.
func TestNestedSemaphoresFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := semaphore.NewWeighted(12)
		classes := map[string]*semaphore.Weighted{
			subjects.ClassInteractive: semaphore.NewWeighted(6),
			subjects.ClassIngestion:   semaphore.NewWeighted(8),
		}
		longest, _, _ := acceptance(t, func(ctx context.Context, class string) (func(), error) {
			if err := provider.Acquire(ctx, 1); err != nil {
				return nil, err
			}
			if err := classes[class].Acquire(ctx, 1); err != nil {
				return nil, err
			}
			return func() { classes[class].Release(1); provider.Release(1) }, nil
		})
		if longest <= time.Second {
			t.Errorf("nested semaphores passed (longest wait %v): the acceptance test does not bite", longest)
		}
	})
}

// hammer drives an admission at random and keeps its own count of who holds what.
type hammer struct {
	t      *testing.T
	a      *admission
	rng    *rand.Rand
	models []string
	calls  []*hammerCall
	ended  int
}

type hammerCall struct {
	class, model string
	cancel       context.CancelFunc
	finish       chan string // how to end: release, twice, panic
	state        atomic.Int32
}

const (
	callWaiting = iota
	callActive
	callOver
)

func (h *hammer) arrive() {
	c := &hammerCall{
		class: subjects.Classes[h.rng.IntN(2)], model: h.models[h.rng.IntN(len(h.models))],
		finish: make(chan string, 1),
	}
	ctx, cancel := context.WithCancel(context.Background())
	if h.rng.IntN(3) == 0 {
		ctx, cancel = context.WithTimeout(context.Background(), time.Duration(h.rng.IntN(2000))*time.Millisecond)
	}
	c.cancel = cancel
	h.calls = append(h.calls, c)
	go func() {
		defer cancel()
		defer c.state.Store(callOver)
		defer func() { _ = recover() }()
		s, err := h.a.acquire(ctx, "p", c.model, c.class)
		if err != nil {
			return
		}
		defer s.release()
		c.state.Store(callActive)
		switch <-c.finish {
		case "twice":
			s.release()
		case "panic":
			panic("provider")
		}
	}()
}

func (h *hammer) step() {
	switch n := h.rng.IntN(10); {
	case n < 4:
		h.arrive()
	case n < 6:
		if c := h.pick(callWaiting); c != nil {
			c.cancel()
		}
	case n < 9:
		if c := h.pick(callActive); c != nil {
			c.finish <- []string{"release", "twice", "panic"}[h.rng.IntN(3)]
		}
	default:
		pass(time.Duration(h.rng.IntN(300)) * time.Millisecond) // fake time
	}
}

func (h *hammer) pick(state int32) *hammerCall {
	for range 20 {
		if len(h.calls) == 0 {
			return nil
		}
		if c := h.calls[h.rng.IntN(len(h.calls))]; c.state.Load() == state {
			return c
		}
	}
	return nil
}

// check looks at everything while nothing moves.
func (h *hammer) check(step int) {
	synctest.Wait()
	active, waiting := map[string]int{}, map[string]int{}
	live := h.calls[:0]
	for _, c := range h.calls {
		switch c.state.Load() {
		case callActive:
			active[c.model]++
			active[c.class]++
		case callWaiting:
			waiting[c.model+c.class]++
		case callOver:
			h.ended++
			continue
		}
		live = append(live, c)
	}
	h.calls = live
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pools, classes := h.a.stats(ctx)
	for _, class := range subjects.Classes {
		cs := classes[class]
		if cs.Active != active[class] || cs.Active > cs.Slots {
			h.t.Fatalf("step %d: class %s says %d active of %d slots, %d calls hold one", step, class, cs.Active, cs.Slots, active[class])
		}
	}
	for _, model := range h.models {
		ps, ok := pools["p/"+model]
		if !ok {
			continue
		}
		if ps.Active != active[model] || ps.Active > ps.Cap {
			h.t.Fatalf("step %d: pool %s says %d active of %d, %d calls hold a slot", step, model, ps.Active, ps.Cap, active[model])
		}
		queued := 0
		for _, class := range subjects.Classes {
			n := waiting[model+class]
			queued += n
			if n > 0 && ps.Active < ps.Cap && classes[class].Active < classes[class].Slots {
				h.t.Fatalf("step %d: %d %s calls wait for %s while both tiers have room", step, n, class, model)
			}
		}
		if ps.Queued != queued {
			h.t.Fatalf("step %d: pool %s says %d queued, %d calls wait", step, model, ps.Queued, queued)
		}
	}
}

func TestPoolsRandomised(t *testing.T) {
	for seed := range 4 {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := seedPools()
				p.Classes = map[string]config.Class{
					subjects.ClassInteractive: {Slots: 3, Weight: 3}, subjects.ClassIngestion: {Slots: 4, Weight: 1},
				}
				h := &hammer{t: t, a: testAdmission(t, p, nil), rng: rand.New(rand.NewPCG(uint64(seed), 7)), models: []string{"a", "b", "c"}}
				for i := range *poolSteps {
					h.step()
					h.check(i)
				}
				for len(h.calls) > 0 { // let all end: whoever waits must come to run
					for _, c := range h.calls {
						if c.state.Load() == callActive {
							c.finish <- "release"
						}
					}
					before := h.ended
					h.check(-1)
					if h.ended == before {
						t.Fatalf("%d calls wait and none comes to run", len(h.calls))
					}
				}
				h.check(-2)
			})
		})
	}
}

// TestTurns holds the weights: with both classes always waiting and slots for
// both, three interactive calls start for each ingestion call.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := seedPools()
		p.Caps["openai"] = 1
		p.Classes = map[string]config.Class{subjects.ClassInteractive: {Slots: 50, Weight: 3}, subjects.ClassIngestion: {Slots: 50, Weight: 1}}
		a := testAdmission(t, p, nil)
		order := make(chan string, 80)
		for i := range 80 {
			class := subjects.Classes[i%2]
			go func() {
				s, err := a.acquire(context.Background(), "openai", "m", class)
				if err != nil {
					t.Error(err)
				}
				defer s.release()
				order <- class
				pass(time.Second)
			}()
		}
		got := map[string]int{}
		for i := range 40 {
			got[<-order]++
			if in, ing := got[subjects.ClassInteractive], got[subjects.ClassIngestion]; in > 3*(ing+1)+1 || ing > in/3+2 {
				t.Fatalf("after %d starts: %d interactive, %d ingestion", i+1, in, ing)
			}
		}
		for range 40 {
			<-order
		}
		pass(2 * time.Second)
	})
}

func TestQueueBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := seedPools()
		p.Caps["openai"], p.MaxQueue = 1, 2
		a := testAdmission(t, p, nil)
		first, err := a.acquire(context.Background(), "openai", "m", subjects.ClassIngestion)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ends := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := a.acquire(ctx, "openai", "m", subjects.ClassIngestion)
				ends <- err
			}()
		}
		if err := <-ends; subjects.KindOf(err) != subjects.KindPoolFull {
			t.Fatalf("the third waiter got %v, want POOL_FULL", err)
		}
		// The bound is the class's own: the other class still gets in line.
		go func() {
			_, err := a.acquire(ctx, "openai", "m", subjects.ClassInteractive)
			ends <- err
		}()
		synctest.Wait()
		cancel()
		for range 3 {
			if err := <-ends; !errors.Is(err, context.Canceled) {
				t.Errorf("a cancelled waiter got %v", err)
			}
		}
		first.release()
	})
}

// TestSaturation holds the event: at 500 ms, while the call waits, at most one
// a second for a pool and class, the rest counted.
func TestSaturation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := make(chan subjects.PoolSaturatedEvent, 100)
		p := seedPools()
		p.Caps["openai"] = 1
		start := time.Now()
		a := testAdmission(t, p, func(subject string, ev any) {
			if subject == subjects.PoolSaturated {
				events <- *ev.(*subjects.PoolSaturatedEvent)
			}
		})
		first, err := a.acquire(context.Background(), "openai", "m", subjects.ClassIngestion)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		wait := func() { _, _ = a.acquire(ctx, "openai", "m", subjects.ClassIngestion) }
		go wait()
		pass(499 * time.Millisecond)
		synctest.Wait()
		if len(events) != 0 {
			t.Fatal("an event before the mark")
		}
		pass(2 * time.Millisecond)
		synctest.Wait()
		ev := <-events
		if at := ev.At.Sub(start); at != 500*time.Millisecond || ev.WaitedMs != 500 || ev.Active != 1 || ev.Queued != 1 || ev.Cap != 1 {
			t.Fatalf("event %+v at %v", ev, at)
		}
		for range 3 {
			go wait()
		}
		pass(600 * time.Millisecond) // three more pass the mark within the second
		synctest.Wait()
		if len(events) != 0 {
			t.Fatal("a second event within a second")
		}
		pass(500 * time.Millisecond)
		go wait()
		pass(600 * time.Millisecond)
		synctest.Wait()
		if ev := <-events; ev.Suppressed != 3 {
			t.Fatalf("suppressed %d, want 3", ev.Suppressed)
		}
		first.release()
		cancel()
		synctest.Wait()
	})
}

func TestPoolsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := testAdmission(t, seedPools(), nil)
		for i := range 3 * maxPools {
			s, err := a.acquire(context.Background(), "custom", fmt.Sprint("m", i), subjects.ClassInteractive)
			if err != nil {
				t.Fatalf("model %d: %v", i, err)
			}
			s.release()
			synctest.Wait()
		}
		if n := len(*a.pools.Load()); n > maxPools {
			t.Fatalf("%d pools are kept", n)
		}
		pass(2 * time.Minute)
		synctest.Wait()
	})
}

func BenchmarkAcquireRelease(b *testing.B) {
	a := testAdmission(b, seedPools(), nil)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		s, err := a.acquire(ctx, "openai", "m", subjects.ClassInteractive)
		if err != nil {
			b.Fatal(err)
		}
		s.release()
	}
}

func BenchmarkAcquireReleaseParallel(b *testing.B) {
	a := testAdmission(b, seedPools(), nil)
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s, err := a.acquire(context.Background(), "openai", "m", subjects.ClassInteractive)
			if err != nil {
				b.Error(err)
				return
			}
			s.release()
		}
	})
}
