package actors

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

// bank is a set of accounts with what they emitted, published and saved. The
// provider of the tests is "p", its model "m".
type bank struct {
	*accounts
	t testing.TB

	mu     sync.Mutex
	events []any
	stand  map[string]standing
	saved  map[string][]byte
}

func bankConfig() *config.Config {
	return &config.Config{
		Breaker: config.Breaker{Threshold: 5, ResetTimeout: time.Minute, MaxPause: 30 * time.Minute},
		Providers: map[string]*config.Provider{
			"p": {ID: "p", Quota: &config.QuotaTracking{Enabled: true, SoftLimitPerHour: 3}},
			"q": {ID: "q"},
		},
	}
}

// keepingShares is that configuration with a fifth of each window kept for people.
func keepingShares() *config.Config {
	cfg := bankConfig()
	cfg.Quota.Reserve = map[string]float64{subjects.ClassInteractive: 0.2}
	return cfg
}

func openBank(t testing.TB, cfg *config.Config, saved map[string][]byte) *bank {
	t.Helper()
	sys := newSystem(slog.New(slog.DiscardHandler))
	t.Cleanup(sys.close)
	b := &bank{t: t, stand: map[string]standing{}, saved: maps.Clone(saved)}
	if b.saved == nil {
		b.saved = map[string][]byte{}
	}
	b.accounts = newAccounts(sys, accountOptions{
		cfg: cfg, saved: saved,
		emit: func(_ string, event any) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events = append(b.events, event)
		},
		publish: func(provider string, st standing) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.stand[provider] = st
		},
		save: func(key string, value []byte) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if value == nil {
				delete(b.saved, key)
				return
			}
			b.saved[key] = value
		},
	})
	return b
}

// bubble runs a test on virtual time with a bank of the tests' configuration.
func bubble(t *testing.T, f func(t *testing.T, b *bank)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, openBank(t, bankConfig(), nil)) })
}

// reopened is the bank after a restart.
func (b *bank) reopened(cfg *config.Config) *bank {
	b.t.Helper()
	if err := b.flush(context.Background()); err != nil {
		b.t.Fatal(err)
	}
	next := openBank(b.t, cfg, b.saved)
	next.restore()
	return next
}

// reopenedWith is the bank after a restart that finds something else saved.
func (b *bank) reopenedWith(key, value string) *bank {
	b.t.Helper()
	saved := map[string][]byte{key: []byte(value)}
	next := openBank(b.t, bankConfig(), saved)
	next.restore()
	return next
}

// take is a permit that must be given.
func (b *bank) take() *permit { return b.takeOf("m") }

func (b *bank) takeOf(model string) *permit {
	b.t.Helper()
	p, no, err := b.permit(context.Background(), "p", model, subjects.ClassInteractive)
	if err != nil || no != nil || p == nil {
		b.t.Fatalf("%s: no permit: %+v, %v", model, no, err)
	}
	return p
}

// refused is a permit that must not be given, for a reason.
func (b *bank) refused(reason string) routing.Hold {
	b.t.Helper()
	return b.refusedOf("m", subjects.ClassInteractive, reason)
}

func (b *bank) refusedOf(model, class, reason string) routing.Hold {
	b.t.Helper()
	p, no, err := b.permit(context.Background(), "p", model, class)
	if p != nil || err != nil || no == nil || no.reason != reason {
		b.t.Fatalf("%s, %s: %+v, %+v, %v instead of a refusal for %s", model, class, p, no, err, reason)
	}
	return no.hold
}

// try makes attempts that must be let pass and end so.
func (b *bank) try(outcomes ...outcome) {
	b.t.Helper()
	for _, o := range outcomes {
		b.take().done(o)
	}
}

func (b *bank) tryOf(model string, o outcome) {
	b.t.Helper()
	b.takeOf(model).done(o)
}

func (b *bank) about() accountInfo {
	b.t.Helper()
	info, err := b.info(context.Background(), "p")
	if err != nil {
		b.t.Fatal(err)
	}
	return info
}

// breakerIs holds the breaker's state and counts.
func (b *bank) breakerIs(state string, failures, opened int) {
	b.t.Helper()
	if i := b.about().breaker; i.State != state || i.Failures != failures || i.Opened != opened {
		b.t.Fatalf("%+v, not %s with %d failures, opened %d times", i, state, failures, opened)
	}
}

// published returns what routing sees, and forgets nothing.
func (b *bank) published() standing {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stand["p"]
}

// said returns the events since the last time.
func (b *bank) said() []any {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.events
	b.events = nil
	return out
}

func failed(kind subjects.Kind) outcome {
	return outcome{err: subjects.Errorf(kind, "no"), ran: 10 * time.Millisecond}
}

func outOfQuota(after time.Duration) outcome {
	o := failed(subjects.KindQuotaExhausted)
	o.err.RetryAfter = after
	return o
}

func ofModel(o outcome) outcome {
	o.err.ModelOnly = true
	return o
}

var served = outcome{ran: 20 * time.Millisecond}

func times(n int, o outcome) []outcome {
	out := make([]outcome, n)
	for i := range out {
		out[i] = o
	}
	return out
}

// TestPermitIsGivenBackOnce: of done and release the first has an effect, and a
// nil permit has none.
func TestPermitIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(_ *testing.T, b *bank) {
		p := b.take()
		p.done(failed(subjects.KindProvider))
		p.done(failed(subjects.KindProvider))
		p.release()
		b.breakerIs(subjects.BreakerClosed, 1, 0)
		p = b.take()
		p.release()
		p.done(failed(subjects.KindProvider))
		b.breakerIs(subjects.BreakerClosed, 1, 0)
		(*permit)(nil).release()
		(*permit)(nil).done(served)
		if n := b.about().metrics.Calls; n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}

// TestPanicAndCancelGiveTheTrialBack: a call that panics, or whose context ends
// while it asks, leaves no trial behind.
func TestPanicAndCancelGiveTheTrialBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		b.try(times(5, failed(subjects.KindTimeout))...)
		pass(time.Minute)
		func() {
			defer func() { _ = recover() }()
			p := b.take()
			defer p.release()
			panic("in the provider")
		}()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 { // whether the grant or the end is seen first is chance
			p, no, err := b.permit(ctx, "p", "m", subjects.ClassInteractive)
			if no != nil {
				t.Fatalf("%+v", no)
			}
			if err == nil {
				p.release()
			}
		}
		b.take().done(served)
		b.breakerIs(subjects.BreakerClosed, 0, 0)
	})
}

// TestActorsPanicKeepsTheTrialFree: what the actor calls may panic; the permit
// that came back is still given back.
func TestActorsPanicKeepsTheTrialFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(slog.New(slog.DiscardHandler))
		t.Cleanup(sys.close)
		broken := false
		b := &bank{t: t, accounts: newAccounts(sys, accountOptions{
			cfg: bankConfig(), publish: func(string, standing) {}, save: func(string, []byte) {},
			emit: func(string, any) {
				if broken {
					panic("no one to tell")
				}
			},
		})}
		b.try(times(5, failed(subjects.KindTimeout))...)
		pass(time.Minute)
		p := b.take()
		broken = true
		p.done(outOfQuota(0)) // neutral to the breaker, and an event
		broken = false
		pass(time.Hour)
		b.take().done(served)
		b.breakerIs(subjects.BreakerClosed, 0, 0)
	})
}

// TestFreePathSendsNothing: with nothing held back a permit needs no actor, and
// what holds one model or class back leaves the others on that path.
func TestFreePathSendsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		b.tryOf("m", ofModel(outOfQuota(0)))
		heard := listener{}
		(*b.all.Load())["p"].pid = b.sys.spawn(heard)
		b.takeOf("n")
		if len(heard) != 0 {
			t.Errorf("%v", heard)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := b.permit(ctx, "p", "m", subjects.ClassInteractive); err == nil {
			t.Error("a held model's permit was given without the actor")
		}
		if len(heard) == 0 {
			t.Error("the actor was not asked")
		}
	})
}

// listener is an actor that says nothing.
type listener map[string]bool

func (l listener) receive(_ *actor.PID, msg any) { l[fmt.Sprintf("%T", msg)] = true }

// TestFlushStopsTheTimers: nothing is sent to an account after the end.
func TestFlushStopsTheTimers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := openBank(t, keepingShares(), nil)
		b.try(served, reporting(unified("5h", 0.9, time.Hour, "allowed")))
		if err := b.flush(t.Context()); err != nil || b.saved["quota/p"] == nil {
			t.Fatalf("%v, %s", err, b.saved["quota/p"])
		}
		pid := (*b.all.Load())["p"].pid
		b.sys.stop(pid)
		var dead atomic.Int64
		b.sys.as.EventStream.Subscribe(func(any) { dead.Add(1) })
		pass(2 * time.Hour)
		synctest.Wait()
		if n := dead.Load(); n != 0 {
			t.Errorf("%d messages for nobody", n)
		}
	})
}

// TestTooManyAccounts: names that come from outside are bounded; configured
// providers always have an account.
func TestTooManyAccounts(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		for i := range maxAccounts {
			if p, _, err := b.permit(t.Context(), "x"+string(rune('a'+i%26))+time.Duration(i).String(), "m", ""); err != nil || p.ref == nil {
				t.Fatalf("%d: %v", i, err)
			}
		}
		p, no, err := b.permit(t.Context(), "one more", "m", "")
		if err != nil || no != nil || p == nil {
			t.Fatalf("%v, %v, %v", p, no, err)
		}
		p.done(failed(subjects.KindAuth))
		if info, err := b.info(t.Context(), "one more"); err != nil || info.metrics.Calls != 0 {
			t.Errorf("%+v, %v", info, err)
		}
		b.try(failed(subjects.KindAuth))
		b.refused(routing.ReasonBreaker)
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		cost, saved := subjects.USD(1500), subjects.USD(700)
		pass(10 * time.Second)
		for i := range 100 {
			o := outcome{ran: time.Duration(i+1) * time.Millisecond, usage: subjects.Usage{InputTokens: 7, OutputTokens: 3, TotalTokens: 10}}
			if i%2 == 0 {
				o.cost, o.saved = &cost, &saved
			}
			b.try(o)
		}
		b.try(failed(subjects.KindProvider), failed(subjects.KindProvider), failed("MADE_UP"), failed(subjects.KindCancelled))
		late := failed(subjects.KindTimeout)
		late.callerEnded = true
		gone := failed(subjects.KindProvider)
		gone.callerEnded = true
		b.try(late, gone)
		m := b.about().metrics
		if m.Calls != 106 || m.Successes != 100 || m.Failures != 4 || m.Cancelled != 2 {
			t.Errorf("%+v", m)
		}
		if m.Errors["PROVIDER_ERROR"] != 2 || m.Errors["TIMEOUT"] != 1 || m.Errors[otherKind] != 1 || len(m.Errors) != 3 {
			t.Errorf("%v", m.Errors)
		}
		if m.SuccessRate != 100.0/104 || m.FailureRate != 4.0/104 {
			t.Errorf("%v, %v", m.SuccessRate, m.FailureRate)
		}
		if m.AvgLatencyMs != 50.5 || m.P50LatencyMs != 50 || m.P95LatencyMs != 95 || m.MaxLatencyMs != 100 {
			t.Errorf("%v %v %v %v", m.AvgLatencyMs, m.P50LatencyMs, m.P95LatencyMs, m.MaxLatencyMs)
		}
		if m.InputTokens != 700 || m.OutputTokens != 300 || m.TotalTokens != 1000 || m.EstimatedCostUSD != 75_000 || m.SavedUSD != 35_000 || m.Unpriced != 50 {
			t.Errorf("%+v", m)
		}
		if m.CallsPerMinute != 106 || m.TokensPerMinute != 1000 {
			t.Errorf("in the first minute: %v, %v", m.CallsPerMinute, m.TokensPerMinute)
		}
		pass(4 * time.Minute)
		if m = b.about().metrics; m.CallsPerMinute < 25 || m.CallsPerMinute > 27 {
			t.Errorf("after four minutes: %v", m.CallsPerMinute)
		}
		pass(2 * time.Minute)
		for range recentLatencies {
			b.try(outcome{ran: time.Second})
		}
		if m = b.about().metrics; m.P50LatencyMs != 1000 || m.MaxLatencyMs != 1000 || m.AvgLatencyMs >= 1000 || m.CallsPerMinute != recentLatencies/5.0 {
			t.Errorf("%+v", m)
		}
	})
}
