package actors

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// bound is a provider's own timeout on one attempt: on the whole of an answer
// that comes in one piece; of a stream on the time until the model begins to
// answer. From there on a stream has its idle timeout and the call's deadline:
// a long answer is not cut off while it comes.
type bound struct {
	cancel context.CancelFunc
	timer  *time.Timer // of a stream
	passed atomic.Bool
	limit  time.Duration
}

// bounded returns the context of one attempt at a provider.
func (w *work) bounded(provider string) (context.Context, *bound) {
	b := &bound{}
	pc := w.s.router.Provider(provider)
	if pc == nil || pc.Timeout <= 0 || endsWithin(w.ctx, pc.Timeout) {
		return w.ctx, b
	}
	b.limit = pc.Timeout
	if !w.req.Head.Stream {
		ctx, cancel := context.WithTimeoutCause(w.ctx, b.limit, b.late())
		b.cancel = cancel
		return ctx, b
	}
	ctx, cancel := context.WithCancelCause(w.ctx)
	b.cancel = func() { cancel(nil) }
	b.timer = time.AfterFunc(b.limit, func() {
		b.passed.Store(true)
		cancel(b.late())
	})
	return ctx, b
}

func (b *bound) late() *subjects.Error {
	return subjects.Errorf(subjects.KindTimeout, "no answer came within %s, the provider's timeout", b.limit)
}

// begun says that the stream has begun.
func (b *bound) begun() {
	if b.timer != nil {
		b.timer.Stop()
	}
}

func (b *bound) stop() {
	b.begun()
	if b.cancel != nil {
		b.cancel()
	}
}

// outcome is the error of an attempt that the bound ended, whatever the provider
// made of its context's end.
func (b *bound) outcome(err error) error {
	if err != nil && b.passed.Load() && subjects.KindOf(err) != subjects.KindTimeout {
		return b.late().WithCause(err)
	}
	return err
}

// endsWithin reports whether ctx ends by itself before d has passed.
func endsWithin(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) <= d
}
