package actors

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// Calls that ask for the same thing share an answer: one that is kept, or one
// that is on its way. In the second case the work with providers runs in a
// goroutine of its own, the carrier, under a context that ends when the last
// asker has left; each asker, the first one too, only reads along (flight.go).
// Its own deadline, cancel and leaving end its own reading.

// shareable reports whether the call's answer may be another's too.
func (c *call) shareable() bool {
	k := &c.s.cfg.Cache
	return !c.isHop && !c.req.Head.SkipCache && k.MaxEntries > 0 && k.MaxBytes > 0
}

// cacheKey covers all that can change the answer: the prompt, and what decides
// which model answers it: what a local runner says because a budget is used up, or
// because the content must not leave, is no answer for who may ask elsewhere.
func (c *call) cacheKey() cacheKey {
	h := &c.req.Head
	return cacheKeyOf(c.req, c.s.cfg.Mode, c.route.Tier, h.Task, h.Provider, h.Model, h.Privacy, strconv.FormatBool(h.ForcePaid),
		c.in.Provider, c.sensitivity, strings.Join(c.allowed, ","), strconv.FormatBool(c.allowed != nil), c.limited, h.CacheScope)
}

// share answers the call from the cache, or takes part in a flight. A flight
// that ended for its first asker's own sake is looked for again.
func (c *call) share() error {
	key := c.cacheKey()
	for {
		found, err := c.e.cache.look(c.ctx, key, c.class)
		switch {
		case err != nil:
			return c.overdue(err)
		case found.kept != nil:
			return c.replay(found.kept)
		}
		c.cached = !found.seat.first
		if found.leads {
			c.carry(found.seat)
		}
		again, err := c.follow(found.seat)
		if !again {
			return err
		}
	}
}

// carry starts the work of a flight. A stream that goes to its first asker over
// NATS is sent by the carrier itself, event by event: a publish does not wait for
// who reads, and waking the asker for each event costs more than the event.
func (c *call) carry(s *seat) {
	f := s.flight
	w := c.newWork(f.ctx)
	w.latest = f.lasts
	w.events = func(ev *wire.Event) error { f.event(ev); return nil }
	if s.spoken = c.in.Inbox != "" && c.req.Head.Stream; s.spoken {
		c.mouth = &mouth{}
		w.events = func(ev *wire.Event) error { f.event(ev); c.mouth.say(c, f, ev); return nil }
	}
	w.opened = func(o opening) { f.opened.Store(&o) }
	c.e.crew.run(func() {
		end := flown{work: w}
		defer func() { f.end(end) }()
		defer func() { end.began, end.cand = w.begun, w.lastCand }()
		defer w.recovered("call", &end.err)
		end.resp, end.err = w.do()
		end.keep = end.err == nil && keepable(end.resp) && w.asAsked() && w.inForce()
	})
}

// mouth is the turn to speak to an asker: the carrier's, until the asker takes it
// back, because its own context has ended. It guards the order of what is sent.
type mouth struct {
	turn   sync.Mutex
	closed bool
}

// say sends an event to the asker of c on the carrier's turn. An asker that cannot
// be reached is cancelled (emit), and leaves.
func (m *mouth) say(c *call, f *flight, ev *wire.Event) {
	m.turn.Lock()
	defer m.turn.Unlock()
	if m.closed {
		return
	}
	var err error
	defer func() {
		if err != nil {
			m.closed = true
			c.cancel(errGone)
		}
	}()
	defer c.recovered("event", &err)
	if c.enc == nil {
		c.open(*f.opened.Load())
	}
	err = c.event(ev)
}

// close takes the turn back for good.
func (m *mouth) close() {
	m.turn.Lock()
	defer m.turn.Unlock()
	m.closed = true
}

// asAsked reports whether the provider that was asked for by name has answered, if
// one was: what another says in its place is not kept, since it may be back.
func (w *work) asAsked() bool { return w.route.Asked == "" || w.route.Asked == w.lastCand.Provider }

// inForce reports whether the configuration that the work began with still holds.
// The cache was cleared when it changed; nothing of before is kept after that.
func (w *work) inForce() bool { return w.s.cfg == w.e.Config() }

// follow reads a flight to its end. again says that it ended without an answer
// for this asker, who looks anew.
func (c *call) follow(s *seat) (again bool, err error) {
	defer s.leave(errGone) // after a panic; else it has been left, or has ended
	if s.spoken {
		end, err := s.wait(c.ctx)
		if err != nil {
			c.mouth.close()
			return false, c.leaveFlight(s, err)
		}
		return false, c.land(s, end)
	}
	for {
		ev, end, err := s.next(c.ctx)
		switch {
		case err != nil:
			return false, c.leaveFlight(s, err)
		case end != nil && end.err != nil && !c.begun && !end.shared(s.first):
			return true, nil
		case end != nil:
			return false, c.land(s, end)
		}
		if c.enc == nil {
			c.open(*s.flight.opened.Load())
		}
		if err := c.event(ev); err != nil {
			return false, c.leaveFlight(s, err)
		}
	}
}

// land answers with what a flight brought.
func (c *call) land(s *seat, end *flown) error {
	c.cand = end.cand
	if s.first {
		c.work = end.work
		return c.conclude(end.resp, end.err)
	}
	if end.err != nil {
		return end.err
	}
	c.waited = time.Since(c.start)
	c.recordCached(end.resp)
	return c.answer(end.resp)
}

// partingTime bounds how long the last asker to leave waits for the record of
// what it leaves.
const partingTime = 5 * time.Second

// leaveFlight ends this asker's part. The last one waits until the work has
// ended: what it used is then on record.
func (c *call) leaveFlight(s *seat, cause error) error {
	last, done := s.leave(cause)
	if last {
		t := time.NewTimer(partingTime)
		defer t.Stop()
		select {
		case <-done:
			if s.first {
				c.work = s.flight.result().work
			}
		case <-t.C:
		}
	}
	return c.overdue(cause)
}

// overdue is the error of a call that ended while it waited.
func (c *call) overdue(err error) error {
	if c.ctx.Err() == nil {
		return err
	}
	return endOf(c.ctx, c.work, c.timeout()).WithCause(err)
}

// replay answers with a kept answer, a stream event by event.
func (c *call) replay(k *kept) error {
	c.cached, c.cand = true, k.cand
	c.recordCached(k.resp)
	if c.req.Head.Stream {
		c.open(opening{k.cand, k.resp})
		if err := k.each(c.event); err != nil {
			return err
		}
	}
	return c.answer(k.resp)
}

// recordCached writes the record of a call that cost nothing.
func (c *call) recordCached(resp *wire.Response) {
	res := c.result(resp)
	rec := &subjects.UsageRecord{
		ID: recordID(c.id, c.runs), Timestamp: subjects.Time{Time: time.Now()},
		Provider: res.Provider, Model: res.Model, ModelRaw: res.ModelRaw, Process: res.Process,
		Task: c.req.Head.Task, Class: res.Class, Tier: res.Tier, Subscription: res.Subscription,
		CostUSD: new(subjects.USD), QueuedMs: res.QueuedMs, OverheadMs: res.OverheadMs, Cached: true, Outcome: subjects.OutcomeOK,
		AttemptTrail: []subjects.Attempt{}, RunID: c.req.Head.RunID, BatchID: c.req.Head.BatchID,
	}
	rec.PromptPreview = preview(c.s.cfg, c.req, c.hidden)
	if subjects.HasMeteredTwin(res.Subscription) {
		rec.SavedUSD = new(subjects.USD)
	}
	c.e.usage.write(rec).wait()
}
