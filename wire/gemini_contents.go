package wire

import (
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// geminiNoSignature is the value that ai.google.dev gives for a function call
// whose thought signature is not to be had ("Thought Signatures", FAQ): from
// Gemini 3 on a call without any is refused with 400. The hub form, and the APIs
// that callers speak, have no place to keep a signature from one request to the
// next, so Sluice always sends this one. The model then reasons anew where it
// could have gone on from its earlier thoughts.
const geminiNoSignature = "skip_thought_signature_validator"

// system writes systemInstruction: all system messages, in their order. A prompt
// of nothing else is sent as the user's, since the API wants a turn.
func (g *geminiWriter) system() *subjects.Error {
	count, others, late := 0, 0, false
	for i := range g.chat.Messages {
		if g.chat.Messages[i].Role == "system" {
			count++
			late = late || others > 0
		} else {
			others++
		}
	}
	switch {
	case count == 0:
		return nil
	case others == 0:
		g.warn("gemini needs a user message; the system message was sent as one")
		g.dst = append(appendKey(g.dst, "contents"), `[{"role":"user","parts":[`...)
	default:
		g.dst = append(appendKey(g.dst, "systemInstruction"), `{"parts":[`...)
	}
	if late {
		g.warn("gemini has one system instruction; a later system message was moved to the front")
	}
	n := 0
	for i := range g.chat.Messages {
		m := &g.chat.Messages[i]
		if m.Role != "system" {
			continue
		}
		if hasImage(&m.Content) {
			return g.cannot("an image in a system message")
		}
		g.named(m)
		g.dst = append(appendText(append(comma(g.dst, n), '{'), "text", m.Content.String()), '}')
		n++
	}
	if g.dst = append(g.dst, "]}"...); others == 0 {
		g.dst = append(g.dst, ']')
	}
	return nil
}

func hasImage(c *subjects.Content) bool {
	for i := range c.Parts {
		if c.Parts[i].Type == subjects.PartImage {
			return true
		}
	}
	return false
}

// named warns of a speaker's name. That of a tool's message is the tool's, which
// goes with the result.
func (g *geminiWriter) named(m *subjects.Message) {
	if m.Name != "" && m.Role != "tool" {
		g.without("a message's name", "gemini")
	}
}

// contents writes the turns. Messages of one speaker in a row are one turn; the
// results of tools are a turn of their own, of the role user, since the API
// counts them against the calls of the turn before.
func (g *geminiWriter) contents() *subjects.Error {
	start := len(g.dst)
	g.dst = append(appendKey(g.dst, "contents"), '[')
	for i := range g.chat.Messages {
		m := &g.chat.Messages[i]
		var err *subjects.Error
		switch m.Role {
		case "system":
			continue
		case "user":
			err = g.user(m, i)
		case "assistant":
			err = g.assistant(m, i)
		case "tool":
			err = g.result(m, i)
		default:
			err = invalid(place("messages", i, "role"), "must be system, user, assistant or tool")
		}
		if err != nil {
			return err
		}
		g.named(m)
	}
	g.turn("")
	if g.turns == 0 && g.hasContents() {
		g.dst = g.dst[:start]
		return nil
	}
	g.dst = append(g.dst, ']')
	return nil
}

// hasContents reports whether system has written the contents.
func (g *geminiWriter) hasContents() bool {
	for i := range g.chat.Messages {
		if g.chat.Messages[i].Role != "system" {
			return false
		}
	}
	return len(g.chat.Messages) > 0
}

// turn closes the open turn, if it is of another kind, and opens the next.
func (g *geminiWriter) turn(kind string) {
	if g.open == kind {
		return
	}
	if g.open != "" {
		g.dst = append(g.dst, "]}"...)
	}
	g.open, g.parts, g.signed = kind, 0, false
	if kind == "" {
		return
	}
	role := "user"
	if kind == "assistant" {
		role = "model"
	}
	g.dst = appendText(append(comma(g.dst, g.turns), '{'), "role", role)
	g.dst = append(g.dst, `,"parts":[`...)
	g.turns++
}

// part opens one part of a turn, up to its brace.
func (g *geminiWriter) part(kind string) {
	g.turn(kind)
	g.dst = append(comma(g.dst, g.parts), '{')
	g.parts++
}

func (g *geminiWriter) text(kind, s string) {
	g.part(kind)
	g.dst = append(appendText(g.dst, "text", s), '}')
}

func (g *geminiWriter) user(m *subjects.Message, at int) *subjects.Error {
	wrote, err := g.content("user", m, at)
	if err == nil && !wrote {
		g.text("user", "")
	}
	return err
}

// content writes a message's text and images. Empty texts say nothing and are
// refused by some models.
func (g *geminiWriter) content(kind string, m *subjects.Message, at int) (wrote bool, err *subjects.Error) {
	if m.Content.Parts == nil && m.Content.Text != "" {
		g.text(kind, m.Content.Text)
		return true, nil
	}
	for i := range m.Content.Parts {
		switch p := &m.Content.Parts[i]; {
		case p.Type == subjects.PartImage:
			g.part(kind)
			if err := g.image(p, at, i); err != nil {
				return true, err
			}
			g.dst = append(g.dst, '}')
		case p.Text != "":
			g.text(kind, p.Text)
		default:
			continue
		}
		wrote = true
	}
	return wrote, nil
}

// image writes an image's inlineData. Images by URL are not declared as a
// capability: the API takes only those that were uploaded to it.
func (g *geminiWriter) image(p *subjects.Part, message, part int) *subjects.Error {
	at := "messages[" + strconv.Itoa(message) + "].content[" + strconv.Itoa(part) + "]"
	if !strings.HasPrefix(p.ImageURL, "data:") {
		return g.cannot("an image by URL")
	}
	kind, data, ok := dataURL(p.ImageURL)
	if !ok {
		return invalid(at, "must be a data: URL with a media type and base64 content, such as data:image/png;base64,…")
	}
	if p.Detail != "" && p.Detail != "auto" {
		g.without("an image's detail", "gemini")
	}
	g.dst = append(appendKey(g.dst, "inlineData"), '{')
	g.dst = appendText(g.dst, "mimeType", kind)
	g.dst = append(appendText(g.dst, "data", data), '}')
	return nil
}

// dataURL takes a data: URL with base64 content apart.
func dataURL(s string) (mediaType, data string, ok bool) {
	s, _ = strings.CutPrefix(s, "data:")
	meta, data, found := strings.Cut(s, ",")
	meta, base64 := strings.CutSuffix(meta, ";base64")
	mediaType, _, _ = strings.Cut(meta, ";")
	if mediaType == "image/jpg" { // a common slip, which the API refuses
		mediaType = "image/jpeg"
	}
	return mediaType, data, found && base64 && mediaType != "" && data != ""
}

func (g *geminiWriter) assistant(m *subjects.Message, at int) *subjects.Error {
	if _, err := g.content("assistant", m, at); err != nil {
		return err
	}
	if g.calls == nil && len(m.ToolCalls) > 0 {
		g.calls = map[string]string{}
	}
	for i := range m.ToolCalls {
		c := &m.ToolCalls[i]
		g.calls[c.ID] = c.Name
		g.part("assistant")
		g.dst = append(appendKey(g.dst, "functionCall"), '{')
		if c.ID != "" {
			g.dst = appendText(g.dst, "id", c.ID)
		}
		g.dst = appendText(g.dst, "name", c.Name)
		g.dst = append(g.arguments(appendKey(g.dst, "args"), c.Arguments), '}')
		if g.model.signs() && !g.signed { // of calls made at once the first one has it
			g.dst = appendText(g.dst, "thoughtSignature", geminiNoSignature)
			g.signed = true
		}
		g.dst = append(g.dst, '}')
	}
	return nil
}

// arguments appends a call's arguments.
func (g *geminiWriter) arguments(dst []byte, args string) []byte {
	dst, text := appendArguments(dst, args)
	if text {
		g.warn(asText("gemini"))
	}
	return dst
}

// result writes a tool's answer. Its name is that of the call which it answers.
func (g *geminiWriter) result(m *subjects.Message, at int) *subjects.Error {
	name, ok := g.calls[m.ToolCallID]
	if !ok {
		return invalid(place("messages", at, "toolCallId"), "no message before it has a tool call of that id; send the call with its result")
	}
	g.part("tool")
	g.dst = append(appendKey(g.dst, "functionResponse"), '{')
	if m.ToolCallID != "" {
		g.dst = appendText(g.dst, "id", m.ToolCallID)
	}
	g.dst = appendText(g.dst, "name", name)
	g.dst = appendKey(g.dst, "response")
	if text := m.Content.String(); isStruct(text) {
		g.dst = append(g.dst, text...)
	} else {
		g.dst = append(appendText(append(g.dst, '{'), "result", text), '}')
	}
	if hasImage(&m.Content) {
		if err := g.resultImages(m, at); err != nil {
			return err
		}
	}
	g.dst = append(g.dst, "}}"...)
	return nil
}

// resultImages writes the images of a tool's answer; models before Gemini 3
// take none there.
func (g *geminiWriter) resultImages(m *subjects.Message, at int) *subjects.Error {
	if !g.model.from(3, 0) {
		return g.cannot("an image in a tool's result")
	}
	g.dst = append(appendKey(g.dst, "parts"), '[')
	n := 0
	for i := range m.Content.Parts {
		p := &m.Content.Parts[i]
		if p.Type != subjects.PartImage {
			continue
		}
		g.dst = append(comma(g.dst, n), '{')
		if err := g.image(p, at, i); err != nil {
			return err
		}
		g.dst = append(g.dst, '}')
		n++
	}
	g.dst = append(g.dst, ']')
	return nil
}

// isObject reports whether s is one JSON object.
func isObject(s string) bool {
	if s = strings.TrimSpace(s); s == "" || s[0] != '{' {
		return false
	}
	_, problem := check(s)
	return problem == ""
}

// isStruct reports whether a tool's answer may be given as the object that it
// is. The API reads it as a protobuf Struct: its numbers are doubles, so that a
// long id would lose digits; and it takes a member $ref for a reference of its
// own, and refuses it.
func isStruct(s string) bool {
	return isObject(s) && !oddInStruct(s)
}

// maxExactDigits is how many decimal digits a double always keeps.
const maxExactDigits = 15

// oddInStruct looks for a key $ref, and for a number with more digits than a
// double keeps. s is valid JSON.
func oddInStruct(s string) bool {
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"':
			end := skipString(s, i)
			next := skipSpace(s, end)
			if next < len(s) && s[next] == ':' && raw(s[i:end]).str() == "$ref" {
				return true
			}
			i = end
		case c >= '0' && c <= '9' || c == '-':
			end := skipValue(s, i)
			if countDigits(s[i:end]) > maxExactDigits {
				return true
			}
			i = end
		default:
			i++
		}
	}
	return false
}

// countDigits counts the digits of a number before its exponent, without
// leading zeros.
func countDigits(s string) int {
	n := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c|0x20 == 'e':
			return n
		case c >= '1' && c <= '9' || c == '0' && n > 0:
			n++
		}
	}
	return n
}
