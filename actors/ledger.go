package actors

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// loadTime bounds how long calls wait for what a budget has spent before this
// node's start: no call is held up for longer by a database that does not answer.
const loadTime = 2 * time.Second

// ledgerOptions is what a ledger is made of.
type ledgerOptions struct {
	// emit publishes an event; it must not block.
	emit func(subject string, event any)
	// spent says what a budget has spent by the records of the usage log: scope is
	// subjects.BudgetRun, BudgetBatch or BudgetTotal, id the run's or batch's name or
	// the period of a total. It ends when ctx does.
	spent func(ctx context.Context, scope, id string) (tokens int64, cost subjects.USD, err error)
	log   *slog.Logger
}

// ledger is the calls' side of the budgets: of a run, of a batch, and of all
// calls of a period. What a call may cost is reserved before it and settled
// after it, so that calls side by side cannot overrun a budget together. The
// book actor (ledgerbook.go) owns what is spent, what is reserved and who waits;
// ledgerscope.go says where budgets come from and go, ledgerlesson.go how
// estimates are made.
//
// A reservation's states:
//
//	new → waiting → held → settled
//
// From new or waiting it may be refused, with BUDGET_EXCEEDED, or be sent back
// (errNotReady) because what one of its budgets has spent must be read from the
// usage database first, which is for the call to do: an actor does not wait. A
// call that leaves while it waits is taken out of the line; a grant that comes
// for one who has left is given back. A call holds no slot meanwhile.
type ledger struct {
	sys  *system
	o    ledgerOptions
	cfg  atomic.Pointer[config.Config]
	book *actor.PID
	// open is set while the total is known and has something left, so that a call
	// without a run and a batch need not ask. The book alone sets it.
	open atomic.Pointer[openTotal]
}

// openTotal says until when a total's period lasts; zero = it has no end.
type openTotal struct{ until time.Time }

func newLedger(sys *system, cfg *config.Config, o ledgerOptions) *ledger {
	l := &ledger{sys: sys, o: o}
	l.cfg.Store(cfg)
	b := newBook(cfg, o)
	b.open = &l.open
	l.book = sys.spawn(b)
	return l
}

// reconfigure makes new limits and prices hold, for the calls in line too. What
// is reserved stays so until it is settled.
func (l *ledger) reconfigure(cfg *config.Config) {
	l.cfg.Store(cfg)
	l.sys.send(l.book, reconfigured{cfg})
}

// bill says whose budgets a call counts against, beside the total; "" = none of
// that kind.
type bill struct{ runID, batchID string }

// over says which budgets of a bill are used up, as the texts of
// routing.Job.FreeOnly (the cost) and LocalOnly (the tokens of the batch); "" =
// within. The first question about a budget waits until what it has spent is
// read, loadTime at most. The error is ctx's end.
func (l *ledger) over(ctx context.Context, b bill) (freeOnly, localOnly string, err error) {
	if t := l.open.Load(); t != nil && b == (bill{}) && (t.until.IsZero() || time.Now().Before(t.until)) {
		return "", "", nil
	}
	if !bounded(l.cfg.Load(), b, everyUnit) {
		return "", "", nil
	}
	for {
		v, err := ask(ctx, l.sys, l.book, func(r chan<- usedUp) any { return &overAsk{b, r} })
		if err == nil {
			err = v.err
		}
		if errors.Is(err, errNotReady) {
			if err = l.makeReady(ctx, b); err == nil {
				continue
			}
		}
		return v.freeOnly, v.localOnly, err
	}
}

// estimate says what is known of a call before it is made. maxTokens 0 = the
// caller named no bound of the answer.
type estimate struct {
	bill
	provider, model, account string
	// class is who waits: interactive calls stand in line before the others.
	class                  string
	local                  bool
	inputTokens, maxTokens int64
}

// counts says what of a call counts: cost on metered accounts, tokens wherever
// they leave this side of the network.
func (e *estimate) counts() (c [units]bool) {
	c[inUSD] = e.account == subjects.SubscriptionAPIKey
	c[inTokens] = !e.local && e.account != subjects.SubscriptionLocal && e.account != subjects.SubscriptionMock
	return c
}

// reserve takes what a call may use out of all its budgets at once, and waits in
// line, first in, first out, while others have reserved what it needs. It is nil
// where nothing is bounded or counted. Errors: BUDGET_EXCEEDED when it would not
// fit if nobody else had reserved anything, and ctx's end.
func (l *ledger) reserve(ctx context.Context, e estimate) (*reserved, error) {
	counts := e.counts()
	if !bounded(l.cfg.Load(), e.bill, counts) {
		return nil, nil //nolint:nilnil // a nil reservation is one of nothing
	}
	e.model = subjects.CanonicalModel(e.model)
	r := &reserved{l: l, estimate: e, counted: counts, granted: make(chan error, 1)}
	for {
		l.sys.send(l.book, r)
		var err error
		select {
		case err = <-r.granted:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err == nil {
			return r, nil
		}
		if errors.Is(err, errNotReady) {
			if err = l.makeReady(ctx, e.bill); err == nil {
				continue
			}
		}
		r.settle(nil, subjects.Usage{}, false) // a grant that arrives for a caller who has gone is given back
		return nil, err
	}
}

// reserved is one call's reservation: in line, then held. After it was sent to
// the book its fields belong to the book.
type reserved struct {
	l *ledger
	estimate
	counted [units]bool
	// granted gets nil when the reservation is held, or why it never will be.
	granted chan error

	state  reservedState
	held   [units]int64
	scopes [maxScopes]*scope // those that bound it; nil = not that one
	place  *list.Element     // in line; nil = not in it
}

// settle gives the reservation back and counts what the call spent. cost nil is
// not known and counts as 0; whole says that there was an answer. Only the first
// call of it has an effect; on a nil reservation there is none.
func (r *reserved) settle(cost *subjects.USD, tokens subjects.Usage, whole bool) {
	if r != nil {
		m := &settlement{r: r, known: cost != nil, tokens: tokens, whole: whole}
		if cost != nil {
			m.cost = *cost
		}
		r.l.sys.send(r.l.book, m)
	}
}

// makeReady returns once what the budgets of a bill have spent is known, or is
// known not to be. What nobody else is reading yet, it reads itself.
func (l *ledger) makeReady(ctx context.Context, b bill) error {
	for {
		v := &visit{bill: b, reply: make(chan reading, 1)}
		l.sys.send(l.book, v)
		select {
		case todo := <-v.reply:
			if todo.scopes == nil {
				return todo.err
			}
			l.read(ctx, todo)
		case <-ctx.Done():
			l.sys.send(l.book, visitLeft{v})
			return context.Cause(ctx)
		}
	}
}

// read reads what budgets have spent, and says so for each of them, whatever
// happens: others may wait for it.
func (l *ledger) read(ctx context.Context, todo reading) {
	in, cancel := context.WithDeadline(ctx, todo.until)
	defer cancel()
	rest := todo.scopes
	defer func() {
		for _, s := range rest {
			l.sys.send(l.book, scopeRead{scopeToRead: s, left: true})
		}
	}()
	for len(rest) > 0 && ctx.Err() == nil {
		s := rest[0]
		tokens, cost, err := l.o.spent(in, s.key.kind, s.key.id)
		if err != nil && ctx.Err() != nil {
			return // the call has ended, and says nothing about the database
		}
		rest = rest[1:]
		l.sys.send(l.book, scopeRead{scopeToRead: s, spent: [units]int64{inUSD: int64(cost), inTokens: tokens}, err: err})
	}
}

// state lists the total, where it is bounded, and of the other budgets at most
// maxStates, the last used first; nil when ctx ends first.
func (l *ledger) state(ctx context.Context) []subjects.BudgetState {
	states, _ := ask(ctx, l.sys, l.book, func(r chan<- []subjects.BudgetState) any { return listBudgets{r} })
	return states
}
