package wire

import (
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// Texts returns what a reader of the prompt would see: the texts of all messages
// with the arguments of tool calls, in their order, then the names, descriptions
// and schemas of the tools, a newline between two. It has at most limit bytes, cut
// at a character; truncated says that there was more. attachments counts the
// parts that are no text: images, files, sound.
func (r *Request) Texts(limit int) (text string, truncated bool, attachments int, err error) {
	chat, err := r.Chat()
	if err != nil {
		return "", false, 0, err
	}
	b := texts{limit: limit}
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
	return b.String(), b.truncated, b.attachments, nil
}

type texts struct {
	strings.Builder
	limit       int
	truncated   bool
	attachments int
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
