package wire

import (
	"strconv"

	"github.com/sluice-llm/sluice/subjects"
)

func appendString(dst []byte, s string) []byte { return subjects.AppendString(dst, s) }

// appendKey appends ,"key": (the comma only after another member).
func appendKey(dst []byte, key string) []byte {
	if n := len(dst); n > 0 && dst[n-1] != '{' {
		dst = append(dst, ',')
	}
	dst = append(dst, '"')
	dst = append(dst, key...)
	return append(dst, '"', ':')
}

func appendText(dst []byte, key, value string) []byte {
	return appendString(appendKey(dst, key), value)
}

func appendInt(dst []byte, key string, n int64) []byte {
	return strconv.AppendInt(appendKey(dst, key), n, 10)
}

func appendBool(dst []byte, key string, b bool) []byte {
	return strconv.AppendBool(appendKey(dst, key), b)
}

func appendFloat(dst []byte, key string, f float64) []byte {
	return strconv.AppendFloat(appendKey(dst, key), f, 'f', -1, 64)
}

func appendToolCall(dst []byte, c *subjects.ToolCall) []byte {
	dst = append(dst, '{')
	dst = appendText(dst, "id", c.ID)
	dst = appendText(dst, "name", c.Name)
	dst = appendText(dst, "arguments", c.Arguments)
	return append(dst, '}')
}

// appendResult appends the native result's members, as encoding/json would
// (a test compares them), but with lists that are never null.
func appendResult(dst []byte, r *subjects.Result) []byte {
	dst = appendText(dst, "callId", r.CallID)
	dst = appendText(dst, "content", r.Content)
	if len(r.ToolCalls) > 0 {
		dst = append(appendKey(dst, "toolCalls"), '[')
		for i := range r.ToolCalls {
			dst = appendToolCall(comma(dst, i), &r.ToolCalls[i])
		}
		dst = append(dst, ']')
	}
	dst = appendText(dst, "finishReason", r.FinishReason)
	dst = appendText(dst, "provider", r.Provider)
	dst = appendText(dst, "model", r.Model)
	dst = appendText(dst, "modelRaw", r.ModelRaw)
	dst = appendText(dst, "tier", r.Tier)
	dst = appendText(dst, "class", r.Class)
	dst = appendText(dst, "process", r.Process)
	dst = appendText(dst, "subscription", r.Subscription)
	dst = appendUsage(appendKey(dst, "usage"), &r.Usage)
	dst = appendKey(dst, "costUsd")
	if r.CostUSD == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, r.CostUSD.String()...)
	}
	dst = appendBool(dst, "cached", r.Cached)
	dst = appendBool(dst, "local", r.Local)
	dst = appendBool(dst, "mock", r.Mock)
	if len(r.Warnings) > 0 {
		dst = append(appendKey(dst, "warnings"), '[')
		for i, w := range r.Warnings {
			dst = appendString(comma(dst, i), w)
		}
		dst = append(dst, ']')
	}
	dst = appendFloat(dst, "latencyMs", r.LatencyMs)
	dst = appendFloat(dst, "queuedMs", r.QueuedMs)
	dst = appendFloat(dst, "overheadMs", r.OverheadMs)
	dst = append(appendKey(dst, "attempts"), '[')
	for i := range r.Attempts {
		dst = appendAttempt(comma(dst, i), &r.Attempts[i])
	}
	return append(dst, ']')
}

func comma(dst []byte, i int) []byte {
	if i > 0 {
		return append(dst, ',')
	}
	return dst
}

func appendUsage(dst []byte, u *subjects.Usage) []byte {
	dst = append(dst, '{')
	dst = appendInt(dst, "inputTokens", u.InputTokens)
	dst = appendInt(dst, "outputTokens", u.OutputTokens)
	dst = appendInt(dst, "totalTokens", u.TotalTokens)
	dst = appendInt(dst, "cacheReadTokens", u.CacheReadTokens)
	dst = appendInt(dst, "cacheWriteTokens", u.CacheWriteTokens)
	dst = appendInt(dst, "reasoningTokens", u.ReasoningTokens)
	dst = appendBool(dst, "estimated", u.Estimated)
	return append(dst, '}')
}

func appendAttempt(dst []byte, a *subjects.Attempt) []byte {
	dst = append(dst, '{')
	dst = appendText(dst, "provider", a.Provider)
	if a.Model != "" {
		dst = appendText(dst, "model", a.Model)
	}
	dst = appendText(dst, "outcome", a.Outcome)
	if a.Reason != "" {
		dst = appendText(dst, "reason", a.Reason)
	}
	dst = appendInt(dst, "ms", a.Ms)
	return append(dst, '}')
}
