package actors

import (
	"context"
	"time"
)

// crew runs functions in goroutines that are used again: a call needs a deep
// stack, and a fresh goroutine grows one by copying it several times. There is
// no bound here; the engine has the bounds.
type crew struct {
	jobs chan func()
	quit chan struct{}
}

// idleWorker is how long a goroutine waits for its next job.
const idleWorker = 5 * time.Second

func newCrew() *crew { return &crew{jobs: make(chan func()), quit: make(chan struct{})} }

// run starts f at once, in a goroutine that waits for work or in a new one.
func (c *crew) run(f func()) {
	select {
	case c.jobs <- f:
	default:
		go c.work(f)
	}
}

func (c *crew) work(f func()) {
	idle := time.NewTimer(idleWorker)
	defer idle.Stop()
	for {
		f()
		idle.Reset(idleWorker)
		select {
		case f = <-c.jobs:
		case <-idle.C:
			return
		case <-c.quit:
			return
		}
	}
}

// stop lets the idle goroutines go; those at work end after it.
func (c *crew) stop() { close(c.quit) }

// Begin is Serve in a goroutine of its own: it returns at once.
func (e *Engine) Begin(in Incoming, out Reply) {
	e.crew.run(func() { e.Serve(context.Background(), in, out) })
}
