package conformance

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// cutConnections: a connection that ends before the answer does is a
// PROVIDER_ERROR, with what is known beside it; one that cannot be made is
// PROVIDER_UNAVAILABLE. Nothing is asked twice.
func cutConnections(t *testing.T, c *Case) {
	r := open(t, c)
	answer := &vendors.Answer{Pieces: []string{"one ", "two ", "three ", "four"}, Usage: vendors.Usage{Fresh: 5, Output: 4}}
	all := c.Voice.Events(&vendors.Seen{Model: c.Model, Stream: true, StreamUsage: true}, answer)
	middle := piecesUpTo(all, "two ")
	for name, brk := range map[string]vendors.Break{"cut": vendors.BreakCut, "reset": vendors.BreakReset, "ended": vendors.BreakEnd} {
		for when, after := range map[string]int{"first": 0, "later": middle} {
			if brk == vendors.BreakEnd && after == 0 {
				continue // a whole answer that is whole
			}
			t.Run(name+" "+when, func(t *testing.T) {
				r.t = t
				for _, f := range forms {
					before := r.Requests()
					r.Next(vendors.Script{Answer: answer, Break: brk, After: after})
					g := r.call(t.Context(), f, f.body(hello(), nil), nil)
					r.failed(f, g, subjects.KindProvider)
					r.accounted(f, g)
					if n := r.Requests() - before; n != 1 {
						t.Errorf("%s: asked %d times", f, n)
					}
					if f.stream && after > 0 && brk != vendors.BreakReset && g.text != "one two " {
						t.Errorf("%s: text %q before the cut", f, g.text)
					}
				}
			})
		}
	}
	t.Run("no server", func(t *testing.T) {
		s := httptest.NewServer(nil)
		s.Close()
		p := c.Make(t, Setup{BaseURL: s.URL + c.BasePath, Idle: longIdle})
		closed := &room{t: t, c: c, p: p}
		for _, f := range forms {
			closed.failed(f, closed.call(t.Context(), f, f.body(hello(), nil), nil), subjects.KindProviderUnavailable)
		}
		if closer, ok := p.(interface{ Close() }); ok {
			closer.Close()
		}
	})
}

// everyCut ends a stream after each of its events: what the caller gets is an
// error, or the whole answer. Text that came is a beginning of the answer's.
func everyCut(t *testing.T, c *Case) {
	r := open(t, c)
	answer := &vendors.Answer{Pieces: []string{"Let me ", "look."}, Usage: vendors.Usage{Fresh: 5, Output: 4}}
	ask := hello()
	if c.can(needTools) {
		ask = withTools()
		answer.Calls = []vendors.Call{
			{ID: "call_a1", Name: "get_weather", Arguments: `{"city":"Zürich"}`},
			{ID: "call_b2", Name: "get_time", Arguments: `{"zone":"UTC"}`},
		}
	}
	events := len(c.Voice.Events(&vendors.Seen{Model: c.Model, Stream: true, StreamUsage: true}, answer))
	for _, brk := range []vendors.Break{vendors.BreakEnd, vendors.BreakCut} {
		for after := range events + 1 {
			for _, f := range forms {
				if !f.stream {
					continue
				}
				f, name := f, fmt.Sprintf("%v after %d of %d", map[vendors.Break]string{vendors.BreakEnd: "ended", vendors.BreakCut: "cut"}[brk], after, events)
				r.t = t
				r.Next(vendors.Script{Answer: answer, Break: brk, After: after})
				g := r.call(t.Context(), f, f.body(ask, nil), nil)
				switch {
				case g.err != nil && after == events && brk == vendors.BreakEnd:
					t.Errorf("%s, %s: %v", f, name, g.err)
				case g.err != nil:
					r.failed(f, g, subjects.KindProvider)
					r.accounted(f, g)
					if !strings.HasPrefix(answer.Text(), g.text) {
						t.Errorf("%s, %s: text %q", f, name, g.text)
					}
				case g.text != answer.Text() || g.finish != answer.End() || len(g.calls) != len(answer.Calls):
					t.Errorf("%s, %s: taken for whole: %q, %+v, %s", f, name, g.text, g.calls, g.finish)
				}
			}
		}
	}
}

// framings: a stream reads the same in every legal framing, however it is cut
// into reads, and packed.
func framings(t *testing.T, c *Case) {
	r := open(t, c)
	answer := &vendors.Answer{
		Pieces: []string{"Grüße, ", "世界 ", "🚀🚀", " \"{\\\"data\\\": 1}\"\n\ndata: x\r\n", "end"},
		Usage:  vendors.Usage{Fresh: 21, Output: 9},
	}
	ask := hello()
	if c.can(needTools) {
		ask = withTools()
		answer.Calls = []vendors.Call{{ID: "call_a1", Name: "get_weather", Arguments: `{"city":"Zürich 🏔"}`}}
	}
	scripts := map[string]vendors.Script{
		"packed": {Gzip: true}, "byte by byte": {Split: 1}, "in threes": {Split: 3}, "in sevens": {Split: 7},
		"packed in threes": {Gzip: true, Split: 3},
	}
	for _, fr := range vendors.Framings(c.Voice.Traits().Lines) {
		scripts[fr.String()] = vendors.Script{Framing: fr}
		scripts[fr.String()+", byte by byte"] = vendors.Script{Framing: fr, Split: 1}
	}
	if !c.Voice.Traits().Lines {
		scripts["whole for a stream"] = vendors.Script{WholeForStream: true}
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			r.t = t
			for _, f := range forms {
				script.Answer = answer
				r.Next(script)
				r.holdAgainst(f, answer, r.ask(f, ask))
			}
		})
	}
}

// sizes: large answers are read, and those without bound are refused.
func sizes(t *testing.T, c *Case) {
	const mib = 1 << 20
	size := 8 * mib
	if underRace {
		size = mib / 2
	}
	r := open(t, c)
	for _, f := range forms {
		if f.wire != wire.Native {
			continue
		}
		r.t = t
		large := &vendors.Answer{Pieces: []string{strings.Repeat("x", size)}, Usage: vendors.Usage{Fresh: 1, Output: 2_000_000}}
		r.Next(vendors.Script{Answer: large})
		if g := r.ask(f, hello()); g.text != large.Text() || g.finish != vendors.FinishStop {
			t.Errorf("%s: %d bytes: %d bytes, %s", f, size, len(g.text), g.finish)
		}
		if !f.stream || underRace {
			continue // the bound of a whole body is held by the tests of package httpx
		}
		endless := &vendors.Answer{Pieces: []string{strings.Repeat("x", 17*mib)}, Usage: vendors.Usage{Fresh: 1, Output: 4_000_000}}
		r.Next(vendors.Script{Answer: endless})
		r.failed(f, r.call(t.Context(), f, f.body(hello(), nil), nil), subjects.KindProvider)
	}
	many := &vendors.Answer{Usage: vendors.Usage{Fresh: 1, Output: 5000}}
	for i := range 5000 {
		many.Pieces = append(many.Pieces, fmt.Sprintf("%d ", i))
	}
	r.Next(vendors.Script{Answer: many})
	r.holdAgainst(forms[1], many, r.ask(forms[1], hello()))
}

// errLeft is what a caller's side ends a stream with.
var errLeft = errors.New("the caller has left")
