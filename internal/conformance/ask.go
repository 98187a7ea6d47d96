package conformance

import (
	"encoding/json"

	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/wire"
)

// form is how one caller asks: in which wire, whole or as a stream.
type form struct {
	wire   wire.Name
	stream bool
}

// forms are the ways in which everything is asked.
var forms = []form{
	{wire.Native, false}, {wire.Native, true}, {wire.OpenAIChat, false}, {wire.OpenAIChat, true},
}

func (f form) String() string {
	if f.stream {
		return string(f.wire) + ", stream"
	}
	return string(f.wire) + ", whole"
}

// promptMark is in every prompt, to be found where it must not be.
const promptMark = "Prompt-7731"

// hello is the plainest thing to ask.
func hello() *vendors.Seen {
	return &vendors.Seen{Messages: []vendors.Turn{{Role: "user", Text: "Say hello. " + promptMark}}}
}

// body writes what is asked in the caller's form, with more members beside.
func (f form) body(s *vendors.Seen, more object) []byte {
	var o object
	if f.wire == wire.Native {
		o = nativeBody(s)
	} else {
		o = chatBody(s)
	}
	if f.stream {
		o["stream"] = true
		if f.wire == wire.OpenAIChat {
			o["stream_options"] = object{"include_usage": true}
		}
	}
	for k, v := range more {
		o[k] = v
	}
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // a mistake in the suite
	}
	return b
}

type object = map[string]any

func set[T any](o object, key string, v *T) {
	if v != nil {
		o[key] = *v
	}
}

func nativeBody(s *vendors.Seen) object {
	var messages []any
	if s.System != "" {
		messages = append(messages, object{"role": "system", "content": s.System})
	}
	for i := range s.Messages {
		messages = append(messages, nativeTurn(&s.Messages[i]))
	}
	o := object{"messages": messages}
	var tools []any
	for _, t := range s.Tools {
		tools = append(tools, toolOf(&t))
	}
	if tools != nil {
		o["tools"] = tools
	}
	if name := named(s.ToolChoice); name != "" {
		o["toolChoice"] = object{"name": name}
	} else if s.ToolChoice != "" {
		o["toolChoice"] = s.ToolChoice
	}
	switch s.Format {
	case "":
	case "json_schema":
		o["responseFormat"] = object{"type": s.Format, "name": "answer", "schema": s.Schema}
	default:
		o["responseFormat"] = object{"type": s.Format}
	}
	if s.Stop != nil {
		o["stop"] = s.Stop
	}
	set(o, "temperature", s.Temperature)
	set(o, "topP", s.TopP)
	set(o, "maxTokens", s.MaxTokens)
	set(o, "seed", s.Seed)
	set(o, "parallelToolCalls", s.Parallel)
	if s.Effort != "" {
		o["reasoningEffort"] = s.Effort
	}
	return o
}

// toolOf is a tool as both wires have it.
func toolOf(t *vendors.Tool) object {
	o := object{"name": t.Name, "description": t.Description}
	if t.Schema != nil {
		o["parameters"] = t.Schema
	}
	return o
}

// named is the tool's name in "name:<tool>".
func named(choice string) string {
	if len(choice) > 5 && choice[:5] == "name:" {
		return choice[5:]
	}
	return ""
}

func nativeTurn(t *vendors.Turn) object {
	o := object{"role": t.Role, "content": t.Text}
	if t.Images != nil {
		parts := []any{object{"type": "text", "text": t.Text}}
		for _, img := range t.Images {
			parts = append(parts, object{"type": "image", "imageUrl": urlOf(img)})
		}
		o["content"] = parts
	}
	var calls []any
	for _, c := range t.Calls {
		calls = append(calls, object{"id": c.ID, "name": c.Name, "arguments": c.Arguments})
	}
	if calls != nil {
		o["toolCalls"] = calls
	}
	if t.ResultOf != "" {
		o["toolCallId"] = t.ResultOf
	}
	return o
}

func urlOf(img vendors.Image) string {
	if img.URL != "" {
		return img.URL
	}
	return "data:" + img.MediaType + ";base64," + img.Base64
}

func chatBody(s *vendors.Seen) object {
	var messages []any
	if s.System != "" {
		messages = append(messages, object{"role": "system", "content": s.System})
	}
	for i := range s.Messages {
		messages = append(messages, chatTurn(&s.Messages[i]))
	}
	o := object{"model": "auto", "messages": messages}
	var tools []any
	for _, t := range s.Tools {
		tools = append(tools, object{"type": "function", "function": toolOf(&t)})
	}
	if tools != nil {
		o["tools"] = tools
	}
	if name := named(s.ToolChoice); name != "" {
		o["tool_choice"] = object{"type": "function", "function": object{"name": name}}
	} else if s.ToolChoice != "" {
		o["tool_choice"] = s.ToolChoice
	}
	switch s.Format {
	case "":
	case "json_schema":
		o["response_format"] = object{"type": s.Format, "json_schema": object{"name": "answer", "schema": s.Schema}}
	default:
		o["response_format"] = object{"type": s.Format}
	}
	if s.Stop != nil {
		o["stop"] = s.Stop
	}
	set(o, "temperature", s.Temperature)
	set(o, "top_p", s.TopP)
	set(o, "max_tokens", s.MaxTokens)
	set(o, "seed", s.Seed)
	set(o, "parallel_tool_calls", s.Parallel)
	if s.Effort != "" {
		o["reasoning_effort"] = s.Effort
	}
	return o
}

func chatTurn(t *vendors.Turn) object {
	o := object{"role": t.Role, "content": t.Text}
	if t.Images != nil {
		parts := []any{object{"type": "text", "text": t.Text}}
		for _, img := range t.Images {
			parts = append(parts, object{"type": "image_url", "image_url": object{"url": urlOf(img)}})
		}
		o["content"] = parts
	}
	var calls []any
	for _, c := range t.Calls {
		calls = append(calls, object{"id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": c.Arguments}})
	}
	if calls != nil {
		o["tool_calls"] = calls
	}
	if t.ResultOf != "" {
		o["tool_call_id"] = t.ResultOf
	}
	return o
}
