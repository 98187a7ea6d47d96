package actors

import (
	"context"
	"errors"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/config"
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
	// sensitivity is how the content was classified, "" = it was not. ownBudget says
	// that an embedder's or a service's budget decides, and not the node's ledger.
	sensitivity string
	ownBudget   bool
	hidden      bool   // the prompt stays out of previews
	limited     string // to local providers, or to free ones, by a hook or a budget

	ctx    context.Context
	cancel context.CancelCauseFunc
	record *recorder

	// work is what was done with providers for this call; nil for one that was
	// answered from the cache, or by another's. It is read once it has ended.
	work    *work
	cached  bool
	waited  time.Duration      // for another's answer
	allowed []string           // the providers that a classifier allows; nil = all
	cand    subjects.Candidate // who answers
	enc     wire.StreamEncoder
	begun   bool   // the first stream message has gone out
	mouth   *mouth // who sends events: set where a carrier does
	opened  *wire.Response
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

// run routes, tries or takes part in what another tries, records and answers. A
// panic is an error like any other.
func (c *call) run() (err error) {
	defer c.recovered("call", &err)
	if err := c.decide(); err != nil {
		return err
	}
	if c.shareable() {
		return c.share()
	}
	w := c.newWork(c.ctx)
	w.events, w.opened = c.event, c.open
	c.work = w
	resp, err := w.do()
	return c.conclude(resp, err)
}

// newWork is what is to be done with providers for this call.
func (c *call) newWork(ctx context.Context) *work {
	w := &work{
		e: c.e, s: c.s, ctx: ctx, req: c.req, route: c.route, id: c.id, runs: c.runs, class: c.class,
		isHop: c.isHop, hops: c.hops, hidden: c.hidden, ownBudget: c.ownBudget, timeout: c.timeout(), arrived: c.start,
	}
	w.deadline = c.start.Add(w.timeout)
	return w
}

// recovered turns a panic into an error; to be deferred.
func (c *call) recovered(where string, err *error) {
	if p := recover(); p != nil {
		*err = panicError(p)
		c.e.log.Error(where+" panicked", "call", c.id, "panic", errors.Unwrap(*err), "stack", string(debug.Stack()))
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

// decide asks the injection points and the budgets, and resolves the route.
func (c *call) decide() error {
	h := &c.req.Head
	if c.s.cfg.Mode == config.ModeLocal {
		h.Privacy = "local" // a local runner may itself ask a model elsewhere
	}
	job := routing.Job{
		Task: h.Task, Tier: h.Tier, Process: h.Process, Provider: h.Provider, Model: h.Model, Class: c.class,
		Privacy: h.Privacy, Needs: h.Needs, ForcePaid: h.ForcePaid, Exact: c.in.Provider != "",
	}
	var used usedUp
	if !c.isHop { // the node that was asked has decided all this
		if err := c.askHooks(&job); err != nil {
			return err
		}
		if !c.ownBudget {
			used.freeOnly, used.localOnly, used.err = c.e.ledger.over(c.ctx, bill{runID: h.RunID, batchID: h.BatchID})
		}
	}
	d, err := c.s.resolve(*c.e.snapshot.Load(), &job, used)
	c.route = d
	switch {
	case job.LocalOnly != "":
		c.limited = "local"
	case job.FreeOnly != "":
		c.limited = "free"
	}
	return err
}

// open is called before the first event of a stream.
func (c *call) open(o opening) {
	c.cand = o.cand
	c.enc = wire.NewStreamEncoder(c.req.Wire, &c.req.Head, c.id, o.cand.Model)
	c.opened = o.resp
}

// event encodes one event of the answer and sends what comes of it.
func (c *call) event(ev *wire.Event) error { return c.enc.Event(ev, c.emit) }

// emit sends one stream message; the first carries the headers. A caller who
// cannot be reached any more ends the call.
func (c *call) emit(data []byte) error {
	m := &subjects.Msg{Data: data}
	if !c.begun {
		m.Header = c.replyHeader(c.opened)
		c.begun = true
	}
	if err := c.out(m); err != nil {
		c.cancel(errGone)
		return errGone
	}
	return nil
}

// replyHeader is what the first message of an answer carries. resp may be nil.
func (c *call) replyHeader(resp *wire.Response) subjects.Header {
	v := [...]string{c.id, c.cand.Provider, c.cand.Model, strconv.FormatBool(c.cached)}
	h := subjects.Header{
		subjects.HeaderCallID: v[0:1:1], subjects.HeaderProvider: v[1:2:2],
		subjects.HeaderModel: v[2:3:3], subjects.HeaderCached: v[3:4:4],
	}
	if w := warnings(c.route, c.cand, resp); len(w) > 0 {
		h.Set(subjects.HeaderWarnings, strings.Join(w, ", "))
	}
	if resp != nil && !c.cached {
		for name, v := range resp.RateLimit {
			h.Set(name, v)
		}
	}
	return h
}
