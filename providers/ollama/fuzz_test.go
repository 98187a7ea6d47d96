package ollama

import (
	"testing"

	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// FuzzAnswer gives the provider answers of any kind, whole and as a stream: what
// comes out is an error of a known kind, or an answer that can be passed on on
// either wire.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		answer, last, line(`"content":"x"`) + last, `{"error":"x"}`, `{"error":{"code":429}}`, "", "\n\n", "[]",
		line(`"tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]`) + last,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		p := New(configFor("http://x"), rest.Options{Transport: canned(body)})
		resp, err := p.Complete(t.Context(), job(t, wire.Native, hi))
		known(t, err)
		if err == nil {
			for _, to := range []wire.Name{wire.OpenAIChat, wire.Native} {
				out, err := wire.EncodeResponse(to, resp, &subjects.Result{})
				if known(t, err); err == nil && !wire.ValidJSON(out) {
					t.Fatalf("not valid JSON: %s", out)
				}
			}
		}
		enc := wire.NewStreamEncoder(wire.OpenAIChat, &wire.Head{}, "c", "m")
		emit := func(b []byte) error {
			if !wire.ValidJSON(b) {
				t.Fatalf("not valid JSON: %s", b)
			}
			return nil
		}
		resp, err = p.Stream(t.Context(), job(t, wire.Native, hi), func(ev *wire.Event) error { return enc.Event(ev, emit) })
		if known(t, err); err == nil {
			known(t, enc.Finish(resp, &subjects.Result{}, emit))
		}
		if u := resp.Usage; u.InputTokens < 0 || u.OutputTokens < 0 || resp.OutputBytes < 0 {
			t.Fatalf("%+v", resp)
		}
	})
}

func known(t *testing.T, err error) {
	t.Helper()
	if err != nil && !subjects.KindOf(err).Known() {
		t.Fatalf("%v", err)
	}
}
