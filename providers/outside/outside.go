// Package outside calls providers that are programs of others: each has announced
// itself and answers native requests on llm.provider.<provider>.complete
// (docs/subjects.md, "Outside providers").
//
// A program can die in the middle of a call, and NATS says nothing of it. It is
// taken for dead when nobody listens on its subject (no attempt begins), when its
// announcements have stopped, when a stream falls silent, and, by a transport
// that knows it, when the connection that had the call is gone. Each is
// PROVIDER_ERROR, which is tried again, by then at another instance; that nobody
// answers at all is PROVIDER_UNAVAILABLE, which moves on.
package outside

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/peer"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// Options are what a provider needs of the node. Transport is needed.
type Options struct {
	// Transport carries the calls. When a context ends it says llm.cancel under the
	// call id of the message.
	Transport subjects.Transport
	// Present reports whether anybody listens on a subject; nil = that cannot be
	// known.
	Present func(subject string) bool
	// Alive says why the program is taken for dead, or nil; nil = it lives.
	Alive func() error
}

const (
	// lookEvery is how often a call looks whether its program lives.
	lookEvery = time.Second
	// endWait is how long the message that ends a stream is waited for once the
	// result has come.
	endWait = time.Second
)

// Provider is one outside provider, with as many instances as listen. Safe for
// concurrent use.
type Provider struct {
	cfg     *config.Provider
	o       Options
	subject string
	has     wire.Need
	streams bool
	silence error // of a stream that sends nothing
}

var _ providers.Provider = (*Provider)(nil)

// New makes the provider of what was announced. It does no I/O.
func New(cfg *config.Provider, o Options) *Provider {
	has := wire.Needs(cfg.Capabilities) & wire.NativeNeeds
	p := &Provider{cfg: cfg, o: o, subject: subjects.Provider(cfg.ID), streams: has&wire.NeedStreaming != 0}
	p.has = has | wire.NeedStreaming // a whole answer is given as a stream of one event
	p.silence = subjects.Errorf(subjects.KindProvider, "the program sent nothing for %s in the middle of a stream", cfg.IdleTimeout)
	if p.o.Alive == nil {
		p.o.Alive = func() error { return nil }
	}
	return p
}

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() wire.Need { return p.has }

// Check implements providers.Provider.
func (p *Provider) Check(context.Context) error {
	if err := p.o.Alive(); err != nil {
		return err
	}
	if p.o.Present != nil && !p.o.Present(p.subject) {
		return p.nobody()
	}
	return nil
}

func (p *Provider) nobody() *subjects.Error {
	return subjects.Errorf(subjects.KindProviderUnavailable, "nobody listens on %s; start the program that announced it", p.subject)
}

// message is the request of one attempt. The call id is the attempt's own: it is
// what llm.cancel names when the answer is not wanted any more.
func (p *Provider) message(ctx context.Context, job *providers.Job, stream bool) (*subjects.Msg, []string, error) {
	body, warnings, err := job.Request.Native(&wire.NativeAsk{Model: job.Model, Stream: stream}, p.cfg.ID)
	if err != nil {
		return nil, nil, err
	}
	h := subjects.Header{}
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	set(subjects.HeaderWire, string(wire.Native))
	set(subjects.HeaderCallID, job.AttemptID())
	set(subjects.HeaderProcess, job.Request.Head.Process)
	set(subjects.HeaderTask, job.Request.Head.Task)
	set(subjects.HeaderTier, job.Tier)
	set(subjects.HeaderClass, job.Class)
	if at, ok := ctx.Deadline(); ok {
		set(subjects.HeaderTimeoutMs, strconv.FormatInt(max(1, time.Until(at).Milliseconds()), 10))
	}
	return &subjects.Msg{Subject: p.subject, Header: h, Data: body}, warnings, nil
}

// Complete implements providers.Provider.
func (p *Provider) Complete(ctx context.Context, job *providers.Job) (*wire.Response, error) {
	m, warnings, err := p.message(ctx, job, false)
	if err != nil {
		return nil, p.named(err)
	}
	w := p.watch(ctx)
	defer w.stop()
	reply, err := p.o.Transport.Request(w.ctx, m)
	if err != nil {
		return nil, p.failed(w, err)
	}
	resp, _, err := wire.ReadNative(reply.Data)
	if err != nil {
		return nil, p.named(err)
	}
	resp.Warnings = append(resp.Warnings, warnings...)
	return resp, nil
}

// Stream implements providers.Provider.
func (p *Provider) Stream(ctx context.Context, job *providers.Job, yield func(*wire.Event) error) (*wire.Response, error) {
	if !p.streams {
		return p.unstreamed(ctx, job, yield)
	}
	m, warnings, err := p.message(ctx, job, true)
	if err != nil {
		return nil, p.named(err)
	}
	s := &stream{p: p, job: job, to: yield, w: p.watch(ctx), r: &wire.NativeReader{Strict: true}}
	defer s.w.stop()
	sum := s.r.Sum()
	sum.Warnings = append(sum.Warnings, warnings...)
	err = p.o.Transport.Stream(s.w.ctx, m, s.message)
	switch {
	case s.left:
		return sum, err
	case s.r.Whole() && (err == nil || ctx.Err() == nil && context.Cause(s.w.ctx) == errNoEnd):
		return sum, nil
	case s.r.Failed() != nil:
		return sum, p.named(peer.Error(s.r.Failed(), ""))
	case s.broken:
		return sum, p.named(err)
	case err != nil:
		return sum, p.failed(s.w, err)
	}
	return sum, p.named(subjects.Errorf(subjects.KindProvider, "the stream ended early, without its result"))
}

// unstreamed gives a whole answer as a stream: the program does not stream.
func (p *Provider) unstreamed(ctx context.Context, job *providers.Job, yield func(*wire.Event) error) (*wire.Response, error) {
	resp, err := p.Complete(ctx, job)
	if err != nil {
		return resp, err
	}
	return resp, job.AsStream(resp, yield)
}

// stream is the reading of one stream.
type stream struct {
	p      *Provider
	job    *providers.Job
	w      *watch
	r      *wire.NativeReader
	to     func(*wire.Event) error
	opened bool
	left   bool // the caller's side ended it
	broken bool // a message was not of the wire
}

func (s *stream) message(m *subjects.Msg) error {
	if !s.opened {
		s.opened = true
		s.job.Open(s.r.Sum())
		s.job.Begin()
	}
	err := s.r.Event(m.Data, s.yield)
	s.broken = err != nil && !s.left
	if s.r.Whole() {
		s.w.expect(endWait, errNoEnd)
	} else {
		s.w.expect(s.p.cfg.IdleTimeout, s.p.silence)
	}
	return err
}

func (s *stream) yield(ev *wire.Event) error {
	err := s.to(ev)
	s.left = s.left || err != nil
	return err
}

var errNoEnd error = subjects.Errorf(subjects.KindTimeout, "the message that ends a stream did not come")

// watch ends a call whose program is dead or silent.
type watch struct {
	ctx    context.Context
	parent context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}

	mu   sync.Mutex // guards idle and why
	idle *time.Timer
	why  error // what idle ends the call with
}

func (p *Provider) watch(ctx context.Context) *watch {
	w := &watch{parent: ctx, done: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	go func() {
		t := time.NewTicker(lookEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				if err := p.o.Alive(); err != nil {
					w.cancel(subjects.Errorf(subjects.KindProvider, "in the middle of the call the program fell silent: %s", subjects.AsError(err).Message))
					return
				}
			case <-w.done:
				return
			}
		}
	}()
	return w
}

// expect ends the call with err unless it is called again, or the call ends,
// within d; 0 = no bound.
func (w *watch) expect(d time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.why = err
	switch {
	case d <= 0 && w.idle != nil:
		w.idle.Stop()
	case d > 0 && w.idle == nil:
		w.idle = time.AfterFunc(d, w.fire)
	case d > 0:
		w.idle.Reset(d)
	}
}

func (w *watch) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel(w.why)
}

func (w *watch) stop() {
	close(w.done)
	w.expect(0, nil)
	w.cancel(nil)
}

// failed says what a failure of the transport is: our own ending of the call, the
// caller's, nobody there, or the program's own error.
func (p *Provider) failed(w *watch, err error) error {
	if cause := context.Cause(w.ctx); cause != nil && w.parent.Err() == nil {
		err = cause
	}
	e := subjects.AsError(err)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return p.named(p.nobody().WithCause(err))
	case e.Unwrap() == nil:
		return p.named(peer.Error(e, ""))
	}
	return p.named(e)
}

// named puts the provider's name on an error.
func (p *Provider) named(err error) error {
	e := *subjects.AsError(err)
	if e.Provider == "" && e.Kind != subjects.KindCancelled {
		e.Provider = p.cfg.ID
	}
	return &e
}
