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
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

const (
	// MaxBody bounds a whole answer, unpacked, in bytes.
	MaxBody = 64 << 20
	// maxErrorBody bounds what is read of an error's body.
	maxErrorBody = 256 << 10

	dialTimeout = 10 * time.Second
	idleConns   = 512
)

// Options are what a test or an embedder may put in place of the usual.
type Options struct {
	// Transport carries the requests; nil = a pool of this client's own.
	Transport http.RoundTripper
	// Now is the clock for dates in Retry-After; nil = time.Now.
	Now func() time.Time
	// Version is the program's, for the user agent; "" = "dev".
	Version string
}

// Client speaks to one provider's API. Safe for concurrent use.
type Client struct {
	http  *http.Client
	now   func() time.Time
	agent string
}

// New makes a client with its own pool of connections.
func New(o Options) *Client {
	if o.Transport == nil {
		o.Transport = transport()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Client{now: o.Now, agent: "sluice/" + cmp.Or(o.Version, "dev"), http: &http.Client{
		Transport: o.Transport,
		// An API has no reason to redirect a POST, and a key must not follow one
		// to another host: the redirect itself is the answer, and an error.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func transport() *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: dialTimeout,
		// A connection that died in silence is noticed while a stream waits on it.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// CloseIdle closes the connections that nobody uses.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// Request is one POST of a JSON body.
type Request struct {
	URL    string
	Header http.Header // shared: it is cloned
	Body   []byte
	// Secret is taken out of every text that comes back.
	Secret string
	// Key names where the key comes from, for the error when it is refused.
	Key string
	// Model is the id that was asked for, for the error when it is not found.
	Model string
}

// Reply is a whole answer of status 2xx.
type Reply struct {
	Header    http.Header
	Body      []byte
	RateLimit map[string]string
}

// Do sends the request and reads the whole answer. Any other status than 2xx
// is an error, and so is a JSON answer that is an error inside.
func (c *Client) Do(ctx context.Context, r *Request) (*Reply, error) {
	resp, err := c.send(ctx, r, "application/json")
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
	reply := &Reply{Header: resp.Header, Body: body, RateLimit: rateLimit(resp.Header)}
	if e := c.checkBody(r, resp, body); e != nil {
		e.RateLimit = reply.RateLimit
		return nil, e
	}
	return reply, nil
}

// send makes the exchange up to the headers; a status other than 2xx is
// returned as the classified error.
func (c *Client) send(ctx context.Context, r *Request, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return nil, subjects.Errorf(subjects.KindProviderUnavailable, "the base URL is not usable").WithCause(err)
	}
	for k, v := range r.Header {
		req.Header[k] = v
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", c.agent)
	if accept == eventStream {
		// Compression makes servers hold events back.
		req.Header.Set("Accept-Encoding", "identity")
	}
	resp, err := c.http.Do(req)
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
