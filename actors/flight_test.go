package actors

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

var flightRounds = flag.Int("flight.rounds", 400, "rounds of the randomised flight test")

// testCache is a cache with an actor system of its own. stop ends it, before
// which a test that counts goroutines must call it.
func testCache(t testing.TB, cfg config.Cache) (c *cache, stop func()) {
	t.Helper()
	sys := newSystem(slog.New(slog.DiscardHandler))
	stop = sync.OnceFunc(sys.close)
	t.Cleanup(stop)
	return newCache(sys, cfg), stop
}

// take looks and wants a seat.
func take(t testing.TB, c *cache, key cacheKey, leads bool) *seat {
	t.Helper()
	got, err := c.look(t.Context(), key, "")
	if err != nil || got.seat == nil || got.leads != leads || got.seat.first != leads {
		t.Fatalf("look gives %+v, %v; want a seat, leads: %v", got, err, leads)
	}
	return got.seat
}

// hit looks and wants a kept answer.
func hit(t testing.TB, c *cache, key cacheKey) *kept {
	t.Helper()
	got, err := c.look(t.Context(), key, "")
	if err != nil || got.kept == nil {
		t.Fatalf("look gives %+v, %v; want a kept answer", got, err)
	}
	return got.kept
}

func stats(t testing.TB, c *cache) subjects.CacheMetrics {
	t.Helper()
	m, err := c.metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// readText reads a seat's events to the end and joins their texts.
func readText(t testing.TB, s *seat) (text string, end *flown) {
	t.Helper()
	for {
		ev, end, err := s.next(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case end != nil:
			return text, end
		}
		text += ev.Text
	}
}

func say(f *flight, words ...string) {
	for _, w := range words {
		f.event(&wire.Event{Text: w})
	}
}

var (
	keyA, keyB = cacheKey{1}, cacheKey{2}
	roomy      = config.Cache{MaxEntries: 100, TTL: 1 << 40, MaxBytes: 1 << 20, MaxEntryBytes: 1 << 16}
	good       = flown{resp: &wire.Response{Text: "whole", FinishReason: subjects.FinishStop}, keep: true, cand: subjects.Candidate{Provider: "p", Model: "m"}}
)

func endedBy(kind subjects.Kind) flown { return flown{err: subjects.Errorf(kind, "no")} }

// round is one flight after the other for one key, and a crowd that wants the
// answer, each of whom may leave at any time.
type round struct {
	t       *testing.T
	c       *cache
	key     cacheKey
	patient bool // nobody leaves
	wg      sync.WaitGroup
	// lasts counts the seats that were a flight's last.
	lasts, ends, lefts, hits atomic.Int64
	flights                  chan *flight
}

// carry sends a random number of events and ends in a random way. It looks at the
// context from inside, as a provider does.
func (r *round) carry(f *flight, rng *rand.Rand) {
	var end flown
	defer r.wg.Done()
	defer func() {
		if p := recover(); p != nil {
			end.err = panicError(p)
		}
		f.end(end)
		r.flights <- f
	}()
	buf := []byte("xxxx")
	for i := range rng.IntN(60) {
		if f.ctx.Err() != nil {
			end = flown{err: context.Cause(f.ctx), began: end.began}
			return
		}
		f.event(&wire.Event{Raw: fmt.Appendf(buf[:0], "%d", i), ToolCall: &subjects.ToolCall{ID: fmt.Sprint(i)}})
		end.began = true
		yield(rng, 3)
	}
	switch began := end.began; rng.IntN(6) {
	case 0:
		panic("the carrier fails")
	case 1:
		end = endedBy(subjects.KindProvider)
		end.began = began
	case 2:
		end = endedBy(subjects.KindPoolFull)
		end.began = began
	default:
		end = good
	}
}

func yield(rng *rand.Rand, n int) {
	for range rng.IntN(n + 1) {
		runtime.Gosched()
	}
}

// ask looks until it has an answer, an error of its own, or leaves.
func (r *round) ask(rng *rand.Rand) {
	defer r.wg.Done()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	yield(rng, 40)
	stay := 1 << 30
	if !r.patient && rng.IntN(2) == 0 {
		stay = rng.IntN(40)
	}
	if stay == 3 { // while it looks, or a little before or after
		go cancel(errGone)
	}
	for {
		got, err := r.c.look(ctx, r.key, "")
		switch {
		case err != nil:
			if !errors.Is(err, errGone) {
				r.t.Error(err)
			}
			r.lefts.Add(1)
			return
		case got.kept != nil:
			r.hits.Add(1)
			return
		case got.leads:
			r.wg.Add(1)
			go r.carry(got.seat.flight, rand.New(rand.NewPCG(rng.Uint64(), 0)))
		}
		if !r.read(ctx, got.seat, rng, &stay) {
			return
		}
	}
}

// read follows a flight; it stays for so many events. again says that it looks anew.
func (r *round) read(ctx context.Context, s *seat, rng *rand.Rand, stay *int) (again bool) {
	for i := 0; ; i++ {
		if *stay--; *stay < 0 {
			r.leave(s, errGone)
			return false
		}
		ev, end, err := s.next(ctx)
		given := 0
		for _, is := range []bool{ev != nil, end != nil, err != nil} {
			if is {
				given++
			}
		}
		switch {
		case given != 1:
			r.t.Errorf("next gives %v, %v, %v", ev, end, err)
			return false
		case err != nil:
			r.leave(s, err)
			return false
		case end != nil:
			r.ends.Add(1)
			if _, done := s.leave(errGone); done == nil {
				r.t.Error("no done")
			}
			if i == 0 && end.began {
				r.t.Error("events went out, and this asker has none of them")
			}
			return !end.shared(s.first)
		case string(ev.Raw) != fmt.Sprint(i) || ev.ToolCall.ID != fmt.Sprint(i):
			r.t.Errorf("event %d is %s, %v", i, ev.Raw, ev.ToolCall)
		}
		yield(rng, 2)
	}
}

func (r *round) leave(s *seat, cause error) {
	r.lefts.Add(1)
	last, done := s.leave(cause)
	if !last {
		return
	}
	r.lasts.Add(1)
	if s.flight.ctx.Err() == nil {
		r.t.Error("the last has left and the context goes on")
	}
	<-done
	if s.flight.result() == nil {
		r.t.Error("done before there is a result")
	}
}

// contextsEnded counts the flights whose context is over, when all is quiet.
func (r *round) contextsEnded() (n int64) {
	close(r.flights)
	for f := range r.flights {
		if f.ctx.Err() != nil {
			n++
		}
	}
	return n
}

// TestFlightsAtRandom: a crowd of askers that come late, read slowly and leave at
// any time, and carriers that end, fail and panic. Each asker who stays has every
// event in order and one end; a flight's context ends when all have left, and only
// then; no goroutine stays.
func TestFlightsAtRandom(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c, stop := testCache(t, roomy)
	defer stop()
	var sum round
	for seed := range uint64(*flightRounds) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := &round{t: t, c: c, key: cacheKey{byte(seed), byte(seed >> 8), 3}, patient: seed%4 == 0, flights: make(chan *flight, 1000)}
		askers := 1 + rng.IntN(12)
		r.wg.Add(askers)
		for range askers {
			go r.ask(rand.New(rand.NewPCG(rng.Uint64(), 0)))
		}
		r.wg.Wait()
		if n := r.contextsEnded(); r.lasts.Load() != n || r.patient && n+r.lefts.Load() > 0 {
			t.Errorf("seed %d: %d contexts ended, %d askers were the last of %d that left", seed, n, r.lasts.Load(), r.lefts.Load())
		}
		sum.lasts.Add(r.lasts.Load())
		sum.ends.Add(r.ends.Load())
		sum.lefts.Add(r.lefts.Load())
		sum.hits.Add(r.hits.Load())
		if t.Failed() {
			t.FailNow()
		}
	}
	m := stats(t, c)
	t.Logf("%d ends, %d left, %d as the last, %d hits; %+v", sum.ends.Load(), sum.lefts.Load(), sum.lasts.Load(), sum.hits.Load(), m)
	if sum.lasts.Load() == 0 || sum.hits.Load() == 0 || m.Shared == 0 {
		t.Error("the test does not bite")
	}
	if extra := m.Hits - sum.hits.Load(); extra < 0 || extra > sum.lefts.Load() { // found for one who had left
		t.Errorf("%d hits are counted, %d there were", m.Hits, sum.hits.Load())
	}
}

// TestLateAsker: who comes late has the stream from its beginning, and who comes
// after the end has it from the cache.
func TestLateAsker(t *testing.T) {
	t.Parallel()
	c, _ := testCache(t, roomy)
	first := take(t, c, keyA, true)
	say(first.flight, "a", "b")
	late := take(t, c, keyA, false)
	say(first.flight, "c")
	end := good
	end.began = true
	first.flight.end(end)
	for _, s := range []*seat{first, late} {
		if text, end := readText(t, s); text != "abc" || end.resp != good.resp || end.cand != good.cand {
			t.Errorf("%q, %+v", text, end)
		}
	}
	text := ""
	k := hit(t, c, keyA)
	if err := k.each(func(ev *wire.Event) error { text += ev.Text; return nil }); err != nil || text != "abc" || k.cand != good.cand {
		t.Errorf("%q of %+v is kept, %v", text, k.cand, err)
	}
	take(t, c, keyB, true)
	want := subjects.CacheMetrics{Hits: 1, Misses: 2, Shared: 1, HitRatio: 0.5, Entries: 1, MaxEntries: 100, Bytes: k.bytes, MaxBytes: 1 << 20}
	if m := stats(t, c); m != want {
		t.Errorf("%+v, want %+v", m, want)
	}
}

// TestFirstLeaves: the others go on; the last one's cause ends the context.
func TestFirstLeaves(t *testing.T) {
	t.Parallel()
	c, _ := testCache(t, roomy)
	first := take(t, c, keyA, true)
	f := first.flight
	second := take(t, c, keyA, false)
	if last, _ := first.leave(errGone); last || f.ctx.Err() != nil {
		t.Fatal("the first asker's leaving ended the flight")
	}
	if last, _ := first.leave(errGone); last || f.ctx.Err() != nil {
		t.Fatal("leaving twice counts twice")
	}
	third := take(t, c, keyA, false)
	say(f, "a")
	second.leave(errGone)
	last, done := third.leave(errStopped)
	if !last || !errors.Is(context.Cause(f.ctx), errStopped) {
		t.Fatalf("the last left: %v, and the context's cause is %v", last, context.Cause(f.ctx))
	}
	if again := take(t, c, keyA, true); again.flight == f {
		t.Error("a seat in a flight that was given up")
	}
	select {
	case <-done:
		t.Fatal("done before the carrier has ended")
	default:
	}
	f.end(good)
	<-done
	if last, _ := take(t, c, keyA, false).leave(errGone); last {
		t.Error("the end of a flight that was given up took out another")
	}
	if m := stats(t, c); m.Entries != 0 {
		t.Errorf("the answer of a flight that was given up is kept: %+v", m)
	}
}

// TestReaderStops: an asker's own end comes before what it has not read, and after
// the flight's.
func TestReaderStops(t *testing.T) {
	t.Parallel()
	c, _ := testCache(t, roomy)
	s := take(t, c, keyA, true)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	if _, _, err := s.next(ctx); !errors.Is(err, errGone) {
		t.Errorf("nothing to read: %v", err)
	}
	say(s.flight, "a")
	if ev, _, err := s.next(ctx); ev != nil || !errors.Is(err, errGone) {
		t.Errorf("an event to read: %v, %v", ev, err)
	}
	if text, _, err := s.next(t.Context()); err != nil || text.Text != "a" {
		t.Errorf("%v, %v", text, err)
	}
	s.flight.end(good)
	if _, end, err := s.next(ctx); end == nil || err != nil {
		t.Errorf("the flight's end: %v, %v", end, err)
	}
	if _, err := c.look(ctx, keyA, ""); !errors.Is(err, errGone) {
		t.Errorf("look after the asker's end: %v", err)
	}
}

// TestStreamOverBound: those who read go on, nobody joins, nothing is kept.
func TestStreamOverBound(t *testing.T) {
	t.Parallel()
	c, _ := testCache(t, config.Cache{MaxEntries: 10, TTL: 1 << 40, MaxBytes: 1 << 30, MaxEntryBytes: 4000})
	first := take(t, c, keyA, true)
	small := strings.Repeat("x", 100)
	say(first.flight, small)
	slow := take(t, c, keyA, false)
	want := small
	for range 100 {
		say(first.flight, small)
		want += small
	}
	other := take(t, c, keyA, true)
	if other.flight == first.flight {
		t.Fatal("a seat in a flight whose beginning is gone")
	}
	joined := take(t, c, keyA, false)
	first.flight.end(good)
	for _, s := range []*seat{first, slow} {
		if text, _ := readText(t, s); text != want {
			t.Errorf("%d bytes, want %d", len(text), len(want))
		}
	}
	if m := stats(t, c); m.Entries != 0 {
		t.Errorf("it is kept: %+v", m)
	}
	other.flight.end(good) // the second one's end is its own
	if _, end := readText(t, joined); end.resp != good.resp {
		t.Errorf("%+v", end)
	}
	if m := stats(t, c); m.Entries != 1 {
		t.Errorf("the second one's answer is not kept: %+v", m)
	}
}

// TestEventsAreCopied: the provider's buffer is its own again after each event.
func TestEventsAreCopied(t *testing.T) {
	t.Parallel()
	c, _ := testCache(t, roomy)
	s := take(t, c, keyA, true)
	buf := make([]byte, 0, 10_000)
	call := &subjects.ToolCall{ID: "1", Name: "f", Arguments: "{}"}
	sizes := []int{0, 1, 100, 511, 600, 5000, 3, 8192, 10_000}
	for i, n := range sizes {
		buf = append(buf[:0], strings.Repeat(string(rune('a'+i)), n)...)
		s.flight.event(&wire.Event{Wire: wire.OpenAIChat, Raw: buf, ToolCall: call, UsageOnly: i == 1, Empty: i == 2})
	}
	call.Name = "changed"
	s.flight.event(&wire.Event{Text: "text"})
	for i, n := range sizes {
		ev, _, err := s.next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ev.Wire != wire.OpenAIChat || ev.Raw == nil || string(ev.Raw) != strings.Repeat(string(rune('a'+i)), n) || cap(ev.Raw) > max(n, 1)*2 ||
			ev.ToolCall.Name != "f" || ev.UsageOnly != (i == 1) || ev.Empty != (i == 2) {
			t.Errorf("event %d: %+v", i, ev)
		}
	}
	if ev, _, err := s.next(t.Context()); err != nil || ev.Raw != nil || ev.ToolCall != nil || ev.Text != "text" {
		t.Errorf("%+v, %v", ev, err)
	}
}

// TestShared is the rule for who takes a flight's error for its own.
func TestShared(t *testing.T) {
	t.Parallel()
	own := map[subjects.Kind]bool{subjects.KindCancelled: true, subjects.KindBudgetExceeded: true, subjects.KindPoolFull: true}
	for _, kind := range []subjects.Kind{
		subjects.KindValidation, subjects.KindContentPolicy, subjects.KindAuth, subjects.KindQuotaExhausted, subjects.KindRateLimited,
		subjects.KindPoolFull, subjects.KindBudgetExceeded, subjects.KindProvider, subjects.KindTimeout, subjects.KindProviderUnavailable,
		subjects.KindCapabilityMissing, subjects.KindNoProvider, subjects.KindCancelled,
	} {
		end := endedBy(kind)
		if !end.shared(true) {
			t.Errorf("%s is not the first asker's own", kind)
		}
		if end.shared(false) == own[kind] {
			t.Errorf("%s for another asker: %v", kind, !own[kind])
		}
		if end.began = true; !end.shared(false) {
			t.Errorf("%s after output is looked for anew", kind)
		}
	}
	if !good.shared(false) {
		t.Error("an answer is not shared")
	}
}
