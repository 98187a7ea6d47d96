package vendors

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// anTalk is the conversation as far as it has been read.
type anTalk struct {
	s *Seen
	// open are the ids of the calls that wait for their results, in the next turn.
	open []string
	last string // the role of the last message
}

// noPrefill matches the models that do not go on from an assistant's turn.
var noPrefill = regexp.MustCompile(`claude-((opus|sonnet)-(4-[6-9]|[5-9])|haiku-[5-9]|fable|mythos)`)

func anMessages(in *anRequest, s *Seen) error {
	if len(in.Messages) == 0 {
		return errors.New("messages: at least one message is required")
	}
	t := &anTalk{s: s}
	for i := range in.Messages {
		m := &in.Messages[i]
		all, err := anBlocks(m.Content)
		if err == nil {
			err = t.message(m.Role, all, i == len(in.Messages)-1)
		}
		if err != nil {
			return fmt.Errorf("messages.%d: %w", i, err)
		}
	}
	if t.last == "assistant" && noPrefill.MatchString(s.Model) {
		return errors.New("messages: this model does not support assistant message prefill; the conversation must end with a user message")
	}
	if len(t.open) > 0 {
		return fmt.Errorf("messages: `tool_use` ids were found without `tool_result` blocks immediately after: %q", t.open)
	}
	return nil
}

func (t *anTalk) message(role string, all []anBlock, end bool) error {
	was := t.last
	t.last = role
	switch role {
	case "user":
		if was == "system" {
			return errors.New("a system message must be the last or be followed by an assistant message")
		}
		return t.user(all)
	case "assistant":
		return t.assistant(all, end)
	case "system":
		if was != "user" || len(t.open) > 0 {
			return errors.New("a system message must immediately follow a user message")
		}
		return t.s.system(all)
	}
	return fmt.Errorf("role: %q", role)
}

var anToolID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

func (t *anTalk) assistant(all []anBlock, end bool) error {
	if len(t.open) > 0 {
		return fmt.Errorf("the tool calls %q have no result", t.open)
	}
	turn := Turn{Role: "assistant"}
	var texts []string
	for i := range all {
		b := &all[i]
		if b.Type != "tool_use" {
			text, err := b.text()
			if err != nil {
				return fmt.Errorf("content.%d: %w", i, err)
			}
			if end && i == len(all)-1 && strings.TrimRight(text, " \t\r\n") != text {
				return errors.New("final assistant content cannot end with trailing whitespace")
			}
			texts = append(texts, text)
			continue
		}
		switch {
		case !anToolID.MatchString(b.ID) || slices.Contains(t.open, b.ID):
			return fmt.Errorf("content.%d.tool_use.id: %q", i, b.ID)
		case b.Name == "" || isNull(b.Input) || b.Input[0] != '{':
			return fmt.Errorf("content.%d.tool_use.input: Input should be a valid dictionary", i)
		}
		t.open = append(t.open, b.ID)
		turn.Calls = append(turn.Calls, Call{ID: b.ID, Name: b.Name, Arguments: string(b.Input)})
	}
	turn.Text = strings.Join(texts, "\n")
	t.s.Messages = append(t.s.Messages, turn)
	return nil
}

// user reads a user's turn: the results of the calls first, each a turn of its
// own, and then what the user says.
func (t *anTalk) user(all []anBlock) error {
	turn := Turn{Role: "user"}
	var texts []string
	said := false
	for i := range all {
		b := &all[i]
		if b.Type == "tool_result" {
			if said {
				return fmt.Errorf("content.%d: tool_result blocks must come first in a user's turn", i)
			}
			if err := t.result(b); err != nil {
				return fmt.Errorf("content.%d: %w", i, err)
			}
			continue
		}
		said = true
		text, err := b.part(&turn)
		if err != nil {
			return fmt.Errorf("content.%d: %w", i, err)
		}
		if text != "" {
			texts = append(texts, text)
		}
	}
	if len(t.open) > 0 {
		return fmt.Errorf("the tool calls %q have no result", t.open)
	}
	turn.Text = strings.Join(texts, "\n")
	if said {
		t.s.Messages = append(t.s.Messages, turn)
	}
	return nil
}

func (t *anTalk) result(b *anBlock) error {
	at := slices.Index(t.open, b.ToolUseID)
	if at < 0 {
		return fmt.Errorf("unexpected `tool_use_id` found in `tool_result` blocks: %s", b.ToolUseID)
	}
	t.open = slices.Delete(t.open, at, at+1)
	turn := Turn{Role: "tool", ResultOf: b.ToolUseID}
	if !isNull(b.Content) {
		all, err := anBlocks(b.Content)
		if err != nil {
			return err
		}
		var texts []string
		for i := range all {
			text, err := all[i].part(&turn)
			if err != nil {
				return err
			}
			if text != "" {
				texts = append(texts, text)
			}
		}
		turn.Text = strings.Join(texts, "\n")
	}
	t.s.Messages = append(t.s.Messages, turn)
	return nil
}

var (
	anMedia  = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}
	anBase64 = regexp.MustCompile(`^[A-Za-z0-9+/]+={0,2}$`)
)

// part is the text of a block, or takes its image into the turn.
func (b *anBlock) part(turn *Turn) (string, error) {
	if b.Type != "image" {
		return b.text()
	}
	src := b.Source
	switch {
	case src == nil:
		return "", errors.New("source: Field required")
	case src.Type == "url" && (strings.HasPrefix(src.URL, "https://") || strings.HasPrefix(src.URL, "http://")):
		turn.Images = append(turn.Images, Image{URL: src.URL})
	case src.Type == "base64" && slices.Contains(anMedia, src.MediaType) && anBase64.MatchString(src.Data):
		turn.Images = append(turn.Images, Image{MediaType: src.MediaType, Base64: src.Data})
	default:
		return "", fmt.Errorf("source: type %q, media type %q", src.Type, src.MediaType)
	}
	return "", nil
}
