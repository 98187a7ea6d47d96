package actors

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/sluice-llm/sluice/subjects"
)

// A question to a hook runs in a goroutine of its own, and is given up when the
// hook's timeout has passed, also where the implementation does not heed its
// context. Such a goroutine cannot be ended, so there is a bound on them: a hook
// has maxHookQuestions places, a question that is given up keeps its place until
// it returns, and while all places are kept so, a hook fails at once. Where they
// are taken by questions that may still be answered, the next one waits for a
// place, within its timeout.
const maxHookQuestions = 256

// maxHookReason bounds a text of a hook that is shown to callers, in bytes.
const maxHookReason = 200

// hookPoint is one kind of question: its places, and whether it fails now.
type hookPoint struct {
	hook, question string
	places         chan struct{}
	hung           atomic.Int32 // places that are kept by questions given up
	failing        atomic.Bool  // as the watch last saw it
}

func newHookPoint(hook, question string) *hookPoint {
	return &hookPoint{hook: hook, question: question, places: make(chan struct{}, maxHookQuestions)}
}

// hookFault is a failure in words that may be logged.
type hookFault string

// Error implements error.
func (f hookFault) Error() string { return string(f) }

// hookReply is how one question ended: stack is where it panicked.
type hookReply[T any] struct {
	answer T
	err    error
	stack  string
}

// States of one question: whoever leaves it first says so.
const (
	questionOpen int32 = iota
	questionOver
	questionGivenUp
)

// consult asks one question under the hook's timeout. why says how it failed, in
// words that may be logged; "" = it is answered. Where ctx has ended, the failure
// is not the hook's.
func consult[T, H any](ctx context.Context, d *hookDesk, p *hookPoint, r *hookRule[H], ask func(context.Context) (T, error)) (answer T, why string) {
	own, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	got := pose(own, p, ask)
	if got.err != nil {
		why = r.reason(own, got.err)
	}
	if ctx.Err() == nil && (why != "" || p.failing.Load()) {
		d.sys.send(d.watch, hookOutcome{p, why, r.onError, got.stack})
	}
	return got.answer, why
}

// pose finds a place for the question and waits for its answer, or for the end
// of ctx.
func pose[T any](ctx context.Context, p *hookPoint, ask func(context.Context) (T, error)) hookReply[T] {
	if ctx.Err() != nil {
		return hookReply[T]{err: ctx.Err()}
	}
	if p.hung.Load() >= maxHookQuestions {
		return hookReply[T]{err: hookFault(fmt.Sprintf("%d earlier questions hang in it", maxHookQuestions))}
	}
	select {
	case p.places <- struct{}{}:
	case <-ctx.Done():
		return hookReply[T]{err: ctx.Err()}
	}
	reply := make(chan hookReply[T], 1)
	var state atomic.Int32
	go func() {
		defer func() {
			if !state.CompareAndSwap(questionOpen, questionOver) {
				p.hung.Add(-1)
			}
			<-p.places
		}()
		guarded(ctx, ask, reply)
	}()
	select {
	case r := <-reply:
		return r
	case <-ctx.Done():
	}
	p.hung.Add(1) // before the goroutine may take it back
	if !state.CompareAndSwap(questionOpen, questionGivenUp) {
		p.hung.Add(-1)
	}
	select {
	case r := <-reply: // it came together with the end
		return r
	default:
		return hookReply[T]{err: ctx.Err()}
	}
}

// guarded makes an error of a panic, and of an implementation that ends its
// goroutine.
func guarded[T any](ctx context.Context, ask func(context.Context) (T, error), reply chan<- hookReply[T]) {
	r := hookReply[T]{err: hookFault("it ended without an answer")}
	defer func() {
		if p := recover(); p != nil {
			r.err, r.stack = hookFault("it panicked"+kindOfPanic(p)), string(debug.Stack())
		}
		reply <- r
	}()
	answer, err := ask(ctx)
	r = hookReply[T]{answer: answer, err: err}
}

// kindOfPanic names the value of a panic by its type: it may hold a prompt.
func kindOfPanic(p any) string {
	if e, ok := p.(runtime.Error); ok {
		return ": " + e.Error()
	}
	return fmt.Sprintf(" with a %T", p)
}

// reason says in words that may be logged how a question failed. The text of an
// implementation's own error may hold a prompt.
func (r *hookRule[H]) reason(ctx context.Context, err error) string {
	var fault hookFault
	switch {
	case errors.As(err, &fault):
		return r.by + ": " + string(fault)
	case ctx.Err() != nil:
		return "no answer of " + r.by + " within " + r.timeout.String()
	case r.remote:
		return subjects.AsError(err).Message
	}
	return fmt.Sprintf("%s: it returned an error of type %T", r.by, err)
}

// oneLine cuts a text to limit bytes and takes control characters out of it.
func oneLine(s string, limit int) string {
	s = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, ""))
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return strings.TrimSpace(s)
}
