package actors

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

var accountSteps = flag.Int("account.steps", 3000, "steps of the randomised account test")

// plain is an account as one would write it down without actors, numbers of
// changes or anybody else's breaker: it knows at which step each attempt began and
// each state came about.
type plain struct {
	step int

	failures, openings    int
	opened                bool
	openUntil             time.Time
	breakerTrial, changed int // steps; 0 = none

	holds  map[string]*plainHold // by model; "" = the account
	lifted int

	used map[string]float64 // windows
	ends map[string]time.Time
}

type plainHold struct {
	until, reset time.Time
	times, began int
	trial        int
}

type plainPermit struct {
	*permit
	step  int
	model string
}

// ask returns the reason of a refusal, or "".
func (a *plain) ask(model, class string, now time.Time) string {
	for _, key := range []string{"", model} {
		if h := a.holds[key]; h != nil {
			if h.trial != 0 || now.Before(h.until) {
				return routing.ReasonQuota
			}
		}
	}
	for name, used := range a.used {
		if class == subjects.ClassIngestion && used >= 0.8 && now.Before(a.ends[name]) {
			return routing.ReasonReserve
		}
	}
	if a.opened && (a.breakerTrial != 0 || now.Before(a.openUntil)) {
		return routing.ReasonBreaker
	}
	for _, key := range []string{"", model} {
		if h := a.holds[key]; h != nil {
			h.trial = a.step
		}
	}
	if a.opened {
		a.breakerTrial = a.step
	}
	return ""
}

// forget drops the holds that nobody has probed for a day.
func (a *plain) forget(now time.Time) {
	for key, h := range a.holds {
		if h.trial == 0 && now.Sub(h.until) > 24*time.Hour && now.Sub(h.reset) > 24*time.Hour {
			delete(a.holds, key)
		}
	}
}

// end takes an attempt's end; o is nil for a release.
func (a *plain) end(p *plainPermit, o *outcome, now time.Time) {
	if o != nil {
		a.endBreaker(p, o, now)
		a.endQuota(p, o, now)
		if v, ok := o.limits["anthropic-ratelimit-unified-5h-utilization"]; ok {
			a.used["5h"], _ = strconv.ParseFloat(v, 64)
			a.ends["5h"] = windowEnd(o.limits)
		}
	}
	if a.breakerTrial == p.step {
		a.breakerTrial = 0
	}
	for _, h := range a.holds {
		if h.trial == p.step {
			h.trial = 0
		}
	}
}

func windowEnd(limits map[string]string) time.Time {
	sec, _ := strconv.ParseInt(limits["anthropic-ratelimit-unified-5h-reset"], 10, 64)
	return time.Unix(sec, 0)
}

func (a *plain) endBreaker(p *plainPermit, o *outcome, now time.Time) {
	trial := a.breakerTrial == p.step
	if !trial && (a.opened || p.step < a.changed) {
		return
	}
	switch {
	case o.err == nil:
		a.failures = 0
		if trial {
			a.opened, a.openings, a.changed = false, 0, a.step
		}
		return
	case o.err.Kind == subjects.KindAuth:
	case o.err.Kind != subjects.KindProvider && o.err.Kind != subjects.KindTimeout, o.callerEnded && o.ran < time.Second:
		return
	}
	a.failures++
	if trial || o.err.Kind == subjects.KindAuth || a.failures >= 5 {
		pause := time.Minute
		for range a.openings {
			pause = min(2*pause, 30*time.Minute)
		}
		a.opened, a.openUntil, a.changed = true, now.Add(pause), a.step
		a.openings++
	}
}

func (a *plain) endQuota(p *plainPermit, o *outcome, now time.Time) {
	if o.err == nil {
		for _, key := range []string{"", p.model} {
			if h := a.holds[key]; h != nil && p.step > h.began {
				delete(a.holds, key)
				a.lifted = a.step
			}
		}
		return
	}
	if o.err.Kind != subjects.KindQuotaExhausted || p.step < a.lifted {
		return
	}
	key := ""
	if o.err.ModelOnly {
		key = p.model
	}
	h := a.holds[key]
	if h == nil {
		h = &plainHold{}
		a.holds[key] = h
	} else if p.step < h.began {
		return
	}
	step := []time.Duration{5 * time.Minute, 15 * time.Minute, time.Hour}[min(h.times, 2)]
	wait, named := step, o.err.RetryAfter
	if used, _ := strconv.ParseFloat(o.limits["anthropic-ratelimit-unified-5h-utilization"], 64); named <= 0 && used >= 1 {
		named = windowEnd(o.limits).Sub(now)
	}
	wrong := !h.reset.IsZero() && !now.Before(h.reset)
	h.reset = time.Time{}
	if named >= 10*time.Second && named <= 40*24*time.Hour {
		h.reset = now.Add(named)
		if wait = named; wrong {
			wait = max(wait, step)
		}
	}
	h.times++
	h.until, h.began, h.trial = now.Add(min(wait, time.Hour)), a.step, 0
}

func (a *plain) restart() {
	a.breakerTrial, a.changed, a.lifted = 0, 0, 0
	for _, h := range a.holds {
		h.trial, h.began = 0, 0
	}
}

// fuzzer drives a bank and the plain account side by side.
type fuzzer struct {
	*bank
	a    *plain
	r    *rand.Rand
	open []*plainPermit
}

func (f *fuzzer) ask() {
	model, class := []string{"m", "n"}[f.r.IntN(2)], subjects.Classes[f.r.IntN(2)]
	p, no, err := f.permit(f.t.Context(), "p", model, class)
	if err != nil {
		f.t.Fatal(err)
	}
	now := time.Now()
	want := f.a.ask(model, class, now)
	if no != nil {
		if no.reason != want {
			f.t.Fatalf("step %d: refused for %s, not %q", f.a.step, no.reason, want)
		}
		longest := map[string]time.Duration{routing.ReasonBreaker: 30 * time.Minute, routing.ReasonQuota: time.Hour, routing.ReasonReserve: 5 * time.Hour}
		if no.hold.Until.Sub(now) > longest[no.reason] {
			f.t.Fatalf("step %d: %s for %s", f.a.step, no.reason, no.hold.Until.Sub(now))
		}
		return
	}
	if want != "" {
		f.t.Fatalf("step %d: let pass, not refused for %s", f.a.step, want)
	}
	f.open = append(f.open, &plainPermit{p, f.a.step, model})
}

// finish ends one of the attempts that run.
func (f *fuzzer) finish() {
	if len(f.open) == 0 {
		return
	}
	i := f.r.IntN(len(f.open))
	p := f.open[i]
	f.open = slices.Delete(f.open, i, i+1)
	if f.r.IntN(8) == 0 {
		f.a.end(p, nil, time.Now())
		p.release()
		return
	}
	o := f.outcome()
	before := f.counts()
	f.a.end(p, &o, time.Now())
	p.done(o)
	p.release() // as a call defers it
	if judge(&o, 0) == verdictNeutral && o.err.Kind != subjects.KindQuotaExhausted && f.counts() != before {
		f.t.Fatalf("step %d: %s changed a count: %s, %s", f.a.step, o.err.Kind, before, f.counts())
	}
}

// counts are those that no neutral outcome changes, and a restart neither.
func (f *fuzzer) counts() string { return countsOf(f.about()) }

func countsOf(i accountInfo) string {
	i.breaker.State = "" // half-open by the time alone
	probed := []subjects.QuotaHold{}
	for _, h := range i.quota.Exhausted {
		if time.Since(h.RetryAt.Time) <= forgetHold { // else forgotten once its trial is back
			probed = append(probed, h)
		}
	}
	i.quota.State, i.quota.Exhausted = "", nil
	i.quota.Completions, i.quota.Tokens, i.quota.Windows = 0, 0, nil
	return asJSON([]any{i.breaker, probed, i.quota})
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func (f *fuzzer) outcome() outcome {
	kinds := []subjects.Kind{
		"", "", "", subjects.KindProvider, subjects.KindProvider, subjects.KindProvider, subjects.KindProvider, subjects.KindTimeout,
		subjects.KindQuotaExhausted, subjects.KindAuth, subjects.KindValidation, subjects.KindCancelled, subjects.KindRateLimited,
	}
	o := outcome{ran: time.Duration(f.r.IntN(2000)) * time.Millisecond}
	if kind := kinds[f.r.IntN(len(kinds))]; kind != "" {
		o.err = subjects.Errorf(kind, "no")
		o.callerEnded = kind == subjects.KindCancelled || kind == subjects.KindTimeout && f.r.IntN(2) == 0
		o.err.ModelOnly = f.r.IntN(2) == 0
		if kind == subjects.KindQuotaExhausted {
			o.err.RetryAfter = []time.Duration{0, 0, -time.Hour, time.Second, 40 * time.Second, 30 * time.Minute, 50 * time.Hour, 1e6 * time.Hour}[f.r.IntN(8)]
		}
	}
	if f.r.IntN(6) == 0 {
		o.limits = map[string]string{
			"anthropic-ratelimit-unified-5h-utilization": strconv.FormatFloat(float64(f.r.IntN(12))/10, 'f', 2, 64),
			"anthropic-ratelimit-unified-5h-reset":       strconv.FormatInt(time.Now().Add(time.Duration(f.r.IntN(18000))*time.Second).Unix(), 10),
		}
	}
	if o.err == nil { // so quick that a caller's second is long
		o.ran /= 5
	}
	return o
}

// check compares all that can be seen.
func (f *fuzzer) check() {
	now := time.Now()
	f.a.forget(now)
	i := f.about()
	if b := i.breaker; (b.State != subjects.BreakerClosed) != f.a.opened || b.Failures != f.a.failures || b.Opened != f.a.openings ||
		f.a.opened && !b.RetryAt.Equal(f.a.openUntil) || (b.State == subjects.BreakerOpen) != (f.a.opened && f.a.breakerTrial == 0 && now.Before(f.a.openUntil)) {
		f.t.Fatalf("step %d: %+v, %+v", f.a.step, b, f.a)
	}
	if len(i.quota.Exhausted) != len(f.a.holds) {
		f.t.Fatalf("step %d: %+v, %+v", f.a.step, i.quota.Exhausted, f.a.holds)
	}
	for _, h := range i.quota.Exhausted {
		want := f.a.holds[h.Model]
		if want == nil || h.Times != want.times || !h.RetryAt.Equal(want.until) || (h.ResetAt == nil) != want.reset.IsZero() || h.ResetAt != nil && !h.ResetAt.Equal(want.reset) {
			f.t.Fatalf("step %d: %+v, %+v", f.a.step, h, want)
		}
	}
}

// restart goes on with a new process; every attempt ended with the old one.
func (f *fuzzer) restart() {
	before := f.about()
	f.bank = f.reopened(keepingShares())
	after := f.about()
	if b, a := before.breaker, after.breaker; b.State != a.State {
		f.t.Fatalf("step %d: %+v, %+v", f.a.step, b, a)
	} else if b.State == subjects.BreakerHalfOpen { // of a pause that is over only that is kept
		before.breaker.RetryAt, after.breaker.RetryAt = nil, nil
	}
	if b, a := before.quota, after.quota; b.Completions != a.Completions || b.Tokens != a.Tokens || asJSON(b.Windows) != asJSON(a.Windows) {
		f.t.Fatalf("step %d: %+v, %+v", f.a.step, b, a)
	}
	if a, b := countsOf(before), countsOf(after); a != b {
		f.t.Fatalf("step %d:\n%s\n%s", f.a.step, a, b)
	}
	f.open = nil
	f.a.restart()
	if f.a.opened && time.Now().After(f.a.openUntil) {
		f.a.openUntil = time.Now()
	}
}

func (f *fuzzer) walk(steps int) {
	for range steps {
		f.a.step++
		switch n := f.r.IntN(100); {
		case n < 45:
			f.ask()
		case n < 85:
			f.finish()
		case n < 98:
			pass(time.Duration(f.r.Int64N(int64([]time.Duration{time.Second, time.Minute, 20 * time.Minute, 2 * time.Hour}[f.r.IntN(4)]))))
		case n < 99 && f.r.IntN(10) == 0:
			pass(26 * time.Hour)
		default:
			f.restart()
		}
		f.check()
	}
	// Whatever has happened, it is over once every attempt has ended: nothing is stuck.
	for len(f.open) > 0 {
		f.a.step++
		f.a.end(f.open[0], nil, time.Now())
		f.open[0].release()
		f.open = f.open[1:]
	}
	pass(time.Hour)
	f.take().done(served)
	f.breakerIs(subjects.BreakerClosed, 0, 0)
}

// TestAccountAgainstPlain drives random attempts, times and restarts, and compares
// each step with the plain account.
func TestAccountAgainstPlain(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fuzzer{
					bank: openBank(t, keepingShares(), nil), r: rand.New(rand.NewPCG(seed, 7)), //nolint:gosec // a test
					a: &plain{holds: map[string]*plainHold{}, used: map[string]float64{}, ends: map[string]time.Time{}},
				}
				f.walk(*accountSteps / 10)
			})
		})
	}
}

// TestAtMostOneTrial lets many ask at once when a hold's time is over: one is let
// pass, until it comes back.
func TestAtMostOneTrial(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]outcome{"breaker": failed(subjects.KindAuth), "quota": outOfQuota(time.Minute), "model": ofModel(outOfQuota(time.Minute))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, b *bank) {
				b.try(o)
				pass(time.Minute)
				for round := range 3 {
					passed := make(chan *permit, 50)
					for range 50 {
						go func() {
							p, _, err := b.permit(t.Context(), "p", "m", subjects.ClassIngestion)
							if err != nil {
								t.Error(err)
							}
							passed <- p
						}()
					}
					var trials []*permit
					for range 50 {
						if p := <-passed; p != nil {
							trials = append(trials, p)
						}
					}
					if len(trials) != 1 {
						t.Fatalf("round %d: %d trials", round, len(trials))
					}
					trials[0].release()
				}
			})
		})
	}
}

// TestSavedIsWhatWasRestored: what is saved of restored state is what was saved
// before.
func TestSavedIsWhatWasRestored(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		o := outOfQuota(2 * time.Hour)
		o.limits = map[string]string{"x-quota-snapshot-chat": "ent=300&rem=35.5", "x-usage-ratelimit-weekly": "rem=5.7&rst=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}
		b.try(times(4, served)...)
		b.try(times(4, failed(subjects.KindProvider))...)
		b.tryOf("n", ofModel(outOfQuota(0)))
		b.try(o)
		pass(saveDelay)
		synctest.Wait()
		now := time.Now()
		q, ws, err := decodeQuota(b.saved["quota/p"], now)
		if again := encodeQuota(q, ws, now); err != nil || !bytes.Equal(again, b.saved["quota/p"]) {
			t.Errorf("%v\n%s\n%s", err, b.saved["quota/p"], again)
		}
		br, err := decodeBreaker(bankConfig().Breaker, b.saved["breaker/p"], now)
		if again := encodeBreaker(br); err != nil || !bytes.Equal(again, b.saved["breaker/p"]) {
			t.Errorf("%v\n%s\n%s", err, b.saved["breaker/p"], again)
		}
	})
}
