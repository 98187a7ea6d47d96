package wire

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/subjects"
)

// Texts returns what a reader of the prompt would see: the texts of all messages
// with the arguments of tool calls, in their order, then the names, descriptions
// and schemas of the tools, a newline between two. It has at most limit bytes, cut
// at a character; truncated says that there was more. attachments counts the
// parts that are no text: images, files, sound. Of a request that says what the
// hub form cannot say it is every string of the body, in its order.
func (r *Request) Texts(limit int) (text string, truncated bool, attachments int) {
	b := texts{limit: limit}
	chat, err := r.Chat()
	if err != nil {
		b.walk(gjson.ParseBytes(r.Body))
		return b.String(), b.truncated, b.attachments
	}
	for i := range chat.Messages {
		b.message(&chat.Messages[i])
	}
	for i := range chat.Tools {
		t := &chat.Tools[i]
		b.add(t.Name)
		b.add(t.Description)
		b.add(string(t.Parameters))
	}
	if f := chat.ResponseFormat; f != nil {
		b.add(string(f.Schema))
	}
	return b.String(), b.truncated, b.attachments
}

type texts struct {
	strings.Builder
	limit       int
	truncated   bool
	attachments int
}

// walk takes the strings of a JSON value, whose depth Parse has bounded.
func (b *texts) walk(v gjson.Result) {
	switch {
	case v.Type == gjson.String:
		b.add(v.Str)
		return
	case v.IsObject():
		if kind := v.Get("type").Str; kind != "" && kind != "text" && v.Get(kind).IsObject() && kind != "function" {
			b.attachments++
		}
	}
	if v.IsObject() || v.IsArray() {
		v.ForEach(func(_, item gjson.Result) bool {
			b.walk(item)
			return !b.truncated
		})
	}
}

func (b *texts) message(m *subjects.Message) {
	b.add(m.Content.Text)
	for _, p := range m.Content.Parts {
		b.add(p.Text)
		if p.Type != subjects.PartText {
			b.attachments++
		}
	}
	for _, c := range m.ToolCalls {
		b.add(c.Name)
		b.add(c.Arguments)
	}
}

func (b *texts) add(s string) {
	switch {
	case s == "" || b.truncated:
		return
	case b.Len() > 0:
		s = "\n" + s
	}
	if room := b.limit - b.Len(); len(s) > room {
		s, b.truncated = strings.ToValidUTF8(s[:max(room, 0)], ""), true
	}
	b.WriteString(s)
}
