package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/sluice-llm/sluice/subjects"
)

// EncodeAnthropic writes the hub form as the body of a Messages request
// (anthropic-version 2023-06-01, no beta headers) for one model. warnings name
// what only steers and cannot be carried. It fails with VALIDATION_ERROR where a
// message has no form there, and with PROVIDER_UNAVAILABLE, which moves the call
// on, where the model lacks what the request needs.
//
//   - System messages at the beginning are the field system, a block each. Later
//     ones stay where they are on models that heed a system message among the
//     others (moved behind the user's turn that they stand before, as the API
//     wants); on other models they move to the beginning, with a warning.
//   - Turns of one role in a row are one. Tool results stand in the user's turn,
//     in front of its other blocks. Blocks of text that are empty or white space
//     are left out, and so are turns without a block: the API refuses both.
//   - max_tokens is always there: the caller's, or the model's default.
//   - A JSON schema is output_config.format, passed on as it is; its name is a
//     label that this API has no place for, and strict it always is.
//   - user becomes metadata.user_id as its SHA-256 in hex, with a warning: the API
//     wants an opaque id, and callers put e-mail addresses there.
//
// The sampling of a model that takes it is one number: of temperature and top_p
// together only temperature is sent. Nothing ever asks for prompt caching.
func EncodeAnthropic(chat *Chat, model string, stream bool) (body []byte, warnings []string, err error) {
	e := anthropicEncoder{chat: chat, model: readClaude(model)}
	e.plan()
	e.dst = make([]byte, 0, e.sizeHint())
	e.dst = appendText(append(e.dst, '{'), "model", model)
	e.maxTokens()
	if stream {
		e.dst = appendBool(e.dst, "stream", true)
	}
	for _, step := range []func() *subjects.Error{e.system, e.messages, e.tools, e.output, e.stop} {
		if err := step(); err != nil {
			return nil, nil, err
		}
	}
	e.steering()
	return append(e.dst, '}'), e.warnings, nil
}

// anthropicEncoder writes one body.
type anthropicEncoder struct {
	chat     *Chat
	model    claude
	dst      []byte
	warnings []string

	// lead are the messages of the field system, turns everything else: indices
	// into chat.Messages.
	lead  []int
	turns []anthropicTurn
}

func (e *anthropicEncoder) warn(text string) {
	if !slices.Contains(e.warnings, text) {
		e.warnings = append(e.warnings, text)
	}
}

// leftOut warns of what the API does not have.
func (e *anthropicEncoder) leftOut(what string) {
	e.warn(what + " is not supported by anthropic and was left out")
}

// notOn warns of what the API has, and this model has not; instead is what was
// done, "" = it was left out.
func (e *anthropicEncoder) notOn(what, instead string) {
	if instead == "" {
		instead = " and was left out"
	} else {
		instead = "; " + instead
	}
	e.warn(what + " is not supported by " + printable(e.model.id) + instead)
}

func (e *anthropicEncoder) sizeHint() int {
	n := 1024
	for i := range e.chat.Messages {
		c := &e.chat.Messages[i].Content
		n += 128 + len(c.Text) + len(c.Text)/16
		for j := range c.Parts {
			n += 128 + len(c.Parts[j].Text) + len(c.Parts[j].ImageURL)
		}
	}
	return n
}

func (e *anthropicEncoder) maxTokens() {
	n := e.model.maxTokens()
	if asked := e.chat.MaxTokens; asked != nil {
		n = *asked
		if most := e.model.maxOutput(); most > 0 && n > most {
			e.notOn("maxTokens "+strconv.FormatInt(n, 10), strconv.FormatInt(most, 10)+" was used")
			n = most
		}
	}
	e.dst = appendInt(e.dst, "max_tokens", n)
}

func (e *anthropicEncoder) tools() *subjects.Error {
	tools, choice := e.chat.Tools, e.chat.ToolChoice
	forced := choice != nil && (choice.Name != "" || choice.Mode == "required")
	switch {
	case len(tools) == 0 && forced:
		return invalid("toolChoice", "asks for a tool, but there are no tools; send tools")
	case len(tools) == 0:
		return nil
	case forced && !e.model.forcible():
		return cannot("%s cannot be made to call a tool; use toolChoice auto, or another model", printable(e.model.id))
	}
	e.dst = append(appendKey(e.dst, "tools"), '[')
	for i := range tools {
		e.dst = append(comma(e.dst, i), '{')
		e.tool(&tools[i])
		e.dst = append(e.dst, '}')
	}
	e.dst = append(e.dst, ']')
	e.toolChoice(choice)
	return nil
}

func (e *anthropicEncoder) tool(t *subjects.Tool) {
	e.dst = appendText(e.dst, "name", t.Name)
	if t.Description != "" {
		e.dst = appendText(e.dst, "description", t.Description)
	}
	e.dst = appendKey(e.dst, "input_schema")
	schema := view(t.Parameters)
	switch {
	case !schema.isObject() || !schema.hasFields():
		e.dst = append(e.dst, `{"type":"object"}`...)
	case schema.get("type") == "": // the API wants it; an input is always an object
		e.dst = append(append(e.dst, `{"type":"object",`...), schema[1:]...)
	default:
		e.dst = append(e.dst, schema...)
	}
	if t.Strict != nil && *t.Strict {
		e.dst = appendBool(e.dst, "strict", true)
	}
}

func (e *anthropicEncoder) toolChoice(c *subjects.ToolChoice) {
	one := e.chat.ParallelToolCalls != nil && !*e.chat.ParallelToolCalls
	kind := ""
	switch {
	case c != nil && c.Name != "":
		kind = "tool"
	case c != nil && c.Mode == "required":
		kind = "any"
	case c != nil && c.Mode == "none":
		kind, one = "none", false
	case c != nil && c.Mode == "auto", one:
		kind = "auto"
	default:
		return
	}
	e.dst = append(appendKey(e.dst, "tool_choice"), '{')
	e.dst = appendText(e.dst, "type", kind)
	if kind == "tool" {
		e.dst = appendText(e.dst, "name", c.Name)
	}
	if one {
		e.dst = appendBool(e.dst, "disable_parallel_tool_use", true)
	}
	e.dst = append(e.dst, '}')
}

// output writes output_config: how hard to think, and the schema of the answer.
func (e *anthropicEncoder) output() *subjects.Error {
	effort := e.effort()
	var schema []byte
	if f := e.chat.ResponseFormat; f != nil {
		switch f.Type {
		case "json_schema":
			schema = f.Schema
		case "json_object":
			return subjects.Errorf(subjects.KindCapabilityMissing, "anthropic has no JSON mode; give a schema (json_schema)")
		}
	}
	if effort == "" && schema == nil {
		return nil
	}
	e.dst = append(appendKey(e.dst, "output_config"), '{')
	if effort != "" {
		e.dst = appendText(e.dst, "effort", effort)
	}
	if schema != nil {
		e.dst = append(appendKey(e.dst, "format"), `{"type":"json_schema","schema":`...)
		e.dst = append(append(e.dst, schema...), '}')
	}
	e.dst = append(e.dst, '}')
	return nil
}

// effort is the word for what the caller asked, or the nearest weaker one that
// the model has (the weakest where there is none); "" = nothing to say.
func (e *anthropicEncoder) effort() string {
	asked, has := e.chat.ReasoningEffort, e.model.efforts()
	switch {
	case asked == "", asked == "none" && !e.model.thinks():
		return ""
	case slices.Contains(has, asked):
		return asked
	case len(has) == 0 || !slices.Contains(Efforts, asked):
		e.notOn("reasoningEffort "+printable(asked), "")
		return ""
	}
	best := has[0]
	for _, word := range has {
		if slices.Index(Efforts, word) < slices.Index(Efforts, asked) {
			best = word
		}
	}
	e.notOn("reasoningEffort "+asked, best+" was used")
	return best
}

// steering writes what is left: it steers, and may be left out.
func (e *anthropicEncoder) steering() {
	e.sampling()
	if u := e.chat.User; u != "" {
		sum := sha256.Sum256([]byte(u))
		e.dst = append(appendKey(e.dst, "metadata"), '{')
		e.dst = append(appendText(e.dst, "user_id", hex.EncodeToString(sum[:])), '}')
		e.warn("user was sent to anthropic as its SHA-256")
	}
	if e.chat.Seed != nil {
		e.leftOut("seed")
	}
	if p := e.chat.FrequencyPenalty; p != nil && *p != 0 {
		e.leftOut("frequency_penalty")
	}
	if p := e.chat.PresencePenalty; p != nil && *p != 0 {
		e.leftOut("presence_penalty")
	}
	for _, field := range e.chat.Left {
		e.leftOut(field)
	}
}

// sampling writes temperature or top_p. Of both 1 is what the API does without
// them.
func (e *anthropicEncoder) sampling() {
	heat, p := e.chat.Temperature, e.chat.TopP
	if p != nil && *p == 1 {
		p = nil
	}
	if !e.model.sampling() {
		if heat != nil && *heat != 1 {
			e.notOn("temperature", "")
		}
		if p != nil {
			e.notOn("topP", "")
		}
		return
	}
	switch {
	case heat != nil:
		if *heat > 1 {
			e.notOn("a temperature above 1", "1 was used")
		}
		e.dst = appendFloat(e.dst, "temperature", min(max(*heat, 0), 1))
		if p != nil {
			e.notOn("topP beside temperature", "")
		}
	case p != nil:
		e.dst = appendFloat(e.dst, "top_p", *p)
	}
}

func (e *anthropicEncoder) stop() *subjects.Error {
	n := 0
	for _, s := range e.chat.Stop {
		switch {
		case s == "":
			continue
		case blank(s):
			return cannot("anthropic takes no stop sequence of white space alone; give another, or use another provider")
		case n == 0:
			e.dst = append(appendKey(e.dst, "stop_sequences"), '[')
		}
		e.dst = appendString(comma(e.dst, n), s)
		n++
	}
	if n > 0 {
		e.dst = append(e.dst, ']')
	}
	return nil
}
