package edge_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/edge"
	"github.com/sluice-llm/sluice/subjects"
)

// pipes is a listener without a network, so that its time can be the test's.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// inBubble serves on pipes with fake time, and gives a connection to the test.
func inBubble(t *testing.T, f *fake, o edge.Options, test func(t *testing.T, c net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		s := edge.New(f, o)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		mine, theirs := net.Pipe()
		l.conns <- theirs
		test(t, mine)
		mine.Close()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestSlowBody has a body that does not come end in 408, and any other answer
// come no later, whatever net/http waits for.
func TestSlowBody(t *testing.T) {
	for _, tt := range []struct {
		head, want string
		after      time.Duration
	}{
		{"POST /api/complete HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n", "HTTP/1.1 408 ", 30 * time.Second},
		{"POST /api/complete HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{\"a", "HTTP/1.1 408 ", 30 * time.Second},
		{"POST /api/complete HTTP/1.1\r\nHost: localhost\r\nContent-Length: 655360\r\n\r\n", "HTTP/1.1 408 ", 40 * time.Second},
		{"POST /api/complete HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", "HTTP/1.1 408 ", 46 * time.Second},
		{"POST /nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n", "HTTP/1.1 404 ", 30 * time.Second},
		{"POST /nope HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 404 ", 46 * time.Second},
		{"GET /health HTTP/1.1\r\nHost: evil\r\nContent-Length: 10\r\n\r\n", "HTTP/1.1 403 ", 30 * time.Second},
		{"POST /api/comp", "", 10 * time.Second},
		{"POST /api/complete HTTP/1.1\r\nHost: loc", "", 10 * time.Second},
	} {
		f := &fake{}
		inBubble(t, f, edge.Options{MaxBody: 1 << 20}, func(t *testing.T, c net.Conn) {
			start := time.Now()
			if _, err := io.WriteString(c, tt.head); err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(c)
			// net/http lingers half a second before it closes.
			if took := time.Since(start); took < tt.after || took > tt.after+time.Second {
				t.Errorf("%q: after %v, want %v", tt.head, took, tt.after)
			}
			if !strings.HasPrefix(string(got), tt.want) {
				t.Errorf("%q: %.200q", tt.head, got)
			}
		})
		if f.count() != 0 {
			t.Errorf("%q: sent on", tt.head)
		}
	}
}

// TestReaderThatStalls has its call cancelled between one and two minutes on.
func TestReaderThatStalls(t *testing.T) {
	f := &fake{}
	inBubble(t, f, edge.Options{}, func(t *testing.T, c net.Conn) {
		start, ended := time.Now(), make(chan time.Time, 1)
		f.stream = func(_ context.Context, _ *subjects.Msg, yield func(*subjects.Msg) error) error {
			for {
				if err := yield(&subjects.Msg{Data: []byte(`{"n":1}`)}); err != nil {
					ended <- time.Now()
					return err
				}
			}
		}
		if _, err := io.WriteString(c, rawPost("/v1/chat/completions", chatStream)); err != nil {
			t.Fatal(err)
		}
		if took := (<-ended).Sub(start); took < time.Minute || took > 2*time.Minute {
			t.Errorf("after %v", took)
		}
	})
}

// TestReaderThatIsSlow is not cut off: it takes an event every 50 s.
func TestReaderThatIsSlow(t *testing.T) {
	f := streaming(nil, nil, `{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`, `{"n":5}`, `{"n":6}`)
	inBubble(t, f, edge.Options{}, func(t *testing.T, c net.Conn) {
		if _, err := io.WriteString(c, rawPost("/v1/chat/completions", chatStream)); err != nil {
			t.Fatal(err)
		}
		got := ""
		for buf := make([]byte, 4096); !strings.Contains(got, "[DONE]"); {
			<-time.After(50 * time.Second)
			n, err := c.Read(buf)
			if err != nil {
				t.Fatalf("cut off after %q: %v", got, err)
			}
			got += string(buf[:n])
		}
	})
}

// TestAnswerThatTakesLong reaches a client that waits for it: no bound of the
// server's cuts in.
func TestAnswerThatTakesLong(t *testing.T) {
	f := &fake{request: func(context.Context, *subjects.Msg) (*subjects.Msg, error) {
		<-time.After(50 * time.Minute)
		return &subjects.Msg{Data: []byte(chatReply)}, nil
	}}
	inBubble(t, f, edge.Options{}, func(t *testing.T, c net.Conn) {
		go func() { _, _ = io.WriteString(c, rawPost("/v1/chat/completions", chatBody)) }()
		buf := make([]byte, 4096)
		n, err := c.Read(buf)
		if err != nil || !strings.HasPrefix(string(buf[:n]), "HTTP/1.1 200 OK") {
			t.Errorf("got %q %v", buf[:n], err)
		}
	})
}

// TestNodeThatNeverAnswers ends at the edge's own bound.
func TestNodeThatNeverAnswers(t *testing.T) {
	f := &fake{request: func(ctx context.Context, _ *subjects.Msg) (*subjects.Msg, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	inBubble(t, f, edge.Options{}, func(t *testing.T, c net.Conn) {
		start := time.Now()
		go func() { _, _ = io.WriteString(c, rawPost("/api/complete", nativeBody)) }()
		buf := make([]byte, 4096)
		n, err := c.Read(buf)
		if err != nil || !strings.HasPrefix(string(buf[:n]), "HTTP/1.1 504 ") || time.Since(start) != time.Hour+5*time.Second {
			t.Errorf("after %v: %q %v", time.Since(start), buf[:n], err)
		}
	})
}

func TestIdleConnectionIsClosed(t *testing.T) {
	inBubble(t, &fake{}, edge.Options{}, func(t *testing.T, c net.Conn) {
		start := time.Now()
		go func() { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") }()
		if _, err := io.ReadAll(c); err != nil || time.Since(start) != 120*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}
