package vendors

import (
	"net/http"
	"strings"
	"testing"
)

func anHear(body string, edit func(*http.Request)) (*Seen, error) {
	r, err := http.NewRequest(http.MethodPost, "http://fake.test/v1/messages", http.NoBody)
	if err != nil {
		return nil, err
	}
	for k, v := range map[string]string{"Content-Type": "application/json", "X-Api-Key": "k", "Anthropic-Version": "2023-06-01"} {
		r.Header.Set(k, v)
	}
	if edit != nil {
		edit(r)
	}
	return Anthropic{Base: "/v1"}.Hear(r, []byte(body))
}

// What the real API would refuse, the voice refuses.
func TestAnthropicIsStrict(t *testing.T) {
	t.Parallel()
	const head = `"model":"claude-haiku-4-5","max_tokens":1`
	hi := `{"role":"user","content":[{"type":"text","text":"hi"}]}`
	call := `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}`
	result := `{"type":"tool_result","tool_use_id":"a"}`
	for _, tc := range []struct{ body, why string }{
		{`{"model":"m","messages":[` + hi + `]}`, "max_tokens"},
		{`{` + head + `,"messages":[` + hi + `],"seed":1}`, "seed"},
		{`{` + head + `,"messages":[]}`, "at least one"},
		{`{` + head + `,"messages":[{"role":"user","content":[]}]}`, "non-empty"},
		{`{` + head + `,"messages":[{"role":"user","content":[{"type":"text","text":" "}]}]}`, "non-whitespace"},
		{`{` + head + `,"messages":[{"role":"tool","content":"x"}]}`, "role"},
		{`{` + head + `,"messages":[` + hi + `,` + call + `]}`, "without `tool_result`"},
		{`{` + head + `,"messages":[` + hi + `,` + call + `,` + hi + `]}`, "no result"},
		{`{` + head + `,"messages":[` + hi + `,` + call + `,{"role":"user","content":[{"type":"text","text":"x"},` + result + `]}]}`, "come first"},
		{`{` + head + `,"messages":[{"role":"user","content":[` + result + `]}]}`, "unexpected"},
		{`{` + head + `,"messages":[` + hi + `,` + strings.Replace(call, `"id":"a"`, `"id":"a:1"`, 1) + `]}`, "tool_use.id"},
		{`{` + head + `,"messages":[` + hi + `,` + strings.Replace(call, `{}`, `"{}"`, 1) + `]}`, "dictionary"},
		{`{` + head + `,"messages":[` + hi + `,{"role":"assistant","content":"x "}]}`, "trailing"},
		{`{"model":"claude-opus-5","max_tokens":1,"messages":[` + hi + `,{"role":"assistant","content":"x"}]}`, "prefill"},
		{`{` + head + `,"messages":[{"role":"system","content":"x"},` + hi + `]}`, "follow a user"},
		{`{` + head + `,"messages":[` + hi + `,{"role":"system","content":"x"},` + hi + `]}`, "followed by an assistant"},
		{`{` + head + `,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/jpg","data":"AA"}}]}]}`, "media type"},
		{`{` + head + `,"messages":[` + hi + `],"temperature":0.5,"top_p":0.5}`, "both"},
		{`{` + head + `,"messages":[` + hi + `],"temperature":1.5}`, "bounds"},
		{`{"model":"claude-opus-5","max_tokens":1,"messages":[` + hi + `],"temperature":0.5}`, "deprecated"},
		{`{` + head + `,"messages":[` + hi + `],"stop_sequences":["\n"]}`, "non-whitespace"},
		{`{` + head + `,"messages":[` + hi + `],"tools":[{"name":"f","input_schema":{}}]}`, "'object'"},
		{`{` + head + `,"messages":[` + hi + `],"tool_choice":{"type":"auto"}}`, "providing tools"},
		{`{` + head + `,"messages":[` + hi + `],"tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"g"}}`, "not found"},
		{`{` + head + `,"messages":[` + hi + `],"output_config":{"effort":"none"}}`, "effort"},
		{`{` + head + `,"messages":[` + hi + `]} {}`, "more than one"},
	} {
		if _, err := anHear(tc.body, nil); err == nil || !strings.Contains(err.Error(), tc.why) {
			t.Errorf("%s: %v, want %s", tc.body, err, tc.why)
		}
	}
	good := `{` + head + `,"messages":[` + hi + `,` + call + `,{"role":"user","content":[` + result + `,{"type":"text","text":"x"}]},{"role":"system","content":"s"}]}`
	if s, err := anHear(good, nil); err != nil || len(s.Messages) != 4 || s.System != "s" || s.Messages[2].ResultOf != "a" {
		t.Errorf("%+v %v", s, err)
	}
	for name, edit := range map[string]func(*http.Request){
		"version": func(r *http.Request) { r.Header.Del("Anthropic-Version") },
		"key":     func(r *http.Request) { r.Header.Del("X-Api-Key") },
		"both":    func(r *http.Request) { r.Header.Set("Authorization", "Bearer k") },
		"beta":    func(r *http.Request) { r.Header.Set("Anthropic-Beta", "x") },
		"path":    func(r *http.Request) { r.URL.Path = "/messages" },
	} {
		if _, err := anHear(good, edit); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}
