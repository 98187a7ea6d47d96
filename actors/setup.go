package actors

import (
	"maps"
	"math/rand/v2"
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
	sortProviders(announced)
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
