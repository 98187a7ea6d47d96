package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/internal/fakeopenai"
)

// streamChunks is the number of content pieces of a streamed answer.
const streamChunks = 20

// answerText makes an answer in one piece about 1.5 KB long.
var answerText = strings.Repeat("All the answers are the same length here. ", 23)

// upstreamCommand sets the latency, or asks for the counts.
type upstreamCommand struct {
	LatencyMs  *int64 `json:"latencyMs,omitempty"`
	ResetPeaks bool   `json:"resetPeaks,omitempty"`
}

// upstreamAnswer has the counts by class marker, which is the target's name.
type upstreamAnswer struct {
	Classes map[string]fakeopenai.Counts `json:"classes"`
}

// upstreamMain is the fake upstream: `bench upstream`.
func upstreamMain(_ []string, in io.Reader, out io.Writer) error {
	var latency atomic.Int64
	s := fakeopenai.New(fakeopenai.WithContent(answerText), fakeopenai.WithModels("bench-model"),
		fakeopenai.WithScript(func(int, *fakeopenai.Request) fakeopenai.Behaviour {
			return fakeopenai.Behaviour{Latency: time.Duration(latency.Load()), Chunks: streamChunks}
		}))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = s.Serve(ln) }()
	defer s.Close()
	return serveCommands(in, out, ln.Addr().String(), func(c upstreamCommand) (upstreamAnswer, error) {
		if c.LatencyMs != nil {
			latency.Store(*c.LatencyMs * int64(time.Millisecond))
		}
		if c.ResetPeaks {
			s.ResetPeaks()
		}
		return upstreamAnswer{Classes: s.Snapshot().Classes}, nil
	})
}

// floorMain is the least that a Go proxy on net/http costs: `bench floor`. It is
// tuned as far as httputil.ReverseProxy goes: connections are kept, buffers are
// reused, nothing is decompressed. Event streams are flushed at once by
// ReverseProxy itself; a FlushInterval of -1 would only add a flush to the rest.
func floorMain(args []string, in io.Reader, out io.Writer) error {
	fs := flag.NewFlagSet("bench floor", flag.ContinueOnError)
	upstream := fs.String("upstream", "", "address of the upstream")
	if err := fs.Parse(args); err != nil {
		return err
	}
	target := &url.URL{Scheme: "http", Host: *upstream}
	proxy := &httputil.ReverseProxy{
		Rewrite:    func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:  &http.Transport{MaxIdleConnsPerHost: 8192, DisableCompression: true},
		BufferPool: &bufferPool{},
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: wholeBody(proxy)}
	go func() { _ = srv.Serve(ln) }()
	defer srv.Close()
	return serveCommands(in, out, ln.Addr().String(), func(struct{}) (struct{}, error) {
		return struct{}{}, errors.New("the floor takes no commands")
	})
}

// wholeBody reads the request before it is proxied. Left to itself ReverseProxy
// breaks about one in a hundred streams that are answered at once: the first
// flush makes the server close the request's body, while the Transport may still
// be looking for its end and then drops the connection.
func wholeBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := make([]byte, max(0, r.ContentLength))
		if _, err := io.ReadFull(r.Body, b); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
		next.ServeHTTP(w, r)
	})
}

type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

func (b *bufferPool) Put(buf []byte) { b.pool.Put(&buf) }

// The subjects of raw NATS request/reply.
const (
	echoPlain  = "bench.echo.plain"
	echoStream = "bench.echo.stream"
)

// echoMain answers on the node's NATS server with a reply of the usual size,
// whole or in pieces: `bench echo`. It is what NATS alone costs.
func echoMain(args []string, in io.Reader, out io.Writer) error {
	fs := flag.NewFlagSet("bench echo", flag.ContinueOnError)
	addr := fs.String("nats", "", "URL of the NATS server, with user and password")
	if err := fs.Parse(args); err != nil {
		return err
	}
	nc, err := nats.Connect(*addr, nats.Name("bench echo"))
	if err != nil {
		return err
	}
	defer nc.Close()
	whole := []byte(`{"object":"chat.completion","content":"` + answerText + strings.Repeat(" ", 460) + `","total_tokens":1}`)
	piece := []byte(`{"object":"chat.completion.chunk","content":"` + strings.Repeat("x", 230) + `"}`)
	_, err1 := nc.Subscribe(echoPlain, func(m *nats.Msg) { _ = m.Respond(whole) })
	_, err2 := nc.Subscribe(echoStream, func(m *nats.Msg) {
		for range streamChunks + 3 { // a role, a finish and a usage chunk, as the upstream sends
			_ = m.Respond(piece)
		}
		_ = m.Respond(nil)
	})
	if err := errors.Join(err1, err2, nc.Flush()); err != nil {
		return err
	}
	return serveCommands(in, out, *addr, func(struct{}) (struct{}, error) {
		return struct{}{}, errors.New("the echo takes no commands")
	})
}
