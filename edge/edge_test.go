package edge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/edge"
	"github.com/sluice-llm/sluice/subjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a Transport by two functions; it keeps what it was asked.
type fake struct {
	request func(ctx context.Context, m *subjects.Msg) (*subjects.Msg, error)
	stream  func(ctx context.Context, m *subjects.Msg, yield func(*subjects.Msg) error) error

	mu    sync.Mutex
	asked []*subjects.Msg
}

var _ subjects.Transport = (*fake)(nil)

func (f *fake) keep(m *subjects.Msg) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, m)
}

func (f *fake) Request(ctx context.Context, m *subjects.Msg) (*subjects.Msg, error) {
	f.keep(m)
	if f.request == nil {
		return nil, subjects.Errorf(subjects.KindProviderUnavailable, "the fake answers no request")
	}
	return f.request(ctx, m)
}

func (f *fake) Stream(ctx context.Context, m *subjects.Msg, yield func(*subjects.Msg) error) error {
	f.keep(m)
	if f.stream == nil {
		return subjects.Errorf(subjects.KindProviderUnavailable, "the fake answers no stream")
	}
	return f.stream(ctx, m, yield)
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

// last is the newest request; the test fails when there is none.
func (f *fake) last(t *testing.T) *subjects.Msg {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked) == 0 {
		t.Fatal("the transport was not asked")
	}
	return f.asked[len(f.asked)-1]
}

// replying answers every request with data and headers.
func replying(data string, header subjects.Header) *fake {
	return &fake{request: func(context.Context, *subjects.Msg) (*subjects.Msg, error) {
		return &subjects.Msg{Header: header, Data: []byte(data)}, nil
	}}
}

// failing answers everything with an error.
func failing(err error) *fake {
	return &fake{
		request: func(context.Context, *subjects.Msg) (*subjects.Msg, error) { return nil, err },
		stream:  func(context.Context, *subjects.Msg, func(*subjects.Msg) error) error { return err },
	}
}

// streaming yields the payloads, the first with the headers, and then ends with err.
func streaming(err error, header subjects.Header, payloads ...string) *fake {
	return &fake{stream: func(_ context.Context, _ *subjects.Msg, yield func(*subjects.Msg) error) error {
		for _, p := range payloads {
			if e := yield(&subjects.Msg{Header: header, Data: []byte(p)}); e != nil {
				return e
			}
			header = nil
		}
		return err
	}}
}

// running is an edge on a real port.
type running struct {
	url    string
	addr   string
	server *edge.Server
	client *http.Client
}

func start(t testing.TB, tr subjects.Transport, o edge.Options) *running {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := edge.New(tr, o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return &running{
		url: "http://" + l.Addr().String(), addr: l.Addr().String(), server: s,
		client: &http.Client{Transport: transport, Timeout: 30 * time.Second},
	}
}

// answer is a read response.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a *answer) json(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("not JSON: %v: %.300s", err, a.body)
	}
	return v
}

// errorOf is the error object of either JSON form.
func (a *answer) errorOf(t testing.TB) map[string]any {
	t.Helper()
	e, ok := a.json(t)["error"].(map[string]any)
	if !ok {
		t.Fatalf("no error object: %.300s", a.body)
	}
	return e
}

// do sends one request; headers come in pairs. Host is set as a host.
func (r *running) do(t testing.TB, method, path, body string, headers ...string) *answer {
	t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, r.url+path, in)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return &answer{resp.StatusCode, resp.Header, string(b)}
}

func (r *running) post(t testing.TB, path, body string, headers ...string) *answer {
	t.Helper()
	return r.do(t, http.MethodPost, path, body, headers...)
}

func (r *running) get(t testing.TB, path string, headers ...string) *answer {
	t.Helper()
	return r.do(t, http.MethodGet, path, "", headers...)
}

// logged is a logger and what it wrote.
func logged(level slog.Level) (*slog.Logger, *syncBuffer) {
	b := &syncBuffer{}
	return slog.New(slog.NewJSONHandler(b, &slog.HandlerOptions{Level: level})), b
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// within fails the test when nothing comes from c in time.
func within[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("waited 10 s in vain for %s", what)
		panic("unreachable")
	}
}

const (
	chatBody   = `{"model":"auto","messages":[{"role":"user","content":"hi"}]}`
	chatStream = `{"model":"auto","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	chatReply  = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`
	nativeBody = `{"messages":[{"role":"user","content":"hi"}]}`
	nativeDone = `{"callId":"c1","content":"hello","usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3}}`
)
