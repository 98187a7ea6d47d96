package vendors

import (
	"encoding/json"
	"net/http"
)

// Anthropic speaks the Messages form of api.anthropic.com, version 2023-06-01. The
// answers are those of the vendor's Go SDK (its types say which members are always
// there) and of its pages on streaming and on errors; the stream's order, the ping
// and the empty first input_json_delta are as recorded.
type Anthropic struct {
	// Base is the path before /messages, such as "/v1".
	Base string
	// OAuth wants a subscription's token (Authorization: Bearer and the beta that
	// goes with it) instead of a key.
	OAuth bool
}

var _ interface {
	Voice
	Prober
} = Anthropic{}

// OAuthBeta is the beta that a subscription's token needs.
const OAuthBeta = "oauth-2025-04-20"

// Traits implements Voice.
func (v Anthropic) Traits() Traits {
	t := Traits{
		CacheRead: true, CacheWrite: true, Reasoning: true, CallIDs: true,
		Finishes: []string{FinishStop, FinishLength, FinishCalls, FinishFilter},
		Header: http.Header{
			"Request-Id":                             {"req_011fake"},
			"Anthropic-Organization-Id":              {"00000000-0000-4000-8000-000000000000"},
			"Anthropic-Ratelimit-Requests-Limit":     {"50"},
			"Anthropic-Ratelimit-Requests-Remaining": {"49"},
			"Anthropic-Ratelimit-Requests-Reset":     {"2031-01-01T00:00:00Z"},
		},
	}
	if v.OAuth {
		t.Header = http.Header{
			"Request-Id":                                       {"req_011fake"},
			"Anthropic-Ratelimit-Unified-Status":               {"allowed"},
			"Anthropic-Ratelimit-Unified-Reset":                {"1924992000"},
			"Anthropic-Ratelimit-Unified-5h-Utilization":       {"0.12"},
			"Anthropic-Ratelimit-Unified-Representative-Claim": {"five_hour"},
		}
	}
	return t
}

// ContentType implements Voice.
func (v Anthropic) ContentType(stream bool) string {
	if stream {
		return "text/event-stream; charset=utf-8"
	}
	return "application/json"
}

// Probe implements Prober: the list of models.
func (v Anthropic) Probe(r *http.Request) ([]byte, bool) {
	return []byte(`{"data":[{"type":"model","id":"m","display_name":"M","created_at":"2026-01-01T00:00:00Z"}],"has_more":false,"first_id":"m","last_id":"m"}`),
		r.URL.EscapedPath() == v.Base+"/models"
}

// stopReasons are the API's words for the finish reasons.
var stopReasons = map[string]string{
	FinishStop: "end_turn", FinishLength: "max_tokens", FinishCalls: "tool_use", FinishFilter: "refusal",
}

func (v Anthropic) message(s *Seen, a *Answer, content []any, usage any) object {
	o := object{
		"id": "msg_01fake", "type": "message", "role": "assistant", "model": a.ModelOf(s), "content": content,
		"stop_reason": nil, "stop_sequence": nil, "stop_details": nil, "container": nil,
	}
	if usage != nil {
		o["usage"] = usage
	}
	return o
}

// usage has the fresh tokens, with the cache's traffic beside them. output is
// what has been written by then.
func (v Anthropic) usage(a *Answer, output int64) any {
	if a.NoUsage {
		return nil
	}
	u := a.Usage
	return object{
		"input_tokens": u.Fresh, "cache_read_input_tokens": u.CacheRead, "cache_creation_input_tokens": u.CacheWrite,
		"cache_creation": object{"ephemeral_5m_input_tokens": u.CacheWrite, "ephemeral_1h_input_tokens": 0},
		"output_tokens":  output, "output_tokens_details": object{"thinking_tokens": min(u.Reasoning, output)},
		"server_tool_use": nil, "service_tier": "standard", "inference_geo": "global",
	}
}

func (v Anthropic) stop(a *Answer) object {
	o := object{"stop_reason": stopReasons[a.End()], "stop_sequence": nil, "stop_details": nil}
	if a.End() == FinishFilter {
		o["stop_details"] = object{"type": "refusal", "category": nil, "explanation": nil}
	}
	return o
}

// Whole implements Voice.
func (v Anthropic) Whole(s *Seen, a *Answer) []byte {
	content := []any{}
	if a.Reasoning != "" {
		content = append(content, object{"type": "thinking", "thinking": a.Reasoning, "signature": "c2lnbmF0dXJl"})
	}
	if text := a.Text(); text != "" {
		content = append(content, object{"type": "text", "text": text, "citations": nil})
	}
	for _, c := range a.Calls {
		args := json.RawMessage(c.Arguments)
		if c.Arguments == "" {
			args = json.RawMessage("{}")
		}
		content = append(content, object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": args, "caller": object{"type": "direct"}})
	}
	o := v.message(s, a, content, v.usage(a, a.Usage.Output))
	for k, val := range v.stop(a) {
		o[k] = val
	}
	return marshal(o)
}

// anEvents collects the events of one stream.
type anEvents struct {
	all [][]byte
	n   int // blocks so far
}

func (e *anEvents) add(kind string, o object) {
	o["type"] = kind
	e.all = append(e.all, sse(kind, marshal(o)))
}

// block writes one block: as it opens, and what is added to it.
func (e *anEvents) block(open object, deltas ...object) {
	e.add("content_block_start", object{"index": e.n, "content_block": open})
	for _, d := range deltas {
		e.add("content_block_delta", object{"index": e.n, "delta": d})
	}
	e.add("content_block_stop", object{"index": e.n})
	e.n++
}

// Events implements Voice.
func (v Anthropic) Events(s *Seen, a *Answer) [][]byte {
	e := &anEvents{}
	e.add("message_start", object{"message": v.message(s, a, []any{}, v.usage(a, min(a.Usage.Output, 1)))})
	e.add("ping", object{})
	if a.Reasoning != "" {
		e.block(object{"type": "thinking", "thinking": "", "signature": ""},
			object{"type": "thinking_delta", "thinking": a.Reasoning, "estimated_tokens": nil},
			object{"type": "signature_delta", "signature": "c2lnbmF0dXJl"})
	}
	var texts []object
	for _, p := range a.Pieces {
		texts = append(texts, object{"type": "text_delta", "text": p})
	}
	if texts != nil {
		e.block(object{"type": "text", "text": "", "citations": nil}, texts...)
	}
	for _, c := range a.Calls {
		parts := []object{{"type": "input_json_delta", "partial_json": ""}}
		for _, half := range halves(c.Arguments) {
			parts = append(parts, object{"type": "input_json_delta", "partial_json": half})
		}
		e.block(object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{}, "caller": object{"type": "direct"}}, parts...)
	}
	last := object{"delta": v.stop(a)}
	if u, ok := v.usage(a, a.Usage.Output).(object); ok {
		// The input's counts may be said again, or be null.
		last["usage"] = object{
			"output_tokens": u["output_tokens"], "output_tokens_details": u["output_tokens_details"],
			"input_tokens": u["input_tokens"], "cache_read_input_tokens": nil, "cache_creation_input_tokens": nil, "server_tool_use": nil,
		}
	}
	e.add("message_delta", last)
	e.add("message_stop", object{})
	return e.all
}
