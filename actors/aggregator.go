package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-llm/sluice/persistence"
	"github.com/sluice-llm/sluice/subjects"
)

// maxBatch bounds the records of one database transaction, and gatherTime how
// long the first of them waits for the others: the sums of a batch are read and
// written once for all of it.
const (
	maxBatch   = 512
	gatherTime = 10 * time.Millisecond
)

// Messages of the aggregator.
type (
	applied struct{ seq uint64 }
	// applyFailed says why the database is behind; "" = it goes on.
	applyFailed struct{ reason string }
	// reached is answered once the database holds seq.
	reached struct {
		seq   uint64
		reply chan<- struct{}
	}
	aggregatorState struct{ reply chan<- aggregatorInfo }
)

type aggregatorInfo struct {
	seq    uint64
	reason string
}

// aggregator owns what is known of the usage database's progress along the
// stream, and who waits for it. The pump beside it does the I/O.
type aggregator struct {
	seq    uint64
	reason string
	waits  []reached
}

func (a *aggregator) receive(_ *actor.PID, msg any) {
	switch m := msg.(type) {
	case applied:
		a.seq, a.reason = max(a.seq, m.seq), ""
		rest := a.waits[:0]
		for _, w := range a.waits {
			if w.seq <= a.seq {
				trySend(w.reply, struct{}{})
			} else {
				rest = append(rest, w)
			}
		}
		a.waits = rest
	case applyFailed:
		a.reason = m.reason
	case reached:
		if m.seq <= a.seq {
			trySend(m.reply, struct{}{})
		} else {
			a.waits = append(a.waits, m)
		}
	case aggregatorState:
		m.reply <- aggregatorInfo{a.seq, a.reason}
	}
}

// pump reads the stream in order from the database's cursor on and applies it,
// one transaction a batch, the cursor in it. No acknowledgements: the database
// is the offset store. It is the database's only writer.
type pump struct {
	sys   *system
	actor *actor.PID
	js    jetstream.JetStream
	store *persistence.Store
	fresh *freshRecords
	// again gets a value when the stream was started anew.
	again chan struct{}
	log   *slog.Logger
}

var errAnew = errors.New("the stream was started anew")

// run works until ctx ends. After an error it starts again from the cursor,
// with a growing pause.
func (p *pump) run(ctx context.Context) {
	pause := 100 * time.Millisecond
	for ctx.Err() == nil {
		start := time.Now()
		err := p.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		p.log.Warn("usage aggregation interrupted; it goes on from its cursor", "error", err)
		p.sys.send(p.actor, applyFailed{err.Error()})
		if time.Since(start) > time.Minute || errors.Is(err, errAnew) {
			pause = 100 * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// start finds where to begin: the stream's identity, and the sequence after
// the cursor. A stream that was made anew, or lost its end, gets another
// identity: the database then checks each record by its id, so that nothing is
// counted twice or left out.
func (p *pump) start(ctx context.Context) (identity string, from uint64, err error) {
	stream, err := p.js.Stream(ctx, subjects.UsageStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "", 0, fmt.Errorf("the usage stream %s is gone: restore it, or restart the node, which makes it anew", subjects.UsageStream)
	}
	if err != nil {
		return "", 0, err
	}
	info := stream.CachedInfo()
	identity = fmt.Sprintf("%s@%d", info.Config.Name, info.Created.UnixNano())
	cur, err := p.store.Cursor()
	if err != nil {
		return "", 0, err
	}
	switch {
	case cur.Stream == "":
		return identity, 1, nil
	case baseIdentity(cur.Stream) != identity:
		p.log.Warn("the usage stream is not the one this database followed; its records are checked one by one", "was", cur.Stream, "is", identity)
		return identity, 1, nil
	case info.State.LastSeq < cur.Seq:
		p.log.Error("the usage stream lost its end; its records are checked one by one", "last", info.State.LastSeq, "cursor", cur.Seq)
		return fmt.Sprintf("%s+%d", identity, cur.Seq), 1, nil
	}
	if info.State.FirstSeq > cur.Seq+1 && info.State.Msgs > 0 {
		p.log.Error("usage records left the stream before the database read them", "first", info.State.FirstSeq, "cursor", cur.Seq)
	}
	return cur.Stream, cur.Seq + 1, nil
}

// baseIdentity strips the mark of a stream that lost its end.
func baseIdentity(s string) string {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '+' {
			return s[:i]
		}
	}
	return s
}

func (p *pump) follow(ctx context.Context) error {
	identity, from, err := p.start(ctx)
	if err != nil {
		return err
	}
	p.sys.send(p.actor, applied{from - 1})
	cons, err := p.js.OrderedConsumer(ctx, subjects.UsageStream, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
	})
	if err != nil {
		return err
	}
	in := make(chan persistence.Entry, maxBatch)
	failed := make(chan error, 1)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cc, err := cons.Consume(func(m jetstream.Msg) {
		meta, err := m.Metadata()
		if err != nil {
			trySend(failed, err)
			return
		}
		select {
		case in <- persistence.Entry{Seq: meta.Sequence.Stream, Data: m.Data()}:
		case <-ctx.Done():
		}
	}, jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		if errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrStreamNotFound) {
			trySend(failed, err)
		}
	}))
	if err != nil {
		return err
	}
	defer cc.Stop()
	return p.apply(ctx, identity, in, failed)
}

func (p *pump) apply(ctx context.Context, identity string, in <-chan persistence.Entry, failed <-chan error) error {
	batch := make([]persistence.Entry, 0, maxBatch)
	for {
		select {
		case e := <-in:
			batch = gather(append(batch[:0], e), in)
		case err := <-failed:
			return err
		case <-p.again:
			return errAnew
		case <-ctx.Done():
			return ctx.Err()
		}
		for i := range batch {
			batch[i].Record = p.fresh.take(batch[i].Seq, batch[i].Data)
		}
		if _, err := p.store.Apply(identity, batch); err != nil {
			return err
		}
		p.sys.send(p.actor, applied{batch[len(batch)-1].Seq})
	}
}

// gather adds what comes within gatherTime to a batch.
func gather(batch []persistence.Entry, in <-chan persistence.Entry) []persistence.Entry {
	t := time.NewTimer(gatherTime)
	defer t.Stop()
	for len(batch) < maxBatch {
		select {
		case e := <-in:
			batch = append(batch, e)
		case <-t.C:
			return batch
		}
	}
	return batch
}
