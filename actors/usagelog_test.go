package actors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/subjects"
)

// fakeLog is a stream that can be told to fail. Its messages are in order.
type fakeLog struct {
	mu     sync.Mutex
	err    error // refuses what is published
	silent bool  // stores and never acknowledges
	ids    []string
}

func (l *fakeLog) publish(m *nats.Msg, to chan<- acked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var rec subjects.UsageRecord
	if err := json.Unmarshal(m.Data, &rec); err != nil {
		to <- acked{err: err}
		return
	}
	switch {
	case l.err != nil:
		to <- acked{err: l.err}
		return
	case slices.Contains(l.ids, rec.ID):
		to <- acked{duplicate: true, seq: uint64(slices.Index(l.ids, rec.ID) + 1)}
		return
	}
	l.ids = append(l.ids, rec.ID)
	if l.silent {
		time.AfterFunc(ackTimeout, func() { to <- acked{err: errNoAck} })
		return
	}
	to <- acked{seq: uint64(len(l.ids))}
}

func (l *fakeLog) set(err error, silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err, l.silent = err, silent
}

func testUsageLog(t *testing.T, maxPending int) (*usageLog, *fakeLog, chan bool) {
	t.Helper()
	sys := newSystem(slog.New(slog.DiscardHandler))
	t.Cleanup(sys.close)
	events := make(chan bool, 100)
	log := &fakeLog{}
	return newUsageLog(sys, log, sys.log, maxPending, func(_ string, ev any) { events <- ev.(*storeEvent).OK }), log, events
}

func record(id string) *subjects.UsageRecord {
	return &subjects.UsageRecord{ID: id, Provider: "mock", Process: "p", Timestamp: subjects.Time{Time: time.Now()}}
}

// TestLogOutage: while the log fails, the answers go out, their records are
// kept in order, new calls are refused; afterwards all are stored once.
func TestLogOutage(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprint("silent=", silent), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, log, events := testUsageLog(t, 100)
				u.write(record("before")).wait()
				if u.refuse() != nil {
					t.Fatal("refused while the log works")
				}
				if silent {
					log.set(nil, true)
				} else {
					log.set(errors.New("no space left on device"), false)
				}
				var want []string
				for i := range 50 {
					id := fmt.Sprint("r", i)
					want = append(want, id)
					u.write(record(id)).wait()
				}
				synctest.Wait()
				if e := u.refuse(); e == nil || e.Kind != subjects.KindNoProvider || e.RetryAfter == 0 {
					t.Fatalf("not refused while records wait: %v", e)
				}
				if st := u.state(context.Background()); !silent && st.pending != 50 {
					t.Errorf("%d records wait, want 50", st.pending)
				}
				if <-events {
					t.Error("the event says that all is well")
				}
				pass(time.Minute)
				synctest.Wait()
				log.set(nil, false)
				pass(time.Minute)
				synctest.Wait()
				if u.refuse() != nil {
					t.Error("still refused after the outage")
				}
				if !<-events {
					t.Error("no event says that it is over")
				}
				if got := log.ids[1:]; !slices.Equal(got, want) {
					t.Errorf("stored %v", got)
				}
			})
		})
	}
}

func TestLogKeepsInBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, log, _ := testUsageLog(t, 3)
		log.set(errors.New("down"), false)
		for i := range 5 {
			u.write(record(fmt.Sprint(i))).wait()
		}
		synctest.Wait()
		if st := u.state(context.Background()); st.pending != 3 {
			t.Errorf("%d kept, the bound is 3", st.pending)
		}
		log.set(nil, false)
		pass(time.Minute)
		synctest.Wait()
		if len(log.ids) != 3 {
			t.Errorf("stored %v", log.ids)
		}
	})
}

// TestLogKnowsTheID: a record whose id is in the stream from before a restart
// is another run of the call, and stored beside the first.
func TestLogKnowsTheID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, log, _ := testUsageLog(t, 3)
		for range 3 {
			u.write(record("same")).wait()
		}
		if want := []string{"same", "same#2", "same#3"}; !slices.Equal(log.ids, want) {
			t.Errorf("stored %v, want %v", log.ids, want)
		}
	})
}

func TestDiskFullRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, _, events := testUsageLog(t, 3)
		full := subjects.Errorf(subjects.KindNoProvider, "full")
		for _, state := range []*subjects.Error{full, full, nil, nil} {
			u.sys.send(u.keeper, diskState{state})
			synctest.Wait()
			if u.refuse() != state {
				t.Errorf("refusal %v, want %v", u.refuse(), state)
			}
		}
		if len(events) != 2 || <-events || !<-events {
			t.Error("one event for each change")
		}
	})
}

// TestSpill: records that cannot be stored before the node ends wait in a file,
// and the next node stores them once and removes it.
func TestSpill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "pending.jsonl")
		u, log, _ := testUsageLog(t, 100)
		u.spill = file
		log.set(errors.New("no space left on device"), false)
		for i := range 3 {
			u.write(record(fmt.Sprint("r", i))).wait()
		}
		synctest.Wait()
		u.rescue()
		if st := u.state(context.Background()); st.pending != 0 {
			t.Errorf("%d are still kept", st.pending)
		}
		next, log, _ := testUsageLog(t, 100)
		next.spill = file
		log.set(errors.New("still down"), false)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { next.unspill(ctx); close(ended) }()
		pass(time.Second)
		cancel()
		<-ended
		if _, err := os.Stat(file); err != nil {
			t.Errorf("the file is gone before its records are stored: %v", err)
		}
		log.set(nil, false)
		next.unspill(context.Background())
		if want := []string{"r0", "r1", "r2"}; !slices.Equal(log.ids, want) {
			t.Errorf("stored %v, want %v", log.ids, want)
		}
		if _, err := os.Stat(file); err == nil {
			t.Error("the file is still there")
		}
		next.unspill(context.Background()) // nothing to do
	})
}

// TestLogIsStartedAnew: a log that refuses everything is revived, once the disk
// has space.
func TestLogIsStartedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, log, _ := testUsageLog(t, 100)
		u.revive = func() error { log.set(nil, false); return nil }
		log.set(errors.New("sticky"), false)
		u.sys.send(u.keeper, diskState{subjects.Errorf(subjects.KindNoProvider, "full")})
		u.write(record("r")).wait()
		pass(time.Minute)
		synctest.Wait()
		if len(log.stored()) != 0 {
			t.Error("started anew while the disk is full")
		}
		u.sys.send(u.keeper, diskState{nil})
		pass(time.Minute)
		synctest.Wait()
		if got := log.stored(); !slices.Equal(got, []string{"r"}) || u.refuse() != nil {
			t.Errorf("stored %v, refusal %v", got, u.refuse())
		}
	})
}

func (l *fakeLog) stored() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ids)
}
