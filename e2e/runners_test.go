//go:build e2e_model

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// runner is one provider that a local model server stands behind.
type runner struct {
	provider string
	// model chats; tools is the model that has tools.
	model, tools string
	witness      *witness
	// idle reports what the server still works on; "" = nothing.
	idle func(t *testing.T) string
}

// runners is a node before the local model servers.
type runners struct {
	node   *node
	nc     *nats.Conn
	ollama *process // nil where it cannot be built
	all    []*runner
}

// TestLocalRunners holds the providers dmr, custom and ollama against the
// servers they are for: llama.cpp's, under the path of Docker Model Runner, and
// Ollama's own, each with the same small model. Gemma calls tools when it is
// shown how.
func TestLocalRunners(t *testing.T) {
	in := installed(t)
	r := newRunners(t, in)
	for _, one := range r.all {
		t.Run(one.provider, func(t *testing.T) {
			t.Run("answer", func(t *testing.T) { r.checkAnswer(t, one) })
			t.Run("tools", func(t *testing.T) { r.checkTools(t, one) })
			t.Run("JSON", func(t *testing.T) { r.checkJSON(t, one) })
			t.Run("too long a prompt", func(t *testing.T) { r.checkTooLong(t, one) })
			t.Run("hang-up", func(t *testing.T) { r.checkHangUp(t, one) })
		})
	}
	t.Run("ollama alone", func(t *testing.T) {
		if r.ollama == nil {
			t.Skip("Ollama cannot be built here; see above")
		}
		t.Run("no such model", r.checkNoModel)
		t.Run("a model without tools", r.checkNoTools)
		t.Run("a model without sight", r.checkNoSight)
		t.Run("not running", r.checkNotRunning)
	})
}

func newRunners(t *testing.T, in install) *runners {
	t.Helper()
	r := &runners{}
	const prefix = "/engines" // Docker Model Runner's
	llama := runLlama(t, in, "tools-template.jinja", prefix)
	env := []string{"LLM_MAX_RPM_OLLAMA=4"}

	dmr, at := newWitness(t, llama)
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(at, "http://"))
	env = append(env, "DMR_HOST="+host, "DMR_PORT="+port)
	slots := func(t *testing.T) string { return busy(t, llama+prefix) }
	r.all = append(r.all, &runner{provider: "dmr", model: in.modelName, tools: in.modelName, witness: dmr, idle: slots})

	custom, at := newWitness(t, llama)
	env = append(env, "LLM_BASE_URL_CUSTOM="+at+prefix+"/v1", "CUSTOM_API_KEY=key-for-custom")
	r.all = append(r.all, &runner{provider: "custom", model: in.modelName, tools: in.modelName, witness: custom, idle: slots})

	if server := r.startOllama(t, in); server != "" {
		w, at := newWitness(t, server)
		env = append(env, "OLLAMA_HOST="+strings.TrimPrefix(at, "http://"))
		r.all = append(r.all, &runner{provider: "ollama", model: ollamaPlain, tools: ollamaTools, witness: w, idle: r.ollamaBusy(w)})
	}
	r.node = runNode(t, fmt.Sprintf(`providers:
  dmr: {models: {fast: %[1]q, standard: %[1]q, premium: %[1]q}}
  custom: {models: {fast: %[1]q, standard: %[1]q, premium: %[1]q}}
  ollama: {models: {fast: %[2]q, standard: %[2]q, premium: %[3]q}}
provider_priority: {fast: [custom], standard: [custom], premium: [custom]}
`, in.modelName, ollamaPlain, ollamaTools), env...)
	nc, err := nats.Connect(r.node.natsURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r.nc = nc
	return r
}

// answer is what came back over the edge's OpenAI form, whole or joined.
type answer struct {
	status   int
	provider string
	body     string
	content  string
	calls    []toolCall
	finish   string
	usage    *tokens
	code     string // of an error
	message  string
}

type toolCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type completion struct {
	Choices []struct {
		Message, Delta struct {
			Content   string     `json:"content"`
			ToolCalls []toolCall `json:"tool_calls"`
		}
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *tokens `json:"usage"`
	Error *struct {
		Message string `json:"message"`
		Code    string `json:"code"`
	} `json:"error"`
}

// ask posts a request to the node's OpenAI endpoint and reads the answer.
func (r *runners) ask(t *testing.T, id string, request map[string]any) *answer {
	t.Helper()
	resp := r.post(t, t.Context(), id, request)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := &answer{status: resp.StatusCode, provider: resp.Header.Get("X-LLM-Provider"), body: string(body)}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		a.take(t, body)
		return a
	}
	for line := range strings.Lines(string(body)) {
		if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok && data != "[DONE]" {
			a.take(t, []byte(data))
		}
	}
	return a
}

func (r *runners) post(t *testing.T, ctx context.Context, id string, request map[string]any) *http.Response {
	t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.node.http+"/v1/chat/completions", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-LLM-Call-Id", id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func (a *answer) take(t *testing.T, data []byte) {
	t.Helper()
	var c completion
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	for _, choice := range c.Choices {
		a.content += choice.Message.Content + choice.Delta.Content
		for _, call := range append(choice.Message.ToolCalls, choice.Delta.ToolCalls...) {
			if n := len(a.calls); n > 0 && call.ID == "" && call.Index == a.calls[n-1].Index {
				a.calls[n-1].Function.Arguments += call.Function.Arguments
				continue
			}
			a.calls = append(a.calls, call)
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
	if c.Usage != nil {
		a.usage = c.Usage
	}
	if c.Error != nil {
		a.code, a.message = c.Error.Code, c.Error.Message
	}
}

func userTurn(text string) map[string]any { return map[string]any{"role": "user", "content": text} }

// request is a request of OpenAI's form that one provider's model answers.
func (one *runner) request(model, prompt string, more map[string]any) map[string]any {
	m := map[string]any{
		"model": one.provider + "/" + model, "messages": []any{userTurn(prompt)},
		"temperature": 0, "max_tokens": answerTokens,
	}
	for k, v := range more {
		m[k] = v
	}
	return m
}

var streaming = map[string]any{"stream": true, "stream_options": map[string]any{"include_usage": true}}

// checkServed: the answer is the provider's, with what its server said and
// counted, and the usage log has one row that says the same.
func (r *runners) checkServed(t *testing.T, one *runner, id, prompt string, a *answer) {
	t.Helper()
	if a.status != http.StatusOK || a.provider != one.provider {
		t.Fatalf("%d from %q: %s", a.status, a.provider, a.body)
	}
	xs := one.witness.of(prompt)
	if len(xs) != 1 || xs[0].usage == nil {
		t.Fatalf("the server was asked %d times for %q, want once: %+v", len(xs), prompt, xs)
	}
	u := *xs[0].usage
	if a.usage == nil || *a.usage != u {
		t.Errorf("the caller was told %+v, the server counted %+v", a.usage, u)
	}
	var logged row
	eventually(t, "the call is in the log", func() string {
		var recent struct {
			Calls []row `json:"calls"`
		}
		r.node.get(t, "/api/token-usage/recent?limit=100", &recent)
		for _, c := range recent.Calls {
			if c.ID == id {
				logged = c
				return ""
			}
		}
		return "it is not"
	})
	if logged.Provider != one.provider || logged.Outcome != "ok" || logged.Partial || logged.TokensEstimated || logged.ChainPosition != 0 ||
		logged.InputTokens+logged.CacheReadTokens != u.Prompt || logged.CacheReadTokens != u.Details.Cached || logged.OutputTokens != u.Completion {
		t.Errorf("the row is %+v, the server counted %+v", logged, u)
	}
}

// checkAnswer: whole and streamed, over HTTP and over NATS.
func (r *runners) checkAnswer(t *testing.T, one *runner) {
	for name, more := range map[string]map[string]any{"whole": nil, "streamed": streaming} {
		prompt, id := name+": What is the capital of France?", newID()
		a := r.ask(t, id, one.request(one.model, prompt, more))
		r.checkServed(t, one, id, prompt, a)
		x := one.witness.of(prompt)[0]
		if strings.TrimSpace(a.content) == "" || a.content != x.text || a.finish != x.finish || x.stream != (more != nil) {
			t.Errorf("%s: %q (%s), the server said %q (%s)", name, a.content, a.finish, x.text, x.finish)
		}
	}
	for _, stream := range []bool{false, true} {
		c := newCall("go", "interactive", fmt.Sprintf("native, stream=%t: What is the capital of Italy?", stream), stream, false)
		c.provider = one.provider
		goCall(t.Context(), r.nc, c, answerTokens)
		xs := one.witness.of(c.prompt)
		if c.err != nil || len(xs) != 1 || c.answer == "" || c.answer != xs[0].text || *c.usage != *xs[0].usage {
			t.Errorf("%s: %q, %+v, %v; the server: %+v", c, c.answer, c.usage, c.err, xs)
		}
	}
}

// weather is a conversation that shows the model how to call the tool.
func weather(prompt string) map[string]any {
	messages := []any{}
	for i, city := range []string{"Rome", "Oslo"} {
		id := fmt.Sprintf("call_%d", i)
		messages = append(messages,
			userTurn("What is the weather in "+city+"?"),
			map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{
				"id": id, "type": "function",
				"function": map[string]any{"name": "get_weather", "arguments": `{"city":"` + city + `"}`},
			}}},
			map[string]any{"role": "tool", "tool_call_id": id, "content": "sunny"},
			map[string]any{"role": "assistant", "content": "It is sunny in " + city + "."})
	}
	return map[string]any{
		"messages": append(messages, userTurn(prompt)),
		"tools": []any{map[string]any{"type": "function", "function": map[string]any{
			"name": "get_weather", "description": "the weather of a city",
			"parameters": map[string]any{
				"type": "object", "required": []string{"city"},
				"properties": map[string]any{"city": map[string]any{"type": "string"}},
			},
		}}},
		"max_tokens": 48, "stop": []string{"Question:"},
	}
}

// checkTools: a request with tools, calls and results in it is taken, and the
// model's call comes back in the caller's form.
func (r *runners) checkTools(t *testing.T, one *runner) {
	for name, more := range map[string]map[string]any{"whole": nil, "streamed": streaming} {
		prompt, id := "What is the weather in Paris ("+name+")?", newID()
		request := one.request(one.tools, prompt, weather(prompt))
		for k, v := range more {
			request[k] = v
		}
		a := r.ask(t, id, request)
		r.checkServed(t, one, id, prompt, a)
		if len(a.calls) == 0 {
			t.Errorf("%s: no tool was called: %s", name, a.body)
		}
		seen := map[string]bool{}
		for i, c := range a.calls {
			if i > 0 && a.finish == "length" {
				break // the token limit cut what came after the first
			}
			var args map[string]any
			err := json.Unmarshal([]byte(c.Function.Arguments), &args)
			if c.Function.Name != "get_weather" || err != nil || args["city"] == nil || c.ID == "" || seen[c.ID] {
				t.Errorf("%s: %+v, %v", name, c, err)
			}
			seen[c.ID] = true
		}
		if a.finish != "tool_calls" && a.finish != "length" {
			t.Errorf("%s: finish reason %q", name, a.finish)
		}
	}
}

// checkJSON: an answer that must fit a schema does, although the model alone
// would not write it.
func (r *runners) checkJSON(t *testing.T, one *runner) {
	schema := map[string]any{
		"type": "object", "required": []string{"city", "hot"},
		"properties": map[string]any{
			"city": map[string]any{"type": "string", "enum": []string{"Paris", "Rome"}},
			"hot":  map[string]any{"type": "boolean"},
		},
	}
	format := map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "weather", "schema": schema}}
	for name, more := range map[string]map[string]any{"whole": nil, "streamed": streaming} {
		prompt, id := "Is it hot in Rome ("+name+")?", newID()
		request := one.request(one.model, prompt, more)
		request["response_format"], request["max_tokens"] = format, 64
		a := r.ask(t, id, request)
		r.checkServed(t, one, id, prompt, a)
		var got struct {
			City *string `json:"city"`
			Hot  *bool   `json:"hot"`
		}
		d := json.NewDecoder(strings.NewReader(a.content))
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil || got.Hot == nil || got.City == nil || *got.City != "Paris" && *got.City != "Rome" {
			t.Errorf("%s: %q does not fit the schema: %v", name, a.content, err)
		}
	}
	prompt, id := "Write the weather of Rome as JSON", newID()
	request := one.request(one.model, prompt, nil)
	request["response_format"] = map[string]any{"type": "json_object"}
	a := r.ask(t, id, request)
	r.checkServed(t, one, id, prompt, a)
	// llama.cpp's server takes json_object and does not hold the model to it.
	text := strings.TrimSpace(a.content)
	if one.provider == "ollama" && (!strings.HasPrefix(text, "{") || a.finish == "stop" && !json.Valid([]byte(text))) {
		t.Errorf("%q (%s) is no JSON object", a.content, a.finish)
	}
}

// checkTooLong: a prompt that does not fit is refused, and not cut; the server is
// asked once.
func (r *runners) checkTooLong(t *testing.T, one *runner) {
	for name, more := range map[string]map[string]any{"whole": nil, "streamed": streaming} {
		prompt := name + ": " + strings.Repeat("word ", contextTokens+500)
		a := r.ask(t, newID(), one.request(one.model, prompt, more))
		if a.status != http.StatusBadRequest || a.code != "context_length_exceeded" {
			t.Errorf("%s: %d %q: %s", name, a.status, a.code, a.message)
		}
		if xs := one.witness.of(prompt); len(xs) != 1 {
			t.Errorf("%s: the server was asked %d times, want once", name, len(xs))
		}
	}
	e := r.direct(t, one.provider, one.model, "direct: "+strings.Repeat("word ", contextTokens+500))
	if e.Kind != "VALIDATION_ERROR" || e.Code != "context_length_exceeded" {
		t.Errorf("%+v", e)
	}
}

// checkHangUp: a caller who leaves in mid-stream stops the model.
func (r *runners) checkHangUp(t *testing.T, one *runner) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const prompt = "Hang up: tell a very long story about a dragon."
	id := newID()
	request := one.request(one.model, prompt, streaming)
	request["max_tokens"] = contextTokens - 100
	resp := r.post(t, ctx, id, request)
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), `"content":"`) && !strings.Contains(lines.Text(), `"content":""`) {
			break
		}
	}
	cancel()
	eventually(t, "the upstream request is aborted", func() string {
		if xs := one.witness.of(prompt); len(xs) != 1 || !xs[0].hungUp() {
			return fmt.Sprintf("%+v", xs)
		}
		return ""
	})
	eventually(t, "the model is idle", func() string { return one.idle(t) })
	eventually(t, "the call is in the log", func() string {
		var recent struct {
			Calls []row `json:"calls"`
		}
		r.node.get(t, "/api/token-usage/recent?limit=10", &recent)
		for _, c := range recent.Calls {
			if c.ID != id {
				continue
			}
			if c.Outcome != "CANCELLED" || !c.Partial || !c.TokensEstimated || c.OutputTokens == 0 || c.OutputTokens > contextTokens/2 {
				t.Errorf("the row is %+v", c)
			}
			return ""
		}
		return "it is not"
	})
}

// busy asks llama.cpp's server what it works on.
func busy(t *testing.T, base string) string {
	t.Helper()
	resp, err := http.Get(base + "/slots")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var slots []struct {
		Processing bool `json:"is_processing"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&slots); err != nil || len(slots) != providerCap {
		t.Fatalf("GET /slots: %s, %d slots: %v", resp.Status, len(slots), err)
	}
	for i, slot := range slots {
		if slot.Processing {
			return fmt.Sprintf("slot %d is busy", i)
		}
	}
	return ""
}

// fault is an error as it crosses NATS.
type fault struct {
	Kind, Message, Provider, Code string
	Attempts                      []struct{ Provider, Outcome string }
}

// direct asks exactly one provider, natively, and returns its error; none is a
// fault of the test.
func (r *runners) direct(t *testing.T, provider, model string, content any) fault {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"messages": []any{map[string]any{"role": "user", "content": content}}, "model": model, "maxTokens": answerTokens,
	})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := r.nc.Request("llm.provider."+provider+".complete", body, patience)
	if err != nil {
		t.Fatal(err)
	}
	var reply struct{ Error *fault }
	if err := json.Unmarshal(msg.Data, &reply); err != nil || reply.Error == nil {
		t.Fatalf("%v: %s", err, msg.Data)
	}
	return *reply.Error
}
