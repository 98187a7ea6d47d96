package actors

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

// queryTimeout bounds the work for one query.
const queryTimeout = 5 * time.Second

// Query answers one of the query and admin subjects. The answer is written as
// JSON by the caller.
type Query func(ctx context.Context, body []byte) (any, error)

// Queries returns the handlers of the query and admin subjects.
func (e *Engine) Queries() map[string]Query {
	return map[string]Query{
		subjects.QueryHealth:       func(ctx context.Context, _ []byte) (any, error) { return e.health(ctx), nil },
		subjects.QueryProviders:    func(ctx context.Context, _ []byte) (any, error) { return e.providers(ctx), nil },
		subjects.QueryModels:       func(context.Context, []byte) (any, error) { return e.models(), nil },
		subjects.QueryRoute:        e.explain,
		subjects.QueryUsageSummary: e.usageSummary,
		subjects.QueryUsageRecent:  e.usageRecent,
		subjects.QueryMetrics:      func(ctx context.Context, _ []byte) (any, error) { return e.metrics(ctx) },
		subjects.AdminQuotaReset:   e.resetQuota,
		subjects.AdminCacheClear:   e.clearCache,
		subjects.AdminReload:       func(ctx context.Context, _ []byte) (any, error) { return e.o.Reload(ctx) },
	}
}

// readQuery decodes a query's body, which may be empty, and refuses unknown fields.
func readQuery(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return subjects.Errorf(subjects.KindValidation, "query: %w; send a JSON object with the fields of docs/subjects.md, or nothing", err)
	}
	return nil
}

func (e *Engine) health(ctx context.Context) *subjects.Health {
	now := e.setup()
	pools, classes := e.admission.stats(ctx)
	h := &subjects.Health{
		Status: "ok", Version: e.o.Version, Mode: now.cfg.Mode,
		UptimeSeconds:    int64(time.Since(e.started).Seconds()),
		InFlightRequests: int(e.inFlight.Load()),
		Providers:        map[string]subjects.ProviderHealth{}, Pools: pools, Classes: classes,
	}
	for id, st := range *e.snapshot.Load() {
		h.CanServe = h.CanServe || st.Available && now.allowed(id)
		h.Providers[id] = e.providerHealth(ctx, now.router.Provider(id), id, st)
	}
	if !h.CanServe {
		h.Reasons = append(h.Reasons, "no provider can serve in mode "+now.cfg.Mode+": see providers for the reasons")
	}
	e.usageHealth(ctx, h)
	if e.draining.Load() {
		h.CanServe = false
		h.Reasons = append(h.Reasons, "shutting down")
	}
	if len(h.Reasons) > 0 {
		h.Status = "degraded"
	}
	return h
}

func (e *Engine) providerHealth(ctx context.Context, p *config.Provider, id string, st routing.State) subjects.ProviderHealth {
	h := subjects.ProviderHealth{Available: st.Available, Reason: st.Detail, Mode: "remote", Capabilities: st.Has.Names()}
	if p != nil { // nil: an outside one that left this moment
		h.Account, h.Models = p.Account, p.Models
		if !st.Remote {
			h.Mode = reachedBy(p.Account)
		}
	}
	if info, err := e.accountInfo(ctx, id, &st); err == nil {
		h.Breaker, h.Quota, h.RetryAt = info.breaker.State, info.quota.State, info.breaker.RetryAt
		for _, hold := range info.quota.Exhausted {
			if hold.Model == "" {
				h.RetryAt = laterOf(h.RetryAt, &hold.RetryAt)
			}
		}
		if st.Remote && st.Quota.On {
			h.RetryAt = laterOf(h.RetryAt, optionalTime(st.Quota.Until))
		}
	}
	return h
}

// accountInfo is what is known of a provider's account; of one on another node,
// what that node says it holds back.
func (e *Engine) accountInfo(ctx context.Context, id string, st *routing.State) (accountInfo, error) {
	if !st.Remote {
		return e.accounts.info(ctx, id)
	}
	info := accountInfo{breaker: subjects.BreakerInfo{State: subjects.BreakerClosed}, quota: subjects.QuotaInfo{State: subjects.QuotaOK}}
	if h := &st.Breaker; h.On {
		info.breaker.State, info.breaker.RetryAt = subjects.BreakerOpen, optionalTime(h.Until)
		if h.Trial || !time.Now().Before(h.Until) {
			info.breaker.State = subjects.BreakerHalfOpen
		}
	}
	if st.Quota.On {
		info.quota.State = subjects.QuotaExhausted
	}
	return info, nil
}

// laterOf returns the later of two moments, either of which may be nil.
func laterOf(a, b *subjects.Time) *subjects.Time {
	if a == nil || b != nil && b.After(a.Time) {
		return b
	}
	return a
}

func (e *Engine) usageHealth(ctx context.Context, h *subjects.Health) {
	kept := e.usage.state(ctx)
	agg, _ := ask(ctx, e.sys, e.progress, func(r chan<- aggregatorInfo) any { return aggregatorState{r} })
	h.Usage = subjects.UsageHealth{Pending: kept.pending, LastSeq: e.usage.lastSeq.Load(), AppliedSeq: agg.seq, Error: kept.err}
	if refusal := e.usage.refuse(); refusal != nil {
		h.CanServe = false
		h.Reasons = append(h.Reasons, refusal.Message)
	}
	if agg.reason != "" {
		h.Reasons = append(h.Reasons, "the usage database is behind: "+agg.reason)
	}
}

func reachedBy(account string) string {
	switch account {
	case subjects.SubscriptionAPIKey:
		return "api"
	case subjects.SubscriptionLocal:
		return "local"
	case subjects.SubscriptionMock:
		return "mock"
	}
	return "subscription"
}

func (e *Engine) providers(ctx context.Context) *subjects.ProvidersReply {
	now := e.setup()
	snap, router := *e.snapshot.Load(), now.router
	out := &subjects.ProvidersReply{}
	for _, id := range router.IDs() {
		st, p := snap[id], router.Provider(id)
		models := p.Models
		if models == nil {
			models = map[string]string{}
		}
		row := subjects.ProviderInfo{
			Provider: id, Available: st.Available, Reason: st.Detail, Account: p.Account, Local: p.Local(), Outside: now.isOutside(id),
			Models: models, AvailableModels: p.AvailableModels, Capabilities: st.Has.Names(),
		}
		if info, err := e.accountInfo(ctx, id, &st); err == nil {
			row.Breaker, row.Quota = &info.breaker, &info.quota
		}
		out.Providers = append(out.Providers, row)
	}
	return out
}

// models lists what a caller may ask for: auto, the tiers, and the models of
// the providers that can serve.
func (e *Engine) models() *subjects.ModelsReply {
	out := &subjects.ModelsReply{Models: []subjects.ModelInfo{{ID: "auto", Provider: "sluice"}}}
	for _, t := range subjects.Tiers {
		out.Models = append(out.Models, subjects.ModelInfo{ID: t, Provider: "sluice"})
	}
	now := e.setup()
	snap, router := *e.snapshot.Load(), now.router
	for _, id := range router.IDs() {
		if !snap[id].Available || !now.allowed(id) && id != "mock" {
			continue
		}
		models := routing.Models(router.Provider(id))
		slices.Sort(models)
		for _, m := range models {
			out.Models = append(out.Models, subjects.ModelInfo{ID: id + "/" + m, Provider: id})
		}
	}
	return out
}

func (e *Engine) usageSummary(ctx context.Context, body []byte) (any, error) {
	var q subjects.UsageQuery
	if err := readQuery(body, &q); err != nil {
		return nil, err
	}
	e.catchUp(ctx)
	return e.o.Store.Summary(q, time.Now())
}

func (e *Engine) usageRecent(ctx context.Context, body []byte) (any, error) {
	q := subjects.RecentQuery{Limit: 50}
	if err := readQuery(body, &q); err != nil {
		return nil, err
	}
	if q.Limit < 1 || q.Limit > subjects.MaxRecent {
		return nil, subjects.Errorf(subjects.KindValidation, "limit: %d is out of bounds; ask for 1 to %d rows", q.Limit, subjects.MaxRecent)
	}
	e.catchUp(ctx)
	rows, err := e.o.Store.Recent(q.Limit)
	if err != nil {
		return nil, err
	}
	if rows == nil {
		rows = []json.RawMessage{}
	}
	return &subjects.RecentUsage{Calls: rows}, nil
}

// catchUp waits until what this node has logged can be queried, 2 s at most: a
// caller sees its own calls.
func (e *Engine) catchUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_ = e.reach(ctx)
}

// Answer runs a query under its time bound and writes its reply.
func (e *Engine) Answer(ctx context.Context, q Query, body []byte) (m *subjects.Msg) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("query panicked", "panic", panicError(p).(*subjects.Error).Unwrap())
			m = subjects.AsError(panicError(p)).Msg()
		}
	}()
	out, err := q(ctx, body)
	if err == nil {
		var data bytes.Buffer
		enc := json.NewEncoder(&data)
		enc.SetEscapeHTML(false) // a summary has arrows in it
		if err = enc.Encode(out); err == nil {
			return &subjects.Msg{Data: bytes.TrimSuffix(data.Bytes(), []byte("\n"))}
		}
	}
	return subjects.AsError(err).Msg()
}

// Cancel stops a call by its id.
func (e *Engine) Cancel(body []byte) error {
	var c subjects.CancelRequest
	if err := json.Unmarshal(body, &c); err != nil || c.CallID == "" {
		return subjects.Errorf(subjects.KindValidation, `cancel: send {"callId": "…"}`)
	}
	e.sys.send(e.calls, cancelCall{c.CallID, errCancelled})
	return nil
}
