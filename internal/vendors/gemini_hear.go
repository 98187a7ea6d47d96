package vendors

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The request, as the discovery document of v1beta has it, as far as it is of use
// here. A field that is not here is refused, as the API does ("Unknown name …:
// Cannot find field").
type geminiRequest struct {
	Contents          []geminiContent `json:"contents"`
	SystemInstruction *geminiContent  `json:"systemInstruction"`
	Tools             []struct {
		FunctionDeclarations []geminiFunction `json:"functionDeclarations"`
	} `json:"tools"`
	ToolConfig *struct {
		FunctionCallingConfig *struct {
			Mode                 string   `json:"mode"`
			AllowedFunctionNames []string `json:"allowedFunctionNames"`
		} `json:"functionCallingConfig"`
	} `json:"toolConfig"`
	GenerationConfig *geminiConfig   `json:"generationConfig"`
	SafetySettings   json.RawMessage `json:"safetySettings"`
}

type geminiContent struct {
	Role  string       `json:"role"`
	Parts []geminiPart `json:"parts"`
}

type geminiPart struct {
	Text             *string         `json:"text"`
	InlineData       *geminiBlob     `json:"inlineData"`
	FunctionCall     *geminiCall     `json:"functionCall"`
	FunctionResponse *geminiResponse `json:"functionResponse"`
	Thought          *bool           `json:"thought"`
	ThoughtSignature *string         `json:"thoughtSignature"`
}

type geminiBlob struct {
	MIMEType string `json:"mimeType"`
	Data     string `json:"data"`
}

type geminiCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type geminiResponse struct {
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Response json.RawMessage `json:"response"`
	Parts    []struct {
		InlineData *geminiBlob `json:"inlineData"`
	} `json:"parts"`
}

type geminiFunction struct {
	Name                 string          `json:"name"`
	Description          string          `json:"description"`
	Parameters           json.RawMessage `json:"parameters"`
	ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema"`
}

type geminiConfig struct {
	Temperature        *float64        `json:"temperature"`
	TopP               *float64        `json:"topP"`
	TopK               *float64        `json:"topK"`
	MaxOutputTokens    *int64          `json:"maxOutputTokens"`
	StopSequences      []string        `json:"stopSequences"`
	Seed               *int64          `json:"seed"`
	PresencePenalty    *float64        `json:"presencePenalty"`
	FrequencyPenalty   *float64        `json:"frequencyPenalty"`
	CandidateCount     *int64          `json:"candidateCount"`
	ResponseMIMEType   string          `json:"responseMimeType"`
	ResponseSchema     json.RawMessage `json:"responseSchema"`
	ResponseJSONSchema json.RawMessage `json:"responseJsonSchema"`
	ThinkingConfig     *struct {
		IncludeThoughts bool   `json:"includeThoughts"`
		ThinkingBudget  *int64 `json:"thinkingBudget"`
		ThinkingLevel   string `json:"thinkingLevel"`
	} `json:"thinkingConfig"`
}

// Hear implements Voice.
func (v Gemini) Hear(r *http.Request, body []byte) (*Seen, error) {
	s := &Seen{StreamUsage: true, Secret: r.Header.Get("X-Goog-Api-Key")}
	if err := v.door(r, s); err != nil {
		return nil, err
	}
	var in geminiRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errors.New("more than one JSON value")
	}
	for _, step := range []func(*geminiRequest, *Seen) error{v.hearTools, v.hearConfig, v.hearContents} {
		if err := step(&in, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// door checks what comes before the body.
func (v Gemini) door(r *http.Request, s *Seen) error {
	name, ok := strings.CutPrefix(r.URL.EscapedPath(), v.Base+"/models/")
	model, method, _ := strings.Cut(name, ":")
	switch {
	case r.Method != http.MethodPost:
		return fmt.Errorf("method %s", r.Method)
	case !ok || strings.Contains(model, "/") || method != "generateContent" && method != "streamGenerateContent":
		return fmt.Errorf("path %s, want %s/models/<model>:generateContent", r.URL.EscapedPath(), v.Base)
	case !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json"):
		return fmt.Errorf("content type %q", r.Header.Get("Content-Type"))
	case s.Secret == "" || r.Header.Get("Authorization") != "":
		return errors.New("the key belongs into x-goog-api-key, and there alone")
	}
	s.Stream = method == "streamGenerateContent"
	want := ""
	if s.Stream {
		want = "alt=sse"
	}
	if r.URL.RawQuery != want {
		return fmt.Errorf("query %q, want %q", r.URL.RawQuery, want)
	}
	var err error
	s.Model, err = url.PathUnescape(model)
	return err
}

var geminiName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$`)

func (v Gemini) hearTools(in *geminiRequest, s *Seen) error {
	known := map[string]bool{}
	for _, t := range in.Tools {
		for _, f := range t.FunctionDeclarations {
			switch {
			case !geminiName.MatchString(f.Name):
				return fmt.Errorf("functionDeclarations: the name %q", f.Name)
			case known[f.Name]:
				return fmt.Errorf("duplicate function declaration found: %s", f.Name)
			case f.Parameters != nil && f.ParametersJSONSchema != nil:
				return fmt.Errorf("%s: parameters and parametersJsonSchema", f.Name)
			case f.ParametersJSONSchema != nil && f.ParametersJSONSchema[0] != '{':
				return fmt.Errorf("%s: parametersJsonSchema is no object", f.Name)
			}
			known[f.Name] = true
			schema := f.ParametersJSONSchema
			if schema == nil {
				schema = f.Parameters
			}
			s.Tools = append(s.Tools, Tool{Name: f.Name, Description: f.Description, Schema: schema})
		}
	}
	if in.ToolConfig == nil || in.ToolConfig.FunctionCallingConfig == nil {
		return nil
	}
	c := in.ToolConfig.FunctionCallingConfig
	var ok bool
	if s.ToolChoice, ok = map[string]string{"AUTO": "auto", "ANY": "required", "NONE": "none"}[c.Mode]; !ok {
		return fmt.Errorf("functionCallingConfig.mode %q", c.Mode)
	}
	for _, name := range c.AllowedFunctionNames {
		if c.Mode != "ANY" || !known[name] {
			return fmt.Errorf("allowedFunctionNames %q with the mode %s", name, c.Mode)
		}
	}
	if len(c.AllowedFunctionNames) == 1 {
		s.ToolChoice = "name:" + c.AllowedFunctionNames[0]
	}
	return nil
}

func (v Gemini) hearConfig(in *geminiRequest, s *Seen) error {
	c := in.GenerationConfig
	if c == nil {
		return nil
	}
	version := geminiVersion(s.Model)
	some := func(f *float64) bool { return f != nil && *f != 0 }
	switch {
	case outside(c.Temperature, 0, 2) || outside(c.TopP, 0, 1):
		return errors.New("temperature or topP: out of bounds")
	case c.MaxOutputTokens != nil && (*c.MaxOutputTokens < 1 || *c.MaxOutputTokens > math.MaxInt32):
		return errors.New("maxOutputTokens: out of bounds")
	case c.Seed != nil && (*c.Seed < math.MinInt32 || *c.Seed > math.MaxInt32):
		return errors.New("invalid value at 'generation_config.seed' (TYPE_INT32)")
	case len(c.StopSequences) > 5 || slices.Contains(c.StopSequences, ""):
		return errors.New("stopSequences: at most five, none of them empty")
	case (some(c.PresencePenalty) || some(c.FrequencyPenalty)) && version >= 205:
		return errors.New("penalty is not enabled for this model")
	case c.CandidateCount != nil && *c.CandidateCount != 1:
		return errors.New("candidateCount: only one candidate")
	}
	s.Temperature, s.TopP, s.MaxTokens, s.Seed, s.Stop = c.Temperature, c.TopP, c.MaxOutputTokens, c.Seed, c.StopSequences
	if err := c.thinking(s, version); err != nil {
		return err
	}
	return c.format(s, version)
}

// thinking takes a budget on Gemini 2.5 and a level from 3 on. The levels are
// those of the vendor's table for each model.
func (c *geminiConfig) thinking(s *Seen, version int) error {
	t := c.ThinkingConfig
	if t == nil {
		return nil
	}
	pro, lite := strings.Contains(s.Model, "-pro"), strings.Contains(s.Model, "flash-lite")
	levels := []string{"LOW", "MEDIUM", "HIGH"}
	switch {
	case pro && version == 300:
		levels = []string{"LOW", "HIGH"}
	case !pro && (version < 307 || lite) && version < 400:
		levels = append(levels, "MINIMAL")
	}
	switch {
	case t.ThinkingBudget != nil && t.ThinkingLevel != "":
		return errors.New("thinkingBudget and thinkingLevel")
	case t.ThinkingBudget != nil:
		n := *t.ThinkingBudget
		if version != 205 || n > 24_576 || n < -1 || pro && n >= 0 && n < 128 || lite && n > 0 && n < 512 {
			return fmt.Errorf("the thinking budget %d is invalid for %s", n, s.Model)
		}
		s.Effort = strconv.FormatInt(n, 10)
	case t.ThinkingLevel != "":
		if version < 300 || !slices.Contains(levels, t.ThinkingLevel) {
			return fmt.Errorf("thinking level %s is not supported for %s", t.ThinkingLevel, s.Model)
		}
		s.Effort = t.ThinkingLevel
	}
	return nil
}

func (c *geminiConfig) format(s *Seen, version int) error {
	switch {
	case c.ResponseMIMEType == "" && c.ResponseJSONSchema == nil && c.ResponseSchema == nil:
		return nil
	case c.ResponseMIMEType != "application/json":
		return fmt.Errorf("responseMimeType %q", c.ResponseMIMEType)
	case len(s.Tools) > 0 && version < 300:
		return errors.New("function calling with a response mime type: 'application/json' is unsupported")
	}
	s.Format = "json_object"
	if c.ResponseJSONSchema != nil {
		s.Format, s.Schema = "json_schema", c.ResponseJSONSchema
	}
	return nil
}

// geminiTalk reads the contents in their order.
type geminiTalk struct {
	s    *Seen
	v    Gemini
	open []geminiCall // of the turn before, waiting for their results
	sign bool         // the model must have signed its calls since the last question
}

func (v Gemini) hearContents(in *geminiRequest, s *Seen) error {
	if in.SystemInstruction != nil {
		var texts []string
		for i, p := range in.SystemInstruction.Parts {
			if p.Text == nil || p.kinds() != 1 {
				return fmt.Errorf("systemInstruction.parts[%d]: only text", i)
			}
			texts = append(texts, *p.Text)
		}
		if len(texts) == 0 {
			return errors.New("systemInstruction: has no parts")
		}
		s.System = strings.Join(texts, "\n\n")
	}
	if len(in.Contents) == 0 {
		return errors.New("contents is not specified")
	}
	talk := &geminiTalk{s: s, v: v}
	last := 0 // the beginning of the current turn: after the last question of the user
	for i := range in.Contents {
		if c := &in.Contents[i]; c.Role != "model" && !c.answers() {
			last = i
		}
	}
	for i := range in.Contents {
		talk.sign = i > last && geminiVersion(s.Model) >= 300
		if err := talk.content(&in.Contents[i]); err != nil {
			return fmt.Errorf("contents[%d]: %w", i, err)
		}
	}
	if len(talk.open) > 0 || in.Contents[len(in.Contents)-1].Role == "model" && geminiVersion(s.Model) >= 306 {
		return errors.New("requests ending with a model turn are not supported")
	}
	return nil
}

// answers reports whether a turn has results of functions in it.
func (c *geminiContent) answers() bool {
	return slices.ContainsFunc(c.Parts, func(p geminiPart) bool { return p.FunctionResponse != nil })
}

// kinds counts the members of a part that hold data: one, and no more.
func (p *geminiPart) kinds() int {
	n := 0
	for _, is := range []bool{p.Text != nil, p.InlineData != nil, p.FunctionCall != nil, p.FunctionResponse != nil} {
		if is {
			n++
		}
	}
	return n
}

func (t *geminiTalk) content(c *geminiContent) error {
	if len(c.Parts) == 0 {
		return errors.New("parts must not be empty")
	}
	if c.Role != "user" && c.Role != "model" {
		return fmt.Errorf("please use a valid role: user, model (not %q)", c.Role)
	}
	results := 0
	for i := range c.Parts {
		if c.Parts[i].kinds() != 1 {
			return fmt.Errorf("parts[%d]: %d kinds of data", i, c.Parts[i].kinds())
		}
		if c.Parts[i].FunctionResponse != nil {
			results++
		}
	}
	if results != len(t.open) {
		return fmt.Errorf("please ensure that the number of function response parts (%d) is equal to the number of function call parts (%d) of the function call turn", results, len(t.open))
	}
	if c.Role == "model" {
		return t.model(c)
	}
	return t.user(c)
}

func (t *geminiTalk) model(c *geminiContent) error {
	turn := Turn{Role: "assistant"}
	var texts []string
	signed := false
	for i, p := range c.Parts {
		if p.ThoughtSignature != nil && !isBase64(*p.ThoughtSignature) {
			return fmt.Errorf("parts[%d].thoughtSignature: base64 decoding failed", i)
		}
		switch {
		case p.FunctionCall != nil:
			f := p.FunctionCall
			if !geminiName.MatchString(f.Name) || len(f.Args) > 0 && f.Args[0] != '{' {
				return fmt.Errorf("parts[%d].functionCall: %s %s", i, f.Name, f.Args)
			}
			if signed = signed || p.ThoughtSignature != nil; t.sign && !signed {
				return fmt.Errorf("function call is missing a thought_signature in functionCall parts (%s)", f.Name)
			}
			t.open = append(t.open, *f)
			turn.Calls = append(turn.Calls, Call{ID: t.v.id(f), Name: f.Name, Arguments: string(f.Args)})
		case p.Text != nil:
			texts = append(texts, *p.Text)
		default:
			return fmt.Errorf("parts[%d]: not in a model's turn", i)
		}
	}
	turn.Text = strings.Join(texts, "\n")
	t.s.Messages = append(t.s.Messages, turn)
	return nil
}

func (v Gemini) id(f *geminiCall) string {
	if v.NoIDs {
		return ""
	}
	return f.ID
}

func (t *geminiTalk) user(c *geminiContent) error {
	turn := Turn{Role: "user"}
	var texts []string
	for i, p := range c.Parts {
		switch {
		case p.FunctionCall != nil || p.ThoughtSignature != nil:
			return fmt.Errorf("parts[%d]: not in a user's turn", i)
		case p.FunctionResponse != nil:
			if err := t.result(p.FunctionResponse); err != nil {
				return fmt.Errorf("parts[%d].functionResponse: %w", i, err)
			}
		case p.InlineData != nil:
			img, err := p.InlineData.image()
			if err != nil {
				return fmt.Errorf("parts[%d]: %w", i, err)
			}
			turn.Images = append(turn.Images, img)
		default:
			texts = append(texts, *p.Text)
		}
	}
	turn.Text = strings.Join(texts, "\n")
	if texts != nil || turn.Images != nil {
		t.s.Messages = append(t.s.Messages, turn)
	}
	return nil
}

// result finds the call that a result is of: by its id where it has one, else by
// its name.
func (t *geminiTalk) result(f *geminiResponse) error {
	at := slices.IndexFunc(t.open, func(c geminiCall) bool { return c.Name == f.Name && c.ID == f.ID })
	switch {
	case at < 0:
		return fmt.Errorf("no call of %q with the id %q waits for it", f.Name, f.ID)
	case len(f.Response) == 0 || f.Response[0] != '{':
		return errors.New("response: must be an object")
	case bytes.Contains(f.Response, []byte(`"$ref"`)):
		return errors.New("response: a reference that is not there")
	}
	t.open = slices.Delete(t.open, at, at+1)
	turn := Turn{Role: "tool", Text: string(f.Response), ResultOf: f.ID}
	if t.v.NoIDs {
		turn.ResultOf = f.Name
	}
	var text struct {
		Result *string `json:"result"`
	}
	if dec := json.NewDecoder(bytes.NewReader(f.Response)); true {
		dec.DisallowUnknownFields()
		if dec.Decode(&text) == nil && text.Result != nil {
			turn.Text = *text.Result
		}
	}
	for i, p := range f.Parts {
		img, err := p.InlineData.image()
		if err != nil || geminiVersion(t.s.Model) < 300 {
			return fmt.Errorf("parts[%d]: an image in a result: %w", i, err)
		}
		turn.Images = append(turn.Images, img)
	}
	t.s.Messages = append(t.s.Messages, turn)
	return nil
}

var geminiImages = []string{"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}

func (b *geminiBlob) image() (Image, error) {
	switch {
	case b == nil:
		return Image{}, errors.New("inlineData: missing")
	case !slices.Contains(geminiImages, b.MIMEType):
		return Image{}, fmt.Errorf("unsupported MIME type: %s", b.MIMEType)
	case !isBase64(b.Data):
		return Image{}, errors.New("inlineData.data: base64 decoding failed")
	}
	return Image{MediaType: b.MIMEType, Base64: b.Data}, nil
}

// isBase64 is what the API takes for bytes: either alphabet, as JSON of protocol
// buffers has it.
func isBase64(s string) bool {
	s = strings.TrimRight(s, "=")
	_, std := base64.RawStdEncoding.DecodeString(s)
	_, safe := base64.RawURLEncoding.DecodeString(s)
	return s != "" && (std == nil || safe == nil)
}
