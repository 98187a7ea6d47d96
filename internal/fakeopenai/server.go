package fakeopenai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// DefaultContent is the text of every answer that no one has set another for.
const DefaultContent = "The quick brown fox jumps over the lazy dog. This is a fake answer."

// maxBody bounds a request's body, in bytes. A longer one is refused with 413.
const maxBody = 32 << 20

// Request is what the server read of one request.
type Request struct {
	// N is its number, from 1 in order of arrival.
	N int
	// Model and Class say whose call it is (see the package comment).
	Model, Class string
	// Stream and IncludeUsage are the body's stream and stream_options.include_usage.
	Stream, IncludeUsage bool
	// Choices is the body's n, at least 1.
	Choices int
	// PromptBytes is the length of the messages' JSON text.
	PromptBytes int
	// Path and Header are the HTTP request's.
	Path   string
	Header http.Header
	// Body is the whole body. Inside a Script it is only valid until the script
	// returns; in Recorded and Gate.Held it is a copy.
	Body []byte
}

// Option sets up a Server.
type Option func(*Server)

// WithScript chooses the behaviour of every request; without it every request
// gets the zero Behaviour.
func WithScript(f Script) Option { return func(s *Server) { s.script = f } }

// WithGate holds every request at g before its behaviour begins.
func WithGate(g *Gate) Option { return func(s *Server) { s.gate = g } }

// WithContent sets the text of the answers whose behaviour names none.
func WithContent(text string) Option { return func(s *Server) { s.content = text } }

// WithModels sets what GET /models lists. Calls for other models are answered
// all the same. Without it the list is "fake-model".
func WithModels(ids ...string) Option { return func(s *Server) { s.models = ids } }

// WithAPIKey refuses with 401 every request that does not carry
// "Authorization: Bearer <key>". Without it any key, and none, will do.
func WithAPIKey(key string) Option { return func(s *Server) { s.key = "Bearer " + key } }

// WithRecord keeps the first n requests for Recorded.
func WithRecord(n int) Option { return func(s *Server) { s.recordMax = n } }

// Server is the fake upstream. It is safe for concurrent use.
type Server struct {
	led       *ledger
	script    Script
	gate      *Gate
	content   string
	models    []string
	key       string
	recordMax int
	created   int64

	mu       sync.Mutex
	recorded []*Request
	http     *http.Server
	addr     string
}

// New makes a server that does not listen yet: use Start in tests, Serve in
// programs, or Handler in a server of your own.
func New(opts ...Option) *Server {
	s := &Server{led: newLedger(), content: DefaultContent, models: []string{"fake-model"}, created: time.Now().Unix()}
	for _, o := range opts {
		o(s)
	}
	return s
}

// Start listens on a free loopback port until the test ends, and returns s. At
// the end every connection is closed, so a request that hangs ends as well.
func (s *Server) Start(t testing.TB) *Server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("fakeopenai: %v", err)
	}
	done := make(chan error, 1)
	srv := s.newHTTPServer(ln.Addr().String())
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("fakeopenai: serve: %v", err)
		}
	})
	return s
}

// Serve answers on ln until Close is called; it then returns
// http.ErrServerClosed. A server serves one listener.
func (s *Server) Serve(ln net.Listener) error {
	return s.newHTTPServer(ln.Addr().String()).Serve(ln)
}

// Close stops Serve and closes every connection. It does not wait for handlers.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http == nil {
		return nil
	}
	return s.http.Close()
}

// URL returns http://host:port of a server that was started; empty before.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr == "" {
		return ""
	}
	return "http://" + s.addr
}

// BaseURL returns the API root of a server that was started: URL + "/v1".
func (s *Server) BaseURL() string {
	if u := s.URL(); u != "" {
		return u + "/v1"
	}
	return ""
}

// Recorded returns copies of the first requests, as many as WithRecord said, in
// order of arrival.
func (s *Server) Recorded() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Request(nil), s.recorded...)
}

// Handler returns the HTTP handler. Served by another server than Start's or
// Serve's it cannot look up closed connections (see the package comment).
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.route) }

type connKey struct{}

func (s *Server) newHTTPServer(addr string) *http.Server {
	srv := &http.Server{
		Handler:     s.Handler(),
		ErrorLog:    log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.http, s.addr = srv, addr
	return srv
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	chat := strings.HasSuffix(r.URL.Path, "/chat/completions")
	switch {
	case chat && r.Method == http.MethodPost:
		s.chat(w, r)
	case !s.authorized(r):
		b := InvalidAPIKey()
		writeJSON(w, b.Status, []byte(b.Body))
	case strings.HasSuffix(r.URL.Path, "/models") && r.Method == http.MethodGet:
		writeJSON(w, http.StatusOK, appendModels(nil, s.models, s.created))
	case chat:
		writeError(w, http.StatusMethodNotAllowed, "Only POST requests are accepted.")
	default:
		writeError(w, http.StatusNotFound, "Invalid URL ("+r.Method+" "+r.URL.Path+")")
	}
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// chat reads one call, books it, and plays its behaviour.
func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	buf := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buf)
	buf.Reset()
	if _, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		writeError(w, http.StatusRequestEntityTooLarge, "The request body could not be read: "+err.Error())
		return
	}
	req, ok := parse(buf.Bytes())
	req.Path, req.Header = r.URL.Path, r.Header
	if h := r.Header.Get(ClassHeader); h != "" {
		req.Class = h
	}
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	p := player{s: s, w: w, ctx: r.Context(), req: &req}
	req.N = s.led.enter(&p.call, req.Model, req.Class, conn)
	if s.recordMax > 0 {
		s.record(&req)
	}
	if !s.authorized(r) {
		p.play(InvalidAPIKey())
		return
	}
	if !ok {
		p.play(errorBehaviour(http.StatusBadRequest, "We could not parse the JSON body of your request.",
			"invalid_request_error", "", ""))
		return
	}
	var b Behaviour
	if s.script != nil {
		b = s.script(req.N, &req)
	}
	p.play(b)
}

func (s *Server) authorized(r *http.Request) bool {
	return s.key == "" || r.Header.Get("Authorization") == s.key
}

func (s *Server) record(req *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.recorded) < s.recordMax {
		s.recorded = append(s.recorded, req.clone())
	}
}

func (r *Request) clone() *Request {
	c := *r
	c.Body = bytes.Clone(r.Body)
	c.Header = r.Header.Clone()
	return &c
}

// String names the request in a test's message.
func (r *Request) String() string {
	return fmt.Sprintf("#%d model=%q class=%q stream=%t", r.N, r.Model, r.Class, r.Stream)
}

// parse takes out of a body what the server must know, in one pass.
func parse(body []byte) (Request, bool) {
	req := Request{Body: body, Choices: 1}
	if !gjson.ValidBytes(body) {
		return req, false
	}
	root := gjson.ParseBytes(body)
	root.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "model":
			req.Model = v.Str
		case "user":
			req.Class = v.Str
		case "stream":
			req.Stream = v.Bool()
		case "stream_options":
			req.IncludeUsage = v.Get("include_usage").Bool()
		case "n":
			req.Choices = max(1, min(int(v.Int()), 128))
		case "messages":
			req.PromptBytes = len(v.Raw)
		}
		return true
	})
	return req, root.IsObject() && req.PromptBytes > 0
}
