package wire

import "github.com/sluice-llm/sluice/subjects"

// Whole reports whether an answer, which no error came with, is one that the
// model ended by itself and that says something: each of its choices has text or
// tool calls, and was not cut, filtered or refused. It changes nothing in the
// answer, and reads an openai-chat one without decoding it.
//
// Of a stream, whose text is in its events, it knows the sums alone.
func (r *Response) Whole() bool {
	if r.Raw != nil && r.Wire == OpenAIChat {
		return wholeChoices(view(r.Raw))
	}
	d := *r
	if Decode(&d) != nil {
		return false
	}
	switch d.FinishReason {
	case subjects.FinishStop:
		return d.Text != "" || d.Raw == nil && d.OutputBytes > 0
	case subjects.FinishToolCalls:
		return len(d.ToolCalls) > 0 || d.Raw == nil
	}
	return false
}

func wholeChoices(v raw) bool {
	choices := 0
	for _, item := range v.get("choices").items() {
		choices++
		var c choice
		c.read(item)
		calls := c.delta.calls.count() > 0 || c.delta.legacy.isObject()
		switch finishReason(c.finish.str(), calls, c.delta.refusal.inner() != "") {
		case subjects.FinishStop:
			if c.delta.content.inner() == "" && partsText(c.delta.content) == "" {
				return false
			}
		case subjects.FinishToolCalls:
			if !calls {
				return false
			}
		default:
			return false
		}
	}
	return choices > 0
}
