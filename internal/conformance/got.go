package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// got is what a caller got.
type got struct {
	text   string
	calls  []vendors.Call
	finish string
	// usage is what the caller's own wire says; resp the provider's report.
	usage subjects.Usage
	resp  *wire.Response
	err   error
	// events counts the provider's events, opened its reports before them.
	events, opened int
}

const callID = "call-conformance"

// call makes one call. onEvent, when set, is told after each event of a stream;
// its error ends the stream.
func (r *room) call(ctx context.Context, f form, body []byte, onEvent func(n int) error) *got {
	r.t.Helper()
	req, err := wire.Parse(f.wire, body)
	if err != nil {
		r.t.Fatalf("the suite's own request: %v\n%.400s", err, body)
	}
	g := &got{}
	job := &providers.Job{Request: req, Model: r.c.Model, Opened: func(*wire.Response) { g.opened++ }}
	if f.stream {
		r.stream(ctx, f, job, g, onEvent)
	} else {
		r.whole(ctx, f, job, g)
	}
	var e *subjects.Error
	if g.err != nil && f.stream && onEvent != nil && !errors.As(g.err, &e) {
		return g // the suite's own, out of onEvent
	}
	if g.err != nil && !errors.As(g.err, &e) {
		r.t.Errorf("%s: an error without a kind: %v", f, g.err)
	}
	return g
}

// ask makes one call that must succeed.
func (r *room) ask(f form, s *vendors.Seen) *got {
	r.t.Helper()
	g := r.call(r.t.Context(), f, f.body(s, nil), nil)
	if g.err != nil {
		r.t.Fatalf("%s: %v", f, g.err)
	}
	return g
}

// heard is the last request that the fake got.
func (r *room) heard() *vendors.Seen {
	r.t.Helper()
	calls := r.Calls()
	if len(calls) == 0 {
		r.t.Fatal("no request came")
	}
	return calls[len(calls)-1]
}

func (r *room) result(g *got) *subjects.Result {
	return &subjects.Result{CallID: callID, Provider: r.c.ID, Model: r.c.Model, ModelRaw: g.resp.Model, Usage: g.resp.Usage}
}

func (r *room) whole(ctx context.Context, f form, job *providers.Job, g *got) {
	r.t.Helper()
	if g.resp, g.err = r.p.Complete(ctx, job); g.err != nil {
		return
	}
	res := r.result(g)
	out, err := wire.EncodeResponse(f.wire, g.resp, res)
	if err != nil {
		g.err = err
		return
	}
	if f.wire == wire.Native {
		g.nativeWhole(r.t, out)
	} else {
		g.chatWhole(r.t, out)
	}
}

func (r *room) stream(ctx context.Context, f form, job *providers.Job, g *got, onEvent func(int) error) {
	r.t.Helper()
	enc := wire.NewStreamEncoder(f.wire, &job.Request.Head, callID, r.c.Model)
	var out [][]byte
	emit := func(b []byte) error {
		out = append(out, slices.Clone(b))
		return nil
	}
	said := false // there was an event with something in it
	g.resp, g.err = r.p.Stream(ctx, job, func(ev *wire.Event) error {
		if g.events++; g.opened != 1 {
			r.t.Errorf("%s: Opened was told %d times before event %d, want once", f, g.opened, g.events)
		}
		if err := enc.Event(ev, emit); err != nil {
			return err
		}
		if said = said || !ev.Empty; said && onEvent != nil {
			return onEvent(g.events)
		}
		return nil
	})
	if g.err == nil {
		g.err = enc.Finish(g.resp, r.result(g), emit)
	}
	if f.wire == wire.Native {
		g.nativeStream(r.t, out)
	} else {
		g.chatStream(r.t, out)
	}
}

func (g *got) nativeWhole(t *testing.T, out []byte) {
	t.Helper()
	var res subjects.Result
	if err := json.Unmarshal(out, &res); err != nil {
		t.Fatalf("the native answer: %v\n%.400s", err, out)
	}
	g.text, g.finish, g.usage = res.Content, res.FinishReason, res.Usage
	g.calls = callsOf(res.ToolCalls)
}

func callsOf(in []subjects.ToolCall) []vendors.Call {
	var out []vendors.Call
	for _, c := range in {
		out = append(out, vendors.Call{ID: c.ID, Name: c.Name, Arguments: c.Arguments})
	}
	return out
}

// nativeStream reads deltas and tool calls, and holds the result against them.
func (g *got) nativeStream(t *testing.T, out [][]byte) {
	t.Helper()
	for i, b := range out {
		var ev subjects.Event
		if err := json.Unmarshal(b, &ev); err != nil {
			t.Fatalf("native event %d: %v\n%.400s", i, err, b)
		}
		switch ev.Type {
		case subjects.EventDelta:
			g.text += ev.Content
		case subjects.EventToolCall:
			g.calls = append(g.calls, callsOf([]subjects.ToolCall{*ev.ToolCall})...)
		case subjects.EventResult:
			if i != len(out)-1 {
				t.Errorf("the result is event %d of %d", i+1, len(out))
			}
			if ev.Result.Content != g.text || fmt.Sprint(callsOf(ev.Result.ToolCalls)) != fmt.Sprint(g.calls) {
				t.Errorf("the result is not the sum of its events: %+v", ev.Result)
			}
			g.finish, g.usage = ev.Result.FinishReason, ev.Result.Usage
		}
	}
	if g.err == nil && g.finish == "" {
		t.Error("the stream has no result")
	}
}

// chatAnswer is an answer or a chunk of openai-chat, as that API's users read it:
// the choice of index 0, and nothing beside.
type chatAnswer struct {
	Choices []struct {
		Index        *int        `json:"index"`
		Message      chatMessage `json:"message"`
		Delta        chatMessage `json:"delta"`
		FinishReason *string     `json:"finish_reason"`
	} `json:"choices"`
	Usage *chatUsage `json:"usage"`
}

type chatMessage struct {
	Content   *string `json:"content"`
	ToolCalls []struct {
		Index    *int   `json:"index"`
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

type chatUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
	PromptIn   struct {
		Read  int64 `json:"cached_tokens"`
		Write int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionIn struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// contract is the usage by the contract's convention.
func (u *chatUsage) contract() subjects.Usage {
	fresh := u.Prompt - u.PromptIn.Read - u.PromptIn.Write
	return subjects.Usage{
		InputTokens: fresh, OutputTokens: u.Completion, TotalTokens: fresh + u.Completion,
		CacheReadTokens: u.PromptIn.Read, CacheWriteTokens: u.PromptIn.Write, ReasoningTokens: u.CompletionIn.Reasoning,
	}
}

func (g *got) chatWhole(t *testing.T, out []byte) {
	t.Helper()
	var a chatAnswer
	if err := json.Unmarshal(out, &a); err != nil || len(a.Choices) == 0 {
		t.Fatalf("the openai-chat answer: %v\n%.400s", err, out)
	}
	m := a.Choices[0].Message
	if m.Content != nil {
		g.text = *m.Content
	}
	for _, c := range m.ToolCalls {
		g.calls = append(g.calls, vendors.Call{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
	}
	if a.Choices[0].FinishReason != nil {
		g.finish = *a.Choices[0].FinishReason
	}
	if a.Usage != nil {
		g.usage = a.Usage.contract()
	}
}

// chatStream joins the chunks. Calls are told apart by their index alone.
func (g *got) chatStream(t *testing.T, out [][]byte) {
	t.Helper()
	usages := 0
	for i, b := range out {
		var a chatAnswer
		if err := json.Unmarshal(b, &a); err != nil {
			t.Fatalf("openai-chat chunk %d: %v\n%.400s", i, err, b)
		}
		if a.Usage != nil {
			usages++
			g.usage = a.Usage.contract()
		}
		for _, c := range a.Choices {
			if c.Index != nil && *c.Index != 0 {
				continue
			}
			g.delta(t, &c.Delta)
			if c.FinishReason != nil {
				g.finish = *c.FinishReason
			}
		}
	}
	if g.err == nil && (usages == 0 || g.finish == "") {
		t.Errorf("the openai-chat stream has %d usages (asked for) and the finish reason %q", usages, g.finish)
	}
}

func (g *got) delta(t *testing.T, d *chatMessage) {
	t.Helper()
	if d.Content != nil {
		g.text += *d.Content
	}
	for _, c := range d.ToolCalls {
		if c.Index == nil || *c.Index > len(g.calls) {
			t.Errorf("a tool call without its index in the stream: %+v", c)
			return
		}
		if *c.Index == len(g.calls) {
			g.calls = append(g.calls, vendors.Call{ID: c.ID, Name: c.Function.Name})
		}
		g.calls[*c.Index].Arguments += c.Function.Arguments
	}
}
