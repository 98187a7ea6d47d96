package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/persistence"
)

// How long the saver waits after the database refused: at first, and at most.
const (
	minSavePause = 100 * time.Millisecond
	maxSavePause = 5 * time.Second
)

// stateStore is what a stateSaver needs of the usage database.
type stateStore interface {
	SaveStates(map[string][]byte) error
}

// stateSaver writes the small states of actors (a breaker, a quota) to the usage
// database: of each key what was saved last. An actor may save at any time, from
// within receive.
//
// What is to be written is the state of an actor; one goroutine beside it takes
// all that has gathered, writes it in as few transactions as it fits in, and comes
// back for more. While the database refuses, what could not be written waits, a
// newer value of a key in the place of an older one, and is tried again with a
// growing pause; that is logged once. States of the actor: idle (nothing waits,
// nothing is being written), or not.
type stateSaver struct {
	sys   *system
	pid   *actor.PID
	store stateStore
	log   *slog.Logger

	saved   atomic.Uint64 // calls of save
	wake    chan struct{} // has a value when something waits
	closing chan struct{} // closed by close: pauses are short
	ended   chan struct{} // closed when the goroutine has ended
	base    context.Context
	end     context.CancelFunc
}

// newStateSaver starts the actor and the goroutine; close ends them.
func newStateSaver(sys *system, store stateStore, log *slog.Logger) *stateSaver {
	s := &stateSaver{
		sys: sys, store: store, log: log,
		wake: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}),
	}
	s.base, s.end = context.WithCancel(context.Background())
	s.pid = sys.spawn(&unsaved{waiting: map[string][]byte{}, wake: s.wake, log: log})
	go s.run()
	return s
}

// save has value stored under key; nil deletes it. It never blocks and keeps
// value, which must not change. A key or a value that the database would never
// take (persistence.MaxStateKey, persistence.MaxState) is logged and dropped.
func (s *stateSaver) save(key string, value []byte) {
	if key == "" || len(key) > persistence.MaxStateKey || len(value) > persistence.MaxState {
		s.log.Error("a state is not stored: it is too large", "key bytes", len(key), "bytes", len(value))
		return
	}
	if s.base.Err() != nil {
		s.log.Warn("a state is not stored: the node has ended", "key", key)
		return
	}
	s.sys.send(s.pid, saveState{key, value})
	s.saved.Add(1)
}

// close waits until all that was saved before it returns is written and ends the
// saver. Its error says that ctx ended before that, or that the database was
// closed or out of order. It is called once; what is saved later is logged and lost.
func (s *stateSaver) close(ctx context.Context) error {
	close(s.closing)
	for {
		before := s.saved.Load()
		err := s.flush(ctx)
		if err == nil && s.saved.Load() != before {
			continue
		}
		s.end()
		if err == nil || ctx.Err() == nil { // nothing is being written
			<-s.ended
			s.sys.stop(s.pid)
		}
		return err
	}
}

func (s *stateSaver) flush(ctx context.Context) error {
	left, err := ask(ctx, s.sys, s.pid, func(to chan<- error) any { return flushStates{to} })
	if err = errors.Join(err, left); err != nil {
		return fmt.Errorf("states of providers are not stored: %w", err)
	}
	return nil
}

// run writes until end is called or the database is closed or out of order.
func (s *stateSaver) run() {
	defer close(s.ended)
	for {
		select {
		case <-s.wake:
		case <-s.base.Done():
			return
		}
		if err := s.writeAll(); err != nil {
			s.sys.send(s.pid, saverGone{err})
			return
		}
	}
}

// writeAll writes until nothing waits. Its error is final.
func (s *stateSaver) writeAll() error {
	pause := minSavePause
	for s.base.Err() == nil {
		batch, err := ask(s.base, s.sys, s.pid, func(to chan<- map[string][]byte) any { return takeStates{to} })
		if err != nil || batch == nil { // it is ended, or nothing waits
			return nil
		}
		err = s.store.SaveStates(batch)
		s.sys.send(s.pid, statesWritten{err})
		switch {
		case err == nil:
			pause = minSavePause
			continue
		case errors.Is(err, persistence.ErrClosed), errors.Is(err, persistence.ErrBroken):
			return err // nothing will be written any more
		}
		s.wait(pause)
		pause = min(2*pause, maxSavePause)
	}
	return nil
}

// wait pauses; when the saver is being closed, no longer than at first.
func (s *stateSaver) wait(pause time.Duration) {
	long, short := time.NewTimer(pause), time.NewTimer(minSavePause)
	defer long.Stop()
	defer short.Stop()
	select {
	case <-long.C:
		return
	case <-s.base.Done():
		return
	case <-s.closing:
	}
	select {
	case <-short.C:
	case <-s.base.Done():
	}
}

// Messages of unsaved.
type (
	saveState struct {
		key   string
		value []byte
	}
	// takeStates is answered with what is to be written now; nil = nothing waits.
	takeStates struct{ reply chan<- map[string][]byte }
	// statesWritten says what became of what was taken.
	statesWritten struct{ err error }
	// saverGone says that nothing will be taken any more.
	saverGone struct{ err error }
	// flushStates is answered once all is written, or never will be.
	flushStates struct{ reply chan<- error }
)

// unsaved owns what waits to be written.
type unsaved struct {
	waiting  map[string][]byte
	writing  map[string][]byte // taken; nil = nothing is being written
	refused  bool              // the last write was
	gone     error
	flushing []flushStates
	wake     chan<- struct{}
	log      *slog.Logger
}

func (s *unsaved) receive(_ *actor.PID, msg any) {
	switch m := msg.(type) {
	case saveState:
		s.waiting[m.key] = m.value
		trySend(s.wake, struct{}{})
	case takeStates:
		s.writing = s.take()
		m.reply <- s.writing
	case statesWritten:
		s.written(m.err)
	case saverGone:
		s.gone = m.err
	case flushStates:
		s.flushing = append(s.flushing, m)
	}
	s.tellFlushed()
}

// take takes what fits in one transaction; nil when nothing waits.
func (s *unsaved) take() map[string][]byte {
	if len(s.waiting) == 0 {
		return nil
	}
	batch, size := map[string][]byte{}, 0
	for key, value := range s.waiting {
		size += len(key) + len(value)
		if size > persistence.MaxStates {
			break
		}
		batch[key] = value
		delete(s.waiting, key)
	}
	return batch
}

// written logs the first refusal and the end of it, and has what was refused
// written again, except where something newer waits.
func (s *unsaved) written(err error) {
	switch {
	case err == nil && s.refused:
		s.log.Info("states of providers are stored again")
	case err != nil && !s.refused:
		s.log.Warn("states of providers cannot be stored", "error", err)
	}
	s.refused = err != nil
	if err != nil {
		newer := s.waiting
		s.waiting = s.writing
		maps.Copy(s.waiting, newer)
	}
	s.writing = nil
}

func (s *unsaved) tellFlushed() {
	if s.gone == nil && (len(s.waiting) > 0 || s.writing != nil) {
		return
	}
	var err error
	if len(s.waiting) > 0 || s.writing != nil {
		err = s.gone
	}
	for _, f := range s.flushing {
		f.reply <- err
	}
	s.flushing = nil
}
