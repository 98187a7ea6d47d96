package actors

import (
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/subjects"
)

// hookQuiet is the least time between two events of one hook: one that answers
// every other question would else send an event for each. A change in between is
// said at its end, if it still holds.
const hookQuiet = time.Second

// lostQuiet is the least time between two log lines about lost costs.
const lostQuiet = 10 * time.Second

// Messages of the hookWatch.
type (
	// hookOutcome says how a question ended; why "" = it was answered.
	hookOutcome struct {
		point   *hookPoint
		why     string
		onError string
		stack   string
	}
	// costLost says that the budget tracker was not told of a cost.
	costLost struct{}
	// hookLook is the watch's own reminder to say what has changed since.
	hookLook struct{ hook string }
)

// hookWatch knows which hooks fail, and says so: an event on
// llm.hook_status.<hook> and a log line for each change. A hook fails while one of
// its questions does.
type hookWatch struct {
	log   *slog.Logger
	emit  func(subject string, event any)
	again func(time.Duration, *actor.PID, any) *time.Timer
	now   func() time.Time
	hooks map[string]*hookState

	lost     int // costs since lostSaid
	lostSaid time.Time
}

// hookState is one hook: failing has why, by question.
type hookState struct {
	failing map[string]hookOutcome
	said    bool // that it fails
	saidAt  time.Time
	waits   bool // a hookLook is on its way
}

func (w *hookWatch) receive(self *actor.PID, msg any) {
	switch m := msg.(type) {
	case hookOutcome:
		w.note(self, &m)
	case hookLook:
		w.hooks[m.hook].waits = false
		w.say(self, m.hook)
	case costLost:
		w.lost++
		if now := w.now(); now.Sub(w.lostSaid) >= lostQuiet {
			w.log.Warn("the budget tracker was not told of costs: it fails, or is slower than the calls; the usage log has them", "costs", w.lost)
			w.lost, w.lostSaid = 0, now
		}
	}
}

func (w *hookWatch) note(self *actor.PID, m *hookOutcome) {
	h := w.hooks[m.point.hook]
	if h == nil {
		h = &hookState{failing: map[string]hookOutcome{}}
		w.hooks[m.point.hook] = h
	}
	m.point.failing.Store(m.why != "")
	if m.why == "" {
		delete(h.failing, m.point.question)
	} else {
		h.failing[m.point.question] = *m
	}
	w.say(self, m.point.hook)
}

// say tells of a change, now or when the time since the last is long enough.
func (w *hookWatch) say(self *actor.PID, hook string) {
	h := w.hooks[hook]
	fails := len(h.failing) > 0
	if fails == h.said || h.waits {
		return
	}
	now := w.now()
	if since := now.Sub(h.saidAt); since < hookQuiet {
		h.waits = true
		w.again(hookQuiet-since, self, hookLook{hook})
		return
	}
	h.said, h.saidAt = fails, now
	ev := &subjects.HookEvent{Hook: hook, OK: !fails, At: subjects.Time{Time: now}}
	for question, m := range h.failing {
		ev.Reason, ev.OnError = m.why, m.onError
		w.log.Warn("a hook fails", "hook", hook, "question", question, "reason", m.why, "onError", m.onError, "stack", m.stack)
	}
	if !fails {
		w.log.Info("a hook answers again", "hook", hook)
	}
	w.emit(subjects.HookStatus(hook), ev)
}
