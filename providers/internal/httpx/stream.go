package httpx

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"time"
	"unsafe"

	"github.com/tmaxmax/go-sse"

	"github.com/sluice-llm/sluice/subjects"
)

const (
	eventStream = "text/event-stream"
	ndjson      = "application/x-ndjson"

	// MaxEvent bounds one event of a stream, in bytes.
	MaxEvent = 16 << 20

	// After the last event the rest of the body is read so that the connection
	// can serve again: at most so much, for at most so long.
	drainBytes = 64 << 10
	drainTime  = time.Second
)

// ErrDone ends a stream from inside its callback: the last event has come.
var ErrDone = errors.New("the stream is at its end")

// StreamReply is what came beside the events.
type StreamReply struct {
	RateLimit map[string]string
	// Whole is set when the provider answered with one JSON object instead of a
	// stream; there were no events then.
	Whole *Reply
}

// Each takes one event: the name that an event: line gave it, or "", and its
// data, which is valid until it returns.
type Each func(name string, data []byte) error

// Stream sends the request and hands every event to each, in order and from the
// calling goroutine. It ends at the end of the body, when each returns ErrDone,
// or with each's error.
//
// idle bounds the silence once the first byte has come (comments count as a
// sign of life); the time until then is the context's business. 0 = no bound.
func (c *Client) Stream(ctx context.Context, r *Request, idle time.Duration, each Each) (*StreamReply, error) {
	return c.Open(ctx, r, idle, func(*StreamReply) {}, each)
}

// Open is Stream that tells opened of the answer's headers before its first
// event.
func (c *Client) Open(ctx context.Context, r *Request, idle time.Duration, opened func(*StreamReply), each Each) (*StreamReply, error) {
	if ctx.Err() != nil {
		return &StreamReply{}, ended(ctx)
	}
	// The body is drained after the caller's context may have ended, so that
	// context reaches the exchange by hand.
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(ended(ctx)) })
	defer stop()
	resp, err := c.send(own, r, c.events)
	if err != nil {
		cancel(nil)
		return &StreamReply{}, err
	}
	out := &StreamReply{RateLimit: rateLimit(resp.Header, r.Secret)}
	drained := false
	defer func() {
		if !drained {
			resp.Body.Close()
			cancel(nil)
		}
	}()
	if isWhole(resp, c.format) {
		out.Whole, err = c.reply(own, r, resp)
		return out, err
	}
	opened(out)
	body := &idleReader{r: resp.Body, idle: idle, silent: func() { cancel(silence(r, idle)) }}
	if c.format == NDJSON {
		err = lines(body, each)
	} else {
		err = events(body, each)
	}
	body.stop()
	switch {
	case errors.Is(err, ErrDone):
		drained = true
		stop()
		go drain(resp.Body, cancel)
		return out, nil
	case err != nil && body.failed != nil:
		return out, transportError(own, r, body.failed)
	case errors.Is(err, bufio.ErrTooLong):
		return out, subjects.Errorf(subjects.KindProvider, "an event of the stream is above %d MiB", MaxEvent>>20)
	}
	return out, err
}

// isWhole reports whether the answer is one JSON text or a page, and no stream
// of events. It goes by the first byte: content types are not to be relied on. A
// stream of lines looks like JSON and is only told from a page.
func isWhole(resp *http.Response, f Format) bool {
	const sniff = 512
	r := bufio.NewReaderSize(resp.Body, sniff)
	resp.Body = struct {
		io.Reader
		io.Closer
	}{r, resp.Body}
	first, err := r.Peek(1)
	return err == nil && (first[0] == '<' || f == SSE && (first[0] == '{' || first[0] == '['))
}

func silence(r *Request, idle time.Duration) *subjects.Error {
	return subjects.Errorf(subjects.KindTimeout, "%s sent nothing for %s in the middle of a stream", r.host(), idle)
}

// events reads an event stream and hands on each event that has data, and the
// error that stands in place of one at the end.
func events(body io.Reader, each Each) error {
	end := &bare{r: body}
	for ev, err := range sse.Read(&gather{r: end}, &sse.ReadConfig{MaxEventSize: MaxEvent}) {
		if err != nil {
			return err
		}
		if ev.Data == "" {
			continue
		}
		if err := each(ev.Type, unsafe.Slice(unsafe.StringData(ev.Data), len(ev.Data))); err != nil {
			return err
		}
	}
	if failure := end.failure(); failure != nil {
		return each("", failure)
	}
	return nil
}

func drain(body io.ReadCloser, cancel context.CancelCauseFunc) {
	t := time.AfterFunc(drainTime, func() { cancel(nil) })
	_, _ = io.CopyN(io.Discard, body, drainBytes)
	t.Stop()
	body.Close()
	cancel(nil)
}

// idleReader calls silent when a read after the first one waits longer than
// idle. At a clean end it adds the blank line that dispatches a last event
// which lacks it; a cut one is no JSON and is noticed as such.
type idleReader struct {
	r      io.Reader
	idle   time.Duration
	silent func()
	failed error // what ended the body, if not its end

	timer *time.Timer
	alive bool
	tail  string
	ended bool
}

func (b *idleReader) Read(p []byte) (int, error) {
	if b.ended {
		n := copy(p, b.tail)
		if b.tail = b.tail[n:]; n == 0 {
			return 0, io.EOF
		}
		return n, nil
	}
	b.watch()
	n, err := b.r.Read(p)
	b.stop()
	b.alive = b.alive || n > 0
	switch {
	case err == io.EOF: //nolint:errorlint // io.Reader's contract
		b.ended, b.tail = true, "\n\n"
		return n, nil
	case err != nil:
		b.failed = err
	}
	return n, err
}

func (b *idleReader) watch() {
	switch {
	case b.idle <= 0 || !b.alive:
	case b.timer == nil:
		b.timer = time.AfterFunc(b.idle, b.silent)
	default:
		b.timer.Reset(b.idle)
	}
}

func (b *idleReader) stop() {
	if b.timer != nil {
		b.timer.Stop()
	}
}
