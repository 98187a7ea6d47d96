package fakeopenai

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Gate holds requests until it lets them go. A new gate is shut. It is safe for
// concurrent use; requests that are held count as in flight.
type Gate struct {
	mu      sync.Mutex
	open    bool
	held    []*heldRequest
	changed chan struct{}
}

type heldRequest struct {
	req *Request
	ch  chan struct{}
}

// NewGate makes a gate that is shut.
func NewGate() *Gate { return &Gate{changed: make(chan struct{})} }

// Held returns the requests that wait at the gate, the longest-waiting first.
func (g *Gate) Held() []*Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*Request, len(g.held))
	for i, h := range g.held {
		out[i] = h.req
	}
	return out
}

// Release lets the n longest-waiting requests go and returns how many there
// were. Requests that have not arrived yet are not let through.
func (g *Gate) Release(n int) int {
	return g.release(n, func(*Request) bool { return true })
}

// ReleaseMatch lets the longest-waiting request go for which match is true, and
// reports whether there was one. match must not call the gate.
func (g *Gate) ReleaseMatch(match func(r *Request) bool) bool {
	return g.release(1, match) == 1
}

// Open lets all waiting and all later requests go.
func (g *Gate) Open() {
	g.mu.Lock()
	g.open = true
	g.mu.Unlock()
	g.release(int(^uint(0)>>1), func(*Request) bool { return true })
}

// Shut holds all later requests again.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = false
}

// WaitHeld returns nil as soon as exactly n requests wait at the gate, or an
// error that says how many there are when ctx ends first.
func (g *Gate) WaitHeld(ctx context.Context, n int) error {
	for {
		g.mu.Lock()
		have, ch := len(g.held), g.changed
		g.mu.Unlock()
		if have == n {
			return nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return fmt.Errorf("fakeopenai: waiting for %d requests at the gate, %d are there: %w", n, have, context.Cause(ctx))
		}
	}
}

func (g *Gate) release(n int, match func(*Request) bool) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	released := 0
	g.held = slices.DeleteFunc(g.held, func(h *heldRequest) bool {
		if released == n || !match(h.req) {
			return false
		}
		released++
		close(h.ch)
		return true
	})
	g.notifyLocked()
	return released
}

// pass returns when the request may go on; false = its client has gone.
func (g *Gate) pass(ctx context.Context, r *Request) bool {
	g.mu.Lock()
	if g.open {
		g.mu.Unlock()
		return true
	}
	h := &heldRequest{req: r, ch: make(chan struct{})}
	g.held = append(g.held, h)
	g.notifyLocked()
	g.mu.Unlock()
	select {
	case <-h.ch:
		return true
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.held, h); i >= 0 {
		g.held = slices.Delete(g.held, i, i+1)
		g.notifyLocked()
	}
	return false
}

func (g *Gate) notifyLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}
