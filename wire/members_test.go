package wire

import (
	"testing"
)

func TestEditMembers(t *testing.T) {
	t.Parallel()
	edit := func(name, value string) string {
		switch {
		case name == "out" || value == "7":
			return ""
		case name == "old":
			return "new"
		}
		return name
	}
	for in, want := range map[string]string{
		`{}`:                                `{}`,
		` {"a":1} `:                         ` {"a":1} `,
		`{"out":1}`:                         `{}`,
		`{ "out" : 1 }`:                     `{ }`,
		`{"out":1,"a":[1,{"out":2}]}`:       `{"a":[1,{"out":2}]}`,
		`{"a":1,"out":1}`:                   `{"a":1}`,
		"{\"a\":1 ,\n \"out\":1,\"b\":2 }":  `{"a":1,"b":2 }`,
		`{"a":1,"old":"x","b":2}`:           `{"a":1,"new":"x","b":2}`,
		`{"old":"x"}`:                       `{"new":"x"}`,
		`{"out":1,"old":"x","out":2,"c":7}`: `{"new":"x"}`,
		`{"b":7,"ou\u0074":1,"c":3}`:        `{"c":3}`,
		`[1]`:                               `[1]`,
		``:                                  ``,
	} {
		if got := string(EditMembers([]byte(in), edit)); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	body := []byte(`{"a":1}`)
	if got := EditMembers(body, edit); &got[0] != &body[0] {
		t.Error("an unchanged body is copied")
	}
}

func TestLastRole(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"messages":[{"role":"user","content":"x"},{"role":"tool","content":"{\"role\":\"user\"}"}]}`: "tool",
		`{"messages":[{"role":"assistant","content":"x"},{"content":[{"role":"x"}],"role":"user"}]}`:   "user",
		`{"messages":[]}`: "",
		`{}`:              "",
	} {
		if got := LastRole([]byte(in)); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

// FuzzEditMembers: what comes out of valid JSON is valid JSON, without the member.
func FuzzEditMembers(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":[2],"c":{"a":3}}`, `{"a":"\\\"a\""}`, ` { } `, `{"":0,"a":null}`} {
		f.Add(s, "a", "b")
	}
	f.Fuzz(func(t *testing.T, body, out, old string) {
		if !ValidJSON([]byte(body)) {
			return
		}
		got := EditMembers([]byte(body), func(name, _ string) string {
			switch name {
			case out:
				return ""
			case old:
				return "new"
			}
			return name
		})
		if !ValidJSON(got) {
			t.Fatalf("%q became %q", body, got)
		}
		for m := range view(got).fields() {
			if m.Key == out && out != "new" {
				t.Fatalf("%q still has %q: %q", body, out, got)
			}
		}
	})
}

func TestTokenLimit(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]string{
		"gpt-5": "max_completion_tokens", "gpt-5.4-mini": "max_completion_tokens", "openai/gpt-6-sol": "max_completion_tokens",
		"o1": "max_completion_tokens", "openai/o4-mini": "max_completion_tokens",
		"gpt-4o": "max_tokens", "gpt-4.1": "max_tokens", "gpt-35-turbo": "max_tokens", "gpt-3.5-turbo": "max_tokens",
		"openai/gpt-oss-120b": "max_tokens", "gpt-": "max_tokens", "o": "max_tokens", "ollama": "max_tokens", "": "max_tokens",
	} {
		if got := tokenLimit(model); got != want {
			t.Errorf("%s: %s", model, got)
		}
	}
}
