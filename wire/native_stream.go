package wire

import (
	"encoding/json"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// NativeReader reads a native stream as it comes from another party: deltas and
// tool calls, then the result. The zero value is ready. Not safe for concurrent
// use.
type NativeReader struct {
	// Strict refuses an event of an unknown type. Otherwise one is passed over: a
	// newer Sluice may have more of them. "ping" is known, and says nothing.
	Strict bool

	resp     Response
	ev       Event // the one that is yielded, and used again
	provider string
	calls    int
	text     bool // some text has come
	whole    bool
	failed   *subjects.Error
}

// Event takes one event and yields what it says. An error event is returned, and
// kept for Failed. The text of a result is yielded where no delta came before it,
// and so are its tool calls: a party that does not stream answers with the result
// alone. An event is valid until yield returns.
func (r *NativeReader) Event(data []byte, yield func(*Event) error) error {
	v := view(data)
	if !v.isObject() || !ValidJSON(data) {
		return subjects.Errorf(subjects.KindProvider, "the stream has an event that is not a JSON object")
	}
	switch {
	case r.whole:
		return subjects.Errorf(subjects.KindProvider, "the stream goes on after its result")
	case saysError(v.get("error")):
		r.failed = nativeError(data)
		return r.failed
	}
	switch kind := v.get("type"); kind.str() {
	case subjects.EventDelta:
		return r.delta(v.get("content").str(), yield)
	case subjects.EventToolCall:
		return r.toolCall(v.get("toolCall"), yield)
	case subjects.EventResult:
		return r.result(data, yield)
	case subjects.EventPing:
		return nil
	case "":
		return r.result(data, yield)
	default:
		if !r.Strict {
			return nil
		}
		return subjects.Errorf(subjects.KindProvider, "the stream has an event of type %q; the types are delta, tool_call, result and ping", boundedName(kind))
	}
}

// nativeError reads {"error":{"kind",…}}.
func nativeError(data []byte) *subjects.Error {
	e := &subjects.Error{}
	if json.Unmarshal(data, e) != nil || !e.Kind.Known() {
		return subjects.Errorf(subjects.KindProvider, "the stream ended in an error that is not of Sluice's form")
	}
	return e
}

func (r *NativeReader) delta(text string, yield func(*Event) error) error {
	if text == "" {
		return nil
	}
	r.text = true
	r.resp.OutputBytes += int64(len(text))
	r.ev = Event{Text: strings.Clone(text)}
	return yield(&r.ev)
}

func (r *NativeReader) toolCall(v raw, yield func(*Event) error) error {
	call, err := nativeCall(v)
	if err != nil {
		return err
	}
	return r.call(&call, yield)
}

func (r *NativeReader) call(call *subjects.ToolCall, yield func(*Event) error) error {
	r.calls++
	r.resp.OutputBytes += int64(len(call.Name) + len(call.Arguments))
	r.ev = Event{ToolCall: call}
	return yield(&r.ev)
}

func (r *NativeReader) result(data []byte, yield func(*Event) error) error {
	res, provider, err := ReadNative(data)
	if err != nil {
		return err
	}
	if !r.text {
		if err := r.delta(res.Text, yield); err != nil {
			return err
		}
	}
	if r.calls == 0 {
		for i := range res.ToolCalls {
			if err := r.call(&res.ToolCalls[i], yield); err != nil {
				return err
			}
		}
	}
	sum := &r.resp
	sum.FinishReason, sum.Model, sum.Usage, sum.UsageKnown = res.FinishReason, res.Model, res.Usage, res.UsageKnown
	sum.Warnings = append(sum.Warnings, res.Warnings...)
	r.provider, r.whole = provider, true
	return nil
}

// Whole reports whether the result has come.
func (r *NativeReader) Whole() bool { return r.whole }

// Sum is what has been said so far: the usage, the model and the finish reason
// once the result has come, and the bytes. It is the same one at every call.
func (r *NativeReader) Sum() *Response { return &r.resp }

// Failed is the error in which the other party ended the stream; nil = it did not.
func (r *NativeReader) Failed() *subjects.Error { return r.failed }

// Provider is who answered, as the result says; "" before it.
func (r *NativeReader) Provider() string { return r.provider }
