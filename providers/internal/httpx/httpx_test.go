package httpx

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/providers/internal/h1"
	"github.com/sluice-llm/sluice/subjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a fake API, and a client for it.
func server(t *testing.T, h http.HandlerFunc) (*httptest.Server, *Client) {
	t.Helper()
	s := httptest.NewServer(h)
	c := New(Options{Version: "1.2", Header: http.Header{"Authorization": {"Bearer S3CR3T"}}})
	t.Cleanup(func() {
		c.CloseIdle()
		s.Close()
	})
	return s, c
}

func request(base string) *Request {
	return &Request{URL: mustURL(base), Body: []byte(`{}`), Secret: "S3CR3T", Model: "m"}
}

func mustURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}

func TestDo(t *testing.T) {
	s, c := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != "POST" || string(body) != `{}` || r.Header.Get("Authorization") != "Bearer S3CR3T" ||
			r.UserAgent() != "sluice/1.2" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %v", r.Method, body, r.Header)
		}
		w.Header().Set("X-RateLimit-Remaining-Requests", "9")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write([]byte(`{"a":1}`))
		_ = z.Close()
	})
	reply, err := c.Do(t.Context(), request(s.URL))
	if err != nil || string(reply.Body) != `{"a":1}` || reply.RateLimit["x-ratelimit-remaining-requests"] != "9" {
		t.Fatalf("%+v, %v", reply, err)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		kind    subjects.Kind
		text    string
	}{
		"empty":  {func(http.ResponseWriter, *http.Request) {}, broken, "with nothing in it"},
		"page":   {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, broken, "web page"},
		"broken": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"a":`) }, broken, "broken JSON"},
		"error": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"error":{"code":429,"message":"slow"}}`)
		}, rate, "slow"},
		"brackets": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("[", 1<<20)) }, broken, "broken JSON"},
		"not gzip": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, `{"a":1}`)
		}, broken, "cut"},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{"a"`)
		}, broken, "was cut"},
		"cut at once": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, broken, "was cut"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				t.Error("the redirect is followed")
			}
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, unavailable, "redirects (307)"},
		"429": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3")
			w.Header().Set("X-RateLimit-Limit-Requests", "1")
			w.WriteHeader(429)
			io.WriteString(w, `{"error":{"message":"S3CR3T"}}`)
		}, rate, "***"},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := server(t, tc.handler)
			for _, do := range []func() error{
				func() error { _, err := c.Do(t.Context(), request(s.URL)); return err },
				func() error {
					_, err := c.Stream(t.Context(), request(s.URL), 0, func(string, []byte) error { return nil })
					return err
				},
			} {
				err := do()
				if name == "empty" && err == nil {
					continue // a stream without events is the provider's to judge
				}
				e := subjects.AsError(err)
				if e == nil || e.Kind != tc.kind || !strings.Contains(e.Message, tc.text) {
					t.Errorf("got %v, want %s with %q", err, tc.kind, tc.text)
				}
				if name == "429" && (e.RetryAfter != 3*time.Second || e.RateLimit["x-ratelimit-limit-requests"] != "1") {
					t.Errorf("%+v", e)
				}
			}
		})
	}
}

func TestHTTP2(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: "+r.Proto+"\n\n")
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	tr := transport()
	tr.Fallback.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	c := New(Options{Transport: tr})
	defer c.CloseIdle()
	proto := ""
	if _, err := c.Stream(t.Context(), request(s.URL), 0, func(_ string, d []byte) error { proto = string(d); return nil }); err != nil || proto != "HTTP/2.0" {
		t.Errorf("%q, %v", proto, err)
	}
}

// roundTrip is a transport that is a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestUnreachable(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	plain, _ := server(t, func(http.ResponseWriter, *http.Request) {})
	tls := httptest.NewUnstartedServer(nil)
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	t.Cleanup(tls.Close)
	for _, tc := range []struct {
		url, text string
		transport http.RoundTripper
	}{
		{"http://" + closed.Addr().String(), "connection refused", nil},
		{strings.Replace(plain.URL, "http", "https", 1), "speaks HTTP, not HTTPS", nil},
		{tls.URL, "certificate is not trusted", nil},
		{"http://x", "host name is not known", roundTrip(func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}
		})},
		{"http://x", "no route to it", roundTrip(func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: errors.New("no route to host")}
		})},
	} {
		c := New(Options{Transport: tc.transport})
		_, err := c.Do(t.Context(), request(tc.url))
		if e := subjects.AsError(err); e == nil || e.Kind != unavailable || !strings.Contains(e.Message, tc.text) {
			t.Errorf("%s: %v", tc.url, err)
		}
		c.CloseIdle()
	}
}

func TestContextEnds(t *testing.T) {
	blocked := make(chan struct{})
	s, c := server(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-blocked:
		}
	})
	defer close(blocked)
	for _, do := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := c.Do(ctx, request(s.URL)); return err },
		func(ctx context.Context) error { _, err := c.Stream(ctx, request(s.URL), 0, nil); return err },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := do(ctx); subjects.KindOf(err) != subjects.KindCancelled {
			t.Errorf("cancelled: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		if err := do(ctx); subjects.KindOf(err) != subjects.KindTimeout {
			t.Errorf("deadline: %v", err)
		}
		cancel()
		ctx, abort := context.WithCancelCause(t.Context())
		abort(subjects.Errorf(subjects.KindPoolFull, "own"))
		if err := do(ctx); subjects.KindOf(err) != subjects.KindPoolFull {
			t.Errorf("a cause of our own: %v", err)
		}
	}
}

// endless is a body without an end.
type endless struct{}

var spaces = bytes.Repeat([]byte(" "), 64<<10)

func (endless) Read(p []byte) (int, error) { return copy(p, spaces), nil }

func TestBodyIsBounded(t *testing.T) {
	c := New(Options{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(endless{}), ContentLength: -1}, nil
	})})
	_, err := c.Do(t.Context(), request("http://x"))
	if subjects.KindOf(err) != broken || !strings.Contains(err.Error(), "above 64 MiB") {
		t.Errorf("%v", err)
	}
}

// streamed collects the events of a text that arrives in reads of size bytes.
func streamed(text string, size int) (out []string, err error) {
	err = events(&idleReader{r: slow{strings.NewReader(text), size}}, func(_ string, d []byte) error {
		out = append(out, string(bytes.Clone(d)))
		return nil
	})
	return out, err
}

type slow struct {
	r io.Reader
	n int
}

func (s slow) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.n)]) }

func TestEventForms(t *testing.T) {
	huge := strings.Repeat("日x", 1<<18)
	for name, tc := range map[string]struct {
		in   string
		want string
	}{
		"LF":               {"data: a\n\ndata: b\n\n", "a|b"},
		"CRLF":             {"data: a\r\n\r\ndata: b\r\n\r\n", "a|b"},
		"CR":               {"data: a\r\rdata: b\r\r", "a|b"},
		"mixed":            {"data: a\r\n\ndata: b\n\r\ndata: c\r\r\n", "a|b|c"},
		"BOM":              {"\xef\xbb\xbfdata: a\n\n", "a"},
		"comments":         {": hi\n\n:\ndata: a\n: x\ndata: b\n\n", "a\nb"},
		"no space":         {"data:a\n\n", "a"},
		"two spaces":       {"data:  a\n\n", " a"},
		"several lines":    {"data: {\ndata: \"a\":1}\n\n", "{\n\"a\":1}"},
		"other fields":     {"event: e\nid: 1\nretry: 5\nwhat: x\ndata: a\n\n", "a"},
		"no data":          {"event: ping\n\ndata\n\ndata: a\n\n", "a"},
		"many blank lines": {"\n\n\ndata: a\n\n\n\ndata: b\n\n", "a|b"},
		"no blank at end":  {"data: a\n\ndata: b\n", "a|b"},
		"no line end":      {"data: a\n\ndata: b", "a|b"},
		"characters":       {"data: é日😀\n\n", "é日😀"},
		"empty":            {"", ""},
		"huge":             {"data: a\n\ndata: " + huge + "\n\ndata: b\n\n", "a|" + huge + "|b"},
		"bare JSON":        {"data: a\n\n{\"error\":1}", "a|{\"error\":1}"},
		"bare list":        {"data: a\r\n\r\n[{\n \"error\": {\n  \"x\": 1\n }\n}\n]\n", "a|[{\n \"error\": {\n  \"x\": 1\n }\n}\n]"},
		"bare, not at end": {"data: a\n\n{\"error\":1}\n\ndata: b\n\n", "a|b"},
		"bare, no error":   {"data: a\n\n{\"x\":1}\n", "a"},
		"bare, no JSON":    {"data: a\n\n{\"error\":\n\n", "a"},
		"bare, too long":   {"data: a\n\n[\"" + strings.Repeat("a", maxBare) + "\"]", "a"},
		"huge, CRLF":       {"data: " + huge + "\r\n\r\ndata: b\r\n\r\n", huge + "|b"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 2, 3, 7, 100_000} {
				if size < 100 && len(tc.in) > 1<<15 {
					continue
				}
				got, err := streamed(tc.in, size)
				if err != nil || strings.Join(got, "|") != tc.want {
					t.Errorf("in reads of %d: %.200q, %v", size, got, err)
				}
			}
		})
	}
}

func TestEventIsBounded(t *testing.T) {
	s, c := server(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "data: ")
		io.Copy(w, io.LimitReader(endless{}, MaxEvent+1))
	})
	_, err := c.Stream(t.Context(), request(s.URL), 0, func(string, []byte) error { return nil })
	if subjects.KindOf(err) != broken || !strings.Contains(err.Error(), "above 16 MiB") {
		t.Errorf("%v", err)
	}
}

// FuzzEvents holds that the size of the reads does not matter, nor that large
// events are gathered, and that the library alone says the same.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{"data: a\n\n", "\xef\xbb\xbfdata:x\r\n\r\n:c\rdata: y\r\r", "data: 1\ndata: 2\n\n\n", "event: x\ndata\n\n", "data: \r\n\n\r"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, size int) {
		whole, err := streamed(s, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		cut, err := streamed(s, 1+int(uint(size)%64))
		if err != nil || strings.Join(cut, "|") != strings.Join(whole, "|") {
			t.Fatalf("whole %q, cut %q, %v", whole, cut, err)
		}
		g := &gather{r: slow{strings.NewReader(s), 1 + int(uint(size)%64)}, since: gatherFrom}
		all, err := io.ReadAll(g)
		if err != nil || string(all) != s {
			t.Fatalf("gathered %q, %v", all, err)
		}
	})
}

func TestStream(t *testing.T) {
	s, c := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != eventStream {
			t.Errorf("%v", r.Header)
		}
		w.Header().Set("X-RateLimit-Remaining-Requests", "9")
		w.Header().Set("Content-Type", "application/json") // some servers do
		io.WriteString(w, "data: a\n\ndata: b\n\n")
	})
	n := 0
	reply, err := c.Stream(t.Context(), request(s.URL), time.Minute, func(string, []byte) error { n++; return nil })
	if err != nil || n != 2 || reply.RateLimit["x-ratelimit-remaining-requests"] != "9" || reply.Whole != nil {
		t.Errorf("%d, %+v, %v", n, reply, err)
	}
	mine := errors.New("mine")
	if _, err := c.Stream(t.Context(), request(s.URL), 0, func(string, []byte) error { return mine }); err != mine { //nolint:errorlint // returned as it is
		t.Errorf("%v", err)
	}
}

func TestStreamThatIsOneObject(t *testing.T) {
	s, c := server(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"a":1}`)
	})
	reply, err := c.Stream(t.Context(), request(s.URL), 0, nil)
	if err != nil || reply.Whole == nil || string(reply.Whole.Body) != `{"a":1}` {
		t.Errorf("%+v, %v", reply, err)
	}
}

// A stream that ends by ErrDone leaves its connection for the next one, although
// the caller's context is over by then.
func TestStreamsShareAConnection(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "data: [DONE]\n\n")
		w.(http.Flusher).Flush()
	}))
	var conns atomic.Int32
	idle := make(chan struct{}, 100)
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		switch st {
		case http.StateNew:
			conns.Add(1)
		case http.StateIdle:
			idle <- struct{}{}
		}
	}
	s.Start()
	defer s.Close()
	transport := &watched{Transport: transport(), back: make(chan struct{}, 100)}
	c := New(Options{Transport: transport})
	defer c.CloseIdle()
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := c.Stream(ctx, request(s.URL), time.Minute, func(string, []byte) error { return ErrDone }); err != nil {
			t.Fatal(err)
		}
		cancel()
		<-transport.back
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// watched says when the body of an answer was closed.
type watched struct {
	*h1.Transport
	back chan struct{}
}

func (w *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.Transport.RoundTrip(r)
	if err == nil {
		resp.Body = &watchedBody{resp.Body, w.back}
	}
	return resp, err
}

type watchedBody struct {
	io.ReadCloser
	back chan struct{}
}

func (b *watchedBody) Close() error {
	err := b.ReadCloser.Close()
	b.back <- struct{}{}
	return err
}

func TestStreamThatIsCut(t *testing.T) {
	s, c := server(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "data: a\n\ndata: b")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	n := 0
	_, err := c.Stream(t.Context(), request(s.URL), time.Minute, func(string, []byte) error { n++; return nil })
	if subjects.KindOf(err) != broken || !strings.Contains(err.Error(), "was cut") || n != 1 {
		t.Errorf("%d events, %v", n, err)
	}
}

// script is a body whose reads take time.
type script struct {
	ctx    context.Context
	pauses []time.Duration
	text   string
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.pauses) == 0 {
		return 0, io.EOF
	}
	t := time.NewTimer(s.pauses[0])
	defer t.Stop()
	s.pauses = s.pauses[1:]
	select {
	case <-t.C:
		return copy(p, s.text), nil
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}

func (s *script) Close() error { return nil }

func TestIdleTimeout(t *testing.T) {
	const idle = 10 * time.Second
	for name, tc := range map[string]struct {
		text   string
		pauses []time.Duration
		slow   time.Duration // the callback's own time
		events int
		kind   subjects.Kind
	}{
		"steady":                      {"data: x\n\n", []time.Duration{time.Second, 9 * time.Second, 9 * time.Second}, 0, 3, ""},
		"slow first byte":             {"data: x\n\n", []time.Duration{time.Minute, time.Second}, 0, 2, ""},
		"silent":                      {"data: x\n\n", []time.Duration{time.Second, 11 * time.Second}, 0, 1, subjects.KindTimeout},
		"comments are life":           {": still here\n\n", []time.Duration{0, 9 * time.Second, 9 * time.Second}, 0, 0, ""},
		"a slow caller is no silence": {"data: x\n\n", []time.Duration{0, time.Second, time.Second}, time.Minute, 3, ""},
		"the deadline":                {"data: x\n\n", []time.Duration{0, 9 * time.Second, 9 * time.Second, 9 * time.Second, 9 * time.Second, 9 * time.Second, 9 * time.Second, 9 * time.Second}, 0, 7, subjects.KindTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(Options{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 200, Header: http.Header{}, Body: &script{r.Context(), tc.pauses, tc.text}}, nil
				})})
				limit := time.Minute
				if tc.slow > 0 || name == "slow first byte" {
					limit = time.Hour
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				n := 0
				_, err := c.Stream(ctx, request("http://x"), idle, func(string, []byte) error {
					n++
					<-time.After(tc.slow)
					return nil
				})
				if subjects.KindOf(err) != tc.kind || n != tc.events {
					t.Errorf("%d events, %v", n, err)
				}
			})
		})
	}
}
