package edge_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/edge"
	"github.com/sluice-llm/sluice/subjects"
)

const streamEvents = 200

var (
	benchHeader = subjects.Header{"Llm-Provider": {"mock"}, "Llm-Model": {"mock-1"}, "Llm-Call-Id": {"XmE0d50dL7OqPKmBZP01vU"}, "Llm-Cached": {"false"}}
	benchChunk  = []byte(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"mock-1","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}`)
	benchReply  = []byte(chatReply)
	benchBody   = `{"model":"auto","messages":[{"role":"user","content":"` + strings.Repeat("a prompt of one KiB ", 50) + `"}]}`
	benchStream = `{"stream":true,` + benchBody[1:]
	benchLong   = `{"model":"auto","messages":[{"role":"user","content":"` + strings.Repeat("a prompt of 256 KiB ", 13107) + `"}]}`
)

// instant answers without doing anything: what is measured is the edge.
type instant struct{}

func (instant) Request(context.Context, *subjects.Msg) (*subjects.Msg, error) {
	return &subjects.Msg{Header: benchHeader, Data: benchReply}, nil
}

func (instant) Stream(_ context.Context, _ *subjects.Msg, yield func(*subjects.Msg) error) error {
	m := &subjects.Msg{Header: benchHeader, Data: benchChunk}
	for range streamEvents {
		if err := yield(m); err != nil {
			return err
		}
	}
	return nil
}

// bare is the least that a net/http handler must do for the same exchange.
func bare(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if !bytes.HasPrefix(body, []byte(`{"stream"`)) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(benchReply)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	event := append(append([]byte("data: "), benchChunk...), "\n\n"...)
	for range streamEvents {
		_, _ = w.Write(event)
		w.(http.Flusher).Flush()
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

func handlers() map[string]http.Handler {
	return map[string]http.Handler{"bare": http.HandlerFunc(bare), "edge": edge.New(instant{}, edge.Options{}).Handler()}
}

// nowhere is a ResponseWriter that costs as little as one can.
type nowhere struct{ h http.Header }

func (n *nowhere) Header() http.Header         { return n.h }
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n *nowhere) WriteHeader(int)             {}
func (n *nowhere) Flush()                      {}

// BenchmarkHandler is the edge's own work, without net/http's.
func BenchmarkHandler(b *testing.B) {
	for _, c := range []struct{ name, body string }{{"1KiB", benchBody}, {"256KiB", benchLong}, {"stream200", benchStream}} {
		for _, name := range []string{"bare", "edge"} {
			h := handlers()[name]
			b.Run(c.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://127.0.0.1:12435/v1/chat/completions", nil)
				if err != nil {
					b.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Authorization", "Bearer sk-any")
				req.Header.Set("X-Llm-Process", "bench")
				report := reportCPU(b)
				for b.Loop() {
					req.Body, req.ContentLength = io.NopCloser(strings.NewReader(c.body)), int64(len(c.body))
					h.ServeHTTP(&nowhere{http.Header{}}, req)
				}
				report()
			})
		}
	}
}

// BenchmarkLoopback is one connection's whole exchange through the kernel.
func BenchmarkLoopback(b *testing.B) {
	for _, c := range []struct{ name, body string }{{"1KiB", benchBody}, {"stream200", benchStream}} {
		for _, name := range []string{"bare", "edge"} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				loopback(b, name, rawPost("/v1/chat/completions", c.body))
			})
		}
	}
}

func loopback(b *testing.B, name, send string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var stop func()
	if name == "edge" {
		s := edge.New(instant{}, edge.Options{})
		go func() { _ = s.Serve(l) }()
		stop = func() { _ = s.Shutdown(context.Background()) }
	} else {
		s := &http.Server{Handler: http.HandlerFunc(bare), ReadHeaderTimeout: 1 << 40}
		go func() { _ = s.Serve(l) }()
		stop = func() { _ = s.Close() }
	}
	defer stop()
	c := dial(b, l.Addr().String())
	defer c.Close()
	in := bufio.NewReaderSize(c, 64<<10)
	report := reportCPU(b)
	for b.Loop() {
		if _, err := io.WriteString(c, send); err != nil {
			b.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
	report()
}
