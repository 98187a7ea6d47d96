package actors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/persistence"
)

// statesOnDisk is a database that may refuse.
type statesOnDisk struct {
	mu     sync.Mutex
	states map[string][]byte
	writes int
	most   int // states in one write
	refuse func(write int) error
}

func (d *statesOnDisk) SaveStates(states map[string][]byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes++
	d.most = max(d.most, len(states))
	if d.refuse != nil {
		if err := d.refuse(d.writes); err != nil {
			return err
		}
	}
	for key, value := range states {
		if value == nil {
			delete(d.states, key)
		} else {
			d.states[key] = value
		}
	}
	return nil
}

func (d *statesOnDisk) is(t *testing.T, want map[string]string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	got := map[string]string{}
	for key, value := range d.states {
		got[key] = string(value)
	}
	if !maps.Equal(got, want) {
		t.Errorf("on disk: %v, want %v", got, want)
	}
}

func newSaverTest(t *testing.T, store stateStore) (*stateSaver, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	sys := newSystem(log)
	t.Cleanup(sys.close)
	return newStateSaver(sys, store, log), &out
}

func closeIn(s *stateSaver, d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return s.close(ctx)
}

// What is saved is written soon, the newest of each key, and nil deletes.
func TestSaverWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &statesOnDisk{states: map[string][]byte{"old": []byte("x")}}
		s, _ := newSaverTest(t, d)
		for i := range 100 {
			s.save("a", fmt.Append(nil, i))
		}
		s.save("b", []byte{})
		s.save("old", nil)
		synctest.Wait()
		d.is(t, map[string]string{"a": "99", "b": ""})
		s.save("", []byte("no key"))
		s.save(strings.Repeat("k", persistence.MaxStateKey+1), nil)
		s.save("huge", make([]byte, persistence.MaxState+1))
		if err := closeIn(s, time.Second); err != nil {
			t.Error(err)
		}
		d.is(t, map[string]string{"a": "99", "b": ""})
	})
}

// While the database refuses, the newest of each key waits; it is said once that
// it refuses and once that it does not any more.
func TestSaverTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := true
		d := &statesOnDisk{states: map[string][]byte{}, refuse: func(int) error {
			if full {
				return persistence.ErrNoSpace
			}
			return nil
		}}
		s, out := newSaverTest(t, d)
		s.save("a", []byte("1"))
		s.save("b", []byte("1"))
		synctest.Wait()
		s.save("a", []byte("2"))
		time.Sleep(time.Hour)
		d.is(t, map[string]string{})
		if n := d.writes; n < 600 || n > 800 { // one in five seconds
			t.Errorf("%d tries in an hour", n)
		}
		d.mu.Lock()
		full = false
		d.mu.Unlock()
		time.Sleep(maxSavePause)
		d.is(t, map[string]string{"a": "2", "b": "1"})
		if err := closeIn(s, time.Second); err != nil {
			t.Error(err)
		}
		if log := out.String(); strings.Count(log, "\n") != 2 || !strings.Contains(log, "cannot be stored") || !strings.Contains(log, "again") {
			t.Errorf("logged:\n%s", log)
		}
	})
}

// close does not wait for a long pause, and gives up when its time ends.
func TestSaverClose(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		refused int // writes
		within  time.Duration
		says    string
	}{
		{"in time", persistence.ErrNoSpace, 10, time.Second, ""},
		{"too late", persistence.ErrNoSpace, 1 << 30, time.Second, "deadline"},
		{"closed", persistence.ErrClosed, 1 << 30, 0, "closed"},
		{"broken", fmt.Errorf("x: %w", persistence.ErrBroken), 1 << 30, 0, "out of order"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &statesOnDisk{states: map[string][]byte{}, refuse: func(write int) error {
					if write <= c.refused {
						return c.err
					}
					return nil
				}}
				s, _ := newSaverTest(t, d)
				s.save("a", []byte("1"))
				time.Sleep(20 * time.Second) // eight tries, and a pause of 5 s
				began := time.Now()
				err := closeIn(s, time.Second)
				if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
					t.Errorf("close: %v", err)
				}
				if took := time.Since(began); took > c.within {
					t.Errorf("close took %v", took)
				}
				s.save("a", []byte("2")) // too late, and harmless
				synctest.Wait()
			})
		})
	}
}

// saverActor saves from within receive.
type saverActor struct{ s *stateSaver }

func (a saverActor) receive(_ *actor.PID, msg any) {
	switch m := msg.(type) {
	case saveState:
		a.s.save(m.key, m.value)
	case flushStates: // all before it have been saved
		m.reply <- nil
	}
}

// TestSaverLosesNothing: many actors and goroutines save at once while the
// database sometimes refuses; whatever was saved before close returned is there,
// and of each key the last.
func TestSaverLosesNothing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	store, err := persistence.Open(persistence.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	sys := newSystem(slog.New(slog.DiscardHandler))
	d := &sometimes{store: store}
	s := newStateSaver(sys, d, slog.New(slog.DiscardHandler))
	const savers, keys, times = 8, 5, 200
	var wg sync.WaitGroup
	last := [savers]map[string]string{}
	for i := range savers {
		last[i] = map[string]string{}
		pid := sys.spawn(saverActor{s})
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for n := range times {
				key := fmt.Sprintf("%d/%d", i, r.IntN(keys))
				value := fmt.Append(nil, n)
				if r.IntN(10) == 0 {
					value = nil
				}
				if r.IntN(100) == 0 {
					value = bytes.Repeat([]byte{'v'}, persistence.MaxState)
				}
				if last[i][key] = string(value); value == nil {
					delete(last[i], key)
				}
				if i%2 == 0 {
					s.save(key, value)
				} else {
					sys.send(pid, saveState{key, value})
				}
			}
			if _, err := ask(t.Context(), sys, pid, func(to chan<- error) any { return flushStates{to} }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := closeIn(s, time.Minute); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for i := range last {
		maps.Copy(want, last[i])
	}
	got, err := store.States()
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range got {
		if want[key] != string(value) {
			t.Errorf("%s: %.20q, want %.20q", key, value, want[key])
		}
		delete(want, key)
	}
	if len(want) > 0 {
		t.Errorf("lost: %d states", len(want))
	}
	sys.close()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

// sometimes refuses every third write.
type sometimes struct {
	store  *persistence.Store
	writes int
}

func (d *sometimes) SaveStates(states map[string][]byte) error {
	if d.writes++; d.writes%3 == 1 {
		return errors.New("not now")
	}
	return d.store.SaveStates(states)
}

// What is saved while close waits is written, too, if save returned before close.
func TestSaverSavedDuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &statesOnDisk{states: map[string][]byte{}}
		s, _ := newSaverTest(t, d)
		d.refuse = func(write int) error {
			if write <= 5 {
				s.save("late", fmt.Append(nil, write)) // from the saver's own goroutine
			}
			if write == 2 {
				return persistence.ErrNoSpace
			}
			return nil
		}
		s.save("early", []byte("1"))
		if err := closeIn(s, time.Second); err != nil {
			t.Error(err)
		}
		d.is(t, map[string]string{"early": "1", "late": "5"})
	})
}

func BenchmarkSaverSave(b *testing.B) {
	sys := newSystem(slog.New(slog.DiscardHandler))
	defer sys.close()
	s := newStateSaver(sys, &statesOnDisk{states: map[string][]byte{}}, slog.New(slog.DiscardHandler))
	value := make([]byte, 300)
	b.ReportAllocs()
	for b.Loop() {
		s.save("breaker/openai", value)
	}
	if err := closeIn(s, time.Minute); err != nil {
		b.Fatal(err)
	}
}
