package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"github.com/sluice-llm/sluice/subjects"
)

// Efforts are the words for how much a model should reason, in their order. A
// provider takes those that it has.
var Efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// onlyOpenAI are the needs that have no place in the hub form.
const onlyOpenAI = NeedChoices | NeedLogProbs | NeedAudio | NeedDocuments | NeedOpenAIChat

// maxLeft bounds the fields of Chat.Left that are named.
const maxLeft = 32

// Chat returns the request in the hub form, decoded on the first call. What
// the hub form cannot carry is refused where the answer would be another
// without it, and else named in Chat.Left.
func (r *Request) Chat() (*Chat, error) {
	if r.chat != nil {
		return r.chat, nil
	}
	var c *Chat
	var err error
	switch r.Wire {
	case Native:
		c, err = chatFromNative(r.Body)
	case OpenAIChat:
		if c, err = chatFromOpenAI(r.Body); err == nil && r.Head.Needs&onlyOpenAI != 0 {
			err = subjects.Errorf(subjects.KindCapabilityMissing,
				"%s: only a provider that speaks openai-chat has it; leave it out for another", r.Head.Needs&onlyOpenAI)
		}
	default:
		err = unknownWire(r.Wire)
	}
	if err != nil {
		return nil, err
	}
	r.chat = c
	return c, nil
}

func chatFromNative(body []byte) (*Chat, error) {
	c := &Chat{}
	if err := json.Unmarshal(body, &c.Prompt); err != nil {
		return nil, undecodable(err)
	}
	return c, nil
}

func chatFromOpenAI(body []byte) (*Chat, error) {
	var in oaRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, undecodable(err)
	}
	c := &Chat{
		FrequencyPenalty: in.FrequencyPenalty, PresencePenalty: in.PresencePenalty, User: in.User,
	}
	c.Seed, c.ParallelToolCalls, c.ReasoningEffort = in.Seed, in.ParallelToolCalls, in.ReasoningEffort
	c.Temperature, c.TopP, c.Stream = in.Temperature, in.TopP, in.Stream
	if c.MaxTokens = in.MaxCompletionTokens; c.MaxTokens == nil {
		c.MaxTokens = in.MaxTokens
	}
	steps := []func(*oaRequest, *Chat) *subjects.Error{hubStop, hubTools, hubToolChoice, hubFormat, hubMessages}
	for _, step := range steps {
		if err := step(&in, c); err != nil {
			return nil, err
		}
	}
	for f := range view(body).fields() {
		if slices.Contains(oaCarried, f.Key) || f.Value.isNull() {
			continue
		}
		if len(c.Left) == maxLeft {
			c.Left = append(c.Left, "every further unknown field")
			break
		}
		c.Left = append(c.Left, printable(f.Key))
	}
	return c, nil
}

// undecodable names the field of a body that Parse let pass and that does not
// decode: a detail of a type that Parse does not look into.
func undecodable(err error) *subjects.Error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return invalid(wrong.Field, "has the wrong type (%s)", wrong.Value).WithCause(err)
	}
	return invalid("request", "has a field of the wrong type").WithCause(err)
}

func isNull(b json.RawMessage) bool { return len(b) == 0 || string(bytes.TrimSpace(b)) == "null" }

func hubStop(in *oaRequest, c *Chat) *subjects.Error {
	if isNull(in.Stop) {
		return nil
	}
	if err := json.Unmarshal(in.Stop, &c.Stop); err != nil {
		return invalid("stop", "must be a string or an array of strings")
	}
	return nil
}

func hubTools(in *oaRequest, c *Chat) *subjects.Error {
	for i, t := range in.Tools {
		if t.Type != "" && t.Type != "function" {
			return invalid(place("tools", i, "type"), "only function tools can be translated for this provider")
		}
		if t.Function.Name == "" {
			return invalid(place("tools", i, "function.name"), "missing; a tool needs one")
		}
		c.Tools = append(c.Tools, subjects.Tool(t.Function))
	}
	for i, f := range in.Functions {
		if f.Name == "" {
			return invalid(place("functions", i, "name"), "missing; a function needs one")
		}
		c.Tools = append(c.Tools, subjects.Tool(f))
	}
	for i := range c.Tools {
		if isNull(c.Tools[i].Parameters) {
			c.Tools[i].Parameters = nil
		}
	}
	return nil
}

func hubToolChoice(in *oaRequest, c *Chat) *subjects.Error {
	field, b := "tool_choice", in.ToolChoice
	if isNull(b) {
		field, b = "function_call", in.FunctionCall
	}
	if isNull(b) {
		return nil
	}
	v := view(b)
	choice := &subjects.ToolChoice{}
	switch {
	case v.isString():
		choice.Mode = v.str()
		if m := choice.Mode; m != "auto" && m != "none" && m != "required" {
			return invalid(field, "must be auto, none, required or an object that names a function")
		}
	case field == "function_call":
		choice.Name = v.get("name").str()
	default:
		choice.Name = v.get("function").get("name").str()
	}
	if choice.Mode == "" && choice.Name == "" {
		return invalid(field, "only auto, none, required or one named function can be translated for this provider")
	}
	c.ToolChoice = choice
	return nil
}

func hubFormat(in *oaRequest, c *Chat) *subjects.Error {
	f := in.ResponseFormat
	if f == nil {
		return nil
	}
	c.ResponseFormat = &subjects.ResponseFormat{Type: f.Type}
	switch f.Type {
	case "text", "json_object":
	case "json_schema":
		if f.JSONSchema == nil || isNull(f.JSONSchema.Schema) {
			return invalid("response_format.json_schema.schema", "missing; json_schema needs it")
		}
		c.ResponseFormat.Name = f.JSONSchema.Name
		c.ResponseFormat.Schema = f.JSONSchema.Schema
		c.ResponseFormat.Strict = f.JSONSchema.Strict
	default:
		return invalid("response_format.type", "only text, json_object and json_schema can be translated for this provider")
	}
	return nil
}

func hubMessages(in *oaRequest, c *Chat) *subjects.Error {
	c.Messages = make([]subjects.Message, 0, len(in.Messages))
	for i := range in.Messages {
		m, err := hubMessage(&in.Messages[i])
		if err != nil {
			r := reader{err: err}
			r.within("messages[" + strconv.Itoa(i) + "]")
			return r.err
		}
		c.Messages = append(c.Messages, m)
	}
	return nil
}

// hubMessage reads one message. The legacy function_call has no id; one by the
// function's name ties the call to the function message that answers it.
func hubMessage(in *oaMessage) (subjects.Message, *subjects.Error) {
	m := subjects.Message{Role: in.Role, Name: in.Name, ToolCallID: in.ToolCallID}
	switch in.Role {
	case "developer":
		m.Role = "system"
	case "function":
		m.Role, m.Name, m.ToolCallID = "tool", "", "call_"+in.Name
	}
	for i, t := range in.ToolCalls {
		if t.Type != "" && t.Type != "function" {
			return m, invalid(place("tool_calls", i, "type"), "only function calls can be translated for this provider")
		}
		m.ToolCalls = append(m.ToolCalls, subjects.ToolCall{ID: t.ID, Name: t.Function.Name, Arguments: t.Function.Arguments})
	}
	if f := in.FunctionCall; f != nil {
		m.ToolCalls = append(m.ToolCalls, subjects.ToolCall{ID: "call_" + f.Name, Name: f.Name, Arguments: f.Arguments})
	}
	var err *subjects.Error
	if m.Content, err = hubContent(in.Content); err != nil {
		return m, err
	}
	if m.Content.Parts == nil && m.Content.Text == "" {
		m.Content.Text = in.Refusal
	}
	return m, nil
}

func hubContent(b json.RawMessage) (subjects.Content, *subjects.Error) {
	var c subjects.Content
	switch v := view(b); {
	case isNull(b):
	case v.isString():
		c.Text = v.str()
	default:
		var parts []oaPart
		if err := json.Unmarshal(b, &parts); err != nil {
			return c, invalid("content", "must be a string or an array of parts")
		}
		c.Parts = make([]subjects.Part, 0, len(parts))
		for i := range parts {
			p, err := hubPart(&parts[i])
			if err != nil {
				r := reader{err: err}
				r.within("content[" + strconv.Itoa(i) + "]")
				return c, r.err
			}
			c.Parts = append(c.Parts, p)
		}
	}
	return c, nil
}

func hubPart(in *oaPart) (subjects.Part, *subjects.Error) {
	switch in.Type {
	case "text":
		if in.Text == nil {
			return subjects.Part{}, invalid("text", "missing; a text part needs it")
		}
		return subjects.Part{Type: subjects.PartText, Text: *in.Text}, nil
	case "refusal":
		return subjects.Part{Type: subjects.PartText, Text: in.Refusal}, nil
	case "image_url":
		v := view(in.ImageURL)
		if v.isString() {
			return subjects.Part{Type: subjects.PartImage, ImageURL: v.str()}, nil
		}
		return subjects.Part{Type: subjects.PartImage, ImageURL: v.get("url").str(), Detail: v.get("detail").str()}, nil
	}
	return subjects.Part{}, invalid("type", "only text and image_url parts can be translated for this provider")
}

func place(list string, i int, field string) string {
	return list + "[" + strconv.Itoa(i) + "]." + field
}
