package fakeopenai

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzForms: whatever the content, both forms are valid JSON and the pieces make
// up the whole.
func FuzzForms(f *testing.F) {
	f.Add("hello", 3)
	f.Add("\x00\"\\\u2028€𝄞</script>", 20)
	f.Add("", 1)
	f.Fuzz(func(t *testing.T, content string, chunks int) {
		if !utf8.ValidString(content) || chunks < 1 || chunks > 100 {
			t.Skip()
		}
		p := player{s: New(), req: &Request{Model: "m", Choices: 1, Stream: true, IncludeUsage: true, PromptBytes: 10}}
		a := p.newAnswer(&Behaviour{Content: content, Chunks: chunks})
		want := a.content
		var got strings.Builder
		for i := range a.pieces() {
			b := a.appendPiece(nil, i)
			var chunk struct {
				Choices []struct{ Delta struct{ Content string } }
			}
			if err := json.Unmarshal(b[len("data: "):], &chunk); err != nil {
				t.Fatalf("%s: %v", b, err)
			}
			got.WriteString(chunk.Choices[0].Delta.Content)
		}
		if got.String() != want {
			t.Errorf("pieces make %q, want %q", got.String(), want)
		}
		var whole struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if b := a.appendCompletion(nil); json.Unmarshal(b, &whole) != nil || whole.Choices[0].Message.Content != want {
			t.Errorf("whole: %s", b)
		}
	})
}

func TestParse(t *testing.T) {
	for body, want := range map[string]bool{
		`{"messages":[],"model":"m"}`: true,
		`[]`:                          false,
		`"messages"`:                  false,
		`{"messages":[]`:              false,
		``:                            false,
		`null`:                        false,
	} {
		if _, ok := parse([]byte(body)); ok != want {
			t.Errorf("%s: ok=%t, want %t", body, ok, want)
		}
	}
	r, _ := parse([]byte(`{"n":-1,"messages":[1]}`))
	if r.Choices != 1 {
		t.Errorf("choices %d, want 1", r.Choices)
	}
}
