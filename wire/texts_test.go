package wire

import (
	"strings"
	"testing"
)

func TestTexts(t *testing.T) {
	t.Parallel()
	native := `{"messages":[{"role":"system","content":"be kind"},{"role":"user","content":[{"type":"text","text":"look — "},{"type":"image","imageUrl":"data:image/png;base64,AAAA"}]},
		{"role":"assistant","content":"","toolCalls":[{"id":"1","name":"find","arguments":"{\"q\":\"x\"}"}]},{"role":"tool","toolCallId":"1","content":"found"}],
		"tools":[{"name":"find","description":"finds","parameters":{"type":"object"}}]}`
	chat := `{"model":"auto","messages":[{"role":"system","content":"be kind"},{"role":"user","content":[{"type":"text","text":"look — "},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]},
		{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"find","arguments":"{\"q\":\"x\"}"}}]},{"role":"tool","tool_call_id":"1","content":"found"}],
		"tools":[{"type":"function","function":{"name":"find","description":"finds","parameters":{"type":"object"}}}]}`
	const want = "be kind\nlook — \nfind\n{\"q\":\"x\"}\nfound\nfind\nfinds\n{\"type\":\"object\"}"
	for name, body := range map[Name]string{Native: native, OpenAIChat: chat} {
		r, err := Parse(name, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		text, cut, attached := r.Texts(1 << 10)
		if text != want || cut || attached != 1 {
			t.Errorf("%s: %q, cut %v, %d attached", name, text, cut, attached)
		}
		for limit := range len(want) {
			if text, cut, _ := r.Texts(limit); !cut || len(text) > limit || !strings.HasPrefix(want, text) {
				t.Errorf("%s, at most %d: %q, cut %v", name, limit, text, cut)
			}
		}
	}
}

// TestTextsOfAnyForm: what only one wire can say is read all the same, with its
// escapes undone.
func TestTextsOfAnyForm(t *testing.T) {
	t.Parallel()
	r, err := Parse(OpenAIChat, []byte(`{"model":"auto","n":2,"messages":[{"role":"user","content":[{"type":"text","text":"the \u0073ecret"},{"type":"file","file":{"file_id":"f-1"}}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	text, cut, attached := r.Texts(1 << 10)
	if !strings.Contains(text, "the secret") || cut || attached != 1 {
		t.Errorf("%q, cut %v, %d attached", text, cut, attached)
	}
	if text, cut, _ := r.Texts(6); !cut || len(text) > 6 {
		t.Errorf("%q, cut %v", text, cut)
	}
}
