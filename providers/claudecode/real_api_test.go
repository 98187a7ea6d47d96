//go:build claude_cli

package claudecode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// api is a fake of Anthropic's API for the real program. Unlike the fake of
// internal/vendors it takes what the program sends, betas and all, and can be told
// an answer event by event.
type api struct {
	*httptest.Server
	mu      sync.Mutex
	scripts []script
	calls   []call
	strays  []string
	gone    chan struct{} // one value for each client that left a held answer
	held    chan struct{} // one value for each answer that is held
}

// call is a request for an answer.
type call struct {
	header http.Header
	path   string
	body   []byte
}

// script is what the API does with one request. The zero script says hello.
type script struct {
	status int // 0 = 200, events
	header map[string]string
	body   string
	events []string
	// hold keeps the answer open after its events, until the client has gone; cut
	// ends it there, and reset the connection before anything.
	hold, cut, reset bool
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{gone: make(chan struct{}, 64), held: make(chan struct{}, 64)}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

// next sets what is done with the next requests; after them hello is said again.
func (a *api) next(s ...script) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scripts, a.calls = s, nil
}

func (a *api) seen() []call {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]call(nil), a.calls...)
}

// leaks are the requests that the program made to anyone else: it has this server
// as its proxy.
func (a *api) leaks() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.strays...)
}

func (a *api) take(r *http.Request) (s script, ok bool) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case r.Method == http.MethodConnect || r.URL.IsAbs():
		a.strays = append(a.strays, r.Method+" "+r.Host)
		return s, false
	case r.Method != http.MethodPost || r.URL.Path != "/v1/messages":
		return s, false // HEAD /, which 2.1.197 begins with
	}
	a.calls = append(a.calls, call{r.Header.Clone(), r.URL.String(), body})
	if len(a.scripts) > 0 {
		s, a.scripts = a.scripts[0], a.scripts[1:]
	}
	return s, true
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	s, ok := a.take(r)
	if !ok {
		if r.Method == http.MethodConnect {
			w.WriteHeader(http.StatusForbidden)
		}
		return
	}
	if s.reset {
		panic(http.ErrAbortHandler)
	}
	for k, v := range s.header {
		w.Header().Set(k, v)
	}
	w.Header().Set("Request-Id", "req_fake")
	if s.status != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, s.body)
		return
	}
	if s.events == nil {
		s.events = helloEvents
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, ev := range s.events {
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", gjson.Get(ev, "type").Str, ev)
	}
	_ = http.NewResponseController(w).Flush()
	switch {
	case s.hold:
		a.held <- struct{}{}
		<-r.Context().Done()
		a.gone <- struct{}{}
	case s.cut:
		panic(http.ErrAbortHandler)
	}
}

const startEvent = `{"type":"message_start","message":{"id":"msg_fake","type":"message","role":"assistant","model":"claude-sonnet-5-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":11,"cache_creation_input_tokens":22,"cache_read_input_tokens":33,"output_tokens":1}}}`

// textEvents are the events of a block of text, in pieces.
func textEvents(index int, pieces ...string) []string {
	out := []string{fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"text","text":""}}`, index)}
	for _, p := range pieces {
		b, _ := json.Marshal(p)
		out = append(out, fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":%s}}`, index, b))
	}
	return append(out, fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, index))
}

// toolEvents are the events of a call of a tool.
func toolEvents(name, input string) []string {
	b, _ := json.Marshal(input)
	return []string{
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_fake","name":"` + name + `","input":{}}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":` + string(b) + `}}`,
		`{"type":"content_block_stop","index":0}`,
	}
}

func endEvents(stop string) []string {
	return []string{`{"type":"message_delta","delta":{"stop_reason":"` + stop + `","stop_sequence":null},"usage":{"output_tokens":7}}`, `{"type":"message_stop"}`}
}

// turnOf joins the parts of a message.
func turnOf(parts ...[]string) []string {
	all := []string{startEvent, `{"type":"ping"}`}
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

var (
	helloEvents = turnOf(textEvents(0, "Hel", "lo, ", "wörld ✓"), endEvents("end_turn"))
	thinkEvents = []string{
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hmm hmm"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig"}}`,
		`{"type":"content_block_stop","index":0}`,
	}
	thoughtEnd = []string{
		`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":40,"output_tokens_details":{"thinking_tokens":31}}}`,
		`{"type":"message_stop"}`,
	}
	overloaded = []string{`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`}
)

// refusal is an error of the API.
func refusal(status int, kind, message string, header ...string) script {
	s := script{status: status, body: apiError(kind, message), header: map[string]string{}}
	for i := 0; i+1 < len(header); i += 2 {
		s.header[header[i]] = header[i+1]
	}
	return s
}

// unified are the headers of a plan's limits.
func unified(status string) map[string]string {
	const p = "anthropic-ratelimit-unified-"
	reset := fmt.Sprint(time.Now().Add(time.Hour).Unix())
	return map[string]string{
		p + "status": status, p + "reset": reset, p + "representative-claim": "five_hour",
		p + "5h-status": status, p + "5h-reset": reset, p + "5h-utilization": "1.01",
		p + "7d-status": "allowed", p + "7d-reset": fmt.Sprint(time.Now().Add(72 * time.Hour).Unix()), p + "7d-utilization": "0.41",
		p + "overage-status": "rejected", p + "overage-disabled-reason": "org_level_disabled",
	}
}

// scenario is one turn: what is asked, and what the API does.
type scenario struct {
	schema  string
	prompt  string
	scripts []script
}

const objectSchema = `{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}`

// scenarios are the turns whose lines stand in testdata.
func scenarios() map[string]scenario {
	one := func(s ...script) scenario { return scenario{prompt: "do it", scripts: s} }
	limit := refusal(429, "rate_limit_error", "This request would exceed your account's rate limit. Please try again later.")
	limit.header = unified("rejected")
	limit.header["retry-after"] = "3600"
	more := script{events: turnOf(textEvents(0, "more"), endEvents("end_turn"))}
	structured := func(input string) script {
		return script{events: turnOf(toolEvents(schemaTool, input), endEvents("tool_use"))}
	}
	with := func(schema string, s ...script) scenario {
		return scenario{schema: schema, prompt: "do it", scripts: s}
	}
	plainJSON := script{events: turnOf(textEvents(0, `{"a":1}`), endEvents("end_turn"))}
	expired := refusal(401, "authentication_error", "OAuth token has expired. Please obtain a new token or refresh your existing token.")
	wrong := refusal(400, "invalid_request_error", "messages: something is wrong")
	missing := refusal(404, "not_found_error", "model: claude-sonnet-5-5")
	return map[string]scenario{
		"ok":       one(script{header: unified("allowed_warning")}),
		"thinking": one(script{events: turnOf(thinkEvents, textEvents(1, "done"), thoughtEnd)}),
		"empty": one(script{events: turnOf([]string{`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":1}}`, `{"type":"message_stop"}`})},
			script{events: turnOf([]string{`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":1}}`, `{"type":"message_stop"}`})}),
		"401":                one(expired, expired, expired),
		"403":                one(refusal(403, "permission_error", "Your account does not have permission to use this resource.")),
		"403-org":            one(refusal(403, "permission_error", "OAuth authentication is currently not allowed for this organization.")),
		"404-model":          one(missing, missing, missing),
		"400":                one(wrong, wrong, wrong, wrong),
		"400-long":           one(refusal(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")),
		"400-credit":         one(refusal(400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.")),
		"400-policy":         one(same3(refusal(400, "invalid_request_error", "Output blocked by content filtering policy"))...),
		"400-extra-usage":    one(same3(refusal(400, "invalid_request_error", "You're out of extra usage. Add more at claude.ai/settings/usage and keep going."))...),
		"402":                one(refusal(402, "billing_error", "billing")),
		"413":                one(refusal(413, "request_too_large", "Request exceeds the maximum size")),
		"429":                one(refusal(429, "rate_limit_error", "This request would exceed your organization’s rate limit", "retry-after", "5")),
		"429-plan":           one(limit),
		"500":                one(refusal(500, "api_error", "Internal server error")),
		"529":                one(refusal(529, "overloaded_error", "Overloaded")),
		"reset":              one(script{reset: true}, script{reset: true}),
		"mid-error":          one(script{events: append(turnOf(textEvents(0, "Hel")[:2]), overloaded...)}),
		"cut":                one(script{events: turnOf(textEvents(0, "Hel")[:2])}),
		"no-end":             one(script{events: turnOf(textEvents(0, "Hel"))}, more),
		"max-tokens":         one(script{events: turnOf(textEvents(0, "Hel", "lo, ", "wörld ✓"), endEvents("max_tokens"))}, more),
		"refusal":            one(script{events: turnOf(textEvents(0, "Hel", "lo, ", "wörld ✓"), endEvents("refusal"))}, more),
		"schema":             with(objectSchema, structured(`{"a": 3}`)),
		"schema-at-last":     with(objectSchema, script{events: turnOf(textEvents(0, "no"), endEvents("end_turn"))}, structured(`{"a": 4}`)),
		"schema-not":         with(objectSchema, plainJSON, plainJSON),
		"schema-refused":     with(`{"type":"nonsense"}`),
		"too-long-by-itself": {prompt: strings.Repeat("y", 4_000_000)},
	}
}

func same3(s script) []script { return []script{s, s, s} }

// field returns one member of what was asked.
func (c call) field(path string) gjson.Result { return gjson.GetBytes(c.body, path) }

func (c call) has(text string) bool { return bytes.Contains(c.body, []byte(text)) }
