package wire

import (
	"cmp"
	"math"
	"strconv"

	"github.com/sluice-llm/sluice/subjects"
)

// maxAnswer bounds the text and the tool arguments of one answer, in bytes.
const maxAnswer = 16 << 20

// Decode fills the hub form of a response (Text, ToolCalls, FinishReason) from
// Raw, and Model and Usage where they are not set. A response without Raw has
// its hub form already; a second time costs nothing.
func Decode(resp *Response) error {
	if resp.Raw == nil || resp.decoded {
		return nil
	}
	var err error
	switch resp.Wire {
	case OpenAIChat:
		err = decodeOpenAI(resp)
	case AnthropicMessages:
		err = decodeAnthropic(resp)
	default:
		err = unknownWire(resp.Wire)
	}
	resp.decoded = err == nil
	return err
}

func decodeOpenAI(resp *Response) error {
	v := view(resp.Raw)
	item := firstChoice(v.get("choices"))
	if !item.isObject() {
		return subjects.Errorf(subjects.KindProvider, "the answer has no choices")
	}
	var c choice
	c.read(item)
	resp.Text = c.delta.text()
	calls := assembler{}
	if err := calls.add(c.delta.calls, c.delta.legacy); err != nil {
		return err
	}
	resp.ToolCalls = calls.take()
	resp.FinishReason = finishReason(c.finish.str(), len(resp.ToolCalls) > 0, c.delta.refusal.inner() != "")
	resp.Model = cmp.Or(resp.Model, boundedName(v.get("model")))
	if !resp.UsageKnown {
		resp.Usage, resp.UsageKnown = openAIUsage(v.get("usage"))
	}
	return nil
}

// DecodeSummary fills Model, Usage, OutputBytes and FinishReason of an
// openai-chat response from Raw, and leaves the text where it is. It refuses
// an answer that has no choices.
func DecodeSummary(resp *Response) error {
	resp.OutputBytes = 0
	var first choice
	choices := 0
	for f := range view(resp.Raw).fields() {
		switch f.Key {
		case "choices":
			for _, c := range f.Value.items() {
				choices++
				var one choice
				one.read(c)
				resp.OutputBytes += one.delta.bytes()
				if choices == 1 || one.isFirst() && !first.isFirst() {
					first = one
				}
			}
		case "model":
			resp.Model = cmp.Or(resp.Model, boundedName(f.Value))
		case "usage":
			if !resp.UsageKnown {
				resp.Usage, resp.UsageKnown = openAIUsage(f.Value)
			}
		}
	}
	if choices == 0 {
		return subjects.Errorf(subjects.KindProvider, "the answer has no choices")
	}
	if !first.has {
		return subjects.Errorf(subjects.KindProvider, "the answer's choice has no message")
	}
	resp.FinishReason = finishReason(first.finish.str(), false, false)
	return nil
}

// choice is one of an answer, or of a chunk.
type choice struct {
	index, finish raw
	delta         delta
	// has says that there is a message in it, or a piece of one.
	has bool
}

func (c *choice) read(v raw) {
	for f := range v.fields() {
		switch f.Key {
		case "index":
			c.index = f.Value
		case "message", "delta":
			c.has = f.Value.isObject()
			c.delta.read(f.Value)
		case "finish_reason":
			c.finish = f.Value
		}
	}
}

// isFirst reports whether it is the choice of index 0.
func (c *choice) isFirst() bool { return c.index == "0" }

// firstChoice is the choice of index 0, or the first one where none says so.
func firstChoice(choices raw) raw {
	var first raw
	for _, c := range choices.items() {
		if first == "" || c.get("index") == "0" && first.get("index") != "0" {
			first = c
		}
	}
	return first
}

func boundedName(v raw) string {
	s := v.str()
	if len(s) > subjects.MaxName {
		s = s[:subjects.MaxName]
	}
	return printable(string(append([]byte(nil), s...)))
}

// finishReason maps the API's word to the contract's. Some servers say "stop"
// beside tool calls, or a word of their own.
func finishReason(s string, calls, refused bool) string {
	switch {
	case s == "length" || s == "content_filter":
		return s
	case refused:
		return subjects.FinishContentFilter
	case calls || s == "tool_calls" || s == "function_call":
		return subjects.FinishToolCalls
	case s == "":
		return ""
	}
	return subjects.FinishStop
}

// openAIUsage reads a usage object. The prompt count has the cached tokens
// inside; the contract's input tokens are the fresh ones. The completion count has
// the reasoning inside, but not xAI's (Grok, at Copilot too): there the total has
// it on top.
func openAIUsage(v raw) (u subjects.Usage, known bool) {
	if !v.isObject() {
		return u, false
	}
	var prompt, total int64
	for f := range v.fields() {
		switch f.Key {
		case "prompt_tokens":
			prompt, known = count(f.Value), f.Value.isNumber() || known
		case "completion_tokens":
			u.OutputTokens, known = count(f.Value), f.Value.isNumber() || known
		case "total_tokens":
			total = count(f.Value)
		case "prompt_tokens_details":
			u.CacheReadTokens = max(u.CacheReadTokens, count(f.Value.get("cached_tokens")))
			u.CacheWriteTokens = count(f.Value.get("cache_write_tokens"))
		case "prompt_cache_hit_tokens": // DeepSeek's name for the same
			u.CacheReadTokens = max(u.CacheReadTokens, count(f.Value))
		case "completion_tokens_details":
			u.ReasoningTokens = count(f.Value.get("reasoning_tokens"))
		}
	}
	if beside := total - prompt - u.OutputTokens; u.ReasoningTokens > 0 && (beside >= u.ReasoningTokens || total == 0 && u.ReasoningTokens > u.OutputTokens) {
		u.OutputTokens += u.ReasoningTokens
	}
	u.ReasoningTokens = min(u.ReasoningTokens, u.OutputTokens)
	u.CacheReadTokens = min(u.CacheReadTokens, prompt)
	u.CacheWriteTokens = min(u.CacheWriteTokens, prompt-u.CacheReadTokens)
	u.InputTokens = prompt - u.CacheReadTokens - u.CacheWriteTokens
	u.TotalTokens = u.InputTokens + u.OutputTokens
	return u, known
}

// count reads a number of tokens: never negative, never absurd.
func count(v raw) int64 {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return min(max(n, 0), maxTokens)
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || math.IsNaN(f) {
		return 0
	}
	return int64(min(max(f, 0), maxTokens))
}

// delta is a message or one piece of it.
type delta struct {
	content, refusal, thought raw
	calls, legacy             raw
}

func (d *delta) read(m raw) {
	for f := range m.fields() {
		switch f.Key {
		case "content":
			d.content = f.Value
		case "refusal":
			d.refusal = f.Value
		case "reasoning_content", "reasoning":
			d.thought = f.Value
		case "tool_calls":
			d.calls = f.Value
		case "function_call":
			d.legacy = f.Value
		}
	}
}

// text is the piece's text; a refusal is what the model says instead.
func (d *delta) text() string {
	switch {
	case d.content.isArray():
		return partsText(d.content)
	case d.content.inner() != "":
		return d.content.str()
	}
	return d.refusal.str()
}

// partsText joins the text parts that some servers answer with.
func partsText(v raw) string {
	s := ""
	for _, p := range v.items() {
		s += p.get("text").str()
	}
	return s
}

// bytes is the length of all that the model wrote in this piece.
func (d *delta) bytes() int64 {
	n := d.content.textLen() + d.refusal.textLen() + d.thought.textLen()
	if d.content.isArray() {
		n += len(partsText(d.content))
	}
	for _, c := range d.calls.items() {
		f := c.get("function")
		n += f.get("name").textLen() + f.get("arguments").textLen()
	}
	n += d.legacy.get("name").textLen() + d.legacy.get("arguments").textLen()
	return int64(n)
}

// ChunkInfo is what a provider must know of one chunk of an openai-chat
// stream.
type ChunkInfo struct {
	// Error says that the chunk is an error and no chunk.
	Error bool
	// UsageOnly marks the chunk that has usage and no choices.
	UsageOnly bool
	// Finish is the finish reason of the first choice; "" while it goes on.
	Finish string
	// Model is the id that the chunk names. It shares the chunk's memory.
	Model      string
	Usage      subjects.Usage
	UsageKnown bool
	// OutputBytes counts the bytes that the model wrote.
	OutputBytes int64
}

// ReadOpenAIChunk reads one chunk; false when it is not a JSON object.
func ReadOpenAIChunk(chunk []byte) (info ChunkInfo, ok bool) {
	v := view(chunk)
	if !v.isObject() || !ValidJSON(chunk) {
		return info, false
	}
	choices := 0
	for f := range v.fields() {
		switch f.Key {
		case "model":
			info.Model = f.Value.str()
		case "error":
			info.Error = saysError(f.Value)
		case "usage":
			if u, known := openAIUsage(f.Value); known {
				info.Usage, info.UsageKnown = u, true
			}
		case "x_groq":
			if u, known := openAIUsage(f.Value.get("usage")); known && !info.UsageKnown {
				info.Usage, info.UsageKnown = u, true
			}
			info.Error = info.Error || saysError(f.Value.get("error"))
		case "choices":
			choices = info.choices(f.Value)
		}
	}
	info.UsageOnly = info.UsageKnown && choices == 0
	return info, true
}

// saysError reports whether an error member says something: some servers send
// an empty one beside the answer.
func saysError(v raw) bool {
	switch {
	case v.isString():
		return v.inner() != ""
	case v.isObject():
		return v.hasFields()
	}
	return v != "" && !v.isNull() && v != "false"
}

// choices sums the choices up and returns their number. The first one, or the
// only one, says when it ends.
func (info *ChunkInfo) choices(v raw) int {
	n := 0
	for _, item := range v.items() {
		var c choice
		c.read(item)
		info.OutputBytes += c.delta.bytes()
		if n++; c.finish.inner() != "" && (c.isFirst() || c.index == "" && n == 1) {
			info.Finish = finishReason(c.finish.str(), false, false)
		}
	}
	return n
}
