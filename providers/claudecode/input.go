package claudecode

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// input is a request as the program takes it.
//
// The turns go in one after the other, each as a message of its own with its own
// role, which nothing in a message's text can forge: earlier user turns with
// shouldQuery false (kept, not answered), assistant turns as such, and the last
// user turn as the one to answer. System messages, wherever they stood, are the
// system prompt, which takes the place of the program's own.
type input struct {
	system   []string
	turns    []turn
	schema   json.RawMessage // nil = the answer is text
	stops    []string        // stop sequences, of a text alone; the program knows none
	effort   string
	warnings []string
}

// turn is one message: its role, and its content as a JSON array of blocks.
type turn struct {
	role    string
	content json.RawMessage
}

// compose translates a request. What has no form here, and may have one with
// another provider, moves the call on.
func compose(job *providers.Job) (*input, error) {
	chat, err := job.Request.Chat()
	if err != nil {
		return nil, err
	}
	in := &input{}
	for i := range chat.Messages {
		if err := checkImages(i, &chat.Messages[i].Content); err != nil {
			return nil, err
		}
	}
	messages := in.systemFirst(chat.Messages)
	bare := &wire.Chat{Prompt: subjects.Prompt{Messages: messages}}
	body, warnings, err := wire.EncodeAnthropic(bare, "", false)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		in.warnings = append(in.warnings, strings.ReplaceAll(w, "anthropic", "claude-code"))
	}
	for _, text := range gjson.GetBytes(body, "system.#.text").Array() {
		in.system = append(in.system, text.Str)
	}
	for _, m := range gjson.GetBytes(body, "messages").Array() {
		in.turns = append(in.turns, turn{role: m.Get("role").Str, content: plainText(m.Get("role").Str, m.Get("content"))})
	}
	if in.turns[len(in.turns)-1].role != "user" {
		return nil, notOfThisRequest("the last message is the assistant's, which claude-code cannot go on with; end with a user message, or use another provider")
	}
	if f := chat.ResponseFormat; f != nil && f.Type == "json_schema" {
		in.schema = withoutDialect(f.Schema)
	}
	in.steer(chat)
	return in, nil
}

// systemFirst moves the system messages to the beginning: the program has one
// place for them.
func (in *input) systemFirst(messages []subjects.Message) []subjects.Message {
	late, begun := false, false
	for i := range messages {
		isSystem := messages[i].Role == "system"
		late = late || isSystem && begun
		begun = begun || !isSystem
	}
	if !late {
		return messages
	}
	in.warnings = append(in.warnings, "a system message at its place in the conversation is not supported by claude-code; it was moved to the beginning")
	out := slices.Clone(messages)
	slices.SortStableFunc(out, func(a, b subjects.Message) int {
		return rank(a.Role) - rank(b.Role)
	})
	return out
}

func rank(role string) int {
	if role == "system" {
		return 0
	}
	return 1
}

// plainText keeps a user's text from being a command of the program: the older
// version runs a message whose last text begins with a slash, so one space is
// put before it.
func plainText(role string, content gjson.Result) json.RawMessage {
	blocks := content.Array()
	for i := len(blocks) - 1; i >= 0 && role == "user"; i-- {
		text := blocks[i].Get("text")
		if blocks[i].Get("type").Str != "text" {
			continue
		}
		if !strings.HasPrefix(text.Str, "/") {
			break
		}
		var out bytes.Buffer
		out.WriteByte('[')
		for j := range blocks {
			if j > 0 {
				out.WriteByte(',')
			}
			if j == i {
				out.WriteString(`{"type":"text","text":" ` + text.Raw[1:] + `}`)
			} else {
				out.WriteString(blocks[j].Raw)
			}
		}
		out.WriteByte(']')
		return out.Bytes()
	}
	return json.RawMessage(content.Raw)
}

// images are what the program takes; it puts a text in the place of others.
var images = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// checkImages refuses images that the program would not pass on.
func checkImages(i int, c *subjects.Content) error {
	for j := range c.Parts {
		p := &c.Parts[j]
		if p.Type != subjects.PartImage {
			continue
		}
		_, data, ok := strings.Cut(p.ImageURL, ",")
		head := make([]byte, sniffed)
		n, err := base64.NewDecoder(base64.StdEncoding, strings.NewReader(data[:min(len(data), base64.StdEncoding.EncodedLen(sniffed))])).Read(head)
		if !ok || err != nil || !slices.Contains(images, http.DetectContentType(head[:n])) {
			e := notOfThisRequest("claude-code takes PNG, JPEG, GIF and WebP images alone, and this is none of them")
			e.Param = "messages[" + strconv.Itoa(i) + "].content[" + strconv.Itoa(j) + "]"
			return e
		}
	}
	return nil
}

// sniffed is how many bytes of an image are looked at; a multiple of 3.
const sniffed = 48

// withoutDialect takes "$schema" off: the program does not take a schema that
// names a dialect which it does not have, and all of them mean the same here.
func withoutDialect(schema json.RawMessage) json.RawMessage {
	root := gjson.ParseBytes(schema)
	if !root.Get("$schema").Exists() {
		return schema
	}
	var out bytes.Buffer
	out.WriteByte('{')
	root.ForEach(func(key, value gjson.Result) bool {
		if key.Str == "$schema" {
			return true
		}
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		out.WriteString(key.Raw + ":" + value.Raw)
		return true
	})
	out.WriteByte('}')
	return out.Bytes()
}

// efforts are the words that the program takes.
var efforts = []string{"none", "low", "medium", "high", "xhigh", "max"}

// steer takes the effort and names what the program has no place for.
func (in *input) steer(c *wire.Chat) {
	switch {
	case c.ReasoningEffort == "minimal":
		in.effort = "low"
		in.warnings = append(in.warnings, "reasoningEffort minimal is not supported by claude-code; low was used")
	case c.ReasoningEffort == "" || slices.Contains(efforts, c.ReasoningEffort):
		in.effort = c.ReasoningEffort
	default:
		in.leftOut("reasoningEffort")
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"temperature", c.Temperature != nil && *c.Temperature != 1},
		{"topP", c.TopP != nil && *c.TopP != 1},
		{"maxTokens", c.MaxTokens != nil},
		{"stop", len(c.Stop) > 0 && in.schema != nil},
		{"seed", c.Seed != nil},
		{"frequencyPenalty", c.FrequencyPenalty != nil && *c.FrequencyPenalty != 0},
		{"presencePenalty", c.PresencePenalty != nil && *c.PresencePenalty != 0},
		{"user", c.User != ""},
	} {
		if f.set {
			in.leftOut(f.name)
		}
	}
	for _, s := range c.Stop {
		if s != "" && in.schema == nil {
			in.stops = append(in.stops, s)
		}
	}
	for _, name := range c.Left {
		in.leftOut(name)
	}
}

func (in *input) leftOut(what string) {
	in.warnings = append(in.warnings, what+" is not supported by claude-code and was left out")
}
