package edge_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/edge"
	"github.com/sluice-llm/sluice/subjects"
)

// hanging keeps every call until its context ends: a request, a stream before
// its first event (events 0) or after some.
func hanging(events int) (f *fake, arrived, ended chan struct{}) {
	arrived, ended = make(chan struct{}, 1), make(chan struct{}, 1)
	wait := func(ctx context.Context) error {
		arrived <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return subjects.AsError(ctx.Err())
	}
	return &fake{
		request: func(ctx context.Context, _ *subjects.Msg) (*subjects.Msg, error) { return nil, wait(ctx) },
		stream: func(ctx context.Context, _ *subjects.Msg, yield func(*subjects.Msg) error) error {
			for range events {
				if err := yield(&subjects.Msg{Data: []byte(`{"n":1}`)}); err != nil {
					return err
				}
			}
			return wait(ctx)
		},
	}, arrived, ended
}

func TestHangUpCancels(t *testing.T) {
	pad := strings.Repeat("x", 300_000)
	for _, tt := range []struct {
		name, path, body string
		events           int
	}{
		{"waiting", "/v1/chat/completions", chatBody, 0},
		{"waiting, native", "/api/complete", nativeBody, 0},
		{"waiting, long body", "/api/complete", `{"pad":"` + pad + `"}`, 0},
		{"before the first event", "/v1/chat/completions", chatStream, 0},
		{"after the first event", "/v1/chat/completions", chatStream, 1},
		{"after many", "/api/complete", `{"stream":true}`, 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, arrived, ended := hanging(tt.events)
			r := start(t, f, edge.Options{})
			c := dial(t, r.addr)
			if _, err := io.WriteString(c, rawPost(tt.path, tt.body)); err != nil {
				t.Fatal(err)
			}
			within(t, arrived, "the call")
			if tt.events > 0 {
				readEvents(t, c, tt.events)
			}
			c.Close()
			within(t, ended, "the call's end")
		})
		t.Run(tt.name+", HTTP/2", func(t *testing.T) {
			f, arrived, ended := hanging(tt.events)
			r := start(t, f, edge.Options{})
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() {
				defer close(done)
				req, _ := http.NewRequestWithContext(ctx, "POST", r.url+tt.path, strings.NewReader(tt.body))
				if resp, err := h2cClient(t).Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			within(t, arrived, "the call")
			cancel()
			within(t, ended, "the call's end")
			within(t, done, "the client")
		})
	}
}

func readEvents(t *testing.T, c net.Conn, n int) {
	t.Helper()
	lines := bufio.NewScanner(c)
	for n > 0 && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			n--
		}
	}
	if n > 0 {
		t.Fatalf("%d events are missing: %v", n, lines.Err())
	}
}

// TestHangUpWhileWriting has the write fail, and the transport get that error.
func TestHangUpWhileWriting(t *testing.T) {
	ended := make(chan error, 1)
	f := &fake{stream: func(_ context.Context, _ *subjects.Msg, yield func(*subjects.Msg) error) error {
		for { // without looking at the context: the write alone must end it
			if err := yield(&subjects.Msg{Data: []byte(`{"n":1}`)}); err != nil {
				ended <- err
				return err
			}
		}
	}}
	r := start(t, f, edge.Options{})
	c := dial(t, r.addr)
	if _, err := io.WriteString(c, rawPost("/api/complete", `{"stream":true}`)); err != nil {
		t.Fatal(err)
	}
	readEvents(t, c, 3)
	c.Close()
	if err := within(t, ended, "the write to fail"); subjects.KindOf(err) != subjects.KindCancelled {
		t.Errorf("got %v", err)
	}
}

// TestHangUpWhileSending has nothing reach the node.
func TestHangUpWhileSending(t *testing.T) {
	log, out := logged(-4)
	f, _, _ := hanging(0)
	r := start(t, f, edge.Options{Logger: log})
	c := dial(t, r.addr)
	if _, err := io.WriteString(c, "POST /api/complete HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if f.count() != 0 {
		t.Errorf("half a body was sent on: %s", out)
	}
}
