package actors

import (
	"context"

	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

// metrics is what has been counted in memory since the start.
func (e *Engine) metrics(ctx context.Context) (*subjects.Metrics, error) {
	out := &subjects.Metrics{Since: subjects.Time{Time: e.started}, Providers: map[string]subjects.ProviderMetrics{}}
	for _, id := range e.setup().router.IDs() {
		info, err := e.accounts.info(ctx, id)
		if err != nil {
			return nil, err
		}
		out.Providers[id] = info.metrics
	}
	var err error
	if out.Budgets = e.ledger.state(ctx); out.Budgets == nil {
		out.Budgets = []subjects.BudgetState{}
	}
	out.Cache, err = e.cache.metrics(ctx)
	return out, err
}

// resetQuota lifts what quotas hold back of a provider, here and on the nodes that
// host it.
func (e *Engine) resetQuota(ctx context.Context, body []byte) (any, error) {
	var q subjects.QuotaResetRequest
	if err := readQuery(body, &q); err != nil {
		return nil, err
	}
	ids := e.setup().router.IDs()
	if q.Provider == "" {
		return nil, subjects.Errorf(subjects.KindValidation, `provider: name the provider whose quota is to be reset, such as {"provider":"copilot"}`)
	}
	if e.setup().router.Provider(q.Provider) == nil {
		return nil, unknownWord("provider", q.Provider, ids)
	}
	lifted, err := e.accounts.resetQuota(ctx, q.Provider)
	if err != nil {
		return nil, err
	}
	if st := (*e.snapshot.Load())[q.Provider]; st.Remote {
		lifted += heldByQuota(&st)
	}
	e.tellAll(nodeOrder{ResetQuota: q.Provider})
	e.log.Info("a quota was reset", "provider", q.Provider, "lifted", lifted)
	return &subjects.QuotaResetReply{Provider: q.Provider, Lifted: lifted}, nil
}

// heldByQuota counts the holds of a provider's quota.
func heldByQuota(st *routing.State) int {
	n := len(st.Models)
	if st.Quota.On {
		n++
	}
	return n
}

// clearCache forgets all kept answers, the other nodes' too. Those of this one are
// counted.
func (e *Engine) clearCache(ctx context.Context, _ []byte) (any, error) {
	n, err := e.cache.clear(ctx)
	if err != nil {
		return nil, err
	}
	e.tellAll(nodeOrder{ClearCache: true})
	e.log.Info("the cache was cleared", "entries", n)
	return &subjects.CacheClearReply{Entries: n}, nil
}
