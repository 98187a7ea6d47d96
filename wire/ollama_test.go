package wire

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/subjects"
)

// chatOf reads a native request into the hub form.
func chatOf(t *testing.T, body string) *Chat {
	t.Helper()
	c, err := mustParse(t, Native, body).Chat()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ollamaOf(t *testing.T, c *Chat, model string, stream bool) (map[string]any, []string) {
	t.Helper()
	body, warnings, err := EncodeOllama(c, model, stream)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return m, warnings
}

func TestEncodeOllama(t *testing.T) {
	t.Parallel()
	c := chatOf(t, `{
		"messages":[
			{"role":"system","content":"be brief"},
			{"role":"user","content":[{"type":"text","text":"see \"this\"\n"},{"type":"image","imageUrl":"data:image/png;base64,aGk="},{"type":"image","imageUrl":"data:image/jpeg;base64,aG8="}]},
			{"role":"assistant","content":"","toolCalls":[{"id":"1","name":"f","arguments":"{\"a\": 1}"},{"id":"2","name":"g","arguments":""}]},
			{"role":"tool","toolCallId":"2","content":"second"},
			{"role":"tool","toolCallId":"1","content":[{"type":"text","text":"first"}]}],
		"tools":[{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}},{"name":"g"}],
		"toolChoice":"auto","temperature":0.5,"topP":0.9,"seed":7,"maxTokens":9,"stop":["A","B"],
		"responseFormat":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true}}`)
	half := 0.5
	c.FrequencyPenalty, c.PresencePenalty = &half, &half
	body, warnings, err := EncodeOllama(c, "m", true)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %v", warnings, err)
	}
	sameJSON(t, body, `{"model":"m","messages":[
		{"role":"system","content":"be brief"},
		{"role":"user","content":"see \"this\"\n","images":["aGk=","aG8="]},
		{"role":"assistant","content":"","tool_calls":[
			{"id":"1","function":{"index":0,"name":"f","arguments":{"a":1}}},
			{"id":"2","function":{"index":1,"name":"g","arguments":{}}}]},
		{"role":"tool","content":"second","tool_name":"g","tool_call_id":"2"},
		{"role":"tool","content":"first","tool_name":"f","tool_call_id":"1"}],
		"stream":true,"truncate":false,"shift":false,
		"tools":[
			{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}},
			{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{}}}}],
		"format":{"type":"object"},
		"options":{"temperature":0.5,"top_p":0.9,"presence_penalty":0.5,"frequency_penalty":0.5,"seed":7,"num_predict":9,"stop":["A","B"]}}`)
}

func TestEncodeOllamaLeast(t *testing.T) {
	t.Parallel()
	body, warnings, err := EncodeOllama(chatOf(t, `{"messages":[{"role":"user","content":"hi"}]}`), "m", false)
	want := `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":false,"truncate":false,"shift":false}`
	if string(body) != want || warnings != nil || err != nil {
		t.Errorf("%s, %v, %v", body, warnings, err)
	}
	m, _ := ollamaOf(t, chatOf(t, `{"messages":[{"role":"user","content":"hi"}],"responseFormat":{"type":"json_object"}}`), "m", false)
	if m["format"] != "json" {
		t.Errorf("%v", m)
	}
	m, _ = ollamaOf(t, chatOf(t, `{"messages":[{"role":"user","content":"hi"}],"responseFormat":{"type":"text"},"tools":[{"name":"f"}],"toolChoice":"none"}`), "m", false)
	if m["format"] != nil || m["tools"] != nil {
		t.Errorf("%v", m)
	}
}

// TestOllamaImagesKeepTheirPlace: a message is cut where text follows an image
// that followed text.
func TestOllamaImagesKeepTheirPlace(t *testing.T) {
	t.Parallel()
	parts := map[rune]string{
		't': `{"type":"text","text":"t"}`, 'u': `{"type":"text","text":"u"}`,
		'i': `{"type":"image","imageUrl":"data:image/png;base64,aGk="}`,
	}
	for order, want := range map[string]string{
		"t": "t:0", "i": ":1", "ti": "t:1", "it": "t:1", "tuii": "t\nu:2", "iitu": "t\nu:2",
		"tit": "t:0 t:1", "titi": "t:0 t:1 :1", "iti": "t:1 :1", "tiut": "t:0 u\nt:1", "itit": "t:1 t:1",
	} {
		var list []string
		for _, p := range order {
			list = append(list, parts[p])
		}
		m, _ := ollamaOf(t, chatOf(t, `{"messages":[{"role":"user","content":[`+strings.Join(list, ",")+`]}]}`), "m", false)
		var got []string
		for _, x := range m["messages"].([]any) {
			msg := x.(map[string]any)
			images, _ := msg["images"].([]any)
			got = append(got, msg["content"].(string)+":"+string('0'+rune(len(images))))
			if msg["role"] != "user" {
				t.Errorf("%s: %v", order, msg)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", order, got, want)
		}
	}
}

func TestOllamaWarnings(t *testing.T) {
	t.Parallel()
	c := chatOf(t, `{"messages":[
			{"role":"user","name":"joe","content":[{"type":"image","imageUrl":"data:image/png;base64,aGk=","detail":"low"},{"type":"image","imageUrl":"data:image/png;base64,aGk=","detail":"high"}]},
			{"role":"assistant","content":"","name":"ann","toolCalls":[{"id":"1","name":"f","arguments":"broken {"}]}],
		"tools":[{"name":"f","strict":true},{"name":"g","strict":true}],"parallelToolCalls":false,"reasoningEffort":"high","seed":-1}`)
	c.User, c.Left = "u", []string{"metadata", "store"}
	m, warnings := ollamaOf(t, c, "m", false)
	want := []string{
		"a message's name", "an image's detail", "parallelToolCalls", "a tool's strict", "reasoningEffort high",
		"seed -1, which is the word for a random one,", "user", "metadata", "store",
	}
	for i := range want {
		want[i] += " is not supported by ollama and was left out"
	}
	want = append(want, "a tool call's arguments that are no JSON object were sent to ollama as text")
	slices.Sort(want)
	slices.Sort(warnings)
	if !slices.Equal(warnings, want) {
		t.Errorf("\n got %q\nwant %q", warnings, want)
	}
	if m["think"] != nil || m["options"] != nil {
		t.Errorf("%v", m)
	}
	call := m["messages"].([]any)[1].(map[string]any)["tool_calls"].([]any)[0].(map[string]any)
	if got := call["function"].(map[string]any)["arguments"]; !reflect.DeepEqual(got, map[string]any{"arguments": "broken {"}) {
		t.Errorf("%v", got)
	}
}

func TestOllamaThink(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		model, effort string
		think         any
		warned        bool
	}{
		{"qwen3", "", nil, false},
		{"qwen3", "none", false, false},
		{"qwen3", "high", nil, true},
		{"gpt-oss:20b", "high", "high", false},
		{"someone/gpt-oss", "low", "low", false},
		{"gpt-oss:120b-cloud", "minimal", nil, true},
		{"gpt-oss", "none", nil, true},
	} {
		c := &Chat{}
		c.ReasoningEffort = tc.effort
		m, warnings := ollamaOf(t, c, tc.model, false)
		if m["think"] != tc.think || (len(warnings) > 0) != tc.warned {
			t.Errorf("%s %q: %v, %v", tc.model, tc.effort, m["think"], warnings)
		}
	}
}

// TestOllamaCannotSay: what would change the answer is an error; of what another
// provider may be able to do, one that moves on.
func TestOllamaCannotSay(t *testing.T) {
	t.Parallel()
	for body, status := range map[string]int{
		`{"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f"}],"toolChoice":"required"}`:                 422,
		`{"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f"}],"toolChoice":{"name":"f"}}`:               422,
		`{"messages":[{"role":"user","content":[{"type":"image","imageUrl":"https://h/x.png"}]}]}`:                    422,
		`{"messages":[{"role":"user","content":"x"}],"responseFormat":{"type":"json_schema","schema":{"a":1}}}`:       0,
		`{"messages":[{"role":"user","content":[{"type":"image","imageUrl":"data:text/plain;a=b;base64,aGk="}]}]}`:    0,
		`{"messages":[{"role":"tool","toolCallId":"unknown","content":"a result whose call is not in the request"}]}`: 0,
	} {
		_, _, err := EncodeOllama(chatOf(t, body), "m", false)
		if e := subjects.AsError(err); status == 0 && err != nil || status > 0 && (err == nil || e.Status() != status) {
			t.Errorf("%s: %v", body, err)
		}
		if status == 422 && !subjects.KindOf(err).Advances() {
			t.Errorf("%s ends the chain: %v", body, err)
		}
	}
	c := &Chat{}
	for _, url := range []string{"data:image/svg+xml,%3Csvg", "data:image/png;base64,", "data:", "ftp://x", ""} {
		c.Messages = []subjects.Message{{Role: "user", Content: subjects.Content{Parts: []subjects.Part{{Type: subjects.PartImage, ImageURL: url}}}}}
		if _, _, err := EncodeOllama(c, "m", false); subjects.KindOf(err) != subjects.KindValidation {
			t.Errorf("%q: %v", url, err)
		}
	}
	c.Messages = nil
	c.ResponseFormat = &subjects.ResponseFormat{Type: "json_schema", Schema: json.RawMessage(`true`)}
	if _, _, err := EncodeOllama(c, "m", false); subjects.KindOf(err) != subjects.KindValidation {
		t.Errorf("%v", err)
	}
}

// What the server v0.17.4 wrote, and other forms of the same.
func TestReadOllama(t *testing.T) {
	t.Parallel()
	const counts = `"total_duration":2446115703,"load_duration":622253265,"prompt_eval_count":6,"prompt_eval_duration":288714288,"eval_count":20,"eval_duration":1440070948`
	for name, tc := range map[string]struct {
		in   string
		want OllamaAnswer
	}{
		"whole": {
			`{"model":"gemma","created_at":"2026-11-30T22:21:25.991012419Z","message":{"role":"assistant","content":" the \"capital\"\n"},"done":true,"done_reason":"length",` + counts + `}`,
			OllamaAnswer{Done: true, Model: "gemma", Text: " the \"capital\"\n", Finish: "length", Usage: subjects.Usage{InputTokens: 6, OutputTokens: 20, TotalTokens: 26}, UsageKnown: true, OutputBytes: 15},
		},
		"a line": {`{"model":"gemma","created_at":"x","message":{"role":"assistant","content":"日"},"done":false}`, OllamaAnswer{Text: "日", OutputBytes: 3}},
		"thinking": {
			`{"model":"g","message":{"role":"assistant","content":"","thinking":"hm\n"},"done":false}`,
			OllamaAnswer{OutputBytes: 3},
		},
		"the end without counts": {`{"model":"g","message":{"content":""},"done":true,"done_reason":"stop"}`, OllamaAnswer{Done: true, Model: "g", Finish: "stop"}},
		"the prompt was cached": {
			`{"model":"g","message":null,"done":true,"eval_count":3}`,
			OllamaAnswer{Done: true, Model: "g", Finish: "stop", Usage: subjects.Usage{OutputTokens: 3, TotalTokens: 3}, UsageKnown: true},
		},
		"calls": {
			`{"model":"g","message":{"content":"","tool_calls":[{"id":"call_1","function":{"index":0,"name":"f","arguments":{"b":"x y", "a":[1, 2]}}}]},"done":true,"done_reason":"stop"}`,
			OllamaAnswer{Done: true, Model: "g", Finish: "tool_calls", OutputBytes: 22, ToolCalls: []subjects.ToolCall{{ID: "call_1", Name: "f", Arguments: `{"b":"x y","a":[1,2]}`}}},
		},
		"calls in a line": {
			`{"message":{"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"a\":1}"}}]},"done":false}`,
			OllamaAnswer{OutputBytes: 8, ToolCalls: []subjects.ToolCall{{ID: "c", Name: "f", Arguments: `{"a":1}`}}},
		},
		"loaded":           {`{"model":"g","message":{"role":"assistant","content":""},"done":true,"done_reason":"load"}`, OllamaAnswer{}},
		"error":            {`{"error":"the input length exceeds the context length"}`, OllamaAnswer{Error: true}},
		"error, an object": {`{"error":{"message":"x"}}`, OllamaAnswer{Error: true}},
		"no error":         {`{"error":null,"message":{"content":"x"}}`, OllamaAnswer{Text: "x", OutputBytes: 1}},
		"nonsense counts":  {`{"done":true,"prompt_eval_count":-5,"eval_count":1e99}`, OllamaAnswer{Done: true, Finish: "stop", UsageKnown: true, Usage: subjects.Usage{OutputTokens: maxTokens, TotalTokens: maxTokens}}},
		"a reason unknown": {`{"done":true,"done_reason":"because"}`, OllamaAnswer{Done: true, Finish: "stop"}},
	} {
		got, ok := ReadOllama([]byte(tc.in))
		if !ok || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, tc.want)
		}
	}
	for _, in := range []string{"", "x", "[]", `"error"`, `{"done":true`, `{"done":true}}`} {
		if _, ok := ReadOllama([]byte(in)); ok {
			t.Errorf("%q is read", in)
		}
	}
}

// TestOllamaCallIDs: calls without an id, or with one that is taken, get one
// that no other answer has.
func TestOllamaCallIDs(t *testing.T) {
	t.Parallel()
	const in = `{"message":{"tool_calls":[{"function":{"name":"f"}},{"id":"x","function":{"name":"g","arguments":null}},{"id":"x","function":{"name":"h","arguments":""}},{"id":"","function":{"name":"i"}}]}}`
	seen := map[string]bool{}
	for range 2 {
		a, _ := ReadOllama([]byte(in))
		var names string
		for _, c := range a.ToolCalls {
			names += c.Name
			if c.ID != "x" && (seen[c.ID] || !strings.HasPrefix(c.ID, "call_")) || c.Arguments != "{}" {
				t.Errorf("%+v", c)
			}
			seen[c.ID] = true
		}
		if names != "fghi" {
			t.Errorf("%q", names)
		}
	}
	if len(seen) != 7 {
		t.Errorf("%v", seen)
	}
}

// FuzzEncodeOllama: whatever a request says, the body is JSON, and the messages'
// texts and the tools are all in it.
func FuzzEncodeOllama(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","imageUrl":"data:image/png;base64,aGk="},{"type":"text","text":"b"}]}],"tools":[{"name":"f"}]}`), "m", true)
	f.Add([]byte(`{"messages":[{"role":"assistant","content":"","toolCalls":[{"id":"1","name":"f","arguments":"{]"}]},{"role":"tool","toolCallId":"1","content":"x"}],"stop":"y","seed":-1,"reasoningEffort":"low"}`), "gpt-oss", false)
	f.Fuzz(func(t *testing.T, body []byte, model string, stream bool) {
		r, err := Parse(Native, body)
		if err != nil {
			return
		}
		c, err := r.Chat()
		if err != nil {
			return
		}
		out, _, err := EncodeOllama(c, model, stream)
		if err != nil {
			return
		}
		var in struct {
			Messages []struct {
				Role, Content string
			}
			Stream *bool
		}
		if err := json.Unmarshal(out, &in); err != nil || !ValidJSON(out) || in.Stream == nil || *in.Stream != stream {
			t.Fatalf("%v: %s", err, out)
		}
		var want, got []string
		for _, m := range c.Messages {
			want = append(want, strings.FieldsFunc(strings.ToValidUTF8(m.Content.String(), "\uFFFD"), isLineEnd)...)
		}
		for _, m := range in.Messages {
			got = append(got, strings.FieldsFunc(m.Content, isLineEnd)...)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}

func isLineEnd(r rune) bool { return r == '\n' }

// FuzzReadOllama: any line is read or refused, and its text is what
// encoding/json makes of it.
func FuzzReadOllama(f *testing.F) {
	f.Add([]byte(`{"model":"m","message":{"content":"a\u00e9","tool_calls":[{"function":{"name":"f","arguments":{"a": 1}}}]},"done":true,"done_reason":"stop","eval_count":1}`))
	f.Add([]byte(`{"error":"x"}`))
	f.Add([]byte(`{"message":{"content":"a","content":"b"}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		a, ok := ReadOllama(in)
		if !ok {
			return
		}
		for _, c := range a.ToolCalls {
			if c.ID == "" || c.Arguments == "" {
				t.Fatalf("%+v", c)
			}
		}
		if a.OutputBytes < int64(len(a.Text)) || a.Usage.InputTokens < 0 || a.Done != (a.Finish != "") {
			t.Fatalf("%+v", a)
		}
		var want struct {
			Message struct{ Content json.RawMessage }
		}
		var text string
		if json.Unmarshal(in, &want) == nil && json.Unmarshal(want.Message.Content, &text) == nil && a.Text != text && strings.Count(string(in), "essage")+strings.Count(string(in), "ontent") == 2 {
			t.Fatalf("%q, want %q", a.Text, text)
		}
	})
}

func ollamaReply() []byte {
	return []byte(`{"model":"llama3.2","created_at":"2026-11-30T22:21:25.991012419Z","message":{"role":"assistant","content":"` + text(1500) +
		`"},"done":true,"done_reason":"stop","total_duration":2446115703,"load_duration":622253265,"prompt_eval_count":26,"prompt_eval_duration":288714288,"eval_count":320,"eval_duration":1440070948}`)
}

func BenchmarkEncodeOllama1K(b *testing.B) {
	r, err := Parse(Native, nativeBody(1024))
	if err != nil {
		b.Fatal(err)
	}
	c, err := r.Chat()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if _, _, err := EncodeOllama(c, "llama3.2", true); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadOllama1500(b *testing.B) {
	body := ollamaReply()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if a, ok := ReadOllama(body); !ok || !a.Done {
			b.Fatal("not read")
		}
	}
}

// BenchmarkReadOllamaStream is one stream of 200 lines.
func BenchmarkReadOllamaStream(b *testing.B) {
	line := []byte(`{"model":"llama3.2","created_at":"2026-11-30T22:21:48.918822962Z","message":{"role":"assistant","content":" token"},"done":false}`)
	last := []byte(`{"model":"llama3.2","created_at":"2026-11-30T22:21:50.009872505Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":2,"eval_count":199}`)
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		for i := range 200 {
			in := line
			if i == 199 {
				in = last
			}
			if _, ok := ReadOllama(in); !ok {
				b.Fatal("not read")
			}
		}
	}
}
