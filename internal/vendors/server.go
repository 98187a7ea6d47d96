package vendors

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// maxWaiting is how many requests a test may leave unread on Heard and Gone.
const maxWaiting = 1024

// Server is one fake on loopback. A request that its Voice refuses fails the test.
type Server struct {
	// URL is where it listens, without a path.
	URL string

	t       testing.TB
	voice   Voice
	heard   chan *Seen
	gone    chan struct{}
	asked   atomic.Int64 // requests of any kind
	lenient atomic.Bool

	mu      sync.Mutex
	scripts []Script
	calls   []*Seen
}

// New starts a server on loopback; it ends with the test. End the client's
// connections first (a later t.Cleanup): the server waits for requests that are
// under way.
func New(t testing.TB, v Voice) *Server {
	t.Helper()
	s := newServer(t, v)
	h := httptest.NewServer(http.HandlerFunc(s.serve))
	s.URL = h.URL
	t.Cleanup(h.Close)
	return s
}

func newServer(t testing.TB, v Voice) *Server {
	return &Server{t: t, voice: v, heard: make(chan *Seen, maxWaiting), gone: make(chan struct{}, maxWaiting)}
}

// NewPipe starts a server that is reached through the transport that comes with
// it, over pipes in memory and no socket: for testing/synctest, where time is not
// real. It ends with the test.
func NewPipe(t testing.TB, v Voice) (*Server, http.RoundTripper) {
	t.Helper()
	s := newServer(t, v)
	s.URL = "http://fake.test"
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	h := &http.Server{Handler: http.HandlerFunc(s.serve)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.Serve(l) //nolint:errcheck // it ends with ErrServerClosed
	}()
	transport := &http.Transport{DialContext: l.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		h.Close()
		<-ended
	})
	return s, transport
}

// pipeListener is the meeting point of pipes.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// MayRefuse says that requests which the API would refuse are part of the test:
// they are answered with status 400 and do not fail it.
func (s *Server) MayRefuse() { s.lenient.Store(true) }

// Next says what to do with the next requests, one script for each. When they
// are used up, Hello is answered.
func (s *Server) Next(scripts ...Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts = append(s.scripts, scripts...)
}

// Calls returns the requests for answers so far (probes left out).
func (s *Server) Calls() []*Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Seen(nil), s.calls...)
}

// Requests counts the requests so far, of any kind.
func (s *Server) Requests() int { return int(s.asked.Load()) }

// Heard gives each request when it has been read, before its answer begins.
func (s *Server) Heard() <-chan *Seen { return s.heard }

// Gone gives one value for each client that went away while the server held its
// answer back.
func (s *Server) Gone() <-chan struct{} { return s.gone }

// take notes a request and returns the script for it.
func (s *Server) take(seen *Seen) Script {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, seen)
	s.heard <- seen
	if len(s.scripts) == 0 {
		return Script{}
	}
	next := s.scripts[0]
	s.scripts = s.scripts[1:]
	return next
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	if p, ok := s.voice.(Prober); ok && r.Method == http.MethodGet {
		body, ok := p.Probe(r)
		if !ok {
			s.t.Errorf("the API has no GET %s", r.URL.Path)
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(body) //nolint:errcheck // the client may have gone
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away while it asked
	}
	seen, err := s.voice.Hear(r, body)
	if err != nil && s.lenient.Load() {
		_, header, answer, _ := s.voice.Fault(&Seen{}, BadRequest)
		maps.Copy(w.Header(), header)
		w.WriteHeader(http.StatusBadRequest)
		w.Write(answer) //nolint:errcheck // the client may have gone
		return
	}
	if err != nil {
		s.t.Errorf("the API would refuse this request: %v\n%s %s\n%.2000s", err, r.Method, r.URL, body)
		http.Error(w, "refused", http.StatusBadRequest)
		return
	}
	seen.Method, seen.Path, seen.Query, seen.Header, seen.Body = r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Clone(), body
	p := &play{s: s, w: w, r: r, seen: seen, script: s.take(seen)}
	p.run()
}

// play is the answer to one request.
type play struct {
	s      *Server
	w      http.ResponseWriter
	r      *http.Request
	seen   *Seen
	script Script
	zip    *gzip.Writer
}

func (p *play) run() {
	sc := &p.script
	if !p.wait(sc.Gate) {
		return
	}
	if sc.Break == BreakHold && sc.After == 0 {
		p.untilGone()
		return
	}
	maps.Copy(p.w.Header(), p.s.voice.Traits().Header)
	switch {
	case sc.Fault != NoFault && sc.Break != BreakError:
		p.fault()
	case p.seen.Stream && !sc.WholeForStream:
		p.stream()
	default:
		p.whole()
	}
}

// wait waits for the channel; false = the client went away.
func (p *play) wait(ch <-chan struct{}) bool {
	if ch == nil {
		return true
	}
	select {
	case <-ch:
		return true
	case <-p.r.Context().Done():
		p.s.gone <- struct{}{}
		return false
	}
}

// untilGone waits until the client has gone, and says so.
func (p *play) untilGone() {
	<-p.r.Context().Done()
	p.s.gone <- struct{}{}
}

func (p *play) fault() {
	status, header, body, ok := p.s.voice.Fault(p.seen, p.script.Fault)
	if !ok {
		status, header, body, ok = between(p.script.Fault)
	}
	if !ok {
		p.s.t.Errorf("this API has no answer for the fault %q", p.script.Fault)
		return
	}
	if p.seen.Secret != "" {
		body = bytes.ReplaceAll(body, []byte(KeyMark), []byte(p.seen.Secret))
	}
	h := p.w.Header()
	h.Set("Content-Type", "application/json")
	maps.Copy(h, header)
	if p.script.Inside {
		status = http.StatusOK
	}
	p.w.WriteHeader(status)
	p.write(body)
}

// between is what stands between an API and its clients.
func between(f Fault) (status int, header http.Header, body []byte, ok bool) {
	page := func(title string) []byte {
		return []byte("<!DOCTYPE html>\r\n<html>\r\n<head><title>" + title + "</title></head>\r\n<body><center><h1>" + title + "</h1></center></body>\r\n</html>\r\n")
	}
	html := http.Header{"Content-Type": {"text/html"}}
	switch f {
	case HTMLPage:
		return http.StatusBadGateway, html, page("502 Bad Gateway"), true
	case PlainText:
		return http.StatusServiceUnavailable, http.Header{"Content-Type": {"text/plain"}}, []byte("upstream connect error or disconnect/reset before headers\n"), true
	case NoPath:
		return http.StatusNotFound, html, page("404 Not Found"), true
	case Redirect:
		return http.StatusTemporaryRedirect, http.Header{"Location": {"http://127.0.0.1:1/elsewhere"}, "Content-Type": {"text/html"}}, page("307 Temporary Redirect"), true
	}
	return 0, nil, nil, false
}

// whole answers with one body.
func (p *play) whole() {
	body := p.script.Body
	if body == nil {
		body = p.s.voice.Whole(p.seen, p.script.answer(p.seen))
	}
	h := p.w.Header()
	h.Set("Content-Type", p.s.voice.ContentType(false))
	if p.script.Gzip {
		p.pack()
		p.write(body)
		p.end()
		return
	}
	part := body
	switch {
	case p.script.Break == Unbroken:
	case p.script.After > 0:
		part = body[:len(body)/2]
	default:
		part = nil
	}
	if p.script.Break == BreakEnd {
		body = part
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	p.write(part)
	p.end()
}

// stream answers with events.
func (p *play) stream() {
	p.w.Header().Set("Content-Type", p.s.voice.ContentType(true))
	if p.script.Gzip {
		p.pack()
	}
	if p.script.Pause != nil {
		p.flush()
	}
	if !p.wait(p.script.Pause) {
		return
	}
	if p.script.Body != nil {
		p.write(p.script.Body)
		return
	}
	events := p.s.voice.Events(p.seen, p.script.answer(p.seen))
	if p.script.Break != Unbroken {
		events = events[:min(p.script.After, len(events))]
	}
	if p.script.Break == BreakError {
		ev := p.s.voice.InStream(p.script.Fault)
		if ev == nil {
			p.s.t.Errorf("this API has no event for the fault %q", p.script.Fault)
		}
		events = append(events, bytes.ReplaceAll(ev, []byte(KeyMark), []byte(p.seen.Secret)))
	}
	for _, ev := range frame(events, p.script.Framing, p.s.voice.Traits().Lines) {
		p.write(ev)
	}
	p.end()
}

// end breaks off as the script says.
func (p *play) end() {
	switch p.script.Break {
	case BreakCut:
		p.flush()
		panic(http.ErrAbortHandler)
	case BreakReset:
		p.flush()
		p.reset()
	case BreakHold:
		p.flush()
		p.untilGone()
	case BreakEnd, BreakError, Unbroken:
	}
	if p.zip != nil {
		p.zip.Close() //nolint:errcheck // the client may have gone
	}
}

func (p *play) reset() {
	conn, _, err := p.w.(http.Hijacker).Hijack()
	if err != nil {
		p.s.t.Error(err)
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0) //nolint:errcheck // then it is closed without a reset
	}
	conn.Close()
}

func (p *play) pack() {
	p.w.Header().Set("Content-Encoding", "gzip")
	p.zip = gzip.NewWriter(p.w)
}

// write sends b and flushes; in pieces where the script says so. Errors mean that
// the client has gone.
func (p *play) write(b []byte) {
	size := p.script.Split
	if size <= 0 {
		size = max(len(b), 1)
	}
	for len(b) > 0 {
		n := min(size, len(b))
		if p.zip != nil {
			p.zip.Write(b[:n]) //nolint:errcheck // see above
		} else {
			p.w.Write(b[:n]) //nolint:errcheck // see above
		}
		p.flush()
		b = b[n:]
	}
}

func (p *play) flush() {
	if p.zip != nil {
		p.zip.Flush() //nolint:errcheck // see write
	}
	if f, ok := p.w.(http.Flusher); ok {
		f.Flush()
	}
}
