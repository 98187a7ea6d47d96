package actors

import (
	"context"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

// An account actor owns what a node knows of one provider's account: its circuit
// breaker (breaker.go), its quota (quota.go), the windows that the provider
// reports (windows.go) and the metrics of its attempts (account_metrics.go).
//
// A call asks for a permit right before each attempt, with its slot in hand, and
// gives it back with the attempt's outcome. While nothing is held back the permit
// costs no message. Each change of what is held back is published, in the turn in
// which it happens; a permit knows how many changes there had been when it was
// given, so that an outcome that comes late is not taken for news of what is now.
//
// Where a hold's time is over, the next permit is its trial: everyone else still
// passes by until it comes back. A trial always comes back: with an outcome, or by
// release, which a call defers.

// accountOptions is what accounts are made of.
type accountOptions struct {
	// emit publishes an event; it must not block.
	emit func(subject string, event any)
	// publish is called inside the actor's turn whenever what holds the provider
	// back changes; it must not block.
	publish func(provider string, st standing)
	// save stores a state under its key ("breaker/<id>", "quota/<id>"), and keeps
	// value; nil deletes it. It must not block.
	save func(key string, value []byte)
	// saved is what was saved before the node last ended.
	saved map[string][]byte
	cfg   *config.Config
}

// maxAccounts bounds the accounts of providers that are not configured: outside
// ones may come by any name. One above it has no breaker and no quota.
const maxAccounts = 1024

// accounts is the calls' side of the account actors, one per provider. Safe for
// concurrent use.
type accounts struct {
	sys    *system
	opener *actor.PID
	// all is what the opener has made; it alone replaces the map.
	all atomic.Pointer[map[string]*accountRef]
}

// accountRef is where a provider's account is found.
type accountRef struct {
	pid *actor.PID
	// now is what the actor published last; never nil.
	now atomic.Pointer[published]
}

// published is what an account holds back, and the number of that change.
type published struct {
	standing
	seq uint64
}

// free reports whether nothing is in the way of a model and a class: neither a
// hold nor one whose time is over, which needs a trial.
func (p *published) free(model, class string) bool {
	return !p.Breaker.On && !p.Quota.On && !p.Models[model].On && !p.Withheld[class].On
}

func newAccounts(sys *system, o accountOptions) *accounts {
	a := &accounts{sys: sys}
	a.all.Store(&map[string]*accountRef{})
	o.saved = maps.Clone(o.saved)
	a.opener = sys.spawn(&accountOpener{a: a, o: o})
	return a
}

// restore makes the actors of the providers that have saved state, so that what
// holds them back is published before the first call.
func (a *accounts) restore() { a.sys.send(a.opener, openSaved{}) }

// ref returns a provider's account, made on first use; nil = there are too many.
func (a *accounts) ref(ctx context.Context, provider string) (*accountRef, error) {
	if ref := (*a.all.Load())[provider]; ref != nil {
		return ref, nil
	}
	got, err := ask(ctx, a.sys, a.opener, func(r chan<- opened) any { return openAccount{provider, r} })
	if err != nil {
		return nil, err
	}
	return got.ref, got.err
}

// permit asks, right before an attempt and with its slot in hand, whether the
// attempt may be made. Either the permit or the refusal is not nil, unless there
// is an error: ctx's end. A permit is given back by done or release.
func (a *accounts) permit(ctx context.Context, provider, model, class string) (*permit, *refusal, error) {
	ref, err := a.ref(ctx, provider)
	if err != nil {
		return nil, nil, err
	}
	p := &permit{sys: a.sys, ref: ref, model: model, class: class}
	if ref == nil {
		return p, nil, nil
	}
	if now := ref.now.Load(); now.free(model, class) {
		p.seq = now.seq
		return p, nil, nil
	}
	got, err := ask(ctx, a.sys, ref.pid, func(r chan<- granted) any { return askPermit{p, r} })
	if err == nil {
		err = got.err
	}
	if err != nil || got.refusal != nil {
		p.release() // what was granted to a caller who has gone is given back
		return nil, got.refusal, err
	}
	return p, nil, nil
}

// refusal says why an attempt may not be made now: reason is one of
// routing.Reason….
type refusal struct {
	reason string
	hold   routing.Hold
}

// permit is one attempt at a provider. Safe for concurrent use; a nil one does
// nothing.
type permit struct {
	sys          *system
	ref          *accountRef // nil = nobody keeps an account
	model, class string
	// seq is the number of the last change when it was given.
	seq   uint64
	ended atomic.Bool
	// counts says that out is an outcome; written before the permit is sent back.
	counts bool
	out    outcome
}

// outcome is how an attempt ended.
type outcome struct {
	// err is nil for a success.
	err *subjects.Error
	// callerEnded says that the call's own context ended: a cancel, or the caller's
	// deadline.
	callerEnded bool
	ran         time.Duration
	// begun says that output had come: a failed attempt is a completion then, too.
	begun bool
	usage subjects.Usage
	// cost is nil where the price is not known, saved where nothing was.
	cost, saved *subjects.USD
	// limits are the rate-limit headers of the answer or of the error, by
	// lower-case name. They are not changed any more.
	limits map[string]string
}

// done says how the attempt ended. Of all calls of done and release only the
// first has an effect.
func (p *permit) done(o outcome) {
	if p == nil || p.ended.Swap(true) || p.ref == nil {
		return
	}
	p.counts, p.out = true, o
	p.sys.send(p.ref.pid, p)
}

// release says that no attempt was made, or that it must not count.
func (p *permit) release() {
	if p == nil || p.ended.Swap(true) || p.ref == nil {
		return
	}
	p.sys.send(p.ref.pid, p)
}

// accountInfo is what is known of a provider's account.
type accountInfo struct {
	breaker subjects.BreakerInfo
	quota   subjects.QuotaInfo
	metrics subjects.ProviderMetrics
}

// info tells what is known of a provider's account.
func (a *accounts) info(ctx context.Context, provider string) (accountInfo, error) {
	ref, err := a.ref(ctx, provider)
	if err != nil || ref == nil {
		return accountInfo{}, err
	}
	return ask(ctx, a.sys, ref.pid, func(r chan<- accountInfo) any { return askInfo{r} })
}

// resetQuota lifts all that quotas hold back of a provider, and forgets what it
// reported of its windows. lifted counts the holds, of the account and of models.
func (a *accounts) resetQuota(ctx context.Context, provider string) (lifted int, err error) {
	ref, err := a.ref(ctx, provider)
	if err != nil || ref == nil {
		return 0, err
	}
	return ask(ctx, a.sys, ref.pid, func(r chan<- int) any { return resetHolds{r} })
}

// reconfigure has the accounts follow a new configuration.
func (a *accounts) reconfigure(cfg *config.Config) { a.sys.send(a.opener, accountsConfig{cfg}) }

// flush saves what has not been saved yet and stops the timers; to be called at the
// end, when no call runs any more.
func (a *accounts) flush(ctx context.Context) error {
	for _, ref := range *a.all.Load() {
		if _, err := ask(ctx, a.sys, ref.pid, func(r chan<- struct{}) any { return flushAccount{r} }); err != nil {
			return err
		}
	}
	return nil
}

// Messages of the opener.
type (
	openAccount struct {
		provider string
		reply    chan<- opened
	}
	opened struct {
		ref *accountRef
		err error
	}
	openSaved struct{}
	// accountsConfig goes on to every account.
	accountsConfig struct{ cfg *config.Config }
)

func (m openAccount) fail(err error) { trySend(m.reply, opened{err: err}) }

// accountOpener makes the account actors on first use.
type accountOpener struct {
	a *accounts
	o accountOptions
}

func (op *accountOpener) receive(_ *actor.PID, msg any) {
	switch m := msg.(type) {
	case openAccount:
		trySend(m.reply, opened{ref: op.open(m.provider)})
	case openSaved:
		for key := range maps.Clone(op.o.saved) {
			for _, prefix := range [...]string{breakerKey(""), quotaKey("")} {
				if provider, ok := strings.CutPrefix(key, prefix); ok {
					op.open(provider)
				}
			}
		}
	case accountsConfig:
		op.o.cfg = m.cfg
		for _, ref := range *op.a.all.Load() {
			op.a.sys.send(ref.pid, m)
		}
	}
}

func (op *accountOpener) open(provider string) *accountRef {
	all := *op.a.all.Load()
	if ref := all[provider]; ref != nil {
		return ref
	}
	if len(all) >= maxAccounts && op.o.cfg.Providers[provider] == nil {
		return nil
	}
	saved := savedAccount{op.o.saved[breakerKey(provider)], op.o.saved[quotaKey(provider)]}
	delete(op.o.saved, breakerKey(provider))
	delete(op.o.saved, quotaKey(provider))
	ref := &accountRef{}
	ref.now.Store(&published{})
	acc := newAccount(op.a.sys, provider, &op.o, ref, saved)
	ref.pid = op.a.sys.spawn(acc)
	op.a.sys.send(ref.pid, woke{}) // publishes what was restored
	all = maps.Clone(all)
	all[provider] = ref
	op.a.all.Store(&all)
	return ref
}
