package vendors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Sluice speaks Sluice's own native wire over HTTP, POST /api/complete, as the
// documentation of that route says (docs/http.md): for the provider that forwards
// to another Sluice. An Answer's Model "a/b" is the model b of the account a.
type Sluice struct{}

var _ interface {
	Voice
	Prober
} = Sluice{}

// Traits implements Voice.
func (Sluice) Traits() Traits {
	return Traits{
		CacheRead: true, CacheWrite: true, Reasoning: true, CallIDs: true,
		Finishes: []string{FinishStop, FinishLength, FinishCalls, FinishFilter},
		Header:   http.Header{"X-Llm-Call-Id": {"their-call"}, "X-Ratelimit-Remaining-Requests": {"499"}},
	}
}

// ContentType implements Voice.
func (Sluice) ContentType(stream bool) string {
	if stream {
		return "text/event-stream"
	}
	return "application/json"
}

// Probe implements Prober: the node's health.
func (Sluice) Probe(r *http.Request) ([]byte, bool) {
	return []byte(`{"status":"ok","canServe":true,"reasons":[],"mode":"public","uptimeSeconds":5,"inFlightRequests":0,"providers":{},"pools":{},"classes":{}}`),
		r.URL.Path == "/health"
}

func nativeCalls(calls []Call) []any {
	var all []any
	for _, c := range calls {
		if c.Arguments == "" {
			c.Arguments = "{}"
		}
		all = append(all, object{"id": c.ID, "name": c.Name, "arguments": c.Arguments})
	}
	return all
}

func (v Sluice) result(s *Seen, a *Answer) object {
	provider, model, _ := strings.Cut(a.ModelOf(s), "/")
	o := object{
		"callId": "their-call", "content": a.Text(), "finishReason": a.End(), "provider": provider, "model": model, "modelRaw": model,
		"tier": "standard", "class": "interactive", "process": "unknown", "subscription": "api-key", "costUsd": 0.25,
		"cached": false, "local": false, "mock": false, "latencyMs": 1.5, "queuedMs": 0, "overheadMs": 0.1,
		"attempts": []any{object{"provider": provider, "model": model, "outcome": "ok", "ms": 1}},
	}
	if len(a.Calls) > 0 {
		o["toolCalls"] = nativeCalls(a.Calls)
	}
	if u := a.Usage; !a.NoUsage {
		o["usage"] = object{
			"inputTokens": u.Fresh, "outputTokens": u.Output, "totalTokens": u.Fresh + u.Output, "cacheReadTokens": u.CacheRead,
			"cacheWriteTokens": u.CacheWrite, "reasoningTokens": u.Reasoning, "estimated": false,
		}
		o["tokens"] = object{"input": u.Fresh, "output": u.Output, "total": u.Fresh + u.Output}
	}
	return o
}

// Whole implements Voice.
func (v Sluice) Whole(s *Seen, a *Answer) []byte { return marshal(v.result(s, a)) }

// Events implements Voice.
func (v Sluice) Events(s *Seen, a *Answer) [][]byte {
	var all [][]byte
	for _, p := range a.Pieces {
		all = append(all, sse("", marshal(object{"type": "delta", "content": p})))
	}
	for _, c := range nativeCalls(a.Calls) {
		all = append(all, sse("", marshal(object{"type": "tool_call", "toolCall": c})))
	}
	last := v.result(s, a)
	last["type"] = "result"
	return append(all, sse("", marshal(last)), sse("", []byte("[DONE]")))
}

// The request, as the native wire has it; every other field is refused.
type nativeRequest struct {
	Messages []struct {
		Role      string
		Content   json.RawMessage
		Name      *string
		ToolCalls []struct {
			ID, Name  string
			Arguments *string
		}
		ToolCallID string
	}
	Tools []struct {
		Name, Description string
		Parameters        json.RawMessage
		Strict            *bool
	}
	ToolChoice        json.RawMessage
	Temperature, TopP *float64
	MaxTokens, Seed   *int64
	Stop              json.RawMessage
	ResponseFormat    *struct {
		Type, Name string
		Schema     json.RawMessage
		Strict     *bool
	}
	ReasoningEffort      string
	ParallelToolCalls    *bool
	Stream               bool
	Model, Tier, Task    string
	Process              string
	SkipCache, ForcePaid bool
}

// Hear implements Voice.
func (v Sluice) Hear(r *http.Request, body []byte) (*Seen, error) {
	switch {
	case r.Method != http.MethodPost || r.URL.Path != "/api/complete" || r.URL.RawQuery != "":
		return nil, fmt.Errorf("%s %s", r.Method, r.URL)
	case !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json"):
		return nil, fmt.Errorf("content type %q", r.Header.Get("Content-Type"))
	}
	secret, err := bearer(r, true)
	if err != nil {
		return nil, err
	}
	var in nativeRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return nil, err
	}
	s := &Seen{
		Secret: secret, Model: in.Model, Stream: in.Stream, StreamUsage: true, Temperature: in.Temperature, TopP: in.TopP,
		MaxTokens: in.MaxTokens, Seed: in.Seed, Effort: in.ReasoningEffort, Parallel: in.ParallelToolCalls,
	}
	for _, step := range []func(*Seen) error{in.tools, in.format, in.turns} {
		if err := step(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (in *nativeRequest) tools(s *Seen) error {
	for _, t := range in.Tools {
		if t.Name == "" {
			return errors.New("tools: one without a name")
		}
		s.Tools = append(s.Tools, Tool{Name: t.Name, Description: t.Description, Schema: t.Parameters})
	}
	if isNull(in.ToolChoice) {
		return nil
	}
	var named struct{ Name string }
	if json.Unmarshal(in.ToolChoice, &s.ToolChoice) == nil {
		if !slices.Contains([]string{"auto", "none", "required"}, s.ToolChoice) {
			return fmt.Errorf("toolChoice: %q", s.ToolChoice)
		}
		return nil
	}
	if err := json.Unmarshal(in.ToolChoice, &named); err != nil || named.Name == "" {
		return fmt.Errorf("toolChoice: %s", in.ToolChoice)
	}
	s.ToolChoice = "name:" + named.Name
	return nil
}

func (in *nativeRequest) format(s *Seen) error {
	if !isNull(in.Stop) {
		var one string
		if json.Unmarshal(in.Stop, &one) == nil {
			s.Stop = []string{one}
		} else if err := json.Unmarshal(in.Stop, &s.Stop); err != nil {
			return err
		}
	}
	f := in.ResponseFormat
	if f == nil {
		return nil
	}
	if s.Format, s.Schema = f.Type, f.Schema; !slices.Contains([]string{"text", "json_object", "json_schema"}, f.Type) {
		return fmt.Errorf("responseFormat.type: %q", f.Type)
	}
	return nil
}

func (in *nativeRequest) turns(s *Seen) error {
	var system []string
	for i, m := range in.Messages {
		turn := Turn{Role: m.Role, ResultOf: m.ToolCallID}
		if !slices.Contains([]string{"system", "user", "assistant", "tool"}, m.Role) {
			return fmt.Errorf("messages[%d].role: %q", i, m.Role)
		}
		for _, c := range m.ToolCalls {
			if c.ID == "" || c.Name == "" || c.Arguments == nil {
				return fmt.Errorf("messages[%d].toolCalls: %+v", i, c)
			}
			turn.Calls = append(turn.Calls, Call{ID: c.ID, Name: c.Name, Arguments: *c.Arguments})
		}
		if err := nativeContent(m.Content, &turn); err != nil {
			return fmt.Errorf("messages[%d].content: %w", i, err)
		}
		if m.Role == "system" {
			system = append(system, turn.Text)
			continue
		}
		s.Messages = append(s.Messages, turn)
	}
	if len(in.Messages) == 0 {
		return errors.New("messages: missing")
	}
	s.System = strings.Join(system, "\n\n")
	return nil
}

func nativeContent(content json.RawMessage, turn *Turn) error {
	if isNull(content) || json.Unmarshal(content, &turn.Text) == nil {
		return nil
	}
	var parts []struct{ Type, Text, ImageURL, Detail string }
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&parts); err != nil {
		return err
	}
	var texts []string
	for _, p := range parts {
		switch p.Type {
		case "text":
			texts = append(texts, p.Text)
		case "image":
			img, err := imageOf(p.ImageURL)
			if err != nil {
				return err
			}
			turn.Images = append(turn.Images, img)
		default:
			return fmt.Errorf("type: %q", p.Type)
		}
	}
	turn.Text = strings.Join(texts, "\n")
	return nil
}

// sluiceFaults are the contract's errors (§8): another Sluice has classified them.
// Forbidden is about an account of the other side's.
var sluiceFaults = map[Fault]object{
	Unauthorized:  {"kind": "AUTH_ERROR", "message": "the token " + KeyMark + " is not the one of this node", "status": 401},
	Forbidden:     {"kind": "AUTH_ERROR", "message": "the key from GROQ_API_KEY was refused", "provider": "groq", "status": 401},
	RateLimited:   {"kind": "RATE_LIMITED", "message": "going too fast", "provider": "groq", "retryAfterMs": 2000, "status": 429},
	Quota:         {"kind": "QUOTA_EXHAUSTED", "message": "no quota is left", "provider": "groq", "status": 429},
	ContextLength: {"kind": "VALIDATION_ERROR", "message": "the prompt is too long", "provider": "groq", "code": "context_length_exceeded", "param": "messages", "status": 400},
	Policy:        {"kind": "CONTENT_POLICY", "message": "not allowed", "provider": "groq", "status": 400},
	Overloaded:    {"kind": "PROVIDER_ERROR", "message": "overloaded", "provider": "groq", "status": 502},
	ServerError:   {"kind": "PROVIDER_ERROR", "message": "unexpected failure inside Sluice; the log has it under the call id", "status": 502},
	BadRequest:    {"kind": "VALIDATION_ERROR", "message": "temperature: must be a number", "status": 400},
	TooLarge:      {"kind": "VALIDATION_ERROR", "message": "the body is above 8 MiB", "code": "request_too_large", "status": 413},
	Timeout:       {"kind": "TIMEOUT", "message": "the deadline passed", "status": 504},
}

// Fault implements Voice.
func (Sluice) Fault(s *Seen, f Fault) (status int, header http.Header, body []byte, ok bool) {
	e := sluiceFaults[f]
	if f == NoModel {
		e = object{"kind": "PROVIDER_UNAVAILABLE", "message": "the model \"" + s.Model + "\" is not there", "status": http.StatusNotFound}
	}
	if e == nil {
		return 0, nil, nil, false
	}
	if f == RateLimited {
		header = http.Header{"Retry-After": {"2"}, "Retry-After-Ms": {"2000"}, "Content-Type": {"application/json"}}
	}
	return e["status"].(int), header, marshal(object{"error": e}), true
}

// InStream implements Voice.
func (Sluice) InStream(f Fault) []byte {
	if e := sluiceFaults[f]; e != nil {
		return sse("", marshal(object{"error": e}))
	}
	return nil
}
