package cli

import (
	"fmt"
	"sync"
	"time"
)

const (
	// spinAfter is how long a wait stays silent.
	spinAfter = time.Second
	spinEvery = 100 * time.Millisecond
)

var spinFrames = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

// spin shows on stderr that something is being waited for, from the first
// second on and on a terminal only. The returned function ends it, wipes the
// line, and may be called more than once.
func (a *app) spin(what string) (stop func()) {
	if !a.err.tty {
		return func() {}
	}
	end, done := make(chan struct{}), make(chan struct{})
	go a.spinUntil(end, done, what)
	var once sync.Once
	return func() {
		once.Do(func() {
			close(end)
			<-done
		})
	}
}

func (a *app) spinUntil(end <-chan struct{}, done chan<- struct{}, what string) {
	defer close(done)
	start := time.Now()
	quiet := time.NewTimer(spinAfter)
	defer quiet.Stop()
	select {
	case <-end:
		return
	case <-quiet.C:
	}
	tick := time.NewTicker(spinEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		waited := time.Since(start).Truncate(time.Second)
		fmt.Fprintf(a.err, "\r\x1b[K%s %s %s", a.err.paint(cyan, spinFrames[i%len(spinFrames)]), what,
			a.err.paint(dim, durationText(waited)))
		select {
		case <-end:
			fmt.Fprint(a.err, "\r\x1b[K")
			return
		case <-tick.C:
		}
	}
}
