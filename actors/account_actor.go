package actors

import (
	"maps"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

// saveDelay is how long counts and windows wait to be saved: each answer changes
// them. A kill loses so much of them, and never a hold.
const saveDelay = time.Second

// Messages of an account; a *permit that comes back is one, too.
type (
	askPermit struct {
		p     *permit
		reply chan<- granted
	}
	granted struct {
		refusal *refusal
		err     error
	}
	askInfo    struct{ reply chan<- accountInfo }
	resetHolds struct{ reply chan<- int }
	// saveNow saves what waits to be.
	saveNow struct{}
	// flushAccount does so at the end, and stops the timers: no one is there for them.
	flushAccount struct{ reply chan<- struct{} }
	// woke says that a window may be over.
	woke struct{}
)

func (m askPermit) fail(err error) { trySend(m.reply, granted{err: err}) }

// savedAccount is what was saved of one.
type savedAccount struct{ breaker, quota []byte }

// account is the actor of one provider's account.
type account struct {
	sys      *system
	provider string
	emit     func(string, any)
	publish  func(string, standing)
	save     func(string, []byte)
	cfg      *config.Config
	ref      *accountRef
	self     *actor.PID

	// seq counts the changes that were published.
	seq     uint64
	breaker *breaker
	quota   *quota
	windows windows
	meter   attemptMeter
	// refused says that the provider was announced as one that refuses our
	// credentials.
	refused bool

	// withheld is what the windows hold back; wake is set for the end of the first.
	withheld map[string]routing.Hold
	wake     *time.Timer
	// What this turn has changed: held is what to publish; breakerNew and quotaNew
	// is what to save at once, counted what to save soon.
	held, breakerNew, quotaNew, counted bool
	saving                              *time.Timer // saveNow is under way; nil = it is not
}

func newAccount(sys *system, provider string, o *accountOptions, ref *accountRef, saved savedAccount) *account {
	now := time.Now()
	a := &account{
		sys: sys, provider: provider, emit: o.emit, publish: o.publish, save: o.save, cfg: o.cfg, ref: ref,
		meter: attemptMeter{since: now},
	}
	if err := a.restored(saved, now); err != nil {
		sys.log.Warn("what was saved of an account cannot be read and is left out", "provider", provider, "error", err)
	}
	a.refused = !a.breaker.closed() && a.breaker.reason == subjects.KindAuth
	a.held = a.breaker.hold().On || a.quota.account != nil || len(a.quota.models) > 0
	return a
}

func (a *account) receive(self *actor.PID, msg any) {
	a.self = self
	now := time.Now()
	defer a.conclude(now) // also when something in between panics
	switch m := msg.(type) {
	case *permit:
		a.settle(m, now)
	case askPermit:
		r := a.grant(m.p, now)
		a.conclude(now)
		trySend(m.reply, granted{refusal: r})
	case woke:
		a.windows.drop(now)
		a.look(now)
	case askInfo:
		trySend(m.reply, a.info(now))
	case resetHolds:
		trySend(m.reply, a.resetHolds(now))
	case saveNow:
		a.saving, a.quotaNew = nil, a.counted
	case flushAccount:
		stopTimer(a.wake)
		stopTimer(a.saving)
		a.quotaNew = a.counted
		a.conclude(now)
		trySend(m.reply, struct{}{})
	case accountsConfig:
		a.reconfigure(m.cfg, now)
	}
}

// tracking is how the provider's completions are counted; nil = they are not.
func (a *account) tracking() *config.QuotaTracking {
	if p := a.cfg.Providers[a.provider]; p != nil && p.Quota != nil && p.Quota.Enabled {
		return p.Quota
	}
	return nil
}

// grant lets an attempt pass, as the trial of what is in its way where the time of
// that is over, or says why not.
func (a *account) grant(p *permit, now time.Time) *refusal {
	a.prune(now)
	st := a.standing()
	state := routing.State{Breaker: st.Breaker, Quota: st.Quota, Models: st.Models, Withheld: st.Withheld}
	if reason, hold, held := state.Held(p.model, p.class, now); held {
		return &refusal{reason, hold}
	}
	if !a.breaker.take(p) {
		return &refusal{routing.ReasonBreaker, a.breaker.hold()}
	}
	p.seq = a.seq
	if a.breaker.trial == p {
		a.held = true
		if !a.breaker.tried {
			a.breaker.tried = true
			a.sayBreaker(subjects.BreakerOpen, subjects.BreakerHalfOpen, now)
		}
	}
	a.held = a.quota.take(p) || a.held
	return nil
}

// settle takes a permit back, with or without an outcome. Whatever it was the
// trial of is free again, if the outcome has not decided it.
func (a *account) settle(p *permit, now time.Time) {
	defer func() {
		if b, q := a.breaker.giveBack(p), a.quota.giveBack(p); b || q {
			a.held = true
		}
	}()
	if !p.counts {
		return
	}
	o := &p.out
	a.meter.add(o, now)
	a.settleBreaker(p, o, now)
	changes := a.quota.settle(p, o, now, a.seq+1)
	a.sayQuota(changes, now)
	if t := a.tracking(); t != nil && (o.err == nil || o.begun) {
		a.counted = true
		if a.quota.count(tokensOf(o), softLimit(t), now) {
			a.emit(subjects.Quota(a.provider), &subjects.QuotaEvent{Provider: a.provider, State: subjects.QuotaSoftLimit, At: subjects.Time{Time: now}})
		}
	}
	if len(o.limits) > 0 && a.windows.read(o.limits, now) {
		a.counted = true
		a.look(now)
	}
}

func (a *account) settleBreaker(p *permit, o *outcome, now time.Time) {
	kind := subjects.Kind("")
	if o.err != nil {
		kind = o.err.Kind
	}
	before, from := a.breaker.hold(), a.breaker.state(now)
	if !a.breaker.settle(p, judge(o, a.meter.usual(o)), kind, a.seq+1) {
		return
	}
	a.breakerNew = true
	if a.breaker.hold() != before {
		a.held = true
		a.sayBreaker(from, a.breaker.state(now), now)
		a.sayCredentials(o.err, now)
	}
}

// sayCredentials says that the account's credentials fail, once, and that they are
// taken again: falling through to a metered account must not be quiet.
func (a *account) sayCredentials(err *subjects.Error, now time.Time) {
	ev := &providerStatusEvent{Provider: a.provider, At: subjects.Time{Time: now}}
	switch {
	case !a.refused && err != nil && err.Kind == subjects.KindAuth:
		ev.Reason = err.Message
	case a.refused && a.breaker.closed():
		ev.Available = true
	default:
		return
	}
	a.refused = !a.refused
	a.emit(subjects.ProviderStatus(a.provider), ev)
}

func (a *account) sayBreaker(from, to string, now time.Time) {
	b := a.breaker
	ev := &subjects.BreakerEvent{Provider: a.provider, State: to, From: from, Reason: string(b.reason), Failures: b.failures, At: subjects.Time{Time: now}}
	if to == subjects.BreakerOpen {
		ev.RetryAt = &subjects.Time{Time: b.until}
	}
	a.emit(subjects.Breaker(a.provider), ev)
}

func (a *account) sayQuota(changes []quotaChange, now time.Time) {
	for _, c := range changes {
		a.held, a.quotaNew = true, true
		ev := &subjects.QuotaEvent{Provider: a.provider, Model: c.model, State: subjects.QuotaOK, At: subjects.Time{Time: now}}
		if h := c.hold; h != nil {
			ev.State, ev.RetryAt, ev.ResetAt = subjects.QuotaExhausted, &subjects.Time{Time: h.until}, optionalTime(h.resetAt)
		}
		a.emit(subjects.Quota(a.provider), ev)
	}
}

// look works out anew what the windows hold back, and wakes up when the first of
// them is over.
func (a *account) look(now time.Time) {
	holds, next := a.windows.withheld(a.cfg.Quota.Reserve, now)
	if !maps.Equal(holds, a.withheld) {
		a.withheld, a.held = holds, true
	}
	stopTimer(a.wake)
	if !next.IsZero() {
		a.wake = a.sys.after(next.Sub(now), a.self, woke{})
	}
}

func (a *account) resetHolds(now time.Time) int {
	changes := a.quota.reset(a.seq + 1)
	a.sayQuota(changes, now)
	clear(a.windows)
	a.look(now)
	a.quotaNew = true
	return len(changes)
}

func (a *account) reconfigure(cfg *config.Config, now time.Time) {
	old := a.cfg
	a.cfg = cfg
	if cfg.Breaker != old.Breaker {
		before := a.breaker.hold()
		a.breaker = a.breaker.reconfigured(cfg.Breaker, now)
		a.held = a.held || a.breaker.hold() != before
		a.breakerNew = true
	}
	a.look(now)
}

// prune forgets holds that are long over.
func (a *account) prune(now time.Time) {
	if a.quota.prune(now) {
		a.held, a.quotaNew = true, true
	}
}

func (a *account) info(now time.Time) accountInfo {
	a.prune(now)
	q := a.quota.info(a.tracking(), now)
	q.Windows = a.windows.info(a.cfg.Quota.Reserve, now)
	return accountInfo{breaker: a.breaker.info(now), quota: q, metrics: a.meter.metrics(now)}
}

func (a *account) standing() standing {
	return standing{Breaker: a.breaker.hold(), Quota: a.quota.account.hold(""), Models: a.quota.holds(), Withheld: a.withheld}
}

// conclude publishes and saves what the turn has changed.
func (a *account) conclude(now time.Time) {
	if a.held {
		a.held = false
		a.seq++
		st := a.standing()
		a.ref.now.Store(&published{st, a.seq})
		a.publish(a.provider, st)
	}
	if a.breakerNew {
		a.breakerNew = false
		a.save(breakerKey(a.provider), encodeBreaker(a.breaker))
	}
	switch {
	case a.quotaNew:
		a.quotaNew, a.counted = false, false
		a.save(quotaKey(a.provider), encodeQuota(a.quota, a.windows, now))
	case a.counted && a.saving == nil:
		a.saving = a.sys.after(saveDelay, a.self, saveNow{})
	}
}

func stopTimer(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}
