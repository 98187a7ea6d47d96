package anthropic

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-ant-api03-S3CR3T"

func configFor(url string) *config.Provider {
	return &config.Provider{
		ID: "anthropic", BaseURL: url + "/v1", APIKeyEnv: "ANTHROPIC_API_KEY", APIKey: config.NewSecret(key), IdleTimeout: time.Minute,
	}
}

func fake(t testing.TB, h http.HandlerFunc) *rest.Provider {
	t.Helper()
	s := httptest.NewServer(h)
	p := New(configFor(s.URL), rest.Options{Version: "9.9"})
	t.Cleanup(func() {
		p.Close()
		s.Close()
	})
	return p
}

func job(t testing.TB, name wire.Name, body string) *providers.Job {
	t.Helper()
	r, err := wire.Parse(name, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return &providers.Job{Request: r, Model: "claude-haiku-4-5"}
}

const (
	nativeHi = `{"messages":[{"role":"user","content":"hi"}],"maxTokens":5,"seed":1}`
	answer   = `{"id":"msg_1","type":"message","role":"assistant","model":"claude-haiku-4-5-20251001","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":6,"cache_read_input_tokens":4,"cache_creation_input_tokens":0,"output_tokens":2},"new":true}`
)

func event(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }

var (
	start = event("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-haiku-4-5-20251001","content":[],"usage":{"input_tokens":6,"cache_read_input_tokens":4,"output_tokens":1}}}`)
	hello = event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`) +
		event("ping", `{"type":"ping"}`) +
		event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hel"}}`) +
		event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"lo"}}`) +
		event("content_block_stop", `{"type":"content_block_stop","index":0}`)
	stop = event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}`)
	end  = event("message_stop", `{"type":"message_stop"}`)
)

var spent = subjects.Usage{InputTokens: 6, OutputTokens: 2, TotalTokens: 8, CacheReadTokens: 4}

func check(t *testing.T, resp *wire.Response) {
	t.Helper()
	if resp.Wire != wire.AnthropicMessages || resp.Usage != spent || !resp.UsageKnown || resp.Model != "claude-haiku-4-5-20251001" ||
		resp.FinishReason != "stop" || resp.OutputBytes != 5 || resp.RateLimit["anthropic-ratelimit-requests-remaining"] != "49" ||
		!slices.Equal(resp.Warnings, []string{"seed is not supported by anthropic and was left out"}) {
		t.Errorf("%+v", resp)
	}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	p := fake(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		want := `{"model":"claude-haiku-4-5","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`
		if string(body) != want {
			t.Errorf("sent %s\nwant %s", body, want)
		}
		h := r.Header
		if r.URL.Path != "/v1/messages" || h.Get("X-Api-Key") != key || h.Get("Anthropic-Version") != "2023-06-01" || h.Get("Authorization") != "" ||
			h.Get("Anthropic-Beta") != "" || h.Get("User-Agent") != "sluice/9.9" {
			t.Errorf("%s %v", r.URL, h)
		}
		w.Header().Set("Anthropic-RateLimit-Requests-Remaining", "49")
		io.WriteString(w, answer)
	})
	resp, err := p.Complete(t.Context(), job(t, wire.Native, nativeHi))
	if err != nil || string(resp.Raw) != answer || resp.Text != "" {
		t.Fatalf("%+v %v", resp, err)
	}
	check(t, resp)
	if err := wire.Decode(resp); err != nil || resp.Text != "hello" {
		t.Errorf("%q %v", resp.Text, err)
	}
}

func TestStream(t *testing.T) {
	t.Parallel()
	p := fake(t, func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); !strings.Contains(string(body), `"stream":true`) {
			t.Errorf("%s", body)
		}
		w.Header().Set("Anthropic-RateLimit-Requests-Remaining", "49")
		io.WriteString(w, start+hello+stop+end)
	})
	var text []string
	resp, err := p.Stream(t.Context(), job(t, wire.Native, strings.Replace(nativeHi, "{", `{"stream":true,`, 1)), func(ev *wire.Event) error {
		text = append(text, strings.Clone(ev.Text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	check(t, resp)
	if !slices.Equal(text, []string{"hel", "lo"}) {
		t.Errorf("%q", text)
	}
	mine := errors.New("mine")
	if _, err := p.Stream(t.Context(), job(t, wire.Native, strings.Replace(nativeHi, "{", `{"stream":true,`, 1)), func(*wire.Event) error { return mine }); err != mine { //nolint:errorlint // returned as it is
		t.Errorf("%v", err)
	}
}

// A caller of the same wire gets every event as it is.
func TestStreamForTheSameWire(t *testing.T) {
	t.Parallel()
	r := Form{}.Reader(&providers.Job{Request: &wire.Request{Wire: wire.AnthropicMessages}})
	var got []string
	var err error
	for _, ev := range strings.Split(strings.TrimSpace(start+hello+stop+end), "\n\n") {
		_, data, _ := strings.Cut(ev, "\ndata: ")
		err = r.Event("", []byte(data), func(ev *wire.Event) error {
			if ev.Text != "" || ev.Wire != wire.AnthropicMessages {
				t.Errorf("%+v", ev)
			}
			got = append(got, string(ev.Raw))
			return nil
		})
	}
	if len(got) != 8 || !errors.Is(err, rest.ErrDone) || !r.Whole() {
		t.Errorf("%q %v", got, err)
	}
}

// A stream is whole with message_stop; else it was cut,
// and what is known of it stands beside the error.
func TestStreamEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body string
		kind subjects.Kind
	}{
		"without message_stop":  {start + hello + stop, subjects.KindProvider},
		"in the middle":         {start + hello, subjects.KindProvider},
		"at once":               {start, subjects.KindProvider},
		"an error":              {start + hello + event("error", `{"type":"error","error":{"details":null,"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}`), subjects.KindProvider},
		"an error, no name":     {start + "data: " + `{"type":"error","error":{"type":"rate_limit_error","message":"x"}}` + "\n\n", subjects.KindRateLimited},
		"blocked":               {start + event("error", `{"type":"error","error":{"details":null,"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}`), subjects.KindContentPolicy},
		"broken":                {start + "data: {\n\n", subjects.KindProvider},
		"only message_stop":     {end, subjects.KindProvider},
		"data without names":    {strings.ReplaceAll(start+hello+stop+end, "event: ", ": "), ""},
		"another kind of event": {start + event("vendor_news", `{"type":"vendor_news"}`) + hello + stop + end, ""},
	} {
		p := fake(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, tc.body) })
		resp, err := p.Stream(t.Context(), job(t, wire.Native, strings.Replace(nativeHi, "{", `{"stream":true,`, 1)), func(*wire.Event) error { return nil })
		if subjects.KindOf(err) != tc.kind || resp == nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if strings.HasPrefix(tc.body, start) && resp.Usage.InputTokens != 6 || tc.kind != "" && resp.UsageKnown && name != "without message_stop" {
			t.Errorf("%s: %+v", name, resp)
		}
	}
}

func TestUnstreamed(t *testing.T) {
	t.Parallel()
	p := fake(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Anthropic-RateLimit-Requests-Remaining", "49")
		io.WriteString(w, answer)
	})
	var text string
	resp, err := p.Stream(t.Context(), job(t, wire.Native, strings.Replace(nativeHi, "{", `{"stream":true,`, 1)), func(ev *wire.Event) error { text += ev.Text; return nil })
	if err != nil || text != "hello" {
		t.Fatalf("%q %v", text, err)
	}
	check(t, resp)
}

func TestFaults(t *testing.T) {
	t.Parallel()
	body := func(kind, message, code string) string {
		details := ""
		if code != "" {
			details = `,"details":{"error_code":"` + code + `"}`
		}
		return `{"type":"error","error":{"type":"` + kind + `","message":"` + message + `"` + details + `},"request_id":"req_1"}`
	}
	const bad = "invalid_request_error"
	for _, tc := range []struct {
		name   string
		status int
		after  string
		body   string
		kind   subjects.Kind
		code   string
		wait   time.Duration
	}{
		{"rate limit", 429, "7", body("rate_limit_error", "This request would exceed your account's rate limit.", ""), subjects.KindRateLimited, "", 7 * time.Second},
		{"growth", 429, "", body("rate_limit_error", "x", "ramp_limit_exceeded"), subjects.KindRateLimited, "", 0},
		{"tier's cap", 429, "", body("rate_limit_error", "x", "enforced_spend_limit_reached"), subjects.KindQuotaExhausted, "", 0},
		{"contract's cap", 429, "", body("rate_limit_error", "x", "contract_spend_limit_reached"), subjects.KindQuotaExhausted, "", 0},
		{"own cap", 400, "", body(bad, "You have reached your specified API usage limits. You will regain access on 2999-01-01 at 00:00 UTC.", ""), subjects.KindQuotaExhausted, "", 24 * time.Hour},
		{"workspace's cap", 400, "", body(bad, "You have reached your specified workspace API usage limits. You will regain access on 2001-01-01 at 00:00 UTC.", ""), subjects.KindQuotaExhausted, "", 0},
		{"Claude Code's cap", 429, "60", body("rate_limit_error", "You have reached your specified workspace API usage limits.", ""), subjects.KindQuotaExhausted, "", time.Minute},
		{"no credit", 400, "", body(bad, "Your credit balance is too low to access the Anthropic API.", ""), subjects.KindQuotaExhausted, "", 0},
		{"billing", 402, "", body("billing_error", "x", ""), subjects.KindQuotaExhausted, "", 0},
		{"key", 401, "", body("authentication_error", "invalid x-api-key", ""), subjects.KindAuth, "", 0},
		{"permission", 403, "", body("permission_error", "x", ""), subjects.KindAuth, "", 0},
		{"bad request", 400, "", body(bad, "temperature: Input should be a valid number", ""), subjects.KindValidation, "", 0},
		{"too long", 400, "", body(bad, "prompt is too long: 210000 tokens > 200000 maximum", ""), subjects.KindValidation, subjects.CodeContextLength, 0},
		{"too long with max_tokens", 400, "", body(bad, "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000", ""), subjects.KindValidation, subjects.CodeContextLength, 0},
		{"too large", 413, "", body("request_too_large", "Request exceeds the maximum size", ""), subjects.KindValidation, subjects.CodeTooLarge, 0},
		{"policy", 400, "", body(bad, "Output blocked by content filtering policy", ""), subjects.KindContentPolicy, "", 0},
		{"model", 404, "", body("not_found_error", "model: claude-2.1", ""), subjects.KindProviderUnavailable, "", 0},
		{"overloaded", 529, "", body("overloaded_error", "Overloaded", ""), subjects.KindProvider, "", 0},
		{"overloaded, no body", 529, "", "", subjects.KindProvider, "", 0},
		{"failure", 500, "", body("api_error", "Internal server error", ""), subjects.KindProvider, "", 0},
		{"timeout", 504, "", body("timeout_error", "x", ""), subjects.KindProvider, "", 0},
		{"conflict", 409, "", body("conflict_error", "x", ""), subjects.KindProvider, "", 0},
		{"inside a success", 200, "", body("overloaded_error", "Overloaded", ""), subjects.KindProvider, "", 0},
		{"no credit inside a success", 200, "", body(bad, "Your credit balance is too low", ""), subjects.KindQuotaExhausted, "", 0},
		{"no message", 200, "", `{"id":"x"}`, subjects.KindProvider, "", 0},
		{"another wire", 200, "", `{"choices":[]}`, subjects.KindProvider, "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := fake(t, func(w http.ResponseWriter, _ *http.Request) {
				if tc.after != "" {
					w.Header().Set("Retry-After", tc.after)
				}
				w.WriteHeader(tc.status)
				io.WriteString(w, tc.body)
			})
			_, err := p.Complete(t.Context(), job(t, wire.Native, nativeHi))
			var e *subjects.Error
			if !errors.As(err, &e) || e.Kind != tc.kind || e.Code != tc.code || e.RetryAfter != tc.wait || e.Provider != "anthropic" {
				t.Errorf("%v %+v", err, e)
			}
			if tc.kind == subjects.KindProviderUnavailable && (e.HTTPStatus != 404 || !strings.Contains(e.Message, `"claude-haiku-4-5"`)) {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestUntilAccess(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 30, 20, 0, 0, 0, time.UTC)
	for message, want := range map[string]time.Duration{
		"You will regain access on 2026-07-01 at 00:00 UTC.": 4 * time.Hour,
		"You will regain access on 2026-99-01 at 00:00 UTC.": 0,
		"soon": 0,
	} {
		if got := untilAccess(message, now); got != want {
			t.Errorf("%s: %v", message, got)
		}
	}
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	p := New(configFor("http://x"), rest.Options{})
	want := []string{"tools", "images", "json_schema", "streaming", "image_urls", "tool_choice"}
	if got := p.Capabilities().Names(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if err := p.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// What the form cannot say is the caller's to hear, before anything is sent.
func TestRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	p := fake(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	for body, kind := range map[string]subjects.Kind{
		`{"messages":[{"role":"user","content":""}]}`: subjects.KindValidation,
		`{"messages":[{"role":"system","content":[{"type":"image","imageUrl":"https://x/y"}]},{"role":"user","content":"x"}]}`: subjects.KindValidation,
	} {
		if _, err := p.Complete(t.Context(), job(t, wire.Native, body)); subjects.KindOf(err) != kind || !strings.Contains(err.Error(), "messages") {
			t.Errorf("%s: %v", body, err)
		}
	}
}
