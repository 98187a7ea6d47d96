package wire

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

const hi = `"messages":[{"role":"user","content":"hi"}]`

func TestParseHead(t *testing.T) {
	for _, tc := range []struct {
		name Name
		body string
		want Head
	}{
		{Native, `{` + hi + `}`, Head{}},
		{Native, ` {` + hi + `,"tools":null,"stop":null,"maxTokens":null,"tier":null,"stream":null} `, Head{}},
		{
			Native, `{` + hi + `,"tier":"fast","task":"t","process":"p","provider":"openai","model":"openai/gpt-4o","agentId":"a",
			"privacy":"local","skipCache":true,"forcePaid":true,"timeoutMs":1500,"callId":"c","runId":"r","batchId":"b","cacheScope":"s","stream":true,"maxTokens":5}`,
			Head{
				CallID: "c", Model: "openai/gpt-4o", Provider: "openai", Tier: "fast", Task: "t", Process: "p", AgentID: "a",
				Privacy: "local", RunID: "r", BatchID: "b", CacheScope: "s", Timeout: 1500 * time.Millisecond, Stream: true, SkipCache: true,
				ForcePaid: true, Needs: NeedStreaming, MaxTokens: 5,
			},
		},
		{Native, `{` + hi + `,"taskType":"old","timeout":200,"agent":"x"}`, Head{Task: "old", Timeout: 200 * time.Millisecond, AgentID: "x"}},
		{Native, `{"operationType":"op",` + hi + `,"task":"new"}`, Head{Task: "new"}},
		{Native, `{` + hi + `,"operationType":"op","taskType":"tt"}`, Head{Task: "tt"}},
		{Native, `{"timeoutMs":1,"agentId":"a",` + hi + `,"timeout":200,"agent":"x"}`, Head{Timeout: time.Millisecond, AgentID: "a"}},
		{Native, `{` + hi + `,"subscription":"max-subscription"}`, Head{Provider: "claude-code"}},
		{Native, `{` + hi + `,"subscription":"api-key"}`, Head{ForcePaid: true}},
		{Native, `{` + hi + `,"subscription":"local"}`, Head{Privacy: "local"}},
		{Native, `{` + hi + `,"subscription":"mock","provider":"openai"}`, Head{Provider: "openai"}},
		{Native, `{` + hi + `,"subscription":true}`, Head{}},
		{Native, `{` + hi + `,"responseFormat":{"type":"json_object"}}`, Head{Needs: NeedJSONMode}},
		{Native, `{` + hi + `,"responseFormat":{"type":"json_schema","schema":{}},"tools":[{"name":"f"}],"toolChoice":{"name":"f"}}`, Head{Needs: NeedJSONSchema | NeedTools | NeedToolChoice}},
		{Native, `{` + hi + `,"tools":[{"name":"f"}],"toolChoice":"required","seed":-1,"reasoningEffort":"low","parallelToolCalls":false}`, Head{Needs: NeedTools | NeedToolChoice}},
		{Native, `{"messages":[{"role":"user","content":[{"type":"image","imageUrl":"https:\/\/x/a.png"}]}]}`, Head{Needs: NeedImages | NeedImageURLs}},
		{Native, `{` + hi + `,"tools":[],"stop":["a","b"],"temperature":2,"topP":1.0}`, Head{}},
		{Native, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","imageUrl":"data:image/png;base64,AA==","detail":"low"}]}]}`, Head{Needs: NeedImages}},
		{Native, `{"messages":[{"role":"assistant","content":null,"toolCalls":[{"id":"1","name":"f","arguments":"{}"}]},{"role":"tool","toolCallId":"1","content":"r"}]}`, Head{Needs: NeedTools}},
		{Native, `{"messages":[{"role":"user","content":"nul \u0000 escaped"}]}`, Head{}},
		{"", `{` + hi + `}`, Head{}},

		{OpenAIChat, `{"model":"gpt-4o",` + hi + `}`, Head{Model: "gpt-4o"}},
		{OpenAIChat, `{` + hi + `,"model":null,"any_new_field":{"x":[1]},"metadata":{"a":"b"}}`, Head{}},
		{OpenAIChat, `{"mod\u0065l":"m",` + hi + `}`, Head{Model: "m"}},
		{OpenAIChat, `{` + hi + `,"stream":true,"stream_options":{"include_usage":true}}`, Head{Stream: true, StreamUsage: true, Needs: NeedStreaming}},
		{OpenAIChat, `{` + hi + `,"stream":false,"stream_options":{"include_usage":true}}`, Head{}},
		{OpenAIChat, `{` + hi + `,"n":2,"logprobs":true,"top_logprobs":3,"max_completion_tokens":7,"max_tokens":3}`, Head{Needs: NeedChoices | NeedLogProbs, MaxTokens: 7}},
		{OpenAIChat, `{` + hi + `,"n":1,"logprobs":false,"top_logprobs":0}`, Head{}},
		{OpenAIChat, `{` + hi + `,"functions":[{"name":"f"}],"response_format":{"type":"json_schema","json_schema":{"name":"n"}}}`, Head{Needs: NeedTools | NeedJSONSchema}},
		{OpenAIChat, `{` + hi + `,"modalities":["text","audio"]}`, Head{Needs: NeedAudio}},
		{OpenAIChat, `{"messages":[{"role":"developer","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},{"role":"tool","content":"r","tool_call_id":"1"}]}`, Head{Needs: NeedTools}},
		{OpenAIChat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}},{"type":"input_audio"},{"type":"file"},{"type":"new_kind"}]}]}`, Head{Needs: NeedImages | NeedImageURLs | NeedAudio | NeedDocuments | NeedOpenAIChat}},
		{OpenAIChat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]}`, Head{Needs: NeedImages}},
		{OpenAIChat, `{` + hi + `,"tools":[{"type":"custom"}]}`, Head{Needs: NeedTools | NeedOpenAIChat}},
		{OpenAIChat, `{` + hi + `,"tools":[{"type":"function"}],"tool_choice":{"type":"function","function":{"name":"f"}}}`, Head{Needs: NeedTools | NeedToolChoice}},
		{OpenAIChat, `{` + hi + `,"tool_choice":{"type":"allowed_tools"},"web_search_options":{}}`, Head{Needs: NeedOpenAIChat}},
		{OpenAIChat, `{` + hi + `,"tool_choice":"required","response_format":{"type":"grammar"}}`, Head{Needs: NeedToolChoice | NeedOpenAIChat}},
	} {
		r, err := Parse(tc.name, []byte(tc.body))
		if err != nil {
			t.Errorf("Parse(%s, %s): %v", tc.name, tc.body, err)
			continue
		}
		if !reflect.DeepEqual(r.Head, tc.want) {
			t.Errorf("Parse(%s, %s)\n got %+v\nwant %+v", tc.name, tc.body, r.Head, tc.want)
		}
	}
}

var long = strings.Repeat("x", 300)

var refused = []struct {
	name Name
	body string
	want string
}{
	{Native, ``, "request: the body is empty"},
	{Native, " \n", "request: the body is empty"},
	{Native, `[1]`, "request: must be a JSON object, not an array"},
	{Native, `"secret"`, "request: must be a JSON object, not a string"},
	{Native, `{"messages":[`, "request: not valid JSON at byte 13 (line 1): it ends too early"},
	{Native, "{\n" + hi + "\n,}", "(line 3): a key in quotes"},
	{Native, "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", "not valid UTF-8 at byte 39"},
	{Native, "{\"messages\":[{\"role\":\"user\",\"content\":\"\x00\"}]}", "a control character"},
	{Native, `{"a":` + strings.Repeat("[", 250) + strings.Repeat("]", 250) + `}`, "nested more than 200"},
	{Native, `{}`, "messages: missing"},
	{Native, `{"messages":[]}`, "messages: is empty"},
	{Native, `{"messages":null}`, "messages: must be an array with at least one message, not null"},
	{Native, `{"messages":"secret"}`, "messages: must be an array with at least one message, not a string"},
	{Native, `{"messages":["secret"]}`, "messages[0]: must be an object, not a string"},
	{Native, `{"messages":[{"role":"user","content":"a"},{"role":"secret","content":"a"}]}`, "messages[1].role: must be one of system, user, assistant, tool"},
	{Native, `{"messages":[{"content":"a"}]}`, "messages[0].role: missing"},
	{Native, `{"messages":[{"role":"user"}]}`, "messages[0].content: missing"},
	{Native, `{"messages":[{"role":"user","content":5}]}`, "messages[0].content: must be a string or an array of parts, not a number"},
	{Native, `{"messages":[{"role":"user","content":[]}]}`, "messages[0].content: is an empty array"},
	{Native, `{"messages":[{"role":"user","content":["secret"]}]}`, "messages[0].content[0]: must be an object"},
	{Native, `{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, "messages[0].content[0].text: must be a string"},
	{Native, `{"messages":[{"role":"user","content":[{"type":"image","imageUrl":"file:///etc/passwd"}]}]}`, "messages[0].content[0].imageUrl: must be an http(s) URL"},
	{Native, `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, "messages[0].content[0].type: must be one of text, image"},
	{Native, `{"messages":[{"role":"user","content":[{"type":"text","text":"a","txt":1}]}]}`, "messages[0].content[0].txt: unknown field; did you mean text?"},
	{Native, `{"messages":[{"role":"user","content":"a","tool_calls":[]}]}`, "messages[0].tool_calls: unknown field; did you mean toolCalls?"},
	{Native, `{"messages":[{"role":"user","content":"a","toolCalls":[{"id":"a","name":"b"}]}]}`, "messages[0].toolCalls: only an assistant"},
	{Native, `{"messages":[{"role":"tool","content":"a"}]}`, "messages[0].toolCallId: missing"},
	{Native, `{"messages":[{"role":"assistant","toolCalls":[{"name":"f"}]}]}`, "messages[0].toolCalls[0].id: missing"},
	{Native, `{` + hi + `,"maxTokns":1}`, "maxTokns: unknown field; did you mean maxTokens?"},
	{Native, `{` + hi + `,"max_tokens":1}`, "max_tokens: unknown field; did you mean maxTokens?"},
	{Native, `{` + hi + `,"zzzzzzzzzzzz":1}`, "zzzzzzzzzzzz: unknown field; remove it"},
	{Native, `{` + hi + `,"` + long + `":1}`, "xxx…: unknown field"},
	{Native, `{` + hi + `,"a\u0007b":1}`, "a?b: unknown field"},
	{Native, `{` + hi + `,` + hi + `}`, "messages: is given twice"},
	{Native, `{` + hi + `,"temperature":2.1}`, "temperature: must be a number from 0 to 2"},
	{Native, `{` + hi + `,"temperature":-1e999}`, "temperature: must be a number from 0 to 2"},
	{Native, `{` + hi + `,"temperature":"hot"}`, "temperature: must be a number, not a string"},
	{Native, `{` + hi + `,"topP":-0.1}`, "topP: must be a number from 0 to 1"},
	{Native, `{` + hi + `,"maxTokens":0}`, "maxTokens: must be a whole number from 1"},
	{Native, `{` + hi + `,"maxTokens":-5}`, "maxTokens: must be a whole number from 1"},
	{Native, `{` + hi + `,"maxTokens":1.5}`, "maxTokens: must be a whole number from 1"},
	{Native, `{` + hi + `,"maxTokens":1e30}`, "maxTokens: must be a whole number from 1"},
	{Native, `{` + hi + `,"maxTokens":"5"}`, "maxTokens: must be a whole number, not a string"},
	{Native, `{` + hi + `,"timeoutMs":3600001}`, "timeoutMs: must be a whole number from 0 to 3600000"},
	{Native, `{` + hi + `,"timeout":-1}`, "timeout: must be a whole number from 0"},
	{Native, `{` + hi + `,"stream":"yes"}`, "stream: must be true or false, not a string"},
	{Native, `{` + hi + `,"stop":[1]}`, "stop[0]: must be a string, not a number"},
	{Native, `{` + hi + `,"stop":[` + strings.Repeat(`"a",`, 64) + `"a"]}`, "stop: has more than 64 entries"},
	{Native, `{` + hi + `,"tier":"turbo"}`, "tier: must be one of fast, standard, premium"},
	{Native, `{` + hi + `,"privacy":"secret"}`, "privacy: must be one of local, any"},
	{Native, `{` + hi + `,"process":7}`, "process: must be a string, not a number"},
	{Native, `{` + hi + `,"process":"` + long + `"}`, "process: is 300 bytes long; at most 256"},
	{Native, `{` + hi + `,"process":"a\nb"}`, "process: has a control character at byte 1"},
	{Native, `{` + hi + `,"callId":"` + long + `"}`, "callId: is 300 bytes long; at most 128"},
	{Native, `{` + hi + `,"subscription":"gold"}`, "subscription: must be one of copilot-subscription"},
	{Native, `{` + hi + `,"tools":[{"description":"d"}]}`, "tools[0].name: missing"},
	{Native, `{` + hi + `,"tools":[{"name":"f","parameters":[]}]}`, "tools[0].parameters: must be an object, not an array"},
	{Native, `{` + hi + `,"tools":[{"type":"function"}]}`, "tools[0].type: unknown field"},
	{Native, `{` + hi + `,"toolChoice":"required"}`, "toolChoice: is required, but there are no tools"},
	{Native, `{` + hi + `,"toolChoice":{"name":"g"},"tools":[{"name":"f"}]}`, "toolChoice.name: is not the name of one of the tools"},
	{Native, `{` + hi + `,"toolChoice":{"nam":"g"}}`, "toolChoice.nam: unknown field; did you mean name?"},
	{Native, `{` + hi + `,"responseFormat":{"type":"xml"}}`, "responseFormat.type: must be one of text, json_object, json_schema"},
	{Native, `{` + hi + `,"responseFormat":{"type":"json_schema"}}`, "responseFormat.schema: missing"},
	{Native, `{` + hi + `,"responseFormat":"json"}`, "responseFormat: must be an object, not a string"},

	{OpenAIChat, `{"model":"m"}`, "messages: missing"},
	{OpenAIChat, `{"model":1,` + hi + `}`, "model: must be a string, not a number"},
	{OpenAIChat, `{"model":"a",` + hi + `,"model":"b"}`, "model: is given twice"},
	{OpenAIChat, `{"model":"a",` + hi + `,"mod\u0065l":"b"}`, "model: is given twice"},
	{OpenAIChat, `{"model":"a",` + hi + `,"stream":false,"stream":true}`, "stream: is given twice"},
	{OpenAIChat, `{"model":"a",` + hi + `,` + hi + `}`, "messages: is given twice"},
	{OpenAIChat, `{"model":"a",` + hi + `,"Model":"b"}`, "Model: is written in another case than model"},
	{OpenAIChat, `{"model":"a",` + hi + `,"ſtream":true}`, "ſtream: is written in another case than stream"},
	{OpenAIChat, `{"messages":[{"role":"user","content":null}]}`, "messages[0].content: missing"},
	{OpenAIChat, `{"messages":[{"role":"robot","content":"x"}]}`, "messages[0].role: must be one of system, developer"},
	{OpenAIChat, `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, "messages[0].content[0].image_url.url: must be a string"},
	{OpenAIChat, `{"messages":[{"role":"user","content":[{"text":"x"}]}]}`, "messages[0].content[0].type: missing"},
	{OpenAIChat, `{` + hi + `,"n":0}`, "n: must be a whole number from 1 to 128"},
	{OpenAIChat, `{` + hi + `,"temperature":3}`, "temperature: must be a number from 0 to 2"},
	{OpenAIChat, `{` + hi + `,"presence_penalty":-3}`, "presence_penalty: must be a number from -2 to 2"},
	{OpenAIChat, `{` + hi + `,"tools":{}}`, "tools: must be an array, not an object"},
	{OpenAIChat, `{` + hi + `,"tools":["f"]}`, "tools[0]: must be an object"},
	{OpenAIChat, `{` + hi + `,"response_format":{}}`, "response_format.type: missing"},
	{OpenAIChat, `{` + hi + `,"stream_options":true}`, "stream_options: must be an object, not a boolean"},
	{OpenAIChat, `{` + hi + `,"tool_choice":1}`, "tool_choice: must be a string or an object"},
	{OpenAIChat, `{` + hi + `,"seed":1.5}`, "seed: must be a whole number"},

	{"anthropic-messages", `{}`, "wire: anthropic-messages is not built yet in this version; use one of native, openai-chat"},
	{"openai_chat", `{}`, "wire: unknown; did you mean openai-chat?"},
	{"smoke signals, quite a lot of them", `{}`, "wire: unknown; this version has native, openai-chat"},
}

// Each fault names the field and the place, and never shows the value.
func TestParseRefuses(t *testing.T) {
	for _, tc := range refused {
		_, err := Parse(tc.name, []byte(tc.body))
		if err == nil {
			t.Errorf("Parse(%s, %.100s): accepted", tc.name, tc.body)
			continue
		}
		e := subjects.AsError(err)
		if e.Kind != subjects.KindValidation || !strings.Contains(e.Message, tc.want) {
			t.Errorf("Parse(%s, %.100s)\n got %v\nwant %s", tc.name, tc.body, err, tc.want)
		}
		if strings.Contains(e.Message, "secret") || len(e.Message) > 600 {
			t.Errorf("Parse(%s, %.100s): the error shows too much: %s", tc.name, tc.body, e.Message)
		}
	}
}

func TestParseBounds(t *testing.T) {
	one := `{"role":"user","content":""}`
	many := func(n int) []byte {
		return []byte(`{"messages":[` + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + `]}`)
	}
	for _, name := range []Name{Native, OpenAIChat} {
		if _, err := Parse(name, many(subjects.MaxMessages)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Parse(name, many(subjects.MaxMessages+1)); err == nil {
			t.Errorf("%s: one message too many is accepted", name)
		}
	}
}

func TestSeenHasRoomForEveryField(t *testing.T) {
	if len(nativeKnown) > 64 || len(openAIKnown) > 64 {
		t.Error("seen has 64 bits")
	}
}

// The strings of Head outlive the body.
func TestHeadDoesNotShareTheBody(t *testing.T) {
	for _, name := range []Name{Native, OpenAIChat} {
		body := []byte(`{"model":"gpt-4o",` + hi + `}`)
		r, err := Parse(name, body)
		if err != nil {
			t.Fatal(err)
		}
		clear(body)
		if r.Head.Model != "gpt-4o" {
			t.Errorf("%s: the model changed with the body", name)
		}
	}
}

func TestPromptPreview(t *testing.T) {
	long := strings.Repeat("ä", 5000)
	for _, tc := range []struct{ content, want string }{
		{`"hello"`, "hello"},
		{`"  a\n\n b\tc  "`, "a b c"},
		{`"<user_query>hello</user_query>"`, "hello"},
		{`"<user_query kind=\"x\">\n  hello world\n</user_query>\n"`, "hello world"},
		{`"<a><b>in</b></a>"`, "in"},
		{`"<system-reminder>x</system-reminder><user_query>y</user_query>"`, "x</system-reminder><user_query>y"},
		{`"1 < 2 and 3 > 2"`, "1 < 2 and 3 > 2"},
		{`"<3 you > me"`, "<3 you > me"},
		{`"a <b>bold</b>"`, "a <b>bold"},
		{`"` + long + `"`, strings.Repeat("ä", 120)},
		{`"` + strings.Repeat(`\u00e4\n`, 3000) + `"`, strings.TrimSpace(strings.Repeat("ä ", 60))},
		{`"` + strings.Repeat(" ", 3000) + `x"`, "x"},
		{`"` + strings.Repeat("a ", 59) + `aa b"`, strings.Repeat("a ", 59) + "aa"},
		{`[{"type":"image_url","image_url":{"url":"u"}},{"type":"text","text":"<q>from a part</q>"}]`, "from a part"},
		{`""`, ""},
		{`"<a>"`, ""},
	} {
		body := `{"messages":[{"role":"user","content":"first"},{"role":"user","content":` + tc.content + `},{"role":"assistant","content":"no"}]}`
		r, err := Parse(OpenAIChat, []byte(body))
		if err != nil {
			t.Fatalf("%.80s: %v", body, err)
		}
		if got := r.PromptPreview(); got != tc.want {
			t.Errorf("preview of %.60s\n got %q\nwant %q", tc.content, got, tc.want)
		}
	}
}

func TestEstimate(t *testing.T) {
	for body, want := range map[string]int64{
		`{"messages":[{"role":"user","content":"12345"}]}`:          2,
		`{"messages":[{"role":"user","content":"\u00e4\n\u0041"}]}`: 1,
		`{"messages":[{"role":"user","content":""}]}`:               0,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"1234"},{"type":"image_url","image_url":{"url":"data:xxxxxxxxxxxxxxxxxxxxx"}}]}]}`: 801,
		`{"messages":[{"role":"user","content":"1234"}],"tools":[{"type":"function"}]}`:                                                                  7,
	} {
		r, err := Parse(OpenAIChat, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.EstimateInput(); got != want {
			t.Errorf("EstimateInput(%s) = %d, want %d", body, got, want)
		}
	}
	if got := EstimateTokens("12345"); got != 2 {
		t.Errorf("EstimateTokens = %d", got)
	}
}

func fuzzParse(f *testing.F, name Name) {
	for _, s := range []string{
		`{"model":"m",` + hi + `,"stream":true,"stream_options":{"include_usage":false}}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"<q>a</q>"},{"type":"image_url","image_url":{"url":"u"}}]}],"tools":[{"type":"function","function":{"name":"f"}}]}`,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"r","tool_call_id":"1"}]}`,
		`{"messages":[{"role":"user","content":[{"type":"image","imageUrl":"https://x/y"}]}],"toolChoice":{"name":"f"},"tools":[{"name":"f","parameters":{}}],"responseFormat":{"type":"json_schema","schema":{}}}`,
		`{"taskType":"x","stop":"a","messages":[{"role":"tool","toolCallId":"1","content":"x"}],"maxTokens":5,"topP":0.5}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Parse(name, body)
		if err != nil {
			if e := subjects.AsError(err); e.Kind != subjects.KindValidation {
				t.Fatalf("not a VALIDATION_ERROR: %v", err)
			}
			return
		}
		if n := len([]rune(r.PromptPreview())); n > previewRunes {
			t.Fatalf("preview of %d characters", n)
		}
		if r.EstimateInput() < 0 {
			t.Fatal("a negative estimate")
		}
		if out, err := r.OpenAIChat("some-model", true, true); err == nil {
			again, err := Parse(OpenAIChat, out)
			if err != nil {
				t.Fatalf("what we would send is not valid: %v\n%s", err, out)
			}
			if again.Head.Model != "some-model" || !again.Head.Stream || !again.Head.StreamUsage {
				t.Fatalf("what we would send says %+v\n%s", again.Head, out)
			}
		}
		_, _ = r.Chat()
	})
}

func FuzzParseNative(f *testing.F) { fuzzParse(f, Native) }
func FuzzParseOpenAI(f *testing.F) { fuzzParse(f, OpenAIChat) }
