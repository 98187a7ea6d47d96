package actors

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// warnings names what a caller asked for and did not get.
func (c *call) warnings(resp *wire.Response) []string {
	var out []string
	if resp != nil {
		out = resp.Warnings
	}
	if asked := c.route.Asked; asked != "" && asked != c.lastCand.Provider {
		out = append(slices.Clone(out), "provider "+asked+" was asked for and "+c.lastCand.Provider+" answers")
	}
	return out
}

// conclude records the call, if a provider was reached, and then sends the
// terminal message of one that succeeded. err is what the chain ended with.
func (c *call) conclude(resp *wire.Response, err error) error {
	if resp == nil {
		resp = &wire.Response{}
	}
	if err == nil && resp.Wire != c.req.Wire {
		err = wire.Decode(resp)
	}
	res := c.result(resp, err)
	if c.reached && !c.isHop {
		c.e.usage.write(c.usageRecord(res, err)).wait()
	}
	if c.isHop && c.begun {
		if err := c.out(&subjects.Msg{Header: c.hopHeaderOf(resp), Data: []byte("{}")}); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	total := time.Since(c.start)
	res.OverheadMs = ms(total - c.queued - c.provider)
	if c.req.Head.Stream {
		if err := c.letGo(); err != nil {
			return err
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
	h := c.replyHeader()
	if c.isHop {
		maps.Copy(h, c.hopHeaderOf(resp))
	}
	return c.out(&subjects.Msg{Header: h, Data: data})
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (c *call) result(resp *wire.Response, err error) *subjects.Result {
	h := &c.req.Head
	account := c.s.router.Account(c.lastCand.Provider)
	raw := resp.Model
	if raw == "" {
		raw = c.lastCand.Model
	}
	res := &subjects.Result{
		CallID: c.id, Content: resp.Text, ToolCalls: resp.ToolCalls, FinishReason: resp.FinishReason,
		Provider: c.lastCand.Provider, Model: wire.CanonicalModel(raw), ModelRaw: raw,
		Tier: c.route.Tier, Class: c.class, Process: h.Process, Subscription: account,
		Usage: c.spent(resp, err),
		Local: account == subjects.SubscriptionLocal, Mock: account == subjects.SubscriptionMock,
		Warnings: c.warnings(resp), Attempts: c.trail,
		LatencyMs: ms(c.provider), QueuedMs: ms(c.queued),
	}
	res.CostUSD = costOf(&c.s.cfg.Prices, account, res.Provider, res.Model, &res.Usage)
	res.OverheadMs = ms(time.Since(c.start) - c.queued - c.provider)
	return res
}

// maxTokens bounds what is believed of a provider's count; above it is nonsense.
const maxTokens = 1 << 31

// spent is what the provider reported, and for what it did not report an
// estimate marked so: of the whole for an answer, of what had gone each way for
// one that was cut off. A request that the provider refused spent nothing.
func (c *call) spent(resp *wire.Response, err error) subjects.Usage {
	u := resp.Usage
	for _, n := range []*int64{&u.InputTokens, &u.OutputTokens, &u.CacheReadTokens, &u.CacheWriteTokens, &u.ReasoningTokens} {
		if *n < 0 || *n > maxTokens {
			*n = 0
		}
	}
	cut := c.outcome == subjects.KindTimeout || c.outcome == subjects.KindCancelled
	if err == nil || resp.OutputBytes > 0 || cut || resp.UsageKnown {
		if u.InputTokens+u.CacheReadTokens+u.CacheWriteTokens == 0 {
			u.InputTokens, u.Estimated = c.req.EstimateInput(), true
		}
		if u.OutputTokens == 0 && resp.OutputBytes > 0 {
			u.OutputTokens, u.Estimated = (resp.OutputBytes+3)/4, true
		}
		u.Estimated = u.Estimated || !resp.UsageKnown
	}
	u.TotalTokens = u.InputTokens + u.OutputTokens
	return u
}

func (c *call) usageRecord(res *subjects.Result, err error) *subjects.UsageRecord {
	rec := &subjects.UsageRecord{
		ID: c.recordID(), Timestamp: subjects.Time{Time: time.Now()},
		Provider: res.Provider, Model: res.Model, ModelRaw: res.ModelRaw, Process: res.Process,
		Task: c.req.Head.Task, Class: res.Class, Tier: res.Tier, Subscription: res.Subscription,
		InputTokens: res.Usage.InputTokens, OutputTokens: res.Usage.OutputTokens, TotalTokens: res.Usage.TotalTokens,
		CacheReadTokens: res.Usage.CacheReadTokens, CacheWriteTokens: res.Usage.CacheWriteTokens,
		ReasoningTokens: res.Usage.ReasoningTokens, TokensEstimated: res.Usage.Estimated,
		CostUSD: res.CostUSD, SavedUSD: savedOf(&c.s.cfg.Prices, res.Subscription, res.Provider, res.Model, &res.Usage),
		LatencyMs: res.LatencyMs, QueuedMs: res.QueuedMs, OverheadMs: res.OverheadMs,
		Outcome: subjects.OutcomeOK, ChainPosition: c.position, AttemptTrail: c.trail,
	}
	if err != nil {
		rec.Outcome = string(subjects.KindOf(err))
		rec.Partial = rec.TotalTokens > 0 || c.begun
	}
	if c.s.cfg.Usage.PromptPreview {
		rec.PromptPreview = c.req.PromptPreview()
	}
	return rec
}

// recordID is the call id; a later run of an id whose earlier run failed has
// its own record.
func (c *call) recordID() string {
	if c.runs > 1 {
		return runID(c.id, c.runs)
	}
	return c.id
}

// sendError sends the error as the terminal message.
func (c *call) sendError(err error) {
	e := *subjects.AsError(err)
	e.CallID = c.id
	if e.Attempts == nil {
		e.Attempts = slices.Clone(c.trail)
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
	log.LogAttrs(context.Background(), logLevel, "call", slog.String("call", c.id), slog.String("outcome", outcome),
		slog.String("class", c.class), slog.String("process", process), slog.String("task", task),
		slog.String("provider", c.lastCand.Provider), slog.String("model", c.lastCand.Model),
		slog.Float64("queued_ms", ms(c.queued)), slog.Float64("latency_ms", ms(c.provider)), slog.Float64("total_ms", ms(time.Since(c.start))))
}
