package fakeopenai

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// ClassHeader is the request header that names a call's class marker. Without
// it the field "user" of the body does.
const ClassHeader = "X-Fake-Class"

// maxSweep bounds the look-up of closed connections: above so many calls in
// flight its cost would disturb what is being measured.
const maxSweep = 1024

// Counts is what the server saw of one set of calls. At every moment
// Total = InFlight + Answered + Failed + Aborted.
type Counts struct {
	// InFlight is the number of calls now, Peak the greatest InFlight so far.
	InFlight, Peak int
	// Total is the number of calls that arrived with a body that could be read.
	Total int
	// Answered counts whole answers with status 200, Failed the errors and cuts
	// that were scripted, and refused requests; Aborted the calls whose client
	// went away first. An answer without [DONE] counts as answered.
	Answered, Failed, Aborted int
	// The tokens of the usage reports that were sent, by OpenAI's way of counting:
	// Prompt contains Cached, and Completion contains Reasoning. An answer that
	// carried no usage adds nothing.
	PromptTokens, CompletionTokens, CachedTokens, ReasoningTokens int64
}

// Pair names a set of calls: those of one model with one class marker.
type Pair struct{ Model, Class string }

// Snapshot is all counts at one moment.
type Snapshot struct {
	All     Counts
	Models  map[string]Counts
	Classes map[string]Counts
	Pairs   map[Pair]Counts
}

// Counts returns the counts of all calls.
func (s *Server) Counts() Counts {
	s.led.mu.Lock()
	defer s.led.mu.Unlock()
	return s.led.all
}

// Model returns the counts of one model's calls, zero when there were none.
func (s *Server) Model(name string) Counts { return s.Snapshot().Models[name] }

// Class returns the counts of the calls with one class marker.
func (s *Server) Class(marker string) Counts { return s.Snapshot().Classes[marker] }

// Snapshot returns all counts at one moment.
func (s *Server) Snapshot() Snapshot {
	s.led.mu.Lock()
	defer s.led.mu.Unlock()
	return s.led.snapshotLocked()
}

// ResetPeaks sets every Peak to the present InFlight, for a test in phases.
func (s *Server) ResetPeaks() {
	s.led.mu.Lock()
	defer s.led.mu.Unlock()
	s.led.eachLocked(func(c *Counts) { c.Peak = c.InFlight })
}

// WaitInFlight returns nil as soon as exactly n calls are in flight, or an error
// with the last counts when ctx ends first.
func (s *Server) WaitInFlight(ctx context.Context, n int) error {
	return s.Wait(ctx, func(sn Snapshot) bool { return sn.All.InFlight == n })
}

// Wait returns nil as soon as cond is true, asking it again after every change
// of the counts; or an error with the last counts when ctx ends first.
func (s *Server) Wait(ctx context.Context, cond func(Snapshot) bool) error {
	for {
		s.led.mu.Lock()
		sn := s.led.snapshotLocked()
		ch := s.led.changedLocked()
		s.led.mu.Unlock()
		if cond(sn) {
			return nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return fmt.Errorf("fakeopenai: condition not reached, counts are %+v: %w", sn.All, context.Cause(ctx))
		}
	}
}

// outcome is how a call ended.
type outcome int

const (
	answered outcome = iota + 1
	failed
	aborted
)

// ledger holds every count. One lock for all of them makes them consistent with
// each other; it is held for some hundred nanoseconds a call.
type ledger struct {
	mu      sync.Mutex
	all     Counts
	models  map[string]*Counts
	classes map[string]*Counts
	pairs   map[Pair]*pairCounts
	active  call // head of a ring of the calls in flight
	changed chan struct{}
}

type pairCounts struct {
	Counts
	model, class *Counts
}

// call is one call in the books. Its fields belong to the ledger's lock.
type call struct {
	n          int
	pair       *pairCounts
	conn       net.Conn // nil = not known
	prev, next *call
	end        outcome // 0 = in flight
	usage      Usage
}

func newLedger() *ledger {
	l := &ledger{models: map[string]*Counts{}, classes: map[string]*Counts{}, pairs: map[Pair]*pairCounts{}}
	l.active.prev, l.active.next = &l.active, &l.active
	return l
}

// enter books a call and returns its number.
func (l *ledger) enter(c *call, model, class string, conn net.Conn) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pairs[Pair{model, class}]
	if p == nil {
		p = &pairCounts{model: slot(l.models, model), class: slot(l.classes, class)}
		l.pairs[Pair{model, class}] = p
	}
	c.pair, c.conn = p, conn
	c.prev, c.next = l.active.prev, &l.active
	c.prev.next, c.next.prev = c, c
	newPeak := false
	for _, t := range l.tallies(p) {
		t.Total++
		t.InFlight++
		newPeak = newPeak || t.InFlight > t.Peak
	}
	c.n = l.all.Total
	if newPeak {
		l.sweepLocked(c)
		for _, t := range l.tallies(p) {
			t.Peak = max(t.Peak, t.InFlight)
		}
	}
	l.notifyLocked()
	return c.n
}

// leave books the end of a call, once; a call that was already found to be gone
// stays aborted. It reports whether this was the end.
func (l *ledger) leave(c *call, end outcome, u Usage) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaveLocked(c, end, u)
}

func (l *ledger) leaveLocked(c *call, end outcome, u Usage) bool {
	if c.end != 0 {
		return false
	}
	c.prev.next, c.next.prev = c.next, c.prev
	c.end, c.usage, c.conn = end, u, nil
	for _, t := range l.tallies(c.pair) {
		t.InFlight--
		t.add(end, u, 1)
	}
	l.notifyLocked()
	return true
}

// turn changes an end that was booked too early: the last bytes did not go out.
func (l *ledger) turn(c *call, end outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.end == 0 || c.end == end {
		return
	}
	for _, t := range l.tallies(c.pair) {
		t.add(c.end, c.usage, -1)
		t.add(end, Usage{}, 1)
	}
	c.end, c.usage = end, Usage{}
	l.notifyLocked()
}

// sweepLocked books out the calls whose client has closed the connection.
func (l *ledger) sweepLocked(newest *call) {
	if l.all.InFlight > maxSweep {
		return
	}
	for c := l.active.next; c != &l.active; {
		next := c.next
		if c != newest && c.conn != nil && peerClosed(c.conn) {
			l.leaveLocked(c, aborted, Usage{})
		}
		c = next
	}
}

func (l *ledger) tallies(p *pairCounts) [4]*Counts {
	return [4]*Counts{&l.all, p.model, p.class, &p.Counts}
}

func (l *ledger) eachLocked(f func(*Counts)) {
	f(&l.all)
	for _, c := range l.models {
		f(c)
	}
	for _, c := range l.classes {
		f(c)
	}
	for _, c := range l.pairs {
		f(&c.Counts)
	}
}

func (l *ledger) snapshotLocked() Snapshot {
	sn := Snapshot{All: l.all, Models: map[string]Counts{}, Classes: map[string]Counts{}, Pairs: map[Pair]Counts{}}
	for k, c := range l.models {
		sn.Models[k] = *c
	}
	for k, c := range l.classes {
		sn.Classes[k] = *c
	}
	for k, c := range l.pairs {
		sn.Pairs[k] = c.Counts
	}
	return sn
}

// changedLocked returns a channel that is closed at the next change. It is made
// only when someone waits, so that counting costs nothing else.
func (l *ledger) changedLocked() <-chan struct{} {
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

func (l *ledger) notifyLocked() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

func (c *Counts) add(end outcome, u Usage, sign int) {
	switch end {
	case answered:
		c.Answered += sign
	case failed:
		c.Failed += sign
	case aborted:
		c.Aborted += sign
	}
	c.PromptTokens += int64(sign * u.Prompt)
	c.CompletionTokens += int64(sign * u.Completion)
	c.CachedTokens += int64(sign * u.Cached)
	c.ReasoningTokens += int64(sign * u.Reasoning)
}

func slot(m map[string]*Counts, k string) *Counts {
	c := m[k]
	if c == nil {
		c = &Counts{}
		m[k] = c
	}
	return c
}
