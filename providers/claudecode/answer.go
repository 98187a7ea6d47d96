package claudecode

import (
	"cmp"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// maxAnswer bounds the text of an answer, in bytes.
const maxAnswer = 64 << 20

// answer reads the lines that the program prints for one turn: what the API
// streams, event by event, wrapped (stream_event); what went wrong, on an
// assistant line with an error; the state of the plan's limits
// (rate_limit_event); and one result at the end, with the sum of the usage. All
// other lines are about the program itself.
//
// A turn is one message of the API, or with a schema several. The text comes
// from the events: the result has only the last message's. With a schema it
// comes from the result, which is JSON that the program has checked.
type answer struct {
	in  *input
	job *providers.Job
	out *outlet // nil = a whole answer
	now func() time.Time
	// asked is set when the turn to answer has been sent.
	asked bool

	msg      *wire.AnthropicStream // the message that is being read
	ev       wire.Event
	cut      cutter
	text     strings.Builder
	size     int
	model    string
	finish   string
	usage    subjects.Usage // of the messages before msg
	known    bool
	messages int
	ended    bool // the last of them said why it ended
	bytes    int64
	said     failure
	limit    limits
	final    gjson.Result // the result's usage
	reported bool         // the result has come
	broken   bool         // and says that the turn went wrong
}

// line reads one line. done = nothing more has to be waited for.
func (a *answer) line(line gjson.Result) (done bool, err error) {
	switch line.Get("type").Str {
	case "stream_event":
		return a.event(line)
	case "assistant":
		a.remark(line)
	case "rate_limit_event":
		a.limit.read(line.Get("rate_limit_info"))
	case "result":
		return a.result(line)
	case "system":
		if line.Get("subtype").Str == "init" {
			return false, a.init(line)
		}
	}
	return false, nil
}

// schemaTool is how the program has the model write JSON to a schema.
const schemaTool = "StructuredOutput"

// init looks whether the program took the schema: one that it does not
// understand (it is strict about keywords and formats) it silently drops.
func (a *answer) init(line gjson.Result) error {
	if !a.asked || a.in.schema == nil {
		return nil
	}
	for _, tool := range line.Get("tools").Array() {
		if tool.Str == schemaTool {
			return nil
		}
	}
	return notOfThisRequest("the claude program does not take this JSON schema (an unknown keyword or format, or no valid schema); simplify it, or use another provider")
}

// event reads one event of the API's stream. Two ends of a message end the call
// here, since the program would ask the model again by itself: a full token
// limit (up to three more requests) and a refusal (one more). So does a stop
// sequence in the text, and a message after one that was cut: with it version
// 2.1.332 has the model go on, told so by a message that nobody sent.
func (a *answer) event(line gjson.Result) (done bool, err error) {
	if line.Get("parent_tool_use_id").Type == gjson.String {
		return false, nil // a subagent's, which there is none of
	}
	event := line.Get("event")
	again := false
	if event.Get("type").Str == "message_start" {
		a.next()
		again = a.messages > 1 && !a.ended
	}
	if a.msg == nil {
		return false, nil
	}
	kind, err := a.msg.Read([]byte(event.Raw), &a.ev)
	if err != nil {
		return false, err
	}
	switch {
	case again:
		return true, cutShort()
	case kind == wire.AnthropicError:
		return false, nil // the result says it again
	case a.ev.Text != "" && a.in.schema == nil:
		return a.piece(a.ev.Text)
	}
	if event.Get("type").Str != "message_delta" {
		return false, nil
	}
	switch sum := a.msg.Sum(); sum.FinishReason {
	case subjects.FinishLength, subjects.FinishContentFilter:
		a.finish = sum.FinishReason
		return true, a.flush()
	}
	return false, nil
}

// flush passes on what was held back as the possible beginning of a stop sequence.
func (a *answer) flush() error {
	if text := a.cut.rest(); text != "" {
		return a.say(text)
	}
	return nil
}

// piece takes a piece of the text, and ends the call at a stop sequence: then the
// tokens of the output are not known, and estimated from what was written.
func (a *answer) piece(text string) (done bool, err error) {
	text, done = a.cut.feed(text)
	if done {
		a.finish = subjects.FinishStop
	}
	if text == "" {
		return done, nil
	}
	return done, a.say(text)
}

// next begins a message.
func (a *answer) next() {
	a.settle()
	if a.out != nil {
		a.job.Begin()
	}
	a.messages++
	a.msg = &wire.AnthropicStream{Hub: true}
}

// settle adds up the message that has been read.
func (a *answer) settle() {
	if a.msg == nil {
		return
	}
	sum := a.msg.Sum()
	a.msg, a.ended = nil, sum.FinishReason != ""
	a.model = cmp.Or(sum.Model, a.model)
	a.finish = cmp.Or(a.finish, sum.FinishReason)
	a.bytes += sum.OutputBytes
	a.known = sum.UsageKnown && (a.known || a.messages == 1)
	u := &sum.Usage
	a.usage.InputTokens += u.InputTokens
	a.usage.OutputTokens += u.OutputTokens
	a.usage.CacheReadTokens += u.CacheReadTokens
	a.usage.CacheWriteTokens += u.CacheWriteTokens
	a.usage.ReasoningTokens += u.ReasoningTokens
}

// say passes a piece of text on.
func (a *answer) say(text string) error {
	if a.size += len(text); a.size > maxAnswer {
		return subjects.Errorf(subjects.KindProvider, "the answer is above %d MiB", maxAnswer>>20)
	}
	if a.out == nil {
		a.text.WriteString(text)
		return nil
	}
	if !a.out.begun {
		a.job.Open(&wire.Response{Warnings: a.warnings(), RateLimit: a.limit.headers()})
	}
	return a.out.event(&wire.Event{Text: text})
}

// remark reads an assistant line that the program itself wrote: its error.
func (a *answer) remark(line gjson.Result) {
	if word := line.Get("error").Str; word != "" {
		a.said.word = word
	}
}

// result reads the last line of a turn. is_error alone says whether it went
// wrong: an error of the API is "success" in subtype.
func (a *answer) result(line gjson.Result) (done bool, err error) {
	if !a.asked { // the empty result of an earlier turn
		if line.Get("is_error").Bool() {
			a.said.read(line)
			return true, a.said.error(&a.limit, a.now(), a.job.Model)
		}
		return true, nil
	}
	a.reported = true
	a.final = line.Get("usage")
	a.settle()
	if a.model == "" {
		a.model = reportedModel(line.Get("modelUsage"))
	}
	switch {
	case line.Get("is_error").Bool():
		a.broken = true
		a.said.read(line)
		if line.Get("stop_reason").Str == "refusal" {
			a.finish = subjects.FinishContentFilter
			return true, a.flush()
		}
		return true, a.said.error(&a.limit, a.now(), a.job.Model)
	case a.messages == 0:
		return true, subjects.Errorf(subjects.KindProvider, "the claude program answered by itself, without asking the model")
	case !a.ended: // 2.1.197 takes what was cut for an answer
		a.broken, a.final = true, gjson.Result{}
		return true, cutShort()
	case a.in.schema != nil:
		return true, a.structured(line)
	}
	return true, a.flush()
}

// structured gives the JSON of an answer to a schema.
func (a *answer) structured(line gjson.Result) error {
	if !line.Get("structured_output").Exists() {
		return subjects.Errorf(subjects.KindProvider, "the model did not write the JSON that the schema asks for")
	}
	a.finish = subjects.FinishStop
	text := line.Get("result").Str
	if !wire.ValidJSON([]byte(text)) {
		text = line.Get("structured_output").Raw
	}
	return a.say(text)
}

// cutShort is the error of an answer that the API did not bring to its end.
func cutShort() error {
	return subjects.Errorf(subjects.KindProvider, "the API's stream ended in mid-answer")
}

// reportedModel is the model of a report on one model; "" = there are several.
func reportedModel(usage gjson.Result) string {
	name, n := "", 0
	usage.ForEach(func(key, _ gjson.Result) bool {
		name = key.Str
		n++
		return true
	})
	if n != 1 || len(name) > subjects.MaxName {
		return ""
	}
	return name
}

// response is what is known of the answer by now.
func (a *answer) response() *wire.Response {
	a.settle()
	resp := &wire.Response{
		Text: a.text.String(), FinishReason: a.finish, Model: a.model,
		Usage: a.usage, UsageKnown: a.known, OutputBytes: a.bytes,
		Warnings: a.warnings(), RateLimit: a.limit.headers(),
	}
	// The program's own sum counts requests whose events it did not show. After a
	// failure it is often nothing; then the events know what was sent, and the
	// count of what came back is that of the first moment.
	switch u := finalUsage(a.final); {
	case u != subjects.Usage{}:
		u.ReasoningTokens = max(u.ReasoningTokens, a.usage.ReasoningTokens) // 2.1.197 leaves them out
		resp.Usage, resp.UsageKnown = u, true
	case a.broken:
		resp.Usage.OutputTokens, resp.UsageKnown = 0, false
	}
	resp.Usage.TotalTokens = resp.Usage.InputTokens + resp.Usage.OutputTokens
	return resp
}

// finalUsage reads the usage of a result line; its input tokens are the fresh ones.
func finalUsage(v gjson.Result) subjects.Usage {
	return subjects.Usage{
		InputTokens:      v.Get("input_tokens").Int(),
		OutputTokens:     v.Get("output_tokens").Int(),
		CacheReadTokens:  v.Get("cache_read_input_tokens").Int(),
		CacheWriteTokens: v.Get("cache_creation_input_tokens").Int(),
		ReasoningTokens:  v.Get("output_tokens_details.thinking_tokens").Int(),
	}
}

// warnings are the request's, and what the report says of who served and who pays.
func (a *answer) warnings() []string {
	out := append([]string(nil), a.in.warnings...)
	if a.limit.overage {
		out = append(out, "the plan's limit is used up: this call was served from extra usage, which is billed")
	}
	model := a.model
	if a.msg != nil {
		model = a.msg.Sum().Model
	}
	if asked := a.job.Model; model != "" && strings.HasPrefix(asked, "claude-") && wire.CanonicalModel(model) != wire.CanonicalModel(asked) {
		out = append(out, "the claude program asked "+wire.CanonicalModel(model)+" in the place of "+wire.CanonicalModel(asked))
	}
	return out
}
