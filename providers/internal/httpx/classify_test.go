package httpx

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/subjects"
)

const (
	valid       = subjects.KindValidation
	policy      = subjects.KindContentPolicy
	auth        = subjects.KindAuth
	quota       = subjects.KindQuotaExhausted
	rate        = subjects.KindRateLimited
	broken      = subjects.KindProvider
	unavailable = subjects.KindProviderUnavailable
)

// The recorded forms of WIRE.md, section D.
var failures = []struct {
	name   string
	status int
	body   string
	kind   subjects.Kind
	text   string
}{
	{"OpenAI rate limit", 429, `{"error":{"message":"Rate limit reached for gpt-4o. Please try again in 20s.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, rate, "Rate limit reached"},
	{"OpenAI quota", 429, `{"error":{"message":"You exceeded your current quota, please check your plan","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, quota, "exceeded your current quota"},
	{"OpenAI billing", 429, `{"error":{"message":"x","type":"billing","code":"billing_hard_limit_reached"}}`, quota, ""},
	{"OpenAI not active", 429, `{"error":{"message":"x","type":"billing_not_active","code":"billing_not_active"}}`, quota, ""},
	{"quota by type, status of another", 403, `{"error":{"message":"x","type":"insufficient_quota"}}`, quota, ""},
	{"payment required", 402, `{"error":{"message":"Insufficient Balance","code":"invalid_request_error"}}`, quota, "Insufficient Balance"},
	{"Ollama cloud, weekly", 429, `{"error":"you (x) have reached your weekly usage limit, please upgrade"}`, quota, "weekly"},
	{"GitHub Models, per day", 429, `{"error":{"code":"RateLimitReached","message":"Rate limit of 50 per 86400s exceeded for UserByModelByDay. Please wait 52220 seconds before retrying.","details":"x"}}`, quota, "UserByModelByDay"},
	{"GitHub Models, per minute", 429, `{"error":{"code":"RateLimitReached","message":"Rate limit of 10 per 60s exceeded for UserByModelByMinute. Please wait 4 seconds before retrying.","details":"x"}}`, rate, ""},
	{"Gemini per day", 429, `[{"error":{"code":429,"message":"You exceeded a limit","status":"RESOURCE_EXHAUSTED","details":[{"@type":"QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]}}]`, quota, ""},
	{"Gemini per minute", 429, `[{"error":{"code":429,"message":"Slow","status":"RESOURCE_EXHAUSTED","details":[{"@type":"QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]}]}}]`, rate, "Slow"},
	{"Gemini bad key", 400, `[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}]`, auth, "OPENAI_API_KEY"},
	{"429 without a body", 429, ``, rate, "answered 429 Too Many Requests"},

	{"bad key", 401, `{"error":{"message":"Incorrect API key provided: sk-proj-abcdefgh1234.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`, auth, "the key from OPENAI_API_KEY was refused: Incorrect API key provided: ***"},
	{"no access", 403, `{"error":{"message":"You are not allowed","type":"invalid_request_error","code":null}}`, auth, "not allowed"},
	{"403 page", 403, "<html>blocked</html>", auth, "with a web page"},

	{"OpenAI context", 400, `{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, valid, "maximum context length"},
	{"llama.cpp context", 400, `{"error":{"code":400,"message":"request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9412,"n_ctx":8192}}`, valid, "9412 tokens"},
	{"llama.cpp context as 500", 500, `{"error":{"code":500,"message":"too long","type":"exceed_context_size_error"}}`, valid, ""},
	{"GitHub Models size", 413, `{"error":{"code":"tokens_limit_reached","message":"Request body too large for gpt-4o model. Max size: 8000 tokens.","details":"x"}}`, valid, "Max size"},
	{"Groq, above the minute's tokens", 413, `{"error":{"message":"Request too large for model x on tokens per minute (TPM): Limit 6000, Requested 7000","type":"tokens","code":"rate_limit_exceeded"}}`, rate, ""},
	{"413", 413, `<html><head><title>413 Request Entity Too Large</title></head></html>`, valid, "answered 413 with a web page"},
	{"400", 400, `{"error":{"message":"Unsupported value: 'temperature'","type":"invalid_request_error","param":"temperature","code":"unsupported_value"}}`, valid, "Unsupported value"},
	{"422 FastAPI", 422, `{"detail":[{"loc":["body","n"],"msg":"value is not valid","type":"int"}]}`, valid, "value is not valid"},
	{"vLLM flat", 400, `{"object":"error","message":"bad thing","type":"BadRequestError","param":null,"code":400}`, valid, "bad thing"},
	{"DMR plain text", 400, "invalid request\n", valid, "invalid request"},

	{"content policy", 400, `{"error":{"message":"Your request was rejected by our safety system.","type":"invalid_request_error","code":"content_policy_violation"}}`, policy, ""},
	{"invalid prompt", 400, `{"error":{"message":"x","type":"invalid_request_error","code":"invalid_prompt"}}`, policy, ""},
	{"Azure filter", 400, `{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}`, policy, ""},

	{"model not found", 404, `{"error":{"message":"The model 'gpt-9' does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}`, unavailable, `the model "m-1" is not there`},
	{"Ollama model", 404, `{"error":"model 'x' not found"}`, unavailable, `the model "m-1" is not there`},
	{"DMR model", 404, "model not found", unavailable, `the model "m-1" is not there`},
	{"wrong path", 404, `404 page not found`, unavailable, "is the base URL right?"},
	{"wrong path, page", 404, `<html>model</html>`, unavailable, "is the base URL right?"},
	{"DMR backend", 412, "backend not installed", unavailable, "backend not installed"},
	{"redirect", 308, ``, unavailable, "redirects (308)"},

	{"500", 500, `{"error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}`, broken, "The server had an error"},
	{"503 overloaded", 503, `{"error":{"message":"That model is overloaded","type":"server_error"}}`, broken, ""},
	{"503 loading", 503, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, broken, "Loading model"},
	{"529", 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, broken, "Overloaded"},
	{"502 page", 502, "<!DOCTYPE html><html><title>502 Bad Gateway</title></html>", broken, "answered 502 with a web page"},
	{"504", 504, ``, broken, "504 Gateway Timeout"},
	{"408", 408, ``, broken, ""},
	{"498 flex", 498, `{"error":{"message":"Flex tier capacity exceeded","type":"x"}}`, broken, ""},
	{"broken JSON", 500, `{"error":{"mess`, broken, ""},
	{"an unknown status", 600, ``, broken, ""},
}

func TestClassify(t *testing.T) {
	c := New(Options{Transport: http.DefaultTransport})
	r := &Request{URL: mustURL("https://api.example/v1/chat/completions"), Key: "OPENAI_API_KEY", Model: "m-1"}
	for _, tc := range failures {
		t.Run(tc.name, func(t *testing.T) {
			e := c.classify(r, &http.Response{StatusCode: tc.status, Header: http.Header{}}, []byte(tc.body))
			if e.Kind != tc.kind || !strings.Contains(e.Message, tc.text) {
				t.Errorf("got %v, want %s with %q", e, tc.kind, tc.text)
			}
			if notThere := strings.Contains(tc.text, "is not there"); notThere != (e.HTTPStatus == 404) {
				t.Errorf("HTTPStatus = %d", e.HTTPStatus)
			}
		})
	}
}

func TestErrorInASuccess(t *testing.T) {
	c := New(Options{Transport: http.DefaultTransport})
	for _, tc := range []struct {
		body string
		kind subjects.Kind
	}{
		{`{"error":{"message":"upstream died","type":"server_error","code":"overloaded"}}`, broken},
		{`{"error":{"code":429,"message":"slow down"}}`, rate},
		{`{"error":{"code":"rate_limit_exceeded","message":"slow down"}}`, rate},
		{`{"error":{"type":"invalid_request_error","message":"no"}}`, valid},
		{`{"error":{"code":400,"type":"exceed_context_size_error","message":"no"}}`, valid},
		{`{"error":{"code":"insufficient_quota"}}`, quota},
		{`{"error":{"code":502,"message":"Provider returned error","metadata":{}},"user_id":"x"}`, broken},
		{`{"error":"something"}`, broken},
		{`[{"error":{"code":503,"status":"UNAVAILABLE"}}]`, broken},
		{`{"error":null,"choices":[]}`, ""},
		{`{"error":{},"choices":[]}`, ""},
		{`{"choices":[]}`, ""},
	} {
		e := c.ErrorIn(&Request{URL: mustURL("https://x")}, []byte(tc.body))
		if (e == nil) != (tc.kind == "") || e != nil && e.Kind != tc.kind {
			t.Errorf("%s: %v, want %q", tc.body, e, tc.kind)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		header, value, body string
		want                time.Duration
	}{
		{"Retry-After", "20", "", 20 * time.Second},
		{"Retry-After", "0.5", "", 500 * time.Millisecond},
		{"Retry-After", "6m0s", "", 6 * time.Minute},
		{"Retry-After", "Fri, 02 Jan 2026 03:05:05 GMT", "", time.Minute},
		{"Retry-After", "Fri, 02 Jan 2026 03:00:00 GMT", "", 0},
		{"Retry-After", "-5", "", 0},
		{"Retry-After", "NaN", "", 0},
		{"Retry-After", "1e300", "", 24 * time.Hour},
		{"Retry-After", "9999999", "", 24 * time.Hour},
		{"Retry-After", "soon", "", 0},
		{"Retry-After-Ms", "300", "", 300 * time.Millisecond},
		{"X", "", `{"error":{"details":[{"@type":"Help"},{"@type":"RetryInfo","retryDelay":"37s"}]}}`, 37 * time.Second},
		{"X", "", `[{"error":{"details":[{"retryDelay":"1.5s"}]}}]`, 1500 * time.Millisecond},
		{"X", "", "", 0},
	} {
		h := http.Header{}
		h.Set(tc.header, tc.value)
		if got := retryAfter(h, []byte(tc.body), now); got != tc.want {
			t.Errorf("%s: %q %s = %v, want %v", tc.header, tc.value, tc.body, got, tc.want)
		}
	}
	h := http.Header{}
	h.Set("X-RateLimit-Remaining-Requests", "0")
	h.Set("X-RateLimit-Reset-Requests", "120ms")
	h.Set("X-RateLimit-Remaining-Tokens", "5")
	h.Set("X-RateLimit-Reset-Tokens", "6m0s")
	if got := retryAfter(h, nil, now); got != 120*time.Millisecond {
		t.Errorf("by reset: %v", got)
	}
}

// Anthropic's limits have their resets as dates; only what is used up counts.
func TestRetryAfterOfAnthropicsLimits(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h := http.Header{}
	for what, v := range map[string][2]string{
		"requests":      {"12", "2026-01-02T09:00:00Z"},
		"tokens":        {"0", "soon"},
		"input-tokens":  {"0", "2026-01-02T03:04:35Z"},
		"output-tokens": {"0", "2026-01-02T04:04:50+01:00"},
	} {
		h.Set("anthropic-ratelimit-"+what+"-remaining", v[0])
		h.Set("anthropic-ratelimit-"+what+"-reset", v[1])
	}
	if got := retryAfter(h, nil, now); got != 45*time.Second {
		t.Errorf("by reset: %v", got)
	}
	if got := rateLimit(h, ""); len(got) != 8 || got["anthropic-ratelimit-requests-remaining"] != "12" {
		t.Errorf("%v", got)
	}
	h.Set("Retry-After", "7")
	if got := retryAfter(h, nil, now); got != 7*time.Second {
		t.Errorf("beside Retry-After: %v", got)
	}
}

func TestRateLimitHeaders(t *testing.T) {
	h := http.Header{"X-Request-Id": {"r"}}
	h.Set("x-ratelimit-remaining-tokens", "149984")
	h.Set("x-ratelimit-reset-requests", "1s\x00")
	got := rateLimit(h, "")
	if len(got) != 2 || got["x-ratelimit-remaining-tokens"] != "149984" || got["x-ratelimit-reset-requests"] != "1s" {
		t.Errorf("%v", got)
	}
	for i := range 100 {
		h.Set("x-ratelimit-"+strings.Repeat("a", i), strings.Repeat("v", 1000))
	}
	if got = rateLimit(h, ""); len(got) != maxRateHeaders {
		t.Errorf("%d headers are kept", len(got))
	}
	h = http.Header{}
	h.Set("x-ratelimit-key", strings.Repeat("é", maxRateValue/2-4)+"plain-secret-1") // cut in the middle of the key, or of a letter
	if got = rateLimit(h, "plain-secret-1"); strings.Contains(got["x-ratelimit-key"], "plain") || !strings.HasSuffix(got["x-ratelimit-key"], "é***") {
		t.Errorf("%q", got)
	}
	if rateLimit(http.Header{"A": {"b"}}, "") != nil {
		t.Error("a map for nothing")
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"a\n\tb\x00c ":                              "a b c",
		"key sk-proj-AbC123_x-y is bad":             "key *** is bad",
		"key sk-abc***xyz, gsk_12345678 ghp_abcd12": "key ***, *** ***",
		"github_pat_11ABC_x AIzaSyD-123456":         "*** ***",
		"Authorization: Bearer abcdef.ghi":          "Authorization: ***",
		"the key is hunter22!":                      "the key is ***!",
		"eyJhbGciOi.eyJzdWIi.sig":                   "***",
		"ask-me-anything about task-1234":           "ask-me-anything about task-1234",
		"bad \xff utf":                              "bad \uFFFD utf",
	} {
		if got := Clean(in, "hunter22"); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
	if got := Clean(strings.Repeat("é", 10_000), ""); utf8.RuneCountInString(got) != maxMessage+1 {
		t.Errorf("%d characters", utf8.RuneCountInString(got))
	}
}

// FuzzClassify holds that any answer becomes a bounded error of a known kind
// that does not show the key.
func FuzzClassify(f *testing.F) {
	for _, tc := range failures {
		f.Add(tc.status, tc.body, "20")
	}
	c := New(Options{Transport: http.DefaultTransport})
	r := &Request{URL: mustURL("https://api.example/v1"), Secret: "S3CR3T-KEY", Key: "K", Model: "m"}
	f.Fuzz(func(t *testing.T, status int, body, wait string) {
		h := http.Header{"Retry-After": {wait}}
		e := c.classify(r, &http.Response{StatusCode: status, Header: h}, []byte(body+" S3CR3T-KEY"))
		if !e.Kind.Known() || utf8.RuneCountInString(e.Message) > maxMessage+200 || !utf8.ValidString(e.Message) {
			t.Fatalf("%v", e)
		}
		if strings.Contains(e.Message, "S3CR3T-KEY") {
			t.Fatalf("the key is shown: %v", e)
		}
		if e.RetryAfter < 0 || e.RetryAfter > maxRetryAfter {
			t.Fatalf("retry after %v", e.RetryAfter)
		}
		c.ErrorIn(r, []byte(body))
	})
}

// TestRefine: an API's own knowledge comes first, with its remedy and its status.
func TestRefine(t *testing.T) {
	t.Parallel()
	c := New(Options{Refine: func(f *Failure) (subjects.Kind, bool) {
		f.Remedy = "fetch " + f.Model
		if f.Status == http.StatusBadRequest {
			f.ShowStatus = http.StatusUnprocessableEntity
			return unavailable, true
		}
		return "", false
	}})
	for status, want := range map[int]struct {
		kind   subjects.Kind
		status int
		text   string
	}{
		400: {unavailable, 422, "no such model; fetch m"},
		404: {unavailable, 404, `the model "m" is not there: no such model; fetch m`},
		500: {broken, 502, "no such model; fetch m"},
	} {
		resp := &http.Response{StatusCode: status, Header: http.Header{}}
		e := c.classify(request("http://x"), resp, []byte(`{"error":"no such model"}`))
		if e.Kind != want.kind || e.Status() != want.status || e.Message != want.text {
			t.Errorf("%d: %s %d %q", status, e.Kind, e.Status(), e.Message)
		}
	}
}
