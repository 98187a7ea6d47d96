// Package httpx is the HTTP exchange that providers share: one request out, one
// bounded answer or stream of events in, and every failure classified into the
// contract's kinds. It keeps no state but its connections.
package httpx

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/providers/internal/h1"
	"github.com/sluice-llm/sluice/subjects"
)

const (
	// MaxBody bounds a whole answer, unpacked, in bytes.
	MaxBody = 64 << 20
	// maxErrorBody bounds what is read of an error's body.
	maxErrorBody = 256 << 10

	jsonType = "application/json"

	dialTimeout = 10 * time.Second
	idleConns   = 512
	idleTime    = 90 * time.Second
)

// Options are what a provider sets, and what a test or an embedder may put in
// place of the usual.
type Options struct {
	// Header is sent with every request, beside this package's own.
	Header http.Header
	// Transport carries the requests; nil = a pool of this client's own.
	Transport http.RoundTripper
	// Now is the clock for dates in Retry-After; nil = time.Now.
	Now func() time.Time
	// Version is the program's, for the user agent; "" = "dev".
	Version string
	// Refine is what one provider's API knows of its own errors: the kind of a
	// failure, before the general words are looked at; false = no opinion.
	Refine func(*Failure) (subjects.Kind, bool)
	// Format is the form of its streams.
	Format Format
}

// Format is the form of a stream of events.
type Format int

// The forms of streams.
const (
	SSE    Format = iota // server-sent events
	NDJSON               // one JSON text a line
)

// Client speaks to one provider's API. Safe for concurrent use.
type Client struct {
	transport http.RoundTripper
	now       func() time.Time
	refine    func(*Failure) (subjects.Kind, bool)
	format    Format
	// The headers of the two kinds of request, shared by all of them: a
	// RoundTripper does not change what it is given.
	whole, events http.Header
}

// New makes a client with its own pool of connections.
func New(o Options) *Client {
	c := &Client{transport: o.Transport, now: o.Now, refine: o.Refine, format: o.Format}
	if c.transport == nil {
		c.transport = transport()
	}
	if c.now == nil {
		c.now = time.Now
	}
	c.whole = o.Header.Clone()
	if c.whole == nil {
		c.whole = http.Header{}
	}
	c.whole.Set("Content-Type", jsonType)
	c.whole.Set("User-Agent", "sluice/"+cmp.Or(o.Version, "dev"))
	c.events = c.whole.Clone()
	c.whole.Set("Accept", jsonType)
	if c.format == SSE {
		c.events.Set("Accept", eventStream)
	} else {
		c.events.Set("Accept", ndjson)
	}
	// Compression makes servers hold events back.
	c.events.Set("Accept-Encoding", "identity")
	return c
}

func transport() *h1.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	return &h1.Transport{MaxIdle: idleConns, IdleTimeout: idleTime, DialTimeout: dialTimeout, Fallback: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     idleTime,
		TLSHandshakeTimeout: dialTimeout,
		// A connection that died in silence is noticed while a stream waits on it.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}}
}

// CloseIdle closes the connections that nobody uses.
func (c *Client) CloseIdle() {
	if t, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Request is one POST of a JSON body, or a GET where Method says so.
type Request struct {
	Method string // "" = POST
	URL    *url.URL
	Body   []byte
	// Header is sent beside the client's own; it wins over it.
	Header http.Header
	// Secret is taken out of every text that comes back.
	Secret string
	// Key names where the key comes from, for the error when it is refused.
	Key string
	// Model is the id that was asked for, for the error when it is not found.
	Model string
}

// host names the API in errors: never the whole URL.
func (r *Request) host() string { return r.URL.Host }

// Reply is a whole answer of status 2xx.
type Reply struct {
	Header    http.Header
	Body      []byte
	RateLimit map[string]string
}

// Do sends the request and reads the whole answer. Any other status than 2xx
// is an error, and so is a JSON answer that is an error inside.
func (c *Client) Do(ctx context.Context, r *Request) (*Reply, error) {
	if ctx.Err() != nil { // the transport may still take it
		return nil, ended(ctx)
	}
	resp, err := c.send(ctx, r, c.whole)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return c.reply(ctx, r, resp)
}

func (c *Client) reply(ctx context.Context, r *Request, resp *http.Response) (*Reply, error) {
	body, err := readBody(resp, MaxBody)
	if err != nil {
		return nil, transportError(ctx, r, err)
	}
	reply := &Reply{Header: resp.Header, Body: body, RateLimit: rateLimit(resp.Header, r.Secret)}
	if e := c.checkBody(r, resp, body); e != nil {
		e.RateLimit = reply.RateLimit
		return nil, e
	}
	return reply, nil
}

// send makes the exchange up to the headers; a status other than 2xx is
// returned as the classified error. It asks the transport itself and not an
// http.Client: an API has no reason to redirect a POST, and a key must not
// follow one to another host, so a redirect is an answer, and an error.
func (c *Client) send(ctx context.Context, r *Request, h http.Header) (*http.Response, error) {
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.Body)), nil }
	if len(r.Header) > 0 {
		h = h.Clone()
		maps.Copy(h, r.Header)
	}
	req := (&http.Request{
		Method: cmp.Or(r.Method, http.MethodPost), URL: r.URL, Host: r.URL.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(r.Body)), GetBody: open,
	}).WithContext(ctx)
	req.Body, _ = open()
	if len(r.Body) == 0 {
		req.Body, req.GetBody = http.NoBody, nil
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, transportError(ctx, r, err)
	}
	if err := gunzip(resp); err != nil {
		resp.Body.Close()
		return nil, transportError(ctx, r, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	body, _ := readBody(resp, maxErrorBody)
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	return nil, c.classify(r, resp, body)
}

// gunzip unpacks an answer that is packed although nobody asked for it.
func gunzip(resp *http.Response) error {
	if !strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		return nil
	}
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		return err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{z, resp.Body}
	resp.ContentLength = -1
	return nil
}

var errTooLarge = errors.New("the answer is too large")

// readBody reads at most limit bytes; a longer body is an error, beside its
// beginning.
func readBody(resp *http.Response, limit int64) ([]byte, error) {
	var buf bytes.Buffer
	if n := resp.ContentLength; n > 0 && n <= limit {
		buf.Grow(int(n) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(io.LimitReader(resp.Body, limit+1))
	if err == nil && int64(buf.Len()) > limit {
		err = errTooLarge
	}
	return buf.Bytes(), err
}
