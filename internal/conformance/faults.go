package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/subjects"
)

// kinds is the contract's table (§8).
var kinds = map[vendors.Fault]subjects.Kind{
	vendors.Unauthorized:  subjects.KindAuth,
	vendors.Forbidden:     subjects.KindAuth,
	vendors.RateLimited:   subjects.KindRateLimited,
	vendors.Quota:         subjects.KindQuotaExhausted,
	vendors.ContextLength: subjects.KindValidation,
	vendors.Policy:        subjects.KindContentPolicy,
	vendors.Overloaded:    subjects.KindProvider,
	vendors.ServerError:   subjects.KindProvider,
	vendors.NoModel:       subjects.KindProviderUnavailable,
	vendors.BadRequest:    subjects.KindValidation,
	vendors.TooLarge:      subjects.KindValidation,
	vendors.Timeout:       subjects.KindProvider,
	vendors.HTMLPage:      subjects.KindProvider,
	vendors.PlainText:     subjects.KindProvider,
	vendors.NoPath:        subjects.KindProviderUnavailable,
	vendors.Redirect:      subjects.KindProviderUnavailable,
}

func (c *Case) kind(f vendors.Fault) subjects.Kind {
	if k, ok := c.Kinds[f]; ok {
		return k
	}
	return kinds[f]
}

// faults: each error of the API has the contract's kind, asked whole or as a
// stream, and is asked once.
func faults(t *testing.T, c *Case) {
	r := open(t, c)
	for _, fault := range vendors.Faults() {
		if !c.can1(fault) {
			continue
		}
		t.Run(fault.String(), func(t *testing.T) {
			r := r
			r.t = t
			for _, f := range forms {
				if fault == vendors.Unauthorized && c.Login { // what was refused is held back
					r = open(t, c)
				}
				before := r.Requests()
				r.Next(vendors.Script{Fault: fault})
				g := r.call(t.Context(), f, f.body(hello(), nil), nil)
				if n := r.Requests() - before; n != 1 {
					t.Errorf("%s: asked %d times", f, n)
				}
				if g.events > 0 {
					t.Errorf("%s: %d events before the error", f, g.events)
				}
				if e := r.failed(f, g, c.kind(fault)); e != nil {
					r.details(f, fault, e)
				}
			}
		})
	}
}

// failed holds that a call failed with a kind, and that its error is fit to be
// shown: no secret in it, no prompt, one line.
func (r *room) failed(f form, g *got, kind subjects.Kind) *subjects.Error {
	r.t.Helper()
	var e *subjects.Error
	if !errors.As(g.err, &e) {
		r.t.Errorf("%s: %v, want %s", f, g.err, kind)
		return nil
	}
	if e.Kind != kind {
		r.t.Errorf("%s: %v, want %s", f, e, kind)
	}
	if e.Provider != r.c.ID && e.Kind != subjects.KindCancelled {
		r.t.Errorf("%s: the error is of %q, want %q", f, e.Provider, r.c.ID)
	}
	if e.Message == "" || strings.ContainsAny(e.Message, "\r\n") || len(e.Message) > 1000 {
		r.t.Errorf("%s: a message that is not fit to be shown: %q", f, e.Message)
	}
	shown := fmt.Sprintf("%v %+v %s %s %v %v", e, *e, e.LogValue(), e.Msg().Data, e.Code, e.RateLimit)
	for what, text := range map[string]string{"the secret": r.c.Secret, "the prompt": promptMark} {
		if text != "" && strings.Contains(shown, text) {
			r.t.Errorf("%s: the error shows %s: %s", f, what, shown)
		}
	}
	return e
}

func (r *room) details(f form, fault vendors.Fault, e *subjects.Error) {
	r.t.Helper()
	switch fault {
	case vendors.RateLimited:
		if want := vendors.RetryAfterSeconds * time.Second; e.RetryAfter != want {
			r.t.Errorf("%s: retry after %s, want %s", f, e.RetryAfter, want)
		}
	case vendors.ContextLength:
		if e.Code != subjects.CodeContextLength {
			r.t.Errorf("%s: code %q, want %q", f, e.Code, subjects.CodeContextLength)
		}
	case vendors.NoModel:
		if e.HTTPStatus != http.StatusNotFound || !strings.Contains(e.Message, r.c.Model) {
			r.t.Errorf("%s: status %d, %q: want 404 and the model's name", f, e.HTTPStatus, e.Message)
		}
	default:
	}
	if e.RetryAfter < 0 || e.RetryAfter > 24*time.Hour {
		r.t.Errorf("%s: retry after %s is out of bounds", f, e.RetryAfter)
	}
}

// errorsInSuccess: an error's body under the status 200 is an error. What it says
// without its status may be less: then it is a PROVIDER_ERROR, or a quota is taken
// for a limit.
func errorsInSuccess(t *testing.T, c *Case) {
	r := open(t, c)
	for _, fault := range vendors.Faults() {
		_, _, body, ok := c.Voice.Fault(&vendors.Seen{Model: c.Model}, fault)
		if fault >= vendors.HTMLPage && fault != vendors.HTMLPage || !ok && fault != vendors.HTMLPage {
			continue
		}
		isJSON := json.Valid(body)
		t.Run(fault.String(), func(t *testing.T) {
			r.t = t
			for _, f := range forms {
				r.Next(vendors.Script{Fault: fault, Inside: true})
				g := r.call(t.Context(), f, f.body(hello(), nil), nil)
				kind, may := subjects.KindProvider, []subjects.Kind{c.kind(fault)}
				if fault == vendors.Quota {
					may = append(may, subjects.KindRateLimited)
				}
				if have := subjects.KindOf(g.err); isJSON && slices.Contains(may, have) {
					kind = have
				}
				r.failed(f, g, kind)
			}
		})
	}
}

// errorsInStream: an error event is an error, in front of all output and after
// some; what came before it stays with the caller and is accounted for.
func errorsInStream(t *testing.T, c *Case) {
	r := open(t, c)
	answer := &vendors.Answer{Pieces: []string{"one ", "two ", "three ", "four"}, Usage: vendors.Usage{Fresh: 5, Output: 4}}
	all := c.Voice.Events(&vendors.Seen{Model: c.Model, Stream: true, StreamUsage: true}, answer)
	middle := piecesUpTo(all, "two ")
	if !c.Voice.Traits().Lines {
		t.Run("by its name", r.namedError)
	}
	for _, fault := range vendors.Faults() {
		if c.Voice.InStream(fault) == nil {
			continue
		}
		for when, after := range map[string]int{"first": 0, "later": middle} {
			t.Run(fault.String()+" "+when, func(t *testing.T) {
				r.t = t
				for _, f := range forms {
					if !f.stream {
						continue
					}
					r.Next(vendors.Script{Answer: answer, Break: vendors.BreakError, Fault: fault, After: after})
					g := r.call(t.Context(), f, f.body(hello(), nil), nil)
					r.failed(f, g, c.kind(fault))
					if want := map[bool]string{true: "one two ", false: ""}[after > 0]; g.text != want {
						t.Errorf("%s: text %q before the error, want %q", f, g.text, want)
					}
					r.accounted(f, g)
				}
			})
		}
	}
}

// namedError: an event with the name error is one, whatever its body looks like.
func (r *room) namedError(t *testing.T) {
	const flat = `{"type":"rate_limit_error","code":"rate_limit_exceeded","message":"slow down"}`
	r.t = t
	for _, f := range forms {
		if f.stream {
			r.Next(vendors.Script{Body: []byte("event: error\ndata: " + flat + "\n\n")})
			r.failed(f, r.call(t.Context(), f, f.body(hello(), nil), nil), subjects.KindRateLimited)
		}
	}
}

// piecesUpTo counts the events up to the one that has text in it.
func piecesUpTo(events [][]byte, text string) int {
	for i, ev := range events {
		if bytes.Contains(ev, []byte(text)) {
			return i + 1
		}
	}
	return len(events)
}

// accounted holds that what came before an error is known.
func (r *room) accounted(f form, g *got) {
	r.t.Helper()
	switch {
	case g.resp == nil:
		if g.text != "" {
			r.t.Errorf("%s: no response beside the error, after %q", f, g.text)
		}
	case g.resp.OutputBytes < int64(len(g.text)):
		r.t.Errorf("%s: %d bytes of output, want %d at least", f, g.resp.OutputBytes, len(g.text))
	}
}

// brokenAnswers: a success that has no answer in it is none.
func brokenAnswers(t *testing.T, c *Case) {
	r := open(t, c)
	bodies := map[string]string{
		"empty": "", "blank": " \n\r\n", "broken": `{"choices":[{"mess`, "no JSON": "hello", "null": "null", "number": "5",
		"string": `"hello"`, "array": "[]", "object": "{}", "page": "<!DOCTYPE html><html></html>", "binary": "\x00\xff\xfe\x01",
		"deep": strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000),
	}
	if !c.Voice.Traits().Lines {
		bodies["event, broken"] = "data: {oops\n\n"
		bodies["event, empty object"] = "data: {}\n\n"
		bodies["event, no JSON"] = "data: hello\n\n"
		bodies["event, other"] = "event: surprise\ndata: 5\n\n"
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			r.t = t
			for _, f := range forms {
				r.Next(vendors.Script{Body: []byte(body)})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				r.failed(f, r.call(ctx, f, f.body(hello(), nil), nil), subjects.KindProvider)
				cancel()
			}
		})
	}
}
