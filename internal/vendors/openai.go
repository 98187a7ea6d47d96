package vendors

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Host is one of the servers of OpenAI's chat-completions form; each has its own
// ways with it.
type Host int

// The hosts, and what each does beside the form.
const (
	// HostOpenAI is api.openai.com: what its OpenAPI document and SDKs say.
	HostOpenAI Host = iota
	// HostCopilot is api.githubcopilot.com. Its answers say no "object"; a whole
	// answer with text and tool calls has two choices (one for each); a stream
	// begins with a chunk that has no choices and gives the usage, asked for or
	// not, in the chunk with the finish reason; its thoughts are reasoning_text;
	// its Claude models call a tool without arguments with no text at all. Errors
	// of the account are plain text.
	HostCopilot
	// HostGroq is api.groq.com/openai/v1. Tool calls come whole, in one chunk; the
	// last chunk has x_groq.usage; thoughts are "reasoning". It refuses logprobs,
	// logit_bias, several choices and the name of a message.
	HostGroq
	// HostGitHubModels is models.github.ai/inference, which Azure serves: chunks
	// with filter results and no choices or no delta before and after the answer.
	HostGitHubModels
	// HostLlama is llama.cpp's server, as Docker Model Runner has it: timings,
	// reasoning_content, no key, the runner's own errors as plain text.
	HostLlama
)

// OpenAI speaks the chat-completions form.
type OpenAI struct {
	Host Host
	// Base is the path before /chat/completions, such as "/v1".
	Base string
	// KeyOptional lets requests without a key through.
	KeyOptional bool
}

var _ interface {
	Voice
	Prober
} = OpenAI{}

// Traits implements Voice.
func (v OpenAI) Traits() Traits {
	t := Traits{
		CacheRead: true, CacheWrite: v.Host == HostOpenAI, Reasoning: v.Host != HostLlama, CallIDs: true,
		Finishes: []string{FinishStop, FinishLength, FinishCalls, FinishFilter},
		Header: http.Header{
			"X-Request-Id":                   {"req_011fake"},
			"X-Ratelimit-Remaining-Requests": {"499"},
			"X-Ratelimit-Reset-Requests":     {"120ms"},
		},
	}
	if v.Host == HostLlama {
		t.Header = nil
		t.Finishes = t.Finishes[:3]
	}
	return t
}

// ContentType implements Voice.
func (v OpenAI) ContentType(stream bool) string {
	switch {
	case stream && v.Host == HostOpenAI:
		return "text/event-stream; charset=utf-8"
	case stream:
		return "text/event-stream"
	}
	return "application/json"
}

// Probe implements Prober: the list of models.
func (v OpenAI) Probe(r *http.Request) ([]byte, bool) {
	return []byte(`{"object":"list","data":[{"id":"m","object":"model","created":1700000000,"owned_by":"fake"}]}`),
		r.URL.EscapedPath() == v.Base+"/models"
}

type object = map[string]any

// id is the same in all chunks of an answer.
const completionID = "chatcmpl-fake0001"

// head has the members that every answer and every chunk has.
func (v OpenAI) head(s *Seen, a *Answer, kind string) object {
	o := object{"id": completionID, "created": 1700000000, "model": a.ModelOf(s), "system_fingerprint": "fp_fake"}
	if v.Host != HostCopilot {
		o["object"] = kind
	}
	if v.Host == HostOpenAI {
		o["service_tier"] = "default"
	}
	return o
}

// Whole implements Voice.
func (v OpenAI) Whole(s *Seen, a *Answer) []byte {
	o := v.head(s, a, "chat.completion")
	m := object{"role": "assistant", "content": a.Text(), "refusal": nil, "annotations": []any{}}
	if a.Reasoning != "" && v.thoughts() != "" {
		m[v.thoughts()] = a.Reasoning
	}
	choices := []any{object{"index": 0, "message": m, "logprobs": nil, "finish_reason": a.End()}}
	switch {
	case len(a.Calls) == 0:
	case v.Host == HostCopilot && a.Text() != "":
		choices = append(choices, object{
			"index": 1, "finish_reason": a.End(),
			"message": object{"role": "assistant", "content": nil, "tool_calls": v.calls(a.Calls)},
		})
	default:
		m["tool_calls"] = v.calls(a.Calls)
		if a.Text() == "" {
			m["content"] = nil
		}
	}
	o["choices"] = choices
	if !a.NoUsage {
		o["usage"] = v.usage(a.Usage)
	}
	switch v.Host {
	case HostGroq:
		o["x_groq"] = object{"id": "req_01fake"}
	case HostGitHubModels:
		o["prompt_filter_results"] = filterResults()
	case HostLlama:
		o["timings"] = object{"cache_n": a.Usage.CacheRead, "prompt_n": a.Usage.Fresh, "predicted_n": a.Usage.Output}
	case HostOpenAI, HostCopilot:
	}
	return marshal(o)
}

// thoughts is where the host puts what the model thinks aloud; "" = nowhere.
func (v OpenAI) thoughts() string {
	return map[Host]string{HostCopilot: "reasoning_text", HostGroq: "reasoning", HostLlama: "reasoning_content"}[v.Host]
}

func (v OpenAI) arguments(c Call) string {
	if c.Arguments == "" && v.Host != HostCopilot {
		return "{}"
	}
	return c.Arguments
}

func (v OpenAI) calls(calls []Call) []any {
	var all []any
	for _, c := range calls {
		all = append(all, object{"id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": v.arguments(c)}})
	}
	return all
}

// usage has the cached tokens inside the prompt's, and reasoning inside the
// completion's.
func (v OpenAI) usage(u Usage) object {
	t := v.Traits()
	prompt := u.Fresh + u.CacheRead
	details := object{"cached_tokens": u.CacheRead, "audio_tokens": 0}
	if t.CacheWrite {
		prompt += u.CacheWrite
		details["cache_write_tokens"] = u.CacheWrite
	}
	o := object{
		"prompt_tokens": prompt, "completion_tokens": u.Output, "total_tokens": prompt + u.Output,
		"prompt_tokens_details": details,
	}
	if t.Reasoning {
		o["completion_tokens_details"] = object{"reasoning_tokens": u.Reasoning, "audio_tokens": 0}
	}
	if v.Host == HostGroq {
		o["queue_time"], o["prompt_time"], o["completion_time"], o["total_time"] = 0.01, 0.002, 0.05, 0.052
	}
	return o
}

func filterResults() []any {
	safe := object{"filtered": false, "severity": "safe"}
	return []any{object{"prompt_index": 0, "content_filter_results": object{"hate": safe, "violence": safe}}}
}

// chunks collects the events of one stream.
type chunks struct {
	v   OpenAI
	s   *Seen
	a   *Answer
	all [][]byte
}

func (c *chunks) add(more object) {
	o := c.v.head(c.s, c.a, "chat.completion.chunk")
	for k, val := range more {
		o[k] = val
	}
	if c.s.StreamUsage && c.v.Host == HostOpenAI && o["usage"] == nil {
		o["usage"] = nil
	}
	c.all = append(c.all, sse("", marshal(o)))
}

func (c *chunks) delta(d object, finish any, more object) {
	choice := object{"index": 0, "delta": d, "logprobs": nil, "finish_reason": finish}
	o := object{"choices": []any{choice}}
	for k, val := range more {
		o[k] = val
	}
	c.add(o)
}

// Events implements Voice.
func (v OpenAI) Events(s *Seen, a *Answer) [][]byte {
	c := &chunks{v: v, s: s, a: a}
	if v.Host == HostCopilot || v.Host == HostGitHubModels {
		c.all = append(c.all, sse("", marshal(object{
			"choices": []any{}, "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": filterResults(),
		})))
	}
	first := object{"role": "assistant", "content": ""}
	more := object{}
	switch v.Host {
	case HostLlama:
		first["content"] = nil
	case HostGroq:
		more["x_groq"] = object{"id": "req_01fake"}
	case HostOpenAI:
		first["refusal"] = nil
	case HostCopilot, HostGitHubModels:
	}
	c.delta(first, nil, more)
	if name := v.thoughts(); name != "" && a.Reasoning != "" {
		c.delta(object{name: a.Reasoning}, nil, nil)
	}
	for _, p := range a.Pieces {
		c.delta(object{"content": p}, nil, nil)
	}
	c.calls()
	c.end()
	return append(c.all, sse("", []byte("[DONE]")))
}

// calls streams the tool calls: the name first, then the arguments in halves;
// whole where the host does so.
func (c *chunks) calls() {
	for i, call := range c.a.Calls {
		args := c.v.arguments(call)
		head := object{"index": i, "id": call.ID, "type": "function", "function": object{"name": call.Name, "arguments": ""}}
		if c.v.Host == HostGroq {
			head["function"] = object{"name": call.Name, "arguments": args}
			args = ""
		}
		c.delta(object{"tool_calls": []any{head}}, nil, nil)
		for _, part := range halves(args) {
			c.delta(object{"tool_calls": []any{object{"index": i, "function": object{"arguments": part}}}}, nil, nil)
		}
	}
}

// halves splits at a character's beginning.
func halves(s string) []string {
	if s == "" {
		return nil
	}
	at := 0
	for i := range s {
		if at = i; i >= len(s)/2 {
			break
		}
	}
	if at == 0 {
		return []string{s}
	}
	return []string{s[:at], s[at:]}
}

// end writes the finish reason and the usage.
func (c *chunks) end() {
	usage, more := any(c.v.usage(c.a.Usage)), object{}
	if c.a.NoUsage {
		usage = nil
	}
	switch {
	case usage == nil:
	case c.v.Host == HostCopilot:
		more["usage"] = usage
	case c.v.Host == HostGroq:
		more["x_groq"] = object{"id": "req_01fake", "usage": usage}
	}
	last := object{}
	if c.v.Host == HostCopilot {
		last["content"] = nil
	}
	c.delta(last, c.a.End(), more)
	if c.v.Host == HostGitHubModels {
		c.add(object{"choices": []any{object{"index": 0, "finish_reason": nil, "content_filter_offsets": object{"check_offset": 1, "start_offset": 1, "end_offset": 9}}}})
	}
	if usage == nil || !c.s.StreamUsage || c.v.Host == HostCopilot {
		return
	}
	o := object{"choices": []any{}, "usage": usage}
	if c.v.Host == HostLlama {
		o["timings"] = object{"cache_n": c.a.Usage.CacheRead, "prompt_n": c.a.Usage.Fresh, "predicted_n": c.a.Usage.Output}
	}
	c.add(o)
}

// sse frames one event; data is one line.
func sse(name string, data []byte) []byte {
	b := make([]byte, 0, len(data)+len(name)+16)
	if name != "" {
		b = append(append(append(b, "event: "...), name...), '\n')
	}
	return append(append(append(b, "data: "...), data...), '\n', '\n')
}

func marshal(v any) []byte {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("vendors: an answer that is no JSON: %v", err)) // a mistake in this package
	}
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}
