package vendors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// The request, as OpenAI's OpenAPI document has it. A field that is not here is
// refused, as that API does ("Unrecognized request argument").
type chatRequest struct {
	Model               *string          `json:"model"`
	Messages            []chatMessage    `json:"messages"`
	Stream              *bool            `json:"stream"`
	StreamOptions       *chatStreamOpts  `json:"stream_options"`
	MaxTokens           *int64           `json:"max_tokens"`
	MaxCompletionTokens *int64           `json:"max_completion_tokens"`
	Temperature         *float64         `json:"temperature"`
	TopP                *float64         `json:"top_p"`
	FrequencyPenalty    *float64         `json:"frequency_penalty"`
	PresencePenalty     *float64         `json:"presence_penalty"`
	Stop                json.RawMessage  `json:"stop"`
	Seed                *int64           `json:"seed"`
	N                   *int64           `json:"n"`
	User                *string          `json:"user"`
	Tools               []chatTool       `json:"tools"`
	ToolChoice          json.RawMessage  `json:"tool_choice"`
	ParallelToolCalls   *bool            `json:"parallel_tool_calls"`
	ResponseFormat      *chatFormat      `json:"response_format"`
	ReasoningEffort     *string          `json:"reasoning_effort"`
	Logprobs            *bool            `json:"logprobs"`
	TopLogprobs         *int64           `json:"top_logprobs"`
	LogitBias           map[string]int64 `json:"logit_bias"`
	Metadata            map[string]string
	Store               *bool
	ServiceTier         *string `json:"service_tier"`
	Verbosity           *string
}

type chatStreamOpts struct {
	IncludeUsage       *bool `json:"include_usage"`
	IncludeObfuscation *bool `json:"include_obfuscation"`
}

type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Name       *string         `json:"name"`
	ToolCalls  []chatCall      `json:"tool_calls"`
	ToolCallID *string         `json:"tool_call_id"`
	Refusal    *string         `json:"refusal"`
}

type chatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string  `json:"name"`
		Arguments *string `json:"arguments"`
	} `json:"function"`
}

type chatTool struct {
	Type     string          `json:"type"`
	Custom   json.RawMessage `json:"custom"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      *bool           `json:"strict"`
	} `json:"function"`
}

type chatFormat struct {
	Type       string `json:"type"`
	JSONSchema *struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"schema"`
		Strict      *bool           `json:"strict"`
	} `json:"json_schema"`
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// Hear implements Voice.
func (v OpenAI) Hear(r *http.Request, body []byte) (*Seen, error) {
	secret, err := v.door(r)
	if err != nil {
		return nil, err
	}
	var in chatRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errors.New("more than one JSON value")
	}
	s := &Seen{
		Secret: secret, Temperature: in.Temperature, TopP: in.TopP, Seed: in.Seed, MaxTokens: in.MaxTokens,
		Parallel: in.ParallelToolCalls,
	}
	for _, step := range []func(*chatRequest, *Seen) error{v.scalars, v.tools, chatFormats, v.chatMessages} {
		if err := step(&in, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// door checks what comes before the body.
func (v OpenAI) door(r *http.Request) (secret string, err error) {
	switch {
	case r.Method != http.MethodPost:
		return "", fmt.Errorf("method %s", r.Method)
	case r.URL.EscapedPath() != v.Base+"/chat/completions":
		return "", fmt.Errorf("path %s, want %s/chat/completions", r.URL.EscapedPath(), v.Base)
	case r.URL.RawQuery != "":
		return "", fmt.Errorf("query %s", r.URL.RawQuery)
	case !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json"):
		return "", fmt.Errorf("content type %q", r.Header.Get("Content-Type"))
	}
	return bearer(r, v.KeyOptional || v.Host == HostLlama)
}

// bearer reads Authorization: Bearer.
func bearer(r *http.Request, optional bool) (string, error) {
	secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok && (!optional || r.Header.Get("Authorization") != "") {
		return "", errors.New("no Authorization: Bearer")
	}
	return secret, nil
}

func (v OpenAI) scalars(in *chatRequest, s *Seen) error {
	if in.Model == nil || *in.Model == "" {
		return errors.New("model: missing")
	}
	s.Model = *in.Model
	s.Stream = in.Stream != nil && *in.Stream
	if o := in.StreamOptions; o != nil {
		if !s.Stream {
			return errors.New("stream_options: only with stream")
		}
		s.StreamUsage = o.IncludeUsage != nil && *o.IncludeUsage
	}
	s.StreamUsage = s.StreamUsage || v.Host == HostCopilot || v.Host == HostGroq
	if in.MaxTokens != nil && in.MaxCompletionTokens != nil {
		return errors.New("max_tokens and max_completion_tokens")
	}
	if in.MaxCompletionTokens != nil {
		s.MaxTokens = in.MaxCompletionTokens
	}
	if s.MaxTokens != nil && *s.MaxTokens < 1 {
		return errors.New("max_tokens: below 1")
	}
	if in.ReasoningEffort != nil {
		s.Effort = *in.ReasoningEffort
	}
	if outside(in.Temperature, 0, 2) || outside(in.TopP, 0, 1) || outside(in.FrequencyPenalty, -2, 2) || outside(in.PresencePenalty, -2, 2) {
		return errors.New("temperature, top_p or a penalty: out of bounds")
	}
	if v.Host == HostGroq && (in.Logprobs != nil || in.TopLogprobs != nil || in.LogitBias != nil || in.N != nil && *in.N != 1) {
		return errors.New("logprobs, top_logprobs, logit_bias or n: not supported by groq")
	}
	return in.stop(s)
}

func outside(f *float64, lo, hi float64) bool { return f != nil && (*f < lo || *f > hi) }

// stop is a string or at most four of them.
func (in *chatRequest) stop(s *Seen) error {
	if isNull(in.Stop) {
		return nil
	}
	var one string
	if json.Unmarshal(in.Stop, &one) == nil {
		s.Stop = []string{one}
		return nil
	}
	if err := json.Unmarshal(in.Stop, &s.Stop); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if len(s.Stop) > 4 || len(s.Stop) == 0 {
		return errors.New("stop: one to four strings")
	}
	return nil
}

func isNull(b json.RawMessage) bool { return len(b) == 0 || string(b) == "null" }

func (v OpenAI) tools(in *chatRequest, s *Seen) error {
	for i, t := range in.Tools {
		switch {
		case t.Type == "custom" && v.Host == HostOpenAI && !isNull(t.Custom):
			continue
		case t.Type != "function":
			return fmt.Errorf("tools[%d].type: %q", i, t.Type)
		case !toolName.MatchString(t.Function.Name):
			return fmt.Errorf("tools[%d].function.name: %q", i, t.Function.Name)
		case !isNull(t.Function.Parameters) && t.Function.Parameters[0] != '{':
			return fmt.Errorf("tools[%d].function.parameters: no object", i)
		}
		s.Tools = append(s.Tools, Tool{Name: t.Function.Name, Description: t.Function.Description, Schema: t.Function.Parameters})
	}
	switch {
	case len(in.Tools) == 0 && in.Tools != nil:
		return errors.New("tools: is empty")
	case len(in.Tools) == 0 && in.ParallelToolCalls != nil:
		return errors.New("parallel_tool_calls: only with tools")
	case isNull(in.ToolChoice):
		return nil
	case len(in.Tools) == 0:
		return errors.New("tool_choice: only with tools")
	}
	var mode string
	if json.Unmarshal(in.ToolChoice, &mode) == nil {
		s.ToolChoice = mode
		if !slices.Contains([]string{"auto", "none", "required"}, mode) {
			return fmt.Errorf("tool_choice: %q", mode)
		}
		return nil
	}
	var named struct {
		Type     string
		Function struct{ Name string }
	}
	if err := json.Unmarshal(in.ToolChoice, &named); err != nil {
		return err
	}
	if named.Type != "function" || !slices.ContainsFunc(s.Tools, func(t Tool) bool { return t.Name == named.Function.Name }) {
		return fmt.Errorf("tool_choice: %s", in.ToolChoice)
	}
	s.ToolChoice = "name:" + named.Function.Name
	return nil
}

func chatFormats(in *chatRequest, s *Seen) error {
	f := in.ResponseFormat
	if f == nil {
		return nil
	}
	s.Format = f.Type
	switch f.Type {
	case "text":
	case "json_object":
		if !bytes.Contains(bytes.ToLower(marshal(in.Messages)), []byte("json")) {
			return errors.New("'messages' must contain the word 'json' to use json_object")
		}
	case "json_schema":
		switch {
		case f.JSONSchema == nil || !toolName.MatchString(f.JSONSchema.Name):
			return errors.New("response_format.json_schema.name: missing or bad")
		case isNull(f.JSONSchema.Schema) || f.JSONSchema.Schema[0] != '{':
			return errors.New("response_format.json_schema.schema: no object")
		}
		s.Schema = f.JSONSchema.Schema
	default:
		return fmt.Errorf("response_format.type: %q", f.Type)
	}
	return nil
}

func (v OpenAI) chatMessages(in *chatRequest, s *Seen) error {
	if len(in.Messages) == 0 {
		return errors.New("messages: missing")
	}
	var system []string
	var open []string // ids of tool calls that wait for their results
	for i := range in.Messages {
		m := &in.Messages[i]
		turn, err := m.turn()
		switch {
		case err != nil:
			return fmt.Errorf("messages[%d]: %w", i, err)
		case m.Name != nil && v.Host == HostGroq:
			return fmt.Errorf("messages[%d].name: not supported by groq", i)
		case m.Role == "tool":
			at := slices.Index(open, turn.ResultOf)
			if at < 0 {
				return fmt.Errorf("messages[%d]: no tool call %q waits for a result", i, turn.ResultOf)
			}
			open = slices.Delete(open, at, at+1)
		case len(open) > 0:
			return fmt.Errorf("messages[%d]: the tool calls %q have no result", i, open)
		}
		if m.Role == "system" || m.Role == "developer" {
			system = append(system, turn.Text)
			continue
		}
		for _, c := range turn.Calls {
			open = append(open, c.ID)
		}
		s.Messages = append(s.Messages, turn)
	}
	if len(open) > 0 {
		return fmt.Errorf("messages: the tool calls %q have no result", open)
	}
	s.System = strings.Join(system, "\n\n")
	return nil
}

// partsOf says which parts a role's content may have.
var partsOf = map[string][]string{
	"system": {"text"}, "developer": {"text"}, "tool": {"text"},
	"user": {"text", "image_url", "input_audio", "file"}, "assistant": {"text", "refusal"},
}

func (m *chatMessage) turn() (Turn, error) {
	turn := Turn{Role: m.Role}
	kinds, ok := partsOf[m.Role]
	switch {
	case !ok:
		return turn, fmt.Errorf("role: %q", m.Role)
	case m.Role == "tool" && (m.ToolCallID == nil || *m.ToolCallID == ""):
		return turn, errors.New("tool_call_id: missing")
	case m.Role != "tool" && m.ToolCallID != nil:
		return turn, errors.New("tool_call_id: only in a tool message")
	case m.Role != "assistant" && m.ToolCalls != nil:
		return turn, errors.New("tool_calls: only in an assistant message")
	case m.ToolCalls != nil && len(m.ToolCalls) == 0:
		return turn, errors.New("tool_calls: is empty")
	}
	if m.ToolCallID != nil {
		turn.ResultOf = *m.ToolCallID
	}
	for i, c := range m.ToolCalls {
		if c.ID == "" || c.Type != "function" || !toolName.MatchString(c.Function.Name) || c.Function.Arguments == nil {
			return turn, fmt.Errorf("tool_calls[%d]: %+v", i, c)
		}
		turn.Calls = append(turn.Calls, Call{ID: c.ID, Name: c.Function.Name, Arguments: *c.Function.Arguments})
	}
	return turn, m.content(&turn, kinds)
}

func (m *chatMessage) content(turn *Turn, kinds []string) error {
	if isNull(m.Content) {
		if m.Role == "assistant" && len(m.ToolCalls) > 0 {
			return nil
		}
		return errors.New("content: missing")
	}
	if json.Unmarshal(m.Content, &turn.Text) == nil {
		return nil
	}
	var parts []struct {
		Type     string
		Text     *string
		ImageURL *struct {
			URL    string
			Detail *string
		} `json:"image_url"`
		Refusal    *string
		InputAudio json.RawMessage `json:"input_audio"`
		File       json.RawMessage
	}
	dec := json.NewDecoder(bytes.NewReader(m.Content))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&parts); err != nil {
		return fmt.Errorf("content: %w", err)
	}
	if len(parts) == 0 {
		return errors.New("content: is empty")
	}
	var texts []string
	for i, p := range parts {
		switch {
		case !slices.Contains(kinds, p.Type):
			return fmt.Errorf("content[%d].type: %q in a message of the role %s", i, p.Type, m.Role)
		case p.Type == "text" && p.Text != nil:
			texts = append(texts, *p.Text)
		case p.Type == "image_url" && p.ImageURL != nil:
			img, err := imageOf(p.ImageURL.URL)
			if err != nil {
				return fmt.Errorf("content[%d]: %w", i, err)
			}
			turn.Images = append(turn.Images, img)
		case p.Type == "refusal" && p.Refusal != nil, p.Type == "input_audio" && !isNull(p.InputAudio), p.Type == "file" && !isNull(p.File):
		default:
			return fmt.Errorf("content[%d]: %s without its member", i, p.Type)
		}
	}
	turn.Text = strings.Join(texts, "\n")
	return nil
}

var dataURL = regexp.MustCompile(`^data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/]+={0,2})$`)

// imageOf reads an http(s) URL or a data: URL of a kind that the vendors take.
func imageOf(url string) (Image, error) {
	if m := dataURL.FindStringSubmatch(url); m != nil {
		return Image{MediaType: m[1], Base64: m[2]}, nil
	}
	if strings.HasPrefix(url, "https://") || strings.HasPrefix(url, "http://") {
		return Image{URL: url}, nil
	}
	return Image{}, fmt.Errorf("image_url.url: %.60q", url)
}
