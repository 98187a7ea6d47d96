package actors

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// A flight is one attempt at an answer that several askers share. Its work runs
// in a goroutine of its own, the carrier's; every asker, the first one too, has a
// seat, from which it reads the events and the end. So whoever leaves leaves a
// seat; the last one to leave ends the flight's context.
//
// States: open (the cache gives seats), then one of: closed (its stream has grown
// over the bound, or the cache was cleared: those who have seats go on, nobody
// joins), abandoned (the last seat was left: its context is over), ended.
//
// Who writes what: the carrier the events, the head's end and the result; the
// cache's actor the seats and the context's end; an asker its own seat. The
// events are a list with one writer and many readers: a reader that has caught up
// waits for a token in its own channel, which has one slot and which the carrier
// fills after each event. A reader that takes a seat meanwhile needs no token:
// it takes the seat before it looks at the list, and the carrier looks at the
// seats after it has linked.
//
// One exception: the first asker of a stream over NATS is spoken for. The carrier
// sends it each event itself (share.go), since waking it for each costs more than
// the event; it waits for the end alone, and takes the turn back when it leaves.
//
// An asker that is slower than the provider holds the events that it has not read.
// Those are bounded by what the provider's reader takes of an answer.

// link points at the next event of a stream; nil while there is none.
type link = atomic.Pointer[node]

// node is one event. It does not change once it is linked.
type node struct {
	ev   wire.Event
	next link
}

// flight is one shared attempt.
type flight struct {
	cache *cache
	key   flightKey
	bound int64 // of a stream that can be joined and kept, in bytes

	// ctx ends when the last seat is left before the end, with that asker's cause,
	// and only then: it has no deadline.
	ctx    context.Context
	cancel context.CancelCauseFunc

	// until is the latest deadline of all who have taken a seat, in nanoseconds since
	// 1970; 0 = none has one.
	until atomic.Int64
	// opened is what the carrier says of the answer, before its first event.
	opened atomic.Pointer[opening]
	// head is where the stream begins; nil once it has grown over the bound.
	head  atomic.Pointer[link]
	seats atomic.Pointer[[]*seat]
	first [1]*seat // what seats has to begin with
	alone []*seat
	ended atomic.Pointer[flown]
	done  chan struct{} // closed once ended is set

	tail  *link // the carrier's, as all below
	size  int64 // the bytes that the events take
	nodes []node
	bytes []byte
}

// flown is how a flight ended. It is shared by all who had a seat.
type flown struct {
	resp *wire.Response
	err  error
	work *work
	keep bool // the answer may be kept
	cand subjects.Candidate
	// began says that events went out.
	began bool
}

// shared reports whether an asker takes the end for its own. The first takes
// whatever came. Another one takes an answer and a provider's error; where the
// flight ended for its first asker's own sake, before any output, the other looks
// for the answer anew.
func (r *flown) shared(first bool) bool {
	if first || r.err == nil || r.began {
		return true
	}
	switch subjects.KindOf(r.err) {
	case subjects.KindCancelled, subjects.KindBudgetExceeded, subjects.KindPoolFull:
		return false
	}
	return true
}

func newFlight(c *cache, key flightKey, bound int64) *flight {
	f := &flight{cache: c, key: key, bound: bound, done: make(chan struct{}), tail: &link{}}
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	f.head.Store(f.tail)
	return f
}

// event puts the next event into the list; the event and what it points at are
// copied. For the carrier's goroutine alone.
func (f *flight) event(ev *wire.Event) {
	n := f.newNode()
	n.ev = *ev
	n.ev.Raw, n.ev.Text = f.copyBytes(ev.Raw), strings.Clone(ev.Text)
	if c := ev.ToolCall; c != nil {
		n.ev.ToolCall = &subjects.ToolCall{ID: strings.Clone(c.ID), Name: strings.Clone(c.Name), Arguments: strings.Clone(c.Arguments)}
		f.size += callBytes(c)
	}
	f.size += int64(len(ev.Text))
	f.tail.Store(n)
	f.tail = &n.next
	if f.size > f.bound {
		f.head.Store(nil)
	}
	f.wake(false)
}

// Events are many and small: the nodes, and their bytes, are cut from blocks,
// each twice the size of the one before within these bounds.
const (
	minNodes, maxNodes = 4, 64
	minBytes, maxBytes = 512, 8 << 10
)

func (f *flight) newNode() *node {
	if len(f.nodes) == cap(f.nodes) {
		f.nodes = make([]node, 0, min(max(minNodes, 2*cap(f.nodes)), maxNodes))
		f.size += int64(cap(f.nodes)) * int64(unsafe.Sizeof(node{}))
	}
	f.nodes = f.nodes[:len(f.nodes)+1]
	return &f.nodes[len(f.nodes)-1]
}

// copyBytes copies b, nil for nil.
func (f *flight) copyBytes(b []byte) []byte {
	switch {
	case b == nil:
		return nil
	case len(b) > maxBytes/2:
		f.size += int64(len(b))
		return bytes.Clone(b)
	case f.bytes == nil || len(b) > cap(f.bytes)-len(f.bytes):
		f.bytes = make([]byte, 0, max(len(b), min(max(minBytes, 2*cap(f.bytes)), maxBytes)))
		f.size += int64(cap(f.bytes))
	}
	at := len(f.bytes)
	f.bytes = append(f.bytes, b...)
	return f.bytes[at:len(f.bytes):len(f.bytes)]
}

// end says how the flight ended; to be deferred by the carrier, exactly once. The
// cache hears of it first: whoever has seen the end and asks again finds the
// answer there, or a new flight.
func (f *flight) end(r flown) {
	m := &landed{f: f, end: &r}
	if head := f.head.Load(); head != nil && r.keep && r.err == nil {
		m.kept = newKept(&r, head.Load(), f.size)
	}
	f.cache.sys.send(f.cache.pid, m)
	f.publish(&r)
}

// publish shows the end to all who have a seat.
func (f *flight) publish(r *flown) {
	f.ended.Store(r)
	close(f.done)
	f.wake(true)
}

// lasts is until when somebody waits for the flight, unless all leave before.
func (f *flight) lasts() time.Time { return time.Unix(0, f.until.Load()) }

// result is how the flight ended; nil before that.
func (f *flight) result() *flown { return f.ended.Load() }

func (f *flight) wake(ended bool) {
	for _, s := range *f.seats.Load() {
		if ended || !s.spoken {
			trySend(s.wake, struct{}{})
		}
	}
}

// seat is an asker's place in a flight. Its methods are for the asker's goroutine
// alone. Before that it is the asker's question to the cache.
type seat struct {
	flight *flight
	first  bool // its asker made the flight, and runs the carrier

	at   *link // what is to be read next
	wake chan struct{}
	left bool
	// spoken says that the carrier itself gives the events to the asker, who waits
	// for the end alone. It is set before the carrier runs.
	spoken bool

	// The question's: the key, the asker's deadline, and the answer where there is a
	// kept one.
	key   cacheKey
	until time.Time
	lane  string
	kept  *kept
	err   error
}

// next waits for the next event, or the flight's end after the last one: exactly
// one of the three is not nil. err is the cause of ctx's end; an end of the flight
// that is there already goes before it.
func (s *seat) next(ctx context.Context) (ev *wire.Event, end *flown, err error) {
	for {
		end := s.flight.ended.Load() // before the events: all are linked before the end
		if n := s.at.Load(); n != nil {
			if ctx.Err() != nil {
				return nil, nil, context.Cause(ctx)
			}
			s.at = &n.next
			return &n.ev, nil, nil
		}
		if end != nil {
			return nil, end, nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// wait is next for a seat that is spoken for.
func (s *seat) wait(ctx context.Context) (*flown, error) {
	for {
		if end := s.flight.ended.Load(); end != nil {
			return end, nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// leaveTime bounds the wait for the cache's actor, which never blocks; only one
// that has stopped with the node does not answer.
const leaveTime = time.Second

// leave gives the seat up before the flight's end; after it, or a second time, it
// does nothing. last says that it was the last one, whose cause then ended the
// flight's context. done is closed when the carrier has ended.
func (s *seat) leave(cause error) (last bool, done <-chan struct{}) {
	f := s.flight
	if s.left || f.ended.Load() != nil {
		return false, f.done
	}
	s.left = true
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	last, err := ask(ctx, f.cache.sys, f.cache.pid, func(r chan<- bool) any { return seatLeft{s, cause, r} })
	return err == nil && last, f.done
}
