package wire

import (
	"cmp"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// EncodeResponse writes a whole answer for a caller who speaks to. A response
// of the same wire is returned as it is. On the native wire the content, tool
// calls and finish reason of res are filled in first; the rest of res is the
// caller's of this function to fill.
func EncodeResponse(to Name, resp *Response, res *subjects.Result) ([]byte, error) {
	if resp.Raw != nil && resp.Wire == to {
		return resp.Raw, nil
	}
	if err := Decode(resp); err != nil {
		return nil, err
	}
	switch to {
	case Native:
		fill(res, resp)
		dst := make([]byte, 0, len(res.Content)+len(res.Content)/8+1024)
		return append(appendResult(append(dst, '{'), res), '}'), nil
	case OpenAIChat:
		return completion(resp, res), nil
	}
	return nil, unknownWire(to)
}

func fill(res *subjects.Result, resp *Response) {
	res.Content, res.ToolCalls = resp.Text, resp.ToolCalls
	res.FinishReason = cmp.Or(resp.FinishReason, subjects.FinishStop)
}

// completion writes a chat.completion object.
func completion(resp *Response, res *subjects.Result) []byte {
	dst := make([]byte, 0, len(resp.Text)+len(resp.Text)/8+1024)
	dst = appendText(append(dst, '{'), "id", completionID(res.CallID))
	dst = appendText(dst, "object", "chat.completion")
	dst = appendInt(dst, "created", time.Now().Unix())
	dst = appendText(dst, "model", cmp.Or(res.ModelRaw, resp.Model, res.Model))
	dst = append(appendKey(dst, "choices"), `[{"index":0,"message":{"role":"assistant"`...)
	dst = appendKey(dst, "content")
	if resp.Text == "" && len(resp.ToolCalls) > 0 {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, resp.Text)
	}
	dst = append(dst, `,"refusal":null`...)
	if len(resp.ToolCalls) > 0 {
		dst = append(appendKey(dst, "tool_calls"), '[')
		for i := range resp.ToolCalls {
			dst = appendOpenAICall(append(comma(dst, i), '{'), &resp.ToolCalls[i])
		}
		dst = append(dst, ']')
	}
	dst = append(dst, `},"logprobs":null`...)
	dst = appendText(dst, "finish_reason", cmp.Or(resp.FinishReason, subjects.FinishStop))
	dst = append(dst, "}]"...)
	dst = appendOpenAIUsage(appendKey(dst, "usage"), usageOf(resp, res))
	return append(dst, '}')
}

func completionID(callID string) string { return "chatcmpl-" + callID }

// usageOf prefers the result's usage, which has the estimate where the
// provider reported none.
func usageOf(resp *Response, res *subjects.Result) *subjects.Usage {
	if res != nil && res.Usage != (subjects.Usage{}) {
		return &res.Usage
	}
	return &resp.Usage
}

// appendOpenAICall appends a tool call's members after its opening brace.
func appendOpenAICall(dst []byte, c *subjects.ToolCall) []byte {
	dst = appendText(dst, "id", c.ID)
	dst = append(dst, `,"type":"function","function":{`...)
	dst = appendText(dst, "name", c.Name)
	dst = appendText(dst, "arguments", c.Arguments)
	return append(dst, "}}"...)
}

// appendOpenAIUsage appends a usage object; cached tokens are inside the
// prompt's again.
func appendOpenAIUsage(dst []byte, u *subjects.Usage) []byte {
	prompt := u.InputTokens + u.CacheReadTokens + u.CacheWriteTokens
	dst = append(dst, '{')
	dst = appendInt(dst, "prompt_tokens", prompt)
	dst = appendInt(dst, "completion_tokens", u.OutputTokens)
	dst = appendInt(dst, "total_tokens", prompt+u.OutputTokens)
	dst = append(dst, `,"prompt_tokens_details":{`...)
	dst = appendInt(dst, "cached_tokens", u.CacheReadTokens)
	if u.CacheWriteTokens > 0 {
		dst = appendInt(dst, "cache_write_tokens", u.CacheWriteTokens)
	}
	dst = append(dst, `,"audio_tokens":0},"completion_tokens_details":{`...)
	dst = appendInt(dst, "reasoning_tokens", u.ReasoningTokens)
	return append(dst, `,"audio_tokens":0}}`...)
}
