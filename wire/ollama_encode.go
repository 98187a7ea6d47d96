package wire

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// Ollama's own API, POST /api/chat, as the server's source has it (v0.17.4:
// api/types.go, server/routes.go). It says less than the hub form:
//
//   - Images are base64 in a list beside the text, which the model sees first.
//   - A tool result names its tool, not only its call.
//   - There is no tool_choice: "none" leaves the tools out, and a call that is
//     forced is a capability that the API lacks.
//   - A format constrains the answer to JSON or to a schema; a schema's name and
//     strictness say nothing more.
//   - The server cuts a prompt that is too long, and forgets the beginning of an
//     answer that is, unless truncate and shift are false. Both are sent, so that
//     the one is an error and the other ends with the reason length. Servers from
//     before these fields (v0.11.10 has them not, v0.12.6 has) cut in silence.

// EncodeOllama writes the hub form as a body of Ollama's POST /api/chat. warnings
// name what steers and cannot be said there.
func EncodeOllama(chat *Chat, model string, stream bool) (body []byte, warnings []string, err error) {
	o := ollamaBody{chat: chat, dst: make([]byte, 0, sizeOf(chat))}
	o.dst = appendText(append(o.dst, '{'), "model", model)
	if err := o.messages(); err != nil {
		return nil, nil, err
	}
	o.dst = appendBool(o.dst, "stream", stream)
	o.dst = append(o.dst, `,"truncate":false,"shift":false`...)
	if err := o.tools(); err != nil {
		return nil, nil, err
	}
	if err := o.format(); err != nil {
		return nil, nil, err
	}
	o.think(model)
	o.options()
	o.rest()
	return append(o.dst, '}'), o.warnings, nil
}

// sizeOf guesses the length of a body, in bytes.
func sizeOf(chat *Chat) int {
	n := 512
	for i := range chat.Messages {
		m := &chat.Messages[i]
		n += 64 + len(m.Content.Text) + len(m.Content.Text)/16
		for j := range m.Content.Parts {
			n += 16 + len(m.Content.Parts[j].Text) + len(m.Content.Parts[j].ImageURL)
		}
	}
	for i := range chat.Tools {
		n += 128 + len(chat.Tools[i].Description) + len(chat.Tools[i].Parameters)
	}
	return n
}

// ollamaBody is a body that is being written.
type ollamaBody struct {
	chat     *Chat
	dst      []byte
	warnings []string
}

// warn names something once.
func (o *ollamaBody) warn(text string) {
	if !slices.Contains(o.warnings, text) {
		o.warnings = append(o.warnings, text)
	}
}

func (o *ollamaBody) left(what string) { o.warn(what + " is not supported by ollama and was left out") }

// cannot is the error for what the API has no way to say, while another
// provider may: the kind that moves on without a retry.
func (o *ollamaBody) cannot(what string) error {
	return cannot("ollama cannot %s; another provider may", what)
}

func (o *ollamaBody) messages() error {
	o.dst = append(appendKey(o.dst, "messages"), '[')
	first := len(o.dst)
	for i := range o.chat.Messages {
		m := &o.chat.Messages[i]
		if m.Name != "" && m.Role != "tool" {
			o.left("a message's name")
		}
		for n, turn := range turns(m.Content) {
			if len(o.dst) > first {
				o.dst = append(o.dst, ',')
			}
			if err := o.message(i, turn, n == 0); err != nil {
				return err
			}
		}
	}
	o.dst = append(o.dst, ']')
	return nil
}

// turns cuts content in pieces of images and the text after them, for the model
// sees a message's images before its text, wherever they stood. Content whose
// images all come first, or all last, stays in one piece; the rest is cut as the
// server's own endpoint of OpenAI's form does it, so that "this: A, that: B"
// keeps its order.
func turns(c subjects.Content) []subjects.Content {
	runs := 0
	for i := range c.Parts {
		if i == 0 || (c.Parts[i].Type == subjects.PartImage) != (c.Parts[i-1].Type == subjects.PartImage) {
			runs++
		}
	}
	if runs <= 2 {
		return []subjects.Content{c}
	}
	var out []subjects.Content
	from := 0
	for i := 1; i <= len(c.Parts); i++ {
		if i == len(c.Parts) || c.Parts[i].Type == subjects.PartImage && c.Parts[i-1].Type != subjects.PartImage {
			out = append(out, subjects.Content{Parts: c.Parts[from:i]})
			from = i
		}
	}
	return out
}

// message writes one turn of message i; the first one has its tool calls.
func (o *ollamaBody) message(i int, content subjects.Content, first bool) error {
	m := &o.chat.Messages[i]
	o.dst = appendText(append(o.dst, '{'), "role", m.Role)
	o.dst = appendText(o.dst, "content", content.String())
	if err := o.images(i, content.Parts); err != nil {
		return err
	}
	if len(m.ToolCalls) > 0 && first {
		o.calls(m.ToolCalls)
	}
	if m.Role == "tool" {
		if name := toolName(o.chat.Messages[:i], m); name != "" {
			o.dst = appendText(o.dst, "tool_name", name)
		}
		if m.ToolCallID != "" {
			o.dst = appendText(o.dst, "tool_call_id", m.ToolCallID)
		}
	}
	o.dst = append(o.dst, '}')
	return nil
}

// toolName is the tool whose result a message is: that of the last call before
// it with its id.
func toolName(before []subjects.Message, m *subjects.Message) string {
	for i := len(before) - 1; i >= 0; i-- {
		for j := range before[i].ToolCalls {
			if c := &before[i].ToolCalls[j]; c.ID == m.ToolCallID {
				return c.Name
			}
		}
	}
	return m.Name
}

func (o *ollamaBody) images(message int, parts []subjects.Part) error {
	n := 0
	for i := range parts {
		p := &parts[i]
		if p.Type != subjects.PartImage {
			continue
		}
		data, ok := base64Of(p.ImageURL)
		if !ok && strings.HasPrefix(p.ImageURL, "http") {
			return o.cannot("take an image by URL")
		}
		if !ok {
			return invalid("messages["+strconv.Itoa(message)+"].content", "an image must be a data: URL with base64 content, such as data:image/png;base64,…")
		}
		if p.Detail != "" && p.Detail != "auto" {
			o.left("an image's detail")
		}
		if n++; n == 1 {
			o.dst = append(appendKey(o.dst, "images"), '[')
		}
		o.dst = appendString(comma(o.dst, n-1), data)
	}
	if n > 0 {
		o.dst = append(o.dst, ']')
	}
	return nil
}

// base64Of is the content of a data: URL that has it in base64.
func base64Of(url string) (string, bool) {
	head, data, ok := strings.Cut(url, ",")
	return data, ok && data != "" && strings.HasPrefix(head, "data:") && strings.HasSuffix(head, ";base64")
}

func (o *ollamaBody) calls(calls []subjects.ToolCall) {
	o.dst = append(appendKey(o.dst, "tool_calls"), '[')
	for i := range calls {
		c := &calls[i]
		o.dst = append(comma(o.dst, i), '{')
		if c.ID != "" {
			o.dst = appendText(o.dst, "id", c.ID)
		}
		o.dst = append(appendKey(o.dst, "function"), '{')
		o.dst = appendText(appendInt(o.dst, "index", int64(i)), "name", c.Name)
		o.arguments(c.Arguments)
		o.dst = append(o.dst, "}}"...)
	}
	o.dst = append(o.dst, ']')
}

func (o *ollamaBody) arguments(args string) {
	text := false
	if o.dst, text = appendArguments(appendKey(o.dst, "arguments"), args); text {
		o.warn(asText("ollama"))
	}
}

func (o *ollamaBody) tools() error {
	c := o.chat
	if choice := c.ToolChoice; choice != nil {
		if choice.Name != "" || choice.Mode == "required" {
			return o.cannot("force a tool call")
		}
		if choice.Mode == "none" {
			return nil
		}
	}
	if len(c.Tools) == 0 {
		return nil
	}
	if p := c.ParallelToolCalls; p != nil && !*p {
		o.left("parallelToolCalls")
	}
	o.dst = append(appendKey(o.dst, "tools"), '[')
	for i := range c.Tools {
		t := &c.Tools[i]
		if t.Strict != nil && *t.Strict {
			o.left("a tool's strict")
		}
		o.dst = append(comma(o.dst, i), `{"type":"function","function":{`...)
		o.dst = appendText(o.dst, "name", t.Name)
		if t.Description != "" {
			o.dst = appendText(o.dst, "description", t.Description)
		}
		o.dst = appendKey(o.dst, "parameters")
		if view(t.Parameters) == "" {
			o.dst = append(o.dst, `{"type":"object","properties":{}}`...)
		} else {
			o.dst = append(o.dst, t.Parameters...)
		}
		o.dst = append(o.dst, "}}"...)
	}
	o.dst = append(o.dst, ']')
	return nil
}

func (o *ollamaBody) format() error {
	f := o.chat.ResponseFormat
	switch {
	case f == nil:
	case f.Type == "json_object":
		o.dst = appendText(o.dst, "format", "json")
	case f.Type == "json_schema":
		if !view(f.Schema).isObject() {
			return invalid("responseFormat.schema", "must be an object: ollama takes no other schema")
		}
		o.dst = append(appendKey(o.dst, "format"), f.Schema...)
	}
	return nil
}

// think says how much the model may reason. A model that can does so unless it
// is told not to; one that cannot answers an error to true, so true is never
// sent. Degrees are for gpt-oss alone, which in turn cannot be told not to.
func (o *ollamaBody) think(model string) {
	effort := o.chat.ReasoningEffort
	degrees := strings.HasPrefix(model[strings.LastIndexByte(model, '/')+1:], "gpt-oss")
	switch {
	case effort == "":
	case degrees && (effort == "low" || effort == "medium" || effort == "high"):
		o.dst = appendText(o.dst, "think", effort)
	case !degrees && effort == "none":
		o.dst = appendBool(o.dst, "think", false)
	default:
		o.left("reasoningEffort " + printable(effort))
	}
}

// randomSeed is the seed that the server takes for "any".
const randomSeed = -1

func (o *ollamaBody) options() {
	c := o.chat
	at := len(o.dst)
	o.dst = append(appendKey(o.dst, "options"), '{')
	none := len(o.dst)
	for _, f := range [...]struct {
		key   string
		value *float64
	}{
		{"temperature", c.Temperature},
		{"top_p", c.TopP},
		{"presence_penalty", c.PresencePenalty},
		{"frequency_penalty", c.FrequencyPenalty},
	} {
		if f.value != nil {
			o.dst = appendFloat(o.dst, f.key, *f.value)
		}
	}
	switch {
	case c.Seed == nil:
	case *c.Seed == randomSeed:
		o.left("seed -1, which is the word for a random one,")
	default:
		o.dst = appendInt(o.dst, "seed", *c.Seed)
	}
	if c.MaxTokens != nil {
		o.dst = appendInt(o.dst, "num_predict", *c.MaxTokens)
	}
	if len(c.Stop) > 0 {
		o.dst = append(appendKey(o.dst, "stop"), '[')
		for i, s := range c.Stop {
			o.dst = appendString(comma(o.dst, i), s)
		}
		o.dst = append(o.dst, ']')
	}
	if len(o.dst) == none {
		o.dst = o.dst[:at]
		return
	}
	o.dst = append(o.dst, '}')
}

// rest names what the API has no place for at all.
func (o *ollamaBody) rest() {
	if o.chat.User != "" {
		o.left("user")
	}
	for _, f := range o.chat.Left {
		o.left(f)
	}
}
