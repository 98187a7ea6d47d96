package judge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/registry"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

const key = "sk-ant-api03-judge"

// anthropicRoom is one fake, the SDK and the provider that both ask it.
type anthropicRoom struct {
	*vendors.Server

	sdk sdk.Client
	p   providers.Provider
}

func newAnthropicRoom(t *testing.T) *anthropicRoom {
	t.Helper()
	s := vendors.New(t, vendors.Anthropic{Base: "/v1"})
	cfg := &config.Config{Providers: map[string]*config.Provider{"anthropic": {
		ID: "anthropic", BaseURL: s.URL + "/v1", APIKeyEnv: "ANTHROPIC_API_KEY", APIKey: config.NewSecret(key),
	}}}
	all := registry.New(cfg, registry.Options{})
	t.Cleanup(func() { registry.Close(all) })
	return &anthropicRoom{
		Server: s, p: all["anthropic"],
		sdk: sdk.NewClient(option.WithoutEnvironmentDefaults(), option.WithBaseURL(s.URL), option.WithAPIKey(key), option.WithMaxRetries(0)),
	}
}

const claude = "claude-haiku-4-5"

func ask(t *testing.T, name wire.Name, body string) *providers.Job {
	t.Helper()
	r, err := wire.Parse(name, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return &providers.Job{Request: r, Model: claude}
}

// read is what one reader took from an answer.
type read struct {
	Text, Finish, Model string
	Calls               []subjects.ToolCall
	Usage               subjects.Usage
}

// bySDK is what the SDK's message says, in our words.
func bySDK(t *testing.T, m *sdk.Message) read {
	t.Helper()
	r := read{Model: m.Model, Finish: map[sdk.StopReason]string{
		sdk.StopReasonEndTurn: "stop", sdk.StopReasonStopSequence: "stop", sdk.StopReasonMaxTokens: "length",
		sdk.StopReasonToolUse: "tool_calls", sdk.StopReasonRefusal: "content_filter",
	}[m.StopReason]}
	for _, b := range m.Content {
		switch b := b.AsAny().(type) {
		case sdk.TextBlock:
			r.Text += b.Text
		case sdk.ToolUseBlock:
			var input bytes.Buffer
			if err := json.Compact(&input, b.Input); err != nil {
				t.Fatal(err)
			}
			r.Calls = append(r.Calls, subjects.ToolCall{ID: b.ID, Name: b.Name, Arguments: input.String()})
		}
	}
	u := m.Usage
	r.Usage = subjects.Usage{
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, TotalTokens: u.InputTokens + u.OutputTokens,
		CacheReadTokens: u.CacheReadInputTokens, CacheWriteTokens: u.CacheCreationInputTokens, ReasoningTokens: u.OutputTokensDetails.ThinkingTokens,
	}
	return r
}

func (r *anthropicRoom) whole(t *testing.T) (theirs, ours read) {
	t.Helper()
	m, err := r.sdk.Messages.New(t.Context(), sdk.MessageNewParams{Model: claude, MaxTokens: 100, Messages: []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock("hi"))}})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := r.p.Complete(t.Context(), ask(t, wire.Native, `{"messages":[{"role":"user","content":"hi"}]}`))
	if err == nil {
		err = wire.Decode(resp)
	}
	if err != nil || !resp.UsageKnown {
		t.Fatal(resp, err)
	}
	return bySDK(t, m), read{resp.Text, resp.FinishReason, resp.Model, resp.ToolCalls, resp.Usage}
}

func (r *anthropicRoom) streamed(t *testing.T) (theirs, ours read) {
	t.Helper()
	s := r.sdk.Messages.NewStreaming(t.Context(), sdk.MessageNewParams{Model: claude, MaxTokens: 100, Messages: []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock("hi"))}})
	var m sdk.Message
	for s.Next() {
		if err := m.Accumulate(s.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	resp, err := r.p.Stream(t.Context(), ask(t, wire.Native, `{"stream":true,"messages":[{"role":"user","content":"hi"}]}`), func(ev *wire.Event) error {
		ours.Text += ev.Text
		if ev.ToolCall != nil {
			ours.Calls = append(ours.Calls, *ev.ToolCall)
		}
		return nil
	})
	if err != nil || !resp.UsageKnown {
		t.Fatal(resp, err)
	}
	ours.Finish, ours.Model, ours.Usage = resp.FinishReason, resp.Model, resp.Usage
	return bySDK(t, &m), ours
}

// The SDK and the provider take the same from an answer.
func TestAnthropicAnswers(t *testing.T) {
	t.Parallel()
	r := newAnthropicRoom(t)
	spent := vendors.Usage{Fresh: 30, CacheRead: 60, CacheWrite: 10, Output: 200, Reasoning: 150}
	for name, a := range map[string]*vendors.Answer{
		"text":     {Pieces: []string{"Hel", "lo, \"wörld\" \\ ✓\n", "\u2028 end"}, Usage: spent},
		"thoughts": {Reasoning: "Let me see.", Pieces: []string{"42"}, Usage: spent},
		"calls": {Pieces: []string{"I look."}, Calls: []vendors.Call{
			{ID: "toolu_01A", Name: "get_weather", Arguments: `{"city":"Zürich \"old town\"","days":[1,2.5,null]}`}, {ID: "toolu_01B", Name: "now"},
		}, Usage: spent},
		"no text":   {Calls: []vendors.Call{{ID: "toolu_01A", Name: "now", Arguments: `{}`}}, Usage: spent},
		"cut":       {Pieces: []string{"Once upon"}, Finish: vendors.FinishLength, Usage: spent},
		"refused":   {Finish: vendors.FinishFilter, Usage: spent},
		"uncached":  {Pieces: []string{"x"}, Usage: vendors.Usage{Fresh: 1, Output: 1}},
		"of a name": {Pieces: []string{"x"}, Model: "claude-haiku-4-5-20251001", Usage: spent},
	} {
		r.Next(vendors.Script{Answer: a}, vendors.Script{Answer: a})
		theirs, ours := r.whole(t)
		if !reflect.DeepEqual(theirs, ours) || ours.Text != a.Text() {
			t.Errorf("%s, whole:\n the SDK %+v\nprovider %+v", name, theirs, ours)
		}
		r.Next(vendors.Script{Answer: a}, vendors.Script{Answer: a})
		theirs, ours = r.streamed(t)
		if !reflect.DeepEqual(theirs, ours) || ours.Text != a.Text() {
			t.Errorf("%s, streamed:\n the SDK %+v\nprovider %+v", name, theirs, ours)
		}
	}
}

// What the SDK takes for an error is one for the provider, whole and in a stream.
func TestAnthropicFaults(t *testing.T) {
	t.Parallel()
	r := newAnthropicRoom(t)
	for _, f := range []vendors.Fault{vendors.RateLimited, vendors.Quota, vendors.Overloaded, vendors.ServerError, vendors.Policy, vendors.Timeout} {
		r.Next(vendors.Script{Fault: f}, vendors.Script{Fault: f})
		_, theirs := r.sdk.Messages.New(t.Context(), sdk.MessageNewParams{Model: claude, MaxTokens: 1, Messages: []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock("hi"))}})
		_, ours := r.p.Complete(t.Context(), ask(t, wire.Native, `{"messages":[{"role":"user","content":"hi"}]}`))
		var e *sdk.Error
		if !errors.As(theirs, &e) || e.RequestID == "" || e.Type() == "" || ours == nil {
			t.Errorf("%s: %v, %v", f, theirs, ours)
		}
		broken := vendors.Script{Fault: f, Break: vendors.BreakError, After: 4}
		r.Next(broken, broken)
		s := r.sdk.Messages.NewStreaming(t.Context(), sdk.MessageNewParams{Model: claude, MaxTokens: 1, Messages: []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock("hi"))}})
		for s.Next() { //nolint:revive // to its end
		}
		_, inStream := r.p.Stream(t.Context(), ask(t, wire.Native, `{"stream":true,"messages":[{"role":"user","content":"hi"}]}`), func(*wire.Event) error { return nil })
		if s.Err() == nil || subjects.KindOf(inStream) != subjects.KindOf(ours) {
			t.Errorf("%s in a stream: %v, %v; whole %v", f, s.Err(), inStream, ours)
		}
	}
}

// requests are bodies that together have everything that a caller can ask of
// this provider.
var requests = []struct {
	wire  wire.Name
	model string
	body  string
}{
	{wire.Native, claude, `{"messages":[{"role":"user","content":"hi"}]}`},
	{wire.Native, claude, `{"messages":[{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"user","content":"hi \"there\" \\ \n ✓"}],"temperature":0.25,"maxTokens":7,"stop":["END","4,"],"stream":true}`},
	{wire.Native, claude, `{"messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","imageUrl":"data:image/png;base64,iVBORw0KGgo="},{"type":"image","imageUrl":"https://example.com/a.png"}]}],"topP":0.5}`},
	{wire.Native, "claude-opus-5", `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"w?"},{"role":"system","content":"be brief"},{"role":"assistant","content":"I look.","toolCalls":[{"id":"a","name":"get","arguments":"{\"city\":\"x\",\"n\":1.50,\"deep\":{\"a\":[null,true]}}"},{"id":"b","name":"now","arguments":""}]},{"role":"tool","toolCallId":"a","content":"42"},{"role":"tool","toolCallId":"b","content":""},{"role":"user","content":"and?"}],
	 "tools":[{"name":"get","description":"d","parameters":{"type":"object","properties":{"city":{"type":"string","enum":["x"]}},"required":["city"],"additionalProperties":false,"$defs":{"y":{"type":"integer"}}},"strict":true},{"name":"now"}],"toolChoice":{"name":"get"},"parallelToolCalls":false,"reasoningEffort":"max"}`},
	{wire.Native, claude, `{"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f"}],"toolChoice":"none"}`},
	{wire.Native, claude, `{"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","parameters":{"properties":{"a":{}}}}],"toolChoice":"required"}`},
	{wire.Native, "claude-sonnet-4-6", `{"messages":[{"role":"user","content":"hi"}],"reasoningEffort":"low","responseFormat":{"type":"json_schema","name":"n","schema":{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["a"],"additionalProperties":false}}}`},
	{wire.OpenAIChat, claude, `{"model":"auto","user":"jo","messages":[{"role":"developer","content":"d"},{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"c:1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c:1","content":[{"type":"text","text":"r"}]}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto"}`},
}

// A request, decoded into the SDK's types and encoded again, is the same one: the
// SDK drops what it does not know.
func TestAnthropicRequests(t *testing.T) {
	t.Parallel()
	r := newAnthropicRoom(t)
	seen := map[string]bool{}
	for _, q := range requests {
		j := ask(t, q.wire, q.body)
		j.Model = q.model
		var err error
		if j.Request.Head.Stream {
			_, err = r.p.Stream(t.Context(), j, func(*wire.Event) error { return nil })
		} else {
			_, err = r.p.Complete(context.Background(), j)
		}
		if err != nil {
			t.Fatal(err)
		}
		body := (<-r.Heard()).Body
		var params sdk.MessageNewParams
		if err := json.Unmarshal(body, &params); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(params)
		if err != nil {
			t.Fatal(err)
		}
		sent, back := object(t, body), object(t, again)
		for k := range sent {
			seen[k] = true
		}
		delete(sent, "stream") // an argument of the SDK's methods, not a parameter
		if !reflect.DeepEqual(sent, back) {
			t.Errorf("\nsent %s\nback %s", body, again)
		}
	}
	for _, k := range strings.Fields("model max_tokens messages system stream temperature top_p stop_sequences tools tool_choice output_config metadata") {
		if !seen[k] {
			t.Errorf("no request has %s", k)
		}
	}
}

func object(t *testing.T, b []byte) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	return o
}
