package copilot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/formtest"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/providers/openai"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "gho_secretOfTheTest0001" //nolint:gosec // made up

// login writes an auth.json as if an hour ago.
func login(t testing.TB, file, text string) {
	t.Helper()
	at := time.Now().Add(-time.Hour)
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.Chtimes(file, at, at)); err != nil {
		t.Fatal(err)
	}
}

func entry(token, more string) string {
	return fmt.Sprintf(`{"github-copilot":{"type":"oauth","refresh":%q,"access":%q,"expires":0%s}}`, token, token, more)
}

func configFor(t testing.TB, url string) *config.Provider {
	t.Helper()
	file := filepath.Join(t.TempDir(), "auth.json")
	login(t, file, entry(token, ""))
	return &config.Provider{
		ID: "copilot", BaseURL: url, CredentialsFile: file, IdleTimeout: time.Minute,
		Models: map[string]string{"fast": "claude-haiku-4.5"},
	}
}

func fake(t testing.TB, h http.HandlerFunc) *openai.Provider {
	t.Helper()
	return formtest.Serve(t, h, func(url string) *openai.Provider { return New(configFor(t, url), rest.Options{Version: "9.9"}) })
}

func job(t testing.TB, name wire.Name, body string) *providers.Job {
	t.Helper()
	return formtest.Job(t, name, "claude-haiku-4.5", body)
}

const (
	hi     = formtest.Hi
	answer = `{"id":"1","model":"claude-haiku-4.5","choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"hello"}}],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":4}}}`
)

// TestWhatIsSent holds every header: what is true of the request, and no other
// client's identity.
func TestWhatIsSent(t *testing.T) {
	t.Parallel()
	const image = `{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}`
	for name, tc := range map[string]struct {
		body      string
		initiator string
		vision    string
	}{
		"a person's turn":  {hi, "user", ""},
		"an image":         {`{"messages":[{"role":"user","content":[` + image + `]}]}`, "user", "true"},
		"an earlier image": {`{"messages":[{"role":"user","content":[` + image + `]},{"role":"assistant","content":"x"},{"role":"user","content":"and?"}]}`, "user", "true"},
		"a tool's result":  {`{"messages":[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}]}`, "agent", ""},
		"an answer begun":  {`{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"x"}]}`, "agent", ""},
		"a system's turn":  {`{"messages":[{"role":"system","content":"hi"}]}`, "user", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fake(t, func(w http.ResponseWriter, r *http.Request) {
				want := http.Header{
					"Authorization": {"Bearer " + token}, "User-Agent": {"sluice/9.9"}, "Content-Type": {"application/json"},
					"X-Github-Api-Version": {apiVersion}, "X-Initiator": {tc.initiator},
				}
				if tc.vision != "" {
					want["Copilot-Vision-Request"] = []string{tc.vision}
				}
				for _, own := range []string{"Accept", "Accept-Encoding", "Content-Length"} {
					r.Header.Del(own)
				}
				if r.Method != http.MethodPost || r.URL.Path != "/chat/completions" || !reflect.DeepEqual(r.Header, want) {
					t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
				}
				io.WriteString(w, answer)
			})
			resp, err := p.Complete(t.Context(), job(t, wire.OpenAIChat, tc.body))
			want := subjects.Usage{InputTokens: 6, OutputTokens: 2, TotalTokens: 8, CacheReadTokens: 4}
			if err != nil || resp.Usage != want || string(resp.Raw) != answer {
				t.Errorf("%+v, %v", resp, err)
			}
		})
	}
}

// TestStream: as configured by default no stream_options are sent, and the usage of
// the last chunk is read.
func TestStream(t *testing.T) {
	t.Parallel()
	p := fake(t, func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "stream_options") || !strings.Contains(string(body), `"stream":true`) {
			t.Errorf("sent %s", body)
		}
		w.Header().Set("X-Quota-Snapshot-Chat", "ent=-1&rem=100.0")
		io.WriteString(w, `data: {"choices":[],"prompt_filter_results":[]}`+"\n\n"+
			`data: {"choices":[{"index":0,"delta":{"content":"he"}}]}`+"\n\n"+
			`data: {"choices":[{"index":0,"delta":{"content":"y"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1},"model":"m"}`+"\n\ndata: [DONE]\n\n")
	})
	j := job(t, wire.OpenAIChat, hi)
	var opened map[string]string
	j.Opened = func(r *wire.Response) { opened = r.RateLimit }
	text := ""
	resp, err := p.Stream(t.Context(), j, func(ev *wire.Event) error {
		text += string(ev.Raw)
		return nil
	})
	if err != nil || !resp.UsageKnown || resp.Usage.InputTokens != 3 || resp.FinishReason != "stop" || !strings.Contains(text, `"he"`) {
		t.Errorf("%+v, %v", resp, err)
	}
	if opened["x-quota-snapshot-chat"] != "ent=-1&rem=100.0" {
		t.Errorf("%v", opened)
	}
}

// TestRoots: the account's kind decides where the token goes, unless the operator
// does.
func TestRoots(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ more, base, want string }{
		"personal":   {"", "", "https://api.githubcopilot.com/chat/completions"},
		"enterprise": {`,"enterpriseUrl":"https://company.ghe.com/"`, "", "https://copilot-api.company.ghe.com/chat/completions"},
		"set":        {`,"enterpriseUrl":"company.ghe.com"`, "https://api.business.githubcopilot.com", "https://api.business.githubcopilot.com/chat/completions"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := configFor(t, tc.base)
			login(t, cfg.CredentialsFile, entry(token, tc.more))
			p := New(cfg, rest.Options{Transport: transport(func(r *http.Request) string {
				if r.URL.String() != tc.want {
					t.Errorf("%s, want %s", r.URL, tc.want)
				}
				return answer
			})})
			if err := p.Check(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := p.Complete(t.Context(), job(t, wire.Native, hi)); err != nil {
				t.Error(err)
			}
		})
	}
}

type transport func(*http.Request) string

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(f(r)))}, nil
}

// TestCheck gives the credential's reason.
func TestCheck(t *testing.T) {
	t.Parallel()
	p := New(&config.Provider{ID: "copilot", CredentialsFile: filepath.Join(t.TempDir(), "none")}, rest.Options{})
	for _, err := range []error{p.Check(t.Context()), second(p.Complete(t.Context(), job(t, wire.Native, hi)))} {
		if subjects.KindOf(err) != subjects.KindProviderUnavailable || !strings.Contains(err.Error(), "OpenCode's auth.json is not there; run `opencode auth login`") {
			t.Errorf("%v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestARefusedTokenIsDropped: after a 401 the file is read anew; while it has the
// same token, nothing is sent.
func TestARefusedTokenIsDropped(t *testing.T) {
	t.Parallel()
	cfg := configFor(t, "")
	status, requests := http.StatusUnauthorized, 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.WriteHeader(status)
		io.WriteString(w, "unauthorized: token expired\n")
	}))
	defer s.Close()
	cfg.BaseURL = s.URL
	p := New(cfg, rest.Options{})
	defer p.Close()
	try := func(kind subjects.Kind, text string, sent int) {
		t.Helper()
		requests = 0
		_, err := p.Complete(t.Context(), job(t, wire.Native, hi))
		if subjects.KindOf(err) != kind || !strings.Contains(err.Error(), text) || requests != sent {
			t.Errorf("%v after %d requests", err, requests)
		}
	}
	try(subjects.KindAuth, "the key from OpenCode's auth.json was refused: unauthorized: token expired; log in again with `opencode auth login`", 1)
	try(subjects.KindProviderUnavailable, "log in again with opencode", 0)
	if err := p.Check(t.Context()); err == nil {
		t.Error("it says that it can serve")
	}
	login(t, cfg.CredentialsFile, entry("gho_secretOfTheTest0002", ""))
	status = http.StatusForbidden
	try(subjects.KindAuth, "needs a Copilot plan", 1)
	try(subjects.KindAuth, "needs a Copilot plan", 1) // a 403 is not about the token
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		models    map[string]string
		available []string
		json      bool
	}{
		"Claude":            {map[string]string{"fast": "claude-haiku-4.5"}, nil, false},
		"OpenAI and Google": {map[string]string{"fast": "gpt-5-mini", "premium": "gemini-3.5-flash"}, []string{"o4-mini"}, true},
		"mixed":             {map[string]string{"fast": "gpt-5-mini", "premium": "claude-opus-5"}, nil, false},
		"mixed, available":  {map[string]string{"fast": "gpt-5-mini"}, []string{"gpt-5-mini", "grok-4.5"}, false},
		"not known":         {nil, nil, false},
	} {
		p := New(&config.Provider{ID: "copilot", Models: tc.models, AvailableModels: tc.available}, rest.Options{})
		want := capabilities
		if tc.json {
			want |= formats
		}
		if got := p.Capabilities(); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestFormatOfAModelThatDoesNotKeepIt: nothing is sent, and the call moves on.
func TestFormatOfAModelThatDoesNotKeepIt(t *testing.T) {
	t.Parallel()
	p := fake(t, func(http.ResponseWriter, *http.Request) { t.Error("sent") })
	_, err := p.Complete(t.Context(), job(t, wire.Native, `{"messages":[{"role":"user","content":"hi"}],"responseFormat":{"type":"json_object"}}`))
	if e := subjects.AsError(err); e.Kind != subjects.KindProviderUnavailable || e.HTTPStatus != 422 {
		t.Errorf("%v", err)
	}
}

// TestChoicesThatAreOne: the pieces of a Claude model's answer are put together.
func TestChoicesThatAreOne(t *testing.T) {
	t.Parallel()
	call := func(id string) string {
		return `{"id":"` + id + `","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}`
	}
	for name, tc := range map[string]struct {
		choices string
		text    string
		calls   int
		finish  string
	}{
		"text and two calls": {`{"finish_reason":"tool_calls","message":{"role":"assistant","content":"I \"look\""}},{"finish_reason":"tool_calls","message":{"role":"assistant","tool_calls":[` + call("1") + `]}},{"finish_reason":"tool_calls","message":{"tool_calls":[` + call("2") + `]}}`, `I "look"`, 2, "tool_calls"},
		"calls without text": {`{"finish_reason":"tool_calls","message":{"content":null,"tool_calls":[` + call("1") + `]}},{"finish_reason":"tool_calls","message":{"tool_calls":[` + call("2") + `]}}`, "", 2, "tool_calls"},
		"a stop in front":    {`{"finish_reason":"stop","message":{"content":"a"}},{"finish_reason":"tool_calls","message":{"tool_calls":[` + call("1") + `],"content":"b"}}`, "ab", 1, "tool_calls"},
		"texts alone":        {`{"finish_reason":"length","message":{"content":"a","reasoning_text":"r"}},{"finish_reason":"stop","message":{"content":"b","tool_calls":null}}`, "ab", 0, "length"},
		"one":                {`{"index":0,"finish_reason":"stop","message":{"content":"a"}}`, "a", 0, "stop"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fake(t, func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, `{"model":"m","choices":[`+tc.choices+`],"usage":{"prompt_tokens":1,"completion_tokens":2},"x":[1]}`)
			})
			resp, err := p.Complete(t.Context(), job(t, wire.OpenAIChat, `{"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f"}}]}`))
			if err != nil {
				t.Fatal(err)
			}
			if err := wire.Decode(resp); err != nil || resp.Text != tc.text || len(resp.ToolCalls) != tc.calls || resp.FinishReason != tc.finish || !resp.UsageKnown {
				t.Errorf("%+v, %v", resp, err)
			}
			var back struct {
				Choices []json.RawMessage
				X       []int
			}
			if err := json.Unmarshal(resp.Raw, &back); err != nil || len(back.Choices) != 1 || len(back.X) != 1 {
				t.Errorf("%s", resp.Raw)
			}
		})
	}
}

// FuzzMend: what is put together is a whole answer, or an error of a known kind.
func FuzzMend(f *testing.F) {
	for _, s := range []string{
		answer, `{"choices":[{},{}]}`, `{"choices":[{"message":{"content":"a"}},{"message":{"tool_calls":[{"id":1}]}}]}`,
		`{"choices":[1,2]}`, `{"choices":[{"message":null},{"message":{"content":5,"tool_calls":"x"}}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !wire.ValidJSON(body) {
			return
		}
		out, err := mend(nil, body)
		if err != nil {
			if !subjects.KindOf(err).Known() {
				t.Fatalf("%v", err)
			}
			return
		}
		if !wire.ValidJSON(out) {
			t.Fatalf("%q", out)
		}
	})
}
