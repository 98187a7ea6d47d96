package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/subjects"
)

// ticketState is where a ticket stands. Only the model pool changes it.
type ticketState uint8

const (
	ticketNew ticketState = iota
	ticketQueued
	ticketActive
	ticketDone
)

// ticket is one call's place in a model pool: in line, then holding a slot of
// the pool and one of its class. It is the grant's identity, so a release said
// twice frees one slot. After it was sent, its fields belong to the pool.
type ticket struct {
	class string
	// granted gets nil when the slots are held, or why they never will be.
	granted chan error

	state      ticketState
	since      time.Time
	classGrant uint64
	next, prev *ticket
}

// Messages of a model pool.
type (
	// acquire puts a ticket in line.
	acquire struct{ t *ticket }
	// done gives back whatever the ticket holds: its place in line or its slots.
	done struct{ t *ticket }
	// classGranted and classDenied answer a classWant. classOffer comes unasked,
	// with the slot reserved, when a class that had denied has one.
	classGranted struct {
		class string
		grant uint64
	}
	classDenied struct{ class string }
	classOffer  struct {
		class string
		grant uint64
	}
	// saturationDue is the pool's own timer.
	saturationDue struct{}
	poolStats     struct{ reply chan<- poolState }
	// setCap changes the bound. Slots that are held above a lower one stay held.
	setCap struct{ cap int }
	// retire asks an idle pool to refuse all later tickets; the reply says
	// whether it was idle.
	retire struct{ reply chan<- bool }
)

func (m *acquire) fail(err error) { trySend(m.t.granted, err) }

// poolState is a model pool's answer to poolStats.
type poolState struct {
	subjects.PoolHealth
	queuedByClass map[string]int
}

// lane is one class's part of a model pool.
type lane struct {
	class  string
	weight int
	queue  ticketList
	// asked counts slots reserved and asked for at the class pool, not answered yet.
	asked int
	// blocked says that the class pool denied and has not offered since.
	blocked bool
	// credit is the smooth weighted round robin's.
	credit int
	// unmarked is the first ticket in line whose wait has not passed the mark.
	unmarked   *ticket
	suppressed int
	lastEvent  time.Time
}

// modelPool owns the slots of one (provider, model) pair and who waits for
// them. Its states, per slot: free, reserved (a class pool was asked), held.
// active + reserved never exceeds cap, and a slot is never reserved while its
// class is known to be full, so nobody holds one tier while waiting for the
// other.
type modelPool struct {
	sys             *system
	provider, model string
	cap             int
	maxQueue        int
	saturatedAfter  time.Duration
	classPools      map[string]*actor.PID
	emit            func(subject string, event any)

	lanes    []*lane
	active   int
	reserved int
	peak     int
	granted  int64
	retired  bool
	timer    *time.Timer
}

var errRetired error = subjects.Errorf(subjects.KindProviderUnavailable, "the pool was retired")

func (p *modelPool) receive(self *actor.PID, msg any) {
	switch m := msg.(type) {
	case *acquire:
		p.enqueue(m.t)
	case done:
		p.finish(m.t)
	case classGranted:
		p.unreserve(m.class)
		p.start(m.class, m.grant)
	case classDenied:
		l := p.unreserve(m.class)
		l.blocked = true
		l.credit += p.contending(l) // the turn was not used
	case classOffer:
		p.lane(m.class).blocked = false
		if p.active+p.reserved < p.cap {
			p.start(m.class, m.grant)
		} else {
			p.returnClass(m.class, m.grant)
		}
	case setCap:
		p.cap = m.cap
	case newBounds:
		p.maxQueue, p.saturatedAfter = m.cfg.MaxQueue, m.cfg.SaturatedAfter
		for _, l := range p.lanes {
			l.weight = m.cfg.Classes[l.class].Weight
		}
	case saturationDue:
		p.timer = nil
		p.markSaturated(time.Now())
	case poolStats:
		m.reply <- p.state()
		return
	case retire:
		idle := p.active == 0 && p.reserved == 0 && p.queued() == 0
		p.retired = p.retired || idle
		m.reply <- idle
		return
	}
	p.pump(self)
}

func (p *modelPool) lane(class string) *lane {
	for _, l := range p.lanes {
		if l.class == class {
			return l
		}
	}
	panic("actors: unknown class " + class)
}

func (p *modelPool) enqueue(t *ticket) {
	if t.state != ticketNew {
		return
	}
	if p.retired {
		t.state = ticketDone
		trySend(t.granted, errRetired)
		return
	}
	l := p.lane(t.class)
	if l.queue.n >= p.maxQueue {
		t.state = ticketDone
		trySend[error](t.granted, subjects.Errorf(subjects.KindPoolFull,
			"%d %s calls already wait for %s/%s, the bound pools.max_queue; send fewer at once or try again later",
			l.queue.n, t.class, p.provider, p.model))
		return
	}
	t.state, t.since = ticketQueued, time.Now()
	l.queue.push(t)
	if l.unmarked == nil {
		l.unmarked = t
	}
}

// finish takes back what a ticket holds. A ticket that is done already, or
// never came, holds nothing.
func (p *modelPool) finish(t *ticket) {
	switch t.state {
	case ticketQueued:
		p.dequeue(p.lane(t.class), t)
	case ticketActive:
		p.returnClass(t.class, t.classGrant) // reverse order: class, then provider
		p.active--
	}
	t.state = ticketDone
}

func (p *modelPool) dequeue(l *lane, t *ticket) {
	if l.unmarked == t {
		l.unmarked = t.next
	}
	l.queue.remove(t)
}

func (p *modelPool) unreserve(class string) *lane {
	l := p.lane(class)
	l.asked--
	p.reserved--
	return l
}

// start gives the head of a class's line the slots: one of this pool, and the
// class slot of grant. With nobody in line the class slot goes back.
func (p *modelPool) start(class string, grant uint64) {
	l := p.lane(class)
	t := l.queue.head
	if t == nil {
		p.returnClass(class, grant)
		return
	}
	p.dequeue(l, t)
	t.state, t.classGrant = ticketActive, grant
	p.active++
	p.granted++
	p.peak = max(p.peak, p.active)
	trySend(t.granted, nil)
}

func (p *modelPool) returnClass(class string, grant uint64) {
	p.sys.send(p.classPools[class], classReturn{grant: grant})
}

// pump reserves free slots for the classes whose turn it is, and asks their
// class pools.
func (p *modelPool) pump(self *actor.PID) {
	for p.active+p.reserved < p.cap {
		l := p.turn()
		if l == nil {
			break
		}
		l.asked++
		p.reserved++
		p.sys.send(p.classPools[l.class], classWant{from: self})
	}
	p.armTimer(self)
}

func (l *lane) contends() bool { return !l.blocked && l.queue.n > l.asked }

// turn picks the next class by smooth weighted round robin among those that
// have somebody to start; the first class wins a tie.
func (p *modelPool) turn() *lane {
	var best *lane
	total := 0
	for _, l := range p.lanes {
		if !l.contends() {
			continue
		}
		l.credit += l.weight
		total += l.weight
		if best == nil || l.credit > best.credit {
			best = l
		}
	}
	if best != nil {
		best.credit -= total
	}
	return best
}

// contending is the weight of all classes that could have had l's turn, l's included.
func (p *modelPool) contending(l *lane) int {
	total := l.weight
	for _, o := range p.lanes {
		if o != l && o.contends() {
			total += o.weight
		}
	}
	return total - l.weight
}

func (p *modelPool) queued() int {
	n := 0
	for _, l := range p.lanes {
		n += l.queue.n
	}
	return n
}

func (p *modelPool) state() poolState {
	s := poolState{
		PoolHealth:    subjects.PoolHealth{Cap: p.cap, Active: p.active, Queued: p.queued(), Peak: p.peak, Granted: p.granted},
		queuedByClass: make(map[string]int, len(p.lanes)),
	}
	for _, l := range p.lanes {
		s.queuedByClass[l.class] = l.queue.n
	}
	return s
}

// armTimer sets the timer for the next wait that will pass the mark.
func (p *modelPool) armTimer(self *actor.PID) {
	if p.timer != nil {
		return
	}
	var first *ticket
	for _, l := range p.lanes {
		if l.unmarked != nil && (first == nil || l.unmarked.since.Before(first.since)) {
			first = l.unmarked
		}
	}
	if first != nil {
		p.timer = p.sys.after(time.Until(first.since.Add(p.saturatedAfter)), self, saturationDue{})
	}
}

// markSaturated says llm.pool_saturated for each class in which a wait has
// passed the mark: while the call still waits, one event a second at most, the
// rest counted.
func (p *modelPool) markSaturated(now time.Time) {
	for _, l := range p.lanes {
		var oldest *ticket
		passed := 0
		for t := l.unmarked; t != nil && now.Sub(t.since) >= p.saturatedAfter; t = t.next {
			if oldest == nil {
				oldest = t
			}
			passed++
			l.unmarked = t.next
		}
		if passed == 0 {
			continue
		}
		if !l.lastEvent.IsZero() && now.Sub(l.lastEvent) < time.Second {
			l.suppressed += passed
			continue
		}
		p.emit(subjects.PoolSaturated, &subjects.PoolSaturatedEvent{
			Provider: p.provider, Model: p.model, Class: l.class,
			WaitedMs: now.Sub(oldest.since).Milliseconds(),
			Active:   p.active, Queued: l.queue.n, Cap: p.cap,
			Suppressed: l.suppressed + passed - 1, At: subjects.Time{Time: now},
		})
		l.suppressed, l.lastEvent = 0, now
	}
}

// ticketList is a first-in first-out line from which any ticket may leave.
type ticketList struct {
	head, tail *ticket
	n          int
}

func (q *ticketList) push(t *ticket) {
	t.prev, t.next = q.tail, nil
	if q.tail != nil {
		q.tail.next = t
	} else {
		q.head = t
	}
	q.tail = t
	q.n++
}

func (q *ticketList) remove(t *ticket) {
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		q.head = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	} else {
		q.tail = t.prev
	}
	t.next, t.prev = nil, nil
	q.n--
}

// trySend puts v in a one-slot channel; a second value is dropped.
func trySend[T any](ch chan<- T, v T) {
	select {
	case ch <- v:
	default:
	}
}
