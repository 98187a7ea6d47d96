package actors

import (
	"container/list"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// reservedState is where a reservation stands. Only the book changes it.
type reservedState uint8

const (
	reservedNew reservedState = iota
	reservedWaiting
	reservedHeld
	reservedDone
)

// Messages of the book, beside *reserved, which asks for a reservation.
type (
	// settlement gives back what a reservation holds: its place in line, or its
	// amounts, for which the call spent what it says.
	settlement struct {
		r      *reserved
		cost   subjects.USD
		known  bool // the cost is
		tokens subjects.Usage
		whole  bool // the answer is
	}
	overAsk struct {
		bill
		reply chan<- usedUp
	}
	usedUp struct {
		freeOnly, localOnly string
		err                 error
	}
	// visit asks what its call must read before the budgets of a bill are ready.
	// The answer comes once that is nothing, or something that nobody else reads.
	visit struct {
		bill
		reply chan reading
		at    *scope // where it waits
	}
	// visitLeft says that the visitor's call has ended without the answer.
	visitLeft struct{ v *visit }
	// reading is what a visitor must read, by when; no scopes = all is ready.
	reading struct {
		scopes []scopeToRead
		until  time.Time
		err    error // the book failed inside
	}
	scopeToRead struct {
		s   *scope // is not looked into outside the book
		key scopeKey
	}
	// scopeRead says what a scope has spent, or that it could not be read. left
	// says that the call which was to read it has ended.
	scopeRead struct {
		scopeToRead
		spent [units]int64
		err   error
		left  bool
	}
	reconfigured struct{ cfg *config.Config }
	listBudgets  struct{ reply chan<- []subjects.BudgetState }
)

// errNotReady sends a call away to makeReady; it then asks again.
var errNotReady = errors.New("what a budget has spent is to be read first")

func (r *reserved) fail(err error) { trySend(r.granted, err) }
func (m *overAsk) fail(err error)  { trySend(m.reply, usedUp{err: err}) }
func (v *visit) fail(err error)    { trySend(v.reply, reading{err: err}) }

// book owns the budgets. A scope is a run, a batch or the total; it bounds a
// cost, tokens or both (its tallies). spent + reserved stays within the limit as
// long as no call spends more than was reserved for it.
//
// Calls that do not fit because of what others have reserved wait in one line,
// interactive ones before the others: people do not wait for batches here either.
// A call waits for all its scopes at once and holds nothing meanwhile, so there
// is no deadlock. One that does not fit stands before all later ones that need a
// tally which it lacks room in: nobody is overtaken where it matters, and calls
// of other scopes pass. Whenever something is settled the line is looked at
// again from its head. While somebody waits for a tally something is reserved in
// it, and will be settled: what does not fit beside nothing is refused.
type book struct {
	cfg  *config.Config
	emit func(subject string, event any)
	log  *slog.Logger

	scopes map[scopeKey]*scope
	// total is the scope of the current period, periodEnd its end; zero = it has none.
	total     *scope
	periodEnd time.Time
	// recent has the scopes, the last used first, without the total.
	recent *list.List
	line   *list.List // of *reserved: interactive calls, then the others
	// lastFirst is the last interactive one in line; nil = there is none.
	lastFirst *list.Element
	// look counts the times that the line was looked at from its head.
	look    uint64
	open    *atomic.Pointer[openTotal] // the ledger's; nil = nobody looks
	lessons map[modelKey]*lesson
}

func newBook(cfg *config.Config, o ledgerOptions) *book {
	return &book{
		cfg: cfg, emit: o.emit, log: o.log, scopes: map[scopeKey]*scope{}, recent: list.New(), line: list.New(),
		look: 1, lessons: map[modelKey]*lesson{},
	}
}

func (b *book) receive(_ *actor.PID, msg any) {
	now := time.Now()
	b.turnPeriod(now)
	switch m := msg.(type) {
	case *reserved:
		b.enter(m, now)
	case *settlement:
		b.settle(m, now)
	case *overAsk:
		trySend(m.reply, b.over(m.bill, now))
	case *visit:
		b.receiveVisit(m, now)
	case visitLeft:
		b.visitLeft(m.v, now)
	case scopeRead:
		b.scopeRead(m, now)
	case reconfigured:
		b.reconfigure(m.cfg, now)
	case listBudgets:
		m.reply <- b.states()
	}
	b.forget(now)
	b.sayOpen()
}

// sayOpen shows whether the total has something left for a call that has no other
// budget.
func (b *book) sayOpen() {
	if b.open == nil {
		return
	}
	t, was := b.total, b.open.Load()
	open := t != nil && t.state == scopeKnown && !t.tallies[inUSD].usedUp() && !t.tallies[inTokens].usedUp()
	switch {
	case !open && was != nil:
		b.open.Store(nil)
	case open && (was == nil || was.until != b.periodEnd):
		b.open.Store(&openTotal{b.periodEnd})
	}
}

// enter decides about a new reservation, or puts it in line. Those before it
// were looked at when something last changed, so they need not be again.
func (b *book) enter(r *reserved, now time.Time) {
	if r.state != reservedNew {
		return
	}
	r.scopes = b.scopesOf(r.bill, r.counted, now)
	for _, s := range r.scopes {
		if s != nil && !s.ready(now) {
			trySend(r.granted, errNotReady)
			return
		}
	}
	wants := b.wants(r)
	if !b.refuses(r, &wants) && (b.isBehind(r) || !b.fits(r, &wants)) {
		r.state = reservedWaiting
		b.enterLine(r)
		b.noteWaiting(r, 1, now)
	}
}

// enterLine puts a reservation behind those of its class that are there.
func (b *book) enterLine(r *reserved) {
	switch {
	case !r.isFirst():
		r.place = b.line.PushBack(r)
		return
	case b.lastFirst == nil:
		r.place = b.line.PushFront(r)
	default:
		r.place = b.line.InsertAfter(r, b.lastFirst)
	}
	b.lastFirst = r.place
}

// isFirst reports whether the reservation stands before those of other classes.
func (r *reserved) isFirst() bool { return r.class == subjects.ClassInteractive }

// noteWaiting notes that a reservation waits (n = 1) or does not wait any more (-1).
func (b *book) noteWaiting(r *reserved, n int, now time.Time) {
	r.eachTally(func(_ *scope, _ unit, m *tally) bool {
		m.waiting += n
		if r.isFirst() {
			m.waitingFirst += n
		}
		return true
	})
	for _, s := range r.scopes {
		if s != nil {
			s.users += n
			b.touch(s, now)
		}
	}
}

// eachTally calls f for the tallies that bound a reservation, until it says false.
func (r *reserved) eachTally(f func(*scope, unit, *tally) bool) {
	for _, s := range r.scopes {
		if s == nil {
			continue
		}
		for u := range units {
			if r.counted[u] && s.tallies[u].limit != config.NoLimit && !f(s, u, &s.tallies[u]) {
				return
			}
		}
	}
}

// isBehind reports whether an earlier reservation waits for a tally of r.
func (b *book) isBehind(r *reserved) (behind bool) {
	r.eachTally(func(_ *scope, _ unit, m *tally) bool {
		behind = m.lacking == b.look && (m.waitingFirst > 0 || !r.isFirst())
		return !behind
	})
	return behind
}

// refuses refuses a reservation that has no room even if nobody else had any.
func (b *book) refuses(r *reserved, wants *[units]want) bool {
	var refusal error
	r.eachTally(func(s *scope, u unit, m *tally) bool {
		w, left := &wants[u], m.limit-m.spent
		if left <= 0 || w.least > left || m.reserved == 0 && w.firm > left {
			refusal = b.refusal(r, s, u, w.firm)
		}
		return refusal == nil
	})
	if refusal != nil {
		r.state = reservedDone
		trySend(r.granted, refusal)
	}
	return refusal != nil
}

// fits grants a reservation, or marks the tallies that have no room for it. One
// of which nobody else has reserved anything has room for what was not refused.
func (b *book) fits(r *reserved, wants *[units]want) bool {
	var amount [units]int64
	for u := range units {
		amount[u] = wants[u].careful
	}
	r.eachTally(func(_ *scope, u unit, m *tally) bool {
		if m.reserved == 0 {
			amount[u] = min(amount[u], m.limit-m.spent)
		}
		return true
	})
	fits := true
	r.eachTally(func(_ *scope, u unit, m *tally) bool {
		if amount[u] > m.limit-m.spent-m.reserved {
			m.lacking, fits = b.look, false
		}
		return true
	})
	if fits {
		b.grant(r, amount)
	}
	return fits
}

// decide refuses or grants a reservation and says true, or finds that it must
// wait.
func (b *book) decide(r *reserved) bool {
	wants := b.wants(r)
	return b.refuses(r, &wants) || b.fits(r, &wants)
}

func (b *book) grant(r *reserved, amount [units]int64) {
	r.state, r.held = reservedHeld, amount
	for _, s := range r.scopes {
		if s != nil {
			s.users++
			for u := range units {
				s.tallies[u].reserved += amount[u]
			}
		}
	}
	trySend(r.granted, nil)
}

// lookAgain goes through the line from its head.
func (b *book) lookAgain(now time.Time) {
	b.look++
	for at := b.line.Front(); at != nil; {
		r, next := at.Value.(*reserved), at.Next()
		switch {
		case b.isBehind(r):
		case b.decide(r):
			b.leaveLine(r, now)
		case b.allLack(r):
			return
		}
		at = next
	}
}

// allLack reports whether everybody in line needs a tally that r lacks room in.
func (b *book) allLack(r *reserved) (all bool) {
	r.eachTally(func(_ *scope, _ unit, m *tally) bool {
		all = m.lacking == b.look && m.waiting == b.line.Len()
		return !all
	})
	return all
}

func (b *book) leaveLine(r *reserved, now time.Time) {
	if r.place == b.lastFirst {
		if b.lastFirst = r.place.Prev(); b.lastFirst != nil && !b.lastFirst.Value.(*reserved).isFirst() {
			b.lastFirst = nil
		}
	}
	b.line.Remove(r.place)
	r.place = nil
	b.noteWaiting(r, -1, now)
}

// settle takes back what a reservation holds and counts what was spent for it. A
// reservation that is done already, or never came, holds nothing.
func (b *book) settle(m *settlement, now time.Time) {
	r := m.r
	was := r.state
	r.state = reservedDone
	switch was {
	case reservedWaiting:
		b.leaveLine(r, now)
	case reservedHeld:
		b.spend(r, m, now)
	default:
		return
	}
	b.lookAgain(now)
}

func (b *book) spend(r *reserved, m *settlement, now time.Time) {
	b.learn(r, m, now)
	var spent [units]int64
	if r.counted[inUSD] {
		spent[inUSD] = max(0, int64(m.cost))
	}
	if r.counted[inTokens] {
		spent[inTokens] = max(0, plus(m.tokens.InputTokens, m.tokens.OutputTokens))
	}
	for _, s := range r.scopes {
		if s == nil {
			continue
		}
		s.users--
		b.touch(s, now)
		for u := range units {
			t := &s.tallies[u]
			t.reserved -= r.held[u]
			t.spent, t.sinceRead = plus(t.spent, spent[u]), plus(t.sinceRead, spent[u])
			b.sayMarks(s, u, now)
		}
	}
}

// sendBack sends everybody in line to ask again: their scopes have changed.
func (b *book) sendBack(now time.Time) {
	b.look++
	for at := b.line.Front(); at != nil; at = b.line.Front() {
		r := at.Value.(*reserved)
		b.leaveLine(r, now)
		r.state, r.scopes = reservedNew, [maxScopes]*scope{}
		trySend(r.granted, errNotReady)
	}
}

func (b *book) reconfigure(cfg *config.Config, now time.Time) {
	period := b.cfg.Costs.TotalPeriod
	b.cfg = cfg
	if b.total != nil {
		b.relimit(b.total, now)
		if period != cfg.Costs.TotalPeriod {
			b.newPeriod(now)
		}
	}
	for at := b.recent.Front(); at != nil; at = at.Next() {
		b.relimit(at.Value.(*scope), now)
	}
	b.sendBack(now)
}
