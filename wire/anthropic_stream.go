package wire

import (
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// AnthropicStream reads the events of one Messages stream. It sums up what they
// say of the whole and gives each its hub form, unless the caller speaks the
// same wire and gets the events as they are. From one goroutine.
//
// A stream is message_start, then for each block of the answer
// content_block_start, deltas and content_block_stop, then message_delta with
// the stop reason and the usage, then message_stop. ping, and events, blocks and
// deltas of kinds that are not known, may stand anywhere and are passed over.
type AnthropicStream struct {
	// Hub asks for the hub form of the events.
	Hub bool

	sum     Response
	usage   anthropicUsage
	calls   int
	started bool
	ended   bool
	open    []openBlock
	size    int // of the tool arguments kept
}

// openBlock is a block between its start and its stop.
type openBlock struct {
	index string
	tool  bool
	id    string
	name  string
	args  []byte
}

// maxOpenBlocks bounds the blocks that are open at one time. The API opens one.
const maxOpenBlocks = 128

// AnthropicEvent says what an event is to its reader.
type AnthropicEvent int

const (
	// AnthropicNothing has no output in it.
	AnthropicNothing AnthropicEvent = iota
	// AnthropicOutput has output in it that reaches the caller.
	AnthropicOutput
	// AnthropicEnd is the proper end of the stream.
	AnthropicEnd
	// AnthropicError is an error of the API; the event holds it.
	AnthropicError
)

// Read takes the data of one event and fills ev with it: Wire and Raw always,
// Text or ToolCall where Hub asks for them. Text may share data's memory. It
// fails with PROVIDER_ERROR on data that is no JSON object, and on an answer
// above 16 MiB of tool arguments.
func (s *AnthropicStream) Read(data []byte, ev *Event) (AnthropicEvent, error) {
	v := view(data)
	if !v.isObject() || !ValidJSON(data) {
		return AnthropicNothing, subjects.Errorf(subjects.KindProvider, "the stream has an event that is broken JSON")
	}
	*ev = Event{Wire: AnthropicMessages, Raw: data}
	var e eventFields
	e.read(v)
	kind, err := s.take(&e, ev)
	ev.Empty = kind != AnthropicOutput
	return kind, err
}

// eventFields are the members of an event.
type eventFields struct {
	kind                                string
	index, message, block, delta, usage raw
	error                               bool
}

func (e *eventFields) read(v raw) {
	for f := range v.fields() {
		switch f.Key {
		case "type":
			e.kind = f.Value.inner()
		case "index":
			e.index = f.Value
		case "message":
			e.message = f.Value
		case "content_block":
			e.block = f.Value
		case "delta":
			e.delta = f.Value
		case "usage":
			e.usage = f.Value
		case "error":
			e.error = saysError(f.Value)
		}
	}
}

func (s *AnthropicStream) take(e *eventFields, ev *Event) (AnthropicEvent, error) {
	switch e.kind {
	case "content_block_delta":
		return s.delta(e, ev)
	case "content_block_start":
		return s.start(e, ev)
	case "content_block_stop":
		return s.stop(e, ev), nil
	case "message_start":
		s.started = true
		s.sum.Model = boundedName(e.message.get("model"))
		s.spent(e.message.get("usage"), false) // its output tokens are those of the first moment
	case "message_delta":
		if stop := e.delta.get("stop_reason"); stop.isString() {
			s.sum.FinishReason = stopReason(stop.inner(), s.calls > 0)
		}
		s.spent(e.usage, true)
	case "message_stop":
		return s.end()
	case "error":
		return AnthropicError, nil
	default:
		if e.error {
			return AnthropicError, nil
		}
	}
	return AnthropicNothing, nil
}

func (s *AnthropicStream) end() (AnthropicEvent, error) {
	for i := range s.open {
		if s.open[i].tool {
			return AnthropicNothing, subjects.Errorf(subjects.KindProvider, "the stream ended in the middle of a tool call")
		}
	}
	s.ended = true
	return AnthropicEnd, nil
}

// start opens a block. One that holds something already is what the first delta
// would be.
func (s *AnthropicStream) start(e *eventFields, ev *Event) (AnthropicEvent, error) {
	s.close(e.index)
	if len(s.open) == maxOpenBlocks {
		return AnthropicNothing, subjects.Errorf(subjects.KindProvider, "the stream has more than %d blocks open", maxOpenBlocks)
	}
	b := openBlock{index: strings.Clone(string(e.index))}
	n, call := blockBytes(e.block)
	if !call {
		s.open = append(s.open, b)
		s.sum.OutputBytes += int64(n)
		if e.block.get("type").inner() == "text" {
			return s.say(e.block.get("text"), ev), nil
		}
		return AnthropicNothing, nil
	}
	s.calls++
	name, input := e.block.get("name"), e.block.get("input")
	s.sum.OutputBytes += int64(name.textLen())
	b.tool = true
	if s.Hub {
		b.id, b.name = strings.Clone(e.block.get("id").str()), strings.Clone(name.str())
	}
	if input.hasFields() {
		s.sum.OutputBytes += int64(len(input))
		if err := s.keep(&b, string(input)); err != nil {
			return AnthropicNothing, err
		}
	}
	s.open = append(s.open, b)
	return s.passed(), nil
}

// passed is the kind of an event whose output only a caller of the same wire
// gets.
func (s *AnthropicStream) passed() AnthropicEvent {
	if s.Hub {
		return AnthropicNothing
	}
	return AnthropicOutput
}

func (s *AnthropicStream) delta(e *eventFields, ev *Event) (AnthropicEvent, error) {
	for f := range e.delta.fields() {
		switch f.Key {
		case "text":
			s.sum.OutputBytes += int64(f.Value.textLen())
			return s.say(f.Value, ev), nil
		case "thinking":
			s.sum.OutputBytes += int64(f.Value.textLen())
		case "partial_json":
			s.sum.OutputBytes += int64(f.Value.textLen())
			if b := s.find(e.index); b != nil && b.tool && s.Hub {
				return AnthropicNothing, s.keep(b, f.Value.str())
			}
		}
	}
	return s.passed(), nil
}

// say gives a piece of the answer's text.
func (s *AnthropicStream) say(text raw, ev *Event) AnthropicEvent {
	if text.inner() == "" {
		return AnthropicNothing
	}
	if s.Hub {
		ev.Text = text.str()
	}
	return AnthropicOutput
}

func (s *AnthropicStream) keep(b *openBlock, args string) error {
	if !s.Hub {
		return nil
	}
	if s.size += len(args); s.size > maxAnswer {
		return tooLong()
	}
	b.args = append(b.args, args...)
	return nil
}

// stop ends a block; a call of a tool is whole then.
func (s *AnthropicStream) stop(e *eventFields, ev *Event) AnthropicEvent {
	b := s.close(e.index)
	if !b.tool || !s.Hub {
		return AnthropicNothing
	}
	call := &subjects.ToolCall{ID: b.id, Name: b.name, Arguments: "{}"}
	if args := strings.TrimSpace(string(b.args)); args != "" {
		call.Arguments = args
	}
	ev.ToolCall = call
	return AnthropicOutput
}

func (s *AnthropicStream) find(index raw) *openBlock {
	for i := range s.open {
		if s.open[i].index == string(index) {
			return &s.open[i]
		}
	}
	return nil
}

// close takes a block away and returns it; the zero block when there is none.
func (s *AnthropicStream) close(index raw) openBlock {
	for i := range s.open {
		if s.open[i].index == string(index) {
			b := s.open[i]
			s.open = append(s.open[:i], s.open[i+1:]...)
			return b
		}
	}
	return openBlock{}
}

// Whole reports whether the proper end has come, after an answer. A stop reason
// alone is none: what cuts a stream there may have cut it anywhere, and the
// vendor's own SDK takes it for cut, too.
func (s *AnthropicStream) Whole() bool {
	return s.ended && (s.started || s.sum.OutputBytes > 0 || s.sum.FinishReason != "")
}

// Sum is what the events have said so far: model, usage, finish reason, bytes; the
// same one at every call. The usage of a stream that was cut is that of the
// prompt alone, and not known.
func (s *AnthropicStream) Sum() *Response {
	s.sum.Wire = AnthropicMessages
	return &s.sum
}

// spent reads a usage object; its output tokens count once the answer is at its
// end.
func (s *AnthropicStream) spent(v raw, end bool) {
	s.usage.read(v)
	s.usage.known = s.usage.known && end
	u := s.usage
	if !u.known {
		u.out = 0
	}
	s.sum.Usage, s.sum.UsageKnown = u.usage(), u.known
}
