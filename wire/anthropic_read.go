package wire

import (
	"cmp"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// decodeAnthropic fills the hub form of a Messages answer: the blocks of text
// joined, as citations cut a text into several, and the calls of tools, whose
// input is written as compact JSON text. Blocks of other kinds (thinking, the
// server's own tools) have no place in it.
func decodeAnthropic(resp *Response) error {
	v := view(resp.Raw)
	content := v.get("content")
	if !content.isArray() {
		return noContent()
	}
	var text joiner
	for _, block := range content.items() {
		switch block.get("type").inner() {
		case "text":
			text.add(block.get("text").str())
		case "tool_use":
			resp.ToolCalls = append(resp.ToolCalls, toolUse(block))
		}
	}
	resp.Text = text.String()
	resp.FinishReason = stopReason(v.get("stop_reason").inner(), len(resp.ToolCalls) > 0)
	resp.Model = cmp.Or(resp.Model, boundedName(v.get("model")))
	if !resp.UsageKnown {
		var u anthropicUsage
		u.read(v.get("usage"))
		resp.Usage, resp.UsageKnown = u.usage(), u.known
	}
	return nil
}

// joiner joins texts; of one alone it makes no copy.
type joiner struct {
	one  string
	more strings.Builder
}

func (j *joiner) add(s string) {
	switch {
	case j.more.Len() == 0 && j.one == "":
		j.one = s
	case j.more.Len() == 0:
		j.more.WriteString(j.one)
		fallthrough
	default:
		j.more.WriteString(s)
	}
}

func (j *joiner) String() string {
	if j.more.Len() == 0 {
		return j.one
	}
	return j.more.String()
}

func noContent() error {
	return subjects.Errorf(subjects.KindProvider, "the answer has no content: it is no anthropic message")
}

func toolUse(block raw) subjects.ToolCall {
	call := subjects.ToolCall{ID: block.get("id").str(), Name: block.get("name").str(), Arguments: "{}"}
	if input := block.get("input"); input.isObject() {
		call.Arguments = string(appendCompact(make([]byte, 0, len(input)), input))
	}
	return call
}

// appendCompact appends JSON without the space between its tokens.
func appendCompact(dst []byte, v raw) []byte {
	s := string(v)
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"':
			end := skipString(s, i)
			dst = append(dst, s[i:end]...)
			i = end
		case isSpace(c):
			i++
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

// DecodeAnthropicSummary fills Model, Usage, OutputBytes and FinishReason of a
// Messages answer from Raw, and leaves the text where it is. It refuses an
// answer that has no content member.
func DecodeAnthropicSummary(resp *Response) error {
	resp.OutputBytes = 0
	seen, calls := false, false
	var stop raw
	var u anthropicUsage
	for f := range view(resp.Raw).fields() {
		switch f.Key {
		case "content":
			seen = f.Value.isArray()
			for _, block := range f.Value.items() {
				n, call := blockBytes(block)
				resp.OutputBytes += int64(n)
				calls = calls || call
			}
		case "model":
			resp.Model = cmp.Or(resp.Model, boundedName(f.Value))
		case "stop_reason":
			stop = f.Value
		case "usage":
			u.read(f.Value)
		}
	}
	if !seen {
		return noContent()
	}
	resp.FinishReason = stopReason(stop.inner(), calls)
	if !resp.UsageKnown {
		resp.Usage, resp.UsageKnown = u.usage(), u.known
	}
	return nil
}

// blockBytes is the length of what the model wrote in a block, and whether the
// block is a call of a tool. Signatures and encrypted thinking are not writing.
func blockBytes(block raw) (n int, call bool) {
	for f := range block.fields() {
		switch f.Key {
		case "text", "thinking", "name":
			n += f.Value.textLen()
		case "input":
			n += len(f.Value)
		case "type":
			call = f.Value == `"tool_use"`
		}
	}
	return n, call
}

// stopReason maps the API's word to the contract's. pause_turn, which only the
// server's own tools bring about, and an overfull context window leave an answer
// that is not whole: length. A word that is not known is stop.
func stopReason(s string, calls bool) string {
	switch s {
	case "max_tokens", "model_context_window_exceeded", "pause_turn":
		return subjects.FinishLength
	case "refusal":
		return subjects.FinishContentFilter
	case "tool_use":
		return subjects.FinishToolCalls
	case "":
		return ""
	}
	if calls && s == "end_turn" { // a sloppy server's word beside tool calls
		return subjects.FinishToolCalls
	}
	return subjects.FinishStop
}

// anthropicUsage reads usage objects, the later ones over the earlier: in a
// stream the counts are cumulative, and a later object may leave some out or say
// null. Input tokens are the fresh ones already; cache traffic stands beside.
type anthropicUsage struct {
	in, out, cacheRead, cacheWrite, thinking int64
	// known says that the tokens of the output were there.
	known bool
}

func (u *anthropicUsage) read(v raw) {
	for f := range v.fields() {
		if !f.Value.isNumber() && !f.Value.isObject() {
			continue
		}
		switch f.Key {
		case "input_tokens":
			u.in = count(f.Value)
		case "output_tokens":
			u.out, u.known = count(f.Value), true
		case "cache_read_input_tokens":
			u.cacheRead = count(f.Value)
		case "cache_creation_input_tokens":
			u.cacheWrite = count(f.Value)
		case "output_tokens_details":
			if n := f.Value.get("thinking_tokens"); n.isNumber() {
				u.thinking = count(n)
			}
		}
	}
}

func (u *anthropicUsage) usage() subjects.Usage {
	return subjects.Usage{
		InputTokens: u.in, OutputTokens: u.out, TotalTokens: u.in + u.out,
		CacheReadTokens: u.cacheRead, CacheWriteTokens: u.cacheWrite, ReasoningTokens: min(u.thinking, u.out),
	}
}
