package actors

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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
	// Attempts are the tries, where there was more than one.
	Attempts []subjects.Attempt `json:"attempts,omitempty"`
}

// isHop reports whether another node sent the request: its mark counts only with
// a reply inbox where no caller may listen.
func isHop(in Incoming) bool {
	return in.Header.Get(subjects.HeaderHop) != "" && strings.HasPrefix(in.Inbox, subjects.NodeInbox+".")
}

// hop makes one attempt at a provider on another node.
func (w *work) hop(ctx context.Context, cand subjects.Candidate, n int) (*wire.Response, error) {
	ctx, gone := context.WithCancelCause(ctx)
	defer gone(nil)
	stop := w.watchHost(cand.Provider, gone)
	defer stop()
	told := w.lasts()
	resp, err := w.hopOnce(ctx, cand, n)
	for subjects.KindOf(err) == subjects.KindTimeout && w.outlived(told) { // those who came later wait on
		told = w.lasts()
		resp, err = w.hopOnce(ctx, cand, n)
	}
	if err != nil && context.Cause(ctx) == errHostGone && w.ctx.Err() == nil {
		err = &finalError{errHostGone}
	}
	return resp, err
}

// outlived reports whether an attempt that ended by the deadline it was told had
// less time than those who wait for the work by now.
func (w *work) outlived(told time.Time) bool {
	const early = 10 * time.Millisecond // the other node's clock counts whole ones
	return !w.begun && w.ctx.Err() == nil && time.Until(told) <= early && w.lasts().Sub(told) > early
}

var errHostGone error = subjects.Errorf(subjects.KindProviderUnavailable, "the node that hosts the provider fell silent")

// watchHost ends a hop when no node that lives hosts its provider any more.
func (w *work) watchHost(provider string, gone context.CancelCauseFunc) (stop func()) {
	done := make(chan struct{})
	go func() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				if st := (*w.e.snapshot.Load())[provider]; !st.Remote {
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

func (w *work) hopOnce(ctx context.Context, cand subjects.Candidate, n int) (*wire.Response, error) {
	m := &subjects.Msg{Subject: subjects.Provider(cand.Provider), Header: w.hopAsk(cand, n), Data: w.req.Body}
	resp := &wire.Response{}
	if !w.req.Head.Stream {
		reply, err := w.e.o.Hop.Request(ctx, m)
		if err != nil {
			return resp, &finalError{w.hopError(err)}
		}
		return resp, w.hopAnswer(resp, reply)
	}
	err := w.e.o.Hop.Stream(ctx, m, func(m *subjects.Msg) error { return w.hopEvent(resp, m) })
	if err != nil {
		return resp, &finalError{w.hopError(err)}
	}
	return resp, nil
}

func (w *work) hopAsk(cand subjects.Candidate, n int) subjects.Header {
	h := subjects.Header{}
	h.Set(subjects.HeaderHop, w.e.node)
	h.Set(subjects.HeaderCallID, fmt.Sprintf("%.80s~%d~%s", w.id, n, subjects.NewCallID()))
	h.Set(subjects.HeaderWire, string(w.req.Wire))
	h.Set(subjects.HeaderModel, cand.Provider+"/"+cand.Model)
	h.Set(subjects.HeaderClass, w.class)
	h.Set(subjects.HeaderProcess, w.req.Head.Process)
	if w.req.Head.Task != "" {
		h.Set(subjects.HeaderTask, w.req.Head.Task)
	}
	h.Set(subjects.HeaderTier, w.route.Tier)
	if w.hops != "" {
		h.Set(subjects.HeaderHops, w.hops)
	}
	h.Set(subjects.HeaderTimeoutMs, strconv.FormatInt(max(1, time.Until(w.lasts()).Milliseconds()), 10))
	return h
}

// hopError adds the other node's trail to ours. That no node answers, or that
// the one that does cannot serve after all, is for the chain to get over.
func (w *work) hopError(err error) error {
	e := *subjects.AsError(err)
	for _, a := range e.Attempts {
		if a.Outcome != subjects.OutcomeSkipped {
			w.trail = append(w.trail, a)
		}
	}
	e.Attempts, e.CallID = nil, ""
	if e.Kind == subjects.KindNoProvider {
		e.Kind = subjects.KindProviderUnavailable
		if e.Status() == http.StatusTooManyRequests { // its quota is used up
			e.Kind = subjects.KindQuotaExhausted
		}
		e.HTTPStatus = 0
	}
	return &e
}

func (w *work) hopResult(resp *wire.Response, m *subjects.Msg) bool {
	text := m.Header.Get(subjects.HeaderHopResult)
	if text == "" {
		return false
	}
	var r hopResult
	if json.Unmarshal([]byte(text), &r) == nil {
		resp.Model, resp.FinishReason, resp.Usage, resp.UsageKnown = r.Model, r.FinishReason, r.Usage, r.Known
		resp.OutputBytes, resp.Warnings = r.OutputBytes, r.Warnings
		w.trail = append(w.trail, r.Attempts...)
		waited := time.Duration(r.QueuedMs * float64(time.Millisecond))
		w.queued += waited
		w.provider -= waited // the attempt's own time counts it too
	}
	return true
}

func (w *work) hopAnswer(resp *wire.Response, m *subjects.Msg) error {
	w.hopResult(resp, m)
	if w.req.Wire != wire.Native {
		resp.Wire, resp.Raw = w.req.Wire, m.Data
		return nil
	}
	var res subjects.Result
	if err := json.Unmarshal(m.Data, &res); err != nil {
		return subjects.Errorf(subjects.KindProvider, "the other node's answer is not a native result").WithCause(err)
	}
	resp.Text, resp.ToolCalls, resp.FinishReason = res.Content, res.ToolCalls, res.FinishReason
	return nil
}

func (w *work) hopEvent(resp *wire.Response, m *subjects.Msg) error {
	if w.hopResult(resp, m) {
		return nil
	}
	if w.req.Wire != wire.Native {
		return w.event(&wire.Event{Wire: w.req.Wire, Raw: m.Data})
	}
	var ev subjects.Event
	if err := json.Unmarshal(m.Data, &ev); err != nil {
		return subjects.Errorf(subjects.KindProvider, "the other node's event is not a native one").WithCause(err)
	}
	if ev.Type == subjects.EventResult {
		return nil // the encoder makes ours
	}
	return w.event(&wire.Event{Text: ev.Content, ToolCall: ev.ToolCall})
}

// hopHeader is the header in which a hop's answer says what is known of it.
func (w *work) hopHeader(resp *wire.Response) subjects.Header {
	tries := w.trail
	if len(tries) < 2 {
		tries = nil
	}
	b, err := json.Marshal(hopResult{
		Attempts: tries, Model: resp.Model, FinishReason: resp.FinishReason, Usage: resp.Usage, Known: resp.UsageKnown,
		OutputBytes: resp.OutputBytes, QueuedMs: ms(w.queued), Warnings: resp.Warnings,
	})
	if err != nil {
		return nil
	}
	return subjects.Header{subjects.HeaderHopResult: {string(b)}}
}
