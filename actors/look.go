package actors

import (
	"context"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

// checkTimeout bounds one look at a provider; what does not heed it is waited for
// a little longer, and then left alone until it comes back.
const (
	checkTimeout = 2 * time.Second
	checkGrace   = 500 * time.Millisecond
)

// lookAtAll looks at the providers side by side: one that does not answer does
// not hold up the others, and one whose check hangs is not checked a second time.
// A provider that the mode leaves out is not looked at: in mock mode nothing is
// dialled.
func (e *Engine) lookAtAll(elsewhere routing.Snapshot) routing.Snapshot {
	ctx, cancel := context.WithTimeout(e.base, checkTimeout)
	defer cancel()
	now := e.setup()
	all := now.all()
	snap := make(routing.Snapshot, len(all))
	var begun []string
	for id, p := range all {
		if mode := now.cfg.Mode; mode == config.ModeMock && id != "mock" || mode == config.ModeLocal && !now.router.Local(id) {
			snap[id] = routing.State{Reason: routing.ReasonMode, Detail: "mode is " + mode, Has: p.Capabilities()}
			continue
		}
		if e.looking[id] == nil {
			e.startLook(ctx, id, p, elsewhere)
		}
		begun = append(begun, id)
	}
	late := time.NewTimer(checkTimeout + checkGrace)
	defer late.Stop()
	for _, id := range begun {
		snap[id] = e.finishLook(id, all[id], late)
	}
	return snap
}

// startLook begins a check in a goroutine of its own.
func (e *Engine) startLook(ctx context.Context, id string, p providers.Provider, elsewhere routing.Snapshot) {
	seen := make(chan routing.State, 1)
	e.looking[id] = seen
	go func() {
		st := routing.State{Reason: routing.ReasonUnavailable, Detail: "its check failed inside; the log says how"}
		defer func() {
			if p := recover(); p != nil {
				e.log.Error("a provider's check panicked", "provider", id, "panic", panicError(p).(*subjects.Error).Unwrap())
			}
			seen <- st
		}()
		st = e.look(ctx, id, p, elsewhere)
	}()
}

// finishLook waits for a check until late fires.
func (e *Engine) finishLook(id string, p providers.Provider, late *time.Timer) routing.State {
	seen := e.looking[id]
	select {
	case st := <-seen:
		delete(e.looking, id)
		return st
	default:
	}
	select {
	case st := <-seen:
		delete(e.looking, id)
		return st
	case <-late.C:
		late.Reset(0) // for the others that hang
		return routing.State{Reason: routing.ReasonUnavailable, Detail: "its check does not end", Has: p.Capabilities()}
	}
}

// look says how a provider can be reached: here, where this node hosts it, else
// on another node.
func (e *Engine) look(ctx context.Context, id string, p providers.Provider, elsewhere routing.Snapshot) routing.State {
	if e.o.Hosts != nil && !e.o.Hosts(id) && !e.setup().isOutside(id) {
		if st, ok := elsewhere[id]; ok {
			return st
		}
		return routing.State{Reason: routing.ReasonNotHosted, Detail: "hosted on no node that can be heard"}
	}
	if err := p.Check(ctx); err != nil {
		return routing.State{Reason: routing.ReasonUnavailable, Detail: subjects.AsError(err).Message, Has: p.Capabilities()}
	}
	return routing.State{Available: true, Has: p.Capabilities()}
}
