package actors

import (
	"context"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

// accountOptions is what accounts are made of.
type accountOptions struct {
	// emit publishes an event; it must not block.
	emit func(subject string, event any)
	// publish is called inside the actor's turn whenever what holds the provider
	// back changes; it must not block.
	publish func(provider string, st standing)
	// save stores a state under its key ("breaker/<id>", "quota/<id>"); nil deletes
	// it. It must not block.
	save func(key string, value []byte)
	// saved is what was saved before the node last ended.
	saved map[string][]byte
	cfg   *config.Config
}

// accounts is the calls' side of the account actors, one per provider.
type accounts struct{}

func newAccounts(sys *system, o accountOptions) *accounts { return &accounts{} }

// restore makes the actors of the providers that have saved state, so that what
// holds them back is published before the first call.
func (a *accounts) restore() {}

// permit asks, right before an attempt and with its slot in hand, whether the
// attempt may be made. Either the permit or the refusal is not nil; the error is
// ctx's end. A permit is given back by done or release.
func (a *accounts) permit(ctx context.Context, provider, model, class string) (*permit, *refusal, error) {
	return &permit{}, nil, nil
}

// refusal says why an attempt may not be made now: reason is one of
// routing.Reason….
type refusal struct {
	reason string
	hold   routing.Hold
}

// permit is one attempt at a provider. Safe for concurrent use.
type permit struct{}

// outcome is how an attempt ended.
type outcome struct {
	// err is nil for a success.
	err *subjects.Error
	// callerEnded says that the call's own context ended: a cancel, or the caller's
	// deadline.
	callerEnded bool
	ran         time.Duration
	// begun says that output had come.
	begun       bool
	usage       subjects.Usage
	cost, saved *subjects.USD
	// limits are the rate-limit headers of the answer or of the error.
	limits map[string]string
}

// done says how the attempt ended. Of all calls of done and release only the
// first has an effect.
func (p *permit) done(o outcome) {}

// release says that no attempt was made, or that it must not count.
func (p *permit) release() {}

// accountInfo is what is known of a provider's account.
type accountInfo struct {
	breaker subjects.BreakerInfo
	quota   subjects.QuotaInfo
	metrics subjects.ProviderMetrics
}

// info tells what is known of a provider's account.
func (a *accounts) info(ctx context.Context, provider string) (accountInfo, error) {
	return accountInfo{}, nil
}

// resetQuota lifts all that quotas hold back of a provider.
func (a *accounts) resetQuota(ctx context.Context, provider string) (lifted int, err error) {
	return 0, nil
}

// reconfigure has the accounts follow a new configuration.
func (a *accounts) reconfigure(cfg *config.Config) {}

// flush saves what has not been saved yet; to be called before the end.
func (a *accounts) flush(ctx context.Context) error { return nil }
