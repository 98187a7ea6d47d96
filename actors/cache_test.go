package actors

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// landing is a cache actor that looks whether an end is shown before it knows.
type landing struct {
	receiver
	t     *testing.T
	known *int
}

func (l landing) receive(self *actor.PID, msg any) {
	if m, ok := msg.(*landed); ok {
		*l.known++
		if m.f.result() != nil {
			l.t.Error("the askers saw the end before the cache did")
		}
	}
	l.receiver.receive(self, msg)
}

func TestCacheKnowsTheEndFirst(t *testing.T) {
	t.Parallel()
	c := &cache{sys: newSystem(slog.New(slog.DiscardHandler))}
	t.Cleanup(c.sys.close)
	known := 0
	c.pid = c.sys.spawn(landing{newCacheActor(c, roomy), t, &known})
	take(t, c, keyA, true).flight.end(good)
	if known != 1 {
		t.Errorf("the cache heard of %d ends", known)
	}
}

// TestEndIsInOrder: who has seen the end and asks again finds the answer, and
// after an error a new flight.
func TestEndIsInOrder(t *testing.T) {
	t.Parallel()
	cfg := roomy
	cfg.MaxEntries = 1000
	c, _ := testCache(t, cfg)
	var wg sync.WaitGroup
	for i := range 500 {
		key, keeps := cacheKey{byte(i), byte(i >> 8)}, i%2 == 0
		seats := []*seat{take(t, c, key, true), take(t, c, key, false), take(t, c, key, false)}
		for _, s := range seats {
			wg.Go(func() {
				readText(t, s)
				got, err := c.look(t.Context(), key, "")
				if err != nil || (got.kept != nil) != keeps || got.seat != nil && got.seat.flight == s.flight {
					t.Errorf("after the end: %+v, %v", got, err)
				}
			})
		}
		if end := endedBy(subjects.KindProvider); keeps {
			seats[0].flight.end(good)
		} else {
			seats[0].flight.end(end)
		}
	}
	wg.Wait()
}

// TestNotKept: what may not be kept, and what there is no room for, is shared all
// the same.
func TestNotKept(t *testing.T) {
	t.Parallel()
	unwanted, wrong, cut := good, good, good
	unwanted.keep = false
	wrong.err = endedBy(subjects.KindProvider).err
	cut.resp = &wire.Response{Raw: make([]byte, 1<<16)}
	for name, tc := range map[string]struct {
		end flown
		cfg config.Cache
	}{
		"keep is not said": {unwanted, roomy},
		"an error":         {wrong, roomy},
		"too large":        {cut, roomy},
		"no entries":       {good, config.Cache{MaxBytes: 1 << 20, MaxEntryBytes: 1 << 16, TTL: time.Hour}},
		"no bytes":         {good, config.Cache{MaxEntries: 10, MaxEntryBytes: 1 << 16, TTL: time.Hour}},
	} {
		c, _ := testCache(t, tc.cfg)
		first := take(t, c, keyA, true)
		second := take(t, c, keyA, false)
		first.flight.end(tc.end)
		if _, end := readText(t, second); end.resp != tc.end.resp {
			t.Errorf("%s: the second asker has %+v", name, end)
		}
		take(t, c, keyA, true)
		if m := stats(t, c); m.Entries != 0 || m.Bytes != 0 || m.Hits != 0 || m.Shared != 1 {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

func TestKeptExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := roomy
		cfg.TTL = time.Hour
		c, _ := testCache(t, cfg)
		take(t, c, keyA, true).flight.end(good)
		pass(time.Hour - time.Nanosecond)
		hit(t, c, keyA)
		pass(time.Nanosecond) // a hit does not make it younger
		if m := stats(t, c); m.Entries != 0 || m.Bytes != 0 || m.Evicted != 0 {
			t.Errorf("%+v", m)
		}
		take(t, c, keyA, true).flight.end(good)
		cfg.TTL = time.Minute
		c.reconfigure(cfg)
		pass(time.Minute)
		take(t, c, keyA, true)
	})
}

// TestClear forgets what is kept; a flight that runs is not joined or kept, and
// goes on for those who have seats.
func TestClear(t *testing.T) {
	t.Parallel()
	c, _ := testCache(t, roomy)
	take(t, c, keyA, true).flight.end(good)
	running := take(t, c, keyB, true)
	for _, want := range []int{1, 0} {
		if n, err := c.clear(t.Context()); n != want || err != nil {
			t.Errorf("clear says %d, %v, want %d", n, err, want)
		}
	}
	take(t, c, keyA, true)
	again := take(t, c, keyB, true)
	running.flight.end(good)
	if _, end := readText(t, running); end.resp != good.resp {
		t.Errorf("%+v", end)
	}
	if m := stats(t, c); m.Entries != 0 {
		t.Errorf("a flight from before is kept: %+v", m)
	}
	take(t, c, keyB, false)
	again.flight.end(good)
	hit(t, c, keyB)
	c.reconfigure(config.Cache{})
	take(t, c, keyB, true)
}

// TestLookLeft: a look that its asker does not wait for leaves no seat, and a
// flight that it would have carried ends, so that the others look again.
func TestLookLeft(t *testing.T) {
	t.Parallel()
	c, _ := testCache(t, roomy)
	a := newCacheActor(c, roomy)
	look := func() *seat {
		s := &seat{key: keyA, wake: make(chan struct{}, 1)}
		a.receive(nil, s)
		return s
	}
	first, second, third := look(), look(), look()
	a.receive(nil, lookLeft{second, errGone})
	if n := len(*first.flight.seats.Load()); n != 2 || first.flight.ctx.Err() != nil {
		t.Errorf("%d seats, want 2; %v", n, first.flight.ctx.Err())
	}
	a.receive(nil, lookLeft{first, errGone})
	if _, end := readText(t, third); !errors.Is(end.err, errGone) || end.shared(false) {
		t.Errorf("the others are told %+v", end)
	}
	next := look()
	if !next.first || next.flight == first.flight {
		t.Error("a seat in a flight that nobody carries")
	}
	a.receive(nil, &landed{f: next.flight, end: &good, kept: newKept(&good, nil, 0)})
	next.flight.publish(&good)
	gone := look()
	a.receive(nil, lookLeft{gone, errGone}) // of a hit
	if m := a.metrics(time.Now()); m.Entries != 1 || m.Hits != 1 || m.Misses != 2 || m.Shared != 1 {
		t.Errorf("%+v", m)
	}
}

// holdable is an actor that can be held up, which a real one never is.
type holdable struct{ receiver }

type hold struct{ held, release chan struct{} }

func (h holdable) receive(self *actor.PID, msg any) {
	if m, ok := msg.(hold); ok {
		close(m.held)
		<-m.release
		return
	}
	h.receiver.receive(self, msg)
}

// TestLookEnds: look and leave end while the actor has no time for them, and what
// they have asked for is taken back.
func TestLookEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cache{sys: newSystem(slog.New(slog.DiscardHandler))}
		t.Cleanup(c.sys.close)
		c.pid = c.sys.spawn(holdable{newCacheActor(c, roomy)})
		first := take(t, c, keyB, true)
		h := hold{make(chan struct{}), make(chan struct{})}
		go c.sys.send(c.pid, h)
		<-h.held
		ctx, cancel := context.WithCancelCause(t.Context())
		for _, key := range []cacheKey{keyA, keyB} {
			go func() {
				if _, err := c.look(ctx, key, ""); !errors.Is(err, errGone) {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		cancel(errGone)
		synctest.Wait() // both have taken back their look
		if last, _ := first.leave(errStopped); last {
			t.Error("the actor cannot have said that it was the last seat")
		}
		synctest.Wait()
		close(h.release)
		take(t, c, keyA, true)
		take(t, c, keyB, true)
		if got := context.Cause(first.flight.ctx); !errors.Is(got, errStopped) {
			t.Errorf("the last seat was left, and the context's cause is %v", got)
		}
	})
}

// TestLanes: calls of two lanes have flights of their own, and one answer.
func TestLanes(t *testing.T) {
	t.Parallel()
	c, _ := testCache(t, roomy)
	seats := map[string]*seat{}
	for _, lane := range []string{"a", "b"} {
		got, err := c.look(t.Context(), keyA, lane)
		if err != nil || !got.leads {
			t.Fatalf("lane %s: %+v, %v", lane, got, err)
		}
		seats[lane] = got.seat
	}
	seats["a"].flight.end(good)
	for _, lane := range []string{"a", "b"} {
		if got, err := c.look(t.Context(), keyA, lane); err != nil || got.kept == nil {
			t.Errorf("lane %s: %+v, %v", lane, got, err)
		}
	}
	seats["b"].flight.end(good)
	if m := stats(t, c); m.Entries != 1 {
		t.Errorf("%+v", m)
	}
}

// TestFlightLasts until the latest deadline of all who took a seat.
func TestFlightLasts(t *testing.T) {
	t.Parallel()
	c, _ := testCache(t, roomy)
	now := time.Now()
	var f *flight
	for _, step := range []struct{ in, want time.Duration }{{20, 20}, {10, 20}, {30, 30}} {
		ctx, cancel := context.WithDeadline(t.Context(), now.Add(step.in*time.Minute))
		defer cancel()
		got, err := c.look(ctx, keyA, "")
		if err != nil {
			t.Fatal(err)
		}
		f = got.seat.flight
		if last := f.lasts(); !last.Equal(now.Add(step.want * time.Minute)) {
			t.Errorf("it lasts until %v of %v", last, now)
		}
	}
	f.end(good)
}

// TestActorPanics: the asker hears of it.
func TestActorPanics(t *testing.T) {
	t.Parallel()
	c := &cache{sys: newSystem(slog.New(slog.DiscardHandler))}
	t.Cleanup(c.sys.close)
	c.pid = c.sys.spawn(&cacheActor{c: c}) // it has no store
	if got, err := c.look(t.Context(), keyA, ""); subjects.KindOf(err) != subjects.KindProvider {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCacheKeyOf(t *testing.T) {
	t.Parallel()
	req := func(body string) *wire.Request { return &wire.Request{Wire: wire.Native, Body: []byte(body)} }
	seen := map[cacheKey]int{}
	for i, k := range []cacheKey{
		cacheKeyOf(req(`{}`)), cacheKeyOf(req(`{}`), ""), cacheKeyOf(req(`{}`), "", ""), cacheKeyOf(req(`{"a":1}`)),
		cacheKeyOf(req(`{}`), "a", "b"), cacheKeyOf(req(`{}`), "b", "a"), cacheKeyOf(req(`{}`), "ab", ""), cacheKeyOf(req(`{}`), "", "ab"),
		cacheKeyOf(req(`{}`), "ab"), cacheKeyOf(req(`{}`), strings.Repeat("a", 2000)),
		{},
	} {
		if was, ok := seen[k]; ok {
			t.Errorf("keys %d and %d are one", was, i)
		}
		seen[k] = i
	}
	if cacheKeyOf(req(`{"callId":"1"}`), "a") != cacheKeyOf(req(`{"callId":"2"}`), "a") {
		t.Error("the call's id is in the key")
	}
}

// crewed is a cache whose flights are carried as calls carry them.
func crewed(b *testing.B) (*cache, *crew) {
	c, _ := testCache(b, roomy)
	w := newCrew()
	b.Cleanup(w.stop)
	b.ReportAllocs()
	return c, w
}

func BenchmarkCacheHit(b *testing.B) {
	c, _ := crewed(b)
	take(b, c, keyA, true).flight.end(good)
	for b.Loop() {
		hit(b, c, keyA)
	}
}

func BenchmarkCacheHitParallel(b *testing.B) {
	c, _ := crewed(b)
	take(b, c, keyA, true).flight.end(good)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if got, err := c.look(context.Background(), keyA, ""); err != nil || got.kept == nil {
				b.Error(got, err)
				return
			}
		}
	})
}

// benchFlight is a flight with one seat, its whole way: the look, the carrier in a
// goroutine of the crew, the events, the end, kept for one call in a hundred keys.
func benchFlight(b *testing.B, events int, end flown) {
	c, w := crewed(b)
	ev := &wire.Event{Wire: wire.OpenAIChat, Raw: []byte(`{"id":"chatcmpl-123","object":"chat.completion.chunk","created":1,"model":"gpt-4o-mini",` +
		`"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}`)}
	n := 0
	for b.Loop() {
		n++
		key := cacheKey{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}
		got, err := c.look(context.Background(), key, "")
		if err != nil || !got.leads {
			b.Fatal(got, err)
		}
		f := got.seat.flight
		w.run(func() {
			for range events {
				f.event(ev)
			}
			f.end(end)
		})
		read := 0
		for {
			_, end, err := got.seat.next(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			if end != nil {
				break
			}
			read++
		}
		if read != events {
			b.Fatal(read)
		}
	}
}

func BenchmarkFlightWhole(b *testing.B)     { benchFlight(b, 0, flown{resp: good.resp}) }
func BenchmarkFlightWholeKept(b *testing.B) { benchFlight(b, 0, good) }
func BenchmarkFlightStream200(b *testing.B) { benchFlight(b, 200, good) }

func BenchmarkCacheKeyOf1K(b *testing.B) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", 200) + `"}]}`)
	r, err := wire.Parse(wire.OpenAIChat, body)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		cacheKeyOf(r, "public", "standard", "task", "", "m", "", "false", "", "", "", "scope")
	}
}
