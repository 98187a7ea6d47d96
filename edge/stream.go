package edge

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

var (
	eventStream = []string{"text/event-stream"}
	noCache     = []string{"no-cache"}
	noBuffering = []string{"no"}
)

// errGone ends a stream whose reader is not there any more.
var errGone = subjects.Errorf(subjects.KindCancelled, "the client went away")

// events writes reply messages as server-sent events, each at once.
type events struct {
	x     *exchange
	flush *http.ResponseController
	buf   []byte
}

var eventBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// stream makes a streaming call. The status waits for the first message: until
// then a failure is an ordinary error answer.
func (x *exchange) stream(ctx context.Context, m *subjects.Msg) {
	pooled := eventBuffers.Get().(*[]byte)
	ev := &events{x: x, flush: http.NewResponseController(x.w), buf: (*pooled)[:0]}
	defer func() {
		if cap(ev.buf) <= 64<<10 {
			*pooled = ev.buf
			eventBuffers.Put(pooled)
		}
	}()
	err := x.s.t.Stream(ctx, m, ev.message)
	if err == nil && x.status == 0 {
		err = subjects.Errorf(subjects.KindProvider, "the answer ended before its first event")
	}
	if errors.Is(err, errGone) { // nobody is there to be told
		return
	}
	if err != nil {
		x.fail(subjects.AsError(err))
		return
	}
	_ = ev.write([]byte("[DONE]")) // a client that leaves now has it all
}

func (ev *events) message(m *subjects.Msg) error {
	if ev.x.status == 0 {
		ev.start(m.Header)
	}
	if len(m.Data) == 0 {
		return nil
	}
	return ev.write(m.Data)
}

func (ev *events) start(h subjects.Header) {
	x := ev.x
	x.replyHeaders(h)
	out := x.w.Header()
	out["Content-Type"], out["Cache-Control"], out["X-Accel-Buffering"] = eventStream, noCache, noBuffering
	x.status, x.streaming = http.StatusOK, true
	x.w.WriteHeader(http.StatusOK)
}

func (ev *events) write(data []byte) error {
	ev.buf = appendEvent(ev.buf[:0], data)
	n, err := ev.x.w.Write(ev.buf)
	ev.x.bytes += int64(n)
	if err != nil {
		return errGone
	}
	if ev.flush.Flush() != nil {
		return errGone
	}
	return nil
}

// appendEvent writes one event. JSON may have line ends between its tokens,
// where they mean nothing; an event's data may not.
func appendEvent(b, data []byte) []byte {
	b = append(b, "data: "...)
	at := len(b)
	b = append(b, data...)
	if bytes.IndexByte(data, '\n') >= 0 || bytes.IndexByte(data, '\r') >= 0 {
		for i := at; i < len(b); i++ {
			if b[i] == '\n' || b[i] == '\r' {
				b[i] = ' '
			}
		}
	}
	return append(b, "\n\n"...)
}

// writeStall is how long a client may read nothing of its answer, at least; it
// is cut off before twice that.
const writeStall = time.Minute

// stallListener cuts off clients that stop reading: there is no bound on how
// long an answer may take, and a full socket would hold its call for ever.
type stallListener struct{ net.Listener }

// Accept implements net.Listener.
func (l stallListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &stallConn{Conn: c}, nil
}

// stallConn keeps a deadline before every write, moved once a minute. One
// goroutine writes at a time, as net/http does.
type stallConn struct {
	net.Conn
	until time.Time
}

// Write implements net.Conn.
func (c *stallConn) Write(p []byte) (int, error) {
	if now := time.Now(); c.until.Sub(now) < writeStall {
		c.until = now.Add(2 * writeStall)
		if err := c.SetWriteDeadline(c.until); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}
