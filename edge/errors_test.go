package edge_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/edge"
	"github.com/sluice-llm/sluice/subjects"
)

// callError is an error as a node gives it.
func callError(kind subjects.Kind, message string) *subjects.Error {
	e := subjects.Errorf(kind, "%s", message)
	e.CallID, e.Provider = "call-1", "groq"
	e.Attempts = []subjects.Attempt{{Provider: "groq", Outcome: string(kind), Ms: 5}}
	return e
}

func withRetry(e *subjects.Error, d time.Duration) *subjects.Error { e.RetryAfter = d; return e }

func withStatus(e *subjects.Error, status int) *subjects.Error { e.HTTPStatus = status; return e }

type errorCase struct {
	name      string
	err       error
	status    int
	typ, code string
	kind      string
	retry     string // x-should-retry
	after     string // Retry-After
	afterMs   string
	ownCallID bool // the error came without a call id
}

func errorCases() []errorCase {
	const never = "false"
	k := callError
	return []errorCase{
		{name: "validation", err: k(subjects.KindValidation, "temperature: 9 is above 2"), status: 400, typ: "invalid_request_error", code: "invalid_request", kind: "VALIDATION_ERROR", retry: never},
		{name: "context", err: &subjects.Error{Kind: subjects.KindValidation, Code: subjects.CodeContextLength, Message: "the prompt is too long for the model", Provider: "groq", CallID: "call-1", Attempts: []subjects.Attempt{{Provider: "groq", Outcome: "VALIDATION_ERROR", Ms: 5}}}, status: 400, typ: "invalid_request_error", code: "context_length_exceeded", kind: "VALIDATION_ERROR", retry: never},
		{name: "payload", err: subjects.TooLarge(9<<20, 8<<20), status: 400, typ: "invalid_request_error", code: "request_too_large", kind: "VALIDATION_ERROR", retry: never, ownCallID: true},
		{name: "policy", err: k(subjects.KindContentPolicy, "refused"), status: 400, typ: "invalid_request_error", code: "content_policy_violation", kind: "CONTENT_POLICY", retry: never},
		{name: "auth", err: k(subjects.KindAuth, "key refused"), status: 401, typ: "authentication_error", code: "auth_error", kind: "AUTH_ERROR", retry: never},
		{name: "quota", err: k(subjects.KindQuotaExhausted, "no quota"), status: 429, typ: "insufficient_quota", code: "insufficient_quota", kind: "QUOTA_EXHAUSTED", retry: never},
		{name: "quota soon", err: withRetry(k(subjects.KindQuotaExhausted, "no quota"), 20*time.Second), status: 429, typ: "insufficient_quota", code: "insufficient_quota", kind: "QUOTA_EXHAUSTED", after: "20", afterMs: "20000"},
		{name: "quota late", err: withRetry(k(subjects.KindQuotaExhausted, "no quota"), time.Hour), status: 429, typ: "insufficient_quota", code: "insufficient_quota", kind: "QUOTA_EXHAUSTED", retry: never, after: "3600", afterMs: "3600000"},
		{name: "rate", err: withRetry(k(subjects.KindRateLimited, "slow down"), 1234*time.Millisecond), status: 429, typ: "rate_limit_exceeded", code: "rate_limit_exceeded", kind: "RATE_LIMITED", after: "2", afterMs: "1234"},
		{name: "rate short", err: withRetry(k(subjects.KindRateLimited, "slow down"), time.Microsecond), status: 429, typ: "rate_limit_exceeded", code: "rate_limit_exceeded", kind: "RATE_LIMITED", after: "1", afterMs: "1"},
		{name: "pool", err: k(subjects.KindPoolFull, "queue full"), status: 429, typ: "rate_limit_exceeded", code: "rate_limit_exceeded", kind: "POOL_FULL"},
		{name: "budget", err: k(subjects.KindBudgetExceeded, "spent"), status: 402, typ: "insufficient_quota", code: "budget_exceeded", kind: "BUDGET_EXCEEDED", retry: never},
		{name: "provider", err: k(subjects.KindProvider, "500"), status: 502, typ: "server_error", code: "provider_error", kind: "PROVIDER_ERROR", retry: never},
		{name: "timeout", err: k(subjects.KindTimeout, "late"), status: 504, typ: "server_error", code: "timeout", kind: "TIMEOUT", retry: never},
		{name: "unavailable", err: k(subjects.KindProviderUnavailable, "down"), status: 503, typ: "server_error", code: "provider_unavailable", kind: "PROVIDER_UNAVAILABLE"},
		{name: "capability", err: k(subjects.KindCapabilityMissing, "no images"), status: 422, typ: "invalid_request_error", code: "capability_missing", kind: "CAPABILITY_MISSING", retry: never},
		{name: "chain", err: k(subjects.KindNoProvider, "chain at its end"), status: 503, typ: "server_error", code: "no_provider", kind: "NO_PROVIDER", retry: never},
		{name: "chain waits", err: withRetry(withStatus(k(subjects.KindNoProvider, "all wait"), 429), 30*time.Second), status: 429, typ: "rate_limit_exceeded", code: "rate_limit_exceeded", kind: "NO_PROVIDER", after: "30", afterMs: "30000"},
		{name: "chain soon", err: withRetry(k(subjects.KindNoProvider, "the breaker is open"), 42*time.Second), status: 503, typ: "server_error", code: "no_provider", kind: "NO_PROVIDER", after: "42", afterMs: "42000"},
		{name: "chain late", err: withRetry(k(subjects.KindNoProvider, "every quota is used up"), 15*time.Minute), status: 503, typ: "server_error", code: "no_provider", kind: "NO_PROVIDER", retry: never, after: "900", afterMs: "900000"},
		{name: "budget until midnight", err: withRetry(k(subjects.KindBudgetExceeded, "spent"), time.Hour), status: 402, typ: "insufficient_quota", code: "budget_exceeded", kind: "BUDGET_EXCEEDED", retry: never, after: "3600", afterMs: "3600000"},
		{name: "capable one waits", err: withRetry(k(subjects.KindCapabilityMissing, "the one that can has no quota"), 5*time.Minute), status: 422, typ: "invalid_request_error", code: "capability_missing", kind: "CAPABILITY_MISSING", retry: never, after: "300", afterMs: "300000"},
		{name: "cancelled", err: k(subjects.KindCancelled, "stopped"), status: 499, typ: "cancelled", code: "cancelled", kind: "CANCELLED", retry: never},
		{name: "absurd status", err: withStatus(k(subjects.KindProvider, "?"), 77), status: 502, typ: "server_error", code: "provider_error", kind: "PROVIDER_ERROR", retry: never},
		{name: "foreign", err: fmt.Errorf("secret detail"), status: 502, typ: "server_error", code: "provider_error", kind: "PROVIDER_ERROR", retry: never, ownCallID: true},
		{name: "deadline", err: context.DeadlineExceeded, status: 504, typ: "server_error", code: "timeout", kind: "TIMEOUT", retry: never, ownCallID: true},
	}
}

func TestEveryKindIsATestCase(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range errorCases() {
		seen[c.kind] = true
	}
	for _, k := range subjects.Kinds() {
		if !seen[string(k)] {
			t.Errorf("no case for %s", k)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range errorCases() {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, failing(tt.err), edge.Options{})
			for _, body := range []string{chatBody, chatStream} {
				a := r.post(t, "/v1/chat/completions", body, "X-LLM-Call-Id", "mine")
				checkErrorHead(t, tt, a)
				e := a.errorOf(t)
				if e["type"] != tt.typ || e["code"] != tt.code || e["kind"] != tt.kind || e["message"] == "" {
					t.Errorf("OpenAI form: %s", a.body)
				}
				if p, ok := e["param"]; p != nil || !ok {
					t.Errorf("param must be there and null: %s", a.body)
				}
			}
			for _, body := range []string{nativeBody, `{"stream":true}`} {
				a := r.post(t, "/api/complete", body, "X-LLM-Call-Id", "mine")
				checkErrorHead(t, tt, a)
				if e := a.errorOf(t); e["kind"] != tt.kind || e["type"] != nil {
					t.Errorf("native form: %s", a.body)
				}
			}
		})
	}
}

func checkErrorHead(t *testing.T, tt errorCase, a *answer) {
	t.Helper()
	id := "call-1"
	if tt.ownCallID {
		id = "mine"
	}
	for _, h := range []struct{ name, want string }{
		{"Content-Type", "application/json"},
		{"x-should-retry", tt.retry},
		{"Retry-After", tt.after},
		{"retry-after-ms", tt.afterMs},
		{"X-LLM-Call-Id", id},
		{"X-Request-Id", id},
	} {
		if got := a.header.Get(h.name); got != h.want {
			t.Errorf("%s: %q, want %q", h.name, got, h.want)
		}
	}
	if a.status != tt.status {
		t.Errorf("status %d, want %d", a.status, tt.status)
	}
	e := a.errorOf(t)
	if e["callId"] != id {
		t.Errorf("callId %v, want %s", e["callId"], id)
	}
	if !tt.ownCallID && len(e["attempts"].([]any)) != 1 {
		t.Errorf("attempts: %s", a.body)
	}
	if strings.Contains(a.body, "secret detail") {
		t.Errorf("an internal cause is shown: %s", a.body)
	}
}

func TestRateLimitHeadersArePassedOn(t *testing.T) {
	e := callError(subjects.KindRateLimited, "slow down")
	e.RateLimit = map[string]string{
		"x-ratelimit-remaining-requests": "0", "anthropic-ratelimit-tokens-reset": "2026-01-01T00:00:00Z",
		"set-cookie": "no", "x-ratelimit-bad": "a\r\nb", "X-RateLimit Bad": "no", "content-length": "3",
		"x-quota-snapshot-premium_interactions": "ent=300&rem=35.5", "x-usage-ratelimit-weekly": "rem=40", "x-quota": "no",
	}
	a := start(t, failing(e), edge.Options{}).post(t, "/v1/chat/completions", chatBody)
	for name, want := range map[string]string{
		"x-ratelimit-remaining-requests": "0", "anthropic-ratelimit-tokens-reset": "2026-01-01T00:00:00Z",
		"Set-Cookie": "", "x-ratelimit-bad": "a%0D%0Ab",
		"x-quota-snapshot-premium_interactions": "ent=300&rem=35.5", "x-usage-ratelimit-weekly": "rem=40", "x-quota": "",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if a.header.Get("X-LLM-Provider") != "groq" {
		t.Errorf("provider: %v", a.header)
	}
}

func TestMidStreamErrors(t *testing.T) {
	for _, tt := range []struct{ path, body, want string }{
		{"/v1/chat/completions", chatStream, `"type":"rate_limit_exceeded"`},
		{"/api/complete", `{"stream":true}`, `"kind":"RATE_LIMITED"`},
	} {
		r := start(t, streaming(callError(subjects.KindRateLimited, "slow down"), nil, `{"n":1}`), edge.Options{})
		a := r.post(t, tt.path, tt.body)
		lines := strings.Split(strings.TrimSpace(a.body), "\n\n")
		if a.status != 200 || len(lines) != 2 || lines[0] != `data: {"n":1}` || !strings.HasPrefix(lines[1], `data: {"error":{`) ||
			!strings.Contains(lines[1], tt.want) || !strings.Contains(lines[1], `"callId":"call-1"`) {
			t.Errorf("%s: %d %q", tt.path, a.status, a.body)
		}
		if strings.Contains(a.body, "[DONE]") {
			t.Errorf("%s: a broken stream says it is done", tt.path)
		}
	}
}

func TestPanics(t *testing.T) {
	const prompt = "my secret prompt"
	var nothing map[string]string
	for name, blow := range map[string]func(){
		"words":   func() { panic(prompt) },
		"runtime": func() { nothing["x"] = prompt },
	} {
		t.Run(name, func(t *testing.T) {
			log, out := logged(slog.LevelDebug)
			f := &fake{request: func(context.Context, *subjects.Msg) (*subjects.Msg, error) { blow(); return nil, nil }}
			f.stream = func(_ context.Context, _ *subjects.Msg, yield func(*subjects.Msg) error) error {
				_ = yield(&subjects.Msg{Data: []byte(`{"n":1}`)})
				blow()
				return nil
			}
			r := start(t, f, edge.Options{Logger: log})
			a := r.post(t, "/v1/chat/completions", chatBody, "X-LLM-Call-Id", "panic-id")
			if e := a.errorOf(t); a.status != 500 || e["type"] != "server_error" || e["callId"] != "panic-id" {
				t.Errorf("got %d %s", a.status, a.body)
			}
			a = r.post(t, "/v1/chat/completions", chatStream)
			if a.status != 200 || !strings.Contains(a.body, "data: {\"error\":") || strings.Contains(a.body, "[DONE]") {
				t.Errorf("stream: %d %s", a.status, a.body)
			}
			if s := out.String(); !strings.Contains(s, "panic-id") || !strings.Contains(s, "errors_test.go") || strings.Contains(s, prompt) {
				t.Errorf("log: %s", s)
			}
		})
	}
}

func TestAccessLogIsForDebugAndHoldsNoSecret(t *testing.T) {
	log, out := logged(slog.LevelDebug)
	r := start(t, replying(chatReply, nil), edge.Options{Logger: log})
	r.post(t, "/v1/chat/completions?token=sesame", chatBody, "Authorization", "Bearer sk-secret", "X-LLM-Call-Id", "abc")
	r.get(t, "/sk-secret")
	sc := bufio.NewScanner(strings.NewReader(out.String()))
	lines := 0
	for sc.Scan() {
		lines++
	}
	s := out.String()
	if lines != 2 || !strings.Contains(s, `"call_id":"abc"`) || !strings.Contains(s, `"status":200`) || !strings.Contains(s, `"status":404`) {
		t.Errorf("log: %s", s)
	}
	for _, secret := range []string{"secret", "sesame", `"hi"`} {
		if strings.Contains(s, secret) {
			t.Errorf("the log has %q: %s", secret, s)
		}
	}
	log, out = logged(slog.LevelInfo)
	start(t, replying(chatReply, nil), edge.Options{Logger: log}).post(t, "/v1/chat/completions", chatBody)
	if out.String() != "" {
		t.Errorf("logged above debug: %s", out.String())
	}
}

func TestErrorsAreNotChanged(t *testing.T) {
	shared := subjects.Errorf(subjects.KindPoolFull, "full")
	start(t, failing(shared), edge.Options{}).post(t, "/v1/chat/completions", chatBody)
	if shared.CallID != "" {
		t.Error("an error that other calls share was changed")
	}
}
