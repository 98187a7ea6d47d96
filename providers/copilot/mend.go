package copilot

import (
	"encoding/json"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
)

// mend puts the choices of an answer together that are pieces of one: the text in
// the first, each tool call in another (as recorded of Claude models: gptel#1284,
// zeroclaw#2136). An answer with one choice is left as it is.
func mend(_ *providers.Job, body []byte) ([]byte, error) {
	if gjson.GetBytes(body, "choices.#").Int() < 2 {
		return body, nil
	}
	var answer map[string]json.RawMessage
	var choices []choice
	if json.Unmarshal(body, &answer) != nil || json.Unmarshal(answer["choices"], &choices) != nil {
		return nil, subjects.Errorf(subjects.KindProvider, "the answer has choices that are not in the form")
	}
	one, err := json.Marshal([]choice{join(choices)})
	if err != nil {
		return nil, subjects.Errorf(subjects.KindProvider, "the answer's choices cannot be put together").WithCause(err)
	}
	answer["choices"] = one
	whole, err := json.Marshal(answer)
	if err != nil {
		return nil, subjects.Errorf(subjects.KindProvider, "the answer's choices cannot be put together").WithCause(err)
	}
	return whole, nil
}

type choice struct {
	Index        int                        `json:"index"`
	Message      map[string]json.RawMessage `json:"message"`
	FinishReason string                     `json:"finish_reason"`
}

// join makes one choice of several. Texts and lists of tool calls are joined in
// their order; of every other member the first is kept.
func join(choices []choice) choice {
	whole := choice{Message: map[string]json.RawMessage{}}
	text, calls := "", []json.RawMessage(nil)
	for _, c := range choices {
		for name, v := range c.Message {
			switch _, has := whole.Message[name]; {
			case name == "content":
				text += gjson.ParseBytes(v).Str
			case name == "tool_calls":
				var some []json.RawMessage
				_ = json.Unmarshal(v, &some) // null or broken: none
				calls = append(calls, some...)
			case !has && string(v) != "null":
				whole.Message[name] = v
			}
		}
		if whole.FinishReason == "" || c.FinishReason == subjects.FinishToolCalls {
			whole.FinishReason = c.FinishReason
		}
	}
	whole.Message["content"] = json.RawMessage("null")
	if text != "" {
		whole.Message["content"] = subjects.AppendString(nil, text)
	}
	if len(calls) > 0 {
		whole.Message["tool_calls"], _ = json.Marshal(calls) // was JSON
	}
	return whole
}
