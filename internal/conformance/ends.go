package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/subjects"
)

// cancelled: a call that its caller gives up ends at once, whenever that is, and
// the server sees its client go.
func cancelled(t *testing.T, c *Case) {
	r := open(t, c)
	answer := &vendors.Answer{Pieces: []string{"one ", "two ", "three "}, Usage: vendors.Usage{Fresh: 5, Output: 4}}
	all := c.Voice.Events(&vendors.Seen{Model: c.Model, Stream: true, StreamUsage: true}, answer)
	middle := piecesUpTo(all, "two ")
	for _, f := range forms {
		t.Run(f.String(), func(t *testing.T) {
			r.t = t
			drain(r.Heard())
			t.Run("before it begins", func(t *testing.T) {
				r.t = t
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				r.failed(f, r.call(ctx, f, f.body(hello(), nil), nil), subjects.KindCancelled)
			})
			t.Run("before the first byte", func(t *testing.T) {
				r.t = t
				ctx, cancel := context.WithCancel(t.Context())
				r.Next(vendors.Script{Break: vendors.BreakHold})
				go func() {
					select {
					case <-r.Heard():
					case <-time.After(patience): // then the test fails, and says why
					}
					cancel()
				}()
				r.failed(f, r.call(ctx, f, f.body(hello(), nil), nil), subjects.KindCancelled)
				r.sawGone()
			})
			t.Run("deadline", func(t *testing.T) {
				r.t = t
				drain(r.Heard())
				ctx, cancel := context.WithCancel(t.Context())
				r.Next(vendors.Script{Break: vendors.BreakHold})
				// The deadline passes when the server has the request, however long that took.
				go func() {
					select {
					case <-r.Heard():
					case <-time.After(patience):
					}
					cancel()
				}()
				r.failed(f, r.call(pastDeadline{ctx}, f, f.body(hello(), nil), nil), subjects.KindTimeout)
				r.sawGone()
			})
			if f.stream {
				t.Run("in the middle", func(t *testing.T) { r.cancelMiddle(t, f, answer, middle) })
			}
		})
	}
	t.Run("the connection serves on", func(t *testing.T) {
		r.t = t
		for _, f := range forms {
			r.holdAgainst(f, vendors.Hello, r.ask(f, hello()))
		}
	})
}

// pastDeadline is a context whose deadline passes when it is cancelled.
type pastDeadline struct{ context.Context }

func (c pastDeadline) Err() error {
	if c.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// patience is how long something may take that takes no time.
const patience = 20 * time.Second

// sawGone waits until the server has seen its client go.
func (r *room) sawGone() {
	r.t.Helper()
	select {
	case <-r.Gone():
	case <-time.After(patience):
		r.t.Error("the server has not seen its client go")
	}
}

func drain[T any](ch <-chan T) {
	for {
		select {
		case <-ch:
		default:
			return
		}
	}
}

// cancelMiddle gives a stream up at its second word: by the context, and by the
// error of its reader.
func (r *room) cancelMiddle(t *testing.T, f form, answer *vendors.Answer, after int) {
	r.t = t
	ctx, cancel := context.WithCancel(t.Context())
	r.Next(vendors.Script{Answer: answer, Break: vendors.BreakHold, After: after})
	events := 0
	g := r.call(ctx, f, f.body(hello(), nil), func(n int) error {
		if events = n; n >= 2 {
			cancel()
		}
		return nil
	})
	cancel()
	r.failed(f, g, subjects.KindCancelled)
	r.accounted(f, g)
	if g.text == "" || events < 2 {
		t.Errorf("%s: %d events, %q", f, events, g.text)
	}
	r.sawGone()

	r.Next(vendors.Script{Answer: answer, Break: vendors.BreakHold, After: after})
	g = r.call(t.Context(), f, f.body(hello(), nil), func(n int) error {
		if events = n; n >= 2 {
			return errLeft
		}
		return nil
	})
	if !errors.Is(g.err, errLeft) || g.events != events {
		t.Errorf("%s: %v after %d events; want the reader's own error after %d", f, g.err, g.events, events)
	}
	r.accounted(f, g)
	r.sawGone()
}

// silence: the first byte may take its time; a stream that falls silent is a
// TIMEOUT, with what came beside it.
func silence(t *testing.T, c *Case) {
	const idle = 40 * time.Second
	answer := &vendors.Answer{Pieces: []string{"one ", "two ", "three "}, Usage: vendors.Usage{Fresh: 5, Output: 4}}
	all := c.Voice.Events(&vendors.Seen{Model: c.Model, Stream: true, StreamUsage: true}, answer)
	middle := piecesUpTo(all, "two ")
	later := func() <-chan struct{} {
		ch := make(chan struct{})
		time.AfterFunc(10*idle, func() { close(ch) })
		return ch
	}
	for _, f := range forms {
		t.Run(f.String(), func(t *testing.T) {
			t.Run("slow headers", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := openPipe(t, c, idle)
					r.Next(vendors.Script{Answer: answer, Gate: later()})
					r.holdAgainst(f, answer, r.ask(f, hello()))
				})
			})
			t.Run("slow first byte", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := openPipe(t, c, idle)
					r.Next(vendors.Script{Answer: answer, Pause: later()})
					r.holdAgainst(f, answer, r.ask(f, hello()))
				})
			})
			t.Run("deadline", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := openPipe(t, c, idle)
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					r.Next(vendors.Script{Answer: answer, Break: vendors.BreakHold, After: middle})
					r.failed(f, r.call(ctx, f, f.body(hello(), nil), nil), subjects.KindTimeout)
					r.sawGone()
				})
			})
			if f.stream {
				t.Run("in the middle", func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { silentStream(openPipe(t, c, idle), f, answer, middle) })
				})
				t.Run("in the middle, on a socket", func(t *testing.T) {
					silentStream(openIdle(t, c, 30*time.Millisecond), f, answer, middle)
				})
			}
		})
	}
}

func silentStream(r *room, f form, answer *vendors.Answer, after int) {
	r.t.Helper()
	r.Next(vendors.Script{Answer: answer, Break: vendors.BreakHold, After: after})
	g := r.call(r.t.Context(), f, f.body(hello(), nil), nil)
	r.failed(f, g, subjects.KindTimeout)
	r.accounted(f, g)
	if g.text != "one two " {
		r.t.Errorf("%s: text %q before the silence", f, g.text)
	}
	r.sawGone()
}

// sideBySide: calls at the same time do not touch each other.
func sideBySide(t *testing.T, c *Case) {
	const calls = 32
	r := open(t, c)
	r.Next(slices.Repeat([]vendors.Script{{Echo: true, Split: 40}}, calls)...)
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			f := forms[i%len(forms)]
			text := strings.Repeat(fmt.Sprintf("call %d; ", i), 30)
			g := r.call(t.Context(), f, f.body(&vendors.Seen{Messages: []vendors.Turn{user(text)}}, nil), nil)
			if g.err != nil || g.text != text {
				t.Errorf("%s: %v, %.60q, want %.60q", f, g.err, g.text, text)
			}
		})
	}
	wg.Wait()
}

// common are the headers that any request may have.
var common = []string{"Accept", "Accept-Encoding", "Authorization", "Content-Length", "Content-Type", "User-Agent"}

// others are what other clients write into their headers.
var others = []string{
	"opencode", "vscode", "copilot-chat", "githubcopilotchat", "claude-cli", "claude-code", "anthropic/", "openai/", "stainless",
	"go-http-client", "genai-sdk", "google-api", "ollama-js", "ollama-python", "groq/", "mozilla",
}

// whoAsks: every request says that Sluice asks, has the key where it belongs and
// nowhere else, and no header beyond those of the API.
func whoAsks(t *testing.T, c *Case) {
	r := open(t, c)
	for _, f := range forms {
		for name, rc := range requestCases() {
			if !c.can(rc.needs) || name == "long" || slices.Contains(c.Refuses, name) {
				continue
			}
			r.t = t
			r.ask(f, &rc.ask)
			h := r.heard()
			if ua := h.Header.Get("User-Agent"); ua != "sluice/"+Version {
				t.Errorf("%s: user agent %q", f, ua)
			}
			if h.Secret != c.Secret {
				t.Errorf("%s: the server read the key %q, want %q", f, h.Secret, c.Secret)
			}
			r.onlyThere(f, h)
			for key, values := range h.Header {
				if !slices.Contains(common, key) && !slices.Contains(c.Header, key) {
					t.Errorf("%s: the header %s: %q is not one of this API", f, key, values)
				}
			}
		}
	}
}

// onlyThere looks for the secret in one header and nowhere else, and for names of
// other clients.
func (r *room) onlyThere(f form, h *vendors.Seen) {
	r.t.Helper()
	found := 0
	for key, values := range h.Header {
		for _, v := range values {
			if r.c.Secret != "" && strings.Contains(v, r.c.Secret) {
				found++
			}
			for _, name := range others {
				if strings.Contains(strings.ToLower(v), name) {
					r.t.Errorf("%s: the header %s: %q names another client", f, key, v)
				}
			}
		}
	}
	elsewhere := h.Path + "\n" + h.Query + "\n" + string(h.Body)
	if r.c.Secret != "" && (found != 1 || strings.Contains(elsewhere, r.c.Secret)) {
		r.t.Errorf("%s: the key is in %d headers, and elsewhere: %t", f, found, strings.Contains(elsewhere, r.c.Secret))
	}
	if r.c.Secret == "" && h.Header.Get("Authorization") != "" {
		r.t.Errorf("%s: an authorization without a key: %q", f, h.Header.Get("Authorization"))
	}
	if h.Method != http.MethodPost {
		r.t.Errorf("%s: method %s", f, h.Method)
	}
}
