package actors

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-llm/sluice/subjects"
)

// testStream is an embedded server with the usage stream, and the acks on it.
func testStream(t testing.TB) (*acks, jetstream.JetStream) {
	t.Helper()
	srv, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{
		Name: subjects.UsageStream, Subjects: []string{subjects.UsageFilter}, MaxMsgSize: 10_000, Duplicates: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	a := newAcks(nc)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { a.run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	return a, js
}

func usageMsg(id string, size int) *nats.Msg {
	return &nats.Msg{
		Subject: subjects.UsageSubject("mock", "p"), Data: make([]byte, size),
		Header: nats.Header{jetstream.MsgIDHeader: {subjects.UsageMsgID(id)}},
	}
}

// ackOf waits for one answer and holds that there is no second.
func ackOf(t *testing.T, a *acks, m *nats.Msg) acked {
	t.Helper()
	to := make(chan acked, 1)
	a.publish(m, to)
	select {
	case got := <-to:
		return got
	case <-time.After(20 * time.Second):
		t.Fatal("no answer")
		return acked{}
	}
}

func TestAcks(t *testing.T) {
	a, js := testStream(t)
	for _, c := range []struct {
		name string
		msg  *nats.Msg
		want acked
	}{
		{"first", usageMsg("a", 10), acked{seq: 1}},
		{"second", usageMsg("b", 10), acked{seq: 2}},
		{"known", usageMsg("a", 10), acked{seq: 1, duplicate: true}},
	} {
		if got := ackOf(t, a, c.msg); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	var refused *jetstream.APIError
	if got := ackOf(t, a, usageMsg("c", 20_000)); !errors.As(got.err, &refused) || refused.ErrorCode == 0 {
		t.Errorf("above the stream's bound: %+v, want the server's own error", got)
	}
	if err := js.DeleteStream(context.Background(), subjects.UsageStream); err != nil {
		t.Fatal(err)
	}
	if got := ackOf(t, a, usageMsg("d", 10)); !errors.Is(got.err, jetstream.ErrNoStreamResponse) {
		t.Errorf("without the stream: %+v", got)
	}
	a.conn.Close()
	if got := ackOf(t, a, usageMsg("e", 10)); !errors.Is(got.err, nats.ErrConnectionClosed) {
		t.Errorf("on a closed connection: %+v", got)
	}
	if len(a.waiting) != 0 {
		t.Errorf("%d publishes still wait", len(a.waiting))
	}
}

// TestAcksGiveUp: a subscriber in the stream's place takes the record and says
// nothing; the wait ends by time, by the loss of the connection, or by the end.
func TestAcksGiveUp(t *testing.T) {
	a, js := testStream(t)
	if err := js.DeleteStream(context.Background(), subjects.UsageStream); err != nil {
		t.Fatal(err)
	}
	if _, err := a.conn.Subscribe(subjects.UsageFilter, func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	to := make(chan acked, 1)
	a.publish(usageMsg("a", 10), to)
	a.sweep(time.Now().Add(-time.Second))
	if len(to) != 0 {
		t.Fatal("given up early")
	}
	a.sweep(time.Now().Add(ackTimeout))
	if got := <-to; !errors.Is(got.err, errNoAck) {
		t.Errorf("overdue: %+v", got)
	}
	a.publish(usageMsg("b", 10), to)
	if err := a.conn.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	if got := <-to; !errors.Is(got.err, nats.ErrDisconnected) {
		t.Errorf("connection lost: %+v", got)
	}
	if err := a.conn.FlushTimeout(10 * time.Second); err != nil { // connected again
		t.Fatal(err)
	}
	a.publish(usageMsg("c", 10), to)
	a.close()
	if got := <-to; !errors.Is(got.err, errStopped) {
		t.Errorf("closed: %+v", got)
	}
	if got := ackOf(t, a, usageMsg("d", 10)); !errors.Is(got.err, errStopped) {
		t.Errorf("after the end: %+v", got)
	}
}

func TestReadAck(t *testing.T) {
	for _, text := range []string{"", "x", "{}", `{"error":7}`, `{"stream":"S"}`, "[]", `{"seq":"1"`} {
		if got := readAck(&nats.Msg{Data: []byte(text)}); got.err == nil && got.seq == 0 {
			t.Errorf("%q: %+v, want an error", text, got)
		}
	}
}

// TestFreshRecords: only the record whose JSON came back is given, once.
func TestFreshRecords(t *testing.T) {
	fresh := &freshRecords{}
	add := func(seq uint64, rec *subjects.UsageRecord) []byte {
		data := rec.AppendJSON(nil)
		fresh.put(seq, &pendingRecord{rec: rec, data: data})
		return data
	}
	a, bad := record("a"), record("b")
	bad.Model = "\xff"
	dataA, dataBad := add(1, a), add(2, bad)
	for _, c := range []struct {
		name string
		seq  uint64
		data []byte
		want *subjects.UsageRecord
	}{
		{"another record at its sequence", 1, dataBad, nil},
		{"a sequence that nobody wrote", 3, dataA, nil},
		{"itself", 1, dataA, a},
		{"again", 1, dataA, nil},
		{"a name that is not UTF-8", 2, dataBad, nil},
	} {
		if got := fresh.take(c.seq, c.data); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	first := add(5, a)
	add(5+uint64(len(fresh)), record("c"))
	if fresh.take(5, first) != nil {
		t.Error("an overwritten record came back")
	}
}

// BenchmarkUsageWrite is one record, published and acknowledged.
func BenchmarkUsageWrite(b *testing.B) {
	a, _ := testStream(b)
	u := &usageLog{js: a}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			rec := record(subjects.NewCallID())
			p := u.write(rec)
			if ack := p.acked(); ack.err != nil {
				b.Error(ack.err)
				return
			}
		}
	})
}
