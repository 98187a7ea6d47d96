package actors

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

// TestJudge holds what counts for a breaker: the column of contract §8, and what
// the kinds alone do not tell.
func TestJudge(t *testing.T) {
	t.Parallel()
	with := func(kind subjects.Kind, status int) outcome {
		o := failed(kind)
		o.err.HTTPStatus = status
		return o
	}
	ended := func(kind subjects.Kind, ran time.Duration) outcome {
		o := failed(kind)
		o.callerEnded, o.ran = true, ran
		return o
	}
	counted := map[subjects.Kind]judgement{
		subjects.KindProvider: verdictFailure, subjects.KindTimeout: verdictFailure,
		subjects.KindProviderUnavailable: verdictFailure, subjects.KindAuth: verdictRefused,
	}
	for _, kind := range append(subjects.Kinds(), "MADE_UP") {
		o := failed(kind)
		if got := judge(&o, 0); got != counted[kind] {
			t.Errorf("%s: %v", kind, got)
		}
	}
	for name, tc := range map[string]struct {
		o    outcome
		want judgement
	}{
		"success":                           {served, verdictSuccess},
		"success as the caller left":        {outcome{callerEnded: true}, verdictSuccess},
		"model missing":                     {with(subjects.KindProviderUnavailable, 404), verdictNeutral},
		"cannot do this request":            {with(subjects.KindProviderUnavailable, 422), verdictNeutral},
		"unreachable":                       {with(subjects.KindProviderUnavailable, 503), verdictFailure},
		"a provider error with a status":    {with(subjects.KindProvider, 404), verdictFailure},
		"caller's deadline after a moment":  {ended(subjects.KindTimeout, 999*time.Millisecond), verdictNeutral},
		"caller's deadline after a second":  {ended(subjects.KindTimeout, time.Second), verdictFailure},
		"caller's deadline in mid-answer":   {answering(ended(subjects.KindTimeout, time.Minute)), verdictNeutral},
		"provider's timeout in mid-answer":  {answering(failed(subjects.KindTimeout)), verdictFailure},
		"provider's timeout after a moment": {failed(subjects.KindTimeout), verdictFailure},
		"cancelled, dressed as a failure":   {ended(subjects.KindProvider, time.Minute), verdictNeutral},
		"cancelled, dressed as refused":     {ended(subjects.KindAuth, time.Minute), verdictNeutral},
	} {
		if got := judge(&tc.o, 0); got != tc.want {
			t.Errorf("%s: %v, not %v", name, got, tc.want)
		}
	}
}

// TestHastyCallers: deadlines that are shorter than a healthy provider takes do not
// open its breaker, however many; those that would have let it answer do.
func TestHastyCallers(t *testing.T) {
	late := func(ran time.Duration) outcome {
		return outcome{err: subjects.Errorf(subjects.KindTimeout, "late"), callerEnded: true, ran: ran}
	}
	m := &attemptMeter{}
	for range 20 {
		m.add(&outcome{ran: 3 * time.Second}, time.Now())
	}
	for ran, want := range map[time.Duration]judgement{
		1100 * time.Millisecond: verdictNeutral, 5 * time.Second: verdictNeutral, 6 * time.Second: verdictFailure,
	} {
		o := late(ran)
		if got := judge(&o, m.usual(&o)); got != want {
			t.Errorf("%s at a provider that takes three seconds: %v", ran, got)
		}
	}
	own := outcome{err: subjects.Errorf(subjects.KindTimeout, "late"), ran: time.Second}
	if judge(&own, m.usual(&own)) != verdictFailure {
		t.Error("the provider's own timeout does not count")
	}
}

// answering is an attempt that ended after output had come.
func answering(o outcome) outcome {
	o.begun = true
	return o
}

// breakerEvents leaves the times out.
func breakerEvents(t *testing.T, b *bank) (out []string) {
	t.Helper()
	for _, ev := range b.said() {
		if e, ok := ev.(*subjects.BreakerEvent); ok {
			if e.Provider != "p" || (e.RetryAt != nil) != (e.State == subjects.BreakerOpen) {
				t.Errorf("%+v", e)
			}
			out = append(out, e.From+">"+e.State)
		}
	}
	return out
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%q, not %q", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%q, not %q", got, want)
		}
	}
}

// TestBreakerLife is the seed's: five failures in a row open it for a minute, one
// trial closes it or doubles the pause, half an hour at most.
func TestBreakerLife(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		b.try(times(4, failed(subjects.KindProvider))...)
		b.try(served)
		b.try(times(4, failed(subjects.KindProvider))...)
		b.breakerIs(subjects.BreakerClosed, 4, 0)
		b.try(failed(subjects.KindTimeout))
		b.breakerIs(subjects.BreakerOpen, 5, 1)
		expect(t, breakerEvents(t, b), "closed>open")
		for i, minutes := range []int{1, 2, 4, 8, 16, 30, 30} {
			pause := time.Duration(minutes) * time.Minute
			h := b.refused(routing.ReasonBreaker)
			if h.Trial || !h.On || time.Until(h.Until) != pause || b.published().Breaker != h || h.Detail != "after TIMEOUT" {
				t.Fatalf("opened %d times: %+v, %s", i+1, h, time.Until(h.Until))
			}
			pass(pause - 1)
			b.refused(routing.ReasonBreaker)
			pass(1)
			if b.about().breaker.State != subjects.BreakerHalfOpen {
				t.Fatal("not half-open by the time alone")
			}
			trial := b.take()
			if h := b.refused(routing.ReasonBreaker); !h.Trial || b.published().Breaker != h {
				t.Fatalf("%+v", h)
			}
			trial.done(failed(subjects.KindTimeout))
			expect(t, breakerEvents(t, b), "open>half-open", "half-open>open")
			b.breakerIs(subjects.BreakerOpen, 6+i, 2+i)
		}
		pass(30 * time.Minute)
		b.try(served)
		expect(t, breakerEvents(t, b), "open>half-open", "half-open>closed")
		b.breakerIs(subjects.BreakerClosed, 0, 0)
		if b.published().Breaker.On || b.saved["breaker/p"] != nil {
			t.Errorf("%+v, %s", b.published(), b.saved["breaker/p"])
		}
		b.try(times(4, failed(subjects.KindProvider))...)
		b.breakerIs(subjects.BreakerClosed, 4, 0)
	})
}

// TestBreakerRefusedCredentials open at once; then the trial is like any other.
func TestBreakerRefusedCredentials(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		b.try(served, failed(subjects.KindAuth))
		if h := b.refused(routing.ReasonBreaker); time.Until(h.Until) != time.Minute {
			t.Errorf("%+v", h)
		}
		if r := b.about().breaker.Reason; r != "AUTH_ERROR" {
			t.Error(r)
		}
		pass(time.Minute)
		b.try(failed(subjects.KindAuth))
		b.breakerIs(subjects.BreakerOpen, 2, 2)
		pass(2 * time.Minute)
		b.try(served)
		b.breakerIs(subjects.BreakerClosed, 0, 0)
	})
}

// TestBreakerNeutral: what says nothing changes no count, and gives a trial back
// without another pause.
func TestBreakerNeutral(t *testing.T) {
	t.Parallel()
	neutral := []outcome{
		failed(subjects.KindValidation), failed(subjects.KindCancelled), failed(subjects.KindRateLimited),
		failed(subjects.KindContentPolicy),
		{err: failed(subjects.KindTimeout).err, callerEnded: true},
	}
	bubble(t, func(t *testing.T, b *bank) {
		b.try(times(4, failed(subjects.KindProvider))...)
		for range 5 {
			b.try(neutral...)
		}
		b.breakerIs(subjects.BreakerClosed, 4, 0)
		b.try(failed(subjects.KindProvider))
		pass(time.Minute)
		b.said()
		for _, o := range neutral {
			trial := b.take()
			b.refused(routing.ReasonBreaker)
			trial.done(o)
			b.breakerIs(subjects.BreakerHalfOpen, 5, 1)
			trial = b.take()
			b.refused(routing.ReasonBreaker)
			trial.release()
		}
		expect(t, breakerEvents(t, b), "open>half-open")
		if h := b.published().Breaker; !h.On || h.Trial || h.Until.After(time.Now()) {
			t.Errorf("%+v", h)
		}
		b.try(failed(subjects.KindProvider))
		b.breakerIs(subjects.BreakerOpen, 6, 2)
	})
}

// TestBreakerLateOutcomes: an attempt that began before the breaker opened neither
// closes it nor counts, then or later; the trial alone does.
func TestBreakerLateOutcomes(t *testing.T) {
	t.Parallel()
	bubble(t, func(_ *testing.T, b *bank) {
		early := make([]*permit, 8)
		for i := range early {
			early[i] = b.take()
		}
		b.try(times(5, failed(subjects.KindProvider))...)
		early[0].done(served)
		early[1].done(failed(subjects.KindAuth))
		b.breakerIs(subjects.BreakerOpen, 5, 1)
		pass(time.Minute)
		early[2].done(served)
		early[3].release()
		b.breakerIs(subjects.BreakerHalfOpen, 5, 1)
		trial := b.take()
		early[4].done(served)
		early[5].done(failed(subjects.KindProvider))
		b.breakerIs(subjects.BreakerHalfOpen, 5, 1)
		b.refused(routing.ReasonBreaker)
		trial.done(served)
		early[6].done(failed(subjects.KindAuth))
		b.breakerIs(subjects.BreakerClosed, 0, 0)
		b.try(failed(subjects.KindProvider))
		early[7].done(served)
		b.breakerIs(subjects.BreakerClosed, 1, 0)
	})
}

// TestBreakerRestart: closed with failures, open with the rest of its pause and
// half-open with a trial that ended with the process go on as if nothing had been.
func TestBreakerRestart(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		b.try(times(4, failed(subjects.KindProvider))...)
		b = b.reopened(bankConfig())
		b.breakerIs(subjects.BreakerClosed, 4, 0)
		b.try(failed(subjects.KindProvider))
		pass(time.Minute)
		b.try(failed(subjects.KindProvider))
		pass(30 * time.Second)
		b = b.reopened(bankConfig())
		if h := b.published().Breaker; !h.On || time.Until(h.Until) != 90*time.Second || h.Detail != "after PROVIDER_ERROR" {
			t.Fatalf("%+v, %s", h, time.Until(h.Until))
		}
		pass(90*time.Second - 1)
		b.refused(routing.ReasonBreaker)
		pass(1)
		b.take() // and the process is killed
		b = b.reopened(bankConfig())
		b.breakerIs(subjects.BreakerHalfOpen, 6, 2)
		b.try(failed(subjects.KindProvider))
		if h := b.refused(routing.ReasonBreaker); time.Until(h.Until) != 4*time.Minute {
			t.Errorf("%s", time.Until(h.Until))
		}
		b.breakerIs(subjects.BreakerOpen, 7, 3)
	})
}

// TestBreakerSavedByOthers: a clock that was set back, and what is no state, hold
// nobody back for longer than the longest pause.
func TestBreakerSavedByOthers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		b = b.reopenedWith("breaker/p", `{"failures":5,"opened":1,"reason":"TIMEOUT","until":"2999-01-01T00:00:00Z"}`)
		if h := b.refused(routing.ReasonBreaker); time.Until(h.Until) != 30*time.Minute {
			t.Errorf("%+v", h)
		}
		for _, junk := range []string{"", "{", "[]", `{"failures":"x"}`, `{"failures":-7,"opened":-3,"until":null}`} {
			b = b.reopenedWith("breaker/p", junk)
			b.breakerIs(subjects.BreakerClosed, 0, 0)
			b.try(served)
		}
		b = b.reopenedWith("breaker/p", `{"failures":2000000000,"opened":2000000000,"until":"1999-01-01T00:00:00Z"}`)
		b.try(failed(subjects.KindProvider))
		if h := b.refused(routing.ReasonBreaker); time.Until(h.Until) != 30*time.Minute {
			t.Errorf("%+v", h)
		}
	})
}

// TestBreakerReconfigured: a new threshold and new pauses count from then on, for
// closed, open and half-open breakers.
func TestBreakerReconfigured(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		cfg := bankConfig()
		cfg.Breaker.Threshold = 2
		b.try(times(3, failed(subjects.KindProvider))...)
		b.reconfigure(cfg)
		b.breakerIs(subjects.BreakerClosed, 3, 0)
		b.try(failed(subjects.KindProvider))
		b.breakerIs(subjects.BreakerOpen, 4, 1)
		cfg = bankConfig()
		cfg.Breaker.ResetTimeout, cfg.Breaker.MaxPause = time.Second, 20*time.Second
		b.reconfigure(cfg)
		if h := b.refused(routing.ReasonBreaker); time.Until(h.Until) != 20*time.Second || b.published().Breaker != h {
			t.Errorf("%+v", h)
		}
		pass(20 * time.Second)
		trial := b.take()
		cfg = bankConfig()
		cfg.Breaker.ResetTimeout = 3 * time.Minute
		b.reconfigure(cfg)
		b.refused(routing.ReasonBreaker)
		trial.done(failed(subjects.KindProvider))
		if h := b.refused(routing.ReasonBreaker); time.Until(h.Until) != 6*time.Minute {
			t.Errorf("%+v", h)
		}
		b.reconfigure(bankConfig())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if info, err := b.info(ctx, "never asked"); err != nil || info.breaker.State != subjects.BreakerClosed {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

// TestCredentialsAreSaidOnce: that they fail is said when it is found out, and that
// they are taken again; neither for each attempt, nor again after a restart.
func TestCredentialsAreSaidOnce(t *testing.T) {
	t.Parallel()
	statuses := func(b *bank) (out []bool) {
		synctest.Wait()
		for _, e := range b.said() {
			if ev, ok := e.(*providerStatusEvent); ok {
				out = append(out, ev.Available)
			}
		}
		return out
	}
	bubble(t, func(t *testing.T, b *bank) {
		one, two := b.take(), b.take()
		one.done(failed(subjects.KindAuth))
		two.done(failed(subjects.KindAuth))
		if got := statuses(b); !slices.Equal(got, []bool{false}) {
			t.Errorf("two refusals are said as %v", got)
		}
		pass(time.Minute)
		b.try(failed(subjects.KindAuth))
		b = b.reopened(bankConfig())
		pass(2 * time.Minute)
		b.try(failed(subjects.KindProvider))
		pass(4 * time.Minute)
		if got := statuses(b); got != nil {
			t.Errorf("no change is said as %v", got)
		}
		b.try(served, served)
		if got := statuses(b); !slices.Equal(got, []bool{true}) {
			t.Errorf("a success is said as %v", got)
		}
	})
}
