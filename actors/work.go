package actors

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/failsafe-go/failsafe-go"

	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// work is what a call does with providers: it goes along the chain, waits for
// budget and slots, makes the tries, and writes the record. It knows nothing of
// who gets the answer, so that several calls may share it (share.go). It belongs
// to one goroutine; others read it once it has ended.
type work struct {
	e     *Engine
	s     *setup
	ctx   context.Context
	req   *wire.Request
	route *routing.Decision

	id    string
	runs  int // how often this id has run, this run included
	class string
	isHop bool
	hops  string
	// hidden and ownBudget are the call's.
	hidden    bool
	ownBudget bool

	deadline time.Time     // of the call that began it
	timeout  time.Duration // and how long after its arrival that was
	// latest is the latest deadline of those who share the work, which changes as
	// they come; nil = the deadline's.
	latest  func() time.Time
	arrived time.Time
	// events takes the provider's events on. opened is called before the first.
	events func(*wire.Event) error
	opened func(opening)

	trail    []subjects.Attempt
	queued   time.Duration // in line for budget and slots, and backing off
	provider time.Duration // inside the provider
	reached  bool
	outcome  subjects.Kind // how the last attempt failed; "" = it did not
	begun    bool          // events have gone on
	held     []wire.Event
	lastResp *wire.Response     // as its stream was opened
	cand     subjects.Candidate // which is the call's turn
	// lastCand is the one that was asked last, position its place in the chain.
	lastCand subjects.Candidate
	position int

	// spent is what the last attempt used; lost, that of a failed one which the
	// trail gets when another attempt follows.
	spent spending
	lost  func()
	// bill is what the candidate's tries used, and freeOnly says that a budget has
	// refused it, so that what costs something is passed by from then on.
	bill     spending
	freeOnly string
	// failedResp is what the last attempt that failed had of an answer.
	failedResp *wire.Response
}

// opening is what is known of an answer when its first event comes.
type opening struct {
	cand subjects.Candidate
	resp *wire.Response
}

// do goes along the chain and writes the record. The answer it returns is
// decoded as far as its wire needs, and is not changed any more.
func (w *work) do() (resp *wire.Response, err error) {
	resp, err = w.tryChain()
	if resp == nil {
		resp = &wire.Response{}
	}
	if err == nil && resp.Wire != w.req.Wire {
		err = wire.Decode(resp)
	}
	switch {
	case !w.reached:
	case !w.isHop:
		rec := w.usageRecord(resp, err)
		w.e.usage.write(rec).wait()
		w.tellCost(rec)
	case err != nil && !w.begun && w.lost != nil:
		w.lost() // the node that asked hears of it by the trail
	}
	if err == nil && w.req.Head.Stream {
		err = w.letGo()
	}
	return resp, err
}

// tryChain tries the candidates in order until one answers, or an error does
// not advance the chain.
func (w *work) tryChain() (resp *wire.Response, err error) {
	defer w.recovered("call", &err)
	if len(w.route.Chain) == 0 {
		return nil, routing.NoProvider(w.route)
	}
	var errs []*subjects.Error
	for i, cand := range w.route.Chain {
		w.cand = cand
		w.trail = append(w.trail, w.route.SkippedAt(i)...)
		resp, err := w.tryProvider(cand, i)
		if err == nil {
			return resp, nil
		}
		if w.ctx.Err() != nil {
			return resp, w.ended(err)
		}
		if resp != nil {
			w.failedResp = resp
		}
		e := w.until(withProvider(subjects.AsError(err), cand.Provider), cand)
		errs = append(errs, e)
		w.sayRefused(e)
		if w.begun || !w.advances(err, e) {
			return resp, e
		}
	}
	w.trail = append(w.trail, w.route.SkippedAt(len(w.route.Chain))...)
	return w.failedResp, routing.ChainEnd(w.route, errs, time.Now())
}

// advances reports whether the next candidate is asked after an error: it is
// when this one was passed by, and by the configuration's fallback_on when it
// failed.
func (w *work) advances(err error, e *subjects.Error) bool {
	var p *passedBy
	if errors.As(err, &p) {
		return true
	}
	if e.Kind == subjects.KindBudgetExceeded { // also one of the provider's own
		w.freeOnly = cmp.Or(e.Message, "a budget is used up")
		return w.s.cfg.Costs.Fallback
	}
	return w.s.cfg.FallbackOn[e.Kind]
}

// passedBy marks a candidate that was not asked: something came in the way after
// the decision.
type passedBy struct{ error }

// Unwrap returns the error itself.
func (p *passedBy) Unwrap() error { return p.error }

// pass leaves a candidate out for a reason that came up after the decision.
func (w *work) pass(cand subjects.Candidate, reason string, err error) error {
	w.trail = append(w.trail, subjects.Attempt{Provider: cand.Provider, Outcome: subjects.OutcomeSkipped, Reason: reason})
	return &passedBy{err}
}

// ended is the error of a work whose context is over: the caller's cancel or
// the deadline, whatever the provider made of it.
func (w *work) ended(err error) error { return endOf(w.ctx, w, w.timeout).WithCause(err) }

// endOf is the error of a context that is over. w is what the call did, or nil.
func endOf(ctx context.Context, w *work, timeout time.Duration) *subjects.Error {
	out := *subjects.AsError(context.Cause(ctx))
	if out.Kind != subjects.KindTimeout {
		return &out
	}
	out.Message = "the deadline of " + timeout.String() + " passed"
	if w != nil && !w.reached && w.cand.Provider != "" {
		out.Message += " while the call waited in line for " + w.cand.Provider + "/" + w.cand.Model
	}
	return &out
}

// recovered turns a panic into an error; to be deferred.
func (w *work) recovered(where string, err *error) {
	if p := recover(); p != nil {
		*err = panicError(p)
		w.e.log.Error(where+" panicked", "call", w.id, "provider", w.cand.Provider, "panic", errors.Unwrap(*err), "stack", string(debug.Stack()))
	}
}

// sayRefused logs that an account's credentials fail. The event is the account's
// to send (account_actor.go).
func (w *work) sayRefused(e *subjects.Error) {
	if e.Kind == subjects.KindAuth {
		w.e.log.Warn("credentials refused", "provider", e.Provider, "call", w.id, "reason", e.Message)
	}
}

// until gives an error that says nothing of when to try again the time until which
// the provider is now held back, if it is.
func (w *work) until(e *subjects.Error, cand subjects.Candidate) *subjects.Error {
	if e.RetryAfter > 0 {
		return e
	}
	st, now := (*w.e.snapshot.Load())[cand.Provider], time.Now()
	_, hold, held := st.Held(cand.Model, w.class, now)
	if wait := hold.Until.Sub(now); held && wait > 0 {
		out := *e
		out.RetryAfter = wait
		return &out
	}
	return e
}

func withProvider(e *subjects.Error, provider string) *subjects.Error {
	if e.Provider != "" {
		return e
	}
	out := *e
	out.Provider = provider
	return &out
}

// tryProvider reserves what a candidate may cost, makes up to three tries, and
// settles. Between tries no slot is held; a stream that has begun is not tried
// again.
func (w *work) tryProvider(cand subjects.Candidate, place int) (*wire.Response, error) {
	start, before := time.Now(), w.provider
	defer func() { w.queued += time.Since(start) - (w.provider - before) }()
	r, err := w.reserve(cand)
	if err != nil {
		return nil, err
	}
	w.bill = spending{}
	whole := false
	defer func() { r.settle(w.bill.cost, w.bill.usage, whole) }()
	resp, err := w.try(cand, place, 0)
	if w.s.worthRetrying(err) {
		resp, err = w.tryAgain(cand, place, resp, err)
	}
	whole = err == nil
	return resp, err
}

// reserve takes the candidate's estimate out of the budgets, and waits while
// others have reserved what it needs.
func (w *work) reserve(cand subjects.Candidate) (*reserved, error) {
	account := w.s.router.Account(cand.Provider)
	if w.freeOnly != "" && account == subjects.SubscriptionAPIKey {
		return nil, w.pass(cand, routing.ReasonBudget, subjects.Errorf(subjects.KindBudgetExceeded, "%s", w.freeOnly))
	}
	if w.isHop || w.ownBudget {
		return nil, nil //nolint:nilnil // a nil reservation is one of nothing
	}
	h := &w.req.Head
	r, err := w.e.ledger.reserve(w.ctx, estimate{
		bill: bill{runID: h.RunID, batchID: h.BatchID}, class: w.class, provider: cand.Provider, model: cand.Model, account: account,
		local: w.s.router.Local(cand.Provider), inputTokens: w.req.EstimateInput(), maxTokens: h.MaxTokens,
	})
	if subjects.KindOf(err) == subjects.KindBudgetExceeded {
		w.freeOnly = subjects.AsError(err).Message
		if w.s.cfg.Costs.Fallback {
			return nil, w.pass(cand, routing.ReasonBudget, err)
		}
		w.trail = append(w.trail, subjects.Attempt{Provider: cand.Provider, Outcome: subjects.OutcomeSkipped, Reason: routing.ReasonBudget})
	}
	return r, err
}

// tryAgain goes on after a first try by the retry policy, which is given that
// try's outcome as its own first.
func (w *work) tryAgain(cand subjects.Candidate, place int, resp *wire.Response, err error) (*wire.Response, error) {
	_, err = w.s.retry.WithContext(w.ctx).GetWithExecution(func(x failsafe.Execution[*wire.Response]) (*wire.Response, error) {
		if x.Retries() == 0 {
			return resp, err
		}
		again, failed := w.try(cand, place, x.Retries())
		var p *passedBy
		if errors.As(failed, &p) { // its breaker opened meanwhile: what it said stands
			return resp, &finalError{err}
		}
		resp, err = again, failed
		return resp, err
	})
	return resp, err
}

// try makes one attempt and marks an error after which there must be no other.
func (w *work) try(cand subjects.Candidate, place, n int) (*wire.Response, error) {
	resp, err := w.attempt(cand, place, n)
	if err != nil && (w.begun || w.tooLateToRetry(err)) {
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

func (w *work) tooLateToRetry(err error) bool {
	wait := max(w.s.cfg.Retry.BaseDelay, subjects.AsError(err).RetryAfter)
	return w.ctx.Err() != nil || time.Until(w.lasts()) <= wait
}

// lasts is until when somebody waits for the work.
func (w *work) lasts() time.Time {
	if w.latest != nil {
		return w.latest()
	}
	return w.deadline
}

// attempt waits for the slots, makes one try, and gives the slots back.
func (w *work) attempt(cand subjects.Candidate, place, n int) (resp *wire.Response, err error) {
	if err := w.holdsBack(cand); err != nil {
		return nil, err
	}
	remote := w.remote(cand.Provider)
	if !remote { // the node that hosts a provider owns its slots
		s, err := w.e.admission.acquire(w.ctx, cand.Provider, cand.Model, w.class)
		if err != nil {
			return nil, err
		}
		defer s.release()
	}
	if w.ctx.Err() != nil { // the grant came together with the end
		return nil, context.Cause(w.ctx)
	}
	var p *permit // none for a remote one: the node that hosts it keeps the account
	if !remote {
		var refused *refusal
		p, refused, err = w.e.accounts.permit(w.ctx, cand.Provider, cand.Model, w.class)
		switch {
		case err != nil:
			return nil, err
		case refused != nil:
			return nil, w.pass(cand, refused.reason, routing.HeldError(refused.reason, refused.hold, time.Now()))
		}
	}
	defer p.release()
	w.begin(cand, place)
	start, tried := time.Now(), len(w.trail)
	defer func() { p.done(w.tried(cand, resp, err, start, tried)) }()
	defer w.recovered("provider", &err)
	if remote {
		return w.hop(w.ctx, cand, n)
	}
	return w.ask(cand, n)
}

// holdsBack passes by a candidate that something holds back by now, before the
// call waits in line for it.
func (w *work) holdsBack(cand subjects.Candidate) error {
	st := (*w.e.snapshot.Load())[cand.Provider]
	if reason, hold, held := st.Held(cand.Model, w.class, time.Now()); held {
		return w.pass(cand, reason, routing.HeldError(reason, hold, time.Now()))
	}
	return nil
}

// begin makes ready for an attempt. What a failed one before it used goes into
// the trail: this one's is the record's.
func (w *work) begin(cand subjects.Candidate, place int) {
	if w.lost != nil {
		w.lost()
	}
	w.lastCand, w.position, w.reached = cand, place, true
	w.held, w.lastResp, w.lost, w.spent = nil, nil, nil, spending{}
}

// tried notes how an attempt went.
func (w *work) tried(cand subjects.Candidate, resp *wire.Response, err error, start time.Time, tried int) outcome {
	took := time.Since(start)
	w.provider += took
	said := subjects.OutcomeOK
	if w.outcome = subjects.KindOf(err); err != nil {
		said = string(w.outcome)
	}
	if resp == nil {
		resp = &wire.Response{}
	}
	told := len(w.trail) > tried // the node that hosts the provider has said which tries it made
	if !told {
		w.trail = append(w.trail, subjects.Attempt{Provider: cand.Provider, Model: cand.Model, Outcome: said, Ms: took.Milliseconds()})
	}
	w.spent = w.spendingOf(cand, resp, err, told)
	w.bill.add(&w.spent)
	if err != nil && w.spent.any() {
		at, lost := len(w.trail)-1, w.spent
		w.lost = func() { w.trail[at].Spent = lost.forTrail() }
	}
	limits := resp.RateLimit
	e := subjects.AsError(err)
	if e != nil && e.RateLimit != nil {
		limits = e.RateLimit
	}
	return outcome{
		err: e, callerEnded: w.ctx.Err() != nil, ran: took, begun: w.begun,
		usage: w.spent.usage, cost: w.spent.cost, saved: w.spent.saved, limits: limits,
	}
}

func (w *work) remote(provider string) bool { return (*w.e.snapshot.Load())[provider].Remote }

// ask makes the try itself, under the provider's own timeout.
func (w *work) ask(cand subjects.Candidate, n int) (resp *wire.Response, err error) {
	ctx, b := w.bounded(cand.Provider)
	defer b.stop()
	job := &providers.Job{
		Request: w.req, Model: cand.Model, Attempt: n, CallID: w.id, Class: w.class, Tier: w.route.Tier, Hops: w.onwards(),
		Opened: func(r *wire.Response) { w.lastResp = r }, Begun: b.begun, Deadline: w.lasts(),
	}
	if d, ok := ctx.Deadline(); ok && d.Before(job.Deadline) {
		job.Deadline = d
	}
	p := w.s.provider(cand.Provider)
	if p == nil {
		return nil, subjects.Errorf(subjects.KindProviderUnavailable, "it was forgotten after a long silence")
	}
	if !w.req.Head.Stream {
		return p.Complete(ctx, job)
	}
	resp, err = p.Stream(ctx, job, func(ev *wire.Event) error {
		b.begun()
		return w.event(ev)
	})
	return resp, b.outcome(err)
}

// maxHeld bounds the events without output that are held back.
const maxHeld = 8

// event passes one event of the provider on. Those that come before any output
// are held back until there is some: a stream that fails in between has said
// nothing yet, and another provider may still answer.
func (w *work) event(ev *wire.Event) error {
	if ev.Empty && !w.begun && len(w.held) < maxHeld {
		again := *ev
		again.Raw = bytes.Clone(ev.Raw)
		w.held = append(w.held, again)
		return nil
	}
	if err := w.letGo(); err != nil {
		return err
	}
	return w.events(ev)
}

// letGo passes on what was held back.
func (w *work) letGo() error {
	if !w.begun {
		w.begun = true
		w.opened(opening{w.lastCand, openingOf(w.lastResp)})
	}
	held := w.held
	w.held = nil
	for i := range held {
		if err := w.events(&held[i]); err != nil {
			return err
		}
	}
	return nil
}

// openingOf copies what a stream's first message says: the provider goes on with
// its own, while askers of a flight read this.
func openingOf(resp *wire.Response) *wire.Response {
	if resp == nil {
		return nil
	}
	return &wire.Response{Warnings: slices.Clone(resp.Warnings), RateLimit: maps.Clone(resp.RateLimit)}
}

// warnings names what a caller asked for and did not get.
func warnings(route *routing.Decision, cand subjects.Candidate, resp *wire.Response) []string {
	var out []string
	if resp != nil {
		out = resp.Warnings
	}
	if route.Asked != "" && route.Asked != cand.Provider {
		out = append(slices.Clone(out), "provider "+route.Asked+" was asked for and "+cand.Provider+" answers")
	}
	return out
}

// onwards is what a call that leaves this node says of its way.
func (w *work) onwards() string {
	if w.hops == "" {
		return w.e.node
	}
	return strings.Join([]string{w.hops, w.e.node}, ",")
}
