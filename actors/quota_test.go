package actors

import (
	"strconv"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

// quotaEvents are the states and models of those since the last time.
func quotaEvents(b *bank) (out []string) {
	for _, ev := range b.said() {
		if e, ok := ev.(*subjects.QuotaEvent); ok {
			s := e.State + " " + e.Model
			if e.RetryAt != nil {
				s += " " + time.Until(e.RetryAt.Time).String()
			}
			out = append(out, s)
		}
	}
	return out
}

// TestQuotaBackoff is the seed's: 5 min, 15 min, then an hour each; success
// forgets the count.
func TestQuotaBackoff(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		for round := range 2 {
			b.try(outOfQuota(0))
			for i, wait := range []time.Duration{5 * time.Minute, 15 * time.Minute, time.Hour, time.Hour, time.Hour} {
				h := b.refusedOf("another", subjects.ClassIngestion, routing.ReasonQuota)
				if h.Trial || time.Until(h.Until) != wait || b.published().Quota != h {
					t.Fatalf("%d, %d: %+v", round, i, h)
				}
				expect(t, quotaEvents(b), "exhausted  "+wait.String())
				if q := b.about().quota; q.State != subjects.QuotaExhausted || len(q.Exhausted) != 1 || q.Exhausted[0].Times != i+1 || q.Exhausted[0].ResetAt != nil {
					t.Fatalf("%+v", q)
				}
				pass(wait)
				probe := b.take()
				if h := b.refusedOf("another", subjects.ClassIngestion, routing.ReasonQuota); !h.Trial {
					t.Fatalf("%+v", h)
				}
				probe.done(outOfQuota(0))
			}
			pass(time.Hour)
			b.said()
			b.try(served)
			expect(t, quotaEvents(b), "ok ")
			if b.published().Quota.On || b.about().quota.State != subjects.QuotaOK {
				t.Fatalf("%+v", b.published())
			}
		}
	})
}

// TestQuotaReset: the provider's own time is waited for, an hour at most; one that
// is past, tiny, endless or was wrong before gives way to the backoff.
func TestQuotaReset(t *testing.T) {
	t.Parallel()
	unified := func(in time.Duration, more ...string) map[string]string {
		m := map[string]string{
			"anthropic-ratelimit-unified-status": "rejected",
			"anthropic-ratelimit-unified-reset":  strconv.FormatInt(time.Now().Add(in).Unix(), 10),
		}
		for i := 0; i < len(more); i += 2 {
			m["anthropic-ratelimit-unified-"+more[i]] = more[i+1]
		}
		return m
	}
	at := func(in time.Duration) string { return strconv.FormatInt(time.Now().Add(in).Unix(), 10) }
	for name, tc := range map[string]struct {
		after  time.Duration
		limits func() map[string]string
		wait   time.Duration
		reset  time.Duration // 0 = none is shown
	}{
		"none":              {wait: 5 * time.Minute},
		"half a minute":     {after: 30 * time.Second, wait: 30 * time.Second, reset: 30 * time.Second},
		"forty minutes":     {after: 40 * time.Minute, wait: 40 * time.Minute, reset: 40 * time.Minute},
		"three days":        {after: 72 * time.Hour, wait: time.Hour, reset: 72 * time.Hour},
		"years":             {after: 10 * 365 * 24 * time.Hour, wait: 5 * time.Minute},
		"the longest there": {after: 1<<63 - 1, wait: 5 * time.Minute},
		"tiny":              {after: time.Second, wait: 5 * time.Minute},
		"past":              {after: -time.Hour, wait: 5 * time.Minute},
		"header":            {limits: func() map[string]string { return unified(20 * time.Minute) }, wait: 20 * time.Minute, reset: 20 * time.Minute},
		"header in the past": {
			limits: func() map[string]string { return unified(-20 * time.Minute) }, wait: 5 * time.Minute,
		},
		"header of years": {limits: func() map[string]string { return unified(1e5 * time.Hour) }, wait: 5 * time.Minute},
		"no number": {limits: func() map[string]string {
			return map[string]string{"anthropic-ratelimit-unified-status": "rejected", "anthropic-ratelimit-unified-reset": "NaN"}
		}, wait: 5 * time.Minute},
		"allowed": {limits: func() map[string]string { return unified(20*time.Minute, "status", "allowed") }, wait: 5 * time.Minute},
		"the rejected window": {limits: func() map[string]string {
			return unified(0, "status", "", "5h-utilization", "1.01", "5h-status", "rejected", "5h-reset", at(50*time.Minute), "7d-utilization", "0.4", "7d-status", "allowed", "7d-reset", at(50*time.Hour))
		}, wait: 50 * time.Minute, reset: 50 * time.Minute},
		"the used-up snapshot": {limits: func() map[string]string {
			return map[string]string{
				"x-quota-snapshot-chat":                 "ent=-1&rem=100.0&rst=" + time.Now().Add(time.Minute).UTC().Format(time.RFC3339),
				"x-quota-snapshot-premium_interactions": "ent=300&ov=0.0&ovPerm=false&rem=0.0&rst=" + time.Now().Add(9*24*time.Hour).UTC().Format(time.RFC3339),
			}
		}, wait: time.Hour, reset: 9 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, b *bank) {
				o := outOfQuota(tc.after)
				if tc.limits != nil {
					o.limits = tc.limits()
				}
				b.try(o)
				h := b.about().quota.Exhausted[0]
				if time.Until(h.RetryAt.Time) != tc.wait {
					t.Errorf("tried again in %s, not %s", time.Until(h.RetryAt.Time), tc.wait)
				}
				if (h.ResetAt != nil) != (tc.reset != 0) || h.ResetAt != nil && time.Until(h.ResetAt.Time) != tc.reset {
					t.Errorf("%+v", h)
				}
			})
		})
	}
}

// TestQuotaWrongReset: a provider that names half a minute again and again, and is
// still exhausted then, is asked by the backoff.
func TestQuotaWrongReset(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		b.try(outOfQuota(30 * time.Second))
		for _, wait := range []time.Duration{30 * time.Second, 15 * time.Minute, time.Hour, time.Hour} {
			if h := b.refused(routing.ReasonQuota); time.Until(h.Until) != wait {
				t.Fatalf("%s, not %s", time.Until(h.Until), wait)
			}
			pass(wait)
			b.try(outOfQuota(30 * time.Second))
		}
		pass(time.Hour)
		b.try(served, outOfQuota(30*time.Second))
		if h := b.refused(routing.ReasonQuota); time.Until(h.Until) != 30*time.Second {
			t.Errorf("after a success: %+v", h)
		}
	})
}

// TestQuotaOfOneModel leaves the other models alone; a success of the model lifts
// its hold and the account's, one of another the account's.
func TestQuotaOfOneModel(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		b.tryOf("opus", ofModel(outOfQuota(0)))
		b.refusedOf("opus", subjects.ClassInteractive, routing.ReasonQuota)
		b.tryOf("sonnet", served)
		if st := b.published(); st.Quota.On || !st.Models["opus"].On || len(st.Models) != 1 || st.Models["opus"].Detail != "for opus" {
			t.Fatalf("%+v", st)
		}
		if q := b.about().quota; q.State != subjects.QuotaOK || q.Exhausted[0].Model != "opus" {
			t.Fatalf("%+v", q)
		}
		b.tryOf("sonnet", outOfQuota(0))
		pass(5 * time.Minute)
		b.tryOf("sonnet", served)
		if st := b.published(); st.Quota.On || !st.Models["opus"].On {
			t.Fatalf("%+v", st)
		}
		b.tryOf("sonnet", outOfQuota(0))
		pass(5 * time.Minute)
		b.said()
		probe := b.takeOf("opus") // of both
		b.refusedOf("sonnet", subjects.ClassInteractive, routing.ReasonQuota)
		probe.done(ofModel(outOfQuota(0)))
		b.refusedOf("opus", subjects.ClassInteractive, routing.ReasonQuota)
		b.takeOf("sonnet").release()
		expect(t, quotaEvents(b), "exhausted opus 15m0s")
		pass(15 * time.Minute)
		b.tryOf("opus", served)
		if st := b.published(); st.Quota.On || len(st.Models) != 0 {
			t.Fatalf("%+v", st)
		}
		expect(t, quotaEvents(b), "ok ", "ok opus")
	})
}

// TestQuotaProbeGivenBack: what says nothing of the quota leaves the hold as it is,
// and the next call probes.
func TestQuotaProbeGivenBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		b.try(outOfQuota(0))
		pass(5 * time.Minute)
		b.said()
		for _, kind := range []subjects.Kind{subjects.KindProvider, subjects.KindRateLimited, subjects.KindCancelled, subjects.KindValidation} {
			probe := b.take()
			b.refused(routing.ReasonQuota)
			probe.done(failed(kind))
			if q := b.about().quota; q.Exhausted[0].Times != 1 {
				t.Fatalf("%s: %+v", kind, q)
			}
		}
		b.take().release()
		expect(t, quotaEvents(b))
		b.try(served)
	})
}

// TestQuotaLateOutcomes: of attempts that run beside each other the first refusal
// counts, and an answer that was begun before does not lift it.
func TestQuotaLateOutcomes(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		early := make([]*permit, 6)
		for i := range early {
			early[i] = b.take()
		}
		for range 3 {
			b.take().release()
		}
		early[0].done(outOfQuota(0))
		early[1].done(outOfQuota(0))
		early[2].done(served)
		if h := b.refused(routing.ReasonQuota); time.Until(h.Until) != 5*time.Minute {
			t.Fatalf("%+v", h)
		}
		pass(5 * time.Minute)
		probe := b.take()
		early[3].done(outOfQuota(0))
		early[4].done(served)
		b.refused(routing.ReasonQuota)
		probe.done(served)
		early[5].done(outOfQuota(0)) // began before the probe, which knows better
		b.try(served)
	})
}

// TestQuotaManyModels: names are bounded, those that end first make room.
func TestQuotaManyModels(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		for i := range 2 * maxHeldModels {
			b.tryOf("m"+strconv.Itoa(i), ofModel(outOfQuota(0)))
			pass(time.Second)
		}
		if n := len(b.published().Models); n != maxHeldModels {
			t.Errorf("%d models", n)
		}
		b.refusedOf("m"+strconv.Itoa(2*maxHeldModels-1), subjects.ClassInteractive, routing.ReasonQuota)
		b.tryOf("m0", served)
		b.tryOf(string(make([]byte, maxHeldName+1)), ofModel(outOfQuota(0)))
		if n := len(b.published().Models); n != maxHeldModels {
			t.Errorf("%d models", n)
		}
		b = b.reopened(bankConfig())
		if n := len(b.published().Models); n != maxHeldModels {
			t.Errorf("%d models after a restart", n)
		}
	})
}

// TestQuotaReset by the operator lifts everything and says so.
func TestQuotaResetByOperator(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		late := b.take()
		b.tryOf("opus", ofModel(outOfQuota(0)))
		b.try(outOfQuota(48 * time.Hour))
		b.said()
		n, err := b.resetQuota(t.Context(), "p")
		if n != 2 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		expect(t, quotaEvents(b), "ok ", "ok opus")
		late.done(outOfQuota(0))
		b.tryOf("opus", served)
		if n, _ := b.resetQuota(t.Context(), "p"); n != 0 {
			t.Errorf("%d lifted again", n)
		}
		b.reopened(bankConfig()).tryOf("opus", served)
	})
}

// TestQuotaRestart in the middle of a backoff: its wait, its count and the hour's
// completions go on.
func TestQuotaRestart(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		b.try(outcome{usage: subjects.Usage{InputTokens: 30, OutputTokens: 12}}, served)
		b.try(outOfQuota(0))
		pass(5 * time.Minute)
		b.try(outOfQuota(0))
		b.said()
		pass(time.Minute)
		b = b.reopened(bankConfig())
		if h := b.published().Quota; time.Until(h.Until) != 14*time.Minute {
			t.Fatalf("%+v", h)
		}
		q := b.about().quota
		if q.Completions != 2 || q.Tokens != 42 || q.Exhausted[0].Times != 2 || time.Since(q.Exhausted[0].Since.Time) != 6*time.Minute {
			t.Fatalf("%+v", q)
		}
		pass(14 * time.Minute)
		b.take() // the probe ends with the process
		b = b.reopened(bankConfig())
		b.try(outOfQuota(0))
		if h := b.refused(routing.ReasonQuota); time.Until(h.Until) != time.Hour {
			t.Fatalf("%+v", h)
		}
		pass(25*time.Hour + time.Minute)
		b = b.reopened(bankConfig()) // a day after its end nobody remembers
		if b.published().Quota.On {
			t.Errorf("%+v", b.published())
		}
		for _, junk := range []string{"{", "[]", `{"account":7}`, `{"windows":{"5h":{"used":"x"}}}`} {
			b = b.reopenedWith("quota/p", junk)
			b.try(served)
		}
		b = b.reopenedWith("quota/p", `{"account":{"since":"2000-01-01T00:00:00Z","until":"2999-01-01T00:00:00Z","reset":"2999-01-01T00:00:00Z","times":-1}}`)
		if h := b.refused(routing.ReasonQuota); time.Until(h.Until) != time.Hour {
			t.Errorf("%+v", h)
		}
	})
}

// TestSoftLimit is a signal: said once an hour, and nobody is stopped.
func TestSoftLimit(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		b.try(times(3, served)...)
		if q := b.about().quota; q.State != subjects.QuotaOK || !q.Tracked || q.SoftLimit != 3 || q.Completions != 3 {
			t.Errorf("%+v", q)
		}
		cut := failed(subjects.KindCancelled)
		cut.begun = true
		b.try(failed(subjects.KindValidation), cut)
		expect(t, quotaEvents(b), "soft_limit ")
		if q := b.about().quota; q.State != subjects.QuotaSoftLimit || q.Completions != 4 {
			t.Errorf("%+v", q)
		}
		for range 59 {
			b.try(served)
			pass(time.Minute)
		}
		expect(t, quotaEvents(b))
		b = b.reopened(bankConfig())
		b.try(served)
		expect(t, quotaEvents(b))
		pass(time.Minute)
		b.try(served)
		expect(t, quotaEvents(b), "soft_limit ")
		pass(time.Hour)
		if q := b.about().quota; q.State != subjects.QuotaOK || q.Completions != 0 {
			t.Errorf("%+v", q)
		}
		cfg := bankConfig()
		cfg.Providers["p"].Quota.Enabled = false
		b.reconfigure(cfg)
		b.try(times(9, served)...)
		expect(t, quotaEvents(b))
		if q := b.about().quota; q.Tracked || q.SoftLimit != 0 || q.Completions != 0 {
			t.Errorf("%+v", q)
		}
	})
}
