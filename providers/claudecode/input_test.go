package claudecode

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

func composed(t *testing.T, name wire.Name, body string) *input {
	t.Helper()
	in, err := compose(request(t, name, body))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestImages(t *testing.T) {
	t.Parallel()
	image := func(url string) string {
		b, _ := json.Marshal(url)
		return `{"messages":[{"role":"user","content":[{"type":"text","text":"what?"},{"type":"image","imageUrl":` + string(b) + `}]}]}`
	}
	data := func(kind, content string) string {
		return "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString([]byte(content))
	}
	for _, url := range []string{
		"data:image/png;base64," + pixel,
		data("image/jpeg", "\xff\xd8\xff\xe0rest"), data("image/jpg", "\xff\xd8\xff\xe0rest"),
		data("image/gif", "GIF89arest"), data("image/webp", "RIFF\x00\x00\x00\x00WEBPVP8 "+strings.Repeat("x", 5000)),
	} {
		in := composed(t, wire.Native, image(url))
		block := gjson.ParseBytes(in.turns[0].content).Get("1")
		_, want, _ := strings.Cut(url, ",")
		if block.Get("source.type").Str != "base64" || block.Get("source.data").Str != want {
			t.Errorf("%.40s: %.200s", url, block.Raw)
		}
	}
	for _, url := range []string{
		data("image/tiff", "II*\x00"), data("image/png", "no picture"), data("image/svg+xml", "<svg/>"), "data:image/png;base64,!!!!",
	} {
		_, err := compose(request(t, wire.Native, image(url)))
		if e := subjects.AsError(err); e == nil || e.Kind != subjects.KindProviderUnavailable || e.Status() != 422 || e.Param != "messages[0].content[1]" {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	// Only a system message: it is what is asked.
	in := composed(t, wire.Native, `{"messages":[{"role":"system","content":"say hi"}]}`)
	if len(in.system) != 0 || len(in.turns) != 1 || in.turns[0].role != "user" || len(in.warnings) != 1 || !strings.Contains(in.warnings[0], "claude-code needs") {
		t.Errorf("%+v", in)
	}
	// The assistant's message last: another provider may go on with it.
	_, err := compose(request(t, wire.Native, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`))
	if e := subjects.AsError(err); e == nil || e.Kind != subjects.KindProviderUnavailable || e.Status() != 422 {
		t.Errorf("%v", err)
	}
	_, err = compose(request(t, wire.Native, `{"messages":[{"role":"user","content":"  "}]}`))
	if subjects.KindOf(err) != subjects.KindValidation {
		t.Errorf("%v", err)
	}
}

// A user's text is never a command of the program.
func TestCommandsAreText(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		`"/cost"`:         `[{"type":"text","text":" /cost"}]`,
		`"a /cost"`:       `[{"type":"text","text":"a /cost"}]`,
		`"/\u002fx\"\n/"`: `[{"type":"text","text":" //x\"\n/"}]`,
		`[{"type":"text","text":"/first"},{"type":"text","text":"/last"}]`:                                        `[{"type":"text","text":"/first"},{"type":"text","text":" /last"}]`,
		`[{"type":"text","text":"/first"},{"type":"text","text":"last"}]`:                                         `[{"type":"text","text":"/first"},{"type":"text","text":"last"}]`,
		`[{"type":"text","text":"/only text"},{"type":"image","imageUrl":"data:image/png;base64,` + pixel + `"}]`: `[{"type":"text","text":" /only text"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + pixel + `"}}]`,
	} {
		in := composed(t, wire.Native, `{"messages":[{"role":"user","content":`+content+`}]}`)
		got := in.turns[0].content
		if !json.Valid(got) || !sameJSON(t, string(got), want) {
			t.Errorf("%s: %s, want %s", content, got, want)
		}
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	compact := func(s string) string {
		var v any
		if err := json.Unmarshal([]byte(s), &v); err != nil {
			t.Fatal(err)
		}
		out, _ := json.Marshal(v)
		return string(out)
	}
	return compact(a) == compact(b)
}

func TestSteering(t *testing.T) {
	t.Parallel()
	in := composed(t, wire.OpenAIChat, `{"model":"m","messages":[{"role":"user","name":"bob","content":"hi"}],"temperature":0.2,"top_p":0.5,"max_tokens":9,
		"stop":["x"],"seed":1,"frequency_penalty":1,"presence_penalty":1,"user":"u","reasoning_effort":"minimal","metadata":{"a":"b"}}`)
	for _, what := range []string{
		"a message's name", "reasoningEffort minimal", "temperature", "topP", "maxTokens", "seed", "frequencyPenalty", "presencePenalty", "user", "metadata",
	} {
		if !slices.ContainsFunc(in.warnings, func(w string) bool { return strings.HasPrefix(w, what+" is not supported by claude-code") }) {
			t.Errorf("no warning of %s in %q", what, in.warnings)
		}
	}
	if len(in.warnings) != 10 || !slices.Equal(in.stops, []string{"x"}) || in.effort != "low" {
		t.Errorf("%d warnings: %q; effort %q", len(in.warnings), in.warnings, in.effort)
	}
	in = composed(t, wire.Native, `{"messages":[{"role":"user","content":"hi"}],"temperature":1,"topP":1,"reasoningEffort":"xhigh"}`)
	if len(in.warnings) != 0 || in.effort != "xhigh" {
		t.Errorf("%q, effort %q", in.warnings, in.effort)
	}
}

func TestEffortAndModel(t *testing.T) {
	t.Parallel()
	p := with(t, "answer:x")
	for _, c := range []struct{ model, effort, arg, env string }{
		{"sonnet", "", "--model=sonnet", ""},
		{"claude-haiku-4.5", "max", "--model=claude-haiku-4-5", ""},
		{"claude-sonnet-4-5-20250929", "none", "--model=claude-sonnet-4-5-20250929", "CLAUDE_CODE_DISABLE_THINKING=1"},
		{"sonnet[1m]", "low", "--model=sonnet[1m]", ""},
	} {
		args, env := p.callArgs(c.model, &input{effort: c.effort})
		if !slices.Contains(args, c.arg) || c.env != "" && !slices.Contains(env, c.env) {
			t.Errorf("%+v: %q", c, args)
		}
		if has := slices.Contains(args, "--effort="+c.effort); has != (c.effort != "" && c.effort != "none") {
			t.Errorf("%+v: %q", c, args)
		}
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	body := func(schema string) string {
		return `{"messages":[{"role":"user","content":"hi"}],"responseFormat":{"type":"json_schema","name":"n","schema":` + schema + `}}`
	}
	for schema, want := range map[string]string{
		`{"type":"object"}`: `{"type":"object"}`,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"$schema":{"type":"string"}}}`: `{"type":"object","properties":{"$schema":{"type":"string"}}}`,
		`{"type":"object","$schema":"x"}`: `{"type":"object"}`,
		`{"$schema":"x"}`:                 `{}`,
	} {
		if got := string(composed(t, wire.Native, body(schema)).schema); got != want {
			t.Errorf("%s: %s", schema, got)
		}
	}
	p := with(t, "replay:"+cwd(t)+"/testdata/2.1.332/schema-at-last.jsonl")
	text, resp, err := p.streamed(request(t, wire.Native, body(`{"type":"object"}`)))
	if err != nil || text != `{"a":4}` || resp.FinishReason != subjects.FinishStop {
		t.Errorf("%q, %+v, %v", text, resp, err)
	}
	if first, _, _ := strings.Cut(p.noted("heard"), "\n"); gjson.Get(first, "request.jsonSchema").Raw != `{"type":"object"}` {
		t.Errorf("heard %s", first)
	}
}

// FuzzCompose gives any request: it is refused, or becomes lines of JSON whose
// last turn is the user's and begins no command.
func FuzzCompose(f *testing.F) {
	f.Add(hi)
	f.Add(`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"/a"},{"role":"assistant","content":"b"},{"role":"user","content":[{"type":"text","text":"/c"}]}]}`)
	f.Add(`{"messages":[{"role":"user","content":[{"type":"image","imageUrl":"data:image/png;base64,` + pixel + `"}]}]}`)
	f.Add(`{"messages":[{"role":"user","content":"x"}],"responseFormat":{"type":"json_schema","schema":{"$schema":1,"a":{}}}}`)
	f.Fuzz(func(t *testing.T, body string) {
		r, err := wire.Parse(wire.Native, []byte(body))
		if err != nil || r.Head.Needs.Missing(capabilities) != 0 {
			return
		}
		job := request(t, wire.Native, body)
		in, err := compose(job)
		if err != nil {
			if !subjects.KindOf(err).Known() {
				t.Fatal(err)
			}
			return
		}
		for i, turn := range in.turns {
			line, err := json.Marshal(userLine(turn, true))
			if err != nil || strings.ContainsAny(string(line), "\n\r\u2028\u2029") {
				t.Fatalf("%v: %q", err, line)
			}
			blocks := gjson.ParseBytes(turn.content).Array()
			if last := blocks[len(blocks)-1]; turn.role == "user" && strings.HasPrefix(last.Get("text").Str, "/") {
				t.Fatalf("a command: %s", turn.content)
			}
			if i == len(in.turns)-1 && turn.role != "user" {
				t.Fatalf("ends with %s", turn.role)
			}
		}
		if in.schema != nil && !json.Valid(in.schema) {
			t.Fatalf("the schema %q", in.schema)
		}
	})
}
