package gemini

import (
	"fmt"
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

const key = "AIza-test-S3CR3T-key"

func fake(t testing.TB, h http.HandlerFunc) *rest.Provider {
	t.Helper()
	s := httptest.NewServer(h)
	p := New(&config.Provider{
		ID: "gemini", BaseURL: s.URL + "/v1beta", APIKeyEnv: "GOOGLE_API_KEY", APIKey: config.NewSecret(key), IdleTimeout: time.Minute,
	}, rest.Options{Version: "7"})
	t.Cleanup(func() {
		p.Close()
		s.Close()
	})
	return p
}

func job(t testing.TB, model, body string) *providers.Job {
	t.Helper()
	r, err := wire.Parse(wire.Native, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return &providers.Job{Request: r, Model: model}
}

const (
	hi     = `{"messages":[{"role":"user","content":"hi"}],"maxTokens":5,"seed":4294967296}`
	answer = `{"candidates":[{"content":{"parts":[{"text":"hello"}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":2,"thoughtsTokenCount":3,"totalTokenCount":15},"modelVersion":"gemini-2.5-flash-001"}`
)

var (
	usage    = subjects.Usage{InputTokens: 6, CacheReadTokens: 4, OutputTokens: 5, ReasoningTokens: 3, TotalTokens: 11}
	warnings = []string{"a seed of more than 32 bits is not supported by gemini and was left out"}
)

func TestComplete(t *testing.T) {
	t.Parallel()
	for model, path := range map[string]string{
		"gemini-2.5-flash":        "/v1beta/models/gemini-2.5-flash:generateContent",
		"models/gemini-2.5-flash": "/v1beta/models/gemini-2.5-flash:generateContent",
	} {
		p := fake(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if want := `{"contents":[{"role":"user","parts":[{"text":"hi"}]}],"generationConfig":{"maxOutputTokens":5}}`; string(body) != want {
				t.Errorf("sent %s\nwant %s", body, want)
			}
			if r.URL.RequestURI() != path || r.Header.Get("X-Goog-Api-Key") != key || r.Header.Get("Authorization") != "" || r.Header.Get("User-Agent") != "sluice/7" {
				t.Errorf("%s %v", r.URL, r.Header)
			}
			io.WriteString(w, answer)
		})
		resp, err := p.Complete(t.Context(), job(t, model, hi))
		if err != nil {
			t.Fatal(err)
		}
		if resp.Text != "hello" || resp.Usage != usage || !resp.UsageKnown || resp.Model != "gemini-2.5-flash-001" || resp.FinishReason != "stop" || !slices.Equal(resp.Warnings, warnings) {
			t.Errorf("%+v", resp)
		}
	}
}

func chunk(parts, more string) string {
	return `data: {"candidates": [{"content": {"parts": [` + parts + `],"role": "model"},"index": 0` + more + `}],"usageMetadata": {"promptTokenCount": 10,"cachedContentTokenCount": 4,"candidatesTokenCount": 2,"thoughtsTokenCount": 3},"modelVersion": "gemini-2.5-flash-001"}` + "\r\n\r\n"
}

func text(s string) string { return `{"text": "` + s + `"}` }

const stopped = `,"finishReason": "STOP"`

func TestStream(t *testing.T) {
	t.Parallel()
	he := chunk(text("he"), "")
	for name, tc := range map[string]struct {
		body        string
		cut         bool
		kind        subjects.Kind
		says, wants string
		finish      string
	}{
		"whole":                         {he + chunk(text("llo"), stopped), false, "", "", "hello", "stop"},
		"the reason in a last chunk":    {he + chunk(text("llo"), "") + chunk(text(""), stopped), false, "", "", "hello", "stop"},
		"no blank line at the end":      {he + strings.TrimRight(chunk(text("llo"), stopped), "\r\n"), false, "", "", "hello", "stop"},
		"usage after the end":           {he + chunk(text("llo"), stopped) + `data: {"usageMetadata":{"promptTokenCount":10}}` + "\n\n", false, "", "", "hello", "stop"},
		"a gateway's end":               {he + chunk(text("llo"), stopped) + "data: [DONE]\n\n", false, "", "", "hello", "stop"},
		"a gateway's end alone":         {he + "data: [DONE]\n\n", false, subjects.KindProvider, "ended early", "he", ""},
		"a call":                        {chunk(`{"functionCall":{"name":"f","args":{"a":1}}}`, stopped), false, "", "", `f{"a":1}`, "tool_calls"},
		"a filter":                      {he + chunk("", `,"finishReason":"SAFETY"`), false, "", "", "he", "content_filter"},
		"no finish reason":              {he, false, subjects.KindProvider, "ended early", "he", ""},
		"nothing":                       {"", false, subjects.KindProvider, "ended early", "", ""},
		"cut":                           {he, true, subjects.KindProvider, "was cut", "he", ""},
		"cut in an event":               {he + `data: {"candi`, false, subjects.KindProvider, "broken JSON", "he", ""},
		"a page":                        {"<html></html>", false, subjects.KindProvider, "web page", "", ""},
		"an error in it":                {he + `data: {"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}` + "\n\n", false, subjects.KindProvider, "overloaded", "he", ""},
		"an error in a list":            {he + `data: [{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","status":"RESOURCE_EXHAUSTED"}}]` + "\n\n", false, subjects.KindRateLimited, "exhausted", "he", ""},
		"an error without data:":        {he + "{\n \"error\": {\n  \"code\": 429,\n  \"message\": \"Resource has been exhausted.\",\n  \"status\": \"RESOURCE_EXHAUSTED\"\n }\n}\n", false, subjects.KindRateLimited, "exhausted", "he", ""},
		"a malformed call":              {he + chunk("", `,"finishReason":"MALFORMED_FUNCTION_CALL"`), false, subjects.KindProvider, "MALFORMED_FUNCTION_CALL", "he", ""},
		"a blocked prompt":              {`data: {"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":2,"thoughtsTokenCount":3},"modelVersion":"gemini-2.5-flash-001"}` + "\n\n", false, subjects.KindContentPolicy, "SAFETY", "", ""},
		"a server that does not stream": {answer, false, "", "", "hello", "stop"},
		"one that ignores alt=sse":      {"[" + strings.TrimPrefix(he, "data: ") + ",\n" + strings.TrimPrefix(chunk(text("llo"), stopped), "data: ") + "]", false, "", "", "hello", "stop"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fake(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RequestURI() != "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse" {
					t.Errorf("asked for %s", r.URL)
				}
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, tc.body)
				if tc.cut {
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				}
			})
			var got strings.Builder
			resp, err := p.Stream(t.Context(), job(t, "gemini-2.5-flash", hi), func(ev *wire.Event) error {
				got.WriteString(ev.Text)
				if ev.ToolCall != nil {
					got.WriteString(ev.ToolCall.Name + ev.ToolCall.Arguments)
				}
				return nil
			})
			if subjects.KindOf(err) != tc.kind || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %q with %q", err, tc.kind, tc.says)
			}
			if got.String() != tc.wants || resp.FinishReason != tc.finish {
				t.Errorf("got %q, finish %q", got.String(), resp.FinishReason)
			}
			if known := tc.body != "" && tc.body[0] != '<'; known && (resp.Usage != usage || resp.Model != "gemini-2.5-flash-001" || !slices.Equal(resp.Warnings, warnings)) {
				t.Errorf("%+v", resp)
			}
		})
	}
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	p := fake(t, nil)
	want := []string{"tools", "images", "json_object", "json_schema", "streaming", "tool_choice"}
	if got := p.Capabilities().Names(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if err := p.Check(t.Context()); err != nil {
		t.Error(err)
	}
	bare := New(&config.Provider{ID: "gemini", BaseURL: "https://x/v1beta", APIKeyEnv: "GOOGLE_API_KEY"}, rest.Options{})
	if err := bare.Check(t.Context()); subjects.KindOf(err) != subjects.KindProviderUnavailable || !strings.Contains(err.Error(), "GOOGLE_API_KEY is not set") {
		t.Error(err)
	}
}

// A model's id becomes a part of the path; one that would lead elsewhere is not
// sent, and the call moves on.
func TestModelsThatAreNoNames(t *testing.T) {
	t.Parallel()
	p := fake(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) })
	for _, model := range []string{
		"", ".", "..", "models/", "models/..", "a/b", "google/gemini-2.5-pro", "tunedModels/x", "../openai/x", "a?key=b", "a#b", "a%2fb", "a:countTokens", "a b", "é", "a\x00", "a\\b",
	} {
		for _, call := range []func() error{
			func() error { _, err := p.Complete(t.Context(), job(t, model, hi)); return err },
			func() error {
				_, err := p.Stream(t.Context(), job(t, model, hi), func(*wire.Event) error { return nil })
				return err
			},
		} {
			e := subjects.AsError(call())
			if e == nil || e.Kind != subjects.KindProviderUnavailable || e.Status() != 404 || e.Provider != "gemini" {
				t.Errorf("%q: %v", model, e)
			}
		}
	}
}

func TestWhatCannotBeSaid(t *testing.T) {
	t.Parallel()
	p := fake(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) })
	_, err := p.Complete(t.Context(), job(t, "gemini-2.5-pro", `{"messages":[{"role":"user","content":"hi"}],"stop":["1","2","3","4","5","6"]}`))
	if e := subjects.AsError(err); e.Kind != subjects.KindProviderUnavailable || e.Status() != 422 || e.Provider != "gemini" {
		t.Error(err)
	}
	_, err = p.Complete(t.Context(), job(t, "gemini-2.5-pro", `{"messages":[{"role":"tool","toolCallId":"1","content":"hi"}]}`))
	if subjects.KindOf(err) != subjects.KindValidation || !strings.Contains(err.Error(), "messages[0].toolCallId") {
		t.Error(err)
	}
}

// The prompt's tokens of a blocked prompt are paid for: they come with the error.
func TestBlockedPromptHasItsUsage(t *testing.T) {
	t.Parallel()
	p := fake(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":9,"totalTokenCount":9},"modelVersion":"gemini-2.5-flash"}`)
	})
	resp, err := p.Complete(t.Context(), job(t, "gemini-2.5-flash", hi))
	e := subjects.AsError(err)
	if e == nil || e.Kind != subjects.KindContentPolicy || e.Code != "PROHIBITED_CONTENT" || e.Provider != "gemini" {
		t.Fatal(err)
	}
	if resp == nil || resp.Usage.InputTokens != 9 || !resp.UsageKnown {
		t.Errorf("%+v", resp)
	}
	if strings.Contains(fmt.Sprintf("%+v", err), key) {
		t.Error("the key is shown")
	}
}
