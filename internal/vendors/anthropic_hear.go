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

// The request, as the vendor's Go SDK has it (MessageNewParams). A field that is
// not here is refused, as that API does ("Extra inputs are not permitted").
type anRequest struct {
	Model         *string         `json:"model"`
	MaxTokens     *int64          `json:"max_tokens"`
	Messages      []anMessage     `json:"messages"`
	System        json.RawMessage `json:"system"`
	Stream        *bool           `json:"stream"`
	Temperature   *float64        `json:"temperature"`
	TopP          *float64        `json:"top_p"`
	TopK          *int64          `json:"top_k"`
	StopSequences []string        `json:"stop_sequences"`
	Tools         []anTool        `json:"tools"`
	ToolChoice    *anChoice       `json:"tool_choice"`
	OutputConfig  *struct {
		Effort *string `json:"effort"`
		Format *struct {
			Type   string          `json:"type"`
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
	} `json:"output_config"`
	Metadata *struct {
		UserID *string `json:"user_id"`
	} `json:"metadata"`
	Thinking    json.RawMessage `json:"thinking"`
	ServiceTier *string         `json:"service_tier"`
}

type anMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type anTool struct {
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
	Strict      *bool           `json:"strict"`
}

type anChoice struct {
	Type       string `json:"type"`
	Name       string `json:"name"`
	NoParallel *bool  `json:"disable_parallel_tool_use"`
}

// anBlock is a content block of any kind that a request may have here.
type anBlock struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text"`
	Source    *anSource       `json:"source"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   *bool           `json:"is_error"`
}

type anSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
	URL       string `json:"url"`
}

// Hear implements Voice.
func (v Anthropic) Hear(r *http.Request, body []byte) (*Seen, error) {
	secret, err := v.door(r)
	if err != nil {
		return nil, err
	}
	var in anRequest
	if err := strictly(body, &in); err != nil {
		return nil, err
	}
	s := &Seen{Secret: secret, StreamUsage: true, Temperature: in.Temperature, TopP: in.TopP, Stop: in.StopSequences, MaxTokens: in.MaxTokens}
	for _, step := range []func(*anRequest, *Seen) error{anScalars, anTools, anFormat, anSystem, anMessages} {
		if err := step(&in, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// strictly decodes one JSON value and refuses fields that are not known.
func strictly(b []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if dec.More() {
		return errors.New("more than one JSON value")
	}
	return nil
}

// door checks what comes before the body.
func (v Anthropic) door(r *http.Request) (secret string, err error) {
	h := r.Header
	switch {
	case r.Method != http.MethodPost:
		return "", fmt.Errorf("method %s", r.Method)
	case r.URL.EscapedPath() != v.Base+"/messages":
		return "", fmt.Errorf("path %s, want %s/messages", r.URL.EscapedPath(), v.Base)
	case r.URL.RawQuery != "":
		return "", fmt.Errorf("query %s", r.URL.RawQuery)
	case h.Get("Content-Type") != "application/json":
		return "", fmt.Errorf("content type %q", h.Get("Content-Type"))
	case h.Get("Anthropic-Version") != "2023-06-01":
		return "", fmt.Errorf("anthropic-version: %q", h.Get("Anthropic-Version"))
	}
	beta := h.Get("Anthropic-Beta")
	if v.OAuth {
		if h.Get("X-Api-Key") != "" || !slices.Contains(strings.Split(beta, ","), OAuthBeta) {
			return "", errors.New("a subscription's token goes with its beta and without x-api-key")
		}
		return bearer(r, false)
	}
	secret = h.Get("X-Api-Key")
	if secret == "" || h.Get("Authorization") != "" || beta != "" {
		return "", errors.New("x-api-key alone is wanted")
	}
	return secret, nil
}

// noSampling matches the models that refuse temperature and top_p.
var noSampling = regexp.MustCompile(`claude-(opus-(4-[789]|[5-9])|sonnet-[5-9]|haiku-[5-9]|fable|mythos)`)

func anScalars(in *anRequest, s *Seen) error {
	switch {
	case in.Model == nil || *in.Model == "":
		return errors.New("model: Field required")
	case in.MaxTokens == nil:
		return errors.New("max_tokens: Field required")
	case *in.MaxTokens < 1:
		return errors.New("max_tokens: below 1")
	case outside(in.Temperature, 0, 1) || outside(in.TopP, 0, 1):
		return errors.New("temperature or top_p: out of bounds")
	case in.Temperature != nil && in.TopP != nil:
		return errors.New("`temperature` and `top_p` cannot both be specified for this model")
	case (in.Temperature != nil || in.TopP != nil) && noSampling.MatchString(*in.Model):
		return errors.New("`temperature` is deprecated for this model")
	case in.StopSequences != nil && len(in.StopSequences) == 0:
		return errors.New("stop_sequences: is empty")
	}
	for i, stop := range in.StopSequences {
		if strings.TrimSpace(stop) == "" {
			return fmt.Errorf("stop_sequences.%d: each stop sequence must contain non-whitespace", i)
		}
	}
	s.Model, s.Stream = *in.Model, in.Stream != nil && *in.Stream
	return nil
}

var anToolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

func anTools(in *anRequest, s *Seen) error {
	if in.Tools != nil && len(in.Tools) == 0 {
		return errors.New("tools: is empty")
	}
	for i, t := range in.Tools {
		var schema struct{ Type string }
		switch err := json.Unmarshal(t.InputSchema, &schema); {
		case !anToolName.MatchString(t.Name):
			return fmt.Errorf("tools.%d.name: %q", i, t.Name)
		case err != nil || schema.Type != "object":
			return fmt.Errorf("tools.%d.input_schema.type: Input should be 'object'", i)
		case slices.ContainsFunc(s.Tools, func(o Tool) bool { return o.Name == t.Name }):
			return errors.New("tools: Tool names must be unique")
		}
		tool := Tool{Name: t.Name, Schema: t.InputSchema}
		if t.Description != nil {
			tool.Description = *t.Description
		}
		s.Tools = append(s.Tools, tool)
	}
	return in.ToolChoice.read(s)
}

func (c *anChoice) read(s *Seen) error {
	switch {
	case c == nil:
		return nil
	case len(s.Tools) == 0:
		return errors.New("tool_choice may only be specified while providing tools")
	case (c.Type == "tool") != (c.Name != ""), c.Type == "none" && c.NoParallel != nil:
		return fmt.Errorf("tool_choice: %+v", *c)
	}
	switch c.Type {
	case "auto", "none":
		s.ToolChoice = c.Type
	case "any":
		s.ToolChoice = "required"
	case "tool":
		if !slices.ContainsFunc(s.Tools, func(t Tool) bool { return t.Name == c.Name }) {
			return fmt.Errorf("tool_choice: Tool '%s' not found in provided tools", c.Name)
		}
		s.ToolChoice = "name:" + c.Name
	default:
		return fmt.Errorf("tool_choice.type: %q", c.Type)
	}
	if c.NoParallel != nil {
		parallel := !*c.NoParallel
		s.Parallel = &parallel
	}
	return nil
}

func anFormat(in *anRequest, s *Seen) error {
	o := in.OutputConfig
	if o == nil {
		return nil
	}
	if o.Effort != nil {
		if s.Effort = *o.Effort; !slices.Contains([]string{"low", "medium", "high", "xhigh", "max"}, s.Effort) {
			return fmt.Errorf("output_config.effort: %q", s.Effort)
		}
	}
	if o.Format == nil {
		return nil
	}
	if o.Format.Type != "json_schema" || isNull(o.Format.Schema) || o.Format.Schema[0] != '{' {
		return errors.New("output_config.format: json_schema with a schema is wanted")
	}
	s.Format, s.Schema = "json_schema", o.Format.Schema
	return nil
}

func anSystem(in *anRequest, s *Seen) error {
	if isNull(in.System) {
		return nil
	}
	all, err := anBlocks(in.System)
	if err != nil {
		return fmt.Errorf("system: %w", err)
	}
	return s.system(all)
}

// system takes the texts of system blocks.
func (s *Seen) system(all []anBlock) error {
	for i := range all {
		text, err := all[i].text()
		if err != nil {
			return fmt.Errorf("system.%d: %w", i, err)
		}
		if s.System != "" {
			s.System += "\n\n"
		}
		s.System += text
	}
	return nil
}

// anBlocks reads content: a string or a list that is not empty.
func anBlocks(b json.RawMessage) ([]anBlock, error) {
	var text string
	if json.Unmarshal(b, &text) == nil {
		return []anBlock{{Type: "text", Text: &text}}, nil
	}
	var all []anBlock
	if err := strictly(b, &all); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("all messages must have non-empty content")
	}
	return all, nil
}

// text is the text of a text block.
func (b *anBlock) text() (string, error) {
	switch {
	case b.Type != "text" || b.Text == nil:
		return "", fmt.Errorf("type: %q", b.Type)
	case strings.TrimSpace(*b.Text) == "":
		return "", errors.New("text content blocks must contain non-whitespace text")
	}
	return *b.Text, nil
}
