package wire

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/subjects"
)

func TestWhole(t *testing.T) {
	t.Parallel()
	openAI := func(choices string) *Response {
		return &Response{Wire: OpenAIChat, Raw: []byte(`{"choices":[` + choices + `]}`)}
	}
	claude := func(content, stop string) *Response {
		return &Response{Wire: AnthropicMessages, Raw: []byte(`{"content":[` + content + `],"stop_reason":"` + stop + `"}`)}
	}
	const text = `{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}`
	const use = `{"type":"tool_use","id":"1","name":"f","input":{}}`
	for i, tc := range []struct {
		resp *Response
		want bool
	}{
		{openAI(text), true},
		{openAI(text + "," + strings.Replace(text, "0", "1", 1)), true},
		{openAI(text + "," + strings.Replace(text, `"stop"`, `"length"`, 1)), false},
		{openAI(strings.Replace(text, `"stop"`, `"length"`, 1)), false},
		{openAI(strings.Replace(text, `"stop"`, `"content_filter"`, 1)), false},
		{openAI(strings.Replace(text, `"stop"`, `null`, 1)), false},
		{openAI(strings.Replace(text, `"stop"`, `"eos"`, 1)), true},
		{openAI(strings.Replace(text, `"hi"`, `""`, 1)), false},
		{openAI(strings.Replace(text, `"hi"`, `[{"type":"text","text":"hi"}]`, 1)), true},
		{openAI(strings.Replace(text, `"hi"`, `null,"refusal":"no"`, 1)), false},
		{openAI(strings.Replace(text, `"hi"`, `null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]`, 1)), true},
		{openAI(strings.Replace(text, `"stop"`, `"tool_calls"`, 1)), false},
		{openAI(``), false},
		{&Response{Wire: OpenAIChat, Raw: []byte(`{"choices":`)}, false},
		{claude(`{"type":"text","text":"hi"}`, "end_turn"), true},
		{claude(`{"type":"text","text":"hi"}`, "max_tokens"), false},
		{claude(`{"type":"text","text":"hi"}`, "refusal"), false},
		{claude(use, "tool_use"), true},
		{claude(``, "end_turn"), false},
		{&Response{Text: "hi", FinishReason: subjects.FinishStop}, true},
		{&Response{OutputBytes: 2, FinishReason: subjects.FinishStop}, true},
		{&Response{FinishReason: subjects.FinishStop}, false},
		{&Response{FinishReason: subjects.FinishToolCalls}, true},
		{&Response{Text: "hi", FinishReason: subjects.FinishLength}, false},
		{&Response{Text: "hi", FinishReason: subjects.FinishContentFilter}, false},
		{&Response{Text: "hi"}, false},
		{&Response{Wire: "new", Raw: []byte(`{}`), FinishReason: subjects.FinishStop}, false},
	} {
		before := bytes.Clone(tc.resp.Raw)
		if got := tc.resp.Whole(); got != tc.want {
			t.Errorf("%d: %+v %s: %v", i, tc.resp, tc.resp.Raw, got)
		}
		if !bytes.Equal(before, tc.resp.Raw) || tc.resp.decoded {
			t.Errorf("%d: the answer was changed", i)
		}
	}
}
