package edge

import (
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

const (
	// firstRead is how much is set aside for a body before any of it has come.
	firstRead = 64 << 10
	// slowest is the rate, in bytes a second, that a body must keep beyond BodyTimeout.
	slowest = 64 << 10
)

var errTooLarge = errors.New("body too large")

// limitBody gives the body a time to arrive. readBody lifts it.
func (x *exchange) limitBody(now time.Time) {
	n := x.r.ContentLength
	if n < 0 || n > x.s.o.MaxBody {
		n = x.s.o.MaxBody
	}
	d := x.s.o.BodyTimeout + time.Duration(n/slowest)*time.Second
	_ = http.NewResponseController(x.w).SetReadDeadline(now.Add(d)) // not a real connection: nothing to bound
}

// readBody reads the whole body, within the bound. The bytes are the call's to
// keep: a node in this process may read them after the answer is given.
//
// Only at the body's end does net/http begin to watch for the client's leaving,
// so nothing else may happen before.
func (x *exchange) readBody() ([]byte, *subjects.Error) {
	h := x.r.Header
	if e := checkType(h.Get("Content-Type")); e != nil {
		return nil, e
	}
	packed, e := gzipped(h.Get("Content-Encoding"))
	if e != nil {
		return nil, e
	}
	size, limit := x.r.ContentLength, x.s.o.MaxBody
	if size > limit {
		return nil, x.tooLarge(size)
	}
	body, err := read(x.r.Body, size, limit, packed)
	if err != nil {
		return nil, x.badBody(err)
	}
	if size != 0 {
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Time{})
	}
	if len(body) == 0 {
		return nil, subjects.Errorf(subjects.KindValidation, "body: empty; this route takes a JSON request in it")
	}
	return body, nil
}

func read(body io.Reader, size, limit int64, packed bool) ([]byte, error) {
	if !packed {
		return readAll(body, size, limit)
	}
	z, ok := unpackers.Get().(*gzip.Reader)
	if !ok {
		z = new(gzip.Reader)
	}
	defer unpackers.Put(z)
	in := &bounded{r: body, left: limit}
	if err := z.Reset(in); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil // nothing packed is nothing
		}
		return nil, unpackError(err)
	}
	b, err := readAll(z, -1, limit)
	return b, unpackError(err)
}

var unpackers sync.Pool

// errPacked marks a body that is not the gzip it says it is.
var errPacked = errors.New("not valid gzip")

func unpackError(err error) error {
	var corrupt flate.CorruptInputError
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, &corrupt) {
		return errPacked
	}
	return err
}

// readAll reads at most limit bytes and one more, to know that there are more.
// size is what the client said, -1 when it said nothing; the memory for it is
// set aside as it comes and not as it is promised.
func readAll(r io.Reader, size, limit int64) ([]byte, error) {
	first := size + 1 // the end shows without growing
	if size < 0 {
		first = 4 << 10
	}
	buf := make([]byte, 0, min(first, firstRead))
	for {
		if len(buf) == cap(buf) {
			more := min(16*int64(cap(buf)), limit+1)
			if size >= 0 {
				more = min(more, size+1)
			}
			grown := make([]byte, len(buf), max(more, int64(len(buf))+1))
			copy(grown, buf)
			buf = grown
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > limit {
			return nil, errTooLarge
		}
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// bounded fails when more than left bytes are read through it.
type bounded struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

func checkType(contentType string) *subjects.Error {
	if contentType == "" || contentType == typeJSON {
		return nil
	}
	t := strings.ToLower(contentType)
	if strings.HasPrefix(t, "multipart/") { // curl -d says urlencoded, whatever it sends
		return refusal(http.StatusUnsupportedMediaType,
			"content-type: %q is a form; send JSON with Content-Type: application/json", clip(contentType))
	}
	return nil
}

func gzipped(encoding string) (bool, *subjects.Error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return false, nil
	case "gzip", "x-gzip":
		return true, nil
	}
	return false, refusal(http.StatusUnsupportedMediaType,
		"content-encoding: %q is not known here; send the body plain or with gzip", clip(encoding))
}

func (x *exchange) badBody(err error) *subjects.Error {
	switch {
	case errors.Is(err, errTooLarge):
		return x.tooLarge(-1)
	case errors.Is(err, errPacked), errors.Is(err, io.ErrUnexpectedEOF) && x.r.Header.Get("Content-Encoding") != "":
		return subjects.Errorf(subjects.KindValidation, "body: it is not the gzip that Content-Encoding says")
	case errors.Is(err, os.ErrDeadlineExceeded):
		x.closeAfter()
		return refusal(http.StatusRequestTimeout, "body: it did not arrive in time")
	}
	x.closeAfter()
	return subjects.Errorf(subjects.KindValidation, "body: it broke off before its end")
}

// tooLarge refuses a body; size -1 is one that was not read to its end.
func (x *exchange) tooLarge(size int64) *subjects.Error {
	x.drain()
	x.closeAfter()
	const way = "shorten the prompt or send images by URL"
	limit := x.s.o.MaxBody
	e := subjects.Errorf(subjects.KindValidation, "request: %d bytes, above the %d bytes of body that are allowed here; %s", size, limit, way)
	if size < 0 {
		e = subjects.Errorf(subjects.KindValidation, "request: more than the %d bytes of body that are allowed here; %s", limit, way)
	}
	e.Code = subjects.CodeTooLarge
	return e
}

const (
	maxDrain  = 64 << 20
	drainTime = 5 * time.Second
)

// drain reads on for a while what a client is sending: one that writes its whole
// body before it reads the answer would see a broken connection in its place. A
// client that waits for 100-continue has not begun.
func (x *exchange) drain() {
	if x.r.Header.Get("Expect") != "" {
		return
	}
	_ = http.NewResponseController(x.w).SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, x.r.Body, maxDrain)
}

// closeAfter ends the connection after the answer: what is left of the body is
// not worth reading. HTTP/2 ends the stream by itself.
func (x *exchange) closeAfter() {
	if x.r.ProtoMajor < 2 {
		x.w.Header()["Connection"] = []string{"close"}
	}
}
