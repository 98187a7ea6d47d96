package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/subjects"
)

func mustParse(t testing.TB, name Name, body string) *Request {
	t.Helper()
	r, err := Parse(name, []byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

// sameJSON compares two JSON texts by what they say.
func sameJSON(t testing.TB, got []byte, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, got)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("the test's own JSON: %v\n%s", err, want)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestChatFromOpenAI(t *testing.T) {
	r := mustParse(t, OpenAIChat, `{
		"model":"m","seed":7,"temperature":0.5,"max_tokens":3,"max_completion_tokens":9,"stop":"END","user":"u",
		"parallel_tool_calls":false,"reasoning_effort":"low","frequency_penalty":1,"logit_bias":{"1":2},"metadata":null,
		"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}}],
		"tool_choice":{"type":"function","function":{"name":"f"}},
		"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"a":1},"strict":true}},
		"messages":[
			{"role":"developer","content":"be brief"},
			{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"https://x/y.png","detail":"low"}}]},
			{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},
			{"role":"tool","tool_call_id":"1","content":"result"}]}`)
	c, err := r.Chat()
	if err != nil {
		t.Fatal(err)
	}
	want := []subjects.Message{
		{Role: "system", Content: subjects.Text("be brief")},
		{Role: "user", Content: subjects.Content{Parts: []subjects.Part{
			{Type: "text", Text: "see"}, {Type: "image", ImageURL: "https://x/y.png", Detail: "low"},
		}}},
		{Role: "assistant", ToolCalls: []subjects.ToolCall{{ID: "1", Name: "f", Arguments: `{"a":1}`}}},
		{Role: "tool", ToolCallID: "1", Content: subjects.Text("result")},
	}
	if !reflect.DeepEqual(c.Messages, want) {
		t.Errorf("messages\n got %+v\nwant %+v", c.Messages, want)
	}
	if *c.MaxTokens != 9 || *c.Seed != 7 || c.User != "u" || *c.ParallelToolCalls || c.ReasoningEffort != "low" || *c.FrequencyPenalty != 1 {
		t.Errorf("fields: %+v", c)
	}
	if !reflect.DeepEqual(c.Stop, subjects.StringList{"END"}) || c.ToolChoice.Name != "f" {
		t.Errorf("stop %v, tool choice %+v", c.Stop, c.ToolChoice)
	}
	if f := c.ResponseFormat; f.Type != "json_schema" || f.Name != "n" || string(f.Schema) != `{"a":1}` || !*f.Strict {
		t.Errorf("response format: %+v", f)
	}
	if tool := c.Tools[0]; tool.Name != "f" || tool.Description != "d" || string(tool.Parameters) != `{"type":"object"}` || !*tool.Strict {
		t.Errorf("tool: %+v", tool)
	}
	if !reflect.DeepEqual(c.Left, []string{"logit_bias"}) {
		t.Errorf("left: %v", c.Left)
	}
	if again, _ := r.Chat(); again != c {
		t.Error("decoded twice")
	}
}

func TestChatFromLegacyFunctions(t *testing.T) {
	r := mustParse(t, OpenAIChat, `{"functions":[{"name":"f","parameters":{}}],"function_call":{"name":"f"},"messages":[
		{"role":"user","content":"x"},{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},
		{"role":"function","name":"f","content":"r"}]}`)
	c, err := r.Chat()
	if err != nil {
		t.Fatal(err)
	}
	if c.Tools[0].Name != "f" || c.ToolChoice.Name != "f" {
		t.Errorf("%+v", c)
	}
	if c.Messages[1].ToolCalls[0].ID != c.Messages[2].ToolCallID || c.Messages[2].Role != "tool" {
		t.Errorf("%+v", c.Messages)
	}
}

func TestChatRefusesWhatItCannotCarry(t *testing.T) {
	for body, want := range map[string]string{
		`{` + hi + `,"tools":[{"type":"custom","custom":{"name":"x"}}]}`:                            "tools[0].type: only function tools",
		`{` + hi + `,"tools":[{"type":"function","function":{}}]}`:                                  "tools[0].function.name: missing",
		`{` + hi + `,"tool_choice":{"type":"allowed_tools"}}`:                                       "tool_choice: only auto",
		`{` + hi + `,"tool_choice":"any"}`:                                                          "tool_choice: must be auto",
		`{` + hi + `,"response_format":{"type":"grammar"}}`:                                         "response_format.type: only text",
		`{` + hi + `,"response_format":{"type":"json_schema","json_schema":{"name":"n"}}}`:          "response_format.json_schema.schema: missing",
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"video"}]}]}`:    "messages[0].content[1].type: only text and image_url",
		`{"messages":[{"role":"user","content":"a","tool_call_id":7}]}`:                             "tool_call_id",
		`{"messages":[{"role":"assistant","tool_calls":[{"id":"1","type":"custom","custom":{}}]}]}`: "messages[0].tool_calls[0].type: only function",
	} {
		_, err := mustParse(t, OpenAIChat, body).Chat()
		if err == nil || subjects.KindOf(err) != subjects.KindValidation || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", body, err, want)
		}
	}
}

// What the native wire says arrives at an OpenAI-compatible provider in its
// words, whether spliced or decoded.
func TestNativeToOpenAI(t *testing.T) {
	for _, tc := range []struct{ name, body, model, want string }{
		{
			"spliced",
			`{"messages":[{"role":"system","content":"s\u00e9"},{"role":"user","content":[{"type":"text","text":"a"}],"name":"n"}],"task":"t","process":"p","timeoutMs":5,
			  "temperature":0.10,"topP":0.9,"maxTokens":5,"stop":["x"],"stream":true,"responseFormat":{"type":"json_object"}}`,
			"gpt-4o",
			`{"model":"gpt-4o","messages":[{"role":"system","content":"sé"},{"role":"user","content":[{"type":"text","text":"a"}],"name":"n"}],
			  "temperature":0.1,"top_p":0.9,"max_tokens":5,"stop":["x"],"stream":true,"stream_options":{"include_usage":true},"response_format":{"type":"json_object"}}`,
		},
		{
			"spliced tools",
			`{` + hi + `,"tools":[{"name":"f","parameters":{"type":"object"},"strict":true}],"toolChoice":{"name":"f"},"maxTokens":5,
			  "responseFormat":{"type":"json_schema","schema":{"x":1},"strict":false}}`,
			"openai/gpt-5.4",
			`{"model":"openai/gpt-5.4",` + hi + `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"},"strict":true}}],
			  "tool_choice":{"type":"function","function":{"name":"f"}},"max_completion_tokens":5,"stream":true,"stream_options":{"include_usage":true},
			  "response_format":{"type":"json_schema","json_schema":{"name":"response","schema":{"x":1},"strict":false}}}`,
		},
		{
			"decoded",
			`{"messages":[{"role":"user","content":[{"type":"text","text":"see <this> & that"},{"type":"image","imageUrl":"https://x/y","detail":"high"}]},
			  {"role":"assistant","content":"","toolCalls":[{"id":"1","name":"f","arguments":"{}"}]},{"role":"tool","toolCallId":"1","content":"r"}],
			  "tools":[{"name":"f"}],"toolChoice":"required","stop":"x","maxTokens":5,"topP":1,"responseFormat":{"type":"json_schema","name":"n","schema":{}}}`,
			"o4-mini",
			`{"model":"o4-mini","messages":[{"role":"user","content":[{"type":"text","text":"see <this> & that"},{"type":"image_url","image_url":{"url":"https://x/y","detail":"high"}}]},
			  {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"r"}],
			  "tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required","stop":["x"],"max_completion_tokens":5,"top_p":1,"stream":true,
			  "stream_options":{"include_usage":true},"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}}}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := mustParse(t, Native, tc.body)
			if want := !strings.HasPrefix(tc.name, "decoded"); r.plain != want {
				t.Errorf("plain = %v", r.plain)
			}
			out, err := r.OpenAIChat(tc.model, true, true)
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, out, tc.want)
			// The other path says the same.
			chat, err := r.Chat()
			if err != nil {
				t.Fatal(err)
			}
			body, err := EncodeOpenAIChat(chat, tc.model, true)
			if err != nil {
				t.Fatal(err)
			}
			if body, err = PatchOpenAIChat(body, tc.model, true, true); err != nil {
				t.Fatal(err)
			}
			sameJSON(t, body, tc.want)
			if _, err := Parse(OpenAIChat, out); err != nil {
				t.Errorf("we would refuse it ourselves: %v", err)
			}
		})
	}
}

// A request goes to the hub form and back to its own wire unchanged.
func TestOpenAIRoundTrip(t *testing.T) {
	body := `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":""},{"type":"image_url","image_url":{"url":"u"}}],"name":"n"},
		{"role":"assistant","content":"x","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"r","tool_call_id":"1"}],
		"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":"auto","temperature":0,"top_p":1,"max_tokens":1,"stop":["a"],"seed":0,
		"frequency_penalty":0,"presence_penalty":-1,"parallel_tool_calls":true,"reasoning_effort":"high","user":"u","response_format":{"type":"text"}}`
	chat, err := mustParse(t, OpenAIChat, body).Chat()
	if err != nil {
		t.Fatal(err)
	}
	out, err := EncodeOpenAIChat(chat, "m", false)
	if err != nil {
		t.Fatal(err)
	}
	sameJSON(t, out, body)
}

func TestPatch(t *testing.T) {
	const m = `"messages":[{"role":"user","content":"\u00e9 \"stream\":true"}]`
	for _, tc := range []struct {
		in            string
		stream, usage bool
		want          string
	}{
		{`{ "model" : "m" , ` + m + ` }`, false, true, ``},
		{`{"model":"m","stream":true,"stream_options":{"include_usage":true},` + m + `}`, true, true, ``},
		{`{"model":"m","stream":false,` + m + `}`, false, false, ``},
		{`{"model":"\u006d",` + m + `}`, false, true, ``},
		{`{"model":"m","stream_options":{"include_usage":true},` + m + `}`, false, true, ``},

		{`{ "model" : "old", ` + m + `}`, false, true, `{ "model" : "m", ` + m + `}`},
		{`{"model":null,` + m + `}`, false, true, `{"model":"m",` + m + `}`},
		{`{` + m + `}`, false, true, `{"model":"m",` + m + `}`},
		{`{` + m + `}`, true, true, `{"model":"m","stream":true,"stream_options":{"include_usage":true},` + m + `}`},
		{`{` + m + `}`, true, false, `{"model":"m","stream":true,` + m + `}`},
		{`{"model":"m","stream":null,` + m + `}`, true, false, `{"model":"m","stream":true,` + m + `}`},
		{`{"stream":true,"model":"m",` + m + `}`, false, true, `{"stream":false,"model":"m",` + m + `}`},
		{`{"stream":true,"stream_options":{"x":1},"model":"m",` + m + `}`, false, true, `{"stream":false,"model":"m",` + m + `}`},
		{`{"stream":true,"stream_options":{"x":1},"model":"m",` + m + `}`, true, false, `{"stream":true,"model":"m",` + m + `}`},
		{`{"model":"m",` + m + `,"stream":true , "stream_options":{"x":1} }`, true, false, `{"model":"m",` + m + `,"stream":true }`},
		{`{"model":"m","stream":true,"stream_options":{},` + m + `}`, true, true, `{"model":"m","stream":true,"stream_options":{"include_usage":true},` + m + `}`},
		{`{"model":"m","stream":true,"stream_options":null,` + m + `}`, true, true, `{"model":"m","stream":true,"stream_options":{"include_usage":true},` + m + `}`},
		{`{"model":"m","stream":true,"stream_options":{ "x":1 },` + m + `}`, true, true, `{"model":"m","stream":true,"stream_options":{"include_usage":true, "x":1 },` + m + `}`},
		{`{"model":"m","stream":true,"stream_options":{"x":1, "include_usage": false},` + m + `}`, true, true, `{"model":"m","stream":true,"stream_options":{"x":1, "include_usage": true},` + m + `}`},
		{`{}`, false, false, `{"model":"m"}`},
	} {
		out, err := PatchOpenAIChat([]byte(tc.in), "m", tc.stream, tc.usage)
		if err != nil {
			t.Errorf("%s: %v", tc.in, err)
			continue
		}
		want := tc.want
		if want == "" {
			want = tc.in
			if &out[0] != &[]byte(tc.in)[0] && string(out) != tc.in {
				t.Errorf("%s is changed to %s", tc.in, out)
			}
		}
		if string(out) != want {
			t.Errorf("%s\n got %s\nwant %s", tc.in, out, want)
		}
	}
	body := []byte(`{"model":"m",` + m + `}`)
	if out, _ := PatchOpenAIChat(body, "m", false, true); &out[0] != &body[0] {
		t.Error("a body that needs no change is copied")
	}
	if _, err := PatchOpenAIChat([]byte(`[]`), "m", false, true); err == nil {
		t.Error("an array is patched")
	}
}

// FuzzPatch holds that a patch changes its three fields and nothing else.
func FuzzPatch(f *testing.F) {
	f.Add([]byte(`{"model":"a","stream":true,"stream_options":{"x":{"y":[1]},"include_usage":false},`+hi+`,"n":1}`), "new", true, true)
	f.Add([]byte(`{`+hi+` , "stream_options" : {} }`), "né\"w", true, false)
	f.Add([]byte(`{"stream_options":{"a":1},"stream":true,`+hi+`}`), "m", false, false)
	f.Fuzz(func(t *testing.T, body []byte, model string, stream, usage bool) {
		r, err := Parse(OpenAIChat, body)
		if err != nil || CheckName("model", model, subjects.MaxName) != nil || model == "" {
			return
		}
		out, err := r.OpenAIChat(model, stream, usage)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Parse(OpenAIChat, out)
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, body, out)
		}
		if p.Head.Model != model || p.Head.Stream != stream || stream && p.Head.StreamUsage != usage {
			t.Fatalf("%+v\n%s\n%s", p.Head, body, out)
		}
		was, is := map[string]raw{}, map[string]raw{}
		for f := range view(body).fields() {
			was[f.Key] = f.Value
		}
		for f := range view(out).fields() {
			is[f.Key] = f.Value
		}
		for _, k := range []string{"model", "stream", "stream_options"} {
			delete(was, k)
			delete(is, k)
		}
		if !reflect.DeepEqual(was, is) {
			t.Fatalf("changed more\n%s\n%s", body, out)
		}
	})
}
