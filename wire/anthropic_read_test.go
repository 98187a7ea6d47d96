package wire

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/subjects"
)

const anthropicAnswer = `{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-5","content":[
 {"type":"thinking","thinking":"hm\u00e9","signature":"xxxx"},{"type":"redacted_thinking","data":"yyyy"},
 {"type":"text","text":"h\u00e9\n","citations":null},{"type":"text","text":"llo"},
 {"type":"tool_use","id":"toolu_1","name":"get","input":{"q": "a b", "n" : [1, 2]}},{"type":"tool_use","id":"toolu_2","name":"now","input":{}},
 {"type":"server_tool_use","id":"s","name":"web_search","input":{}},{"type":"mystery"}],
 "stop_reason":"tool_use","stop_sequence":null,"stop_details":null,
 "usage":{"input_tokens":30,"cache_creation_input_tokens":10,"cache_read_input_tokens":60,"cache_creation":{"ephemeral_5m_input_tokens":10},
  "output_tokens":20,"output_tokens_details":{"thinking_tokens":5},"service_tier":"standard"}}`

var anthropicSpent = subjects.Usage{InputTokens: 30, OutputTokens: 20, TotalTokens: 50, CacheReadTokens: 60, CacheWriteTokens: 10, ReasoningTokens: 5}

func TestDecodeAnthropic(t *testing.T) {
	t.Parallel()
	got := Response{Wire: AnthropicMessages, Raw: []byte(anthropicAnswer)}
	if err := Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := Response{
		Wire: AnthropicMessages, Raw: got.Raw, decoded: true, Text: "hé\nllo", FinishReason: "tool_calls", Model: "claude-opus-5",
		ToolCalls: []subjects.ToolCall{{ID: "toolu_1", Name: "get", Arguments: `{"q":"a b","n":[1,2]}`}, {ID: "toolu_2", Name: "now", Arguments: "{}"}},
		Usage:     anthropicSpent, UsageKnown: true,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestDecodeAnthropicSummary(t *testing.T) {
	t.Parallel()
	got := Response{Wire: AnthropicMessages, Raw: []byte(anthropicAnswer)}
	if err := DecodeAnthropicSummary(&got); err != nil {
		t.Fatal(err)
	}
	bytes := len("hmé") + len("hé\n") + len("llo") + len("get") + len(`{"q": "a b", "n" : [1, 2]}`) + len("now{}") + len("web_search{}")
	want := Response{
		Wire: AnthropicMessages, Raw: got.Raw, FinishReason: "tool_calls", Model: "claude-opus-5",
		Usage: anthropicSpent, UsageKnown: true, OutputBytes: int64(bytes),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestAnthropicAnswerWithoutContent(t *testing.T) {
	t.Parallel()
	for _, s := range []string{`{}`, `{"content":null}`, `{"content":"text"}`, `[]`, `{"choices":[]}`} {
		for _, decode := range []func(*Response) error{Decode, DecodeAnthropicSummary} {
			if err := decode(&Response{Wire: AnthropicMessages, Raw: []byte(s)}); subjects.KindOf(err) != subjects.KindProvider {
				t.Errorf("%s: %v", s, err)
			}
		}
	}
	// Nothing to say is an answer.
	r := Response{Wire: AnthropicMessages, Raw: []byte(`{"content":[],"stop_reason":"refusal"}`)}
	if err := Decode(&r); err != nil || r.Text != "" || r.FinishReason != "content_filter" || r.UsageKnown {
		t.Errorf("%+v %v", r, err)
	}
}

func TestStopReason(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "model_context_window_exceeded": "length",
		"pause_turn": "length", "refusal": "content_filter", "tool_use": "tool_calls", "": "", "new_reason": "stop",
	} {
		if got := stopReason(s, false); got != want {
			t.Errorf("%s: %s", s, got)
		}
	}
	if stopReason("end_turn", true) != "tool_calls" || stopReason("max_tokens", true) != "length" {
		t.Error("beside tool calls")
	}
}

func TestAnthropicUsageOfAnotherKind(t *testing.T) {
	t.Parallel()
	var u anthropicUsage
	u.read(view([]byte(`{"input_tokens":-3,"output_tokens":1e300,"cache_read_input_tokens":null,"cache_creation_input_tokens":"7","output_tokens_details":null}`)))
	if u.usage() != (subjects.Usage{OutputTokens: maxTokens, TotalTokens: maxTokens}) || !u.known {
		t.Errorf("%+v", u)
	}
	u.read("null")
	u.read(view([]byte(`{"output_tokens":9,"output_tokens_details":{"thinking_tokens":50}}`)))
	if u.usage().ReasoningTokens != 9 {
		t.Errorf("%+v", u.usage())
	}
}

// anthropicEvents are the events of one stream: text, two tools side by side,
// and everything that may stand between.
var anthropicEvents = []string{
	`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-5","content":[],"stop_reason":null,"usage":{"input_tokens":30,"cache_creation_input_tokens":10,"cache_read_input_tokens":60,"output_tokens":3}}}`,
	`{"type":"ping"}`,
	`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"xxxx"}}`,
	`{"type":"content_block_stop","index":0}`,
	`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`,
	`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"h\u00e9"}}`,
	`{"type":"content_block_delta","index":1,"delta":{"type":"citations_delta","citation":{"type":"x","cited_text":"zzz"}}}`,
	`{"type":"mystery","of":{"the":"future"}}`,
	`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"llo"}}`,
	`{"type":"content_block_stop","index":1}`,
	`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"get","input":{}}}`,
	`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_2","name":"now","input":{}}}`,
	`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}`,
	`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"q\": "}}`,
	`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}`,
	`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1}"}}`,
	`{"type":"content_block_stop","index":2}`,
	`{"type":"content_block_stop","index":3}`,
	`{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":12}}`,
	`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":null,"output_tokens":20,"output_tokens_details":{"thinking_tokens":5}}}`,
	`{"type":"message_stop"}`,
}

// playAnthropic reads events and writes what came out as one text.
func playAnthropic(t *testing.T, hub bool, events []string) (*AnthropicStream, string, error) {
	t.Helper()
	s := &AnthropicStream{Hub: hub}
	var out strings.Builder
	for _, data := range events {
		var ev Event
		kind, err := s.Read([]byte(data), &ev)
		if err != nil {
			return s, out.String(), err
		}
		if string(ev.Raw) != data || ev.Wire != AnthropicMessages || ev.Empty != (kind != AnthropicOutput) {
			t.Errorf("%s: %+v", data, ev)
		}
		if !hub && (ev.Text != "" || ev.ToolCall != nil) {
			t.Errorf("decoded for nobody: %s", data)
		}
		switch {
		case ev.ToolCall != nil:
			fmt.Fprintf(&out, "%s(%s %s)", ev.ToolCall.Name, ev.ToolCall.ID, ev.ToolCall.Arguments)
		case ev.Text != "":
			out.WriteString(ev.Text + "|")
		case kind == AnthropicOutput && hub:
			t.Errorf("output without output: %s", data)
		case kind == AnthropicOutput:
			out.WriteByte('.')
		case kind == AnthropicEnd:
			out.WriteByte('$')
		case kind == AnthropicError:
			out.WriteByte('!')
		}
	}
	return s, out.String(), nil
}

func TestAnthropicStream(t *testing.T) {
	t.Parallel()
	for hub, want := range map[bool]string{
		true:  `hé|llo|get(toolu_1 {"q": 1})now(toolu_2 {})$`,
		false: `...........$`,
	} {
		s, out, err := playAnthropic(t, hub, anthropicEvents)
		if err != nil || out != want || !s.Whole() {
			t.Errorf("%q %v", out, err)
		}
		sum := *s.Sum()
		bytes := len("hm") + len("hé") + len("llo") + len("get") + len("now") + len(`{"q": 1}`)
		if !reflect.DeepEqual(sum, Response{
			Wire: AnthropicMessages, Model: "claude-opus-5", FinishReason: "tool_calls", Usage: anthropicSpent, UsageKnown: true, OutputBytes: int64(bytes),
		}) {
			t.Errorf("%+v", sum)
		}
	}
}

// A stream that is cut has the usage of its prompt, and what it is not.
func TestAnthropicStreamCut(t *testing.T) {
	t.Parallel()
	for n := range len(anthropicEvents) - 2 {
		s, _, err := playAnthropic(t, true, anthropicEvents[:n])
		sum := s.Sum()
		if err != nil || s.Whole() || n < 21 && (sum.UsageKnown || sum.Usage.OutputTokens != 0) || n > 0 && sum.Usage.InputTokens != 30 {
			t.Errorf("%d: %+v %v", n, sum, err)
		}
	}
	if s, _, _ := playAnthropic(t, true, anthropicEvents[:len(anthropicEvents)-1]); s.Whole() || !s.Sum().UsageKnown {
		t.Error("a stop reason alone is no proper end; its usage is known")
	}
}

func TestAnthropicStreamOddities(t *testing.T) {
	t.Parallel()
	start := func(block string) string {
		return `{"type":"content_block_start","index":0,"content_block":` + block + `}`
	}
	const stop, end = `{"type":"content_block_stop","index":0}`, `{"type":"message_stop"}`
	for _, tc := range []struct {
		name   string
		events []string
		want   string
		fails  bool
	}{
		{"a block that holds something from the start", []string{start(`{"type":"text","text":"a"}`), stop, start(`{"type":"tool_use","id":"1","name":"f","input":{"a":1}}`), stop, end}, `a|f(1 {"a":1})$`, false},
		{"an error", []string{`{"type":"error","error":{"details":null,"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}`}, "!", false},
		{"an error without a type", []string{`{"error":{"message":"x"}}`}, "!", false},
		{"a stop without a start", []string{stop, `{"type":"content_block_delta","index":9,"delta":{"type":"input_json_delta","partial_json":"{}"}}`}, "", false},
		{"a delta without a start", []string{`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`}, "a|", false},
		{"a tool call that does not end", []string{start(`{"type":"tool_use","id":"1","name":"f","input":{}}`), end}, "", true},
		{"arguments that a bound cut", []string{start(`{"type":"tool_use","id":"1","name":"f","input":{}}`), `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}`, stop}, `f(1 {"a":)`, false},
		{"no JSON", []string{`{"type":`}, "", true},
		{"no object", []string{`[1]`}, "", true},
		{"nothing", []string{``}, "", true},
	} {
		_, out, err := playAnthropic(t, true, tc.events)
		if out != tc.want || (subjects.KindOf(err) == subjects.KindProvider) != tc.fails {
			t.Errorf("%s: %q %v", tc.name, out, err)
		}
	}
}

func TestAnthropicStreamBounds(t *testing.T) {
	t.Parallel()
	s := &AnthropicStream{Hub: true}
	var ev Event
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		_, err = s.Read(fmt.Appendf(nil, `{"type":"content_block_start","index":%d,"content_block":{"type":"text"}}`, i), &ev)
	}
	if subjects.KindOf(err) != subjects.KindProvider || len(s.open) != maxOpenBlocks {
		t.Errorf("%d %v", len(s.open), err)
	}
	s = &AnthropicStream{Hub: true}
	if _, err = s.Read([]byte(`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"1","name":"f","input":{}}}`), &ev); err != nil {
		t.Fatal(err)
	}
	piece := []byte(`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"` + strings.Repeat("x", 1<<20) + `"}}`)
	for i := 0; err == nil && i < 100; i++ {
		_, err = s.Read(piece, &ev)
	}
	if subjects.KindOf(err) != subjects.KindProvider {
		t.Error(err)
	}
}

// Events of a wire reach callers of the others in their form.
func TestAnthropicEventsForOtherCallers(t *testing.T) {
	t.Parallel()
	for to, want := range map[Name][]string{
		Native:     {`"content":"hé"`, `"content":"llo"`, `"id":"toolu_1","name":"get"`, `"name":"now","arguments":"{}"`, `"type":"result"`},
		OpenAIChat: {`"role":"assistant"`, `"content":"hé"`, `"content":"llo"`, `"index":0,"id":"toolu_1"`, `"index":1,"id":"toolu_2"`, `"finish_reason":"tool_calls"`},
	} {
		s := &AnthropicStream{Hub: true}
		enc := NewStreamEncoder(to, &Head{}, "c", "m")
		var got []string
		emit := func(b []byte) error { got = append(got, string(b)); return nil }
		for _, data := range anthropicEvents {
			var ev Event
			kind, err := s.Read([]byte(data), &ev)
			if err == nil && kind == AnthropicOutput {
				err = enc.Event(&ev, emit)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := enc.Finish(s.Sum(), &subjects.Result{}, emit); err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%q", got)
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("%s does not have %s", got[i], want[i])
			}
		}
	}
}

func TestAppendCompact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"{ \"a b\\\"\" :\n[ 1 , \" \" ] }": `{"a b\"":[1," "]}`,
		`{"a":1}`:                          `{"a":1}`,
	} {
		if got := string(appendCompact(nil, raw(in))); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

// Whatever a provider answers is decoded or refused, and both readers agree.
func FuzzDecodeAnthropic(f *testing.F) {
	f.Add([]byte(anthropicAnswer))
	f.Add([]byte(`{"content":[{"type":"text"},{"type":"tool_use","input":[]}],"usage":{"output_tokens":-1}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if !ValidJSON(body) {
			return
		}
		a, b := Response{Wire: AnthropicMessages, Raw: body}, Response{Wire: AnthropicMessages, Raw: body}
		errA, errB := Decode(&a), DecodeAnthropicSummary(&b)
		if (errA == nil) != (errB == nil) {
			var e *subjects.Error
			if !errors.As(errA, &e) && !errors.As(errB, &e) {
				t.Fatal("an error of no kind")
			}
			return
		}
		for _, c := range a.ToolCalls {
			if c.Arguments[0] != '{' || !ValidJSON([]byte(c.Arguments)) {
				t.Fatalf("arguments %s", c.Arguments)
			}
		}
		if u := a.Usage; u.InputTokens < 0 || u.OutputTokens < 0 || u.ReasoningTokens > u.OutputTokens {
			t.Fatalf("%+v", u)
		}
		if errA == nil && int64(len(a.Text)) > b.OutputBytes+3*int64(strings.Count(a.Text, "\uFFFD")) && !repeated(body) {
			t.Fatalf("%d bytes of text, %d counted", len(a.Text), b.OutputBytes)
		}
	})
}

// repeated reports whether a key may stand twice in an object: which of the two
// counts differs between readers, and no API sends such.
func repeated(body []byte) bool {
	s := string(body)
	return strings.Count(s, `"content"`) > 1 || strings.Count(s, `"text"`) > strings.Count(s, "{") || strings.Contains(s, `\u`)
}

// Whatever stands in a stream is read or refused, and the caller of the same
// wire and that of another are told of the same end.
func FuzzAnthropicStream(f *testing.F) {
	f.Add([]byte(strings.Join(anthropicEvents, "\n")))
	f.Add([]byte(`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","input":{"a":1}}}` + "\n" + `{"type":"error"}`))
	f.Fuzz(func(t *testing.T, lines []byte) {
		a, b := &AnthropicStream{Hub: true}, &AnthropicStream{}
		for line := range strings.Lines(string(lines)) {
			var x, y Event
			kind, err := a.Read([]byte(line), &x)
			same, other := b.Read([]byte(line), &y)
			if (err == nil) != (other == nil) {
				t.Fatalf("%v, %v", err, other)
			}
			if kind == AnthropicOutput && same != AnthropicOutput && x.ToolCall == nil || kind > AnthropicOutput && kind != same {
				t.Fatalf("%s: %d, %d", line, kind, same)
			}
			if c := x.ToolCall; c != nil && c.Arguments == "" {
				t.Fatal("no arguments")
			}
		}
		if a.Whole() != b.Whole() || !reflect.DeepEqual(a.Sum(), b.Sum()) {
			t.Fatalf("%+v %+v", a.Sum(), b.Sum())
		}
	})
}

func BenchmarkDecodeAnthropicSummary1500(b *testing.B) {
	body := anthropicReply(1500)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if err := DecodeAnthropicSummary(&Response{Wire: AnthropicMessages, Raw: body}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeAnthropic1500(b *testing.B) {
	body := anthropicReply(1500)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if err := Decode(&Response{Wire: AnthropicMessages, Raw: body}); err != nil {
			b.Fatal(err)
		}
	}
}

// anthropicReply is a plain answer with n bytes of text.
func anthropicReply(n int) []byte {
	return []byte(`{"id":"msg_01XFDUDYJgAACzvnptvVoYEL","type":"message","role":"assistant","model":"claude-haiku-4-5","content":[{"type":"text","text":"` + text(n) +
		`"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":12,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":400,"service_tier":"standard"}}`)
}

func benchAnthropicStream(b *testing.B, hub bool) {
	delta := []byte(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" answer in \"words\""}}`)
	ends := make([][]byte, len(anthropicEvents))
	for i, s := range anthropicEvents {
		ends[i] = []byte(s)
	}
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		s := &AnthropicStream{Hub: hub}
		var ev Event
		for _, data := range ends[:7] {
			_, _ = s.Read(data, &ev)
		}
		for range 200 {
			if _, err := s.Read(delta, &ev); err != nil {
				b.Fatal(err)
			}
		}
		for _, data := range ends[20:] {
			_, _ = s.Read(data, &ev)
		}
		if !s.Whole() {
			b.Fatal("not whole")
		}
	}
}

func BenchmarkAnthropicStream200(b *testing.B)         { benchAnthropicStream(b, true) }
func BenchmarkAnthropicStream200SameWire(b *testing.B) { benchAnthropicStream(b, false) }

func BenchmarkNativeToAnthropic1K(b *testing.B) {
	body := nativeBody(1024)
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		r, err := Parse(Native, body)
		if err != nil {
			b.Fatal(err)
		}
		chat, err := r.Chat()
		if err == nil {
			_, _, err = EncodeAnthropic(chat, "claude-haiku-4-5", true)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
