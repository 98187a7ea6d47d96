package subjects

import (
	"strconv"
	"unicode/utf8"
)

// AppendJSON writes the record as json.Marshal would, without reflection: one is
// written for every call.
func (r *UsageRecord) AppendJSON(b []byte) []byte {
	b = AppendString(append(b, `{"id":`...), r.ID)
	b = append(b, `,"timestamp":"`...)
	b = append(r.Timestamp.UTC().AppendFormat(b, TimeFormat), '"')
	for _, f := range [...]struct{ name, value string }{
		{`,"provider":`, r.Provider},
		{`,"model":`, r.Model},
		{`,"model_raw":`, r.ModelRaw},
		{`,"process":`, r.Process},
		{`,"task":`, r.Task},
		{`,"class":`, r.Class},
		{`,"tier":`, r.Tier},
		{`,"subscription":`, r.Subscription},
	} {
		b = AppendString(append(b, f.name...), f.value)
	}
	for _, f := range [...]struct {
		name  string
		value int64
	}{
		{`,"input_tokens":`, r.InputTokens},
		{`,"output_tokens":`, r.OutputTokens},
		{`,"total_tokens":`, r.TotalTokens},
		{`,"cache_read_tokens":`, r.CacheReadTokens},
		{`,"cache_write_tokens":`, r.CacheWriteTokens},
		{`,"reasoning_tokens":`, r.ReasoningTokens},
	} {
		b = strconv.AppendInt(append(b, f.name...), f.value, 10)
	}
	b = strconv.AppendBool(append(b, `,"tokens_estimated":`...), r.TokensEstimated)
	b = appendUSD(append(b, `,"cost_usd":`...), r.CostUSD)
	b = appendUSD(append(b, `,"saved_usd":`...), r.SavedUSD)
	b = appendMs(append(b, `,"latency_ms":`...), r.LatencyMs)
	b = appendMs(append(b, `,"queued_ms":`...), r.QueuedMs)
	b = appendMs(append(b, `,"overhead_ms":`...), r.OverheadMs)
	b = strconv.AppendBool(append(b, `,"cached":`...), r.Cached)
	b = strconv.AppendBool(append(b, `,"partial":`...), r.Partial)
	b = AppendString(append(b, `,"outcome":`...), r.Outcome)
	b = strconv.AppendInt(append(b, `,"chain_position":`...), int64(r.ChainPosition), 10)
	b = appendTrail(append(b, `,"attempt_trail":`...), r.AttemptTrail)
	b = AppendString(append(b, `,"prompt_preview":`...), r.PromptPreview)
	if r.RunID != "" {
		b = AppendString(append(b, `,"run_id":`...), r.RunID)
	}
	if r.BatchID != "" {
		b = AppendString(append(b, `,"batch_id":`...), r.BatchID)
	}
	return append(b, '}')
}

// MarshalJSON implements json.Marshaler.
func (r *UsageRecord) MarshalJSON() ([]byte, error) { return r.AppendJSON(make([]byte, 0, 1024)), nil }

func appendUSD(b []byte, u *USD) []byte {
	if u == nil {
		return append(b, "null"...)
	}
	return append(b, u.String()...)
}

// appendMs writes a time in milliseconds to the microsecond.
func appendMs(b []byte, ms float64) []byte {
	if !(ms > -1e15 && ms < 1e15) { // NaN and the infinities have no JSON
		return append(b, '0')
	}
	return strconv.AppendFloat(b, ms, 'f', -1, 64)
}

func appendTrail(b []byte, trail []Attempt) []byte {
	if trail == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, a := range trail {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(append(b, `{"provider":`...), a.Provider)
		if a.Model != "" {
			b = AppendString(append(b, `,"model":`...), a.Model)
		}
		b = AppendString(append(b, `,"outcome":`...), a.Outcome)
		if a.Reason != "" {
			b = AppendString(append(b, `,"reason":`...), a.Reason)
		}
		b = strconv.AppendInt(append(b, `,"ms":`...), a.Ms, 10)
		if a.Spent != nil {
			b = a.Spent.append(append(b, `,"spent":`...))
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

func (s *Spent) append(b []byte) []byte {
	b = AppendString(append(b, `{"model":`...), s.Model)
	if s.Subscription != "" {
		b = AppendString(append(b, `,"subscription":`...), s.Subscription)
	}
	b = strconv.AppendInt(append(b, `,"inputTokens":`...), s.InputTokens, 10)
	b = strconv.AppendInt(append(b, `,"outputTokens":`...), s.OutputTokens, 10)
	for _, f := range [...]struct {
		name  string
		value int64
	}{
		{`,"cacheReadTokens":`, s.CacheReadTokens},
		{`,"cacheWriteTokens":`, s.CacheWriteTokens},
		{`,"reasoningTokens":`, s.ReasoningTokens},
	} {
		if f.value != 0 {
			b = strconv.AppendInt(append(b, f.name...), f.value, 10)
		}
	}
	if s.Estimated {
		b = append(b, `,"estimated":true`...)
	}
	return append(appendUSD(append(b, `,"costUsd":`...), s.CostUSD), '}')
}

const hexDigits = "0123456789abcdef"

// AppendString writes s as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= 0x20 && c != '"' && c != '\\' {
				i++
				continue
			}
			b = append(b, s[start:i]...)
			switch c {
			case '"', '\\':
				b = append(b, '\\', c)
			case '\n':
				b = append(b, '\\', 'n')
			case '\r':
				b = append(b, '\\', 'r')
			case '\t':
				b = append(b, '\\', 't')
			default:
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || r == '\u2028' || r == '\u2029' {
			b = append(b, s[start:i]...)
			switch r {
			case '\u2028':
				b = append(b, `\u2028`...)
			case '\u2029':
				b = append(b, `\u2029`...)
			default:
				b = append(b, "\ufffd"...)
			}
			i += n
			start = i
			continue
		}
		i += n
	}
	return append(append(b, s[start:]...), '"')
}
