package vendors

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// The request, as the server's types have it. It ignores a field that is not here;
// this fake refuses it, for it would be left out in silence.
type ollamaRequest struct {
	Model     string          `json:"model"`
	Messages  []ollamaTurn    `json:"messages"`
	Stream    *bool           `json:"stream"`
	Format    json.RawMessage `json:"format"`
	KeepAlive json.RawMessage `json:"keep_alive"`
	Tools     []ollamaTool    `json:"tools"`
	Options   *ollamaOptions  `json:"options"`
	Think     json.RawMessage `json:"think"`
	Truncate  *bool           `json:"truncate"`
	Shift     *bool           `json:"shift"`
}

type ollamaTurn struct {
	Role       string       `json:"role"`
	Content    *string      `json:"content"`
	Thinking   string       `json:"thinking"`
	Images     []string     `json:"images"`
	ToolCalls  []ollamaCall `json:"tool_calls"`
	ToolName   string       `json:"tool_name"`
	ToolCallID string       `json:"tool_call_id"`
}

type ollamaCall struct {
	ID       string `json:"id"`
	Function struct {
		Index     int             `json:"index"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

type ollamaTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// ollamaOptions are those that a request may set; their types are checked.
type ollamaOptions struct {
	Temperature      *float64 `json:"temperature"`
	TopP             *float64 `json:"top_p"`
	TopK             *int64   `json:"top_k"`
	MinP             *float64 `json:"min_p"`
	Seed             *int64   `json:"seed"`
	NumPredict       *int64   `json:"num_predict"`
	NumCtx           *int64   `json:"num_ctx"`
	RepeatPenalty    *float64 `json:"repeat_penalty"`
	PresencePenalty  *float64 `json:"presence_penalty"`
	FrequencyPenalty *float64 `json:"frequency_penalty"`
	Stop             []string `json:"stop"`
}

// Hear implements Voice.
func (v Ollama) Hear(r *http.Request, body []byte) (*Seen, error) {
	if r.Method != http.MethodPost || r.URL.EscapedPath() != "/api/chat" || r.URL.RawQuery != "" {
		return nil, fmt.Errorf("%s %s: there is only POST /api/chat", r.Method, r.URL)
	}
	secret, err := bearer(r, true)
	if err != nil {
		return nil, err
	}
	var in ollamaRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return nil, err
	}
	switch {
	case in.Model == "":
		return nil, errors.New("model is required")
	case len(in.Messages) == 0:
		return nil, errors.New("messages: without any the model is loaded and says nothing")
	case in.Stream == nil:
		return nil, errors.New("stream: not said, and true by default")
	case in.Truncate == nil || *in.Truncate || in.Shift == nil || *in.Shift:
		return nil, errors.New("truncate and shift: true by default, and then a long prompt is cut in silence")
	}
	s := &Seen{Secret: secret, Model: in.Model, Stream: *in.Stream, StreamUsage: true}
	if o := in.Options; o != nil {
		s.Temperature, s.TopP, s.Seed, s.MaxTokens, s.Stop = o.Temperature, o.TopP, o.Seed, o.NumPredict, o.Stop
	}
	for _, step := range []func(*ollamaRequest, *Seen) error{v.thinks, ollamaFormat, ollamaTools, ollamaMessages} {
		if err := step(&in, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (v Ollama) thinks(in *ollamaRequest, s *Seen) error {
	switch word := string(in.Think); {
	case word == "" || word == "null":
	case word == "false":
		s.Effort = "none"
	case !v.Thinks:
		return fmt.Errorf("%q does not support thinking", in.Model)
	case word == "true":
		s.Effort = "true"
	case word == `"low"` || word == `"medium"` || word == `"high"`:
		s.Effort = strings.Trim(word, `"`)
	default:
		return fmt.Errorf("invalid think value: %s", word)
	}
	return nil
}

func ollamaFormat(in *ollamaRequest, s *Seen) error {
	switch word := string(in.Format); {
	case word == "" || word == "null" || word == `""`:
	case word == `"json"`:
		s.Format = "json_object"
	case word[0] == '{':
		s.Format, s.Schema = "json_schema", in.Format
	default:
		return fmt.Errorf("invalid format: %s; expected \"json\" or a valid JSON Schema object", word)
	}
	return nil
}

// ollamaProperty is what the server keeps of a property's schema.
type ollamaProperty struct {
	AnyOf       []ollamaProperty          `json:"anyOf"`
	Type        json.RawMessage           `json:"type"`
	Description string                    `json:"description"`
	Enum        []any                     `json:"enum"`
	Properties  map[string]ollamaProperty `json:"properties"`
}

func ollamaTools(in *ollamaRequest, s *Seen) error {
	for i, t := range in.Tools {
		var parameters struct {
			Type       string                    `json:"type"`
			Required   []string                  `json:"required"`
			Properties map[string]ollamaProperty `json:"properties"`
		}
		switch {
		case t.Type != "function" || t.Function.Name == "":
			return fmt.Errorf("tools[%d]: type %q, name %q", i, t.Type, t.Function.Name)
		case isNull(t.Function.Parameters):
			return fmt.Errorf("tools[%d].function.parameters: missing", i)
		}
		if err := json.Unmarshal(t.Function.Parameters, &parameters); err != nil {
			return fmt.Errorf("tools[%d].function.parameters: %w", i, err)
		}
		s.Tools = append(s.Tools, Tool{Name: t.Function.Name, Description: t.Function.Description, Schema: t.Function.Parameters})
	}
	return nil
}

func ollamaMessages(in *ollamaRequest, s *Seen) error {
	var system []string
	names := map[string]string{} // the tools of the calls so far, by id
	for i := range in.Messages {
		m := &in.Messages[i]
		turn, err := m.turn(names)
		if err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
		if m.Role == "system" {
			system = append(system, turn.Text)
			continue
		}
		s.Messages = append(s.Messages, turn)
	}
	s.System = strings.Join(system, "\n\n")
	return nil
}

func (m *ollamaTurn) turn(names map[string]string) (Turn, error) {
	turn := Turn{Role: m.Role, ResultOf: m.ToolCallID}
	switch {
	case !slices.Contains([]string{"system", "user", "assistant", "tool"}, m.Role):
		return turn, fmt.Errorf("role: %q", m.Role)
	case m.Content == nil:
		return turn, errors.New("content: missing")
	case m.Role == "tool" && (m.ToolName == "" || m.ToolName != names[m.ToolCallID]):
		return turn, fmt.Errorf("tool_name: %q is not the tool of the call %q", m.ToolName, m.ToolCallID)
	case m.Role != "tool" && m.ToolName+m.ToolCallID != "":
		return turn, errors.New("tool_name and tool_call_id: only in a tool message")
	case m.Role != "assistant" && len(m.ToolCalls) > 0:
		return turn, errors.New("tool_calls: only in an assistant message")
	}
	turn.Text = *m.Content
	for i, data := range m.Images {
		b, err := base64.StdEncoding.DecodeString(data)
		if err != nil || len(b) == 0 {
			return turn, fmt.Errorf("images[%d]: %w", i, err)
		}
		turn.Images = append(turn.Images, Image{MediaType: http.DetectContentType(b), Base64: data})
	}
	for i, c := range m.ToolCalls {
		args := c.Function.Arguments
		if c.Function.Name == "" || len(args) == 0 || args[0] != '{' || c.Function.Index != i {
			return turn, fmt.Errorf("tool_calls[%d]: %+v", i, c)
		}
		names[c.ID] = c.Function.Name
		turn.Calls = append(turn.Calls, Call{ID: c.ID, Name: c.Function.Name, Arguments: string(args)})
	}
	return turn, nil
}
