// Package h1 is an http.RoundTripper for plain HTTP/1.1 upstreams: local
// runners, proxies, anything behind an http:// base URL. The exchange runs in
// the caller's goroutine, where net/http keeps two goroutines for each
// connection and hands every request and answer between them; that costs about
// as much as the exchange itself (see the benchmark). Messages are written and
// parsed by net/http's own code.
//
// States of a connection: dialled → writing → reading the head → the body in
// the caller's hands → idle or closed. It goes back to the idle ones only when
// the body was read to its end and neither side asked to close; in every other
// case (cancel, error, a body closed early) it is closed, which tells the
// upstream to stop.
//
// A request is written once. An upstream that takes it and closes without a word
// may have done its work: whether it is asked again is the call's decision, which
// counts it.
//
// Requests that need more (https, a configured proxy) go to the fallback.
package h1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Transport is the RoundTripper. Set its fields before first use; then it is
// safe for concurrent use.
type Transport struct {
	// Fallback carries what is not plain HTTP. Its Proxy decides what goes
	// through a proxy.
	Fallback *http.Transport
	// MaxIdle bounds the idle connections per host; 0 = none are kept.
	MaxIdle int
	// IdleTimeout is how long an idle connection is kept.
	IdleTimeout time.Duration
	// DialTimeout bounds the making of a connection.
	DialTimeout time.Duration

	mu   sync.Mutex // guards idle
	idle map[string][]*conn
}

var _ http.RoundTripper = (*Transport)(nil)

const (
	readBuffer = 4 << 10
	// maxInterim bounds the 1xx answers before the real one.
	maxInterim = 10
)

type conn struct {
	net.Conn
	br    *bufio.Reader
	bw    *bufio.Writer
	since time.Time // idle since
}

// past is a deadline that ends every read and write at once.
var past = time.Unix(1, 0)

// RoundTrip implements http.RoundTripper. The request's context ends the
// exchange at any point, also while the body is read.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !t.plain(req) {
		return t.Fallback.RoundTrip(req)
	}
	c, err := t.take(req.Context(), address(req.URL))
	if err != nil {
		closeBody(req)
		return nil, err
	}
	return t.exchange(c, req)
}

func (t *Transport) plain(req *http.Request) bool {
	if req.URL.Scheme != "http" || req.Header.Get("Upgrade") != "" {
		return false
	}
	if t.Fallback.Proxy == nil {
		return true
	}
	proxy, err := t.Fallback.Proxy(req)
	return err == nil && proxy == nil
}

func address(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), "80")
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// take returns an idle connection that is still whole, or makes one.
func (t *Transport) take(ctx context.Context, addr string) (*conn, error) {
	for {
		c := t.pop(addr)
		if c == nil {
			break
		}
		if time.Since(c.since) < t.IdleTimeout && alive(c.Conn) {
			return c, nil
		}
		_ = c.Close()
	}
	d := net.Dialer{Timeout: t.DialTimeout, KeepAlive: 30 * time.Second}
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: nc, br: bufio.NewReaderSize(nc, readBuffer), bw: bufio.NewWriter(nc)}, nil
}

func (t *Transport) pop(addr string) *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.idle[addr]
	if len(list) == 0 {
		return nil
	}
	c := list[len(list)-1]
	list[len(list)-1] = nil
	t.idle[addr] = list[:len(list)-1]
	return c
}

func (t *Transport) put(addr string, c *conn) {
	c.since = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.idle[addr]
	if len(list) >= t.MaxIdle {
		_ = c.Close()
		return
	}
	if t.idle == nil {
		t.idle = map[string][]*conn{}
	}
	for len(list) > 0 && time.Since(list[0].since) > t.IdleTimeout { // the oldest are first
		_ = list[0].Close()
		list = list[1:]
	}
	t.idle[addr] = append(list, c)
}

// CloseIdleConnections closes the connections that nobody uses.
func (t *Transport) CloseIdleConnections() {
	t.Fallback.CloseIdleConnections()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, list := range t.idle {
		for _, c := range list {
			_ = c.Close()
		}
	}
	t.idle = nil
}

// errNoAnswer marks a failure before the first byte of an answer.
var errNoAnswer = errors.New("the connection ended before an answer came")

// exchange writes the request and reads the answer's head. On an error the
// connection is closed.
func (t *Transport) exchange(c *conn, req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })
	resp, err := c.talk(req)
	if err != nil {
		stop()
		_ = c.Close()
		if cause := ctx.Err(); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	resp.Body = &body{ReadCloser: resp.Body, t: t, c: c, ctx: ctx, stop: stop, addr: address(req.URL), keep: !resp.Close && !req.Close}
	return resp, nil
}

func (c *conn) talk(req *http.Request) (*http.Response, error) {
	writeErr := req.Write(c.bw)
	if writeErr == nil {
		writeErr = c.bw.Flush()
	}
	// An upstream may refuse a body before it has read it: its answer, if there
	// is one, says more than the failed write.
	if _, err := c.br.Peek(1); err != nil {
		if writeErr != nil {
			err = writeErr
		}
		return nil, errors.Join(errNoAnswer, err)
	}
	for range maxInterim {
		resp, err := http.ReadResponse(c.br, req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			resp.Close = resp.Close || writeErr != nil
			return resp, nil
		}
	}
	return nil, errors.New("too many interim answers")
}

// body is an answer's body; its end gives the connection back.
type body struct {
	io.ReadCloser
	t    *Transport
	c    *conn
	ctx  context.Context
	stop func() bool
	addr string
	keep bool
	done bool
}

// Read implements io.Reader. A context that ended shows as its error.
func (b *body) Read(p []byte) (int, error) {
	if b.done {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		b.end(b.keep)
	default:
		if cause := b.ctx.Err(); cause != nil {
			err = cause
		}
	}
	return n, err
}

// Close implements io.Closer. A body that was not read to its end takes its
// connection with it.
func (b *body) Close() error {
	b.end(false)
	return nil
}

func (b *body) end(keep bool) {
	if b.done {
		return
	}
	b.done = true
	if b.stop() && keep && b.c.br.Buffered() == 0 {
		b.t.put(b.addr, b.c)
		return
	}
	_ = b.c.Close()
}
