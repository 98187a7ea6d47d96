package wire

import (
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// anthropicTurn is a turn of the conversation: the messages of one role in a row.
type anthropicTurn struct {
	role     string
	messages []int
	// system are the system messages that stand right behind it; of a user's turn.
	system []int
}

// plan puts the messages into the field system and into turns.
func (e *anthropicEncoder) plan() {
	var waiting []int // system messages behind an assistant's turn
	for i := range e.chat.Messages {
		m := &e.chat.Messages[i]
		last := len(e.turns) - 1
		role := m.Role
		if role == "tool" {
			role = "user"
		}
		switch {
		case !hasBlocks(m):
		case role != "system" && last >= 0 && e.turns[last].role == role:
			e.turns[last].messages = append(e.turns[last].messages, i)
		case role != "system":
			t := anthropicTurn{role: role, messages: []int{i}}
			if role == "user" {
				t.system, waiting = waiting, nil
			}
			e.turns = append(e.turns, t)
		case last < 0:
			e.lead = append(e.lead, i)
		case !e.model.systemTurns():
			e.hoist(i)
		case e.turns[last].role == "user":
			e.turns[last].system = append(e.turns[last].system, i)
		default:
			waiting = append(waiting, i)
		}
	}
	for _, i := range waiting {
		e.hoist(i)
	}
	if len(e.turns) == 0 && len(e.lead) > 0 {
		e.warn("anthropic needs a user message; the system message was sent as one")
		e.turns = []anthropicTurn{{role: "user", messages: e.lead}}
		e.lead = nil
	}
}

// hoist moves a later system message to the beginning.
func (e *anthropicEncoder) hoist(i int) {
	e.notOn("a system message at its place in the conversation", "it was moved to the beginning")
	e.lead = append(e.lead, i)
}

// hasBlocks reports whether a message has anything that can be sent.
func hasBlocks(m *subjects.Message) bool {
	return m.Role == "tool" || len(m.ToolCalls) > 0 || hasContent(&m.Content)
}

func hasContent(c *subjects.Content) bool {
	if c.Parts == nil {
		return !blank(c.Text)
	}
	for i := range c.Parts {
		if p := &c.Parts[i]; p.Type == subjects.PartImage || !blank(p.Text) {
			return true
		}
	}
	return false
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// system writes the field of that name.
func (e *anthropicEncoder) system() *subjects.Error {
	if len(e.lead) == 0 {
		return nil
	}
	e.dst = append(appendKey(e.dst, "system"), '[')
	b := blocks{e: e}
	for _, i := range e.lead {
		if err := b.system(i); err != nil {
			return err
		}
	}
	e.dst = append(e.dst, ']')
	return nil
}

func (e *anthropicEncoder) messages() *subjects.Error {
	if len(e.turns) == 0 {
		return invalid("messages", "have no text, image or tool call in them; send at least one")
	}
	if e.turns[len(e.turns)-1].role == "assistant" && !e.model.prefill() {
		return cannot("%s does not go on from an assistant's message; end with a user's, or use another model", printable(e.model.id))
	}
	e.dst = append(appendKey(e.dst, "messages"), '[')
	for i := range e.turns {
		e.dst = comma(e.dst, i)
		if err := e.turn(&e.turns[i], i == len(e.turns)-1); err != nil {
			return err
		}
	}
	e.dst = append(e.dst, ']')
	return nil
}

func (e *anthropicEncoder) turn(t *anthropicTurn, last bool) *subjects.Error {
	e.open(t.role)
	b := blocks{e: e}
	for _, i := range t.messages {
		if e.chat.Messages[i].Role == "tool" {
			if err := b.result(i); err != nil {
				return err
			}
		}
	}
	for n, i := range t.messages {
		m := &e.chat.Messages[i]
		if m.Name != "" {
			e.leftOut("a message's name")
		}
		if m.Role == "tool" {
			continue
		}
		// The API refuses a last turn of the assistant that ends in white space.
		b.trim = last && t.role == "assistant" && n == len(t.messages)-1 && len(m.ToolCalls) == 0
		if err := b.message(i); err != nil {
			return err
		}
	}
	e.dst = append(e.dst, "]}"...)
	if len(t.system) == 0 {
		return nil
	}
	e.dst = append(e.dst, ',')
	e.open("system")
	b = blocks{e: e}
	for _, i := range t.system {
		if err := b.system(i); err != nil {
			return err
		}
	}
	e.dst = append(e.dst, "]}"...)
	return nil
}

// open begins a message up to the opening bracket of its content.
func (e *anthropicEncoder) open(role string) {
	e.dst = appendText(append(e.dst, '{'), "role", role)
	e.dst = append(appendKey(e.dst, "content"), '[')
}

// blocks writes content blocks, one after the other.
type blocks struct {
	e *anthropicEncoder
	n int
	// trim takes white space off the end of the last text.
	trim bool
}

func (b *blocks) begin() {
	b.e.dst = append(comma(b.e.dst, b.n), '{')
	b.n++
}

func (b *blocks) end() { b.e.dst = append(b.e.dst, '}') }

func (b *blocks) text(s string) {
	if blank(s) {
		return
	}
	b.begin()
	b.e.dst = appendText(append(b.e.dst, `"type":"text"`...), "text", s)
	b.end()
}

// system writes a system message's text.
func (b *blocks) system(i int) *subjects.Error {
	c := &b.e.chat.Messages[i].Content
	for j := range c.Parts {
		if c.Parts[j].Type == subjects.PartImage {
			return invalid(contentPlace(i, j), "anthropic takes no image in a system message; send it in a user's message")
		}
	}
	return b.content(i, c)
}

// message writes a user's or an assistant's message.
func (b *blocks) message(i int) *subjects.Error {
	m := &b.e.chat.Messages[i]
	if err := b.content(i, &m.Content); err != nil {
		return err
	}
	for j := range m.ToolCalls {
		b.toolUse(&m.ToolCalls[j])
	}
	return nil
}

func (b *blocks) content(i int, c *subjects.Content) *subjects.Error {
	if c.Parts == nil {
		b.text(b.last(c.Text, true))
		return nil
	}
	for j := range c.Parts {
		p := &c.Parts[j]
		if p.Type != subjects.PartImage {
			b.text(b.last(p.Text, j == len(c.Parts)-1))
			continue
		}
		if err := b.image(contentPlace(i, j), p); err != nil {
			return err
		}
	}
	return nil
}

func (b *blocks) last(text string, last bool) string {
	if !b.trim || !last {
		return text
	}
	return strings.TrimRight(text, " \t\r\n")
}

func contentPlace(i, j int) string {
	return "messages[" + strconv.Itoa(i) + "].content[" + strconv.Itoa(j) + "]"
}

// image writes an image: the bytes of a data URL, or the URL, which the API
// fetches.
func (b *blocks) image(place string, p *subjects.Part) *subjects.Error {
	if p.Detail != "" && p.Detail != "auto" {
		b.e.leftOut("an image's detail")
	}
	url := p.ImageURL
	meta, data, isData := strings.Cut(url, ",")
	if !strings.HasPrefix(url, "data:") {
		if !strings.HasPrefix(url, "https://") && !strings.HasPrefix(url, "http://") {
			return invalid(place, "the image's URL must be http, https or data: with base64 content")
		}
		b.begin()
		b.e.dst = append(b.e.dst, `"type":"image","source":{"type":"url"`...)
		b.e.dst = append(appendText(b.e.dst, "url", url), '}')
		b.end()
		return nil
	}
	meta, coded := strings.CutSuffix(strings.TrimPrefix(meta, "data:"), ";base64")
	kind, _, _ := strings.Cut(meta, ";")
	if !isData || !coded || kind == "" {
		return invalid(place, "a data: URL needs a media type and base64 content, as data:image/png;base64,…")
	}
	if kind == "image/jpg" {
		kind = "image/jpeg"
	}
	b.begin()
	b.e.dst = append(b.e.dst, `"type":"image","source":{"type":"base64"`...)
	b.e.dst = appendText(b.e.dst, "media_type", kind)
	b.e.dst = append(appendText(b.e.dst, "data", data), '}')
	b.end()
	return nil
}

func (b *blocks) toolUse(c *subjects.ToolCall) {
	b.begin()
	b.e.dst = append(b.e.dst, `"type":"tool_use"`...)
	b.e.dst = appendText(b.e.dst, "id", toolID(c.ID))
	b.e.dst = appendText(b.e.dst, "name", c.Name)
	text := false
	if b.e.dst, text = appendArguments(appendKey(b.e.dst, "input"), c.Arguments); text {
		b.e.warn(asText("anthropic"))
	}
	b.end()
}

// result writes a tool message as a tool_result block.
func (b *blocks) result(i int) *subjects.Error {
	m := &b.e.chat.Messages[i]
	b.begin()
	b.e.dst = append(b.e.dst, `"type":"tool_result"`...)
	b.e.dst = appendText(b.e.dst, "tool_use_id", toolID(m.ToolCallID))
	if hasContent(&m.Content) {
		b.e.dst = append(appendKey(b.e.dst, "content"), '[')
		inner := blocks{e: b.e}
		if err := inner.content(i, &m.Content); err != nil {
			return err
		}
		b.e.dst = append(b.e.dst, ']')
	}
	b.end()
	return nil
}

// toolID is an id that the API takes: letters, digits, _ and -. Calls that
// another provider made may have other ones; those get a form of their own, the
// same for the call and its result.
func toolID(id string) string {
	odd := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-')
	}
	if id != "" && !strings.ContainsFunc(id, odd) {
		return id
	}
	h := fnv.New64a()
	h.Write([]byte(id))
	return strings.Map(func(c rune) rune {
		if odd(c) {
			return '_'
		}
		return c
	}, id) + "_" + strconv.FormatUint(h.Sum64(), 36)
}
