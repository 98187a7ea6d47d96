package actors

import (
	"context"
	"slices"
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

// runningCall is one run of a call. After it was sent in a begin, it belongs to
// the registry; the call keeps the pointer as the run's identity.
type runningCall struct {
	id     string
	form   answerForm
	cancel context.CancelCauseFunc
	inbox  string
	// given says that the caller chose the id, so that others may ask with it.
	given bool

	run     int
	waiters []chan<- answer
	// askerGone says that the one who asked first has left; the run goes on while
	// others wait for it. ending says that it was cancelled: nobody joins it.
	askerGone, ending bool
}

// Messages of the call registry.
type (
	// begin registers a run. reply is nil for an id that nobody else can know:
	// such a call is registered so that it can be cancelled.
	begin struct {
		r     *runningCall
		reply chan<- begun
	}
	// begun says what to do: run (run counts the runs of this id, from 1), wait
	// for the answer of another's run (joined), give a kept one, or fail.
	begun struct {
		run    int
		answer answer
		wait   chan answer
		joined *runningCall
		err    error
	}
	// end takes a run out. answer is nil when it is too big to keep; that of a
	// failed call is shown to those who wait now, and not kept.
	end struct {
		r      *runningCall
		ok     bool
		answer answer
	}
	// askerLeft says that the first asker has gone, waiterLeft that one who joined
	// has. The last to leave cancels the run.
	askerLeft struct {
		r     *runningCall
		cause error
	}
	waiterLeft struct {
		r    *runningCall
		wait chan<- answer
	}
	// cancelCall is llm.cancel: it ends the run for all who ask.
	cancelCall struct {
		id    string
		cause error
	}
	listInboxes struct{ reply chan<- []*runningCall }
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
	case askerLeft:
		m.r.askerGone = true
		c.abandon(m.r, m.cause)
	case waiterLeft:
		m.r.waiters = slices.DeleteFunc(m.r.waiters, func(w chan<- answer) bool { return w == m.wait })
		c.abandon(m.r, errGone)
	case cancelCall:
		c.cancel(m)
	case cancelAll:
		for _, r := range c.running {
			r.stop(m.cause)
		}
	case listInboxes:
		var out []*runningCall
		for _, r := range c.running {
			if r.inbox != "" && !r.ending {
				out = append(out, r)
			}
		}
		m.reply <- out
	}
}

func (r *runningCall) stop(cause error) {
	r.ending = true
	r.cancel(cause)
}

// abandon cancels a run that nobody waits for any more.
func (c *calls) abandon(r *runningCall, cause error) {
	if r.askerGone && len(r.waiters) == 0 && !r.ending {
		r.stop(cause)
	}
}

func (c *calls) begin(m begin) {
	now := time.Now()
	c.expire(now)
	m.r.run = 1
	if m.r.given {
		if r := c.running[m.r.id]; r != nil {
			if !r.ending {
				c.join(r, m)
				return
			}
			m.r.run = r.run + 1
		} else if e := c.ended[m.r.id]; e != nil {
			if e.ok {
				trySend(m.reply, e.again(m))
				return
			}
			m.r.run = e.run + 1
		}
	}
	c.running[m.r.id] = m.r
	if m.reply != nil {
		trySend(m.reply, begun{run: m.r.run})
	}
	if at, ok := c.early[m.r.id]; ok {
		delete(c.early, m.r.id)
		if now.Sub(at) < earlyCancelWindow {
			m.r.stop(errCancelled)
		}
	}
}

var errCancelled = subjects.Errorf(subjects.KindCancelled, "the call was cancelled by its caller")

func errForm(id string) error {
	return subjects.Errorf(subjects.KindValidation,
		"callId: %q names a call of another wire or stream mode within the last two minutes; use a new call id", id)
}

func (c *calls) join(r *runningCall, m begin) {
	if r.form != m.r.form {
		trySend(m.reply, begun{err: errForm(m.r.id)})
		return
	}
	wait := make(chan answer, 1)
	r.waiters = append(r.waiters, wait)
	trySend(m.reply, begun{wait: wait, joined: r})
}

// again answers a second request of an id whose call succeeded.
func (e *endedCall) again(m begin) begun {
	switch {
	case e.form != m.r.form:
		return begun{err: errForm(m.r.id)}
	case e.answer == nil:
		return begun{err: subjects.Errorf(subjects.KindValidation,
			"callId: %q was answered within the last two minutes and the answer is too large to be kept; use a new call id", m.r.id)}
	}
	return begun{answer: e.answer}
}

func (c *calls) end(m end) {
	r := m.r
	for _, w := range r.waiters {
		trySend(w, m.answer)
	}
	if c.running[r.id] != r {
		return // cancelled, and its id runs again
	}
	delete(c.running, r.id)
	if !r.given {
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
	c.ended[r.id] = e
	c.order = append(c.order, endedAt{r.id, e.at})
	c.expire(e.at)
}

func (c *calls) cancel(m cancelCall) {
	if r := c.running[m.id]; r != nil {
		r.stop(m.cause)
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
