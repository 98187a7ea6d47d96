package wire

import (
	"cmp"
	"crypto/rand"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// OllamaAnswer is what one JSON text of Ollama's /api/chat says: a line of a
// stream, or a whole answer, which has the form of a single line. Its strings
// share the text's memory.
type OllamaAnswer struct {
	// Error says that the text is an error and no answer.
	Error bool
	// Done says that the answer is whole. The server stops one that repeats itself
	// without saying so (llm/server.go): its last line is not done.
	Done bool
	// Model is the id that the last line names.
	Model string
	Text  string
	// ToolCalls are whole; each has an id that no other call of this text has.
	ToolCalls []subjects.ToolCall
	// Finish is the finish reason, where it is done; tool_calls is said only
	// where the calls are in the same text.
	Finish string
	// Usage holds the counts that are given. The prompt's has the tokens inside
	// that came from the server's cache, which it does not tell apart. A count of 0
	// is left out (old servers: also that of a prompt that was all in the cache);
	// it is 0 here, and whoever accounts for the call estimates it.
	Usage      subjects.Usage
	UsageKnown bool
	// OutputBytes counts what the model wrote: text, thinking, calls.
	OutputBytes int64
}

// ReadOllama reads one JSON text; false when it is not a JSON object.
func ReadOllama(data []byte) (a OllamaAnswer, ok bool) {
	v := view(data)
	if !v.isObject() || !ValidJSON(data) {
		return a, false
	}
	var reason string
	var model raw
	for f := range v.fields() {
		switch f.Key {
		case "error":
			a.Error = !f.Value.isNull() && f.Value != `""`
		case "model":
			model = f.Value
		case "message":
			a.message(f.Value)
		case "done":
			a.Done = f.Value.kind() == 't'
		case "done_reason":
			reason = f.Value.str()
		case "prompt_eval_count":
			a.Usage.InputTokens, a.UsageKnown = count(f.Value), true
		case "eval_count":
			a.Usage.OutputTokens, a.UsageKnown = count(f.Value), true
		}
	}
	a.Usage.TotalTokens = a.Usage.InputTokens + a.Usage.OutputTokens
	if reason == "load" || reason == "unload" { // it was not asked to say anything
		a.Done = false
	}
	if a.Done { // old servers name no reason
		a.Model = boundedName(model)
		a.Finish = cmp.Or(finishReason(reason, len(a.ToolCalls) > 0, false), subjects.FinishStop)
	}
	return a, true
}

func (a *OllamaAnswer) message(m raw) {
	var calls raw
	for f := range m.fields() {
		switch f.Key {
		case "content":
			a.Text = f.Value.str()
			a.OutputBytes += int64(len(a.Text))
		case "thinking":
			a.OutputBytes += int64(f.Value.textLen())
		case "tool_calls":
			calls = f.Value
		}
	}
	for _, c := range calls.items() {
		a.call(c)
	}
}

// call reads one tool call; the arguments are an object on this wire.
func (a *OllamaAnswer) call(c raw) {
	f := c.get("function")
	call := subjects.ToolCall{ID: c.get("id").str(), Name: f.get("name").str(), Arguments: "{}"}
	switch args := f.get("arguments"); {
	case args.isObject():
		call.Arguments = compact(args)
	case args.isString() && strings.TrimSpace(args.str()) != "":
		call.Arguments = args.str()
	}
	taken := func(other subjects.ToolCall) bool { return other.ID == call.ID }
	if call.ID == "" || slices.ContainsFunc(a.ToolCalls, taken) {
		call.ID = newCallID()
	}
	a.ToolCalls = append(a.ToolCalls, call)
	a.OutputBytes += int64(len(call.Name) + len(call.Arguments))
}

// newCallID makes the id of a call that came without one: unlike those of other
// answers, which the same conversation may hold.
func newCallID() string { return "call_" + rand.Text()[:16] }

// compact takes the space between a value's tokens out; it shares the value's
// memory where there is none.
func compact(v raw) string {
	if s := string(v); !strings.ContainsAny(s, " \n\t\r") {
		return s
	}
	return string(appendCompact(make([]byte, 0, len(v)), v))
}
