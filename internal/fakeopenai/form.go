package fakeopenai

import (
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// The JSON forms of the API, written by hand: encoding/json would cost more than
// the rest of the server.

const htmlPage = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n" +
	"<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"

const defaultChunks = 4

// answer is one answer, ready to be written in either form.
type answer struct {
	head    []byte // `{"id":…,"object":` up to the object's value
	tail    []byte // `,"created":…,"model":…` up to the choices
	content string
	tools   []ToolCall
	finish  string
	choices int
	usage   Usage
	// withUsage: a whole answer carries usage; chunks carry "usage":null.
	withUsage bool
	bounds    []int // ends of the pieces in content
}

func (p *player) newAnswer(b *Behaviour) *answer {
	a := &answer{content: b.Content, tools: b.ToolCalls, finish: b.FinishReason, choices: p.req.Choices, withUsage: !b.NoUsage}
	if a.content == "" && len(a.tools) == 0 {
		a.content = p.s.content
	}
	if a.finish == "" {
		a.finish = "stop"
		if len(a.tools) > 0 {
			a.finish = "tool_calls"
		}
	}
	model := b.Model
	if model == "" {
		model = p.req.Model
	}
	a.usage = p.usage(b, a)
	a.head = append(a.head, `{"id":"chatcmpl-fake-`...)
	a.head = strconv.AppendInt(a.head, int64(p.call.n), 10)
	a.head = append(a.head, `","object":`...)
	a.tail = append(a.tail, `,"created":`...)
	a.tail = strconv.AppendInt(a.tail, p.s.created, 10)
	a.tail = append(a.tail, `,"model":`...)
	a.tail = gjson.AppendJSONString(a.tail, model)
	if p.req.Stream {
		a.withUsage = p.req.IncludeUsage && !b.NoUsage
		a.bounds = split(a.content, max(1, orChunks(b.Chunks)))
	}
	return a
}

func (p *player) usage(b *Behaviour, a *answer) Usage {
	if b.Usage != nil {
		return *b.Usage
	}
	n := len(a.content)
	for _, t := range a.tools {
		n += len(t.Name) + len(t.Arguments)
	}
	return Usage{Prompt: 1 + p.req.PromptBytes/4, Completion: (1 + n/4) * p.req.Choices}
}

func orChunks(n int) int {
	if n == 0 {
		return defaultChunks
	}
	return n
}

// split returns the ends of at most n pieces of about equal length.
func split(s string, n int) []int {
	bounds := make([]int, 0, n)
	last := 0
	for i := 1; i <= n; i++ {
		end := len(s) * i / n
		for end < len(s) && !utf8.RuneStart(s[end]) {
			end++
		}
		if end > last {
			bounds = append(bounds, end)
			last = end
		}
	}
	return bounds
}

func (a *answer) appendCompletion(b []byte) []byte {
	b = append(b, a.head...)
	b = append(b, `"chat.completion"`...)
	b = append(b, a.tail...)
	b = append(b, `,"choices":[`...)
	for i := range a.choices {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"index":`...)
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(b, `,"message":{"role":"assistant","content":`...)
		b = a.appendMessage(b)
		b = append(b, `,"refusal":null,"annotations":[]},"logprobs":null,"finish_reason":`...)
		b = gjson.AppendJSONString(b, a.finish)
		b = append(b, '}')
	}
	b = append(b, ']')
	if a.withUsage {
		b = append(b, `,"usage":`...)
		b = appendUsage(b, a.usage)
	}
	return append(b, `,"service_tier":"default","system_fingerprint":"fp_fake"}`...)
}

func (a *answer) appendMessage(b []byte) []byte {
	if len(a.tools) == 0 {
		return gjson.AppendJSONString(b, a.content)
	}
	if a.content == "" {
		b = append(b, `null`...)
	} else {
		b = gjson.AppendJSONString(b, a.content)
	}
	b = append(b, `,"tool_calls":[`...)
	for i, t := range a.tools {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		b = appendToolCall(b, t, t.Arguments)
	}
	return append(b, ']')
}

func appendToolCall(b []byte, t ToolCall, arguments string) []byte {
	b = append(b, `"id":`...)
	b = gjson.AppendJSONString(b, t.ID)
	b = append(b, `,"type":"function","function":{"name":`...)
	b = gjson.AppendJSONString(b, t.Name)
	b = append(b, `,"arguments":`...)
	b = gjson.AppendJSONString(b, arguments)
	return append(b, `}}`...)
}

// pieces is the number of content pieces; a tool call is sent in two.
func (a *answer) pieces() int { return len(a.bounds) + 2*len(a.tools) }

func (a *answer) appendRoleChunks(b []byte) []byte {
	content := `{"role":"assistant","content":"","refusal":null}`
	if len(a.tools) > 0 && a.content == "" {
		content = `{"role":"assistant","content":null,"refusal":null}`
	}
	for i := range a.choices {
		b = a.openChunk(b, i)
		b = append(b, content...)
		b = a.closeChunk(b, "")
	}
	return b
}

func (a *answer) appendPiece(b []byte, i int) []byte {
	for c := range a.choices {
		b = a.openChunk(b, c)
		if i < len(a.bounds) {
			from := 0
			if i > 0 {
				from = a.bounds[i-1]
			}
			b = append(b, `{"content":`...)
			b = gjson.AppendJSONString(b, a.content[from:a.bounds[i]])
			b = append(b, '}')
		} else {
			b = a.appendToolPiece(b, i-len(a.bounds))
		}
		b = a.closeChunk(b, "")
	}
	return b
}

// appendToolPiece writes a call's opening (even i) or its arguments (odd i).
func (a *answer) appendToolPiece(b []byte, i int) []byte {
	t := a.tools[i/2]
	b = append(b, `{"tool_calls":[{"index":`...)
	b = strconv.AppendInt(b, int64(i/2), 10)
	b = append(b, ',')
	if i%2 == 0 {
		b = appendToolCall(b, t, "")
	} else {
		b = append(b, `"function":{"arguments":`...)
		b = gjson.AppendJSONString(b, t.Arguments)
		b = append(b, `}}`...)
	}
	return append(b, `]}`...)
}

func (a *answer) appendFinishChunks(b []byte) []byte {
	for i := range a.choices {
		b = a.openChunk(b, i)
		b = append(b, `{}`...)
		b = a.closeChunk(b, a.finish)
	}
	return b
}

func (a *answer) appendUsageChunk(b []byte) []byte {
	b = a.appendChunkHead(b)
	b = append(b, `],"usage":`...)
	b = appendUsage(b, a.usage)
	return append(b, "}\n\n"...)
}

func (a *answer) appendBrokenChunk(b []byte) []byte {
	b = a.openChunk(b, 0)
	return append(b, "{\"content\":\"bro\n\n"...)
}

func (a *answer) appendChunkHead(b []byte) []byte {
	b = append(b, "data: "...)
	b = append(b, a.head...)
	b = append(b, `"chat.completion.chunk"`...)
	b = append(b, a.tail...)
	return append(b, `,"service_tier":"default","system_fingerprint":"fp_fake","choices":[`...)
}

func (a *answer) openChunk(b []byte, choice int) []byte {
	b = a.appendChunkHead(b)
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(choice), 10)
	return append(b, `,"delta":`...)
}

func (a *answer) closeChunk(b []byte, finish string) []byte {
	b = append(b, `,"logprobs":null,"finish_reason":`...)
	if finish == "" {
		b = append(b, `null`...)
	} else {
		b = gjson.AppendJSONString(b, finish)
	}
	b = append(b, `}]`...)
	if a.withUsage {
		b = append(b, `,"usage":null`...)
	}
	return append(b, "}\n\n"...)
}

func appendUsage(b []byte, u Usage) []byte {
	b = append(b, `{"prompt_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Prompt), 10)
	b = append(b, `,"completion_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Completion), 10)
	b = append(b, `,"total_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Prompt+u.Completion), 10)
	b = append(b, `,"prompt_tokens_details":{"cached_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Cached), 10)
	b = append(b, `,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":`...)
	b = strconv.AppendInt(b, int64(u.Reasoning), 10)
	return append(b, `,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`...)
}

// appendError writes the API's error form; an empty param or code is null.
func appendError(b []byte, message, typ, param, code string) []byte {
	b = append(b, `{"error":{"message":`...)
	b = gjson.AppendJSONString(b, message)
	b = append(b, `,"type":`...)
	b = gjson.AppendJSONString(b, typ)
	b = append(b, `,"param":`...)
	b = appendStringOrNull(b, param)
	b = append(b, `,"code":`...)
	b = appendStringOrNull(b, code)
	return append(b, `}}`...)
}

func appendStringOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, `null`...)
	}
	return gjson.AppendJSONString(b, s)
}

// appendStatusError writes the error that belongs to a bare status.
func appendStatusError(b []byte, status int) []byte {
	switch {
	case status == http.StatusUnauthorized:
		return append(b, InvalidAPIKey().Body...)
	case status == http.StatusTooManyRequests:
		return append(b, RateLimited(0).Body...)
	case status == http.StatusServiceUnavailable:
		return append(b, Overloaded().Body...)
	case status >= http.StatusInternalServerError:
		return appendError(b, "The server had an error while processing your request. Sorry about that!", "server_error", "", "")
	}
	return appendError(b, http.StatusText(status), "invalid_request_error", "", "")
}

func appendModels(b []byte, ids []string, created int64) []byte {
	b = append(b, `{"object":"list","data":[`...)
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"id":`...)
		b = gjson.AppendJSONString(b, id)
		b = append(b, `,"object":"model","created":`...)
		b = strconv.AppendInt(b, created, 10)
		b = append(b, `,"owned_by":"fake"}`...)
	}
	return append(b, `]}`...)
}

func writeError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, appendError(nil, message, "invalid_request_error", "", ""))
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
