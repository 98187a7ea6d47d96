package dmr

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers/internal/formtest"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/providers/openai"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const model = "ai/llama3.2"

func at(url string) *openai.Provider {
	return New(&config.Provider{
		ID: "dmr", BaseURL: url + "/engines/v1", StreamUsage: true, Models: map[string]string{"standard": model},
	}, rest.Options{})
}

// TestErrors has the scheduler's plain texts and llama.cpp's forms (WIRE.md D, and
// threads of docker/model-runner).
func TestErrors(t *testing.T) {
	t.Parallel()
	formtest.Errors(t, at, model, "", map[string]formtest.Error{
		"no model":          {Status: 404, Body: "model not found\n", Kind: subjects.KindProviderUnavailable, Text: `the model "ai/llama3.2" is not there: model not found; fetch it with ` + "`docker model pull ai/llama3.2`", Shown: 404},
		"no model, longer":  {Status: 404, Body: "error while getting model: get model 'x': model not found\n", Kind: subjects.KindProviderUnavailable, Text: "docker model pull", Shown: 404},
		"no back end":       {Status: 404, Body: "backend not found\n", Kind: subjects.KindProviderUnavailable, Text: "correct the back end in the base URL"},
		"no path":           {Status: 404, Body: "404 page not found\n", Kind: subjects.KindProviderUnavailable, Text: "is the base URL right?"},
		"not installed":     {Status: 412, Body: "backend not installed\n", Kind: subjects.KindProviderUnavailable, Text: "backend not installed; install the back end with `docker model install-runner`"},
		"installing":        {Status: 503, Body: "installer not started\n", Kind: subjects.KindProvider, Text: "installer not started"},
		"loading":           {Status: 503, Body: `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`, Kind: subjects.KindProvider, Text: "Loading model"},
		"not loadable":      {Status: 500, Body: "unable to load runner: error waiting for runner to be ready: llama.cpp terminated unexpectedly: llama.cpp exit status: exit status 1\n", Kind: subjects.KindProviderUnavailable, Text: "llama.cpp exit status: exit status 1; `docker model logs` says more", Shown: 404},
		"slow to load":      {Status: 500, Body: "unable to load runner: error waiting for runner to be ready: context deadline exceeded\n", Kind: subjects.KindProvider, Text: "deadline exceeded"},
		"invalid request":   {Status: 400, Body: "invalid request\n", Kind: subjects.KindValidation, Text: "invalid request"},
		"model is required": {Status: 400, Body: "model is required\n", Kind: subjects.KindValidation},
		"request too large": {Status: 400, Body: "request too large\n", Kind: subjects.KindValidation},
		"context": {
			Status: 400, Body: `{"error":{"code":400,"message":"request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9412,"n_ctx":8192}}`,
			Kind: subjects.KindValidation, Text: "9412 tokens) exceeds the available context size (8192 tokens), try increasing it; send less, or give the model more room", Code: subjects.CodeContextLength,
		},
		"no sight":  {Status: 500, Body: `{"error":{"code":500,"message":"image input is not supported - hint: if this is unexpected, you may need to provide the mmproj","type":"server_error"}}`, Kind: subjects.KindProviderUnavailable, Shown: 422},
		"bad input": {Status: 400, Body: `{"error":{"code":400,"message":"Missing 'content' in message","type":"invalid_request_error"}}`, Kind: subjects.KindValidation},
		"broken":    {Status: 500, Body: `{"error":{"code":500,"message":"Failed to parse input at pos 0","type":"server_error"}}`, Kind: subjects.KindProvider},
	})
}

// TestToolChoiceByName: llama.cpp would take the object for auto.
func TestToolChoiceByName(t *testing.T) {
	t.Parallel()
	const tools = `"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b","parameters":{"type":"object"}}}]`
	for name, tc := range map[string]struct {
		wire         wire.Name
		body         string
		choice, tool string
		kind         subjects.Kind
	}{
		"by name, native": {wire.Native, `{"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"a"},{"name":"b"}],"toolChoice":{"name":"b"}}`, `"required"`, `["b"]`, ""},
		"by name":         {wire.OpenAIChat, `{"messages":[{"role":"user","content":"hi"}],` + tools + `,"tool_choice":{"type":"function","function":{"name":"b"}},"x":1}`, `"required"`, `["b"]`, ""},
		"required":        {wire.OpenAIChat, `{"messages":[{"role":"user","content":"hi"}],` + tools + `,"tool_choice":"required","x":1}`, `"required"`, `["a","b"]`, ""},
		"auto":            {wire.OpenAIChat, `{"messages":[{"role":"user","content":"hi"}],` + tools + `,"tool_choice":"auto","x":1}`, `"auto"`, `["a","b"]`, ""},
		"of another tool": {wire.OpenAIChat, `{"messages":[{"role":"user","content":"hi"}],` + tools + `,"tool_choice":{"type":"function","function":{"name":"c"}}}`, "", "", subjects.KindValidation},
		"without tools":   {wire.OpenAIChat, `{"messages":[{"role":"user","content":"hi"}],"tool_choice":{"type":"function","function":{"name":"c"}}}`, "", "", subjects.KindValidation},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := formtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
				sent, _ := io.ReadAll(r.Body)
				if tc.kind != "" {
					t.Errorf("sent %s", sent)
				}
				if got := gjson.GetBytes(sent, "tool_choice").Raw; got != tc.choice {
					t.Errorf("tool_choice %s in %s", got, sent)
				}
				if got := gjson.GetBytes(sent, "tools.#.function.name").Raw; got != tc.tool {
					t.Errorf("tools %s in %s", got, sent)
				}
				if tc.wire == wire.OpenAIChat && gjson.GetBytes(sent, "x").Raw != "1" {
					t.Errorf("a field is lost: %s", sent)
				}
				if _, ok := r.Header["Authorization"]; ok || r.URL.Path != "/engines/v1/chat/completions" {
					t.Errorf("%s %v", r.URL, r.Header)
				}
				io.WriteString(w, `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1},"timings":{"prompt_n":1}}`)
			}, at)
			_, err := p.Complete(t.Context(), formtest.Job(t, tc.wire, model, tc.body))
			if subjects.KindOf(err) != tc.kind {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestCheck asks the runner for its models.
func TestCheck(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"object":"list","data":[{"id":"ai/llama3.2"}]}`: "",
		`{"object":"list","data":[]}`:                     "no model is there; fetch one with `docker model pull ai/llama3.2`",
		`{"new":"form"}`:                                  "",
	} {
		p := formtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/engines/v1/models" {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			io.WriteString(w, body)
		}, at)
		if err := p.Check(t.Context()); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", body, err)
		}
	}
	p := at("http://127.0.0.1:1")
	defer p.Close()
	if err := p.Check(t.Context()); subjects.KindOf(err) != subjects.KindProviderUnavailable || !strings.Contains(err.Error(), "connection refused; start it with `docker model start-runner`") {
		t.Errorf("%v", err)
	}
	if err := New(&config.Provider{ID: "dmr"}, rest.Options{}).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "set DMR_HOST or providers.dmr.baseUrl") {
		t.Errorf("%v", err)
	}
}
