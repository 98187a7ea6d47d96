package actors

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/tidwall/gjson"
)

const (
	// maxUnacked bounds the records whose acknowledgement is waited for.
	maxUnacked = 1 << 15
	// sweepTime is how often the acks look for those that are overdue.
	sweepTime = ackTimeout / 10
)

var (
	errNoAck    = errors.New("no acknowledgement in time")
	errUnacked  = errors.New("too many records wait for their acknowledgement")
	errBrokenAk = errors.New("the stream's acknowledgement cannot be read")
)

// acked is what became of one publish: the stream's sequence, or an error.
type acked struct {
	seq       uint64
	duplicate bool
	err       error
}

// acks publishes to a stream and hands each acknowledgement to who waits for
// it. It does what jetstream's PublishMsgAsync does with a fifth of its
// allocations: a timer, two channels and a decoder for each message are most of
// what a small record costs there.
//
// States of a publish: sent → acknowledged, refused, overdue, or cut off when
// the connection was lost. Each is told once.
type acks struct {
	conn   *nats.Conn
	prefix string // of the reply subjects; a number follows

	mu      sync.Mutex // guards the rest, which is no domain state: which reply is whose
	sub     *nats.Subscription
	last    uint64
	waiting map[uint64]unacked
	over    bool
}

type unacked struct {
	to    chan<- acked
	since time.Time
}

func newAcks(conn *nats.Conn) *acks {
	return &acks{conn: conn, prefix: conn.NewInbox() + ".", waiting: map[uint64]unacked{}}
}

// run gives up what is overdue or cut off, until ctx ends.
func (a *acks) run(ctx context.Context) {
	status := a.conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING)
	defer a.conn.RemoveStatusListener(status)
	t := time.NewTicker(sweepTime)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			a.close()
			return
		case now := <-t.C:
			a.sweep(now)
		case _, open := <-status:
			if !open { // the connection is closed for good
				status = nil
			}
			a.fail(nats.ErrDisconnected, func(unacked) bool { return true })
		}
	}
}

func (a *acks) close() {
	a.mu.Lock()
	a.over = true
	if a.sub != nil {
		_ = a.sub.Unsubscribe()
	}
	a.mu.Unlock()
	a.fail(errStopped, func(unacked) bool { return true })
}

// publish sends m and returns at once. to, which needs a free place, gets one
// answer.
func (a *acks) publish(m *nats.Msg, to chan<- acked) {
	id, err := a.expect(to)
	if err != nil {
		to <- acked{err: err}
		return
	}
	m.Reply = a.prefix + strconv.FormatUint(id, 36)
	if err := a.conn.PublishMsg(m); err != nil {
		a.settle(id, acked{err: err})
	}
}

// expect enters a publish; the first of all subscribes to the replies.
func (a *acks) expect(to chan<- acked) (id uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return 0, errStopped
	}
	if a.sub == nil {
		if a.sub, err = a.conn.Subscribe(a.prefix+"*", a.onReply); err != nil {
			return 0, err
		}
	}
	if len(a.waiting) >= maxUnacked {
		return 0, errUnacked
	}
	a.last++
	a.waiting[a.last] = unacked{to, time.Now()}
	return a.last, nil
}

func (a *acks) onReply(m *nats.Msg) {
	if id, err := strconv.ParseUint(m.Subject[len(a.prefix):], 36, 64); err == nil {
		a.settle(id, readAck(m))
	}
}

func (a *acks) settle(id uint64, got acked) {
	a.mu.Lock()
	u, ok := a.waiting[id]
	delete(a.waiting, id)
	a.mu.Unlock()
	if ok {
		u.to <- got
	}
}

func (a *acks) sweep(now time.Time) {
	a.fail(errNoAck, func(u unacked) bool { return now.Sub(u.since) >= ackTimeout })
}

// fail gives up those that which chooses.
func (a *acks) fail(err error, which func(unacked) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, u := range a.waiting {
		if which(u) {
			delete(a.waiting, id)
			u.to <- acked{err: err}
		}
	}
}

func readAck(m *nats.Msg) acked {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return acked{err: jetstream.ErrNoStreamResponse}
	}
	ack := gjson.ParseBytes(m.Data)
	if e := ack.Get("error"); e.Exists() {
		refused := &jetstream.APIError{}
		if json.Unmarshal([]byte(e.Raw), refused) != nil {
			return acked{err: errBrokenAk}
		}
		return acked{err: refused}
	}
	got := acked{seq: ack.Get("seq").Uint(), duplicate: ack.Get("duplicate").Bool()}
	if got.seq == 0 {
		got.err = errBrokenAk
	}
	return got
}
