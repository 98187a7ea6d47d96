package wire

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/subjects"
)

// anthropicBody parses a request and encodes it; it fails on an error.
func anthropicBody(t *testing.T, w Name, model, body string, stream bool) (string, []string) {
	t.Helper()
	r, err := Parse(w, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	chat, err := r.Chat()
	if err != nil {
		t.Fatal(err)
	}
	out, warnings, err := EncodeAnthropic(chat, model, stream)
	if err != nil {
		t.Fatal(err)
	}
	if !ValidJSON(out) {
		t.Fatalf("no JSON: %s", out)
	}
	return string(out), warnings
}

const userHi = `{"role":"user","content":"hi"}`

const anthropicHi = `"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]`

// Each case is a native request and the Messages request that says the same.
var anthropicBodies = []struct {
	name, model, in, want string
	warnings              []string
}{
	{
		"the least", "claude-haiku-4-5", `{"messages":[` + userHi + `]}`,
		`{"model":"claude-haiku-4-5","max_tokens":32000,` + anthropicHi + `}`, nil,
	},
	{
		"what is carried", "claude-haiku-4-5",
		`{"messages":[{"role":"system","content":"Be \"terse\"."},` + userHi + `],"temperature":0.2,"maxTokens":300,"stop":["END",""]}`,
		`{"model":"claude-haiku-4-5","max_tokens":300,"system":[{"type":"text","text":"Be \"terse\"."}],` + anthropicHi + `,"temperature":0.2,"stop_sequences":["END"]}`,
		nil,
	},
	{
		"turns of one role are one, blank texts and turns are left out", "claude-haiku-4-5",
		`{"messages":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":" "},{"type":"text","text":"b"}]},
			 {"role":"assistant","content":""},{"role":"user","content":"c"},{"role":"assistant","content":"d"},{"role":"assistant","content":"e \n"}]}`,
		`{"model":"claude-haiku-4-5","max_tokens":32000,"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"text","text":"c"}]},
			 {"role":"assistant","content":[{"type":"text","text":"d"},{"type":"text","text":"e"}]}]}`, nil,
	},
	{
		"tools, calls and results; results come first", "claude-sonnet-5-5",
		`{"tools":[{"name":"get","description":"d","parameters":{"type":"object","properties":{}},"strict":true},{"name":"none"},{"name":"bare","parameters":{"properties":{"x":{}}}},{"name":"empty","parameters":{},"strict":false}],
			 "toolChoice":"auto","parallelToolCalls":false,
			 "messages":[` + userHi + `,{"role":"assistant","content":"I look","toolCalls":[{"id":"a1","name":"get","arguments":" {\"q\": 1} "},{"id":"functions.get:0","name":"none","arguments":""}]},
			 {"role":"user","content":"and?"},
			 {"role":"tool","toolCallId":"a1","content":"42"},{"role":"tool","toolCallId":"functions.get:0","content":""}]}`,
		`{"model":"claude-sonnet-5-5","max_tokens":32000,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},
			 {"role":"assistant","content":[{"type":"text","text":"I look"},{"type":"tool_use","id":"a1","name":"get","input":{"q":1}},{"type":"tool_use","id":"functions_get_0_l6k2h60edjie","name":"none","input":{}}]},
			 {"role":"user","content":[{"type":"tool_result","tool_use_id":"a1","content":[{"type":"text","text":"42"}]},{"type":"tool_result","tool_use_id":"functions_get_0_l6k2h60edjie"},{"type":"text","text":"and?"}]}],
			 "tools":[{"name":"get","description":"d","input_schema":{"type":"object","properties":{}},"strict":true},{"name":"none","input_schema":{"type":"object"}},
			 {"name":"bare","input_schema":{"type":"object","properties":{"x":{}}}},{"name":"empty","input_schema":{"type":"object"}}],
			 "tool_choice":{"type":"auto","disable_parallel_tool_use":true}}`, nil,
	},
	{
		"arguments that are no object", "claude-haiku-4-5",
		`{"messages":[` + userHi + `,{"role":"assistant","content":"","toolCalls":[{"id":"1","name":"f","arguments":"[1]"},{"id":"2","name":"f","arguments":"{\"a\":"}]},{"role":"tool","toolCallId":"1","content":"x"},{"role":"tool","toolCallId":"2","content":"y"}]}`,
		`{"model":"claude-haiku-4-5","max_tokens":32000,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},
			 {"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{"arguments":"[1]"}},{"type":"tool_use","id":"2","name":"f","input":{"arguments":"{\"a\":"}}]},
			 {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"x"}]},{"type":"tool_result","tool_use_id":"2","content":[{"type":"text","text":"y"}]}]}]}`,
		[]string{"a tool call's arguments that are no JSON object were sent to anthropic as text"},
	},
	{
		"images", "claude-haiku-4-5",
		`{"messages":[{"role":"user","content":[{"type":"image","imageUrl":"data:image/jpg;base64,AAAA","detail":"low"},{"type":"image","imageUrl":"https://x/y.png","detail":"auto"}]}]}`,
		`{"model":"claude-haiku-4-5","max_tokens":32000,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"AAAA"}},{"type":"image","source":{"type":"url","url":"https://x/y.png"}}]}]}`,
		[]string{"an image's detail is not supported by anthropic and was left out"},
	},
	{
		"a schema and an effort", "claude-opus-4-8",
		`{"messages":[` + userHi + `],"reasoningEffort":"xhigh","responseFormat":{"type":"json_schema","name":"n","strict":true,"schema":{"type":"object","additionalProperties":false}}}`,
		`{"model":"claude-opus-4-8","max_tokens":32000,` + anthropicHi + `,"output_config":{"effort":"xhigh","format":{"type":"json_schema","schema":{"type":"object","additionalProperties":false}}}}`, nil,
	},
	{
		"only a system message", "claude-opus-5", `{"messages":[{"role":"system","content":"Say a joke."}]}`,
		`{"model":"claude-opus-5","max_tokens":32000,"messages":[{"role":"user","content":[{"type":"text","text":"Say a joke."}]}]}`,
		[]string{"anthropic needs a user message; the system message was sent as one"},
	},
	{
		"text is the default, and a seed is none of its own", "claude-haiku-4-5",
		`{"messages":[{"role":"user","content":"hi","name":"bob"}],"responseFormat":{"type":"text"},"seed":7,"topP":0.5,"temperature":1.7}`,
		`{"model":"claude-haiku-4-5","max_tokens":32000,` + anthropicHi + `,"temperature":1}`,
		[]string{
			"a message's name is not supported by anthropic and was left out",
			"a temperature above 1 is not supported by claude-haiku-4-5; 1 was used",
			"topP beside temperature is not supported by claude-haiku-4-5 and was left out",
			"seed is not supported by anthropic and was left out",
		},
	},
}

func TestEncodeAnthropic(t *testing.T) {
	t.Parallel()
	for _, tc := range anthropicBodies {
		t.Run(tc.name, func(t *testing.T) {
			got, warnings := anthropicBody(t, Native, tc.model, tc.in, false)
			sameJSON(t, []byte(got), tc.want)
			if !slices.Equal(warnings, tc.warnings) {
				t.Errorf("warnings %q", warnings)
			}
		})
	}
}

func TestEncodeAnthropicFromOpenAI(t *testing.T) {
	t.Parallel()
	got, warnings := anthropicBody(t, OpenAIChat, "claude-opus-4-6", `{"model":"x","stream":true,"n":1,"user":"jo@example.org","frequency_penalty":0.5,"presence_penalty":0,"service_tier":"flex",
	 "reasoning_effort":"minimal","max_completion_tokens":9,"top_p":0.9,"messages":[{"role":"developer","content":"d"},`+userHi+`]}`, true)
	sameJSON(t, []byte(got), `{"model":"claude-opus-4-6","max_tokens":9,"stream":true,"system":[{"type":"text","text":"d"}],"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],
	 "output_config":{"effort":"low"},"top_p":0.9,"metadata":{"user_id":"b6be3cb544f77c4e76ce1a92deed71a292e7a92f67c9b554b881605112283f95"}}`)
	want := []string{
		"reasoningEffort minimal is not supported by claude-opus-4-6; low was used",
		"user was sent to anthropic as its SHA-256",
		"frequency_penalty is not supported by anthropic and was left out",
		"service_tier is not supported by anthropic and was left out",
	}
	if !slices.Equal(warnings, want) {
		t.Errorf("warnings %q", warnings)
	}
	if strings.Contains(got, "jo@") {
		t.Error("the user's name went out")
	}
}

func TestEncodeAnthropicToolChoice(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ in, want string }{
		{`"toolChoice":"none","parallelToolCalls":false`, `{"type":"none"}`},
		{`"toolChoice":"required"`, `{"type":"any"}`},
		{`"toolChoice":{"name":"f"},"parallelToolCalls":false`, `{"type":"tool","name":"f","disable_parallel_tool_use":true}`},
		{`"parallelToolCalls":false`, `{"type":"auto","disable_parallel_tool_use":true}`},
		{`"parallelToolCalls":true`, ``},
	} {
		got, _ := anthropicBody(t, Native, "claude-haiku-4-5", `{"messages":[`+userHi+`],"tools":[{"name":"f"}],`+tc.in+`}`, false)
		if choice := string(view([]byte(got)).get("tool_choice")); choice != tc.want {
			t.Errorf("%s: %s", tc.in, choice)
		}
	}
	got, _ := anthropicBody(t, Native, "claude-haiku-4-5", `{"messages":[`+userHi+`],"toolChoice":"none","parallelToolCalls":false}`, false)
	if strings.Contains(got, "tool") {
		t.Errorf("without tools: %s", got)
	}
}

// A system message among the others stays there where the model heeds it, at
// the nearest place that the API allows, and is moved to the beginning elsewhere.
func TestEncodeAnthropicSystemInTheMiddle(t *testing.T) {
	t.Parallel()
	const moved = "a system message at its place in the conversation is not supported by claude-sonnet-4-5; it was moved to the beginning"
	say := func(roles string) string {
		var b strings.Builder
		for i, r := range roles {
			role := map[rune]string{'s': "system", 'u': "user", 'a': "assistant"}[r]
			b.WriteString(string(comma(nil, i)) + `{"role":"` + role + `","content":"` + string(rune('0'+i)) + `"}`)
		}
		return `{"messages":[` + b.String() + `]}`
	}
	for _, tc := range []struct{ roles, newer, older string }{
		{"suaus", "s0|u1|a2|u3|s4", "s04|u1|a2|u3"},
		{"suasu", "s0|u1|a2|u4|s3", "s03|u1|a2|u4"},
		{"ususu", "u024|s13", "s13|u024"},
		{"usau", "u0|s1|a2|u3", "s1|u0|a2|u3"},
		{"uas", "", "s2|u0|a1"},
		{"uasau", "u0|a13|u4|s2", "s2|u0|a13|u4"},
		{"ssu", "s01|u2", "s01|u2"},
	} {
		for model, want := range map[string]string{"claude-opus-4-8": tc.newer, "claude-sonnet-4-5": tc.older} {
			if want == "" {
				continue // it would end with the assistant, which the model refuses
			}
			got, warnings := anthropicBody(t, Native, model, say(tc.roles), false)
			if s := outline(got); s != want {
				t.Errorf("%s on %s: %s, not %s", tc.roles, model, s, want)
			}
			if model == "claude-sonnet-4-5" && slices.Contains(warnings, moved) != (tc.roles != "ssu") {
				t.Errorf("%s: %q", tc.roles, warnings)
			}
		}
	}
}

// outline writes a body's messages as the roles' first letters and the texts.
func outline(body string) string {
	v := view([]byte(body))
	var out []string
	texts := func(role string, content raw) {
		for _, b := range content.items() {
			role += b.get("text").str()
		}
		out = append(out, role)
	}
	if s := v.get("system"); s != "" {
		texts("s", s)
	}
	for _, m := range v.get("messages").items() {
		texts(m.get("role").str()[:1], m.get("content"))
	}
	return strings.Join(out, "|")
}

func TestEncodeAnthropicRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		wire      Name
		model, in string
		kind      subjects.Kind
		says      string
	}{
		{Native, "claude-haiku-4-5", `{"messages":[` + userHi + `],"stop":["END"," \n"]}`, subjects.KindProviderUnavailable, "no stop sequence of white space"},
		{Native, "claude-sonnet-4-6", `{"messages":[` + userHi + `,{"role":"assistant","content":"The"}]}`, subjects.KindProviderUnavailable, "does not go on from an assistant"},
		{Native, "claude-opus-5", `{"messages":[{"role":"user","content":"  "}]}`, subjects.KindValidation, "messages: have no text"},
		{Native, "claude-opus-5", `{"messages":[{"role":"system","content":[{"type":"text","text":"x"},{"type":"image","imageUrl":"https://x/y"}]},` + userHi + `]}`, subjects.KindValidation, "messages[0].content[1]: anthropic takes no image"},
		{OpenAIChat, "claude-opus-5", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":"ftp://x"}]}]}`, subjects.KindValidation, "messages[0].content[0]: the image's URL"},
		{OpenAIChat, "claude-opus-5", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":"data:;base64,AA"}]}]}`, subjects.KindValidation, "needs a media type"},
		{OpenAIChat, "claude-opus-5", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":"data:image/png,AA"}]}]}`, subjects.KindValidation, "needs a media type"},
		{OpenAIChat, "claude-opus-5", `{"messages":[` + userHi + `],"tool_choice":"required"}`, subjects.KindValidation, "toolChoice: asks for a tool"},
		{Native, "claude-opus-5-5", `{"messages":[` + userHi + `],"tools":[{"name":"f"}],"toolChoice":"required"}`, subjects.KindProviderUnavailable, "claude-opus-5-5 cannot be made to call a tool"},
		{Native, "claude-opus-5", `{"messages":[` + userHi + `],"responseFormat":{"type":"json_object"}}`, subjects.KindCapabilityMissing, "no JSON mode"},
	} {
		r, err := Parse(tc.wire, []byte(tc.in))
		if err != nil {
			t.Fatal(err)
		}
		chat, err := r.Chat()
		if err != nil {
			t.Fatal(err)
		}
		body, _, err := EncodeAnthropic(chat, tc.model, false)
		if subjects.KindOf(err) != tc.kind || body != nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.in, err)
		}
		var e *subjects.Error
		if errors.As(err, &e); tc.kind == subjects.KindProviderUnavailable && e.Status() != 422 {
			t.Errorf("status %d", e.Status())
		}
	}
}

func TestReadClaude(t *testing.T) {
	t.Parallel()
	type facts struct {
		sampling, thinks, forcible, system bool
		best                               string
		most, bound                        int64
	}
	for id, want := range map[string]facts{
		"claude-3-haiku-20240307":           {true, false, true, false, "", 4096, 4096},
		"claude-3-5-sonnet-20241022":        {true, false, true, false, "", 8192, 8192},
		"claude-3-7-sonnet-latest":          {true, false, true, false, "", 64000, 32000},
		"claude-opus-4-1-20250805":          {true, false, true, false, "", 32000, 32000},
		"claude-haiku-4-5":                  {true, false, true, false, "", 64000, 32000},
		"claude-sonnet-4-5-20250929":        {true, false, true, false, "", 64000, 32000},
		"claude-opus-4-5":                   {true, false, true, false, "high", 64000, 32000},
		"claude-sonnet-4.6":                 {true, false, true, false, "max", 128000, 32000},
		"claude-opus-4-7":                   {false, false, true, false, "max", 128000, 32000},
		"anthropic/claude-opus-4-8":         {false, false, true, true, "max", 128000, 32000},
		"claude-opus-5":                     {false, true, true, true, "max", 128000, 32000},
		"claude-sonnet-5":                   {false, true, true, false, "max", 128000, 32000},
		"claude-opus-5-5":                   {false, true, false, true, "max", 128000, 32000},
		"claude-sonnet-5-5":                 {false, true, false, true, "max", 128000, 32000},
		"claude-haiku-5-5":                  {false, true, true, true, "max", 128000, 32000},
		"claude-fable-5":                    {false, true, false, true, "max", 128000, 32000},
		"claude-mythos-preview":             {false, true, false, true, "max", 128000, 32000},
		"claude-opus-9":                     {false, true, false, true, "max", 128000, 32000},
		"claude-opus-latest":                {false, true, false, true, "max", 128000, 32000},
		"ai/qwen3:8B":                       {true, false, true, false, "", 0, 32000},
		"claude-2.1":                        {true, false, true, false, "", 4096, 4096},
		"Claude Sonnet 4.5":                 {true, false, true, false, "", 64000, 32000},
		"claude-":                           {false, true, false, true, "max", 0, 32000},
		strings.Repeat("claude-9-", 10_000): {false, true, false, true, "max", 128000, 32000},
	} {
		c := readClaude(id)
		got := facts{sampling: c.sampling(), thinks: c.thinks(), forcible: c.forcible(), system: c.systemTurns(), most: c.maxOutput(), bound: c.maxTokens()}
		if all := c.efforts(); len(all) > 0 {
			got.best = all[len(all)-1]
		}
		if got != want {
			t.Errorf("%.40s: %+v, not %+v", id, got, want)
		}
	}
}

func TestPrefill(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"claude-opus-4-5": true, "claude-haiku-4-5": true, "claude-sonnet-4-5": true, "m": true,
		"claude-opus-4-6": false, "claude-sonnet-4-6": false, "claude-haiku-5-5": false, "claude-fable-5": false,
	} {
		if readClaude(id).prefill() != want {
			t.Error(id)
		}
	}
}

func TestEncodeAnthropicEffort(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		model, asked, sent string
		warned             bool
	}{
		{"claude-haiku-4-5", "high", "", true},
		{"claude-haiku-4-5", "none", "", false},
		{"claude-opus-4-5", "max", "high", true},
		{"claude-sonnet-4-6", "xhigh", "high", true},
		{"claude-sonnet-4-6", "none", "", false},
		{"claude-opus-5", "none", "low", true},
		{"claude-opus-5", "max", "max", false},
		{"claude-opus-5", "turbo", "", true},
	} {
		chat := &Chat{Prompt: subjects.Prompt{ReasoningEffort: tc.asked, Messages: []subjects.Message{{Role: "user", Content: subjects.Text("x")}}}}
		body, warnings, err := EncodeAnthropic(chat, tc.model, false)
		if err != nil {
			t.Fatal(err)
		}
		sent := view(body).get("output_config").get("effort").str()
		if sent != tc.sent || (len(warnings) > 0) != tc.warned {
			t.Errorf("%s on %s: %q %q", tc.asked, tc.model, sent, warnings)
		}
	}
}

// A model that takes no sampling is told none, and 1 is no wish.
func TestEncodeAnthropicSampling(t *testing.T) {
	t.Parallel()
	half, one := 0.5, 1.0
	for _, tc := range []struct {
		heat, p *float64
		warned  int
	}{{&half, &half, 2}, {&one, &one, 0}, {nil, &half, 1}, {nil, nil, 0}} {
		chat := &Chat{Prompt: subjects.Prompt{Temperature: tc.heat, TopP: tc.p, Messages: []subjects.Message{{Role: "user", Content: subjects.Text("x")}}}}
		body, warnings, err := EncodeAnthropic(chat, "claude-opus-5", false)
		if err != nil || len(warnings) != tc.warned || view(body).get("temperature") != "" || view(body).get("top_p") != "" {
			t.Errorf("%s %q %v", body, warnings, err)
		}
	}
}

func TestEncodeAnthropicBound(t *testing.T) {
	t.Parallel()
	got, warnings := anthropicBody(t, Native, "claude-haiku-4-5", `{"messages":[`+userHi+`],"maxTokens":100000}`, false)
	if view([]byte(got)).get("max_tokens") != "64000" || !slices.Equal(warnings, []string{"maxTokens 100000 is not supported by claude-haiku-4-5; 64000 was used"}) {
		t.Errorf("%s %q", got, warnings)
	}
}

func TestToolID(t *testing.T) {
	t.Parallel()
	if toolID("toolu_01-A") != "toolu_01-A" || toolID("a:1") == toolID("a.1") || toolID("") == "" {
		t.Error(toolID("a:1"), toolID("a.1"), toolID(""))
	}
}

// Whatever Parse lets pass is refused or written as valid JSON.
func FuzzEncodeAnthropic(f *testing.F) {
	f.Add([]byte(`{"messages":[`+userHi+`,{"role":"assistant","content":"","toolCalls":[{"id":"1","name":"f","arguments":"{}"}]},{"role":"tool","toolCallId":"1","content":[{"type":"text","text":"x"}]}],"tools":[{"name":"f","parameters":{"a":1}}]}`), "claude-opus-4-8")
	f.Add([]byte(`{"messages":[{"role":"system","content":"a"},`+userHi+`,{"role":"system","content":"b"}],"stop":"x","temperature":0.1}`), "claude-haiku-4-5")
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"image","imageUrl":"data:image/png;base64,AA"}]}],"responseFormat":{"type":"json_schema","schema":{}}}`), "x")
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
			out, _, err := EncodeAnthropic(chat, model, true)
			if err == nil && !ValidJSON(out) {
				t.Fatalf("no JSON: %s", out)
			}
		}
	})
}
