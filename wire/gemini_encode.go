package wire

import (
	"math"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// maxGeminiStop is the number of stop sequences that the API takes.
const maxGeminiStop = 5

// EncodeGemini writes the hub form as the body of Gemini's generateContent and
// streamGenerateContent, which are one form; the model stands in the path.
//
// What steers and has no place there, or that the model is known to refuse, is
// left out and named in warnings. What would change the answer is an error: a
// VALIDATION_ERROR where the request is at fault (a tool result that answers no
// call), and else a PROVIDER_UNAVAILABLE of status 422, which moves the call on
// to a provider that can say it (more than five stop sequences).
func EncodeGemini(chat *Chat, model string) (body []byte, warnings []string, err error) {
	g := &geminiWriter{chat: chat, model: geminiModelOf(model)}
	size := 1024
	for i := range chat.Messages {
		size += 64 + geminiSize(&chat.Messages[i])
	}
	g.dst = append(make([]byte, 0, size), '{')
	for _, step := range []func() *subjects.Error{g.limits, g.system, g.contents, g.tools, g.config} {
		if err := step(); err != nil {
			return nil, nil, err
		}
	}
	g.rest()
	return append(g.dst, '}'), g.warnings, nil
}

// geminiSize is about the length of a message in JSON.
func geminiSize(m *subjects.Message) int {
	n := len(m.Content.Text)
	for i := range m.Content.Parts {
		n += 64 + len(m.Content.Parts[i].Text) + len(m.Content.Parts[i].ImageURL)
	}
	for i := range m.ToolCalls {
		n += 128 + len(m.ToolCalls[i].Arguments)
	}
	return n + n/16
}

// geminiWriter writes one request.
type geminiWriter struct {
	chat     *Chat
	model    geminiModel
	dst      []byte
	warnings []string
	warned   map[string]bool

	calls  map[string]string // the tool calls so far: id → name
	open   string            // the kind of turn that is being written, "" = none
	parts  int               // of that turn
	signed bool              // that turn has its signature
	turns  int
}

// without says that a field was left out; by is who does not support it.
func (g *geminiWriter) without(field, by string) {
	g.warn(field + " is not supported by " + by + " and was left out")
}

func (g *geminiWriter) warn(text string) {
	if g.warned[text] {
		return
	}
	if g.warned == nil {
		g.warned = map[string]bool{}
	}
	g.warned[text] = true
	g.warnings = append(g.warnings, text)
}

// cannot is the error for what this API, or this model of it, has no way to say,
// while another provider may: the kind that moves on without a retry. Its status
// tells that it is the request and not the provider that stands in the way.
func (g *geminiWriter) cannot(what string) *subjects.Error {
	return cannot("%s cannot take %s; another provider may", g.model.id, what)
}

// limits finds what the API or the model is known to refuse.
func (g *geminiWriter) limits() *subjects.Error {
	c := g.chat
	if n := len(c.Stop); n > maxGeminiStop {
		return g.cannot(strconv.Itoa(n) + " stop sequences (" + strconv.Itoa(maxGeminiStop) + " at most)")
	}
	if f := c.ResponseFormat; f != nil && f.Type != "text" && len(c.Tools) > 0 && !g.model.plansJSON() {
		return g.cannot("tools and a JSON format together")
	}
	last := len(c.Messages) - 1
	if last >= 0 && c.Messages[last].Role == "assistant" && g.model.fixed() && !g.model.latest {
		return g.cannot("a conversation that ends with the assistant's turn")
	}
	return nil
}

// config writes generationConfig, if there is anything to say.
func (g *geminiWriter) config() *subjects.Error {
	c := g.chat
	start := len(g.dst)
	g.dst = append(appendKey(g.dst, "generationConfig"), '{')
	empty := len(g.dst)
	g.sampling()
	if c.MaxTokens != nil {
		g.dst = appendInt(g.dst, "maxOutputTokens", *c.MaxTokens)
	}
	if len(c.Stop) > 0 {
		g.dst = append(appendKey(g.dst, "stopSequences"), '[')
		for i, s := range c.Stop {
			g.dst = appendString(comma(g.dst, i), s)
		}
		g.dst = append(g.dst, ']')
	}
	if f := c.ResponseFormat; f != nil && f.Type != "text" {
		g.dst = appendText(g.dst, "responseMimeType", "application/json")
		if f.Type == "json_schema" && !isNull(f.Schema) {
			g.dst = append(appendKey(g.dst, "responseJsonSchema"), f.Schema...)
		}
	}
	g.effort(c.ReasoningEffort)
	if len(g.dst) == empty {
		g.dst = g.dst[:start]
		return nil
	}
	g.dst = append(g.dst, '}')
	return nil
}

func (g *geminiWriter) sampling() {
	c := g.chat
	fixed, penalised := g.model.fixed(), g.model.penalises()
	g.number("temperature", "temperature", c.Temperature, !fixed)
	g.number("topP", "topP", c.TopP, !fixed)
	if p := c.PresencePenalty; p != nil && *p != 0 { // 0 is the same as none
		g.number("presencePenalty", "presence_penalty", p, penalised)
	}
	if p := c.FrequencyPenalty; p != nil && *p != 0 {
		g.number("frequencyPenalty", "frequency_penalty", p, penalised)
	}
	switch s := c.Seed; {
	case s == nil:
	case *s < math.MinInt32 || *s > math.MaxInt32:
		g.without("a seed of more than 32 bits", "gemini")
	default:
		g.dst = appendInt(g.dst, "seed", *s)
	}
}

// number writes one that the model takes; asked is the caller's name for it.
func (g *geminiWriter) number(key, asked string, n *float64, takes bool) {
	switch {
	case n == nil:
	case takes:
		g.dst = appendFloat(g.dst, key, *n)
	default:
		g.without(asked, g.model.id)
	}
}

// effort writes thinkingConfig: a level from Gemini 3 on, a budget for 2.5.
func (g *geminiWriter) effort(effort string) {
	if effort == "" {
		return
	}
	var value string
	var exact, ok bool
	key := "thinkingLevel"
	switch {
	case g.model.from(3, 0):
		value, exact, ok = g.model.level(effort)
		value = strconv.Quote(value)
	case g.model.from(2, 5):
		var n int64
		n, exact, ok = g.model.budget(effort)
		key, value = "thinkingBudget", strconv.FormatInt(n, 10)
	}
	if !ok {
		g.without("reasoningEffort "+printable(effort), g.model.id)
		return
	}
	if !exact {
		g.warn("reasoningEffort " + effort + " is not supported by " + g.model.id + "; " + key + " " + strings.Trim(value, `"`) + " was used")
	}
	g.dst = append(appendKey(g.dst, "thinkingConfig"), '{')
	g.dst = append(append(appendKey(g.dst, key), value...), '}')
}

// rest names what the API has no field for.
func (g *geminiWriter) rest() {
	c := g.chat
	if c.ParallelToolCalls != nil && !*c.ParallelToolCalls && len(c.Tools) > 0 {
		g.without("parallelToolCalls", "gemini")
	}
	if c.User != "" {
		g.without("user", "gemini")
	}
	for _, field := range c.Left {
		g.without(field, "gemini")
	}
}
