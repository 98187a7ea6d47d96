package actors

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

const (
	// dedupeWindow is how long after its end a call id still names the call.
	dedupeWindow = 2 * time.Minute
	// earlyCancelWindow is how long a cancel is kept for a call that has not come yet.
	earlyCancelWindow = 5 * time.Second
	// maxKeptAnswer and maxKeptTotal bound the answers kept for de-duplication, in bytes.
	maxKeptAnswer = 1 << 20
	maxKeptTotal  = 32 << 20
	// maxRemembered bounds the ids that are remembered without an answer.
	maxRemembered = 100_000
)

// answerForm is what two requests of one id must agree on to share an answer.
type answerForm struct {
	wire   wire.Name
	stream bool
}

// answer is what a call replied: all its messages, the sentinel included.
type answer []*subjects.Msg

// Messages of the call registry.
type (
	// begin registers a running call. reply is nil for an id that nobody else
	// can know yet: such a call is registered so that it can be cancelled.
	begin struct {
		id     string
		form   answerForm
		cancel context.CancelCauseFunc
		inbox  string
		reply  chan<- begun
	}
	// begun says what to do: run (run counts the runs of this id, from 1), wait
	// for another's answer, give a kept one, or fail.
	begun struct {
		run    int
		answer answer
		wait   <-chan answer
		err    error
	}
	// end takes a call out. answer is nil when it failed or is too big to keep.
	end struct {
		id     string
		ok     bool
		answer answer
	}
	cancelCall struct {
		id    string
		cause error
	}
	listInboxes struct{ reply chan<- map[string]string }
	// cancelAll ends what still runs when a drain's time is over.
	cancelAll struct{ cause error }
)

func (m begin) fail(err error) {
	if m.reply != nil {
		trySend(m.reply, begun{err: err})
	}
}

// calls is the registry of a node's calls: which run, so that they can be
// cancelled; which ended within the last two minutes, so that a second request
// with the same id gets the first's answer. States of an id: running, answered
// (with or without the answer kept), failed, unknown.
type calls struct {
	running map[string]*runningCall
	ended   map[string]*endedCall
	early   map[string]time.Time
	// order has ended ids by time of their end, for expiry.
	order []endedAt
	bytes int
}

type runningCall struct {
	begin
	run     int
	waiters []chan<- answer
}

type endedCall struct {
	form   answerForm
	ok     bool
	run    int
	answer answer
	bytes  int
	at     time.Time
}

type endedAt struct {
	id string
	at time.Time
}

func newCalls() *calls {
	return &calls{running: map[string]*runningCall{}, ended: map[string]*endedCall{}, early: map[string]time.Time{}}
}

func (c *calls) receive(_ *actor.PID, msg any) {
	switch m := msg.(type) {
	case begin:
		c.begin(m)
	case end:
		c.end(m)
	case cancelCall:
		c.cancel(m)
	case cancelAll:
		for _, r := range c.running {
			r.cancel(m.cause)
		}
	case listInboxes:
		out := make(map[string]string, len(c.running))
		for id, r := range c.running {
			if r.inbox != "" {
				out[id] = r.inbox
			}
		}
		m.reply <- out
	}
}

func (c *calls) begin(m begin) {
	now := time.Now()
	c.expire(now)
	run := 1
	if m.reply != nil {
		if r := c.running[m.id]; r != nil {
			c.join(r, m)
			return
		}
		if e := c.ended[m.id]; e != nil {
			if e.ok {
				trySend(m.reply, e.again(m))
				return
			}
			run = e.run + 1
		}
	}
	c.running[m.id] = &runningCall{begin: m, run: run}
	if m.reply != nil {
		trySend(m.reply, begun{run: run})
	}
	if at, ok := c.early[m.id]; ok {
		delete(c.early, m.id)
		if now.Sub(at) < earlyCancelWindow {
			m.cancel(errCancelled)
		}
	}
}

var errCancelled = subjects.Errorf(subjects.KindCancelled, "the call was cancelled by its caller")

func errForm(id string) error {
	return subjects.Errorf(subjects.KindValidation,
		"callId: %q names a call of another wire or stream mode within the last two minutes; use a new call id", id)
}

func (c *calls) join(r *runningCall, m begin) {
	if r.form != m.form {
		trySend(m.reply, begun{err: errForm(m.id)})
		return
	}
	wait := make(chan answer, 1)
	r.waiters = append(r.waiters, wait)
	trySend(m.reply, begun{wait: wait})
}

// again answers a second request of an id whose call succeeded.
func (e *endedCall) again(m begin) begun {
	switch {
	case e.form != m.form:
		return begun{err: errForm(m.id)}
	case e.answer == nil:
		return begun{err: subjects.Errorf(subjects.KindValidation,
			"callId: %q was answered within the last two minutes and the answer is too large to be kept; use a new call id", m.id)}
	}
	return begun{answer: e.answer}
}

func (c *calls) end(m end) {
	r := c.running[m.id]
	if r == nil {
		return
	}
	delete(c.running, m.id)
	for _, w := range r.waiters {
		trySend(w, m.answer)
	}
	if r.reply == nil {
		return // an id made here: nobody can send it again
	}
	e := &endedCall{form: r.form, ok: m.ok, run: r.run, at: time.Now()}
	if m.ok && m.answer != nil {
		for _, msg := range m.answer {
			e.bytes += len(msg.Data) + 64
		}
		e.answer = m.answer
		c.bytes += e.bytes
	}
	c.ended[m.id] = e
	c.order = append(c.order, endedAt{m.id, e.at})
	c.expire(e.at)
}

func (c *calls) cancel(m cancelCall) {
	if r := c.running[m.id]; r != nil {
		r.cancel(m.cause)
		return
	}
	if c.ended[m.id] == nil && len(c.early) < maxRemembered {
		c.early[m.id] = time.Now()
	}
}

// expire forgets ids whose window is over, and the oldest answers above the
// bounds (their ids stay known).
func (c *calls) expire(now time.Time) {
	for len(c.order) > 0 && (now.Sub(c.order[0].at) > dedupeWindow || len(c.order) > maxRemembered) {
		o := c.order[0]
		c.order = c.order[1:]
		if e := c.ended[o.id]; e != nil && e.at.Equal(o.at) {
			c.drop(e)
			delete(c.ended, o.id)
		}
	}
	for i := 0; c.bytes > maxKeptTotal && i < len(c.order); i++ {
		if e := c.ended[c.order[i].id]; e != nil {
			c.drop(e)
		}
	}
	if len(c.early) > 1000 {
		for id, at := range c.early {
			if now.Sub(at) > earlyCancelWindow {
				delete(c.early, id)
			}
		}
	}
}

func (c *calls) drop(e *endedCall) {
	c.bytes -= e.bytes
	e.bytes, e.answer = 0, nil
}
