package edge_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/edge"
	"github.com/sluice-llm/sluice/subjects"
)

func TestMetadataHeaders(t *testing.T) {
	f := replying(chatReply, nil)
	r := start(t, f, edge.Options{})
	r.post(t, "/v1/chat/completions", chatBody,
		"X-LLM-Process", "wiki é", "X-LLM-Task", "t", "X-LLM-Tier", "fast", "X-LLM-Class", "ingestion",
		"X-LLM-Call-Id", "id-1", "X-LLM-Timeout-Ms", "1500", "X-LLM-Provider", "groq", "X-LLM-Skip-Cache", "true",
		"X-LLM-Cache-Scope", "team-a", "X-LLM-Run-Id", "nightly-7", "X-LLM-Batch-Id", "b1",
		"traceparent", "00-1-2-01", "Authorization", "Bearer sk-secret", "Cookie", "c=1")
	m := f.last(t)
	want := subjects.Header{
		"Llm-Wire": {"openai-chat"}, "Llm-Process": {"wiki é"}, "Llm-Task": {"t"}, "Llm-Tier": {"fast"},
		"Llm-Call-Id": {"id-1"}, "Llm-Timeout-Ms": {"1500"}, "Llm-Provider": {"groq"}, "Llm-Skip-Cache": {"true"},
		"Llm-Cache-Scope": {"team-a"}, "Llm-Run-Id": {"nightly-7"}, "Llm-Batch-Id": {"b1"},
		"traceparent": {"00-1-2-01"},
	}
	if !reflect.DeepEqual(m.Header, want) {
		t.Errorf("headers %v, want %v", m.Header, want)
	}
	if m.Subject != "llm.complete.ingestion" || string(m.Data) != chatBody {
		t.Errorf("asked %s %s", m.Subject, m.Data)
	}
}

func TestReplyHeaders(t *testing.T) {
	reply := subjects.Header{
		"Llm-Provider": {"groq"}, "Llm-Model": {"m\r\nX-Evil: 1 100% é"}, "Llm-Call-Id": {"first"}, "Llm-Cached": {"true"},
		"Llm-Warnings": {"temperature left out", "seed left out"}, "x-ratelimit-remaining-tokens": {"7"}, "x-quota-snapshot-premium_interactions": {"rem=35.5"}, "Set-Cookie": {"no"},
	}
	f := replying(chatReply, reply)
	f.stream = streaming(nil, reply, `{"n":1}`).stream
	r := start(t, f, edge.Options{})
	for _, body := range []string{chatBody, chatStream} {
		a := r.post(t, "/v1/chat/completions", body, "X-LLM-Call-Id", "second")
		for name, want := range map[string][]string{
			"X-Llm-Provider": {"groq"}, "X-Llm-Model": {"m%0D%0AX-Evil: 1 100%25 %C3%A9"}, "X-Llm-Call-Id": {"first"},
			"X-Request-Id": {"first"}, "X-Llm-Cached": {"true"}, "X-Llm-Warnings": {"temperature left out", "seed left out"},
			"X-Ratelimit-Remaining-Tokens": {"7"}, "X-Quota-Snapshot-Premium_interactions": {"rem=35.5"}, "X-Evil": nil, "Set-Cookie": nil,
		} {
			if !reflect.DeepEqual(a.header[name], want) {
				t.Errorf("%s: %q, want %q", name, a.header[name], want)
			}
		}
	}
}

// TestCallIDIsTheNodes: a call without an id gets the node's, which the reply has.
func TestCallIDIsTheNodes(t *testing.T) {
	f := replying(chatReply, subjects.Header{subjects.HeaderCallID: {"made-by-node"}})
	a := start(t, f, edge.Options{}).post(t, "/v1/chat/completions", chatBody)
	if sent := f.last(t).Header.Get("Llm-Call-Id"); sent != "" || a.header.Get("X-LLM-Call-Id") != "made-by-node" || a.header.Get("X-Request-Id") != "made-by-node" || a.header.Get("X-LLM-Cached") != "false" {
		t.Errorf("sent %q, answered %v", sent, a.header)
	}
}

// TestToken: with a token every request needs it, under any host name.
func TestToken(t *testing.T) {
	r := start(t, replying(chatReply, nil), edge.Options{Token: "open-sesame"})
	for _, tt := range []struct {
		headers []string
		status  int
	}{
		{nil, 401},
		{[]string{"Authorization", "Bearer open"}, 401},
		{[]string{"Authorization", "open-sesame"}, 401},
		{[]string{"Authorization", "Bearer open-sesame"}, 200},
		{[]string{"X-Api-Key", "open-sesame", "Host", "sluice.example"}, 200},
	} {
		if a := r.post(t, "/v1/chat/completions", chatBody, tt.headers...); a.status != tt.status || strings.Contains(a.body, "sesame") {
			t.Errorf("%v: %d %s", tt.headers, a.status, a.body)
		}
	}
}

func TestClass(t *testing.T) {
	byProcess := func(p string) string {
		return map[string]string{"wiki": "ingestion", "odd": "nonsense", "unknown": "ingestion"}[p]
	}
	const wiki = `{"process":"wiki"}`
	for _, tt := range []struct {
		name, path, body string
		headers          []string
		fn               func(string) string
		want             string
	}{
		{"chat", "/v1/chat/completions", wiki, []string{"X-LLM-Process", "wiki"}, byProcess, "interactive"},
		{"native without map", "/api/complete", wiki, nil, nil, "interactive"},
		{"native body", "/api/complete", wiki, nil, byProcess, "ingestion"},
		{"native header wins", "/api/complete", wiki, []string{"X-LLM-Process", "other"}, byProcess, "interactive"},
		{"native header", "/api/complete", nativeBody, []string{"X-LLM-Process", "wiki"}, byProcess, "ingestion"},
		{"native none", "/api/complete", nativeBody, nil, byProcess, "ingestion"},
		{"native odd", "/api/complete", `{"process":"odd"}`, nil, byProcess, "interactive"},
		{"native not in map", "/api/complete", `{"process":"x"}`, nil, byProcess, "interactive"},
		{"class header", "/api/complete", wiki, []string{"X-LLM-Class", "interactive"}, byProcess, "interactive"},
		{"chat class header", "/v1/chat/completions", chatBody, []string{"X-LLM-Class", "ingestion"}, nil, "ingestion"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := replying(nativeDone, nil)
			start(t, f, edge.Options{ProcessClass: tt.fn}).post(t, tt.path, tt.body, tt.headers...)
			if got := f.last(t).Subject; got != "llm.complete."+tt.want {
				t.Errorf("asked %s, want %s", got, tt.want)
			}
		})
	}
}

func TestBadMetadataIsRefused(t *testing.T) {
	f := replying(chatReply, nil)
	r := start(t, f, edge.Options{})
	for _, tt := range []struct{ body, name, value, want string }{
		{nativeBody, "X-LLM-Class", "batch", `"batch" is no class; it is interactive or ingestion`},
		{nativeBody, "X-LLM-Class", "Interactive", "is no class"},
		{nativeBody, "X-LLM-Process", "latin \xe9", "not valid UTF-8"},
		{nativeBody, "X-LLM-Call-Id", strings.Repeat("x", 129), "callId: 129 bytes"},
		{nativeBody, "X-LLM-Call-Id", "a\tb", "control characters"},
		{`{"callId":"a\r\nLlm-Tier: premium"}`, "X-A", "b", "control characters"},
		{`{"callId":"a` + "\xff" + `"}`, "X-A", "b", "not valid UTF-8"},
	} {
		a := r.post(t, "/api/complete", tt.body, tt.name, tt.value)
		msg, _ := a.errorOf(t)["message"].(string)
		if a.status != 400 || !strings.Contains(msg, tt.want) {
			t.Errorf("%s %q: %d %s", tt.name, tt.value, a.status, a.body)
		}
	}
	if f.count() != 0 {
		t.Error("a bad request was sent on")
	}
}

func TestNativeCallIDOfTheBody(t *testing.T) {
	f := replying(nativeDone, nil)
	r := start(t, f, edge.Options{})
	a := r.post(t, "/api/complete", `{"callId":"body-id","messages":[]}`)
	if got := f.last(t).Header.Get("Llm-Call-Id"); got != "body-id" || a.header.Get("X-Request-Id") != "body-id" {
		t.Errorf("sent %q, answered %v", got, a.header)
	}
	r.post(t, "/api/complete", `{"callId":"body-id"}`, "X-LLM-Call-Id", "header-id")
	if got := f.last(t).Header.Get("Llm-Call-Id"); got != "header-id" {
		t.Errorf("the header must win, got %q", got)
	}
}

func TestNativeResultHasOlderTokens(t *testing.T) {
	for _, tt := range []struct{ reply, want string }{
		{nativeDone, nativeDone[:len(nativeDone)-1] + `,"tokens":{"input":1,"output":2,"total":3}}`},
		{nativeDone + "\n", nativeDone[:len(nativeDone)-1] + `,"tokens":{"input":1,"output":2,"total":3}}`},
		{`{"usage":{}}`, `{"usage":{},"tokens":{"input":0,"output":0,"total":0}}`},
		{`{}`, `{}`},
		{`[1]`, `[1]`},
		{`nonsense`, `nonsense`},
	} {
		a := start(t, replying(tt.reply, nil), edge.Options{}).post(t, "/api/complete", nativeBody)
		if a.status != 200 || a.body != tt.want {
			t.Errorf("%s: %d %s", tt.reply, a.status, a.body)
		}
	}
	if a := start(t, replying(chatReply, nil), edge.Options{}).post(t, "/v1/chat/completions", chatBody); a.body != chatReply {
		t.Errorf("an OpenAI reply was changed: %s", a.body)
	}
}

// TestDeadline has the edge wait past the caller's deadline, and never for ever.
func TestDeadline(t *testing.T) {
	left := make(chan time.Duration, 1)
	f := &fake{request: func(ctx context.Context, _ *subjects.Msg) (*subjects.Msg, error) {
		at, ok := ctx.Deadline()
		if !ok {
			t.Error("a call without an end")
		}
		left <- time.Until(at)
		return &subjects.Msg{Data: []byte(`{}`)}, nil
	}}
	r := start(t, f, edge.Options{CallTimeout: 20 * time.Minute})
	for _, tt := range []struct {
		body, header string
		want         time.Duration
	}{
		{nativeBody, "", 20 * time.Minute},
		{nativeBody, "60000", time.Minute},
		{`{"timeoutMs":120000}`, "", 2 * time.Minute},
		{`{"timeoutMs":120000}`, "60000", time.Minute},
		{`{"timeoutMs":"120000"}`, "", 20 * time.Minute},
		{`{"timeoutMs":1e300}`, "", 20 * time.Minute},
		{nativeBody, "-5", 20 * time.Minute},
		{nativeBody, "nonsense", 20 * time.Minute},
		{nativeBody, "99999999999999999999", 20 * time.Minute},
	} {
		r.post(t, "/api/complete", tt.body, "X-LLM-Timeout-Ms", tt.header)
		if got := within(t, left, "the call"); got < tt.want || got > tt.want+10*time.Second {
			t.Errorf("%s %q: %v left, want %v and a little", tt.body, tt.header, got, tt.want)
		}
	}
}

// TestReplyIsNotChanged has the node's bytes stay as they are: it may give them
// to another caller of the same call.
func TestReplyIsNotChanged(t *testing.T) {
	data := append(make([]byte, 0, 1000), nativeDone...)
	f := &fake{request: func(context.Context, *subjects.Msg) (*subjects.Msg, error) { return &subjects.Msg{Data: data}, nil }}
	if a := start(t, f, edge.Options{}).post(t, "/api/complete", nativeBody); !strings.Contains(a.body, `"tokens"`) {
		t.Errorf("got %s", a.body)
	}
	if string(data) != nativeDone {
		t.Errorf("changed to %s", data)
	}
}
