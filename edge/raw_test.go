package edge_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/edge"
	"github.com/sluice-llm/sluice/subjects"
)

func newRecorder() *httptest.ResponseRecorder { return httptest.NewRecorder() }

// raw sends bytes on a connection of its own and gives what came until its end.
func raw(t testing.TB, addr, send string) <-chan string {
	t.Helper()
	c := dial(t, addr)
	if _, err := io.WriteString(c, send); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(c)
		got <- string(b)
	}()
	return got
}

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestRawRequests(t *testing.T) {
	f := replying(chatReply, nil)
	f.stream = streaming(nil, nil, `{"n":1}`, `{"n":2}`).stream
	r := start(t, f, edge.Options{})
	const post, tail = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n", "Connection: close\r\n"
	for _, tt := range []struct {
		name, send string
		want       []string
	}{
		{"HTTP/1.0", "POST /v1/chat/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}", []string{"HTTP/1.0 200 OK", chatReply}},
		{
			"HTTP/1.0 stream", "POST /v1/chat/completions HTTP/1.0\r\nContent-Length: 15\r\n\r\n{\"stream\":true}",
			[]string{"HTTP/1.0 200 OK", "\r\n\r\ndata: {\"n\":1}\n\ndata: {\"n\":2}\n\ndata: [DONE]\n\n"},
		},
		{"pipelined", post + "Content-Length: 2\r\n\r\n{}GET /nope HTTP/1.1\r\nHost: localhost\r\n" + tail + "\r\n", []string{"HTTP/1.1 200 OK", chatReply + "HTTP/1.1 404 Not Found"}},
		{"chunked", post + tail + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", []string{"HTTP/1.1 200 OK"}},
		{"bad chunk", post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", []string{"HTTP/1.1 400 Bad Request", "broke off"}},
		{"bad host", "GET / HTTP/1.1\r\nHost: evil.example\r\n" + tail + "\r\n", []string{"HTTP/1.1 403 Forbidden", "is not a name of this server"}},
		{"no host", "GET / HTTP/1.1\r\n\r\n", []string{"HTTP/1.1 400 Bad Request"}},
		{"two hosts", "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", []string{"HTTP/1.1 400 Bad Request"}},
		{"absolute form", "GET http://localhost/nope HTTP/1.1\r\nHost: evil\r\n" + tail + "\r\n", []string{"HTTP/1.1 404"}},
		{"absolute form of another", "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n" + tail + "\r\n", []string{"HTTP/1.1 403"}},
		{"CONNECT", "CONNECT localhost:1 HTTP/1.1\r\nHost: localhost:1\r\n" + tail + "\r\n", []string{"HTTP/1.1 404"}},
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n" + tail + "\r\n", []string{"HTTP/1.1 404"}},
		{"OPTIONS * of another", "OPTIONS * HTTP/1.1\r\nHost: evil\r\n" + tail + "\r\n", []string{"HTTP/1.1 403"}},
		{"upgrade", "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: close, Upgrade\r\n\r\n", []string{"HTTP/1.1 200 OK"}},
		{"smuggled length", post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", []string{"HTTP/1.1 400"}},
		{"header with NUL", "GET / HTTP/1.1\r\nHost: localhost\r\nX-LLM-Task: a\x00b\r\n\r\n", []string{"HTTP/1.1 400"}},
		{"nonsense", "\x16\x03\x01\x00nonsense\r\n\r\n", []string{"HTTP/1.1 400"}},
		{"header bomb", "GET / HTTP/1.1\r\nHost: localhost\r\nX-A: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", []string{"HTTP/1.1 431"}},
		{"expect", post + tail + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}", []string{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK"}},
		{"expect too large", post + "Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n", []string{"HTTP/1.1 400 Bad Request\r\n", "Connection: close"}},
		{"too large", post + "Content-Length: 99999999\r\n\r\n{", []string{"HTTP/1.1 400 Bad Request\r\n", "Connection: close", "99999999 bytes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := within(t, raw(t, r.addr, tt.send), "the end of the connection")
			if !strings.HasPrefix(got, tt.want[0]) {
				t.Errorf("got %.400q", got)
			}
			for _, w := range tt.want[1:] {
				if !strings.Contains(got, w) {
					t.Errorf("no %q in %.800q", w, got)
				}
			}
		})
	}
}

// TestHalfRequests never reach the node, and leave nothing behind (goleak).
func TestHalfRequests(t *testing.T) {
	f := replying(chatReply, nil)
	r := start(t, f, edge.Options{})
	for _, send := range []string{
		"POST /v1/chat", "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"model\":",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"mo",
	} {
		c := dial(t, r.addr)
		if _, err := io.WriteString(c, send); err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(c) // the server ends it
	}
	if f.count() != 0 {
		t.Errorf("half a request was sent on %d times", f.count())
	}
}

func TestKeepAlive(t *testing.T) {
	r := start(t, replying(chatReply, nil), edge.Options{MaxBody: 1000})
	c := dial(t, r.addr)
	buf := make([]byte, 64<<10)
	for _, send := range []string{
		"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
		"POST /nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
	} {
		if _, err := io.WriteString(c, send); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(buf)
		if err != nil || strings.Contains(string(buf[:n]), "Connection: close") {
			t.Fatalf("%q: %v %q", send, err, buf[:n])
		}
	}
}

func h2cClient(t testing.TB) *http.Client {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

func TestHTTP2WithoutTLS(t *testing.T) {
	f := replying(chatReply, nil)
	f.stream = streaming(callError(subjects.KindProvider, "cut"), nil, `{"n":1}`).stream
	r := start(t, f, edge.Options{MaxBody: 100_000})
	r.client = h2cClient(t)
	if a := r.post(t, "/v1/chat/completions", chatBody); a.status != 200 || a.body != chatReply {
		t.Errorf("plain: %d %s", a.status, a.body)
	}
	if a := r.post(t, "/v1/chat/completions", chatStream); a.status != 200 || !strings.HasPrefix(a.body, "data: {\"n\":1}\n\ndata: {\"error\":") {
		t.Errorf("stream: %d %s", a.status, a.body)
	}
	if a := r.post(t, "/v1/chat/completions", strings.Repeat("x", 200_000)); a.status != 400 || a.errorOf(t)["code"] != "request_too_large" {
		t.Errorf("too large: %d %s", a.status, a.body)
	}
	if a := r.post(t, "/v1/chat/completions", chatBody, "Host", "evil.example"); a.status != 403 {
		t.Errorf("bad authority: %d", a.status)
	}
}

// TestSlowBodyByHTTP2 ends its stream, and the connection serves on.
func TestSlowBodyByHTTP2(t *testing.T) {
	f := replying(chatReply, nil)
	r := start(t, f, edge.Options{BodyTimeout: 20 * time.Millisecond})
	r.client = h2cClient(t)
	body, never := io.Pipe()
	defer never.Close()
	req, err := http.NewRequestWithContext(context.Background(), "POST", r.url+"/v1/chat/completions", body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = 10
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestTimeout || f.count() != 0 {
		t.Errorf("got %d", resp.StatusCode)
	}
	if a := r.post(t, "/v1/chat/completions", chatBody); a.status != 200 {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
}

// TestShutdownFinishesRunningCalls, by HTTP/1.1 and HTTP/2.
func TestShutdownFinishesRunningCalls(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			arrived, goOn := make(chan struct{}), make(chan struct{})
			f := &fake{request: func(context.Context, *subjects.Msg) (*subjects.Msg, error) {
				close(arrived)
				<-goOn
				return &subjects.Msg{Data: []byte(chatReply)}, nil
			}}
			r := start(t, f, edge.Options{})
			if version == "HTTP/2.0" {
				r.client = h2cClient(t)
			}
			got := make(chan *answer, 1)
			go func() { got <- r.post(t, "/v1/chat/completions", chatBody) }()
			within(t, arrived, "the call")
			done := make(chan error, 1)
			go func() { done <- r.server.Shutdown(context.Background()) }()
			refused(t, r.addr)
			close(goOn)
			if a := within(t, got, "the answer"); a.status != 200 || a.body != chatReply {
				t.Errorf("got %d %s", a.status, a.body)
			}
			if err := within(t, done, "Shutdown"); err != nil {
				t.Error(err)
			}
		})
	}
}

// refused waits until nobody listens on addr.
func refused(t *testing.T, addr string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		c.Close()
	}
	t.Fatal("the port is still open")
}

func TestShutdownThatMayNotWaitCancels(t *testing.T) {
	arrived, cancelled := make(chan struct{}), make(chan struct{})
	f := &fake{request: func(ctx context.Context, _ *subjects.Msg) (*subjects.Msg, error) {
		close(arrived)
		<-ctx.Done()
		close(cancelled)
		return nil, ctx.Err()
	}}
	s := edge.New(f, edge.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	raw(t, l.Addr().String(), "POST /api/complete HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
	within(t, arrived, "the call")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(ctx); err == nil {
		t.Error("no error though a call was cut off")
	}
	within(t, cancelled, "the call's end")
	if err := within(t, served, "Serve"); err != nil {
		t.Error(err)
	}
}

// rawPost is a POST request as bytes.
func rawPost(path, body string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}
