// Package edge is Sluice's HTTP edge: HTTP in, NATS out. It is a client like
// any other and keeps no state: it reads a request, publishes it through a
// subjects.Transport, and writes the reply in the form that the route's API has.
//
// Every route, its errors and its headers are listed in contract §6 and §8.
// What a web page must not do to a loopback port is in guard.go.
package edge

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// Defaults of Options.
const (
	// DefaultMaxBody is what fits under the NATS server's max_payload of 8 MiB
	// together with the headers.
	DefaultMaxBody = 8<<20 - 64<<10
	// DefaultBodyTimeout is how long a request body may take to arrive.
	DefaultBodyTimeout = 30 * time.Second
	// DefaultCallTimeout bounds a call whose caller names no deadline.
	DefaultCallTimeout = subjects.MaxTimeoutMs * time.Millisecond
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 120 * time.Second
	maxHeader     = 64 << 10
	queryTimeout  = 10 * time.Second
	// grace is how much longer than the call's own deadline the edge waits, so
	// that the node's answer, which knows more, comes first.
	grace = 5 * time.Second
)

// Options are the edge's settings. The zero value serves with the defaults.
type Options struct {
	// Logger gets panics (error), net/http's complaints (warn) and the access log
	// (debug). Nil logs nothing. No prompt, query string or credential is logged.
	Logger *slog.Logger
	// MaxBody bounds a request body, packed and unpacked, in bytes; 0 = DefaultMaxBody.
	MaxBody int64
	// AllowedHosts are further names of this server in Host and Origin: "name" or
	// "name:port". Loopback names, the address that was connected to, and the
	// names containers have for their host are always allowed.
	AllowedHosts []string
	// Token, when set, is what every request must carry as its API key
	// (Authorization: Bearer, or x-api-key). The names in Host are then not
	// checked: a page that does not know the token can do nothing.
	Token string
	// ProcessClass gives the workload class of a process on POST /api/complete
	// where X-LLM-Class is not set. Nil, and any answer that is no class, means
	// interactive.
	ProcessClass func(process string) string
	// Version is shown by GET / and in "not built yet" answers.
	Version string
	// BodyTimeout is how long a body may take to arrive, plus one second for
	// each 64 KiB of it; 0 = DefaultBodyTimeout.
	BodyTimeout time.Duration
	// CallTimeout bounds a call whose caller names no deadline: the node's own
	// default is shorter, this one counts when the node is gone; 0 = DefaultCallTimeout.
	CallTimeout time.Duration
}

func (o *Options) setDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.BodyTimeout <= 0 {
		o.BodyTimeout = DefaultBodyTimeout
	}
	if o.CallTimeout <= 0 {
		o.CallTimeout = DefaultCallTimeout
	}
}

// Server is the edge. Safe for concurrent use.
type Server struct {
	t      subjects.Transport
	o      Options
	hosts  map[string]bool
	routes map[string]route
	http   *http.Server
}

// New makes an edge that carries its calls over t.
func New(t subjects.Transport, o Options) *Server {
	o.setDefaults()
	s := &Server{t: t, o: o, hosts: hostSet(o.AllowedHosts)}
	s.routes = s.table()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{
		Handler:           s.Handler(),
		Protocols:         protocols,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
		// OPTIONS * gets the same guard and answer as any other request.
		DisableGeneralOptionsHandler: true,
	}
	return s
}

// Handler is the edge as a handler, for a server of the embedder's own. Serve
// adds what a handler cannot have: timeouts, a header bound, and an end for
// clients that stop reading.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// Serve answers on l, HTTP/1.1 and HTTP/2 without TLS, until Shutdown, and then
// returns nil. It closes l. Several listeners may be served at once.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(stallListener{l})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown takes no new connection and waits for the running calls. When ctx
// ends first, the rest is cut off, which cancels their calls, and ctx's error
// is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
	}
	return err
}
