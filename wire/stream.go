package wire

import (
	"cmp"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// StreamEncoder writes one stream for its caller. emit gets one event's
// payload at a time; the bytes are valid until emit returns. Not safe for
// concurrent use.
type StreamEncoder interface {
	// Event writes a provider's event; it may write none, or several.
	Event(ev *Event, emit func([]byte) error) error
	// Finish writes what belongs at the end. On the native wire that is the
	// result, with the content, tool calls and finish reason filled into res.
	Finish(resp *Response, res *subjects.Result, emit func([]byte) error) error
}

// NewStreamEncoder makes the encoder for a caller who speaks to. model is the
// id shown where the provider's own chunks do not show one.
func NewStreamEncoder(to Name, head *Head, callID, model string) StreamEncoder {
	if to == OpenAIChat {
		return &openAIStream{wantUsage: head.StreamUsage, callID: callID, model: model}
	}
	return &nativeStream{}
}

// nativeStream writes deltas and whole tool calls, and keeps them for the
// result.
type nativeStream struct {
	text    strings.Builder
	calls   []subjects.ToolCall
	parts   assembler
	refused bool
	buf     []byte
}

func (s *nativeStream) Event(ev *Event, emit func([]byte) error) error {
	if ev.Raw != nil && ev.Wire == OpenAIChat {
		return s.chunk(view(ev.Raw), emit)
	}
	if ev.Text != "" {
		if err := s.delta(ev.Text, emit); err != nil {
			return err
		}
	}
	if ev.ToolCall != nil {
		return s.toolCall(ev.ToolCall, emit)
	}
	return nil
}

// chunk reads the first choice of an openai-chat chunk.
func (s *nativeStream) chunk(v raw, emit func([]byte) error) error {
	item := firstChoice(v.get("choices"))
	var c choice
	c.read(item)
	if item == "" || c.index != "" && !c.isFirst() {
		return nil
	}
	s.refused = s.refused || c.delta.refusal.inner() != ""
	if text := c.delta.text(); text != "" {
		if err := s.delta(text, emit); err != nil {
			return err
		}
	}
	if err := s.parts.add(c.delta.calls, c.delta.legacy); err != nil || !c.finish.isString() {
		return err
	}
	return s.flush(emit)
}

func (s *nativeStream) flush(emit func([]byte) error) error {
	for _, c := range s.parts.take() {
		if err := s.toolCall(&c, emit); err != nil {
			return err
		}
	}
	return nil
}

func (s *nativeStream) delta(text string, emit func([]byte) error) error {
	if s.text.Len()+len(text) > maxAnswer {
		return tooLong()
	}
	s.text.WriteString(text)
	s.buf = append(s.buf[:0], `{"type":"delta"`...)
	s.buf = append(appendText(s.buf, "content", text), '}')
	return emit(s.buf)
}

func (s *nativeStream) toolCall(c *subjects.ToolCall, emit func([]byte) error) error {
	s.calls = append(s.calls, *c)
	s.buf = append(s.buf[:0], `{"type":"tool_call","toolCall":`...)
	s.buf = append(appendToolCall(s.buf, c), '}')
	return emit(s.buf)
}

func (s *nativeStream) Finish(resp *Response, res *subjects.Result, emit func([]byte) error) error {
	if err := s.flush(emit); err != nil {
		return err
	}
	res.Content, res.ToolCalls = s.text.String(), s.calls
	res.FinishReason = cmp.Or(finishReason(resp.FinishReason, len(s.calls) > 0, s.refused), subjects.FinishStop)
	s.buf = append(s.buf[:0], `{"type":"result"`...)
	s.buf = append(appendResult(s.buf, res), '}')
	return emit(s.buf)
}

// openAIStream passes chunks of the same wire through and makes the others.
type openAIStream struct {
	wantUsage     bool
	callID, model string

	created   int64
	buf       []byte
	passed    bool // a chunk of the same wire went through: it has its own end
	usageSent bool
	started   bool // the role chunk of a made stream went out
	calls     int
}

func (s *openAIStream) Event(ev *Event, emit func([]byte) error) error {
	if ev.Raw != nil && ev.Wire == OpenAIChat {
		if ev.UsageOnly && !s.wantUsage {
			return nil
		}
		s.passed = true
		if s.wantUsage && !s.usageSent {
			s.usageSent = view(ev.Raw).get("usage").isObject()
		}
		return emit(ev.Raw)
	}
	if err := s.start(emit); err != nil {
		return err
	}
	if ev.Text != "" {
		s.open()
		s.buf = append(appendText(s.buf, "content", ev.Text), '}')
		if err := s.close("", emit); err != nil {
			return err
		}
	}
	if ev.ToolCall == nil {
		return nil
	}
	s.open()
	s.buf = append(appendKey(s.buf, "tool_calls"), "[{"...)
	s.buf = appendInt(s.buf, "index", int64(s.calls))
	s.buf = append(appendOpenAICall(s.buf, ev.ToolCall), "]}"...)
	s.calls++
	return s.close("", emit)
}

// start sends the chunk that has the role.
func (s *openAIStream) start(emit func([]byte) error) error {
	if s.started {
		return nil
	}
	s.started = true
	s.open()
	s.buf = append(s.buf, `"role":"assistant","content":""}`...)
	return s.close("", emit)
}

// open begins a chunk up to the opening brace of its delta.
func (s *openAIStream) open() {
	s.head()
	s.buf = append(appendKey(s.buf, "choices"), `[{"index":0,"delta":{`...)
}

func (s *openAIStream) head() {
	if s.created == 0 {
		s.created = time.Now().Unix()
	}
	s.buf = appendText(append(s.buf[:0], '{'), "id", completionID(s.callID))
	s.buf = appendText(s.buf, "object", "chat.completion.chunk")
	s.buf = appendInt(s.buf, "created", s.created)
	s.buf = appendText(s.buf, "model", s.model)
}

// close ends a chunk after its delta and sends it.
func (s *openAIStream) close(finish string, emit func([]byte) error) error {
	s.buf = append(s.buf, `,"logprobs":null,"finish_reason":`...)
	if finish == "" {
		s.buf = append(s.buf, "null"...)
	} else {
		s.buf = appendString(s.buf, finish)
	}
	s.buf = append(s.buf, "}]"...)
	if s.wantUsage {
		s.buf = append(s.buf, `,"usage":null`...)
	}
	s.buf = append(s.buf, '}')
	return emit(s.buf)
}

func (s *openAIStream) Finish(resp *Response, res *subjects.Result, emit func([]byte) error) error {
	if !s.passed {
		if err := s.start(emit); err != nil {
			return err
		}
		s.open()
		s.buf = append(s.buf, '}')
		finish := cmp.Or(finishReason(resp.FinishReason, s.calls > 0, false), subjects.FinishStop)
		if err := s.close(finish, emit); err != nil {
			return err
		}
	}
	if !s.wantUsage || s.usageSent {
		return nil
	}
	s.head()
	s.buf = append(s.buf, `,"choices":[]`...)
	s.buf = append(appendOpenAIUsage(appendKey(s.buf, "usage"), usageOf(resp, res)), '}')
	return emit(s.buf)
}
