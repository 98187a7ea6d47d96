package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/subjects"
)

// decoded are answers of openai-chat servers and what they say.
var decoded = []struct {
	name, raw string
	want      Response
}{
	{
		"plain",
		`{"model":"gpt-4o-2024-08-06","choices":[{"index":0,"message":{"role":"assistant","content":"h\u00e9\n"},"finish_reason":"stop"}],
			 "usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":10},"completion_tokens_details":{"reasoning_tokens":5}}}`,
		Response{Text: "hé\n", FinishReason: "stop", Model: "gpt-4o-2024-08-06", UsageKnown: true, Usage: subjects.Usage{
			InputTokens: 30, OutputTokens: 20, TotalTokens: 50, CacheReadTokens: 60, CacheWriteTokens: 10, ReasoningTokens: 5,
		}},
	},
	{
		"tool calls, finish reason of a sloppy server",
		`{"choices":[{"message":{"content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"2","function":{"name":"g","arguments":""}}]},"finish_reason":"stop"}]}`,
		Response{FinishReason: "tool_calls", ToolCalls: []subjects.ToolCall{{ID: "1", Name: "f", Arguments: `{"a":1}`}, {ID: "2", Name: "g", Arguments: "{}"}}},
	},
	{
		"legacy function call",
		`{"choices":[{"message":{"content":null,"function_call":{"name":"f","arguments":"{}"}},"finish_reason":"function_call"}]}`,
		Response{FinishReason: "tool_calls", ToolCalls: []subjects.ToolCall{{ID: made, Name: "f", Arguments: "{}"}}},
	},
	{
		"refusal",
		`{"choices":[{"message":{"content":null,"refusal":"no"},"finish_reason":"stop"}]}`,
		Response{Text: "no", FinishReason: "content_filter"},
	},
	{
		"content as parts, a finish reason of its own, several choices",
		`{"choices":[{"index":1,"message":{"content":"second"}},{"index":0,"message":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},"finish_reason":"eos"}]}`,
		Response{Text: "ab", FinishReason: "stop"},
	},
	{
		"arguments as an object",
		`{"choices":[{"message":{"tool_calls":[{"id":"1","function":{"name":"f","arguments":{"a":1}}}]},"finish_reason":"tool_calls"}]}`,
		Response{FinishReason: "tool_calls", ToolCalls: []subjects.ToolCall{{ID: "1", Name: "f", Arguments: `{"a":1}`}}},
	},
	{
		"absurd usage",
		`{"choices":[{"message":{"content":""},"finish_reason":"length"}],"usage":{"prompt_tokens":5,"completion_tokens":-7,"prompt_tokens_details":{"cached_tokens":9,"cache_write_tokens":9}}}`,
		Response{FinishReason: "length", UsageKnown: true, Usage: subjects.Usage{CacheReadTokens: 5}},
	},
	{
		"usage of another kind",
		`{"choices":[{"message":{"content":""},"finish_reason":"length"}],"usage":{"prompt_tokens":1e3,"completion_tokens":1e300,"prompt_tokens_details":null,"completion_tokens_details":"x"}}`,
		Response{FinishReason: "length", UsageKnown: true, Usage: subjects.Usage{InputTokens: 1000, OutputTokens: maxTokens, TotalTokens: maxTokens + 1000}},
	},
	{
		"DeepSeek's usage",
		`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":2}}`,
		Response{Text: "x", FinishReason: "stop", UsageKnown: true, Usage: subjects.Usage{InputTokens: 2, OutputTokens: 2, TotalTokens: 4, CacheReadTokens: 8}},
	},
	{
		"xAI's usage: the reasoning beside the completion",
		`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":30},"prompt_tokens":10,"total_tokens":42}}`,
		Response{Text: "x", FinishReason: "stop", UsageKnown: true, Usage: subjects.Usage{InputTokens: 10, OutputTokens: 32, TotalTokens: 42, ReasoningTokens: 30}},
	},
	{
		"the same, less reasoning than completion",
		`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"completion_tokens":40,"completion_tokens_details":{"reasoning_tokens":30},"prompt_tokens":10,"total_tokens":80}}`,
		Response{Text: "x", FinishReason: "stop", UsageKnown: true, Usage: subjects.Usage{InputTokens: 10, OutputTokens: 70, TotalTokens: 80, ReasoningTokens: 30}},
	},
	{
		"the same, without a total",
		`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":30},"prompt_tokens":10}}`,
		Response{Text: "x", FinishReason: "stop", UsageKnown: true, Usage: subjects.Usage{InputTokens: 10, OutputTokens: 32, TotalTokens: 42, ReasoningTokens: 30}},
	},
	{
		"more reasoning than the total has room for",
		`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":30},"prompt_tokens":10,"total_tokens":12}}`,
		Response{Text: "x", FinishReason: "stop", UsageKnown: true, Usage: subjects.Usage{InputTokens: 10, OutputTokens: 2, TotalTokens: 12, ReasoningTokens: 2}},
	},
	{"no usage", `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":null}`, Response{Text: "x", FinishReason: "stop"}},
}

func TestDecode(t *testing.T) {
	for _, tc := range decoded {
		t.Run(tc.name, func(t *testing.T) {
			got := Response{Wire: OpenAIChat, Raw: []byte(tc.raw)}
			if err := Decode(&got); err != nil {
				t.Fatal(err)
			}
			tc.want.Wire, tc.want.Raw, tc.want.decoded = OpenAIChat, got.Raw, true
			unmake(got.ToolCalls)
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("\n got %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestDecodeRefusesAnAnswerWithoutChoices(t *testing.T) {
	for _, s := range []string{`{}`, `{"choices":[]}`, `{"choices":null}`, `{"choices":{}}`} {
		for _, decode := range []func(*Response) error{Decode, DecodeSummary} {
			err := decode(&Response{Wire: OpenAIChat, Raw: []byte(s)})
			if subjects.KindOf(err) != subjects.KindProvider {
				t.Errorf("%s: %v", s, err)
			}
		}
	}
	if err := Decode(&Response{Text: "hub"}); err != nil {
		t.Error(err)
	}
	if err := Decode(&Response{Wire: OpenAIResponses, Raw: []byte(`{}`)}); err == nil {
		t.Error("decoded a wire that is not built")
	}
}

func TestDecodeSummary(t *testing.T) {
	resp := &Response{Wire: OpenAIChat, Raw: []byte(`{"model":"m","choices":[{"message":{"content":"h\u00e9","reasoning_content":"1234","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`)}
	if err := DecodeSummary(resp); err != nil {
		t.Fatal(err)
	}
	if resp.OutputBytes != 3+4+3 || resp.FinishReason != "tool_calls" || resp.Model != "m" || !resp.UsageKnown || resp.Text != "" {
		t.Errorf("%+v", resp)
	}
}

func sampleResult() *subjects.Result {
	cost := subjects.USD(1_250_000)
	return &subjects.Result{
		CallID: "c1", Provider: "openai", Model: "gpt-4o", ModelRaw: "gpt-4o-2024-08-06", Tier: "fast", Class: "interactive",
		Process: "pröc", Subscription: "api-key", CostUSD: &cost, Usage: subjects.Usage{InputTokens: 30, OutputTokens: 20, TotalTokens: 50, CacheReadTokens: 60},
		Warnings: []string{"seed \"left\" out"}, LatencyMs: 12.345, QueuedMs: 0.001,
		Attempts: []subjects.Attempt{{Provider: "a", Outcome: "skipped", Reason: "quota"}, {Provider: "openai", Model: "m", Outcome: "ok", Ms: 12}},
	}
}

// The hand-written encoder says what encoding/json would.
func TestAppendResultIsEncodingJSON(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		b := make([]byte, rnd.IntN(12))
		for i := range b {
			b[i] = byte(rnd.IntN(256))
		}
		return strings.ToValidUTF8(string(b), "é\u2028<&>")
	}
	for i := range 500 {
		r := sampleResult()
		r.Content, r.Process, r.Tier = text(), text(), text()
		r.Cached, r.Local, r.Mock = rnd.IntN(2) == 0, rnd.IntN(2) == 0, rnd.IntN(2) == 0
		r.LatencyMs, r.Usage.Estimated = rnd.Float64()*1e6, rnd.IntN(2) == 0
		if i%3 == 0 {
			r.CostUSD, r.Warnings = nil, nil
			r.ToolCalls = []subjects.ToolCall{{ID: text(), Name: text(), Arguments: text()}, {}}
		}
		want, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		got := append(appendResult([]byte{'{'}, r), '}')
		sameJSON(t, got, string(want))
		if !ValidJSON(got) {
			t.Fatalf("not valid: %s", got)
		}
	}
	if got := appendResult([]byte{'{'}, &subjects.Result{}); !bytes.Contains(got, []byte(`"attempts":[]`)) {
		t.Errorf("attempts is not a list: %s", got)
	}
}

func TestAppendStringMendsUTF8(t *testing.T) {
	for in, want := range map[string]string{"a\xffb": "a\uFFFDb", "\xf0\x9f": "\uFFFD\uFFFD", "\x00\x1f\"\\\n\r\t/": "\x00\x1f\"\\\n\r\t/", "日本": "日本"} {
		var got string
		if err := json.Unmarshal(appendString(nil, in), &got); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

func TestEncodeResponse(t *testing.T) {
	raw := []byte(`{"id":"x","unknown":[1],"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}`)
	resp := func() *Response { return &Response{Wire: OpenAIChat, Raw: raw} }
	same, err := EncodeResponse(OpenAIChat, resp(), sampleResult())
	if err != nil || &same[0] != &raw[0] {
		t.Errorf("same wire: %s, %v", same, err)
	}
	res := sampleResult()
	native, err := EncodeResponse(Native, resp(), res)
	if err != nil || res.Content != "hi" || res.FinishReason != "stop" {
		t.Errorf("%+v, %v", res, err)
	}
	var back subjects.Result
	if err := json.Unmarshal(native, &back); err != nil || !reflect.DeepEqual(&back, res) {
		t.Errorf("%v\n got %+v\nwant %+v", err, back, res)
	}
	hub := &Response{ToolCalls: []subjects.ToolCall{{ID: "1", Name: "f", Arguments: "{}"}}, FinishReason: "tool_calls", Model: "m"}
	made, err := EncodeResponse(OpenAIChat, hub, sampleResult())
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(made, &m); err != nil {
		t.Fatal(err)
	}
	delete(m, "created")
	made, _ = json.Marshal(m)
	sameJSON(t, made, `{"id":"chatcmpl-c1","object":"chat.completion","model":"gpt-4o-2024-08-06",
		"choices":[{"index":0,"message":{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls"}],
		"usage":{"prompt_tokens":90,"completion_tokens":20,"total_tokens":110,"prompt_tokens_details":{"cached_tokens":60,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}}}`)
	// What we make, we read.
	again := &Response{Wire: OpenAIChat, Raw: made}
	if err := Decode(again); err != nil || again.Usage.InputTokens != 30 || again.Usage.CacheReadTokens != 60 || len(again.ToolCalls) != 1 {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := EncodeResponse(AnthropicMessages, hub, sampleResult()); err == nil {
		t.Error("encoded for a wire that is not built")
	}
}

// run sends events through an encoder and collects what it writes.
func run(t *testing.T, enc StreamEncoder, events []Event, resp *Response) (out []string, res *subjects.Result) {
	t.Helper()
	emit := func(b []byte) error {
		if !ValidJSON(b) {
			t.Fatalf("not valid JSON: %s", b)
		}
		out = append(out, string(b))
		return nil
	}
	for i := range events {
		if err := enc.Event(&events[i], emit); err != nil {
			t.Fatal(err)
		}
	}
	res = sampleResult()
	if err := enc.Finish(resp, res, emit); err != nil {
		t.Fatal(err)
	}
	return out, res
}

func chunks(raw ...string) (out []Event) {
	for _, s := range raw {
		info, _ := ReadOpenAIChunk([]byte(s))
		out = append(out, Event{Wire: OpenAIChat, Raw: []byte(s), UsageOnly: info.UsageOnly})
	}
	return out
}

func delta0(s string) string {
	return `{"choices":[{"index":0,"delta":` + s + `,"finish_reason":null}]}`
}

func finish0(s string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + s + `"}]}`
}

const usageChunk = `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`

func TestNativeStream(t *testing.T) {
	in := chunks(
		delta0(`{"role":"assistant","content":""}`), delta0(`{"content":"he\"l"}`), delta0(`{"content":"lo"}`),
		`{"choices":[{"index":1,"delta":{"content":"other choice"}}]}`,
		delta0(`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]}`),
		delta0(`{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{\"x"}}]}`),
		delta0(`{"tool_calls":[{"index":0,"function":{"arguments":"{}"}},{"index":1,"function":{"arguments":"\":1}"}}]}`),
		finish0("tool_calls"), usageChunk,
	)
	out, res := run(t, NewStreamEncoder(Native, &Head{}, "c1", "m"), in, &Response{FinishReason: "tool_calls"})
	want := []string{
		`{"type":"delta","content":"he\"l"}`, `{"type":"delta","content":"lo"}`,
		`{"type":"tool_call","toolCall":{"id":"a","name":"f","arguments":"{}"}}`,
		`{"type":"tool_call","toolCall":{"id":"b","name":"g","arguments":"{\"x\":1}"}}`,
	}
	if !reflect.DeepEqual(out[:len(out)-1], want) {
		t.Errorf("\n got %q\nwant %q", out, want)
	}
	var ev subjects.Event
	if err := json.Unmarshal([]byte(out[len(out)-1]), &ev); err != nil || ev.Type != "result" || !reflect.DeepEqual(ev.Result, res) {
		t.Errorf("%v: %+v", err, ev)
	}
	if res.Content != `he"llo` || len(res.ToolCalls) != 2 || res.FinishReason != "tool_calls" {
		t.Errorf("%+v", res)
	}
}

func TestNativeStreamOfSloppyServers(t *testing.T) {
	for name, tc := range map[string]struct {
		in    []string
		calls []subjects.ToolCall
		text  string
	}{
		"no index": {
			[]string{delta0(`{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"g","arguments":"{}"}}]}`), finish0("stop")},
			[]subjects.ToolCall{{ID: "a", Name: "f", Arguments: "{}"}, {ID: "b", Name: "g", Arguments: "{}"}},
			"",
		},
		"one index for all": {
			[]string{delta0(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}`), delta0(`{"tool_calls":[{"index":0,"id":"b","function":{"name":"f","arguments":"[]"}}]}`), finish0("stop")},
			[]subjects.ToolCall{{ID: "a", Name: "f", Arguments: "{}"}, {ID: "b", Name: "f", Arguments: "[]"}},
			"",
		},
		"the id again in every piece": {
			[]string{delta0(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}`), delta0(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}]}`), finish0("stop")},
			[]subjects.ToolCall{{ID: "a", Name: "f", Arguments: "{}"}},
			"",
		},
		"no id, no arguments, no finish": {
			[]string{delta0(`{"tool_calls":[{"index":0,"function":{"name":"f"}}]}`)},
			[]subjects.ToolCall{{ID: made, Name: "f", Arguments: "{}"}},
			"",
		},
		"legacy": {
			[]string{delta0(`{"function_call":{"name":"f","arguments":"{\"a\""}}`), delta0(`{"function_call":{"arguments":":1}"}}`), finish0("function_call")},
			[]subjects.ToolCall{{ID: made, Name: "f", Arguments: `{"a":1}`}},
			"",
		},
		"no index on the choice, null content": {
			[]string{`{"choices":[{"delta":{"content":null}}]}`, `{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}`, `{}`, `{"choices":null}`},
			nil, "x",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, res := run(t, NewStreamEncoder(Native, &Head{}, "c1", "m"), chunks(tc.in...), &Response{})
			unmake(res.ToolCalls)
			if !reflect.DeepEqual(res.ToolCalls, tc.calls) || res.Content != tc.text {
				t.Errorf("%+v, %q", res.ToolCalls, res.Content)
			}
		})
	}
}

// made stands for an id that Sluice made.
const made = "call_*"

// unmake puts made in the place of such ids, which must not come twice.
func unmake(calls []subjects.ToolCall) {
	seen := map[string]bool{}
	for i := range calls {
		if id := calls[i].ID; len(id) == 21 && strings.HasPrefix(id, "call_") && !seen[id] {
			seen[id] = true
			calls[i].ID = made
		}
	}
}

func TestNativeStreamFromHub(t *testing.T) {
	out, res := run(t, NewStreamEncoder(Native, &Head{}, "c1", "m"), []Event{{Text: "a"}, {}, {Text: "b", ToolCall: &subjects.ToolCall{ID: "1"}}}, &Response{FinishReason: "stop"})
	if len(out) != 4 || res.Content != "ab" || res.FinishReason != "tool_calls" {
		t.Errorf("%q %+v", out, res)
	}
}

func TestNativeStreamIsBounded(t *testing.T) {
	enc := NewStreamEncoder(Native, &Head{}, "c1", "m")
	ev := &Event{Text: strings.Repeat("x", 1<<20)}
	emit := func([]byte) error { return nil }
	var err error
	for range 17 {
		if err = enc.Event(ev, emit); err != nil {
			break
		}
	}
	if subjects.KindOf(err) != subjects.KindProvider {
		t.Errorf("17 MiB: %v", err)
	}
	enc = NewStreamEncoder(Native, &Head{}, "c1", "m")
	ev = &Event{Wire: OpenAIChat, Raw: []byte(delta0(`{"tool_calls":[{"index":0,"function":{"arguments":"` + strings.Repeat("x", 1<<20) + `"}}]}`))}
	for range 17 {
		if err = enc.Event(ev, emit); err != nil {
			break
		}
	}
	if subjects.KindOf(err) != subjects.KindProvider {
		t.Errorf("17 MiB of arguments: %v", err)
	}
}

func TestEmitErrorEndsEverything(t *testing.T) {
	gone := errors.New("gone")
	for _, to := range []Name{Native, OpenAIChat} {
		enc := NewStreamEncoder(to, &Head{StreamUsage: true}, "c", "m")
		emit := func([]byte) error { return gone }
		for _, ev := range []Event{{Text: "x"}, {ToolCall: &subjects.ToolCall{}}, {Wire: OpenAIChat, Raw: []byte(delta0(`{"content":"x"}`))}} {
			if err := enc.Event(&ev, emit); err != gone { //nolint:errorlint // returned as it is
				t.Errorf("%s: %v", to, err)
			}
		}
		if err := enc.Finish(&Response{}, sampleResult(), emit); err != gone { //nolint:errorlint // returned as it is
			t.Errorf("%s: %v", to, err)
		}
	}
}

func TestOpenAIStreamSameWire(t *testing.T) {
	raw := []string{delta0(`{"content":"x","new":1}`), finish0("stop"), usageChunk}
	merged := []string{delta0(`{"content":"x"}`), `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`}
	for name, tc := range map[string]struct {
		in   []string
		want bool
		out  int
	}{
		"usage not asked":                {raw, false, 2},
		"usage asked":                    {raw, true, 3},
		"usage asked, in the last chunk": {merged, true, 2},
		"usage asked, none came":         {raw[:2], true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			out, _ := run(t, NewStreamEncoder(OpenAIChat, &Head{StreamUsage: tc.want}, "c1", "m"), chunks(tc.in...), &Response{})
			if len(out) != tc.out {
				t.Fatalf("%d events: %q", len(out), out)
			}
			for i := range min(len(out), len(tc.in)) {
				if out[i] != tc.in[i] {
					t.Errorf("changed: %s", out[i])
				}
			}
			if len(out) > len(tc.in) && !strings.Contains(out[2], `"prompt_tokens":90`) {
				t.Errorf("made usage: %s", out[2])
			}
		})
	}
}

func TestOpenAIStreamFromHub(t *testing.T) {
	in := []Event{{Text: "a"}, {Text: "b"}, {ToolCall: &subjects.ToolCall{ID: "1", Name: "f", Arguments: "{}"}}, {ToolCall: &subjects.ToolCall{ID: "2", Name: "g", Arguments: "{}"}}}
	out, _ := run(t, NewStreamEncoder(OpenAIChat, &Head{StreamUsage: true}, "c1", "m"), in, &Response{})
	// Read it back as a provider's stream.
	back, res := run(t, NewStreamEncoder(Native, &Head{}, "c1", "m"), chunks(out...), &Response{})
	if len(back) != 5 || res.Content != "ab" || len(res.ToolCalls) != 2 || res.ToolCalls[1].Name != "g" {
		t.Errorf("%q\n%q", out, back)
	}
	first, _ := ReadOpenAIChunk([]byte(out[0]))
	finish, _ := ReadOpenAIChunk([]byte(out[len(out)-2]))
	last, _ := ReadOpenAIChunk([]byte(out[len(out)-1]))
	if !strings.Contains(out[0], `"role":"assistant"`) || first.Model != "m" || finish.Finish != "tool_calls" || !last.UsageOnly || last.Usage.OutputTokens != 20 {
		t.Errorf("%q", out)
	}
	out, _ = run(t, NewStreamEncoder(OpenAIChat, &Head{}, "c1", "m"), nil, &Response{FinishReason: "length"})
	if len(out) != 2 || !strings.Contains(out[1], `"finish_reason":"length"`) || strings.Contains(out[1], "usage") {
		t.Errorf("an empty stream: %q", out)
	}
}

func TestReadOpenAIChunk(t *testing.T) {
	for in, want := range map[string]ChunkInfo{
		delta0(`{"content":"h\u00e9"}`):           {OutputBytes: 3},
		delta0(`{"reasoning_content":"1234"}`):    {OutputBytes: 4},
		finish0("length"):                         {Finish: "length"},
		usageChunk:                                {UsageOnly: true, UsageKnown: true, Usage: subjects.Usage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}},
		`{"error":{"message":"x"}}`:               {Error: true},
		`{"error":null,"model":"m","choices":[]}`: {Model: "m"},
		`{"x_groq":{"id":"1","usage":{"prompt_tokens":1}},"choices":[{"index":0}]}`: {UsageKnown: true, Usage: subjects.Usage{InputTokens: 1, TotalTokens: 1}},
		`{"x_groq":{"error":"over capacity"}}`:                                      {Error: true},
	} {
		if got, ok := ReadOpenAIChunk([]byte(in)); !ok || got != want {
			t.Errorf("%s\n got %+v, %v\nwant %+v", in, got, ok, want)
		}
	}
	for _, in := range []string{``, `{`, `[]`, `"x"`, "{\"a\":\"\xff\"}"} {
		if _, ok := ReadOpenAIChunk([]byte(in)); ok {
			t.Errorf("%q is accepted", in)
		}
	}
}

// FuzzStreamEncoder feeds chunks of any kind: what comes out is valid JSON, and
// the deltas make the result's content.
func FuzzStreamEncoder(f *testing.F) {
	f.Add([]byte(delta0(`{"content":"a"}`)+"\n"+finish0("stop")+"\n"+usageChunk), true)
	f.Add([]byte(delta0(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}`)+"\n"+delta0(`{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}`)), false)
	f.Fuzz(func(t *testing.T, in []byte, usage bool) {
		head := &Head{StreamUsage: usage}
		native, openai := NewStreamEncoder(Native, head, "c", "m"), NewStreamEncoder(OpenAIChat, head, "c", "m")
		text := ""
		emit := func(b []byte) error {
			if !ValidJSON(b) {
				t.Fatalf("not valid JSON: %s", b)
			}
			if v := view(b); v.get("type").str() == "delta" {
				text += strings.Clone(v.get("content").str())
			}
			return nil
		}
		for line := range bytes.SplitSeq(in, []byte("\n")) {
			info, ok := ReadOpenAIChunk(line)
			if !ok {
				continue
			}
			ev := &Event{Wire: OpenAIChat, Raw: line, UsageOnly: info.UsageOnly}
			if native.Event(ev, emit) != nil || openai.Event(ev, func([]byte) error { return nil }) != nil {
				t.Fatal("refused")
			}
		}
		res := sampleResult()
		if native.Finish(&Response{}, res, emit) != nil || openai.Finish(&Response{}, sampleResult(), emit) != nil {
			t.Fatal("not finished")
		}
		if res.Content != text {
			t.Fatalf("the deltas say %q, the result %q", text, res.Content)
		}
	})
}
