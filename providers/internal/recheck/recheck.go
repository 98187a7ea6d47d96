// Package recheck keeps the outcome of a check for a while, so that what asks
// the network or starts a program is not done at every look.
package recheck

import (
	"context"
	"sync"
	"time"
)

// Kept is one check and its last outcome. The zero value with Do set is ready.
// Safe for concurrent use; one check runs at a time and the others wait for it.
type Kept struct {
	// Do makes the check; nil error = it can serve.
	Do func(ctx context.Context) error
	// Good and Bad are how long an outcome is kept: that it can serve, or not.
	Good, Bad time.Duration
	// Now is the clock; nil = time.Now.
	Now func() time.Time

	mu   sync.Mutex // guards the outcome, and is held while a check runs
	err  error
	till time.Time
}

// Check returns the outcome that is kept, or makes the check. One that was cut
// off by ctx is not kept.
func (k *Kept) Check(ctx context.Context) error {
	now := time.Now
	if k.Now != nil {
		now = k.Now
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if now().Before(k.till) {
		return k.err
	}
	err := k.Do(ctx)
	if err != nil && ctx.Err() != nil {
		return err
	}
	keep := k.Good
	if err != nil {
		keep = k.Bad
	}
	k.err, k.till = err, now().Add(keep)
	return err
}

// Drop forgets the outcome: the next look checks anew. It does not wait for a
// check that runs.
func (k *Kept) Drop() {
	if k.mu.TryLock() {
		k.till = time.Time{}
		k.mu.Unlock()
	}
}
