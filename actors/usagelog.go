package actors

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-llm/sluice/subjects"
)

// ackTimeout bounds the wait for JetStream's acknowledgement of one record.
// When it passes, the answer is delivered all the same and the record is kept.
const ackTimeout = 5 * time.Second

// usageLog writes usage records to JetStream. A call publishes its own record
// and waits for the acknowledgement; only when that fails does the record go to
// the keeper actor, which holds it in bounds and tries again, and no new call
// is let in until the log can be written again.
type usageLog struct {
	sys    *system
	js     publisher
	keeper *actor.PID
	log    *slog.Logger
	// refusal is set while no new call may start; the keeper alone sets it.
	refusal atomic.Pointer[subjects.Error]
	// lastSeq is the highest stream sequence acknowledged to this node.
	lastSeq atomic.Uint64
	// fresh has records that the database has not taken yet.
	fresh freshRecords
	// revive and spill are Options.Revive and Options.Spill.
	revive func() error
	spill  string
}

// publisher is what the usage log needs of JetStream: it sends m and gives to,
// which has a free place, one answer, ackTimeout later at the latest.
type publisher interface {
	publish(m *nats.Msg, to chan<- acked)
}

func newUsageLog(sys *system, js publisher, log *slog.Logger, maxPending int, emit func(string, any)) *usageLog {
	u := &usageLog{sys: sys, js: js, log: log}
	u.keeper = sys.spawn(&keeper{u: u, max: maxPending, emit: emit, delay: minRetryDelay})
	return u
}

// refuse returns why no new call may start, or nil.
func (u *usageLog) refuse() *subjects.Error { return u.refusal.Load() }

// keep changes how many records may wait.
func (u *usageLog) keep(max int) { u.sys.send(u.keeper, setMax{max}) }

// pendingRecord is one record on its way into the log.
type pendingRecord struct {
	u    *usageLog
	rec  *subjects.UsageRecord
	ack  chan acked
	data []byte // as published
}

// write publishes a record and returns at once; wait says when it is stored.
func (u *usageLog) write(rec *subjects.UsageRecord) *pendingRecord {
	p := &pendingRecord{u: u, rec: rec, ack: make(chan acked, 1)}
	p.data = u.publish(rec, p.ack)
	return p
}

func (u *usageLog) publish(rec *subjects.UsageRecord, to chan<- acked) (data []byte) {
	data = rec.AppendJSON(make([]byte, 0, 1024))
	u.js.publish(&nats.Msg{
		Subject: subjects.UsageSubject(rec.Provider, rec.Process),
		Header:  nats.Header{jetstream.MsgIDHeader: []string{subjects.UsageMsgID(rec.ID)}},
		Data:    data,
	}, to)
	return data
}

// wait returns when the record is stored, or has gone to the keeper: in either
// case it is not lost while the process lives. An id that the stream knows
// already belongs to an earlier run of the call (before a restart): the record
// is stored under the next free name, so that its tokens are counted too.
func (p *pendingRecord) wait() {
	base := p.rec.ID
	for run := 2; ; run++ {
		ack := p.acked()
		switch {
		case ack.err != nil:
			p.u.log.Warn("usage record not stored; kept for later", "call", base, "error", ack.err)
			p.u.sys.send(p.u.keeper, stranded{p.rec})
			return
		case !ack.duplicate:
			p.u.fresh.put(ack.seq, p)
			p.u.noteSeq(ack.seq)
			return
		}
		p.rec.ID = runID(base, run)
		p.data = p.u.publish(p.rec, p.ack)
	}
}

// acked waits for the acknowledgement. A stream that nobody leads for a moment
// is asked twice more.
func (p *pendingRecord) acked() acked {
	ack := <-p.ack
	for tries := 0; tries < 2 && errors.Is(ack.err, jetstream.ErrNoStreamResponse); tries++ {
		time.Sleep(minRetryDelay)
		p.data = p.u.publish(p.rec, p.ack)
		ack = <-p.ack
	}
	return ack
}

// freshRecords keeps what this node has just written, so that the pump need not
// decode it when it comes back from the stream. A newer record may take an
// older one's place: then the pump decodes.
type freshRecords [512]atomic.Pointer[pendingRecord]

// put adds a stored record, which must not change any more.
func (f *freshRecords) put(seq uint64, p *pendingRecord) { f[seq%uint64(len(f))].Store(p) }

// take returns the record whose JSON is data and forgets it; nil = not known.
// Names that are not UTF-8 read differently in the JSON.
func (f *freshRecords) take(seq uint64, data []byte) *subjects.UsageRecord {
	at := &f[seq%uint64(len(f))]
	p := at.Load()
	if p == nil || !bytes.Equal(p.data, data) {
		return nil
	}
	at.CompareAndSwap(p, nil)
	if !validNames(p.rec) {
		return nil
	}
	return p.rec
}

// validNames reports whether all that the database sums by is UTF-8.
func validNames(r *subjects.UsageRecord) bool {
	for _, s := range [...]string{r.ID, r.Provider, r.Process, r.Model, r.RunID, r.BatchID} {
		if !utf8.ValidString(s) {
			return false
		}
	}
	for i := range r.AttemptTrail {
		if a := &r.AttemptTrail[i]; a.Spent != nil && !(utf8.ValidString(a.Provider) && utf8.ValidString(a.Spent.Model)) {
			return false
		}
	}
	return true
}

func (u *usageLog) noteSeq(seq uint64) {
	for {
		old := u.lastSeq.Load()
		if seq <= old || u.lastSeq.CompareAndSwap(old, seq) {
			return
		}
	}
}

const (
	minRetryDelay = 250 * time.Millisecond
	maxRetryDelay = 5 * time.Second
	// reviveAfter is after how many failed tries the log is started anew.
	reviveAfter = 3
)

// Messages of the keeper.
type (
	stranded struct{ rec *subjects.UsageRecord }
	retryNow struct{}
	retried  struct {
		stored int
		err    error
	}
	// diskState comes from the node's watch on free space; err nil = enough.
	diskState   struct{ err *subjects.Error }
	keeperState struct{ reply chan<- keeperInfo }
	setMax      struct{ max int }
)

type keeperInfo struct {
	pending int
	err     string
}

// keeper owns the records that are paid for and could not be stored. States:
// open (nothing kept, calls are let in), closed (something kept, or the disk is
// nearly full: calls are refused before a token is spent).
type keeper struct {
	u    *usageLog
	max  int
	emit func(string, any)

	kept    []*subjects.UsageRecord
	retries bool // one retry goroutine at most
	delay   time.Duration
	fails   int // tries that failed, one after the other
	disk    *subjects.Error
	lastErr string
}

func (k *keeper) receive(self *actor.PID, msg any) {
	switch m := msg.(type) {
	case stranded:
		k.keep(self, m.rec)
	case retryNow:
		batch := slices.Clone(k.kept[:min(len(k.kept), 256)])
		go k.u.retry(self, batch, k.disk == nil && k.fails > 0 && k.fails%reviveAfter == 0)
		return
	case takeKept:
		m.reply <- k.kept
		k.kept = nil
		return
	case retried:
		k.settle(self, m)
	case setMax:
		k.max = m.max
		return
	case diskState:
		k.disk = m.err
	case keeperState:
		info := keeperInfo{pending: len(k.kept), err: k.lastErr}
		if k.disk != nil {
			info.err = k.disk.Message
		}
		m.reply <- info
		return
	}
	k.decide()
}

func (k *keeper) keep(self *actor.PID, rec *subjects.UsageRecord) {
	if len(k.kept) >= k.max {
		k.u.logLost(rec)
		return
	}
	k.kept = append(k.kept, rec)
	k.schedule(self)
}

func (k *keeper) schedule(self *actor.PID) {
	if !k.retries && len(k.kept) > 0 {
		k.retries = true
		k.u.sys.after(k.delay, self, retryNow{})
	}
}

func (k *keeper) settle(self *actor.PID, m retried) {
	k.kept = k.kept[min(m.stored, len(k.kept)):]
	k.retries = false
	if m.err != nil {
		k.fails++
		k.lastErr, k.delay = m.err.Error(), min(2*k.delay, maxRetryDelay)
	} else {
		k.fails, k.lastErr, k.delay = 0, "", minRetryDelay
	}
	if len(k.kept) == 0 {
		k.kept = nil
	}
	k.schedule(self)
}

// decide opens or closes the door for new calls, and says so when it changes.
func (k *keeper) decide() {
	var refusal *subjects.Error
	switch {
	case k.disk != nil:
		refusal = k.disk
	case len(k.kept) > 0:
		refusal = subjects.Errorf(subjects.KindNoProvider,
			"the usage log cannot be written; no new call is started until it can (%d records wait)", len(k.kept))
		refusal.RetryAfter = maxRetryDelay
	}
	was := k.u.refusal.Swap(refusal)
	if (was == nil) == (refusal == nil) {
		return
	}
	ev := storeEvent{OK: refusal == nil, At: subjects.Time{Time: time.Now()}}
	if refusal != nil {
		ev.Reason = refusal.Message
		k.u.log.Error("calls are refused", "reason", refusal.Message)
	} else {
		k.u.log.Info("the usage log can be written again; calls are let in")
	}
	k.emit(subjects.StoreStatus, &ev)
}

// storeEvent is the payload of llm.store.
type storeEvent struct {
	OK     bool          `json:"ok"`
	Reason string        `json:"reason,omitempty"`
	At     subjects.Time `json:"at"`
}

// retry runs beside the keeper: it stores kept records in order and reports. A
// log that has refused everything for a while is first started anew: its store
// does not forget a full disk.
func (u *usageLog) retry(keeper *actor.PID, batch []*subjects.UsageRecord, revive bool) {
	if revive && u.revive != nil {
		u.log.Warn("the usage log refuses every record; it is started anew")
		if err := u.revive(); err != nil {
			u.log.Error("the usage log cannot be started anew", "error", err)
		}
	}
	stored, err := u.storeAll(batch)
	u.sys.send(keeper, retried{stored: stored, err: err})
}

func (u *usageLog) state(ctx context.Context) keeperInfo {
	info, err := ask(ctx, u.sys, u.keeper, func(r chan<- keeperInfo) any { return keeperState{r} })
	if err != nil {
		info.err = "unknown: the keeper does not answer"
	}
	return info
}
