package claudecode

import (
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

func TestCutter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stops  []string
		pieces []string
		want   []string // what each piece gives, and at last what was held back
		found  bool
	}{
		{nil, []string{"a", "b"}, []string{"a", "b", ""}, false},
		{[]string{"END"}, []string{"one EN", "D two"}, []string{"one ", "", ""}, true},
		{[]string{"END"}, []string{"one EN", "TER"}, []string{"one ", "ENTER", ""}, false},
		{[]string{"END"}, []string{"one E"}, []string{"one ", "E"}, false},
		{[]string{"\n\n", "x"}, []string{"a\n", "b\n", "\nc"}, []string{"a", "\nb", "", ""}, true},
		{[]string{"aab"}, []string{"a", "a", "a", "b"}, []string{"", "", "a", "", ""}, true},
		{[]string{"b", "abc"}, []string{"xabc"}, []string{"xa", ""}, true},
		{[]string{"✓"}, []string{"a\xe2\x9c", "\x93"}, []string{"a", "", ""}, true},
	} {
		k := cutter{stops: c.stops}
		var got []string
		found := false
		for _, p := range c.pieces {
			var text string
			text, found = k.feed(p)
			got = append(got, text)
		}
		got = append(got, k.rest())
		if found != c.found || strings.Join(got, "|") != strings.Join(c.want, "|") {
			t.Errorf("%q in %q: %q, %t", c.stops, c.pieces, got, found)
		}
	}
}

// FuzzCutter holds the cutter against looking for the sequences in the whole text.
func FuzzCutter(f *testing.F) {
	f.Add("one END two", "END", "\n", 3)
	f.Add("aaab", "aab", "b", 1)
	f.Fuzz(func(t *testing.T, text, one, two string, size int) {
		if one == "" || two == "" || size < 1 {
			return
		}
		want, end := text, len(text)+1
		for _, s := range []string{one, two} {
			i := strings.Index(text, s)
			if e := i + len(s); i >= 0 && (e < end || e == end && i < len(want)) {
				want, end = text[:i], e
			}
		}
		k := cutter{stops: []string{one, two}}
		var got strings.Builder
		for rest, found := text, false; rest != "" && !found; {
			n := min(size, len(rest))
			var piece string
			piece, found = k.feed(rest[:n])
			got.WriteString(piece)
			rest = rest[n:]
		}
		got.WriteString(k.rest())
		if got.String() != want {
			t.Fatalf("%q, want %q", got.String(), want)
		}
	})
}

// A stop sequence ends the answer, and the program.
func TestStop(t *testing.T) {
	t.Parallel()
	body := `{"messages":[{"role":"user","content":"count"}],"stop":["0003"]}`
	p := with(t, "many")
	text, resp, err := p.streamed(request(t, wire.Native, body))
	if err != nil || text != "0000 0001 0002 " || resp.FinishReason != subjects.FinishStop || len(resp.Warnings) != 0 {
		t.Errorf("%q, %+v, %v", text, resp, err)
	}
	if resp.UsageKnown || resp.Usage.InputTokens != 11 || resp.Usage.OutputTokens != 0 || resp.OutputBytes != 20 {
		t.Errorf("the usage of a text that was cut: %+v", resp)
	}
	resp, err = p.Complete(t.Context(), request(t, wire.Native, body))
	if err != nil || resp.Text != "0000 0001 0002 " {
		t.Errorf("%+v, %v", resp, err)
	}
	// What might have been the beginning of one is not lost.
	p = with(t, "answer:hello wor", func(*config.Provider) {})
	text, resp, err = p.streamed(request(t, wire.Native, `{"messages":[{"role":"user","content":"x"}],"stop":["world"]}`))
	if err != nil || text != "hello wor" || !resp.UsageKnown {
		t.Errorf("%q, %+v, %v", text, resp, err)
	}
}
