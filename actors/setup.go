package actors

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// setup is what a configuration makes of a node. It never changes: an edit of
// the configuration, or an outside provider that comes or changes, makes another
// one, and a call keeps the one that it began with. One goroutine makes them
// (keepStatus), so that none is lost.
type setup struct {
	cfg       *config.Config
	router    *routing.Router
	providers map[string]providers.Provider // the configured ones
	outside   map[string]*outsider
	retry     failsafe.Executor[*wire.Response]
}

func newSetup(cfg *config.Config, configured map[string]providers.Provider, outside map[string]*outsider) *setup {
	s := &setup{cfg: cfg, providers: configured, outside: outside}
	announced := make([]*config.Provider, 0, len(outside))
	for _, o := range outside {
		announced = append(announced, o.cfg)
	}
	slices.SortFunc(announced, func(x, y *config.Provider) int { return strings.Compare(x.ID, y.ID) })
	s.router = routing.New(cfg, announced...)
	s.retry = failsafe.With(s.retryPolicy())
	return s
}

// provider returns a configured or an outside provider; nil = there is none.
func (s *setup) provider(id string) providers.Provider {
	if p := s.providers[id]; p != nil {
		return p
	}
	if o := s.outside[id]; o != nil {
		return o.provider
	}
	return nil
}

// all has every provider by its id.
func (s *setup) all() map[string]providers.Provider {
	all := maps.Clone(s.providers)
	for id, o := range s.outside {
		all[id] = o.provider
	}
	return all
}

// isOutside reports whether a provider is an outside one.
func (s *setup) isOutside(id string) bool { return s.outside[id] != nil }

// capOf is the bound of one (provider, model) pool.
func (s *setup) capOf(provider, model string) int {
	if o := s.outside[provider]; o != nil {
		if n := o.capOf(model); n > 0 {
			return n
		}
	}
	return s.cfg.Pools.Cap(provider, model)
}

// allowed reports whether the mode lets calls go to a provider.
func (s *setup) allowed(id string) bool {
	switch s.cfg.Mode {
	case config.ModeMock:
		return id == "mock"
	case config.ModeLocal:
		return s.router.Local(id)
	}
	return id != "mock"
}

// retryPolicy tries a provider again by error kind, with exponential backoff.
// The provider's Retry-After is a floor: jitter only adds to it.
func (s *setup) retryPolicy() retrypolicy.RetryPolicy[*wire.Response] {
	r := s.cfg.Retry
	return retrypolicy.NewBuilder[*wire.Response]().
		HandleIf(func(_ *wire.Response, err error) bool { return s.worthRetrying(err) }).
		WithMaxAttempts(r.MaxAttempts).
		WithDelayFunc(func(x failsafe.ExecutionAttempt[*wire.Response]) time.Duration {
			wait := min(r.BaseDelay<<min(x.Retries(), 16), r.MaxDelay)
			if err := subjects.AsError(x.LastError()); err != nil {
				wait = max(wait, err.RetryAfter)
			}
			return wait + time.Duration(r.Jitter*rand.Float64()*float64(wait)) //nolint:gosec // jitter, not a secret
		}).
		ReturnLastFailure().
		Build()
}

func (s *setup) worthRetrying(err error) bool {
	if err == nil {
		return false
	}
	k := subjects.AsError(err)
	return k.Kind.Retryable() && k.RetryAfter <= s.cfg.Retry.MaxDelay && !k.Final && !final(err)
}

// resolve decides where a job goes when some of its budgets are used up: what they
// pay for is left out of the chain. Where the configuration has no fallback a call
// that would go to such a provider fails; one that would not is none of theirs.
func (s *setup) resolve(snap routing.Snapshot, job *routing.Job, used usedUp) (*routing.Decision, error) {
	now := time.Now()
	if used.err != nil {
		return nil, used.err
	}
	if !s.cfg.Costs.Fallback && (used.freeOnly != "" || used.localOnly != "") {
		d, err := s.router.Resolve(snap, job, now)
		if err != nil {
			return nil, err
		}
		if why := s.paidBy(d, used); why != "" {
			return d, subjects.Errorf(subjects.KindBudgetExceeded, "%s", why)
		}
	}
	if used.localOnly != "" && job.LocalOnly == "" {
		job.LocalOnly, job.LocalReason = used.localOnly, routing.ReasonBudget
	}
	if used.freeOnly != "" {
		job.FreeOnly = used.freeOnly
	}
	return s.router.Resolve(snap, job, now)
}

// paidBy returns the text of the used-up budget that the first of a chain needs; ""
// = none.
func (s *setup) paidBy(d *routing.Decision, used usedUp) string {
	if len(d.Chain) == 0 {
		return ""
	}
	first := d.Chain[0].Provider
	switch {
	case used.localOnly != "" && !s.router.Local(first):
		return used.localOnly
	case s.router.Account(first) == subjects.SubscriptionAPIKey:
		return used.freeOnly
	}
	return ""
}
