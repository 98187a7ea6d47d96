package actors

import (
	"container/list"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// unit is what a budget is counted in.
type unit uint8

const (
	inUSD    unit = iota // micro-dollars
	inTokens             // input and output tokens, as usage records total them
	units
)

var (
	unitNames = [units]string{inUSD: "usd", inTokens: "tokens"}
	everyUnit = [units]bool{true, true}
)

const (
	// maxScopes is how many scopes one call has: its run, its batch and the total.
	maxScopes = 3
	// keptIdle is how long an idle scope is kept: after that the usage database
	// tells what it has spent. Above manyScopes they go sooner, but not before
	// recordTime, by when the records of its last calls are in the database.
	keptIdle   = 10 * time.Minute
	recordTime = time.Minute
	manyScopes = 1 << 16
	// readAgain is the time until a scope that could not be read is read again.
	readAgain = 30 * time.Second
	// smallCall is the part of a limit (1/64) within which a call must be for its
	// refusal to show that the budget is used up.
	smallCall = 64
	// maxStates bounds the scopes that state lists beside the total.
	maxStates = 50
)

// budgetMarks are the percentages that are said once each.
var budgetMarks = [...]int{50, 80, 90, 100}

// scopeKey names a scope: kind is subjects.BudgetRun, BudgetBatch or
// BudgetTotal, id the run, the batch or the period.
type scopeKey struct{ kind, id string }

// limits are the limits of a scope; NoLimit = not bounded.
func (k scopeKey) limits(cfg *config.Config) (l [units]int64) {
	switch k.kind {
	case subjects.BudgetRun:
		l = [units]int64{inUSD: int64(cfg.RunLimit()), inTokens: config.NoLimit}
	case subjects.BudgetBatch:
		l = [units]int64{inUSD: int64(cfg.Costs.BatchUSD), inTokens: cfg.Costs.BatchTokens}
	default:
		l = [units]int64{inUSD: int64(cfg.Costs.TotalUSD), inTokens: config.NoLimit}
	}
	return l
}

func (k scopeKey) isBounded(cfg *config.Config, counted [units]bool) bool {
	for u, limit := range k.limits(cfg) {
		if counted[u] && limit != config.NoLimit {
			return true
		}
	}
	return false
}

// keys are the possible scopes of a bill, without the total's id.
func (b bill) keys() [maxScopes]scopeKey {
	return [maxScopes]scopeKey{{subjects.BudgetRun, b.runID}, {subjects.BudgetBatch, b.batchID}, {subjects.BudgetTotal, ""}}
}

func (k scopeKey) named() bool { return k.kind == subjects.BudgetTotal || k.id != "" }

// bounded reports whether anything that is counted is bounded for a bill.
func bounded(cfg *config.Config, b bill, counted [units]bool) bool {
	for _, k := range b.keys() {
		if k.named() && k.isBounded(cfg, counted) {
			return true
		}
	}
	return false
}

// tally is one amount of a scope.
type tally struct {
	limit           int64 // or NoLimit
	spent, reserved int64
	// sinceRead is what was spent since the scope's reading began.
	sinceRead int64
	// said is the highest mark that was said.
	said int
	// exhausted says that a small call was refused: the rest is of no use. What is
	// spent never sinks, so this stays true until the limit changes.
	exhausted bool
	// waiting counts the reservations in line that need the tally. lacking is the
	// book's look at which one of them had no room in it.
	waiting int
	// waitingFirst counts the interactive ones among them.
	waitingFirst int
	lacking      uint64
}

// usedUp reports whether the tally has nothing left for anybody.
func (m *tally) usedUp() bool {
	return m.limit != config.NoLimit && (m.spent >= m.limit || m.exhausted)
}

// scopeState says what is known of what a scope has spent before.
type scopeState uint8

const (
	scopeUnread  scopeState = iota
	scopeReading            // a call reads it; the others wait
	scopeKnown
	scopeUnknown // it could not be read: counted from 0, and read again later
	scopeRetry   // a call reads it again; the others do not wait
)

// scope is one budget: a run's, a batch's or the total's. The total's stays when
// its period changes: what is reserved then is settled in the new period, as the
// usage records are.
type scope struct {
	key     scopeKey
	tallies [units]tally

	state scopeState
	// giveUp is when the first reading is taken for failed, whoever does it; zero =
	// not begun. readAt is when one that failed is tried again.
	giveUp, readAt time.Time
	parked         []*visit // who waits for the reading

	users int           // reservations that wait or are held
	used  time.Time     // last
	place *list.Element // in the book's recent; nil = the total
}

// ready reports whether calls may count on the scope.
func (s *scope) ready(now time.Time) bool {
	return s.state == scopeKnown || s.state == scopeRetry || s.state == scopeUnknown && now.Before(s.readAt)
}

// scopesOf returns the scopes that bound what is counted of a bill.
func (b *book) scopesOf(of bill, counted [units]bool, now time.Time) (out [maxScopes]*scope) {
	for i, k := range of.keys() {
		if k.named() && k.isBounded(b.cfg, counted) {
			out[i] = b.scope(k, now)
		}
	}
	return out
}

func (b *book) scope(k scopeKey, now time.Time) *scope {
	if k.kind == subjects.BudgetTotal {
		if b.total == nil {
			b.total = &scope{key: k}
			b.newPeriod(now)
			b.relimit(b.total, now)
		}
		return b.total
	}
	s := b.scopes[k]
	if s == nil {
		s = &scope{key: k}
		s.place = b.recent.PushFront(s)
		b.scopes[k] = s
		b.relimit(s, now)
	}
	b.touch(s, now)
	return s
}

func (b *book) touch(s *scope, now time.Time) {
	s.used = now
	if s.place != nil {
		b.recent.MoveToFront(s.place)
	}
}

// forget lets go of scopes that were not used for long.
func (b *book) forget(now time.Time) {
	for at := b.recent.Back(); at != nil; at = b.recent.Back() {
		s := at.Value.(*scope)
		idle := now.Sub(s.used)
		switch {
		case idle < recordTime || idle < keptIdle && len(b.scopes) <= manyScopes:
			return
		case s.users > 0 || s.state == scopeReading || s.state == scopeRetry:
			b.touch(s, now)
		default:
			b.recent.Remove(at)
			delete(b.scopes, s.key)
		}
	}
}

// relimit gives a scope the limits of the configuration. A mark that a higher
// limit has moved out of reach may be said again; one that a lower limit puts
// behind is said.
func (b *book) relimit(s *scope, now time.Time) {
	for u, limit := range s.key.limits(b.cfg) {
		m := &s.tallies[u]
		if m.limit == limit {
			continue
		}
		if m.limit == config.NoLimit && (s.state == scopeKnown || s.state == scopeUnknown) {
			s.state, s.giveUp = scopeUnread, time.Time{} // not all was counted meanwhile
		}
		m.limit, m.exhausted = limit, false
		m.said = min(m.said, m.passed())
		b.sayMarks(s, unit(u), now)
	}
}

// turnPeriod begins the total anew when its period has ended.
func (b *book) turnPeriod(now time.Time) {
	if b.total != nil && !b.periodEnd.IsZero() && !now.Before(b.periodEnd) {
		b.newPeriod(now)
		b.sendBack(now)
	}
}

// newPeriod makes the total that of the current period: nothing is known of it,
// and what is reserved stays so.
func (b *book) newPeriod(now time.Time) {
	t := b.total
	t.key.id, b.periodEnd = periodOf(b.cfg.Costs.TotalPeriod, now)
	for u := range t.tallies {
		m := &t.tallies[u]
		m.spent, m.sinceRead, m.said, m.exhausted = 0, 0, 0, false
	}
	t.state, t.giveUp = scopeUnread, time.Time{}
	b.wake(t, now)
}

// periodOf returns the id of the period that a moment is in, and its end; zero =
// it has none.
func periodOf(of string, at time.Time) (id string, end time.Time) {
	y, m, d := at.UTC().Date()
	switch of {
	case config.PeriodDay:
		return at.UTC().Format("2006-01-02"), time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
	case config.PeriodMonth:
		return at.UTC().Format("2006-01"), time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
	}
	return "all", time.Time{}
}

// receiveVisit tells a visitor what to read, or makes it wait for another who
// reads.
func (b *book) receiveVisit(v *visit, now time.Time) {
	todo := reading{until: now.Add(loadTime)}
	scopes := b.scopesOf(v.bill, everyUnit, now)
	for _, s := range scopes {
		if s != nil && b.beginRead(s, now) {
			todo.scopes = append(todo.scopes, scopeToRead{s, s.key})
			if s.state == scopeReading && s.giveUp.Before(todo.until) {
				todo.until = s.giveUp
			}
		}
	}
	if todo.scopes == nil {
		for _, s := range scopes {
			if s != nil && s.state == scopeReading {
				s.parked, v.at = append(s.parked, v), s
				return
			}
		}
	}
	trySend(v.reply, todo)
}

// beginRead notes that a visitor reads the scope; false = nobody need.
func (b *book) beginRead(s *scope, now time.Time) bool {
	switch {
	case s.state == scopeUnread:
		s.state = scopeReading
		if s.giveUp.IsZero() {
			s.giveUp = now.Add(loadTime)
		}
	case s.state == scopeUnknown && !now.Before(s.readAt):
		s.state = scopeRetry
	default:
		return false
	}
	for u := range s.tallies {
		s.tallies[u].sinceRead = 0
	}
	return true
}

// visitLeft takes out a visitor who waits, or takes back what it was to read.
func (b *book) visitLeft(v *visit, now time.Time) {
	if s := v.at; s != nil {
		s.parked = slices.DeleteFunc(s.parked, func(o *visit) bool { return o == v })
	}
	select {
	case todo := <-v.reply:
		for _, s := range todo.scopes {
			b.scopeRead(scopeRead{scopeToRead: s, left: true}, now)
		}
	default:
	}
}

// scopeRead takes in what a scope has spent. What was settled while it was read
// is added, for its records may be newer than the reading: rather a little too
// much than too little.
func (b *book) scopeRead(m scopeRead, now time.Time) {
	s := m.s
	if s.key != m.key || s.state != scopeReading && s.state != scopeRetry {
		return // its period has ended meanwhile
	}
	switch {
	case m.left && s.state == scopeRetry:
		s.state = scopeUnknown
	case m.left && now.Before(s.giveUp):
		s.state = scopeUnread
	case m.left || m.err != nil: // left: nobody has had the time to read it to its end
		s.state, s.readAt = scopeUnknown, now.Add(readAgain)
		b.log.Warn("what a budget has spent cannot be read; it counts from 0 until it can", "scope", s.key.kind, "id", s.key.id, "error", m.err)
	default:
		s.state = scopeKnown
		for u := range units {
			t := &s.tallies[u]
			read := max(0, m.spent[u])
			t.spent = read
			t.said = max(t.said, t.passed())
			t.spent = plus(read, t.sinceRead)
			b.sayMarks(s, u, now)
		}
	}
	b.wake(s, now)
	b.lookAgain(now)
}

// wake answers those who wait for a reading.
func (b *book) wake(s *scope, now time.Time) {
	parked := s.parked
	s.parked = nil
	for _, v := range parked {
		b.receiveVisit(v, now)
	}
}

// passed is the highest mark that what is spent has reached; 0 = none.
func (m *tally) passed() int {
	high := 0
	for _, mark := range budgetMarks {
		if m.limit > 0 && m.spent >= (m.limit*int64(mark)+99)/100 {
			high = mark
		}
	}
	return high
}

// sayMarks says each mark that was passed and not said.
func (b *book) sayMarks(s *scope, u unit, now time.Time) {
	m := &s.tallies[u]
	passed := m.passed()
	for _, mark := range budgetMarks {
		if m.said < mark && mark <= passed {
			b.say(s, u, mark, now)
		}
	}
}

func (b *book) say(s *scope, u unit, mark int, now time.Time) {
	m := &s.tallies[u]
	m.said = mark
	b.emit(subjects.BudgetStatus, &subjects.BudgetEvent{
		Scope: s.key.kind, ID: s.key.id, Unit: unitNames[u], Percent: mark,
		Spent: shown(u, m.spent), Limit: shown(u, m.limit), At: subjects.Time{Time: now},
	})
}

// shown is an amount in the unit that people read: dollars, or tokens.
func shown(u unit, n int64) float64 {
	if u == inUSD {
		return float64(n) / 1e6
	}
	return float64(n)
}

// states lists the budgets that are bounded.
func (b *book) states() []subjects.BudgetState {
	var out []subjects.BudgetState
	add := func(s *scope) {
		for u, m := range s.tallies {
			if m.limit != config.NoLimit {
				out = append(out, subjects.BudgetState{
					Scope: s.key.kind, ID: s.key.id, Unit: unitNames[u], Waiting: m.waiting,
					Known: s.state == scopeKnown,
					Spent: shown(unit(u), m.spent), Reserved: shown(unit(u), m.reserved), Limit: shown(unit(u), m.limit),
				})
			}
		}
	}
	if total := (scopeKey{kind: subjects.BudgetTotal}); total.isBounded(b.cfg, everyUnit) {
		add(b.scope(total, time.Now()))
	}
	n := 0
	for at := b.recent.Front(); at != nil && n < maxStates; at, n = at.Next(), n+1 {
		add(at.Value.(*scope))
	}
	return out
}
