package actors

import (
	"context"
	"encoding/json"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

const (
	// statusEvery is how often a node says what it hosts, and peerSilence how
	// long a node that says nothing is believed to live.
	statusEvery = 2 * time.Second
	peerSilence = 7 * time.Second
)

// nodeStatus is the payload of llm.node.status: what a node hosts. A node that
// is new asks the others to speak at once; one that ends says that it is gone.
type nodeStatus struct {
	Node      string                  `json:"node"`
	New       bool                    `json:"new,omitempty"`
	Gone      bool                    `json:"gone,omitempty"`
	Providers map[string]nodeProvider `json:"providers,omitempty"`
	// Do is what somebody has asked one node for and what all are to do; the message
	// is no status then.
	Do *nodeOrder `json:"do,omitempty"`
}

// nodeOrder is an administrator's order to all nodes: quotas, and what is kept in
// caches, are each node's own.
type nodeOrder struct {
	ResetQuota string `json:"resetQuota,omitempty"` // a provider
	ClearCache bool   `json:"clearCache,omitempty"`
}

type nodeProvider struct {
	Available bool      `json:"available"`
	Reason    string    `json:"reason,omitempty"`
	Has       wire.Need `json:"has"`
	// Held is what the provider's account holds back there: the account is the
	// hosting node's, and the others go by its word.
	Held *standing `json:"held,omitempty"`
}

// Messages of the peers actor.
type (
	heard struct{ status nodeStatus }
	// whoHosts answers with the states of the providers of all nodes that live.
	whoHosts struct{ reply chan<- routing.Snapshot }
)

// peers knows what the other nodes host, and forgets those that fall silent.
type peers struct {
	nodes   map[string]peer
	changed chan<- struct{}
}

type peer struct {
	providers map[string]nodeProvider
	at        time.Time
}

func (p *peers) receive(_ *actor.PID, msg any) {
	switch m := msg.(type) {
	case heard:
		if m.status.Gone {
			delete(p.nodes, m.status.Node)
		} else {
			p.nodes[m.status.Node] = peer{m.status.Providers, time.Now()}
		}
		trySend(p.changed, struct{}{})
	case whoHosts:
		m.reply <- p.snapshot(time.Now())
	}
}

// snapshot prefers a node that can serve a provider over one that cannot.
func (p *peers) snapshot(now time.Time) routing.Snapshot {
	out := routing.Snapshot{}
	for node, peer := range p.nodes {
		if now.Sub(peer.at) > peerSilence {
			delete(p.nodes, node)
			continue
		}
		for id, st := range peer.providers {
			if was, ok := out[id]; ok && was.Available {
				continue
			}
			seen := routing.State{Available: st.Available, Remote: true, Reason: routing.ReasonUnavailable, Detail: st.Reason, Has: st.Has}
			if st.Held != nil {
				st.Held.put(&seen)
			}
			out[id] = seen
		}
	}
	return out
}

func (e *Engine) hostedElsewhere() routing.Snapshot {
	if e.o.Hosts == nil {
		return nil // all is hosted here
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	snap, _ := ask(ctx, e.sys, e.peers, func(r chan<- routing.Snapshot) any { return whoHosts{r} })
	return snap
}

// keepStatus looks at the providers regularly and when a peer changes, and says
// what this node hosts.
func (e *Engine) keepStatus() {
	t := time.NewTicker(statusEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			e.sayStatus()
		case <-e.held:
			e.sayStatus()
			continue
		case <-e.changed:
		case <-e.news:
			e.refreshOutside()
			continue
		case edit := <-e.edits:
			e.apply(edit)
			continue
		case <-e.base.Done():
			return
		}
		e.refresh()
	}
}

// Meet says that this node is new, so that the others say what they host; to be
// called once PeerStatus gets what they say.
func (e *Engine) Meet() { e.o.Emit(subjects.NodeStatus, e.status(true)) }

func (e *Engine) sayStatus() { e.o.Emit(subjects.NodeStatus, e.status(false)) }

func (e *Engine) status(first bool) *nodeStatus {
	st := &nodeStatus{Node: e.node, New: first, Gone: e.draining.Load(), Providers: map[string]nodeProvider{}}
	for id, s := range *e.snapshot.Load() {
		if !s.Remote && (e.o.Hosts == nil || e.o.Hosts(id)) && !e.setup().isOutside(id) {
			st.Providers[id] = nodeProvider{Available: s.Available, Reason: s.Detail, Has: s.Has, Held: heldIn(&s)}
		}
	}
	return st
}

// tellAll passes an order on to the other nodes.
func (e *Engine) tellAll(order nodeOrder) {
	e.o.Emit(subjects.NodeStatus, &nodeStatus{Node: e.node, Do: &order})
}

// obey does what another node was asked for.
func (e *Engine) obey(order *nodeOrder) {
	ctx, cancel := context.WithTimeout(e.base, time.Second)
	defer cancel()
	if id := order.ResetQuota; id != "" && e.setup().router.Provider(id) != nil {
		if lifted, err := e.accounts.resetQuota(ctx, id); err == nil {
			e.log.Info("a quota was reset, as another node was asked to", "provider", id, "lifted", lifted)
		}
	}
	if order.ClearCache {
		if n, err := e.cache.clear(ctx); err == nil {
			e.log.Info("the cache was cleared, as another node was asked to", "entries", n)
		}
	}
}

// PeerStatus takes another node's llm.node.status.
func (e *Engine) PeerStatus(body []byte) {
	var st nodeStatus
	if err := json.Unmarshal(body, &st); err != nil || st.Node == "" || st.Node == e.node {
		return
	}
	if st.Do != nil {
		e.background(func() { e.obey(st.Do) })
		return
	}
	e.sys.send(e.peers, heard{st})
	if st.New {
		e.sayStatus()
	}
}
