package actors

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// system is the small part of protoactor that Sluice uses: mailboxes, and one
// rule of supervision. An actor that panics keeps its state and goes on: a pool
// restarted with empty state would forget the slots it has given. The panic is
// logged with its stack, and the message's asker is told, if it has one.
type system struct {
	as   *actor.ActorSystem
	root *actor.RootContext
	log  *slog.Logger

	closed atomic.Bool // timers that are left send nothing any more

	mu   sync.Mutex // guards pids, which is no domain state: who is to be stopped at close
	pids []*actor.PID
}

// failer is a message whose asker must hear when its actor panics.
type failer interface{ fail(error) }

// receiver is what an actor is to this package: one method, called for one
// message at a time. It never blocks.
type receiver interface {
	receive(self *actor.PID, msg any)
}

// inline runs an idle actor in the goroutine that sends to it, still one message
// at a time. An actor never blocks, so this costs the sender microseconds and
// saves a goroutine and its wake-up for each hop.
var inline = actor.NewSynchronizedDispatcher(300)

func newSystem(log *slog.Logger) *system {
	as := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(discardDeadLetters{log.Handler()})
	}))
	return &system{as: as, root: as.Root, log: log}
}

// discardDeadLetters keeps protoactor's own lines at warn and above: its dead
// letter lines print whole messages.
type discardDeadLetters struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h discardDeadLetters) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}

type adapter struct {
	r   receiver
	sys *system
}

// Receive implements actor.Actor.
func (a *adapter) Receive(c actor.Context) {
	msg := c.Message()
	switch msg.(type) {
	case actor.SystemMessage, actor.AutoReceiveMessage, *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting:
		return
	}
	defer func() {
		if p := recover(); p != nil {
			err := panicError(p)
			a.sys.log.Error("actor panicked; its state is kept", "actor", c.Self().Id, "panic", err, "stack", string(debug.Stack()))
			if f, ok := msg.(failer); ok {
				f.fail(err)
			}
		}
	}()
	a.r.receive(c.Self(), msg)
}

func (s *system) spawn(r receiver) *actor.PID {
	pid := s.root.Spawn(actor.PropsFromProducer(func() actor.Actor { return &adapter{r: r, sys: s} },
		actor.WithDispatcher(inline)))
	s.mu.Lock()
	s.pids = append(s.pids, pid)
	s.mu.Unlock()
	return pid
}

func (s *system) send(pid *actor.PID, msg any) { s.root.Send(pid, msg) }

// after sends msg to pid once d has passed. The timer may be stopped.
func (s *system) after(d time.Duration, pid *actor.PID, msg any) *time.Timer {
	return time.AfterFunc(d, func() {
		if !s.closed.Load() {
			s.send(pid, msg)
		}
	})
}

// stop ends one actor; messages still in its mailbox are dropped.
func (s *system) stop(pid *actor.PID) {
	s.mu.Lock()
	for i, p := range s.pids {
		if p == pid {
			s.pids = append(s.pids[:i], s.pids[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	s.root.Stop(pid)
}

// close stops every actor and waits for them, a second at most each.
func (s *system) close() {
	s.closed.Store(true)
	s.mu.Lock()
	pids := s.pids
	s.pids = nil
	s.mu.Unlock()
	for i := len(pids) - 1; i >= 0; i-- {
		_ = s.root.StopFuture(pids[i]).Wait()
	}
	s.as.Shutdown()
}

// ask sends the message that build makes around a reply channel of one slot,
// and waits for the reply or the end of ctx. Never a protoactor future: those
// race (docs/decisions.md).
func ask[T any](ctx context.Context, s *system, pid *actor.PID, build func(chan<- T) any) (T, error) {
	reply := make(chan T, 1)
	s.send(pid, build(reply))
	select {
	case v := <-reply:
		return v, nil
	case <-ctx.Done():
		var zero T
		return zero, context.Cause(ctx)
	}
}
