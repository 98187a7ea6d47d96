// Package formtest holds the providers of OpenAI's form to tables of the errors
// that their APIs were seen to answer with, beside what the conformance suite
// holds all providers to.
package formtest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// Hi is the least of requests, on the native wire and on openai-chat.
const Hi = `{"messages":[{"role":"user","content":"hi"}]}`

// Job makes the job of one request.
func Job(t testing.TB, name wire.Name, model, body string) *providers.Job {
	t.Helper()
	r, err := wire.Parse(name, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return &providers.Job{Request: r, Model: model}
}

// Serve starts a server and makes a provider that asks it; both end with the test.
func Serve[P interface{ Close() }](t testing.TB, h http.HandlerFunc, make func(url string) P) P {
	t.Helper()
	s := httptest.NewServer(h)
	p := make(s.URL)
	t.Cleanup(func() {
		p.Close()
		s.Close()
	})
	return p
}

// Error is one answer and what must become of it.
type Error struct {
	Status int
	Header http.Header
	Body   string

	Kind subjects.Kind
	// Text is part of the message.
	Text string
	// Shown is the status that the caller sees, where it is not the kind's.
	Shown       int
	Code, Param string
	Wait        time.Duration
	Final       bool
	// ModelOnly says that the quota is that of the one model.
	ModelOnly bool
}

// Errors runs a table, each case through a whole answer and through a stream, of a
// provider of its own: one that was refused may not ask again. No error may show
// secret.
func Errors[P interface {
	providers.Provider
	Close()
}](t *testing.T, make func(url string) P, model, secret string, cases map[string]Error) {
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range want.Header {
					w.Header()[k] = v
				}
				w.WriteHeader(want.Status)
				io.WriteString(w, want.Body)
			}
			j := Job(t, wire.Native, model, Hi)
			_, err := Serve(t, answer, make).Complete(t.Context(), j)
			want.check(t, err, secret)
			_, err = Serve(t, answer, make).Stream(t.Context(), j, func(*wire.Event) error { return nil })
			want.check(t, err, secret)
		})
	}
}

func (want *Error) check(t *testing.T, err error, secret string) {
	t.Helper()
	var e *subjects.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v", err)
	}
	status := want.Kind.Status()
	if want.Shown != 0 {
		status = want.Shown
	}
	if e.Kind != want.Kind || !strings.Contains(e.Message, want.Text) || e.Status() != status {
		t.Errorf("%v, status %d; want %s with %q, %d", e, e.Status(), want.Kind, want.Text, status)
	}
	if e.Code != want.Code || e.Param != want.Param || e.RetryAfter != want.Wait || e.Final != want.Final {
		t.Errorf("%v: code %q, param %q, wait %v, final %v", e, e.Code, e.Param, e.RetryAfter, e.Final)
	}
	if e.ModelOnly != want.ModelOnly {
		t.Errorf("%v: of the model alone: %v", e, e.ModelOnly)
	}
	if secret != "" && strings.Contains(err.Error(), secret) {
		t.Errorf("the secret is shown: %v", err)
	}
}
