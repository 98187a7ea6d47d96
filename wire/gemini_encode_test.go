package wire

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/subjects"
)

// nativeChat is the hub form of a native request.
func nativeChat(t testing.TB, body string) *Chat {
	t.Helper()
	r, err := Parse(Native, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.Chat()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	geminiHi    = `"messages":[{"role":"user","content":"hi"}]`
	geminiHiOut = `"contents":[{"role":"user","parts":[{"text":"hi"}]}]`
)

const geminiFlash = "gemini-2.5-flash"

// geminiCase is one request and its body.
type geminiCase struct {
	name, model, in, want string
	warnings              []string
}

func TestEncodeGeminiPrompt(t *testing.T) {
	t.Parallel()
	const flash = geminiFlash
	testEncodeGemini(t, []geminiCase{
		{"plain", flash, `{` + geminiHi + `}`, `{` + geminiHiOut + `}`, nil},
		{
			"turns of one speaker are one turn", flash,
			`{"messages":[{"role":"system","content":"a"},{"role":"system","content":[{"type":"text","text":"b"},{"type":"text","text":"c"}]},
			 {"role":"user","content":"1"},{"role":"user","content":[{"type":"text","text":"2"},{"type":"text","text":""}]},
			 {"role":"assistant","content":"3"},{"role":"assistant","content":""},{"role":"user","content":""}]}`,
			`{"systemInstruction":{"parts":[{"text":"a"},{"text":"b\nc"}]},"contents":[{"role":"user","parts":[{"text":"1"},{"text":"2"}]},
			 {"role":"model","parts":[{"text":"3"}]},{"role":"user","parts":[{"text":""}]}]}`, nil,
		},
		{
			"a later system message", flash,
			`{"messages":[{"role":"user","content":"1"},{"role":"system","content":"s"},{"role":"user","content":"2"}]}`,
			`{"systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"role":"user","parts":[{"text":"1"},{"text":"2"}]}]}`,
			[]string{"gemini has one system instruction; a later system message was moved to the front"},
		},
		{
			"system messages alone", flash, `{"messages":[{"role":"system","content":"s"}],"seed":3}`,
			`{"contents":[{"role":"user","parts":[{"text":"s"}]}],"generationConfig":{"seed":3}}`,
			[]string{"gemini needs a user message; the system message was sent as one"},
		},
		{
			"images", flash,
			`{"messages":[{"role":"user","content":[{"type":"image","imageUrl":"data:image/jpg;base64,AA+/","detail":"low"},{"type":"text","text":"what?"},{"type":"image","imageUrl":"data:image/png;x=y;base64,AA==","detail":"auto"}]}]}`,
			`{"contents":[{"role":"user","parts":[{"inlineData":{"mimeType":"image/jpeg","data":"AA+/"}},{"text":"what?"},{"inlineData":{"mimeType":"image/png","data":"AA=="}}]}]}`,
			[]string{"an image's detail is not supported by gemini and was left out"},
		},
		{"names", flash, `{"messages":[{"role":"user","name":"bob","content":"hi"},{"role":"user","name":"eve","content":"ho"}]}`, `{"contents":[{"role":"user","parts":[{"text":"hi"},{"text":"ho"}]}]}`, []string{"a message's name is not supported by gemini and was left out"}},
		{"a turn that the model is to go on with", flash, `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"{"}]}`, `{"contents":[{"role":"user","parts":[{"text":"hi"}]},{"role":"model","parts":[{"text":"{"}]}]}`, nil},
	})
}

func TestEncodeGeminiSettings(t *testing.T) {
	t.Parallel()
	const flash = geminiFlash
	testEncodeGemini(t, []geminiCase{
		{
			"everything that is carried", flash,
			`{` + geminiHi + `,"temperature":0.5,"topP":1,"maxTokens":7,"stop":["a","b"],"seed":-9,"responseFormat":{"type":"json_schema","name":"n","strict":true,"schema":{"type":"object","$defs":{}}}}`,
			`{` + geminiHiOut + `,"generationConfig":{"temperature":0.5,"topP":1,"seed":-9,"maxOutputTokens":7,"stopSequences":["a","b"],"responseMimeType":"application/json","responseJsonSchema":{"type":"object","$defs":{}}}}`, nil,
		},
		{"JSON mode", flash, `{` + geminiHi + `,"responseFormat":{"type":"json_object"}}`, `{` + geminiHiOut + `,"generationConfig":{"responseMimeType":"application/json"}}`, nil},
		{"text", flash, `{` + geminiHi + `,"responseFormat":{"type":"text"}}`, `{` + geminiHiOut + `}`, nil},
		{
			"a seed of 64 bits, several calls at once", flash,
			`{` + geminiHi + `,"seed":2147483648,"parallelToolCalls":false,"tools":[{"name":"f","strict":true}]}`,
			`{` + geminiHiOut + `,"tools":[{"functionDeclarations":[{"name":"f"}]}]}`,
			[]string{"a tool's strict is not supported by gemini and was left out", "a seed of more than 32 bits is not supported by gemini and was left out", "parallelToolCalls is not supported by gemini and was left out"},
		},
		{"parallelToolCalls without tools", flash, `{` + geminiHi + `,"parallelToolCalls":false}`, `{` + geminiHiOut + `}`, nil},
		{
			"tools", flash,
			`{` + geminiHi + `,"tools":[{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"$ref":"#/x"}}}},
			 {"name":"g","parameters":{"type":"object","properties":{},"required":[],"additionalProperties":false}},
			 {"name":"h","parameters":{"type":"object","properties":{},"additionalProperties":true}}],"toolChoice":{"name":"g"}}`,
			`{` + geminiHiOut + `,"tools":[{"functionDeclarations":[{"name":"f","description":"d","parametersJsonSchema":{"type":"object","properties":{"a":{"$ref":"#/x"}}}},
			 {"name":"g"},{"name":"h","parametersJsonSchema":{"type":"object","properties":{},"additionalProperties":true}}]}],
			 "toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["g"]}}}`, nil,
		},
		{"a call is forced", flash, `{` + geminiHi + `,"tools":[{"name":"f"}],"toolChoice":"required"}`, `{` + geminiHiOut + `,"tools":[{"functionDeclarations":[{"name":"f"}]}],"toolConfig":{"functionCallingConfig":{"mode":"ANY"}}}`, nil},
		{"no call is wanted", flash, `{` + geminiHi + `,"tools":[{"name":"f"}],"toolChoice":"none"}`, `{` + geminiHiOut + `,"tools":[{"functionDeclarations":[{"name":"f"}]}],"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}}`, nil},
		{"the model may choose", flash, `{` + geminiHi + `,"tools":[{"name":"f"}],"toolChoice":"auto"}`, `{` + geminiHiOut + `,"tools":[{"functionDeclarations":[{"name":"f"}]}],"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}}}`, nil},
		{"tool choice without tools", flash, `{` + geminiHi + `,"toolChoice":"none"}`, `{` + geminiHiOut + `}`, nil},
		{
			"tools and JSON together, from Gemini 3 on", "gemini-3-flash-preview", `{` + geminiHi + `,"tools":[{"name":"f"}],"responseFormat":{"type":"json_object"}}`,
			`{` + geminiHiOut + `,"tools":[{"functionDeclarations":[{"name":"f"}]}],"generationConfig":{"responseMimeType":"application/json"}}`, nil,
		},
		{
			"sampling that is fixed", "models/gemini-3.8-flash", `{` + geminiHi + `,"temperature":0,"topP":0.5,"seed":1}`, `{` + geminiHiOut + `,"generationConfig":{"seed":1}}`,
			[]string{"temperature is not supported by models/gemini-3.8-flash and was left out", "topP is not supported by models/gemini-3.8-flash and was left out"},
		},
	})
}

func testEncodeGemini(t *testing.T, cases []geminiCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, warnings, err := EncodeGemini(nativeChat(t, tc.in), tc.model)
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, got, tc.want)
			if !ValidJSON(got) {
				t.Errorf("not valid: %s", got)
			}
			if !slices.Equal(warnings, tc.warnings) {
				t.Errorf("warnings %q, want %q", warnings, tc.warnings)
			}
		})
	}
}

// A conversation in which tools were used: calls and results, two at once and
// one after the other.
func TestEncodeGeminiToolTurns(t *testing.T) {
	t.Parallel()
	chat := nativeChat(t, `{"messages":[{"role":"user","content":"q"},
	 {"role":"assistant","content":"I look","toolCalls":[{"id":"1","name":"f","arguments":" {\"a\": 1} "},{"id":"2","name":"g","arguments":""}]},
	 {"role":"tool","toolCallId":"2","content":"plain"},
	 {"role":"tool","toolCallId":"1","content":[{"type":"text","text":"{\"ok\": true}"}]},
	 {"role":"user","content":"go on"},
	 {"role":"assistant","content":null,"toolCalls":[{"id":"1","name":"h","arguments":"not json"}]},
	 {"role":"tool","toolCallId":"1","content":"[1]"}]}`)
	const sign = `,"thoughtSignature":"skip_thought_signature_validator"`
	want := func(sign string) string {
		return `{"contents":[{"role":"user","parts":[{"text":"q"}]},
		 {"role":"model","parts":[{"text":"I look"},{"functionCall":{"id":"1","name":"f","args":{"a":1}}` + sign + `},{"functionCall":{"id":"2","name":"g","args":{}}}]},
		 {"role":"user","parts":[{"functionResponse":{"id":"2","name":"g","response":{"result":"plain"}}},{"functionResponse":{"id":"1","name":"f","response":{"ok":true}}}]},
		 {"role":"user","parts":[{"text":"go on"}]},
		 {"role":"model","parts":[{"functionCall":{"id":"1","name":"h","args":{"arguments":"not json"}}` + sign + `}]},
		 {"role":"user","parts":[{"functionResponse":{"id":"1","name":"h","response":{"result":"[1]"}}}]}]}`
	}
	for model, want := range map[string]string{
		"gemini-2.5-pro": want(""), "gemini-3.1-pro-preview": want(sign), "gemini-4-argon": want(sign),
		"gemini-flash-latest": want(sign), "gemma-3-27b-it": want(""),
	} {
		got, warnings, err := EncodeGemini(chat, model)
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, got, want)
		if !slices.Equal(warnings, []string{"a tool call's arguments that are no JSON object were sent to gemini as text"}) {
			t.Errorf("warnings %q", warnings)
		}
	}
}

// What a tool answered is an object where that loses nothing.
func TestEncodeGeminiToolResults(t *testing.T) {
	t.Parallel()
	for result, want := range map[string]string{
		``:                             `{"result":""}`,
		`true`:                         `{"result":"true"}`,
		`"x"`:                          `{"result":"\"x\""}`,
		`{"a":{"b":[1,-2.5e7,null]}}`:  `{"a":{"b":[1,-2.5e7,null]}}`,
		` {} `:                         `{}`,
		`{"a":1`:                       `{"result":"{\"a\":1"}`,
		`{"a":1} {}`:                   `{"result":"{\"a\":1} {}"}`,
		`{"$ref":"#/a"}`:               `{"result":"{\"$ref\":\"#/a\"}"}`,
		`{"a":[{"\u0024ref" : "x"}]}`:  `{"result":"{\"a\":[{\"\\u0024ref\" : \"x\"}]}"}`,
		`{"a":"$ref"}`:                 `{"a":"$ref"}`,
		`{"id":1234567890123456}`:      `{"result":"{\"id\":1234567890123456}"}`,
		`{"id":123456789012345}`:       `{"id":123456789012345}`,
		`{"x":0.00000000000000000001}`: `{"x":0.00000000000000000001}`,
		`{"x":"1234567890123456789"}`:  `{"x":"1234567890123456789"}`,
	} {
		chat := &Chat{}
		chat.Messages = []subjects.Message{
			{Role: "assistant", ToolCalls: []subjects.ToolCall{{ID: "1", Name: "f"}}},
			{Role: "tool", ToolCallID: "1", Content: subjects.Text(result)},
		}
		got, _, err := EncodeGemini(chat, "gemini-2.5-flash")
		if err != nil {
			t.Fatal(err)
		}
		if v := view(got).get("contents"); !strings.Contains(string(v), `"response":`) {
			t.Errorf("%s: %s", result, got)
		}
		sameJSON(t, []byte(geminiResponse(got)), want)
	}
}

func geminiResponse(body []byte) (found raw) {
	for _, turn := range view(body).get("contents").items() {
		for _, part := range turn.get("parts").items() {
			if v := part.get("functionResponse").get("response"); v != "" {
				found = v
			}
		}
	}
	return found
}

func TestEncodeGeminiImageInAToolResult(t *testing.T) {
	t.Parallel()
	chat := nativeChat(t, `{"messages":[{"role":"assistant","content":null,"toolCalls":[{"id":"1","name":"f","arguments":"{}"}]},
	 {"role":"tool","toolCallId":"1","content":[{"type":"text","text":"see"},{"type":"image","imageUrl":"data:image/png;base64,AA=="}]}]}`)
	got, _, err := EncodeGemini(chat, "gemini-3-flash-preview")
	if err != nil {
		t.Fatal(err)
	}
	if want := `"functionResponse":{"id":"1","name":"f","response":{"result":"see"},"parts":[{"inlineData":{"mimeType":"image/png","data":"AA=="}}]}`; !strings.Contains(string(got), want) {
		t.Errorf("%s", got)
	}
	if _, _, err := EncodeGemini(chat, "gemini-2.5-flash"); !movesOn(err) {
		t.Errorf("2.5: %v", err)
	}
}

// movesOn reports whether an error lets the chain go on without blame.
func movesOn(err error) bool {
	e := subjects.AsError(err)
	return err != nil && e.Kind == subjects.KindProviderUnavailable && e.Status() == 422
}

func TestEncodeGeminiRefuses(t *testing.T) {
	t.Parallel()
	image := func(url string) string {
		return `{"messages":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"},{"type":"image","imageUrl":"` + url + `"}]}]}`
	}
	for _, tc := range []struct {
		name, model, in, message string
		on                       bool // the call moves on to another provider
	}{
		{"no such call", "gemini-2.5-pro", `{"messages":[{"role":"assistant","content":null,"toolCalls":[{"id":"1","name":"f","arguments":"{}"}]},{"role":"tool","toolCallId":"2","content":"x"}]}`, "messages[1].toolCallId: no message before it has a tool call of that id; send the call with its result", false},
		{"a result before its call", "gemini-2.5-pro", `{"messages":[{"role":"tool","toolCallId":"1","content":"x"},{"role":"assistant","content":null,"toolCalls":[{"id":"1","name":"f","arguments":"{}"}]}]}`, "messages[0].toolCallId: ", false},
		{"no media type", "gemini-2.5-pro", image("data:;base64,AA=="), "messages[1].content[1]: must be a data: URL with a media type", false},
		{"no data", "gemini-2.5-pro", image("data:image/png;base64,"), "messages[1].content[1]: ", false},
		{"an image by URL", "gemini-2.5-pro", image("https://x/a.png"), "gemini-2.5-pro cannot take an image by URL; another provider may", true},
		{"too many stop sequences", "gemini-4-neon", `{` + geminiHi + `,"stop":["1","2","3","4","5","6"]}`, "gemini-4-neon cannot take 6 stop sequences (5 at most)", true},
		{"tools and JSON", "gemini-2.5-flash", `{` + geminiHi + `,"tools":[{"name":"f"}],"responseFormat":{"type":"json_schema","schema":{}}}`, "tools and a JSON format together", true},
		{"the model's own turn comes last", "gemini-3.6-flash", `{"messages":[{"role":"assistant","content":"a"}]}`, "a conversation that ends with the assistant's turn", true},
		{"an image in a system message", "gemini-2.5-flash", `{"messages":[{"role":"system","content":[{"type":"image","imageUrl":"data:image/png;base64,AA=="}]},{"role":"user","content":"a"}]}`, "an image in a system message", true},
	} {
		_, _, err := EncodeGemini(nativeChat(t, tc.in), tc.model)
		e := subjects.AsError(err)
		if err == nil || !strings.Contains(e.Message, tc.message) {
			t.Errorf("%s: %v", tc.name, err)
		} else if tc.on != movesOn(err) || !tc.on && e.Kind != subjects.KindValidation {
			t.Errorf("%s: kind %s, status %d", tc.name, e.Kind, e.Status())
		}
	}
	chat := &Chat{}
	chat.Messages = []subjects.Message{{Role: "wizard"}}
	if _, _, err := EncodeGemini(chat, "m"); subjects.KindOf(err) != subjects.KindValidation {
		t.Error(err)
	}
}

func TestEncodeGeminiPenaltiesAndTheRest(t *testing.T) {
	t.Parallel()
	some, none := 0.5, 0.0
	chat := nativeChat(t, `{`+geminiHi+`}`)
	chat.PresencePenalty, chat.FrequencyPenalty, chat.User, chat.Left = &some, &none, "me", []string{"metadata", "store"}
	got, warnings, err := EncodeGemini(chat, "gemini-2.0-flash")
	if err != nil {
		t.Fatal(err)
	}
	sameJSON(t, got, `{`+geminiHiOut+`,"generationConfig":{"presencePenalty":0.5}}`)
	left := func(what string) string { return what + " is not supported by gemini and was left out" }
	if want := []string{left("user"), left("metadata"), left("store")}; !slices.Equal(warnings, want) {
		t.Errorf("warnings %q", warnings)
	}
	got, warnings, _ = EncodeGemini(chat, "gemini-2.5-pro")
	sameJSON(t, got, `{`+geminiHiOut+`}`)
	if len(warnings) != 4 || warnings[0] != "presence_penalty is not supported by gemini-2.5-pro and was left out" {
		t.Errorf("warnings %q", warnings)
	}
}

func TestGeminiEffort(t *testing.T) {
	t.Parallel()
	level := func(s string) string { return `"thinkingLevel":"` + s + `"` }
	budget := func(s string) string { return `"thinkingBudget":` + s }
	for _, tc := range []struct {
		model string
		want  [7]string // for each of Efforts; a ! in front = with a warning
	}{
		{"gemini-2.5-flash", [7]string{budget("0"), budget("1024"), budget("1024"), budget("8192"), budget("24576"), "!" + budget("24576"), "!" + budget("24576")}},
		{"gemini-2.5-flash-lite", [7]string{budget("0"), budget("1024"), budget("1024"), budget("8192"), budget("24576"), "!" + budget("24576"), "!" + budget("24576")}},
		{"gemini-2.5-pro", [7]string{"!" + budget("128"), budget("1024"), budget("1024"), budget("8192"), budget("24576"), "!" + budget("24576"), "!" + budget("24576")}},
		{"gemini-3-pro-preview", [7]string{"!" + level("LOW"), level("LOW"), level("LOW"), level("HIGH"), level("HIGH"), "!" + level("HIGH"), "!" + level("HIGH")}},
		{"gemini-3.1-pro-preview", [7]string{"!" + level("LOW"), level("LOW"), level("LOW"), level("MEDIUM"), level("HIGH"), "!" + level("HIGH"), "!" + level("HIGH")}},
		{"gemini-3-flash-preview", [7]string{"!" + level("MINIMAL"), level("MINIMAL"), level("LOW"), level("MEDIUM"), level("HIGH"), "!" + level("HIGH"), "!" + level("HIGH")}},
		{"gemini-3.6-flash", [7]string{"!" + level("MINIMAL"), level("MINIMAL"), level("LOW"), level("MEDIUM"), level("HIGH"), "!" + level("HIGH"), "!" + level("HIGH")}},
		{"gemini-3.7-flash", [7]string{"!" + level("LOW"), level("LOW"), level("LOW"), level("MEDIUM"), level("HIGH"), "!" + level("HIGH"), "!" + level("HIGH")}},
		{"gemini-3.5-flash-lite", [7]string{"!" + level("MINIMAL"), level("MINIMAL"), level("LOW"), level("MEDIUM"), level("HIGH"), "!" + level("HIGH"), "!" + level("HIGH")}},
		{"gemini-4-argon", [7]string{"!" + level("LOW"), level("LOW"), level("LOW"), level("MEDIUM"), level("HIGH"), "!" + level("HIGH"), "!" + level("HIGH")}},
		{"gemini-flash-latest", [7]string{"!" + level("LOW"), level("LOW"), level("LOW"), level("MEDIUM"), level("HIGH"), "!" + level("HIGH"), "!" + level("HIGH")}},
		{"gemini-2.0-flash", [7]string{"!", "!", "!", "!", "!", "!", "!"}},
		{"gemma-3-27b-it", [7]string{"!", "!", "!", "!", "!", "!", "!"}},
	} {
		for i, effort := range Efforts {
			chat := nativeChat(t, `{`+geminiHi+`,"reasoningEffort":"`+effort+`"}`)
			got, warnings, err := EncodeGemini(chat, tc.model)
			if err != nil {
				t.Fatal(err)
			}
			want, warned := strings.CutPrefix(tc.want[i], "!")
			body := `{` + geminiHiOut + `}`
			if want != "" {
				body = `{` + geminiHiOut + `,"generationConfig":{"thinkingConfig":{` + want + `}}}`
			}
			sameJSON(t, got, body)
			if warned != (len(warnings) == 1) {
				t.Errorf("%s %s: warnings %q", tc.model, effort, warnings)
			}
		}
	}
	chat := nativeChat(t, `{`+geminiHi+`}`)
	chat.ReasoningEffort = "enormous"
	_, warnings, _ := EncodeGemini(chat, "gemini-4-argon")
	if !slices.Equal(warnings, []string{"reasoningEffort enormous is not supported by gemini-4-argon and was left out"}) {
		t.Errorf("%q", warnings)
	}
}

func TestGeminiModelOf(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]geminiModel{
		"gemini-2.5-flash":                 {major: 2, minor: 5, flash: true},
		"models/gemini-2.5-flash-lite":     {major: 2, minor: 5, lite: true},
		"Gemini-3-Pro-Preview":             {major: 3, pro: true},
		"google/gemini-3.10-flash":         {major: 3, minor: 10, flash: true},
		"gemini-4-argon":                   {major: 4},
		"gemini-pro-latest":                {major: geminiNewest, latest: true, pro: true},
		"gemini-flash-lite-latest":         {major: geminiNewest, latest: true, lite: true},
		"gemini-exp-1206":                  {},
		"gemini--1":                        {},
		"gemini-":                          {},
		"gemini-robotics-er-1.5-preview":   {},
		"gemma-3-27b-it":                   {},
		"":                                 {},
		"gemini-99999999999999999999999-x": {},
	} {
		want.id = id
		if got := geminiModelOf(id); got != want {
			t.Errorf("%s: %+v", id, got)
		}
	}
}

// Whatever the caller says in whichever wire, the body is valid JSON.
func FuzzEncodeGemini(f *testing.F) {
	for _, s := range []string{
		`{` + geminiHi + `}`,
		`{"messages":[{"role":"system","content":"s"}],"stop":"x","reasoningEffort":"none"}`,
		`{"messages":[{"role":"assistant","content":null,"toolCalls":[{"id":"1","name":"f","arguments":"{\"a\":1}"}]},{"role":"tool","toolCallId":"1","content":"{\"$ref\":1}"}],"tools":[{"name":"f","parameters":{"type":"object"}}],"toolChoice":"required"}`,
		`{"messages":[{"role":"user","content":[{"type":"image","imageUrl":"data:image/png;base64,AA=="}]}],"temperature":1,"responseFormat":{"type":"json_schema","schema":{"a":1}}}`,
	} {
		f.Add([]byte(s), "gemini-2.5-flash")
		f.Add([]byte(s), "gemini-4-argon")
	}
	f.Add([]byte(`{"messages":[{"role":"function","name":"f","content":"x"},{"role":"developer","content":"x"}],"functions":[{"name":"f"}],"n":1,"user":"u"}`), "gemma")
	f.Fuzz(func(t *testing.T, body []byte, model string) {
		for _, w := range []Name{Native, OpenAIChat} {
			r, err := Parse(w, body)
			if err != nil {
				continue
			}
			chat, err := r.Chat()
			if err != nil {
				continue
			}
			got, warnings, err := EncodeGemini(chat, model)
			switch {
			case err != nil && subjects.KindOf(err) != subjects.KindValidation && !movesOn(err):
				t.Fatalf("%v", err)
			case err == nil && !ValidJSON(got):
				t.Fatalf("not JSON: %s", got)
			}
			if seen := map[string]bool{}; len(warnings) > 0 {
				for _, w := range warnings {
					if seen[w] {
						t.Fatalf("twice: %s", w)
					}
					seen[w] = true
				}
			}
		}
	})
}
