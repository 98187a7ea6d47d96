package judge

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/registry"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// gemini is one fake, the vendor's SDK and our provider that both ask it.
type gemini struct {
	*vendors.Server

	sdk   *genai.Client
	ours  providers.Provider
	model string
}

func newGemini(t *testing.T, model string, noIDs bool) *gemini {
	t.Helper()
	g := &gemini{Server: vendors.New(t, vendors.Gemini{Base: "/v1beta", NoIDs: noIDs}), model: model}
	var err error
	g.sdk, err = genai.NewClient(t.Context(), &genai.ClientConfig{
		APIKey: "some-key", Backend: genai.BackendGeminiAPI,
		HTTPOptions: genai.HTTPOptions{BaseURL: g.URL, APIVersion: "v1beta"},
	})
	if err != nil {
		t.Fatal(err)
	}
	all := registry.New(&config.Config{Providers: map[string]*config.Provider{"gemini": {
		ID: "gemini", Kind: "gemini", BaseURL: g.URL + "/v1beta", APIKeyEnv: "GOOGLE_API_KEY", APIKey: config.NewSecret("some-key"), IdleTimeout: time.Minute,
	}}}, registry.Options{})
	g.ours = all["gemini"]
	t.Cleanup(func() { registry.Close(all) })
	return g
}

func (g *gemini) job(t *testing.T, body string) *providers.Job {
	t.Helper()
	r, err := wire.Parse(wire.Native, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return &providers.Job{Request: r, Model: g.model}
}

// heard is what an answer says, as either side reads it.
type heard struct {
	Text, Finish, Model string
	Calls               []string
	Usage               subjects.Usage
}

// usageOf translates the SDK's counts by what its documentation says of each.
func usageOf(u *genai.GenerateContentResponseUsageMetadata) subjects.Usage {
	if u == nil {
		return subjects.Usage{}
	}
	out := subjects.Usage{
		InputTokens:     int64(u.PromptTokenCount - u.CachedContentTokenCount + u.ToolUsePromptTokenCount),
		CacheReadTokens: int64(u.CachedContentTokenCount),
		OutputTokens:    int64(u.CandidatesTokenCount + u.ThoughtsTokenCount),
		ReasoningTokens: int64(u.ThoughtsTokenCount),
	}
	out.TotalTokens = out.InputTokens + out.OutputTokens
	if all := out.TotalTokens + out.CacheReadTokens; all != int64(u.TotalTokenCount) {
		panic(fmt.Sprintf("the counts do not add up: %d, and not %d", u.TotalTokenCount, all))
	}
	return out
}

// add takes one response of the SDK: the whole answer, or a piece of it.
func (h *heard) add(t *testing.T, r *genai.GenerateContentResponse) {
	t.Helper()
	if c := r.Candidates[0].Content; c != nil {
		for _, p := range c.Parts { // as r.Text does, which logs that there are other parts
			if !p.Thought {
				h.Text += p.Text
			}
		}
	}
	for _, c := range r.FunctionCalls() {
		args, err := json.Marshal(c.Args)
		if err != nil {
			t.Fatal(err)
		}
		if c.Args == nil {
			args = []byte("{}")
		}
		h.Calls = append(h.Calls, c.ID+" "+c.Name+string(args))
	}
	h.Model = r.ModelVersion
	if r.UsageMetadata != nil {
		h.Usage = usageOf(r.UsageMetadata)
	}
	switch reason := r.Candidates[0].FinishReason; {
	case reason == "":
	case reason == genai.FinishReasonStop && len(h.Calls) > 0:
		h.Finish = "tool_calls"
	case reason == genai.FinishReasonStop:
		h.Finish = "stop"
	case reason == genai.FinishReasonMaxTokens:
		h.Finish = "length"
	case reason == genai.FinishReasonSafety:
		h.Finish = "content_filter"
	default:
		t.Errorf("finish reason %s", reason)
	}
}

func oursHeard(text string, calls []subjects.ToolCall, r *wire.Response, noIDs bool) heard {
	h := heard{Text: text, Finish: r.FinishReason, Model: r.Model, Usage: r.Usage}
	for _, c := range calls {
		id := c.ID
		if noIDs {
			id = "" // made by us
		}
		h.Calls = append(h.Calls, id+" "+c.Name+c.Arguments)
	}
	return h
}

var geminiAnswers = map[string]*vendors.Answer{
	"text":     {Pieces: []string{"Hel", "lo, ", "wörld ✓\n", "\"<&>"}, Usage: vendors.Usage{Fresh: 11, CacheRead: 30, Output: 9, Reasoning: 2}},
	"thoughts": {Pieces: []string{"4"}, Reasoning: "two and two", Usage: vendors.Usage{Fresh: 3, Output: 12, Reasoning: 11}},
	"calls":    {Pieces: []string{"I look."}, Calls: []vendors.Call{{ID: "c1", Name: "f", Arguments: `{"a":1,"b":[true,"x y"]}`}, {ID: "c2", Name: "g"}}, Usage: vendors.Usage{Fresh: 5, Output: 5}},
	"cut":      {Pieces: []string{"so f"}, Finish: vendors.FinishLength, Usage: vendors.Usage{Fresh: 5, Output: 1}},
	"filtered": {Pieces: []string{"so f"}, Finish: vendors.FinishFilter, Usage: vendors.Usage{Fresh: 5, Output: 1}},
}

// What the vendor's SDK reads of an answer is what our provider reads, whole and
// as a stream.
func TestGeminiAnswers(t *testing.T) {
	t.Parallel()
	for _, noIDs := range []bool{false, true} {
		g := newGemini(t, "gemini-3.8-flash", noIDs)
		const ask = `{"messages":[{"role":"user","content":"hi"}]}`
		for name, answer := range geminiAnswers {
			script := vendors.Script{Answer: answer}
			g.Next(script, script, script, script)
			var wholeSDK, streamSDK heard
			r, err := g.sdk.Models.GenerateContent(t.Context(), g.model, genai.Text("hi"), nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			wholeSDK.add(t, r)
			for r, err := range g.sdk.Models.GenerateContentStream(t.Context(), g.model, genai.Text("hi"), nil) {
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				streamSDK.add(t, r)
			}
			resp, err := g.ours.Complete(t.Context(), g.job(t, ask))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			whole := oursHeard(resp.Text, resp.ToolCalls, resp, noIDs)
			text, calls := "", []subjects.ToolCall(nil)
			resp, err = g.ours.Stream(t.Context(), g.job(t, ask), func(ev *wire.Event) error {
				text += ev.Text
				if ev.ToolCall != nil {
					calls = append(calls, *ev.ToolCall)
				}
				return nil
			})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			stream := oursHeard(text, calls, resp, noIDs)
			for how, pair := range map[string][2]heard{"whole": {whole, wholeSDK}, "stream": {stream, streamSDK}} {
				if !reflect.DeepEqual(pair[0], pair[1]) {
					t.Errorf("%s, %s:\nours %+v\n SDK %+v", name, how, pair[0], pair[1])
				}
			}
		}
	}
}

// asked is one request, in our native form and in the SDK's types.
type asked struct {
	native   string
	contents []*genai.Content
	config   *genai.GenerateContentConfig
}

func ptr[T any](v T) *T { return &v }

func user(parts ...*genai.Part) *genai.Content { return &genai.Content{Role: "user", Parts: parts} }

func model(parts ...*genai.Part) *genai.Content { return &genai.Content{Role: "model", Parts: parts} }
func text(s string) *genai.Part                 { return &genai.Part{Text: s} }

const (
	geminiSchema = `{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"required":["a"],"additionalProperties":false,"$defs":{"x":{"type":["string","null"],"const":"q"}}}`
	geminiTools  = `[{"name":"f","description":"d","parameters":` + geminiSchema + `},{"name":"g"}]`
)

func schema(t *testing.T) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(geminiSchema), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func geminiAsks(t *testing.T) map[string]asked {
	t.Helper()
	declared := []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{
		{Name: "f", Description: "d", ParametersJsonSchema: schema(t)}, {Name: "g"},
	}}}
	choice := func(mode genai.FunctionCallingConfigMode, names ...string) *genai.ToolConfig {
		return &genai.ToolConfig{FunctionCallingConfig: &genai.FunctionCallingConfig{Mode: mode, AllowedFunctionNames: names}}
	}
	hi := []*genai.Content{user(text("hi"))}
	const nativeHi = `"messages":[{"role":"user","content":"hi"}]`
	return map[string]asked{
		"plain": {`{` + nativeHi + `}`, hi, nil},
		"settings": {
			`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"}],"temperature":0.5,"topP":0.25,"maxTokens":77,"stop":["a","b"],"seed":-3,"reasoningEffort":"low"}`,
			hi,
			&genai.GenerateContentConfig{
				SystemInstruction: &genai.Content{Parts: []*genai.Part{text("s")}},
				Temperature:       ptr(float32(0.5)), TopP: ptr(float32(0.25)), MaxOutputTokens: 77, StopSequences: []string{"a", "b"}, Seed: ptr(int32(-3)),
				ThinkingConfig: &genai.ThinkingConfig{ThinkingLevel: genai.ThinkingLevelLow},
			},
		},
		"schema": {
			`{` + nativeHi + `,"responseFormat":{"type":"json_schema","schema":` + geminiSchema + `}}`, hi,
			&genai.GenerateContentConfig{ResponseMIMEType: "application/json", ResponseJsonSchema: schema(t)},
		},
		"JSON":           {`{` + nativeHi + `,"responseFormat":{"type":"json_object"}}`, hi, &genai.GenerateContentConfig{ResponseMIMEType: "application/json"}},
		"tools":          {`{` + nativeHi + `,"tools":` + geminiTools + `}`, hi, &genai.GenerateContentConfig{Tools: declared}},
		"one tool":       {`{` + nativeHi + `,"tools":` + geminiTools + `,"toolChoice":{"name":"g"}}`, hi, &genai.GenerateContentConfig{Tools: declared, ToolConfig: choice(genai.FunctionCallingConfigModeAny, "g")}},
		"some tool":      {`{` + nativeHi + `,"tools":` + geminiTools + `,"toolChoice":"required"}`, hi, &genai.GenerateContentConfig{Tools: declared, ToolConfig: choice(genai.FunctionCallingConfigModeAny)}},
		"no tool":        {`{` + nativeHi + `,"tools":` + geminiTools + `,"toolChoice":"none"}`, hi, &genai.GenerateContentConfig{Tools: declared, ToolConfig: choice(genai.FunctionCallingConfigModeNone)}},
		"whichever tool": {`{` + nativeHi + `,"tools":` + geminiTools + `,"toolChoice":"auto"}`, hi, &genai.GenerateContentConfig{Tools: declared, ToolConfig: choice(genai.FunctionCallingConfigModeAuto)}},
		"images": {
			`{"messages":[{"role":"user","content":[{"type":"text","text":"what?"},{"type":"image","imageUrl":"data:image/png;base64,iVBORw0KGgo="}]}]}`,
			[]*genai.Content{user(text("what?"), genai.NewPartFromBytes([]byte("\x89PNG\r\n\x1a\n"), "image/png"))},
			nil,
		},
		"tool turns": {
			`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"I look","toolCalls":[{"id":"1","name":"f","arguments":"{\"a\":1}"},{"id":"2","name":"g","arguments":"{}"}]},
			 {"role":"tool","toolCallId":"1","content":"{\"ok\":true}"},{"role":"tool","toolCallId":"2","content":"fine"},{"role":"assistant","content":"So."},{"role":"user","content":"And?"}],"tools":` + geminiTools + `}`,
			[]*genai.Content{
				user(text("q")),
				model(text("I look"),
					&genai.Part{FunctionCall: &genai.FunctionCall{ID: "1", Name: "f", Args: map[string]any{"a": 1}}, ThoughtSignature: noSignature(t)},
					&genai.Part{FunctionCall: &genai.FunctionCall{ID: "2", Name: "g", Args: map[string]any{}}}),
				user(&genai.Part{FunctionResponse: &genai.FunctionResponse{ID: "1", Name: "f", Response: map[string]any{"ok": true}}},
					&genai.Part{FunctionResponse: &genai.FunctionResponse{ID: "2", Name: "g", Response: map[string]any{"result": "fine"}}}),
				model(text("So.")), user(text("And?")),
			},
			&genai.GenerateContentConfig{Tools: declared},
		},
	}
}

// bypass is the documented value in place of a thought signature. In JSON of
// protocol buffers it is base64 of the alphabet for URLs; the SDK writes and
// reads the other alphabet alone.
const bypass = "skip_thought_signature_validator"

func noSignature(t *testing.T) []byte {
	t.Helper()
	b, err := base64.URLEncoding.DecodeString(bypass)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// normal is a body with the signature in the SDK's alphabet, and without what the
// SDK leaves out: an empty object of arguments.
func normal(t *testing.T, body []byte) string {
	t.Helper()
	s := strings.ReplaceAll(string(body), bypass, base64.StdEncoding.EncodeToString(noSignature(t)))
	return strings.ReplaceAll(s, `,"args":{}`, "")
}

// quirks takes out what the SDK writes and no documentation asks for: settings
// without a setting, and a speaker of the system's instruction.
func quirks(v any) {
	body, ok := v.(map[string]any)
	if !ok {
		return
	}
	if c, ok := body["generationConfig"].(map[string]any); ok && len(c) == 0 {
		delete(body, "generationConfig")
	}
	if system, ok := body["systemInstruction"].(map[string]any); ok {
		delete(system, "role")
	}
}

func sameBody(t *testing.T, name, ours, theirs string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(ours), &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(theirs), &b); err != nil {
		t.Fatal(err)
	}
	quirks(b)
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%s:\nours %s\n SDK %s", name, ours, theirs)
	}
}

// What our provider sends is what the vendor's SDK sends for the same request.
func TestGeminiRequests(t *testing.T) {
	t.Parallel()
	g := newGemini(t, "gemini-3-flash-preview", false)
	for name, ask := range geminiAsks(t) {
		if _, err := g.sdk.Models.GenerateContent(t.Context(), g.model, ask.contents, ask.config); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		resp, err := g.ours.Complete(t.Context(), g.job(t, ask.native))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(resp.Warnings) > 0 {
			t.Errorf("%s: warnings %q", name, resp.Warnings)
		}
		calls := g.Calls()
		theirs, ours := calls[len(calls)-2], calls[len(calls)-1]
		sameBody(t, name, normal(t, ours.Body), normal(t, theirs.Body))
		if ours.Path != theirs.Path || ours.Query != theirs.Query || ours.Secret != theirs.Secret {
			t.Errorf("%s: %s?%s, the SDK %s?%s", name, ours.Path, ours.Query, theirs.Path, theirs.Query)
		}
	}
}

// geminiBody has the SDK's own type for each member of a request.
type geminiBody struct {
	Contents          []*genai.Content        `json:"contents,omitempty"`
	SystemInstruction *genai.Content          `json:"systemInstruction,omitempty"`
	Tools             []*genai.Tool           `json:"tools,omitempty"`
	ToolConfig        *genai.ToolConfig       `json:"toolConfig,omitempty"`
	GenerationConfig  *genai.GenerationConfig `json:"generationConfig,omitempty"`
}

// Every body that we write is read into the SDK's types, and what they write of
// it is the same: we send no field that they do not know, and none of a type that
// they do not have.
func TestGeminiBodiesAreTheSDKs(t *testing.T) {
	t.Parallel()
	asks := []string{
		`{"messages":[{"role":"assistant","content":null,"toolCalls":[{"id":"1","name":"f","arguments":"{}"}]},{"role":"tool","toolCallId":"1","content":[{"type":"text","text":"see"},{"type":"image","imageUrl":"data:image/png;base64,iVBORw0KGgo="}]}]}`,
		`{"messages":[{"role":"user","content":"hi"}],"reasoningEffort":"high","maxTokens":5}`,
		`{"messages":[{"role":"system","content":"a"},{"role":"system","content":"b"},{"role":"user","content":"hi"},{"role":"user","content":"ho"}]}`,
	}
	for _, a := range geminiAsks(t) {
		asks = append(asks, a.native)
	}
	for _, model := range []string{"gemini-2.0-flash", "gemini-2.5-flash", "gemini-3.1-pro-preview", "gemini-4-argon"} {
		for _, ask := range asks {
			r, err := wire.Parse(wire.Native, []byte(ask))
			if err != nil {
				t.Fatal(err)
			}
			chat, err := r.Chat()
			if err != nil {
				t.Fatal(err)
			}
			chat.PresencePenalty, chat.FrequencyPenalty = ptr(0.5), ptr(0.25)
			body, _, err := wire.EncodeGemini(chat, model)
			if subjects.AsError(err) != nil && subjects.AsError(err).Status() == 422 {
				continue // this model cannot take it
			}
			if err != nil {
				t.Fatal(err)
			}
			ours := normal(t, body)
			var typed geminiBody
			dec := json.NewDecoder(strings.NewReader(ours))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&typed); err != nil {
				t.Fatalf("%s: %v\n%s", model, err, ours)
			}
			again, err := json.Marshal(&typed)
			if err != nil {
				t.Fatal(err)
			}
			sameBody(t, model, ours, normal(t, again))
		}
	}
}

// The finish reasons of the SDK are all known: none of them is taken for a
// success by mistake.
func TestGeminiFinishReasons(t *testing.T) {
	t.Parallel()
	good := []genai.FinishReason{
		genai.FinishReasonStop, genai.FinishReasonMaxTokens, genai.FinishReasonContinuation, genai.FinishReasonSafety, genai.FinishReasonRecitation,
		genai.FinishReasonBlocklist, genai.FinishReasonProhibitedContent, genai.FinishReasonSPII, genai.FinishReasonImageSafety,
		genai.FinishReasonImageProhibitedContent, genai.FinishReasonImageRecitation,
	}
	bad := []genai.FinishReason{
		genai.FinishReasonUnspecified, genai.FinishReasonLanguage, genai.FinishReasonOther, genai.FinishReasonMalformedFunctionCall,
		genai.FinishReasonUnexpectedToolCall, genai.FinishReasonTooManyToolCalls, genai.FinishReasonNoImage, genai.FinishReasonImageOther,
	}
	for _, reason := range slices.Concat(good, bad) {
		_, err := wire.ReadGemini([]byte(`{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"` + string(reason) + `"}]}`))
		if slices.Contains(good, reason) != (err == nil) {
			t.Errorf("%s: %v", reason, err)
		}
	}
}
