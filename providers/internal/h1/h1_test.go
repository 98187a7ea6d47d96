package h1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func transport(t testing.TB) *Transport {
	tr := &Transport{Fallback: &http.Transport{}, MaxIdle: 64, IdleTimeout: time.Minute, DialTimeout: 5 * time.Second}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// server counts the connections that were made to it.
func server(t testing.TB, h http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	var conns atomic.Int64
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s, &conns
}

func post(ctx context.Context, tr http.RoundTripper, url, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return tr.RoundTrip(req)
}

// TestForms: every way in which an answer's end is marked, with its connection
// kept or not as it should be.
func TestForms(t *testing.T) {
	big := strings.Repeat("0123456789", 100_000)
	for _, c := range []struct {
		name  string
		h     http.HandlerFunc
		want  string
		conns int64 // for three calls
	}{
		{"length", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, "ping", 1},
		{"chunked", func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				_, _ = io.WriteString(w, "part ")
				_ = http.NewResponseController(w).Flush()
			}
		}, "part part part ", 1},
		{"big", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, big) }, big, 1},
		{"empty", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, "", 1},
		{"close", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			_, _ = io.WriteString(w, "bye")
		}, "bye", 3},
		{"interim", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.WriteString(w, "real")
		}, "real", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, conns := server(t, c.h)
			tr := transport(t)
			for range 3 {
				resp, err := post(context.Background(), tr, s.URL, "ping")
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				if err != nil || string(got) != c.want {
					t.Fatalf("got %.40q %v", got, err)
				}
				_ = resp.Body.Close()
			}
			if n := conns.Load(); n != c.conns {
				t.Errorf("%d connections, want %d", n, c.conns)
			}
		})
	}
}

// TestStaleConnection: an idle connection that the upstream has closed is not
// used.
func TestStaleConnection(t *testing.T) {
	s, conns := server(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	tr := transport(t)
	for i := range 5 {
		resp, err := post(context.Background(), tr, s.URL, "ping")
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "ping" {
			t.Fatalf("%q %v", got, err)
		}
		s.CloseClientConnections()
	}
	if n := conns.Load(); n != 5 {
		t.Errorf("%d connections, want one a call", n)
	}
}

// TestSentOnce: an upstream that takes a request and closes without a word is
// not asked again, on a fresh connection or on one that was used before.
func TestSentOnce(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var requests atomic.Int64
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				br := bufio.NewReader(c)
				for {
					req, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					requests.Add(1)
					if req.URL.Path == "/mute" {
						return
					}
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			}()
		}
	}()
	url := "http://" + ln.Addr().String()
	tr := transport(t)
	for _, used := range []bool{false, true} {
		if used {
			resp, err := post(context.Background(), tr, url, "x")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadAll(resp.Body)
		}
		before := requests.Load()
		if _, err := post(context.Background(), tr, url+"/mute", "x"); !errors.Is(err, errNoAnswer) {
			t.Errorf("used %v: %v", used, err)
		}
		if n := requests.Load() - before; n != 1 {
			t.Errorf("used %v: sent %d times", used, n)
		}
	}
}

// TestCancel: before the answer and within it, the context's error comes back
// and the upstream sees the connection go.
func TestCancel(t *testing.T) {
	for _, phase := range []string{"head", "body", "close"} {
		t.Run(phase, func(t *testing.T) {
			here, gone := make(chan struct{}), make(chan struct{})
			s, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if phase != "head" {
					_, _ = io.WriteString(w, "first")
					_ = http.NewResponseController(w).Flush()
				}
				close(here)
				<-r.Context().Done()
				close(gone)
			})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if phase == "head" {
				go func() { <-here; cancel() }()
			}
			resp, err := post(ctx, transport(t), s.URL, "x")
			switch phase {
			case "head":
				if !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			case "body":
				<-here
				cancel()
				if _, err = io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
				_ = resp.Body.Close()
			case "close":
				_ = resp.Body.Close()
			}
			<-gone
		})
	}
}

// TestEarlyRefusal: an upstream that answers without reading the body is heard.
func TestEarlyRefusal(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
		_, _ = io.Copy(io.Discard, c)
	}()
	resp, err := post(context.Background(), transport(t), "http://"+ln.Addr().String(), strings.Repeat("x", 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusRequestEntityTooLarge || string(got) != "big" {
		t.Errorf("%d %q", resp.StatusCode, got)
	}
}

// TestCutBody: an answer that ends before its length is an error, not an end.
func TestCutBody(t *testing.T) {
	s, _ := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "short")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	resp, err := post(context.Background(), transport(t), s.URL, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

func TestManyAtOnce(t *testing.T) {
	s, conns := server(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	tr := transport(t)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for j := range 50 {
				want := fmt.Sprint(i, "/", j, strings.Repeat("x", 10*j))
				resp, err := post(context.Background(), tr, s.URL, want)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || string(got) != want {
					t.Errorf("an answer of another call: %q, want %q (%v)", got, want, err)
				}
			}
		})
	}
	wg.Wait()
	if n := conns.Load(); n > 64 {
		t.Errorf("%d connections for 32 callers", n)
	}
}

// FuzzAnswer feeds raw bytes as an answer: never a panic, never a hang.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\n\r\nrest", "HTTP/1.0 200\r\n\r\n", "garbage", "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		client, upstream := net.Pipe()
		go func() {
			defer upstream.Close()
			if req, err := http.ReadRequest(bufio.NewReader(upstream)); err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
			}
			_, _ = upstream.Write(answer)
		}()
		c := &conn{Conn: client, br: bufio.NewReader(client), bw: bufio.NewWriter(client)}
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/", bytes.NewReader([]byte("hi")))
		resp, err := transport(t).exchange(c, req)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	})
}

func BenchmarkRoundTrip(b *testing.B) {
	reply := bytes.Repeat([]byte("x"), 1500)
	s, _ := server(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(reply)
	})
	std := &http.Transport{MaxIdleConnsPerHost: 64}
	b.Cleanup(std.CloseIdleConnections)
	for _, c := range []struct {
		name string
		tr   http.RoundTripper
	}{{"h1", transport(b)}, {"nethttp", std}} {
		b.Run(c.name, func(b *testing.B) {
			body := strings.Repeat("y", 1000)
			b.ReportAllocs()
			for b.Loop() {
				resp, err := post(context.Background(), c.tr, s.URL, body)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
}
