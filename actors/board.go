package actors

import (
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/routing"
)

// board puts together what routing must know of each provider: whether it can be
// reached, which the node looks at every few seconds, and what its account holds
// back, which the account says in the moment that it changes. It publishes the
// whole as a snapshot that never changes.
type board struct {
	seen   routing.Snapshot
	stands map[string]standing
	out    *atomic.Pointer[routing.Snapshot]
}

// standing is what an account holds back: it never changes once it is published.
// The zero value is a provider with nothing in its way.
type standing struct {
	Breaker, Quota   routing.Hold
	Models, Withheld map[string]routing.Hold
}

// put shows in a provider's state what its account holds back.
func (s *standing) put(st *routing.State) {
	st.Breaker, st.Quota, st.Models, st.Withheld = s.Breaker, s.Quota, s.Models, s.Withheld
}

// heldIn is what a state says of holds; nil = nothing is held.
func heldIn(st *routing.State) *standing {
	if !st.Breaker.On && !st.Quota.On && len(st.Models) == 0 && len(st.Withheld) == 0 {
		return nil
	}
	return &standing{st.Breaker, st.Quota, st.Models, st.Withheld}
}

// Messages of the board.
type (
	// sighted brings what was seen of all providers.
	sighted struct{ seen routing.Snapshot }
	// stands brings what holds one provider back.
	stands struct {
		provider string
		st       standing
	}
)

func (b *board) receive(_ *actor.PID, msg any) {
	switch m := msg.(type) {
	case sighted:
		b.seen = m.seen
	case stands:
		b.stands[m.provider] = m.st
	}
	snap := make(routing.Snapshot, len(b.seen))
	for id, st := range b.seen {
		if s, ok := b.stands[id]; ok && !st.Remote { // of a remote one the node that hosts it has said
			s.put(&st)
		}
		snap[id] = st
	}
	b.out.Store(&snap)
}
