package actors

import (
	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/hooks"
	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// askHooks asks the injection points that are there: how sensitive the content
// is, and whether more may be spent.
func (c *call) askHooks(job *routing.Job) error {
	if c.e.hooks.asks(config.HookSensitivity) {
		if err := c.classify(job); err != nil {
			return err
		}
	}
	if c.ownBudget = c.e.hooks.asks(config.HookBudget); !c.ownBudget {
		return nil
	}
	h := &c.req.Head
	v := c.e.hooks.budget(c.ctx, &hooks.BudgetQuestion{
		CallID: c.id, Process: h.Process, Task: h.Task, Class: c.class, RunID: h.RunID, BatchID: h.BatchID, Providers: c.s.router.IDs(),
	})
	if v.err == nil && v.localOnly != "" && job.LocalOnly == "" {
		job.LocalOnly, job.LocalReason = v.localOnly, routing.ReasonBudget
	}
	if v.err == nil && v.freeOnly != "" {
		job.FreeOnly = v.freeOnly
	}
	return asError(v.err)
}

// classify asks how sensitive the content is. What is not known to be harmless
// stays out of previews.
func (c *call) classify(job *routing.Job) error {
	h := &c.req.Head
	content := contentOf(c.req)
	content.CallID, content.Process, content.Task, content.Class = c.id, h.Process, h.Task, c.class
	content.AgentID, content.RunID, content.Providers = h.AgentID, h.RunID, c.s.router.IDs()
	v := c.e.hooks.sensitivity(c.ctx, content)
	c.sensitivity, c.allowed = v.sensitivity, v.only
	c.hidden = v.unclassified || v.sensitivity == config.Confidential
	job.Sensitivity, job.Only = v.sensitivity, v.only
	if v.localOnly != "" {
		job.LocalOnly, job.LocalReason = v.localOnly, routing.ReasonSensitivity
	}
	return asError(v.err)
}

// asError keeps a nil error nil.
func asError(e *subjects.Error) error {
	if e == nil {
		return nil
	}
	return e
}

// contentOf is what a classifier sees of a request.
func contentOf(req *wire.Request) *hooks.Content {
	text, cut, attached := req.Texts(hooks.MaxText)
	return &hooks.Content{Text: text, Truncated: cut, Attachments: attached}
}

// tellCost tells an embedder's or a service's budget what the call has cost, its
// failed tries first.
func (w *work) tellCost(rec *subjects.UsageRecord) {
	if !w.ownBudget {
		return
	}
	h := &w.req.Head
	tell := func(provider, model, account, outcome string, u subjects.Usage, cost, saved *subjects.USD) {
		w.e.hooks.track(&hooks.BudgetCost{
			CallID: w.id, Process: h.Process, Task: h.Task, Class: w.class, RunID: h.RunID, BatchID: h.BatchID,
			Provider: provider, Model: model, Subscription: account, Outcome: outcome,
			InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, TotalTokens: u.InputTokens + u.OutputTokens,
			CostUSD: cost, SavedUSD: saved,
		})
	}
	for _, a := range rec.AttemptTrail {
		if s := a.Spent; s != nil {
			tell(a.Provider, s.Model, s.Subscription, a.Outcome, subjects.Usage{InputTokens: s.InputTokens, OutputTokens: s.OutputTokens}, s.CostUSD, nil)
		}
	}
	tell(rec.Provider, rec.Model, rec.Subscription, rec.Outcome, w.spent.usage, rec.CostUSD, rec.SavedUSD)
}
