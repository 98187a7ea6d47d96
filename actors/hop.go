package actors

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// A hop is an attempt at a provider that another node hosts: the same request,
// sent to llm.provider.<provider>.complete. The node that hosts the provider
// owns its pools and tries again where that helps; the node that the caller
// asked owns the call: it falls through, records and answers.

// hopResult is what the asking node must know of an answer beside its body.
type hopResult struct {
	Model        string         `json:"model"`
	FinishReason string         `json:"finishReason"`
	Usage        subjects.Usage `json:"usage"`
	Known        bool           `json:"known"`
	OutputBytes  int64          `json:"outputBytes"`
	QueuedMs     float64        `json:"queuedMs"`
	Warnings     []string       `json:"warnings,omitempty"`
}

// isHop reports whether another node sent the request: its mark counts only with
// a reply inbox where no caller may listen.
func isHop(in Incoming) bool {
	return in.Header.Get(subjects.HeaderHop) != "" && strings.HasPrefix(in.Inbox, subjects.NodeInbox+".")
}

// hop makes one attempt at a provider on another node.
func (c *call) hop(ctx context.Context, cand subjects.Candidate, n int) (*wire.Response, error) {
	ctx, gone := context.WithCancelCause(ctx)
	defer gone(nil)
	stop := c.watchHost(cand.Provider, gone)
	defer stop()
	resp, err := c.hopOnce(ctx, cand, n)
	if err != nil && context.Cause(ctx) == errHostGone && c.ctx.Err() == nil {
		err = &finalError{errHostGone}
	}
	return resp, err
}

var errHostGone error = subjects.Errorf(subjects.KindProviderUnavailable, "the node that hosts the provider fell silent")

// watchHost ends a hop when no node that lives hosts its provider any more.
func (c *call) watchHost(provider string, gone context.CancelCauseFunc) (stop func()) {
	done := make(chan struct{})
	go func() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				if st := (*c.e.snapshot.Load())[provider]; !st.Remote {
					gone(errHostGone)
					return
				}
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

func (c *call) hopOnce(ctx context.Context, cand subjects.Candidate, n int) (*wire.Response, error) {
	m := &subjects.Msg{Subject: subjects.Provider(cand.Provider), Header: c.hopHeader(ctx, cand, n), Data: c.req.Body}
	resp := &wire.Response{}
	if !c.req.Head.Stream {
		reply, err := c.e.o.Hop.Request(ctx, m)
		if err != nil {
			return resp, &finalError{c.hopError(err)}
		}
		return resp, c.hopAnswer(resp, reply)
	}
	c.enc = wire.NewStreamEncoder(c.req.Wire, &c.req.Head, c.id, cand.Model)
	err := c.e.o.Hop.Stream(ctx, m, func(m *subjects.Msg) error { return c.hopEvent(resp, m) })
	if err != nil {
		return resp, &finalError{c.hopError(err)}
	}
	return resp, nil
}

func (c *call) hopHeader(ctx context.Context, cand subjects.Candidate, n int) subjects.Header {
	h := subjects.Header{}
	h.Set(subjects.HeaderHop, c.e.node)
	h.Set(subjects.HeaderCallID, fmt.Sprintf("%.80s~%d~%s", c.id, n, subjects.NewCallID()))
	h.Set(subjects.HeaderWire, string(c.req.Wire))
	h.Set(subjects.HeaderModel, cand.Provider+"/"+cand.Model)
	h.Set(subjects.HeaderClass, c.class)
	h.Set(subjects.HeaderProcess, c.req.Head.Process)
	if c.req.Head.Task != "" {
		h.Set(subjects.HeaderTask, c.req.Head.Task)
	}
	h.Set(subjects.HeaderTier, c.route.Tier)
	if c.hops != "" {
		h.Set(subjects.HeaderHops, c.hops)
	}
	if d, ok := ctx.Deadline(); ok {
		h.Set(subjects.HeaderTimeoutMs, strconv.FormatInt(max(1, time.Until(d).Milliseconds()), 10))
	}
	return h
}

// hopError adds the other node's trail to ours. That no node answers, or that
// the one that does cannot serve after all, is for the chain to get over.
func (c *call) hopError(err error) error {
	e := *subjects.AsError(err)
	for _, a := range e.Attempts {
		if a.Outcome != subjects.OutcomeSkipped {
			c.trail = append(c.trail, a)
		}
	}
	e.Attempts, e.CallID = nil, ""
	if e.Kind == subjects.KindNoProvider {
		e.Kind, e.HTTPStatus = subjects.KindProviderUnavailable, 0
	}
	return &e
}

func (c *call) hopResult(resp *wire.Response, m *subjects.Msg) bool {
	text := m.Header.Get(subjects.HeaderHopResult)
	if text == "" {
		return false
	}
	var r hopResult
	if json.Unmarshal([]byte(text), &r) == nil {
		resp.Model, resp.FinishReason, resp.Usage, resp.UsageKnown = r.Model, r.FinishReason, r.Usage, r.Known
		resp.OutputBytes, resp.Warnings = r.OutputBytes, r.Warnings
		waited := time.Duration(r.QueuedMs * float64(time.Millisecond))
		c.queued += waited
		c.provider -= waited // the attempt's own time counts it too
	}
	return true
}

func (c *call) hopAnswer(resp *wire.Response, m *subjects.Msg) error {
	c.hopResult(resp, m)
	if c.req.Wire != wire.Native {
		resp.Wire, resp.Raw = c.req.Wire, m.Data
		return nil
	}
	var res subjects.Result
	if err := json.Unmarshal(m.Data, &res); err != nil {
		return subjects.Errorf(subjects.KindProvider, "the other node's answer is not a native result").WithCause(err)
	}
	resp.Text, resp.ToolCalls, resp.FinishReason = res.Content, res.ToolCalls, res.FinishReason
	return nil
}

func (c *call) hopEvent(resp *wire.Response, m *subjects.Msg) error {
	if c.hopResult(resp, m) {
		return nil
	}
	if c.req.Wire != wire.Native {
		return c.event(&wire.Event{Wire: c.req.Wire, Raw: m.Data})
	}
	var ev subjects.Event
	if err := json.Unmarshal(m.Data, &ev); err != nil {
		return subjects.Errorf(subjects.KindProvider, "the other node's event is not a native one").WithCause(err)
	}
	if ev.Type == subjects.EventResult {
		return nil // the encoder makes ours
	}
	return c.event(&wire.Event{Text: ev.Content, ToolCall: ev.ToolCall})
}

// hopHeaderOf is the header in which a hop's answer says what is known of it.
func (c *call) hopHeaderOf(resp *wire.Response) subjects.Header {
	b, err := json.Marshal(hopResult{
		Model: resp.Model, FinishReason: resp.FinishReason, Usage: resp.Usage, Known: resp.UsageKnown,
		OutputBytes: resp.OutputBytes, QueuedMs: ms(c.queued), Warnings: resp.Warnings,
	})
	if err != nil {
		return nil
	}
	return subjects.Header{subjects.HeaderHopResult: {string(b)}}
}
