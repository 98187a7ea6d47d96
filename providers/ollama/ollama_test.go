package ollama

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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

func configFor(url string) *config.Provider {
	return &config.Provider{
		ID: "ollama", BaseURL: url, IdleTimeout: time.Minute,
		Models: map[string]string{subjects.TierFast: "llama3.2", subjects.TierStandard: "llama3.2"},
	}
}

func fake(t testing.TB, h http.HandlerFunc) *rest.Provider {
	t.Helper()
	s := httptest.NewServer(h)
	p := New(configFor(s.URL), rest.Options{Version: "1.2"})
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
	return &providers.Job{Request: r, Model: "llama3.2"}
}

const (
	hi = `{"messages":[{"role":"user","content":"hi"}],"maxTokens":5}`

	answer = `{"model":"llama3.2","created_at":"2026-11-30T22:21:25.991012419Z","message":{"role":"assistant","content":"hello"},"done":true,"done_reason":"stop","total_duration":2446115703,"load_duration":622253265,"prompt_eval_count":6,"prompt_eval_duration":288714288,"eval_count":2,"eval_duration":1440070948}`
	last   = `{"model":"llama3.2","created_at":"2026-11-30T22:21:50.009872505Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":1491861768,"load_duration":185233459,"prompt_eval_count":6,"prompt_eval_duration":201390396,"eval_count":2,"eval_duration":1079870082}` + "\n"
)

func line(message string) string {
	return `{"model":"llama3.2","created_at":"2026-11-30T22:21:48.918822962Z","message":{"role":"assistant",` + message + `},"done":false}` + "\n"
}

func TestComplete(t *testing.T) {
	t.Parallel()
	for name, body := range map[wire.Name]string{
		wire.Native:     `{"messages":[{"role":"user","content":"hi"}],"maxTokens":5,"reasoningEffort":"high"}`,
		wire.OpenAIChat: `{"model":"auto","messages":[{"role":"user","content":"hi"}],"max_tokens":5,"reasoning_effort":"high"}`,
	} {
		p := fake(t, func(w http.ResponseWriter, r *http.Request) {
			sent, _ := io.ReadAll(r.Body)
			const want = `{"model":"llama3.2","messages":[{"role":"user","content":"hi"}],"stream":false,"truncate":false,"shift":false,"options":{"num_predict":5}}`
			if string(sent) != want {
				t.Errorf("sent %s\nwant %s", sent, want)
			}
			if r.URL.Path != "/api/chat" || r.Header.Get("Authorization") != "" || r.UserAgent() != "sluice/1.2" {
				t.Errorf("%s %v", r.URL, r.Header)
			}
			io.WriteString(w, answer)
		})
		resp, err := p.Complete(t.Context(), job(t, name, body))
		if err != nil {
			t.Fatal(err)
		}
		want := subjects.Usage{InputTokens: 6, OutputTokens: 2, TotalTokens: 8}
		if resp.Text != "hello" || resp.Usage != want || !resp.UsageKnown || resp.Model != "llama3.2" || resp.FinishReason != "stop" || resp.OutputBytes != 5 {
			t.Errorf("%+v", resp)
		}
		if !slices.Equal(resp.Warnings, []string{"reasoningEffort high is not supported by ollama and was left out"}) {
			t.Errorf("%v", resp.Warnings)
		}
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	const key = "0123456789abcdef.S3CR3T"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+key {
			t.Errorf("%v", r.Header)
		}
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"error":"unauthorized: `+key+`","signin_url":"https://ollama.com/connect?key=x"}`)
	}))
	t.Cleanup(s.Close)
	cfg := configFor(s.URL)
	cfg.APIKey, cfg.APIKeyEnv = config.NewSecret(key), "OLLAMA_API_KEY"
	p := New(cfg, rest.Options{})
	t.Cleanup(p.Close)
	_, err := p.Complete(t.Context(), job(t, wire.Native, hi))
	e := subjects.AsError(err)
	if e.Kind != subjects.KindAuth || strings.Contains(e.Message, "S3CR3T") || !strings.Contains(e.Message, "OLLAMA_API_KEY was refused") || !strings.Contains(e.Message, "ollama signin") {
		t.Errorf("%v", err)
	}
}

// What the server answers when it does not (v0.17.4, captured or from its
// source; the cloud's from its clients).
func TestFailures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		body   string
		kind   subjects.Kind
		shown  int
		text   string
	}{
		"no such model":    {404, `{"error":"model 'llama3.2' not found"}`, subjects.KindProviderUnavailable, 404, "`ollama pull llama3.2`"},
		"an old server":    {404, `{"error":"model \"llama3.2\" not found, try pulling it first"}`, subjects.KindProviderUnavailable, 404, "`ollama pull llama3.2`"},
		"no such path":     {404, "404 page not found", subjects.KindProviderUnavailable, 503, "base URL"},
		"too long":         {400, `{"error":"the input length exceeds the context length"}`, subjects.KindValidation, 400, "OLLAMA_CONTEXT_LENGTH"},
		"no tools":         {400, `{"error":"registry.ollama.ai/library/gemma:latest does not support tools"}`, subjects.KindProviderUnavailable, 422, "does not support tools"},
		"no chat":          {400, `{"error":"\"nomic\" does not support chat"}`, subjects.KindProviderUnavailable, 422, "does not support chat"},
		"no degrees":       {400, `{"error":"think value \"low\" is not supported for this model"}`, subjects.KindProviderUnavailable, 422, ""},
		"no sight":         {500, `{"error":"Failed to create new sequence: failed to process inputs: this model is missing data required for image input"}`, subjects.KindProviderUnavailable, 422, ""},
		"one image":        {500, `{"error":"this model only supports one image while more than one image requested"}`, subjects.KindProviderUnavailable, 422, ""},
		"the schema":       {500, `{"error":"invalid JSON schema in format"}`, subjects.KindProviderUnavailable, 422, ""},
		"a tool's schema":  {400, `{"error":"json: cannot unmarshal bool into Go struct field .properties of type api.ToolProperty"}`, subjects.KindProviderUnavailable, 422, ""},
		"memory":           {500, `{"error":"model requires more system memory (8.4 GiB) than is available (3.1 GiB)"}`, subjects.KindProviderUnavailable, 404, ""},
		"no cloud":         {403, `{"error":"remote inference is unavailable: ollama cloud is disabled"}`, subjects.KindProviderUnavailable, 404, ""},
		"an image's bytes": {400, `{"error":"illegal base64 data at input byte 1"}`, subjects.KindValidation, 400, ""},
		"the queue":        {503, `{"error":"server busy, please try again.  maximum pending requests exceeded"}`, subjects.KindRateLimited, 429, ""},
		"other 503":        {503, `{"error":"starting"}`, subjects.KindProvider, 502, ""},
		"the runner":       {500, `{"error":"model runner has unexpectedly stopped, this may be due to resource limitations or an internal error, check ollama server logs for details"}`, subjects.KindProvider, 502, ""},
		"weekly":           {429, `{"error":"you (joe) have reached your weekly usage limit, upgrade for higher limits"}`, subjects.KindQuotaExhausted, 429, ""},
		"hourly":           {429, `{"error":"you've reached your hourly usage limit"}`, subjects.KindQuotaExhausted, 429, ""},
		"too fast":         {429, `{"error":"too many concurrent requests"}`, subjects.KindRateLimited, 429, ""},
		"not paid":         {402, `{"error":"this model needs a subscription"}`, subjects.KindQuotaExhausted, 429, ""},
		"signed out":       {401, `{"error":"unauthorized","signin_url":"https://ollama.com/connect?name=x&key=y"}`, subjects.KindAuth, 401, "`ollama signin`"},
		"error in a 200":   {200, `{"error":"an error was encountered while running the model: EOF"}`, subjects.KindProvider, 502, ""},
		"no answer":        {200, `{"model":"llama3.2","message":{"role":"assistant","content":""},"done":true,"done_reason":"load"}`, subjects.KindProvider, 502, "not done"},
		"it repeats":       {200, `{"model":"llama3.2","message":{"role":"assistant","content":" a a a"},"done":false}`, subjects.KindProvider, 502, "repeats itself"},
		"a list":           {200, `[]`, subjects.KindProvider, 502, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fake(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				io.WriteString(w, tc.body)
			})
			whole, err := p.Complete(t.Context(), job(t, wire.Native, hi))
			check := func(how string, err error) {
				var e *subjects.Error
				if !errors.As(err, &e) || e.Kind != tc.kind || e.Status() != tc.shown || !strings.Contains(e.Message, tc.text) || e.Provider != "ollama" {
					t.Errorf("%s: %d %v", how, subjects.AsError(err).Status(), err)
				}
				if name == "too long" && e.Code != subjects.CodeContextLength {
					t.Errorf("%s: code %q", how, e.Code)
				}
			}
			check("whole", err)
			if name == "it repeats" && whole.OutputBytes != 6 {
				t.Errorf("%+v", whole)
			}
			if name == "no answer" || name == "it repeats" || name == "a list" {
				tc.text = ""
			}
			_, err = p.Stream(t.Context(), job(t, wire.Native, hi), func(*wire.Event) error { return nil })
			check("stream", err)
		})
	}
}

func TestStream(t *testing.T) {
	t.Parallel()
	call := line(`"content":"","tool_calls":[{"id":"call_1","function":{"index":0,"name":"f","arguments":{"a": 1}}}]`)
	two := line(`"content":"","tool_calls":[{"function":{"name":"g","arguments":{}}},{"function":{"name":"h","arguments":{}}}]`)
	for name, tc := range map[string]struct {
		body   string
		kind   subjects.Kind
		text   string
		calls  string
		finish string
		bytes  int64
	}{
		"text":             {line(`"content":"he"`) + line(`"content":"llo 日"`) + last, "", "hello 日", "", "stop", 9},
		"no last line end": {line(`"content":"x"`) + strings.TrimSpace(last), "", "x", "", "stop", 1},
		"after the end":    {line(`"content":"x"`) + last + `{"error":"x"}`, "", "x", "", "stop", 1},
		"one line":         {answer, "", "hello", "", "stop", 5},
		"thinking":         {line(`"content":"","thinking":"hm"`) + line(`"content":"x"`) + last, "", "x", "", "stop", 3},
		"calls":            {line(`"content":"x"`) + call + two + last, "", "x", `f{"a":1}g{}h{}`, "tool_calls", 15},
		"length":           {line(`"content":"x"`) + strings.Replace(last, "stop", "length", 1), "", "x", "", "length", 1},
		"cut off":          {line(`"content":"x"`), subjects.KindProvider, "x", "", "", 1},
		"not done":         {line(`"content":"x"`) + line(`"content":""`), subjects.KindProvider, "x", "", "", 1},
		"nothing":          {"", subjects.KindProvider, "", "", "", 0},
		"broken":           {line(`"content":"x"`) + "{\"model\":\n", subjects.KindProvider, "x", "", "", 1},
		"error":            {line(`"content":"x"`) + `{"error":"an error was encountered while running the model"}` + "\n", subjects.KindProvider, "x", "", "", 1},
		"too long":         {`{"error":"the input length exceeds the context length"}` + "\n", subjects.KindValidation, "", "", "", 0},
		"a page":           {"<html>", subjects.KindProvider, "", "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fake(t, func(w http.ResponseWriter, r *http.Request) {
				var sent struct{ Stream *bool }
				if err := json.NewDecoder(r.Body).Decode(&sent); err != nil || sent.Stream == nil || !*sent.Stream || r.Header.Get("Accept") != "application/x-ndjson" {
					t.Errorf("%+v, %v, %v", sent, err, r.Header)
				}
				w.Header().Set("Content-Type", "application/x-ndjson")
				io.WriteString(w, tc.body)
			})
			var text, calls string
			resp, err := p.Stream(t.Context(), job(t, wire.Native, `{"messages":[{"role":"user","content":"hi"}],"stream":true}`), func(ev *wire.Event) error {
				text += ev.Text
				if c := ev.ToolCall; c != nil {
					calls += c.Name + c.Arguments
				}
				return nil
			})
			if subjects.KindOf(err) != tc.kind || text != tc.text || calls != tc.calls || resp.OutputBytes != tc.bytes {
				t.Errorf("%q, %q, %+v, %v", text, calls, resp, err)
			}
			want := subjects.Usage{InputTokens: 6, OutputTokens: 2, TotalTokens: 8}
			if err == nil && (resp.Usage != want || !resp.UsageKnown || resp.FinishReason != tc.finish || resp.Model != "llama3.2") {
				t.Errorf("%+v", resp)
			}
		})
	}
}

// TestStreamEndsWithItsLastLine: a server that keeps the body open after it is
// not waited for.
func TestStreamEndsWithItsLastLine(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	p := fake(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, line(`"content":"x"`)+last)
		http.NewResponseController(w).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	if _, err := p.Stream(t.Context(), job(t, wire.Native, hi), func(*wire.Event) error { return nil }); err != nil {
		t.Error(err)
	}
}

// TestCancelReachesTheServer: a caller who goes away frees the model.
func TestCancelReachesTheServer(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	p := fake(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, line(`"content":"x"`))
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := p.Stream(ctx, job(t, wire.Native, hi), func(*wire.Event) error { cancel(); return nil })
	if subjects.KindOf(err) != subjects.KindCancelled || resp.OutputBytes != 1 {
		t.Errorf("%+v, %v", resp, err)
	}
	<-gone
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"fine":             {200, `{"models":[{"name":"llama3.2:latest","model":"llama3.2:latest","size":1}]}`, ""},
		"another model":    {200, `{"models":[{"name":"qwen3:latest"}]}`, ""},
		"no model":         {200, `{"models":[]}`, "no model is there; fetch one with `ollama pull llama3.2`"},
		"none, as null":    {200, `{"models":null}`, "no model is there; fetch one with `ollama pull llama3.2`"},
		"something else":   {200, `{"tags":[]}`, ""},
		"trouble":          {500, `{"error":"x"}`, ""},
		"another server":   {404, `nothing here`, "`ollama serve`"},
		"a page":           {200, `<html>`, ""},
		"it wants a login": {401, `{"error":"unauthorized"}`, "unauthorized"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fake(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.URL.Path != "/api/tags" {
					t.Errorf("%s %s", r.Method, r.URL)
				}
				w.WriteHeader(tc.status)
				io.WriteString(w, tc.body)
			})
			err := p.Check(t.Context())
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestCheckNotRunning: the reason says what to do, and a server that is started
// is seen.
func TestCheckNotRunning(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	p := New(configFor("http://"+addr), rest.Options{})
	t.Cleanup(p.Close)
	err = p.Check(t.Context())
	if subjects.KindOf(err) != subjects.KindProviderUnavailable || !strings.Contains(err.Error(), "`ollama serve`") || !strings.Contains(err.Error(), addr) {
		t.Errorf("%v", err)
	}
	if _, err := p.Complete(t.Context(), job(t, wire.Native, hi)); subjects.KindOf(err) != subjects.KindProviderUnavailable {
		t.Errorf("%v", err)
	}
	none := New(&config.Provider{ID: "ollama"}, rest.Options{})
	t.Cleanup(none.Close)
	if err := none.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "set OLLAMA_HOST") {
		t.Errorf("%v", err)
	}
}

// TestCloudNeedsNoModels: with a key, a server that lists none can serve.
func TestCloudNeedsNoModels(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"models":[]}`) }))
	t.Cleanup(s.Close)
	cfg := configFor(s.URL)
	cfg.APIKey, cfg.APIKeyEnv = config.NewSecret("0123456789abcdef"), "OLLAMA_API_KEY"
	p := New(cfg, rest.Options{})
	t.Cleanup(p.Close)
	if err := p.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWhatItCannot(t *testing.T) {
	t.Parallel()
	p := New(configFor("http://127.0.0.1:1"), rest.Options{})
	t.Cleanup(p.Close)
	for _, lacks := range []wire.Need{wire.NeedToolChoice, wire.NeedImageURLs, wire.NeedDocuments, wire.NeedAudio, wire.NeedChoices, wire.NeedLogProbs, wire.NeedOpenAIChat} {
		if p.Capabilities()&lacks != 0 {
			t.Errorf("%s is declared", lacks)
		}
	}
	for _, has := range []wire.Need{wire.NeedTools, wire.NeedImages, wire.NeedJSONMode, wire.NeedJSONSchema, wire.NeedStreaming} {
		if p.Capabilities()&has == 0 {
			t.Errorf("%s is not declared", has)
		}
	}
}

// TestPrivateCallsStay: a call for local providers only is not sent for a model
// that runs in the vendor's cloud, however that is known.
func TestPrivateCallsStay(t *testing.T) {
	t.Parallel()
	asked := 0
	p := fake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			io.WriteString(w, `{"models":[{"name":"mine:latest"},{"name":"theirs:latest","remote_model":"theirs","remote_host":"https://ollama.com:443"}]}`)
			return
		}
		asked++
		io.WriteString(w, answer)
	})
	if err := p.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	vendor := New(configFor("https://ollama.com"), rest.Options{Transport: canned(answer)})
	for _, tc := range []struct {
		p       *rest.Provider
		model   string
		refused bool
	}{
		{p, "mine", false},
		{p, "mine:latest", false},
		{p, "cloudy:7b", false},
		{p, "gpt-oss:20b", false},
		{p, "theirs", true},
		{p, "theirs:latest", true},
		{p, "gpt-oss:120b-cloud", true},
		{p, "me/kimi:cloud", true},
		{vendor, "gpt-oss:20b", true},
	} {
		before := asked
		j := job(t, wire.Native, `{"messages":[{"role":"user","content":"hi"}],"privacy":"local"}`)
		j.Model = tc.model
		_, err := tc.p.Complete(t.Context(), j)
		if e := subjects.AsError(err); tc.refused && (err == nil || e.Kind != subjects.KindProviderUnavailable || e.Status() != 422 || asked != before) || !tc.refused && err != nil {
			t.Errorf("%s: %v", tc.model, err)
		}
		j = job(t, wire.Native, hi)
		j.Model = tc.model
		if _, err := tc.p.Complete(t.Context(), j); err != nil {
			t.Errorf("%s, without privacy: %v", tc.model, err)
		}
	}
}
