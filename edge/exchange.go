package edge

import (
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

const (
	typeJSON = "application/json"
	typeText = "text/plain; charset=utf-8"
)

// exchange is one HTTP request and its answer.
type exchange struct {
	s      *Server
	w      http.ResponseWriter
	r      *http.Request
	form   form
	callID string
	// status is what was written; 0 = nothing yet.
	status    int
	streaming bool
	bytes     int64
}

// serve is the edge's one entrance: guard, route, log, and the net below panics.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	x := &exchange{s: s, w: w, r: r, form: formOf(r.URL.Path)}
	start := time.Now()
	defer func() {
		if p := recover(); p != nil {
			x.panicked(p)
		}
		x.log(start)
	}()
	w.Header()["X-Content-Type-Options"] = nosniff
	if r.ContentLength != 0 {
		// Whoever leaves a body unread, net/http waits for it before the answer.
		x.limitBody(start)
	}
	if e := s.guard(r); e != nil {
		x.fail(e)
		return
	}
	s.dispatch(x)
}

var nosniff = []string{"nosniff"}

// send writes a whole answer: one Write, with its length.
func (x *exchange) send(status int, contentType string, body []byte) {
	h := x.w.Header()
	v := [2]string{contentType, strconv.Itoa(len(body))}
	h["Content-Type"], h["Content-Length"] = v[0:1:1], v[1:2:2]
	x.status = status
	x.w.WriteHeader(status)
	n, _ := x.w.Write(body) // a client that has gone is no news
	x.bytes += int64(n)
}

// ask puts a query and returns its reply, or answers with the failure.
func (x *exchange) ask(subject string, query []byte) (*subjects.Msg, bool) {
	reply, err := x.query(subject, query)
	if err != nil {
		x.fail(subjects.AsError(err))
		return nil, false
	}
	return reply, true
}

func (x *exchange) query(subject string, query []byte) (*subjects.Msg, error) {
	ctx, cancel := context.WithTimeout(x.r.Context(), queryTimeout)
	defer cancel()
	return x.s.t.Request(ctx, &subjects.Msg{Subject: subject, Data: query})
}

// panicked answers for a handler that panicked. The log gets the call id and
// where it was; the panic's own words only when they are the runtime's, since
// any other value may hold a prompt.
func (x *exchange) panicked(p any) {
	if p == http.ErrAbortHandler {
		panic(p)
	}
	what := slog.String("panic_type", typeName(p))
	if re, ok := p.(runtime.Error); ok {
		what = slog.String("panic", re.Error())
	}
	x.s.o.Logger.Error("edge: a handler panicked", "call_id", x.callID,
		"method", x.r.Method, "route", x.routeName(), what, "stack", string(debug.Stack()))
	e := subjects.Errorf(subjects.KindProvider, "unexpected failure inside Sluice; the log has it under the call id")
	e.HTTPStatus = http.StatusInternalServerError
	x.fail(e)
}

func (x *exchange) log(start time.Time) {
	ctx := x.r.Context()
	if !x.s.o.Logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	x.s.o.Logger.LogAttrs(ctx, slog.LevelDebug, "edge: request",
		slog.String("method", x.r.Method), slog.String("route", x.routeName()),
		slog.Int("status", x.status), slog.Int64("bytes", x.bytes),
		slog.String("call_id", x.callID), slog.Duration("took", time.Since(start)))
}
