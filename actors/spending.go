package actors

import (
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// spending is what one attempt used, or several: tokens, what they cost and what
// they saved. A nil amount is one that is not known.
type spending struct {
	account, model string
	usage          subjects.Usage
	cost, saved    *subjects.USD
}

func (s *spending) any() bool {
	u := &s.usage
	return u.InputTokens|u.OutputTokens|u.CacheReadTokens|u.CacheWriteTokens != 0
}

// add sums another attempt's. An unknown amount adds nothing to a known one.
func (s *spending) add(o *spending) {
	u, v := &s.usage, &o.usage
	u.InputTokens += v.InputTokens
	u.OutputTokens += v.OutputTokens
	u.TotalTokens += v.TotalTokens
	u.CacheReadTokens += v.CacheReadTokens
	u.CacheWriteTokens += v.CacheWriteTokens
	u.ReasoningTokens += v.ReasoningTokens
	u.Estimated = u.Estimated || v.Estimated
	switch {
	case o.cost == nil:
	case s.cost == nil:
		sum := *o.cost
		s.cost = &sum
	default:
		*s.cost += *o.cost
	}
}

// forTrail is how a trail shows what a failed attempt used.
func (s *spending) forTrail() *subjects.Spent {
	u := &s.usage
	return &subjects.Spent{
		Model: s.model, InputTokens: u.InputTokens, OutputTokens: u.OutputTokens,
		CacheReadTokens: u.CacheReadTokens, CacheWriteTokens: u.CacheWriteTokens, ReasoningTokens: u.ReasoningTokens,
		Estimated: u.Estimated, CostUSD: s.cost, Subscription: s.account,
	}
}

// spendingOf is what an attempt used. told says that another node made it and
// has put what it used into the trail.
func (w *work) spendingOf(cand subjects.Candidate, resp *wire.Response, err error, told bool) spending {
	s := spending{account: w.s.router.Account(cand.Provider), model: wire.CanonicalModel(modelOf(resp, cand))}
	if !told || err == nil || resp.UsageKnown {
		s.usage = w.used(resp, err)
	}
	s.cost = costOf(&w.s.cfg.Prices, s.account, cand.Provider, s.model, &s.usage)
	s.saved = savedOf(&w.s.cfg.Prices, s.account, cand.Provider, s.model, &s.usage)
	return s
}

// modelOf is the id that the provider reports, or that it was asked for.
func modelOf(resp *wire.Response, cand subjects.Candidate) string {
	if resp.Model != "" {
		return resp.Model
	}
	return cand.Model
}

// maxTokens bounds what is believed of a provider's count; above it is nonsense.
const maxTokens = 1 << 31

// used is what the provider reported, and for what it did not report an estimate
// marked so: of the whole for an answer, of what had gone each way for one that
// was cut off. A request that the provider refused spent nothing.
func (w *work) used(resp *wire.Response, err error) subjects.Usage {
	u := resp.Usage
	for _, n := range []*int64{&u.InputTokens, &u.OutputTokens, &u.CacheReadTokens, &u.CacheWriteTokens, &u.ReasoningTokens} {
		if *n < 0 || *n > maxTokens {
			*n = 0
		}
	}
	cut := w.outcome == subjects.KindTimeout || w.outcome == subjects.KindCancelled
	if err == nil || resp.OutputBytes > 0 || cut || resp.UsageKnown {
		if u.InputTokens+u.CacheReadTokens+u.CacheWriteTokens == 0 {
			u.InputTokens, u.Estimated = w.req.EstimateInput(), true
		}
		if u.OutputTokens == 0 && resp.OutputBytes > 0 {
			u.OutputTokens, u.Estimated = (resp.OutputBytes+3)/4, true
		}
		u.Estimated = u.Estimated || !resp.UsageKnown
	}
	u.TotalTokens = u.InputTokens + u.OutputTokens
	return u
}
