package actors

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// conclude answers with what the call's own work came to.
func (c *call) conclude(resp *wire.Response, err error) error {
	c.cand = c.work.lastCand
	if c.isHop && c.begun {
		if err := c.out(&subjects.Msg{Header: c.work.hopHeader(resp), Data: []byte("{}")}); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	return c.answer(resp)
}

// answer sends the terminal message of a call that succeeded. resp may be
// others' too: it is not changed.
func (c *call) answer(resp *wire.Response) error {
	res := c.result(resp)
	if c.req.Head.Stream {
		if c.enc == nil {
			c.open(opening{c.cand, resp})
		}
		if err := c.enc.Finish(resp, res, c.emit); err != nil {
			return err
		}
		return c.out(&subjects.Msg{})
	}
	data, err := wire.EncodeResponse(c.req.Wire, resp, res)
	if err != nil {
		return err
	}
	h := c.replyHeader(resp)
	if c.isHop {
		maps.Copy(h, c.work.hopHeader(resp))
	}
	return c.out(&subjects.Msg{Header: h, Data: data})
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// result is the answer in Sluice's own words, without the content. What cost
// nothing, because it was kept or another's, has no tokens.
func (c *call) result(resp *wire.Response) *subjects.Result {
	account := c.s.router.Account(c.cand.Provider)
	raw := modelOf(resp, c.cand)
	res := &subjects.Result{
		CallID: c.id, Content: resp.Text, ToolCalls: resp.ToolCalls, FinishReason: resp.FinishReason,
		Provider: c.cand.Provider, Model: wire.CanonicalModel(raw), ModelRaw: raw,
		Tier: c.route.Tier, Class: c.class, Process: c.req.Head.Process, Subscription: account,
		Local: account == subjects.SubscriptionLocal, Mock: account == subjects.SubscriptionMock,
		Warnings: warnings(c.route, c.cand, resp), Cached: c.cached, CostUSD: new(subjects.USD),
		Attempts: []subjects.Attempt{}, QueuedMs: ms(c.waited),
	}
	busy := c.waited
	if w := c.work; w != nil {
		res.Usage, res.CostUSD, res.Attempts = w.spent.usage, w.spent.cost, w.trail
		res.LatencyMs, res.QueuedMs = ms(w.provider), ms(w.queued)
		busy = w.queued + w.provider
	}
	res.OverheadMs = ms(max(0, time.Since(c.start)-busy))
	return res
}

// usageRecord is what the log has of a work that reached a provider.
func (w *work) usageRecord(resp *wire.Response, err error) *subjects.UsageRecord {
	h, s := &w.req.Head, &w.spent
	rec := &subjects.UsageRecord{
		ID: recordID(w.id, w.runs), Timestamp: subjects.Time{Time: time.Now()},
		Provider: w.lastCand.Provider, Model: s.model, ModelRaw: modelOf(resp, w.lastCand), Process: h.Process,
		Task: h.Task, Class: w.class, Tier: w.route.Tier, Subscription: s.account,
		InputTokens: s.usage.InputTokens, OutputTokens: s.usage.OutputTokens, TotalTokens: s.usage.TotalTokens,
		CacheReadTokens: s.usage.CacheReadTokens, CacheWriteTokens: s.usage.CacheWriteTokens,
		ReasoningTokens: s.usage.ReasoningTokens, TokensEstimated: s.usage.Estimated,
		CostUSD: s.cost, SavedUSD: s.saved,
		LatencyMs: ms(w.provider), QueuedMs: ms(w.queued), OverheadMs: ms(max(0, time.Since(w.arrived)-w.queued-w.provider)),
		Outcome: subjects.OutcomeOK, ChainPosition: w.position, AttemptTrail: w.trail,
		PromptPreview: preview(w.s.cfg, w.req, w.hidden), RunID: h.RunID, BatchID: h.BatchID,
	}
	if err != nil {
		rec.Outcome = string(subjects.KindOf(err))
		rec.Partial = rec.TotalTokens > 0 || w.begun
	}
	return rec
}

// preview is what a record shows of the prompt: nothing where that is switched
// off, or the content is confidential or was not classified by the one who should.
func preview(cfg *config.Config, req *wire.Request, hidden bool) string {
	if !cfg.Usage.PromptPreview || hidden {
		return ""
	}
	return req.PromptPreview()
}

// recordID is the call id; a later run of an id whose earlier run failed has
// its own record.
func recordID(id string, runs int) string {
	if runs > 1 {
		return runID(id, runs)
	}
	return id
}

// sendError sends the error as the terminal message.
func (c *call) sendError(err error) {
	e := *subjects.AsError(err)
	e.CallID = c.id
	if e.Attempts == nil && c.work != nil {
		e.Attempts = slices.Clone(c.work.trail)
	}
	if cause := e.Unwrap(); cause != nil && e.Kind == subjects.KindProvider {
		c.e.log.Warn("call failed inside", "call", c.id, "error", cause)
	}
	_ = c.out(e.Msg())
	if c.begun || c.req != nil && c.req.Head.Stream {
		_ = c.out(&subjects.Msg{})
	}
}

func (c *call) logLine(err error) {
	log := c.e.log
	if !log.Enabled(context.Background(), logLevel) {
		return
	}
	outcome := subjects.OutcomeOK
	if err != nil && !errors.Is(err, errAnswered) {
		outcome = string(subjects.KindOf(err))
	}
	process, task := "", ""
	if c.req != nil {
		process, task = c.req.Head.Process, c.req.Head.Task
	}
	cand, queued, provider := c.cand, c.waited, time.Duration(0)
	if w := c.work; w != nil {
		cand, queued, provider = w.cand, w.queued, w.provider
	}
	log.LogAttrs(context.Background(), logLevel, "call", slog.String("call", c.id), slog.String("outcome", outcome),
		slog.String("class", c.class), slog.String("process", process), slog.String("task", task),
		slog.String("provider", cand.Provider), slog.String("model", cand.Model), slog.Bool("cached", c.cached),
		slog.Float64("queued_ms", ms(queued)), slog.Float64("latency_ms", ms(provider)), slog.Float64("total_ms", ms(time.Since(c.start))))
}
