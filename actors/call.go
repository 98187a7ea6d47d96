package actors

import (
	"bytes"
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"time"

	"github.com/failsafe-go/failsafe-go"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// Incoming is one request as it came in.
type Incoming struct {
	*subjects.Msg
	// Class is the subject's class; "" = by the header Llm-Class or process_classes.
	Class string
	// Provider is set for a call aimed at exactly one provider.
	Provider string
	// Inbox is where the caller listens, for calls over NATS.
	Inbox string
}

// Reply sends one message to the caller. The message is valid until it returns.
type Reply func(*subjects.Msg) error

// call is one request's whole life. It belongs to one goroutine.
type call struct {
	e     *Engine
	s     *setup
	in    Incoming
	out   Reply
	start time.Time

	id    string
	given bool // the caller chose the id
	isHop bool // another node sent it, and records it
	hops  string
	self  *runningCall
	runs  int // how often this id has run, this run included
	class string
	req   *wire.Request
	route *routing.Decision

	ctx    context.Context
	cancel context.CancelCauseFunc
	record *recorder

	trail    []subjects.Attempt
	queued   time.Duration // in line, and backing off
	provider time.Duration // inside the provider
	reached  bool
	outcome  subjects.Kind // how the last attempt failed; "" = it did not
	enc      wire.StreamEncoder
	begun    bool // the first stream message has gone out
	held     []wire.Event
	lastResp *wire.Response
	lastCand subjects.Candidate
	position int
}

// Serve runs one call to its end in the calling goroutine. It sends exactly one
// terminal message: a result, a sentinel after a stream, or an error (followed
// by the sentinel where a stream was asked for). It never panics.
func (e *Engine) Serve(ctx context.Context, in Incoming, out Reply) {
	c := &call{e: e, s: e.setup(), in: in, out: out, start: time.Now(), class: in.Class}
	size := int64(len(in.Data))
	e.inFlight.Add(1)
	e.bytes.Add(size)
	var err error
	defer func() {
		c.finish(err)
		e.bytes.Add(-size)
		e.inFlight.Add(-1)
	}()
	err = c.serve(ctx)
}

// admit refuses what must not start: each refusal costs no token.
func (c *call) admit() error {
	e := c.e
	p := &c.s.cfg.Pools
	if e.draining.Load() {
		err := subjects.Errorf(subjects.KindNoProvider, "this node is shutting down; try again: another node or its successor will answer")
		err.RetryAfter = time.Second
		return err
	}
	if refusal := e.usage.refuse(); refusal != nil {
		again := *refusal
		return &again
	}
	if n := e.inFlight.Load(); n > int64(p.MaxCalls) {
		return subjects.Errorf(subjects.KindPoolFull, "%d calls are waiting or running on this node, the bound pools.max_calls; send fewer at once or try again later", p.MaxCalls)
	}
	if n := e.bytes.Load(); n > p.MaxBytes {
		return subjects.Errorf(subjects.KindPoolFull, "the requests on this node hold more than %d MiB, the bound pools.max_bytes; send fewer at once or try again later", p.MaxBytes>>20)
	}
	return nil
}

// serve reads and admits the request, registers the call, runs it under its
// deadline, and takes it out again.
func (c *call) serve(ctx context.Context) (err error) {
	defer c.recovered("request", &err)
	if err := c.read(); err != nil {
		return err
	}
	if err := c.admit(); err != nil {
		return err
	}
	asker := ctx
	if c.given { // others may wait for it: the asker's leaving alone does not end it
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancelTimer := context.WithTimeout(ctx, c.timeout())
	defer cancelTimer()
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	defer c.cancel(nil)
	first, err := c.register(asker)
	if err != nil || !first {
		return err
	}
	if c.given {
		stop := context.AfterFunc(asker, func() { c.askerLeft(context.Cause(asker)) })
		defer stop()
	}
	err = c.run()
	c.leave(err)
	return err
}

func (c *call) askerLeft(cause error) { c.e.sys.send(c.e.calls, askerLeft{c.self, cause}) }

// run routes, tries, records and answers. A panic is an error like any other.
func (c *call) run() (err error) {
	defer c.recovered("call", &err)
	if err := c.decide(); err != nil {
		return err
	}
	resp, err := c.tryChain()
	return c.conclude(resp, err)
}

// recovered turns a panic into an error; to be deferred.
func (c *call) recovered(where string, err *error) {
	if p := recover(); p != nil {
		*err = panicError(p)
		c.e.log.Error(where+" panicked", "call", c.id, "provider", c.lastCand.Provider, "panic", errors.Unwrap(*err), "stack", string(debug.Stack()))
	}
}

func (c *call) timeout() time.Duration {
	if c.req.Head.Timeout > 0 {
		return c.req.Head.Timeout
	}
	return c.s.cfg.Retry.CallTimeout
}

// register enters the call in the registry. Not first: another call with this
// id has answered, or was waited for, and its answer has been sent.
func (c *call) register(asker context.Context) (first bool, err error) {
	c.self = &runningCall{id: c.id, form: answerForm{c.req.Wire, c.req.Head.Stream}, cancel: c.cancel, inbox: c.in.Inbox, given: c.given}
	c.runs = 1
	if !c.given {
		c.e.sys.send(c.e.calls, begin{r: c.self})
		return true, nil
	}
	// Not under the asker's context: what was begun must be ended.
	got, err := ask(context.Background(), c.e.sys, c.e.calls, func(r chan<- begun) any { return begin{c.self, r} })
	if err == nil {
		err = got.err
	}
	switch {
	case err != nil:
		return false, err
	case got.answer != nil:
		return false, c.send(got.answer)
	case got.wait != nil:
		return false, c.join(asker, got)
	}
	c.runs = got.run
	c.record = &recorder{out: c.out, left: func() { c.askerLeft(errGone) }}
	c.out = c.record.send
	return true, nil
}

// join waits for the answer of another's run.
func (c *call) join(asker context.Context, got begun) error {
	var ended error
	select {
	case a := <-got.wait:
		if a == nil {
			return subjects.Errorf(subjects.KindValidation, "callId: %q is answered, and its answer is too large for a second asker; use a new call id", c.id)
		}
		return c.send(a)
	case <-asker.Done():
		ended = context.Cause(asker)
	case <-c.ctx.Done():
		ended = context.Cause(c.ctx)
	}
	c.e.sys.send(c.e.calls, waiterLeft{got.joined, got.wait})
	return ended
}

// send gives another call's answer, message by message.
func (c *call) send(a answer) error {
	c.begun = true
	for _, m := range a {
		if err := c.out(m); err != nil {
			return err
		}
	}
	return errAnswered
}

// errAnswered says that the terminal message has been sent.
var errAnswered = errors.New("answered")

// leave takes the call out of the registry. Its answer goes to those who asked
// with the same id; an error is shown to those who wait now and not kept.
func (c *call) leave(err error) {
	if !c.given {
		c.e.sys.send(c.e.calls, end{r: c.self})
		return
	}
	if err != nil {
		c.sendError(err)
	}
	c.e.sys.send(c.e.calls, end{c.self, err == nil, c.record.answer()})
}

// finish sends the error of a call that has not sent its terminal message, and
// logs the call.
func (c *call) finish(err error) {
	if err != nil && !errors.Is(err, errAnswered) && !c.isAnswered() {
		c.sendError(err)
	}
	c.logLine(err)
}

func (c *call) isAnswered() bool { return c.record != nil && c.record.ended }

// decide resolves the route. An empty chain is the end of the call.
func (c *call) decide() error {
	h := &c.req.Head
	if c.s.cfg.Mode == config.ModeLocal {
		h.Privacy = "local" // a local runner may itself ask a model elsewhere
	}
	job := routing.Job{
		Task: h.Task, Tier: h.Tier, Process: h.Process, Provider: h.Provider, Model: h.Model,
		Privacy: h.Privacy, Needs: h.Needs, ForcePaid: h.ForcePaid, Exact: c.in.Provider != "",
	}
	d, err := c.s.router.Resolve(*c.e.snapshot.Load(), &job, time.Now())
	if err != nil {
		return err
	}
	c.route = d
	if len(d.Chain) == 0 {
		return routing.NoProvider(d)
	}
	return nil
}

// tryChain tries the candidates in order until one answers, or an error does
// not advance the chain.
func (c *call) tryChain() (*wire.Response, error) {
	var errs []*subjects.Error
	for i, cand := range c.route.Chain {
		c.position, c.lastCand = i, cand
		c.trail = append(c.trail, c.route.SkippedAt(i)...)
		resp, err := c.tryProvider(cand)
		c.lastResp = resp
		if err == nil {
			return resp, nil
		}
		if c.ctx.Err() != nil {
			return resp, c.ended(err)
		}
		e := withProvider(subjects.AsError(err), cand.Provider)
		errs = append(errs, e)
		c.sayRefused(e)
		if c.begun || !c.s.cfg.FallbackOn[e.Kind] {
			return resp, e
		}
	}
	c.trail = append(c.trail, c.route.SkippedAt(len(c.route.Chain))...)
	return c.lastResp, chainEnd(errs)
}

// ended is the error of a call whose context is over: the caller's cancel or
// the deadline, whatever the provider made of it.
func (c *call) ended(err error) error {
	cause := context.Cause(c.ctx)
	e := subjects.AsError(cause)
	if e.Kind != subjects.KindTimeout {
		return e
	}
	out := *e
	out.Message = "the deadline of " + c.timeout().String() + " passed"
	if !c.reached {
		out.Message += " while the call waited in line for " + c.lastCand.Provider + "/" + c.lastCand.Model
	}
	return out.WithCause(err)
}

// sayRefused says that an account's credentials fail: falling through to a
// metered one must not be quiet.
func (c *call) sayRefused(e *subjects.Error) {
	if e.Kind != subjects.KindAuth {
		return
	}
	c.e.log.Warn("credentials refused", "provider", e.Provider, "call", c.id, "reason", e.Message)
	c.e.o.Emit(subjects.ProviderStatus(e.Provider), &providerStatusEvent{Provider: e.Provider, Reason: e.Message, At: subjects.Time{Time: time.Now()}})
}

func withProvider(e *subjects.Error, provider string) *subjects.Error {
	if e.Provider != "" {
		return e
	}
	out := *e
	out.Provider = provider
	return &out
}

// chainEnd is the error of a chain at its end: the one provider's own error, or
// NO_PROVIDER with the soonest time at which trying again makes sense.
func chainEnd(errs []*subjects.Error) *subjects.Error {
	if len(errs) == 1 {
		return errs[0]
	}
	var texts []string
	limits := true
	var soonest time.Duration
	for _, e := range errs {
		texts = append(texts, e.Provider+": "+string(e.Kind))
		limits = limits && (e.Kind == subjects.KindRateLimited || e.Kind == subjects.KindQuotaExhausted)
		if e.RetryAfter > 0 && (soonest == 0 || e.RetryAfter < soonest) {
			soonest = e.RetryAfter
		}
	}
	out := subjects.Errorf(subjects.KindNoProvider, "every provider of the chain failed: %s", strings.Join(texts, ", "))
	out.RetryAfter = soonest
	if limits {
		out.HTTPStatus = 429
	}
	return out
}

// tryProvider makes up to three tries at one provider. Between them no slot is
// held; a stream that has begun is not tried again.
func (c *call) tryProvider(cand subjects.Candidate) (*wire.Response, error) {
	start, spent := time.Now(), c.provider
	resp, err := c.try(cand, 0)
	if c.s.worthRetrying(err) {
		resp, err = c.tryAgain(cand, resp, err)
	}
	c.queued += time.Since(start) - (c.provider - spent)
	return resp, err
}

// tryAgain goes on after a first try by the retry policy, which is given that
// try's outcome as its own first.
func (c *call) tryAgain(cand subjects.Candidate, resp *wire.Response, err error) (*wire.Response, error) {
	_, err = c.s.retry.WithContext(c.ctx).GetWithExecution(func(x failsafe.Execution[*wire.Response]) (*wire.Response, error) {
		if x.Retries() > 0 {
			resp, err = c.try(cand, x.Retries())
		}
		return resp, err
	})
	return resp, err
}

// try makes one attempt and marks an error after which there must be no other.
func (c *call) try(cand subjects.Candidate, n int) (*wire.Response, error) {
	resp, err := c.attempt(cand, n)
	if err != nil && (c.begun || c.tooLateToRetry(err)) {
		err = &finalError{err}
	}
	return resp, err
}

// finalError marks an error that must not be tried again at this provider.
type finalError struct{ error }

// Unwrap returns the error itself.
func (f *finalError) Unwrap() error { return f.error }

func final(err error) bool {
	var f *finalError
	return errors.As(err, &f)
}

func (c *call) tooLateToRetry(err error) bool {
	wait := max(c.s.cfg.Retry.BaseDelay, subjects.AsError(err).RetryAfter)
	deadline, ok := c.ctx.Deadline()
	return c.ctx.Err() != nil || ok && time.Until(deadline) <= wait
}

// attempt waits for the slots, makes one try, and gives the slots back.
func (c *call) attempt(cand subjects.Candidate, n int) (resp *wire.Response, err error) {
	remote := c.remote(cand.Provider)
	if !remote { // the node that hosts a provider owns its slots
		s, err := c.e.admission.acquire(c.ctx, cand.Provider, cand.Model, c.class)
		if err != nil {
			return nil, err
		}
		defer s.release()
	}
	if c.ctx.Err() != nil { // the grant came together with the end
		return nil, context.Cause(c.ctx)
	}
	start, tried := time.Now(), len(c.trail)
	c.reached, c.held, c.lastResp = true, nil, nil
	defer func() {
		took := time.Since(start)
		c.provider += took
		outcome := subjects.OutcomeOK
		if c.outcome = subjects.KindOf(err); err != nil {
			outcome = string(c.outcome)
		}
		if len(c.trail) == tried { // else the node that hosts the provider has said which tries it made
			c.trail = append(c.trail, subjects.Attempt{Provider: cand.Provider, Model: cand.Model, Outcome: outcome, Ms: took.Milliseconds()})
		}
	}()
	if remote {
		return c.hop(c.ctx, cand, n)
	}
	return c.ask(cand, n)
}

func (c *call) remote(provider string) bool { return (*c.e.snapshot.Load())[provider].Remote }

// ask makes the try itself, under the provider's own timeout.
func (c *call) ask(cand subjects.Candidate, n int) (resp *wire.Response, err error) {
	defer c.recovered("provider", &err)
	ctx, b := c.bounded(cand.Provider)
	defer b.stop()
	job := &providers.Job{
		Request: c.req, Model: cand.Model, Attempt: n, CallID: c.id, Class: c.class, Tier: c.route.Tier, Hops: c.onwards(),
		Opened: func(r *wire.Response) { c.lastResp = r }, Begun: b.begun,
	}
	job.Deadline, _ = ctx.Deadline()
	p := c.s.provider(cand.Provider)
	if p == nil {
		return nil, subjects.Errorf(subjects.KindProviderUnavailable, "it was forgotten after a long silence")
	}
	if !c.req.Head.Stream {
		return p.Complete(ctx, job)
	}
	c.enc = wire.NewStreamEncoder(c.req.Wire, &c.req.Head, c.id, cand.Model)
	resp, err = p.Stream(ctx, job, func(ev *wire.Event) error {
		b.begun()
		return c.event(ev)
	})
	return resp, b.outcome(err)
}

// maxHeld bounds the events without output that are held back.
const maxHeld = 8

// event passes one event of the provider on. Those that come before any output
// are held back until there is some: a stream that fails in between has said
// nothing yet, and another provider may still answer.
func (c *call) event(ev *wire.Event) error {
	if ev.Empty && !c.begun && len(c.held) < maxHeld {
		again := *ev
		again.Raw = bytes.Clone(ev.Raw)
		c.held = append(c.held, again)
		return nil
	}
	if err := c.letGo(); err != nil {
		return err
	}
	return c.enc.Event(ev, c.emit)
}

func (c *call) letGo() error {
	held := c.held
	c.held = nil
	for i := range held {
		if err := c.enc.Event(&held[i], c.emit); err != nil {
			return err
		}
	}
	return nil
}

// emit sends one stream message; the first carries the headers. A caller who
// cannot be reached any more ends the call.
func (c *call) emit(data []byte) error {
	m := &subjects.Msg{Data: data}
	if !c.begun {
		m.Header = c.replyHeader()
		c.begun = true
	}
	if err := c.out(m); err != nil {
		c.cancel(errGone)
		return errGone
	}
	return nil
}

func (c *call) replyHeader() subjects.Header {
	v := [...]string{c.id, c.lastCand.Provider, c.lastCand.Model, "false"}
	h := subjects.Header{
		subjects.HeaderCallID: v[0:1:1], subjects.HeaderProvider: v[1:2:2],
		subjects.HeaderModel: v[2:3:3], subjects.HeaderCached: v[3:4:4],
	}
	if w := c.warnings(c.lastResp); len(w) > 0 {
		h.Set(subjects.HeaderWarnings, strings.Join(w, ", "))
	}
	if c.lastResp != nil {
		for name, v := range c.lastResp.RateLimit {
			h.Set(name, v)
		}
	}
	return h
}
