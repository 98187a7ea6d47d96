package vendors

import (
	"encoding/json"
	"net/http"
)

// Ollama speaks Ollama's own API, POST /api/chat, as the server's source has it
// (v0.17.4: api/types.go, server/routes.go, tools) and as it was recorded before a
// real model: answers of one JSON text a line, counts of nought left out, a tool
// call whole in a line of its own, and errors that are a text alone.
type Ollama struct {
	// Thinks says that the model can think: it is not an error to ask for it.
	Thinks bool
}

var _ interface {
	Voice
	Prober
} = Ollama{}

// Traits implements Voice. Of a prompt that was in its cache the server counts
// all tokens, and does not tell them apart.
func (Ollama) Traits() Traits {
	return Traits{Lines: true, CallIDs: true, Finishes: []string{FinishStop, FinishLength, FinishCalls}}
}

// ContentType implements Voice.
func (Ollama) ContentType(stream bool) string {
	if stream {
		return "application/x-ndjson"
	}
	return "application/json; charset=utf-8"
}

// Probe implements Prober: the models that are there, and the version.
func (Ollama) Probe(r *http.Request) ([]byte, bool) {
	switch r.URL.EscapedPath() {
	case "/api/version":
		return []byte(`{"version":"0.17.4"}`), true
	case "/api/tags":
		return []byte(`{"models":[{"name":"llama3.2:latest","model":"llama3.2:latest","modified_at":"2026-11-30T22:21:23.537441016Z","size":2019393189,"digest":"a80c4f17acd55265feec403c7aef86be0c25983ab279d83f3bcd3abbcb5b8b72","details":{"parent_model":"","format":"gguf","family":"llama","families":["llama"],"parameter_size":"3.2B","quantization_level":"Q4_K_M"}}]}`), true
	}
	return nil, false
}

const ollamaTime = "2026-11-30T22:21:25.991012419Z"

// line is one JSON text with its message.
func (Ollama) line(s *Seen, a *Answer, message object) object {
	message["role"] = "assistant"
	if message["content"] == nil {
		message["content"] = ""
	}
	return object{"model": a.ModelOf(s), "created_at": ollamaTime, "message": message, "done": false}
}

// done makes a line the last one: calls end a turn as a stop does.
func (Ollama) done(line object, a *Answer) object {
	line["done"], line["done_reason"] = true, FinishStop
	if a.End() == FinishLength {
		line["done_reason"] = FinishLength
	}
	line["total_duration"], line["load_duration"] = 2446115703, 622253265
	if a.NoUsage {
		return line
	}
	for name, n := range map[string]int64{"prompt_eval": a.Usage.Fresh, "eval": a.Usage.Output} {
		line[name+"_duration"] = 288714288
		if n > 0 {
			line[name+"_count"] = n
		}
	}
	return line
}

func ollamaCalls(calls []Call) []any {
	var all []any
	for i, c := range calls {
		args := json.RawMessage(c.Arguments)
		if len(args) == 0 {
			args = json.RawMessage("{}")
		}
		all = append(all, object{"id": c.ID, "function": object{"index": i, "name": c.Name, "arguments": args}})
	}
	return all
}

// Whole implements Voice.
func (v Ollama) Whole(s *Seen, a *Answer) []byte {
	message := object{"content": a.Text()}
	if a.Reasoning != "" {
		message["thinking"] = a.Reasoning
	}
	if len(a.Calls) > 0 {
		message["tool_calls"] = ollamaCalls(a.Calls)
	}
	return marshal(v.done(v.line(s, a, message), a))
}

// Events implements Voice.
func (v Ollama) Events(s *Seen, a *Answer) [][]byte {
	var all [][]byte
	add := func(line object) { all = append(all, append(marshal(line), '\n')) }
	if a.Reasoning != "" {
		add(v.line(s, a, object{"thinking": a.Reasoning}))
	}
	for _, p := range a.Pieces {
		add(v.line(s, a, object{"content": p}))
	}
	for _, c := range ollamaCalls(a.Calls) {
		add(v.line(s, a, object{"tool_calls": []any{c}}))
	}
	add(v.done(v.line(s, a, object{}), a))
	return all
}

// Fault implements Voice. The server knows no policy and no limit on a body; the
// limits are those of its cloud.
func (Ollama) Fault(s *Seen, f Fault) (status int, header http.Header, body []byte, ok bool) {
	text := ""
	switch f {
	case Unauthorized:
		return http.StatusUnauthorized, nil, marshal(object{"error": "unauthorized", "signin_url": "https://ollama.com/connect?name=fake&key=" + KeyMark}), true
	case Forbidden:
		status, text = http.StatusForbidden, "remote inference is unavailable: ollama cloud is disabled"
	case Quota:
		status, text = http.StatusTooManyRequests, "you (fake) have reached your weekly usage limit, upgrade for higher limits: https://ollama.com/upgrade"
	case ContextLength:
		status, text = http.StatusBadRequest, "the input length exceeds the context length"
	case Overloaded:
		status, text = http.StatusServiceUnavailable, "server busy, please try again.  maximum pending requests exceeded"
	case ServerError:
		status, text = http.StatusInternalServerError, "model runner has unexpectedly stopped, this may be due to resource limitations or an internal error, check ollama server logs for details"
	case NoModel:
		status, text = http.StatusNotFound, "model '"+s.Model+"' not found"
	case BadRequest:
		status, text = http.StatusBadRequest, "illegal base64 data at input byte 1"
	default:
		return 0, nil, nil, false
	}
	return status, nil, marshal(object{"error": text}), true
}

// InStream implements Voice: a line with an error after others is all that there
// can be.
func (v Ollama) InStream(f Fault) []byte {
	if f != ServerError {
		return nil
	}
	return append(marshal(object{"error": "an error was encountered while running the model: unexpected EOF"}), '\n')
}
