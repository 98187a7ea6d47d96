package actors

import (
	"context"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
)

// configEdit brings another configuration to the goroutine that makes setups.
type configEdit struct {
	cfg       *config.Config
	providers map[string]providers.Provider
	done      chan struct{}
}

// Reconfigure takes over another configuration and the providers that belong to
// it. Calls that have begun keep what they began with; every later one goes by
// the new. It returns once it is in force.
func (e *Engine) Reconfigure(ctx context.Context, cfg *config.Config, all map[string]providers.Provider) error {
	r := configEdit{cfg, all, make(chan struct{})}
	select {
	case e.edits <- r:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.base.Done():
		return errStopped
	}
	select {
	case <-r.done:
		return nil
	case <-e.base.Done():
		return errStopped
	}
}

// Config is the configuration in force.
func (e *Engine) Config() *config.Config { return e.setup().cfg }

// apply puts another configuration in force. Kept answers are forgotten: another
// model may stand behind the same tier by now.
func (e *Engine) apply(r configEdit) {
	defer close(r.done)
	e.hooks.reconfigure(r.cfg)
	e.accounts.reconfigure(r.cfg)
	e.ledger.reconfigure(r.cfg)
	e.cache.reconfigure(r.cfg.Cache)
	e.current.Store(newSetup(r.cfg, r.providers, e.setup().outside))
	e.admission.reconfigure(&r.cfg.Pools)
	e.usage.keep(r.cfg.Usage.MaxPending)
	ctx, cancel := context.WithTimeout(e.base, checkTimeout)
	defer cancel()
	if _, err := e.cache.clear(ctx); err != nil {
		e.log.Warn("the cache could not be cleared", "error", err)
	}
	e.refresh()
}

// noReload is the answer where the configuration was made by the program that
// embeds the node.
func noReload(context.Context) (*subjects.ReloadReply, error) {
	return nil, subjects.Errorf(subjects.KindValidation, "this node's configuration does not come from a file: the program that embeds it gave it")
}
