package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/formtest"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-test-S3CR3T"

func configFor(url string) *config.Provider {
	return &config.Provider{
		ID: "openai", BaseURL: url + "/v1", APIKeyEnv: "OPENAI_API_KEY", APIKey: config.NewSecret(key),
		StreamUsage: true, IdleTimeout: time.Minute,
	}
}

func fake(t testing.TB, h http.HandlerFunc) *Provider {
	t.Helper()
	return formtest.Serve(t, h, func(url string) *Provider { return New(configFor(url), rest.Options{}) })
}

func job(t testing.TB, name wire.Name, body string) *providers.Job {
	t.Helper()
	return formtest.Job(t, name, "gpt-4o", body)
}

const (
	nativeHi = `{"messages":[{"role":"user","content":"hi"}],"maxTokens":5}`
	openAIHi = `{"model":"auto","messages":[{"role":"user","content":"hi"}],"unknown_field":{"x":1}}`

	answer = `{"id":"1","object":"chat.completion","model":"gpt-4o-2024-08-06","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":4}},"new":true}`
)

func TestComplete(t *testing.T) {
	for _, tc := range []struct {
		wire       wire.Name
		body, sent string
	}{
		{wire.Native, nativeHi, `{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}],"max_tokens":5}`},
		{wire.OpenAIChat, openAIHi, `{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}],"unknown_field":{"x":1}}`},
	} {
		p := fake(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if string(body) != tc.sent {
				t.Errorf("sent %s\nwant %s", body, tc.sent)
			}
			if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer "+key {
				t.Errorf("%s %v", r.URL, r.Header)
			}
			w.Header().Set("X-RateLimit-Limit-Tokens", "7")
			io.WriteString(w, answer)
		})
		resp, err := p.Complete(t.Context(), job(t, tc.wire, tc.body))
		if err != nil {
			t.Fatal(err)
		}
		want := subjects.Usage{InputTokens: 6, OutputTokens: 2, TotalTokens: 8, CacheReadTokens: 4}
		if string(resp.Raw) != answer || resp.Wire != wire.OpenAIChat || resp.Usage != want || !resp.UsageKnown ||
			resp.Model != "gpt-4o-2024-08-06" || resp.FinishReason != "stop" || resp.OutputBytes != 5 || resp.RateLimit["x-ratelimit-limit-tokens"] != "7" {
			t.Errorf("%+v", resp)
		}
	}
}

func TestCompleteFails(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
		kind   subjects.Kind
	}{
		"quota":      {429, `{"error":{"code":"insufficient_quota","message":"no money, ` + key + `"}}`, subjects.KindQuotaExhausted},
		"auth":       {401, `{"error":{"code":"invalid_api_key","message":"Incorrect API key provided: ` + key + `"}}`, subjects.KindAuth},
		"no choices": {200, `{"choices":[]}`, subjects.KindProvider},
		"no message": {200, `{"choices":[{"index":0,"message":null,"finish_reason":"stop"}]}`, subjects.KindProvider},
		"error":      {200, `{"error":{"message":"x"}}`, subjects.KindProvider},
		"no JSON":    {200, `hello`, subjects.KindProvider},
	} {
		t.Run(name, func(t *testing.T) {
			p := fake(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				io.WriteString(w, tc.body)
			})
			_, err := p.Complete(t.Context(), job(t, wire.Native, nativeHi))
			var e *subjects.Error
			if !errors.As(err, &e) || e.Kind != tc.kind || e.Provider != "openai" {
				t.Errorf("%v", err)
			}
			if strings.Contains(fmt.Sprintf("%+v", err), key) {
				t.Errorf("the key is shown: %+v", err)
			}
		})
	}
}

func chunk(delta, finish string) string {
	return `data: {"model":"gpt-4o-2024-08-06","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}]}` + "\n\n"
}

const (
	role      = `{"role":"assistant","content":""}`
	usageLine = `data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}` + "\n\n"
	doneLine  = "data: [DONE]\n\n"
)

func TestStream(t *testing.T) {
	hello := chunk(role, "null") + chunk(`{"content":"he"}`, "null") + chunk(`{"content":"llo"}`, "null")
	stop := chunk(`{}`, `"stop"`)
	for name, tc := range map[string]struct {
		body   string
		cut    bool
		kind   subjects.Kind
		text   string
		events int
		usage  bool
		bytes  int64
	}{
		"whole":                      {hello + stop + usageLine + doneLine, false, "", "", 5, true, 5},
		"no DONE":                    {hello + stop, false, "", "", 4, false, 5},
		"no DONE, no blank line":     {hello + strings.TrimRight(stop, "\n"), false, "", "", 4, false, 5},
		"text after DONE":            {hello + stop + doneLine + "data: {}\n\n", false, "", "", 4, false, 5},
		"usage in the last chunk":    {hello + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":{"prompt_tokens":10,"completion_tokens":2}}` + "\n\n", false, "", "", 4, true, 5},
		"no finish reason":           {hello, false, subjects.KindProvider, "ended early", 3, false, 5},
		"DONE without finish reason": {hello + doneLine, false, "", "", 3, false, 5},
		"DONE alone":                 {doneLine, false, subjects.KindProvider, "ended early", 0, false, 0},
		"nothing":                    {"", false, subjects.KindProvider, "ended early", 0, false, 0},
		"a page":                     {"<html></html>", false, subjects.KindProvider, "web page", 0, false, 0},
		"cut":                        {hello, true, subjects.KindProvider, "was cut", 3, false, 5},
		"cut in the end":             {hello + `data: {"choi`, false, subjects.KindProvider, "broken JSON", 3, false, 5},
		"broken JSON":                {hello + "data: {oops\n\n", false, subjects.KindProvider, "broken JSON", 3, false, 5},
		"error event":                {hello + usageLine + `data: {"error":{"message":"overloaded","type":"server_error"}}` + "\n\n", false, subjects.KindProvider, "overloaded", 4, true, 5},
		"rate limit event":           {`event: error` + "\n" + `data: {"error":{"message":"slow","code":"rate_limit_exceeded"}}` + "\n\n", false, subjects.KindRateLimited, "slow", 0, false, 0},
		"tool calls":                 {chunk(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}]}`, "null") + chunk(`{}`, `"tool_calls"`) + doneLine, false, "", "", 2, false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			p := fake(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if !strings.Contains(string(body), `"stream":true,"stream_options":{"include_usage":true}`) {
					t.Errorf("sent %s", body)
				}
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, tc.body)
				if tc.cut {
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				}
			})
			events := 0
			resp, err := p.Stream(t.Context(), job(t, wire.Native, nativeHi), func(ev *wire.Event) error {
				events++
				if ev.Wire != wire.OpenAIChat || ev.UsageOnly != strings.Contains(string(ev.Raw), `"choices":[]`) {
					t.Errorf("%+v", ev)
				}
				return nil
			})
			if subjects.KindOf(err) != tc.kind || err != nil && !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%v, want %q with %q", err, tc.kind, tc.text)
			}
			if events != tc.events || resp.UsageKnown != tc.usage || resp.OutputBytes != tc.bytes {
				t.Errorf("%d events, %+v", events, resp)
			}
		})
	}
}

func TestStreamFromAServerThatDoesNotStream(t *testing.T) {
	p := fake(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"choices":[{"message":{"content":"hello","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
	})
	var got []wire.Event
	resp, err := p.Stream(t.Context(), job(t, wire.OpenAIChat, openAIHi), func(ev *wire.Event) error {
		got = append(got, *ev)
		return nil
	})
	want := []wire.Event{{Text: "hello"}, {ToolCall: &subjects.ToolCall{ID: "1", Name: "f", Arguments: "{}"}}}
	if err != nil || !reflect.DeepEqual(got, want) || resp.FinishReason != "tool_calls" || !resp.UsageKnown {
		t.Errorf("%+v, %+v, %v", got, resp, err)
	}
}

func TestStreamEndsWithYieldsError(t *testing.T) {
	stopped := make(chan struct{})
	p := fake(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, chunk(`{"content":"x"}`, "null"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(stopped)
	})
	gone := errors.New("gone")
	resp, err := p.Stream(t.Context(), job(t, wire.Native, nativeHi), func(*wire.Event) error { return gone })
	if err != gone || resp.OutputBytes != 1 { //nolint:errorlint // returned as it is
		t.Errorf("%+v, %v", resp, err)
	}
	<-stopped // the upstream request is over
}

func TestCancelMidStream(t *testing.T) {
	stopped := make(chan struct{})
	p := fake(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, chunk(`{"content":"x"}`, "null"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(stopped)
	})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := p.Stream(ctx, job(t, wire.Native, nativeHi), func(*wire.Event) error {
		cancel()
		return nil
	})
	if subjects.KindOf(err) != subjects.KindCancelled || resp.OutputBytes != 1 || resp.UsageKnown {
		t.Errorf("%+v, %v", resp, err)
	}
	<-stopped
}

func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  config.Provider
		opts rest.Options
		want string
	}{
		"ready":        {config.Provider{BaseURL: "http://x/v1", APIKey: config.NewSecret("k")}, rest.Options{}, ""},
		"no key":       {config.Provider{BaseURL: "http://x/v1", APIKeyEnv: "OPENAI_API_KEY"}, rest.Options{}, "OPENAI_API_KEY is not set"},
		"no variable":  {config.Provider{ID: "openai", BaseURL: "http://x/v1"}, rest.Options{}, "providers.openai.apiKeyEnvVar"},
		"key optional": {config.Provider{BaseURL: "http://x/v1"}, rest.Options{KeyOptional: true}, ""},
		"no base URL":  {config.Provider{ID: "openai"}, rest.Options{}, "set providers.openai.baseUrl"},
		"bad base URL": {config.Provider{ID: "openai", BaseURL: "http://%zz"}, rest.Options{}, "the base URL is not usable"},
		"hint":         {config.Provider{ID: "custom"}, rest.Options{BaseURLHint: "set LLM_BASE_URL_CUSTOM"}, "set LLM_BASE_URL_CUSTOM"},
	} {
		p := New(&tc.cfg, tc.opts)
		err := p.Check(t.Context())
		if tc.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if subjects.KindOf(err) != subjects.KindProviderUnavailable || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := p.Complete(t.Context(), job(t, wire.Native, nativeHi)); subjects.KindOf(err) != subjects.KindProviderUnavailable {
			t.Errorf("%s: Complete: %v", name, err)
		}
		resp, err := p.Stream(t.Context(), job(t, wire.Native, nativeHi), nil)
		if subjects.KindOf(err) != subjects.KindProviderUnavailable {
			t.Errorf("%s: Stream: %+v, %v", name, resp, err)
		}
	}
}

func TestWithoutAKey(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Header["Authorization"]; ok {
			t.Errorf("%v", r.Header)
		}
		io.WriteString(w, answer)
	}))
	defer s.Close()
	p := New(&config.Provider{ID: "custom", BaseURL: s.URL}, rest.Options{KeyOptional: true})
	defer p.Close()
	if _, err := p.Complete(t.Context(), job(t, wire.Native, nativeHi)); err != nil {
		t.Error(err)
	}
}

// A server that refuses stream_options gets none, not even the caller's own.
func TestStreamUsageOff(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "stream_options") {
			t.Errorf("sent %s", body)
		}
		io.WriteString(w, chunk(`{"content":"x"}`, `"stop"`))
	}))
	defer s.Close()
	cfg := configFor(s.URL)
	cfg.StreamUsage = false
	p := New(cfg, rest.Options{})
	defer p.Close()
	for _, body := range []string{`{"messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}`, openAIHi} {
		if _, err := p.Stream(t.Context(), job(t, wire.OpenAIChat, body), func(*wire.Event) error { return nil }); err != nil {
			t.Error(err)
		}
	}
}

func TestCapabilities(t *testing.T) {
	p := New(configFor("http://x"), rest.Options{})
	if missing := (wire.NeedTools | wire.NeedChoices | wire.NeedLogProbs | wire.NeedStreaming).Missing(p.Capabilities()); missing != 0 {
		t.Errorf("%v", missing)
	}
}

// Calls of both kinds run side by side on one provider, a third of them given
// up on at once.
func TestConcurrentCalls(t *testing.T) {
	p := fake(t, func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"stream":true`) {
			io.WriteString(w, chunk(`{"content":"hello"}`, `"stop"`)+usageLine+doneLine)
			return
		}
		io.WriteString(w, answer)
	})
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%3 == 0 {
				cancel()
			}
			var resp *wire.Response
			var err error
			if i%2 == 0 {
				resp, err = p.Complete(ctx, job(t, wire.Native, nativeHi))
			} else {
				resp, err = p.Stream(ctx, job(t, wire.OpenAIChat, openAIHi), func(*wire.Event) error { return nil })
			}
			if i%3 == 0 {
				if subjects.KindOf(err) != subjects.KindCancelled {
					t.Errorf("%v", err)
				}
			} else if err != nil || resp.OutputBytes != 5 || !resp.UsageKnown {
				t.Errorf("%+v, %v", resp, err)
			}
		})
	}
	wg.Wait()
}
