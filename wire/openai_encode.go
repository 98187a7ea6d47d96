package wire

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// OpenAIChat writes the request as an openai-chat body for a provider that
// calls the model model. A body of that wire is patched; a native one whose
// messages read the same there is spliced; anything else is decoded and
// encoded. wantUsage asks for the usage of a stream (see PatchOpenAIChat).
func (r *Request) OpenAIChat(model string, stream, wantUsage bool) ([]byte, error) {
	switch {
	case r.Wire == OpenAIChat:
		return PatchOpenAIChat(r.Body, model, stream, wantUsage)
	case r.plain:
		return splice(r.Body, model, stream, wantUsage), nil
	}
	chat, err := r.Chat()
	if err != nil {
		return nil, err
	}
	body, err := EncodeOpenAIChat(chat, model, stream)
	if err != nil || !stream || !wantUsage {
		return body, err
	}
	return PatchOpenAIChat(body, model, stream, wantUsage)
}

// tokenLimit is the name of the bound on the answer. OpenAI's reasoning models
// refuse max_tokens, and many compatible servers know nothing else; so the
// model's name decides, with or without its publisher in front.
func tokenLimit(model string) string {
	base := model[strings.LastIndexByte(model, '/')+1:]
	if isDigit(base, "gpt-", '5') || isDigit(base, "o", '1') {
		return "max_completion_tokens"
	}
	return "max_tokens"
}

// isDigit reports whether a name goes on after prefix with one digit, from least
// on, that stands alone: gpt-5.4 and o4-mini, not gpt-35-turbo.
func isDigit(name, prefix string, least byte) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	digit := func(i int) bool { return len(rest) > i && rest[i] >= '0' && rest[i] <= '9' }
	return ok && digit(0) && rest[0] >= least && !digit(1)
}

// splice writes a plain native body: the values are the caller's own bytes
// under the names of openai-chat.
func splice(body []byte, model string, stream, wantUsage bool) []byte {
	dst := make([]byte, 0, len(body)+len(model)+128)
	dst = appendText(append(dst, '{'), "model", model)
	for f := range view(body).fields() {
		v := f.Value
		if v.isNull() {
			continue
		}
		switch f.Key {
		case "messages", "temperature", "stop":
			dst = append(appendKey(dst, f.Key), v...)
		case "topP":
			dst = append(appendKey(dst, "top_p"), v...)
		case "maxTokens":
			dst = append(appendKey(dst, tokenLimit(model)), v...)
		case "tools":
			dst = spliceTools(dst, v)
		case "toolChoice":
			dst = spliceToolChoice(dst, v)
		case "seed":
			dst = append(appendKey(dst, "seed"), v...)
		case "reasoningEffort":
			dst = append(appendKey(dst, "reasoning_effort"), v...)
		case "parallelToolCalls":
			if view(body).get("tools").count() > 0 {
				dst = append(appendKey(dst, "parallel_tool_calls"), v...)
			}
		case "responseFormat":
			dst = spliceFormat(dst, v)
		}
	}
	if stream {
		dst = appendBool(dst, "stream", true)
	}
	if stream && wantUsage {
		dst = append(appendKey(dst, "stream_options"), includeUsage...)
	}
	return append(dst, '}')
}

const includeUsage = `{"include_usage":true}`

func spliceTools(dst []byte, tools raw) []byte {
	if tools.count() == 0 {
		return dst
	}
	dst = append(appendKey(dst, "tools"), '[')
	for i, t := range tools.items() {
		dst = append(comma(dst, i), `{"type":"function","function":`...)
		dst = append(append(dst, t...), '}')
	}
	return append(dst, ']')
}

func spliceToolChoice(dst []byte, v raw) []byte {
	dst = appendKey(dst, "tool_choice")
	if v.isString() {
		return append(dst, v...)
	}
	dst = append(dst, `{"type":"function","function":`...)
	return append(append(dst, v...), '}')
}

// defaultSchemaName is the name of a schema that has none: the API wants one.
const defaultSchemaName = "response"

func spliceFormat(dst []byte, v raw) []byte {
	kind := v.get("type").str()
	dst = append(appendKey(dst, "response_format"), '{')
	dst = appendText(dst, "type", kind)
	if kind != "json_schema" {
		return append(dst, '}')
	}
	dst = append(appendKey(dst, "json_schema"), '{')
	name := v.get("name").str()
	if name == "" {
		name = defaultSchemaName
	}
	dst = appendText(dst, "name", name)
	dst = append(appendKey(dst, "schema"), v.get("schema")...)
	if strict := v.get("strict"); strict.isBool() {
		dst = append(appendKey(dst, "strict"), strict...)
	}
	return append(dst, "}}"...)
}

// EncodeOpenAIChat writes the hub form as an openai-chat body for one model.
func EncodeOpenAIChat(chat *Chat, model string, stream bool) ([]byte, error) {
	out := oaRequest{
		Model: model, Temperature: chat.Temperature, TopP: chat.TopP, Stream: stream,
		Seed: chat.Seed, FrequencyPenalty: chat.FrequencyPenalty, PresencePenalty: chat.PresencePenalty,
		ReasoningEffort: chat.ReasoningEffort, User: chat.User,
		Messages: make([]oaMessage, 0, len(chat.Messages)),
	}
	if tokenLimit(model) == "max_tokens" {
		out.MaxTokens = chat.MaxTokens
	} else {
		out.MaxCompletionTokens = chat.MaxTokens
	}
	if len(chat.Stop) > 0 {
		out.Stop = marshal([]string(chat.Stop))
	}
	for _, t := range chat.Tools {
		out.Tools = append(out.Tools, oaTool{Type: "function", Function: oaFunction(t)})
	}
	if len(out.Tools) > 0 {
		out.ParallelToolCalls = chat.ParallelToolCalls
		out.ToolChoice = encodeToolChoice(chat.ToolChoice)
	}
	out.ResponseFormat = encodeFormat(chat.ResponseFormat)
	for i := range chat.Messages {
		out.Messages = append(out.Messages, encodeMessage(&chat.Messages[i]))
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&out); err != nil {
		return nil, invalid("request", "cannot be written as JSON").WithCause(err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

func encodeToolChoice(c *subjects.ToolChoice) json.RawMessage {
	switch {
	case c == nil || c.Mode == "" && c.Name == "":
		return nil
	case c.Name == "":
		return appendString(nil, c.Mode)
	}
	dst := append([]byte(nil), `{"type":"function","function":{`...)
	return append(appendText(dst, "name", c.Name), "}}"...)
}

func encodeFormat(f *subjects.ResponseFormat) *oaResponseFormat {
	if f == nil {
		return nil
	}
	out := &oaResponseFormat{Type: f.Type}
	if f.Type == "json_schema" {
		out.JSONSchema = &oaSchema{Name: f.Name, Schema: f.Schema, Strict: f.Strict}
		if f.Name == "" {
			out.JSONSchema.Name = defaultSchemaName
		}
	}
	return out
}

func encodeMessage(m *subjects.Message) oaMessage {
	out := oaMessage{Role: m.Role, Name: m.Name, ToolCallID: m.ToolCallID}
	for _, c := range m.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, oaToolCall{
			ID: c.ID, Type: "function", Function: oaCall{Name: c.Name, Arguments: c.Arguments},
		})
	}
	switch {
	case m.Content.Parts != nil:
		out.Content = encodeParts(m.Content.Parts)
	case m.Content.Text == "" && len(m.ToolCalls) > 0:
		out.Content = json.RawMessage("null")
	default:
		out.Content = appendString(nil, m.Content.Text)
	}
	return out
}

func encodeParts(parts []subjects.Part) json.RawMessage {
	dst := []byte{'['}
	for i := range parts {
		p := &parts[i]
		dst = append(comma(dst, i), '{')
		if p.Type == subjects.PartImage {
			dst = append(dst, `"type":"image_url","image_url":{`...)
			dst = appendText(dst, "url", p.ImageURL)
			if p.Detail != "" {
				dst = appendText(dst, "detail", p.Detail)
			}
			dst = append(dst, "}}"...)
			continue
		}
		dst = append(appendText(append(dst, `"type":"text"`...), "text", p.Text), '}')
	}
	return append(dst, ']')
}

func marshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil { // cannot happen: plain strings only
		return json.RawMessage("null")
	}
	return b
}
