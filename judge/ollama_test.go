package judge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ollama/ollama/api"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/registry"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// ollamaRead is what a reader made of one answer.
type ollamaRead struct {
	Text, Thinking string
	Calls          []vendors.Call // without ids, which a reader may make
	Finish, Model  string
	Prompt, Output int64
	Failed         bool
}

// ollamaAnswers are answers of the server v0.17.4 before a real model, whole and
// streamed, and what the fake of the conformance suite says.
func ollamaAnswers() map[string]string {
	all := map[string]string{
		"recorded, whole": `{"model":"gemma","created_at":"2026-11-30T22:21:25.991012419Z","message":{"role":"assistant","content":" the capital of the country of France. It is the capital of the country of France. It is"},"done":true,"done_reason":"length","total_duration":2446115703,"load_duration":622253265,"prompt_eval_count":6,"prompt_eval_duration":288714288,"eval_count":20,"eval_duration":1440070948}`,
		"recorded, stream": `{"model":"gemma","created_at":"2026-11-30T22:21:48.918822962Z","message":{"role":"assistant","content":","},"done":false}
{"model":"gemma","created_at":"2026-11-30T22:21:49.357837826Z","message":{"role":"assistant","content":"\n\n"},"done":false}
{"model":"gemma","created_at":"2026-11-30T22:21:50.009864792Z","message":{"role":"assistant","content":"I"},"done":false}
{"model":"gemma","created_at":"2026-11-30T22:21:50.009872505Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"length","total_duration":1491861768,"load_duration":185233459,"prompt_eval_count":2,"prompt_eval_duration":201390396,"eval_count":3,"eval_duration":1079870082}
`,
		"recorded, schema": `{"model":"gemma","created_at":"2026-11-30T22:21:48.383346319Z","message":{"role":"assistant","content":"{ \"city\":\"Paris\",\"n\"\n\n  :1\n\n  }\n\n  "},"done":true,"done_reason":"stop","total_duration":2797366374,"load_duration":153011511,"prompt_eval_count":2,"prompt_eval_duration":76339406,"eval_count":20,"eval_duration":1346165316}`,
		"recorded, call":   `{"model":"tools","created_at":"2026-11-30T22:33:15.970864308Z","message":{"role":"assistant","content":" ","tool_calls":[{"id":"call_cix1f5mz","function":{"index":0,"name":"get_weather","arguments":{"city":"Paris"}}}]},"done":true,"done_reason":"stop","total_duration":22469581187,"load_duration":1653788644,"prompt_eval_count":141,"prompt_eval_duration":18101683367,"eval_count":17,"eval_duration":2338025359}`,
		"recorded, call in a stream": `{"model":"tools","created_at":"2026-11-30T22:33:16.819091354Z","message":{"role":"assistant","content":" "},"done":false}
{"model":"tools","created_at":"2026-11-30T22:33:31.49101936Z","message":{"role":"assistant","content":"","tool_calls":[{"id":"call_8szk6mkf","function":{"index":0,"name":"get_weather","arguments":{"city":"Paris"}}}]},"done":false}
{"model":"tools","created_at":"2026-11-30T22:33:32.574279501Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":16583965498,"load_duration":453242237,"prompt_eval_count":141,"prompt_eval_duration":163387673,"eval_count":17,"eval_duration":15727161065}
`,
		"an error in a stream": `{"model":"gemma","created_at":"2026-11-30T22:21:48.918822962Z","message":{"role":"assistant","content":"x"},"done":false}
{"error":"an error was encountered while running the model: unexpected EOF"}
`,
		"no count of the prompt": `{"model":"gemma","created_at":"2026-11-30T22:21:48.918822962Z","message":{"role":"assistant","content":"x"},"done":true,"done_reason":"stop","eval_count":1}`,
	}
	usage := vendors.Usage{Fresh: 21, Output: 9}
	for name, a := range map[string]*vendors.Answer{
		"text":     {Pieces: []string{"Hel", "lo, ", "wörld \"🚀\"\\\n\t\u2028"}, Usage: usage},
		"thinking": {Reasoning: "Hm,\nhm.", Pieces: []string{"Hello."}, Usage: usage},
		"calls": {Pieces: []string{"Let me look."}, Usage: usage, Calls: []vendors.Call{
			{ID: "call_1", Name: "get_weather", Arguments: `{"city":"Zürich","n":1.5,"deep":{"a":[1,{"b":null}]}}`},
			{ID: "call_2", Name: "get_time"},
		}},
		"cut": {Pieces: []string{"Once upon"}, Finish: vendors.FinishLength, Usage: usage},
	} {
		s := &vendors.Seen{Model: "llama3.2:3b"}
		all[name+", whole"] = string(vendors.Ollama{}.Whole(s, a))
		all[name+", stream"] = string(bytes.Join(vendors.Ollama{}.Events(s, a), nil))
	}
	return all
}

// TestOllamaReadsTheSame: the vendor's own client and our provider make the same
// of each answer.
func TestOllamaReadsTheSame(t *testing.T) {
	for name, answer := range ollamaAnswers() {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				io.WriteString(w, answer)
			}))
			t.Cleanup(s.Close)
			streams := strings.Count(strings.TrimSpace(answer), "\n") > 0
			theirs, ours := ollamaTheirs(t, s.URL, streams), ollamaOurs(t, s.URL, streams)
			theirs.Thinking = "" // ours counts it and shows none
			if !reflect.DeepEqual(theirs, ours) {
				t.Errorf("\nthe client read %+v\nwe read        %+v", theirs, ours)
			}
		})
	}
}

func ollamaTheirs(t *testing.T, base string, stream bool) ollamaRead {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	var got ollamaRead
	req := &api.ChatRequest{Model: "m", Messages: []api.Message{{Role: "user", Content: "hi"}}, Stream: &stream}
	err = api.NewClient(u, http.DefaultClient).Chat(t.Context(), req, func(r api.ChatResponse) error {
		got.Text += r.Message.Content
		got.Thinking += r.Message.Thinking
		for _, c := range r.Message.ToolCalls {
			got.Calls = append(got.Calls, vendors.Call{Name: c.Function.Name, Arguments: sorted(t, c.Function.Arguments.String())})
		}
		if r.Done {
			got.Finish, got.Model = r.DoneReason, r.Model
			got.Prompt, got.Output = int64(r.PromptEvalCount), int64(r.EvalCount)
		}
		return nil
	})
	got.Failed = err != nil
	if len(got.Calls) > 0 && got.Finish == "stop" {
		got.Finish = subjects.FinishToolCalls // it has no word for it
	}
	return got
}

func ollamaOurs(t *testing.T, base string, stream bool) ollamaRead {
	t.Helper()
	cfg := &config.Config{Providers: map[string]*config.Provider{"ollama": {ID: "ollama", Kind: "ollama", BaseURL: base}}}
	all := registry.New(cfg, registry.Options{})
	t.Cleanup(func() { registry.Close(all) })
	request, err := wire.Parse(wire.Native, []byte(`{"messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	job := &providers.Job{Request: request, Model: "m"}
	var got ollamaRead
	var resp *wire.Response
	call := func(c *subjects.ToolCall) {
		got.Calls = append(got.Calls, vendors.Call{Name: c.Name, Arguments: sorted(t, c.Arguments)})
	}
	if !stream {
		resp, err = all["ollama"].Complete(t.Context(), job)
		if resp != nil {
			got.Text = resp.Text
			for i := range resp.ToolCalls {
				call(&resp.ToolCalls[i])
			}
		}
	} else {
		resp, err = all["ollama"].Stream(t.Context(), job, func(ev *wire.Event) error {
			if got.Text += ev.Text; ev.ToolCall != nil {
				call(ev.ToolCall)
			}
			return nil
		})
	}
	if got.Failed = err != nil; resp != nil {
		got.Finish, got.Model = resp.FinishReason, resp.Model
		got.Prompt, got.Output = resp.Usage.InputTokens, resp.Usage.OutputTokens
	}
	return got
}

// sorted is JSON with its members in the order of their names.
func sorted(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestOllamaBodiesAreTheVendors: what we write is read into the vendor's own type
// and written again without loss.
func TestOllamaBodiesAreTheVendors(t *testing.T) {
	const everything = `{
		"messages":[
			{"role":"system","content":"be brief"},
			{"role":"user","content":[{"type":"text","text":"see <this>\u2028"},{"type":"image","imageUrl":"data:image/png;base64,aGk="}]},
			{"role":"assistant","content":"","toolCalls":[{"id":"1","name":"f","arguments":"{\"b\":1,\"a\":[true,null]}"},{"id":"2","name":"g","arguments":"{}"}]},
			{"role":"tool","toolCallId":"2","content":"second"},
			{"role":"tool","toolCallId":"1","content":"first"}],
		"tools":[
			{"name":"f","description":"d","parameters":{"type":"object","required":["b"],"properties":{"b":{"type":"integer","description":"x"},"a":{"type":["array","null"],"items":{"type":"string"}},"c":{"enum":["x",1]},"d":{"anyOf":[{"type":"string"},{"type":"object","properties":{"e":{"type":"number"}}}]}}}},
			{"name":"g"}],
		"temperature":0.5,"topP":0.9,"seed":7,"maxTokens":9,"stop":["A","B"],"reasoningEffort":"%s",
		"responseFormat":{"type":"json_schema","name":"n","schema":{"type":"object","additionalProperties":false,"properties":{"x":{"$ref":"#/$defs/y"}}}}}`
	for body, model := range map[string]string{
		fmt.Sprintf(everything, "low"):  "gpt-oss:20b",
		fmt.Sprintf(everything, "none"): "qwen3",
		`{"messages":[{"role":"user","content":"hi"}],"responseFormat":{"type":"json_object"}}`: "m",
		`{"messages":[{"role":"user","content":"hi"}]}`:                                         "m",
	} {
		for _, stream := range []bool{false, true} {
			request, err := wire.Parse(wire.Native, []byte(body))
			if err != nil {
				t.Fatal(err)
			}
			chat, err := request.Chat()
			if err != nil {
				t.Fatal(err)
			}
			ours, warnings, err := wire.EncodeOllama(chat, model, stream)
			if err != nil || len(warnings) > 0 {
				t.Fatalf("%v, %v", warnings, err)
			}
			var theirs api.ChatRequest
			dec := json.NewDecoder(bytes.NewReader(ours))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&theirs); err != nil {
				t.Fatalf("%v: %s", err, ours)
			}
			again, err := json.Marshal(&theirs)
			if err != nil {
				t.Fatal(err)
			}
			lost(t, string(ours), string(again), jsonOf(t, ours), jsonOf(t, again), "")
		}
	}
}

func jsonOf(t *testing.T, b []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// lost reports what of ours is not in theirs; what theirs adds is its defaults.
func lost(t *testing.T, body, again string, ours, theirs any, at string) {
	t.Helper()
	switch o := ours.(type) {
	case map[string]any:
		m, _ := theirs.(map[string]any)
		for _, k := range slices.Sorted(maps.Keys(o)) {
			lost(t, body, again, o[k], m[k], at+"."+k)
		}
	case []any:
		l, _ := theirs.([]any)
		if len(l) != len(o) {
			t.Errorf("%s: %v became %v\nof %s\nto %s", at, ours, theirs, body, again)
			return
		}
		for i := range o {
			lost(t, body, again, o[i], l[i], fmt.Sprintf("%s[%d]", at, i))
		}
	default:
		if !reflect.DeepEqual(ours, theirs) {
			t.Errorf("%s: %v became %v\nof %s\nto %s", at, ours, theirs, body, again)
		}
	}
}
