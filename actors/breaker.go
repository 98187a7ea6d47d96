package actors

import (
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

// judgement is what an attempt's outcome means for a breaker.
type judgement int

const (
	// verdictNeutral says nothing of the provider: a caller's fault, a cancel, a
	// limit. It changes no count.
	verdictNeutral judgement = iota
	verdictSuccess
	// verdictFailure counts; verdictRefused, of credentials, opens at once.
	verdictFailure
	verdictRefused
)

// countedWait is the least that an attempt must have had before its caller's
// deadline says something of the provider.
const countedWait = time.Second

// judge says what an outcome means (contract §8). What does not count although
// its kind does: a model that is not there (404) or cannot do what was asked
// (422), what its caller cancelled, and a deadline of the caller's that came while
// the provider was answering, or left it less than countedWait or twice what it
// usually takes: who cannot wait says nothing of others.
func judge(o *outcome, usual time.Duration) judgement {
	switch e := o.err; {
	case e == nil:
		return verdictSuccess
	case e.Kind == subjects.KindAuth && !o.callerEnded:
		return verdictRefused
	case !e.Kind.CountsForBreaker():
		return verdictNeutral
	case e.Kind == subjects.KindProviderUnavailable && (e.HTTPStatus == http.StatusNotFound || e.HTTPStatus == http.StatusUnprocessableEntity):
		return verdictNeutral
	case o.callerEnded && (e.Kind != subjects.KindTimeout || o.ran < max(countedWait, 2*usual) || o.begun):
		return verdictNeutral
	}
	return verdictFailure
}

// breaker is one provider's circuit breaker, part of its account's state.
//
//	closed --threshold failures in a row, or refused credentials--> open
//	open --its pause is over, and a call comes--> half-open: that call is the trial
//	half-open --the trial succeeds--> closed: every count is forgotten
//	half-open --the trial fails--> open: the pause is doubled
//	half-open --the trial says nothing--> half-open: the next call is the trial
//
// The states and the count to the threshold are failsafe-go's, used standalone.
// What that lacks stands here: it can neither give a trial back nor be restored,
// and asks no DelayFunc where there is no execution (v0.9.8), so that each opening
// has a machine of its own pause.
type breaker struct {
	cfg     config.Breaker
	machine circuitbreaker.CircuitBreaker[any]
	// failures counts those in a row, opened the openings in a row.
	failures, opened int
	reason           subjects.Kind
	// until is when a trial may begin; trial is the one under way.
	until time.Time
	trial *permit
	// tried says that the half-open state was announced.
	tried bool
	// since is the account's seq at the last opening: an attempt that began before it
	// says nothing of what is now.
	since uint64
}

// breakerState is what a breaker keeps through a restart. A trial that ended with
// the process is an open breaker whose pause is over.
type breakerState struct {
	Failures int           `json:"failures"`
	Opened   int           `json:"opened,omitempty"`
	Reason   subjects.Kind `json:"reason,omitempty"`
	// Until is when a trial may begin; null when closed.
	Until *time.Time `json:"until,omitempty"`
}

func newMachine(threshold int, pause time.Duration) circuitbreaker.CircuitBreaker[any] {
	return circuitbreaker.NewBuilder[any]().
		WithFailureThreshold(uint(max(threshold, 1))). //nolint:gosec // at least 1
		WithSuccessThreshold(1).
		WithDelay(pause).
		Build()
}

// newBreaker makes a breaker from what was saved; the zero state is a closed one.
func newBreaker(cfg config.Breaker, st breakerState, now time.Time) *breaker {
	b := &breaker{cfg: cfg, failures: max(st.Failures, 0), opened: max(st.Opened, 0), reason: st.Reason}
	if st.Until == nil {
		b.opened = 0
		b.machine = newMachine(cfg.Threshold, 0)
		for range min(b.failures, cfg.Threshold-1) { // a threshold that was lowered opens with the next one
			b.machine.RecordFailure()
		}
		return b
	}
	b.opened = max(b.opened, 1)
	b.pause(min(max(st.Until.Sub(now), 0), b.longest()))
	return b
}

// longest bounds every pause.
func (b *breaker) longest() time.Duration { return max(b.cfg.MaxPause, b.cfg.ResetTimeout) }

// pause puts the machine into its open state for d.
func (b *breaker) pause(d time.Duration) {
	b.machine = newMachine(b.cfg.Threshold, d)
	b.machine.Open()
	b.until = time.Now().Add(b.machine.RemainingDelay()) // not before the machine's own end
}

// open begins the pause of the next opening in a row.
func (b *breaker) open(seq uint64) {
	b.opened++
	d := b.cfg.ResetTimeout
	for i := 1; i < b.opened && d < b.longest(); i++ {
		d *= 2
	}
	b.pause(min(d, b.longest()))
	b.tried, b.since = false, seq
}

func (b *breaker) closed() bool { return b.machine.IsClosed() }

// take lets an attempt pass: freely while closed, else as the trial. It is asked
// when no hold is in the way; the machine has the last word.
func (b *breaker) take(p *permit) bool {
	if b.closed() {
		return true
	}
	if !b.machine.TryAcquirePermit() {
		return false
	}
	b.trial = p
	return true
}

// giveBack ends a trial that has said nothing: the next call may be the trial.
// The machine cannot release, so that it half-opens anew.
func (b *breaker) giveBack(p *permit) (changed bool) {
	if b.trial == nil || b.trial != p {
		return false
	}
	b.trial = nil
	b.machine.Close()
	b.machine.HalfOpen()
	return true
}

// settle takes the outcome of an attempt. seq is the account's next one. A
// neutral outcome changes nothing; its trial is given back by giveBack.
func (b *breaker) settle(p *permit, v judgement, kind subjects.Kind, seq uint64) (changed bool) {
	switch {
	case v == verdictNeutral, p != b.trial && p.seq < b.since:
		return false
	case p == b.trial:
		b.trial = nil
		if v == verdictSuccess {
			b.machine.RecordSuccess()
			b.failures, b.opened, b.reason, b.until = 0, 0, "", time.Time{}
			return true
		}
		b.machine.RecordFailure()
		b.failures++
		b.reason = kind
		b.open(seq)
		return true
	case !b.closed():
		return false
	case v == verdictSuccess:
		changed = b.failures > 0
		b.machine.RecordSuccess()
		b.failures, b.reason = 0, ""
		return changed
	}
	b.failures++
	b.reason = kind
	b.machine.RecordFailure()
	if v == verdictRefused || !b.closed() {
		b.open(seq)
	}
	return true
}

// hold is what routing sees: half-open shows by the time alone.
func (b *breaker) hold() routing.Hold {
	if b.closed() {
		return routing.Hold{}
	}
	return routing.Hold{On: true, Until: b.until, Trial: b.trial != nil, Detail: "after " + string(b.reason)}
}

// state is one of the subjects.Breaker… constants.
func (b *breaker) state(now time.Time) string {
	switch {
	case b.closed():
		return subjects.BreakerClosed
	case b.trial != nil, !now.Before(b.until):
		return subjects.BreakerHalfOpen
	}
	return subjects.BreakerOpen
}

func (b *breaker) info(now time.Time) subjects.BreakerInfo {
	info := subjects.BreakerInfo{State: b.state(now), Failures: b.failures, Opened: b.opened, Reason: string(b.reason)}
	if !b.closed() {
		info.RetryAt = &subjects.Time{Time: b.until}
	}
	return info
}

// saved is what to keep; nil = nothing: closed, and without a failure.
func (b *breaker) saved() *breakerState {
	switch {
	case !b.closed():
		until := b.until
		return &breakerState{Failures: b.failures, Opened: b.opened, Reason: b.reason, Until: &until}
	case b.failures > 0:
		return &breakerState{Failures: b.failures, Reason: b.reason}
	}
	return nil
}

// reconfigured is the same breaker under another configuration.
func (b *breaker) reconfigured(cfg config.Breaker, now time.Time) *breaker {
	st := b.saved()
	if st == nil {
		st = &breakerState{}
	}
	out := newBreaker(cfg, *st, now)
	out.since, out.tried = b.since, b.tried
	if b.trial != nil {
		out.machine.HalfOpen()
		out.take(b.trial)
	}
	return out
}
