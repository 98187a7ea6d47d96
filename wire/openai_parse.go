package wire

import (
	"math"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// openAIKnown are the top-level fields of openai-chat that Parse reads.
var openAIKnown = []string{
	"model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens",
	"temperature", "top_p", "stop", "n", "tools", "tool_choice", "functions", "function_call",
	"response_format", "logprobs", "top_logprobs", "modalities", "audio",
	"presence_penalty", "frequency_penalty", "seed", "web_search_options",
}

var openAIRoles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// openAI reads one openai-chat request.
type openAI struct {
	reader
	req  *Request
	seen seen
}

func parseOpenAIChat(r *Request, body raw) *subjects.Error {
	o := &openAI{req: r}
	hasMessages := false
	for f := range body.fields() {
		i := slices.Index(openAIKnown, f.Key)
		switch {
		case i < 0:
			o.foreign(f.Key)
		case o.seen.again(i):
			o.fail(invalid(f.Key, "is given twice; send it once"))
		case f.Key == "messages":
			hasMessages = true
			o.messages(f.Value)
		case !o.routing(f.Key, f.Value):
			o.prompt(f.Key, f.Value)
		}
		if o.err != nil {
			return o.err
		}
	}
	if !hasMessages {
		return invalid("messages", "missing; send an array with at least one message")
	}
	if !r.Head.Stream {
		r.Head.StreamUsage = false
	}
	return nil
}

// foreign lets an unknown field pass, unless a provider that reads names
// without regard to case (as Go's decoder does) would take it for a known one.
func (o *openAI) foreign(key string) {
	for _, k := range openAIKnown {
		if strings.EqualFold(k, key) {
			o.fail(invalid(printable(key), "is written in another case than %s; send %s", k, k))
		}
	}
}

// routing reads a field that routing or streaming uses; false = not one of them.
func (o *openAI) routing(key string, v raw) bool {
	h := &o.req.Head
	switch key {
	case "model":
		h.Model = o.name(key, v, subjects.MaxName)
	case "stream":
		if h.Stream = o.boolean(key, v); h.Stream {
			h.Needs |= NeedStreaming
		}
	case "stream_options":
		if o.object(key, v) {
			h.StreamUsage = o.boolean("stream_options.include_usage", orNull(v.get("include_usage")))
		}
	case "max_tokens", "max_completion_tokens":
		if n, ok := o.whole(key, v, 1, maxTokens); ok {
			h.MaxTokens = max(h.MaxTokens, n)
		}
	case "n":
		if n, _ := o.whole(key, v, 1, maxChoices); n > 1 {
			h.Needs |= NeedChoices
		}
	case "logprobs":
		if o.boolean(key, v) {
			h.Needs |= NeedLogProbs
		}
	case "top_logprobs":
		if n, _ := o.whole(key, v, 0, maxLogProbs); n > 0 {
			h.Needs |= NeedLogProbs
		}
	case "tools", "functions":
		o.tools(key, v)
	case "response_format":
		o.format(v)
	case "web_search_options":
		if o.object(key, v) {
			h.Needs |= NeedOpenAIChat
		}
	case "modalities":
		o.modalities(v)
	case "audio":
		if o.object(key, v) {
			h.Needs |= NeedAudio
		}
	default:
		return false
	}
	return true
}

// prompt checks a field that only the model sees.
func (o *openAI) prompt(key string, v raw) {
	switch key {
	case "temperature":
		o.number(key, v, 0, maxHeat)
	case "top_p":
		o.number(key, v, 0, 1)
	case "presence_penalty", "frequency_penalty":
		o.number(key, v, -maxPenalty, maxPenalty)
	case "stop":
		o.stop(key, v)
	case "seed":
		o.whole(key, v, math.MinInt64, math.MaxInt64)
	case "tool_choice", "function_call":
		o.toolChoice(key, v)
	}
}

func (o *openAI) toolChoice(key string, v raw) {
	h := &o.req.Head
	switch {
	case v.isNull():
	case v.isString():
		if v.str() == "required" {
			h.Needs |= NeedToolChoice
		}
	case !v.isObject():
		o.fail(invalid(key, "must be a string or an object, not %s", v.what()))
	case key == "function_call" || v.get("function").get("name").isString():
		h.Needs |= NeedToolChoice
	default: // allowed_tools, a custom tool
		h.Needs |= NeedOpenAIChat
	}
}

func (o *openAI) tools(key string, v raw) {
	n := o.each(key, v, subjects.MaxTools, func(t raw) {
		if !t.isObject() {
			o.fail(invalid("", "must be an object, not %s", t.what()))
		} else if kind := t.get("type"); key == "tools" && kind != "" && kind.str() != "function" {
			o.req.Head.Needs |= NeedOpenAIChat
		}
	})
	if n > 0 {
		o.req.Head.Needs |= NeedTools
	}
}

func (o *openAI) format(v raw) {
	if !o.object("response_format", v) {
		return
	}
	switch o.name("response_format.type", orNull(v.get("type")), subjects.MaxName) {
	case "":
		o.fail(invalid("response_format.type", "missing; it is text, json_object or json_schema"))
	case "json_object":
		o.req.Head.Needs |= NeedJSONMode
	case "json_schema":
		o.req.Head.Needs |= NeedJSONSchema
		if !v.get("json_schema").isObject() {
			o.fail(invalid("response_format.json_schema", "missing; json_schema needs an object"))
		}
	case "text":
	default:
		o.req.Head.Needs |= NeedOpenAIChat
	}
}

func (o *openAI) modalities(v raw) {
	o.each("modalities", v, maxStop, func(m raw) {
		if m.str() == "audio" {
			o.req.Head.Needs |= NeedAudio
		}
	})
}

func (o *openAI) messages(v raw) {
	if !v.isArray() {
		o.fail(invalid("messages", "must be an array with at least one message, not %s", v.what()))
		return
	}
	if o.each("messages", v, subjects.MaxMessages, o.message) == 0 {
		o.fail(invalid("messages", "is empty; send at least one message"))
	}
}

func (o *openAI) message(m raw) {
	if !m.isObject() {
		o.fail(invalid("", "must be an object, not %s", m.what()))
		return
	}
	var role string
	var content raw
	calls := false
	for f := range m.fields() {
		switch f.Key {
		case "role":
			role = o.oneOf("role", f.Value, openAIRoles...)
		case "content":
			content = f.Value
		case "tool_calls":
			calls = o.array(f.Key, f.Value) && f.Value.count() > 0
			for _, c := range f.Value.items() {
				if kind := c.get("type"); kind != "" && kind.str() != "function" {
					o.req.Head.Needs |= NeedOpenAIChat
				}
			}
		case "function_call":
			calls = o.object(f.Key, f.Value) || calls
		}
	}
	if calls || role == "tool" || role == "function" {
		o.req.Head.Needs |= NeedTools
	}
	if role == "user" {
		o.req.asked = content
	}
	switch {
	case role == "":
		o.fail(invalid("role", "missing; it is one of %s", strings.Join(openAIRoles, ", ")))
	case content.isString():
	case content.isArray():
		o.each("content", content, maxPartsEach, o.part)
	case content == "" || content.isNull():
		if role != "assistant" && role != "function" {
			o.fail(invalid("content", "missing; send a string or an array of parts"))
		}
	default:
		o.fail(invalid("content", "must be a string or an array of parts, not %s", content.what()))
	}
}

// part checks one content part. A type that is not known here belongs to the
// provider's own API and passes.
func (o *openAI) part(p raw) {
	if !p.isObject() {
		o.fail(invalid("", "must be an object such as {\"type\":\"text\",\"text\":…}, not %s", p.what()))
		return
	}
	h := &o.req.Head
	switch o.name("type", orNull(p.get("type")), subjects.MaxName) {
	case "":
		o.fail(invalid("type", "missing; it is text, image_url, input_audio or file"))
	case "text":
		if !p.get("text").isString() {
			o.fail(invalid("text", "must be a string; a text part needs it"))
		}
	case "image_url":
		h.Needs |= NeedImages
		v := p.get("image_url")
		if !v.isString() {
			v = v.get("url")
		}
		if !v.isString() {
			o.fail(invalid("image_url.url", "must be a string; an image part needs it"))
		} else if !strings.HasPrefix(v.inner(), "data:") {
			h.Needs |= NeedImageURLs
		}
	case "input_audio":
		h.Needs |= NeedAudio
	case "file":
		h.Needs |= NeedDocuments
	case "refusal":
	default:
		h.Needs |= NeedOpenAIChat
	}
}
