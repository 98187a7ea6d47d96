package sluice

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/subjects"
)

// courier carries calls to outside providers. Over the embedded server it knows
// which connection has a call, and ends the call when that connection is gone: of
// several instances of a provider, one may die while its subject is still
// listened to. It asks the server with the header Nats-Trace-Dest (message
// tracing, NATS 2.11), whose answer names the connection that a message went to.
//
// Over a server that runs elsewhere it is an ordinary client.
type courier struct {
	*subjects.Client
	nats  *natsServer // nil when it runs elsewhere
	sub   *nats.Subscription
	inbox string

	mu      sync.Mutex // guards parcels
	parcels map[string]*parcel
}

var _ subjects.Transport = (*courier)(nil)

// traceHeader asks the server where a message went.
const traceHeader = "Nats-Trace-Dest"

func newCourier(conn *nats.Conn, server *natsServer) (*courier, error) {
	c := &courier{Client: subjects.NewClient(conn), nats: server, parcels: map[string]*parcel{}}
	if server == nil {
		return c, nil
	}
	c.inbox = subjects.TraceInbox + "." + randomHex(8)
	var err error
	c.sub, err = conn.Subscribe(c.inbox+".*", c.traced)
	return c, err
}

func (c *courier) stop() {
	if c.sub != nil {
		_ = c.sub.Unsubscribe()
	}
}

// parcel is one call on its way.
type parcel struct {
	subject string
	// holders are the connections that have the call; empty = not known yet.
	holders atomic.Pointer[[]uint64]
}

// lost reports whether no connection has the call any more.
func (p *parcel) lost(connected func(uint64) bool) bool {
	holders := p.holders.Load()
	if holders == nil {
		return false
	}
	for _, id := range *holders {
		if connected(id) {
			return false
		}
	}
	return true
}

// holdersOf reads the connections of clients out of a trace: those that got the
// message as members of a queue group, for who listens beside them only listens;
// without such, all. A trace of another subject tells nothing: a reply that has
// the call's headers is traced, too, and may be told of first.
func holdersOf(trace []byte, subject string) []uint64 {
	const clientKind, ingress, egress = 0, "in", "eg"
	var t struct {
		Events []struct {
			Type    string `json:"type"`
			Kind    int    `json:"kind"`
			CID     uint64 `json:"cid"`
			Subject string `json:"subj"`
			Queue   string `json:"queue"`
			Error   string `json:"error"`
		} `json:"events"`
	}
	if json.Unmarshal(trace, &t) != nil {
		return nil
	}
	var queued, all []uint64
	for _, ev := range t.Events {
		if ev.Type == ingress && ev.Subject != subject {
			return nil
		}
		if ev.Type != egress || ev.Error != "" {
			continue
		}
		if ev.Kind != clientKind {
			return nil // it left this server: who has it is not known here
		}
		all = append(all, ev.CID)
		if ev.Queue != "" {
			queued = append(queued, ev.CID)
		}
	}
	if len(queued) > 0 {
		return queued
	}
	return all
}

func (c *courier) traced(m *nats.Msg) {
	c.mu.Lock()
	p := c.parcels[m.Subject]
	c.mu.Unlock()
	if p == nil {
		return
	}
	if ids := holdersOf(m.Data, p.subject); len(ids) > 0 {
		p.holders.Store(&ids)
	}
}

// follow prepares a message and watches what becomes of it, until done.
func (c *courier) follow(ctx context.Context, m *subjects.Msg) (_ context.Context, _ *subjects.Msg, done func()) {
	if c.nats == nil {
		return ctx, m, func() {}
	}
	p := &parcel{subject: m.Subject}
	dest := c.inbox + "." + randomHex(8) // who has one call does not know another one's
	c.mu.Lock()
	c.parcels[dest] = p
	c.mu.Unlock()
	again := *m
	if again.Header = maps.Clone(m.Header); again.Header == nil {
		again.Header = subjects.Header{}
	}
	again.Header.Set(traceHeader, dest)
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go c.watch(p, cancel, over)
	return ctx, &again, func() {
		close(over)
		cancel(nil)
		c.mu.Lock()
		delete(c.parcels, dest)
		c.mu.Unlock()
	}
}

// lookEvery is how often a call's connection is looked for. One that is gone in
// two looks is dead: what it said last has come by then.
const lookEvery = 200 * time.Millisecond

func (c *courier) watch(p *parcel, cancel context.CancelCauseFunc, over <-chan struct{}) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	gone := false
	for {
		select {
		case <-over:
			return
		case <-t.C:
		}
		lost := p.lost(c.nats.connected)
		if lost && gone {
			cancel(errDied)
			return
		}
		gone = lost
	}
}

var errDied = subjects.Errorf(subjects.KindProvider, "the program that had the call has lost its connection")

// died is the error of a call that has ended with ctx: that its program is dead,
// where it is.
func died(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == error(errDied) {
		again := *errDied
		return &again
	}
	return err
}

// Request implements subjects.Transport.
func (c *courier) Request(ctx context.Context, m *subjects.Msg) (*subjects.Msg, error) {
	ctx, m, done := c.follow(ctx, m)
	defer done()
	reply, err := c.Client.Request(ctx, m)
	return reply, died(ctx, err)
}

// Stream implements subjects.Transport.
func (c *courier) Stream(ctx context.Context, m *subjects.Msg, yield func(*subjects.Msg) error) error {
	ctx, m, done := c.follow(ctx, m)
	defer done()
	return died(ctx, c.Client.Stream(ctx, m, yield))
}
