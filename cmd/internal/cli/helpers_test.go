package cli

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the golden files anew")

// wait bounds every wait of a test for something that must happen.
const wait = 20 * time.Second

// testdata is absolute, for tests that change the folder.
var testdata string

func TestMain(m *testing.M) {
	flag.Parse()
	wd, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	testdata = filepath.Join(wd, "testdata")
	os.Setenv("COLUMNS", "80") // kong wraps help by it
	goleak.VerifyTestMain(m)
}

// buffer is a bytes.Buffer for more than one goroutine, whose reader can wait.
type buffer struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{}
}

func newBuffer() *buffer { return &buffer{more: make(chan struct{}, 1)} }

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// waitFor waits until text was written.
func (b *buffer) waitFor(t *testing.T, text string) {
	t.Helper()
	late := time.After(wait)
	for !strings.Contains(b.String(), text) {
		select {
		case <-b.more:
		case <-late:
			t.Fatalf("%q was never written, but %q", text, b.String())
		}
	}
}

// session is one command line under test.
type session struct {
	out, err *buffer
	app      *app
}

// terminal says what the session's outputs look like.
type terminal struct {
	tty    bool
	errTTY bool
	colour bool
	width  int
}

func newSession(stdin string, term terminal, env ...string) *session {
	s := &session{out: newBuffer(), err: newBuffer()}
	width := func() int { return term.width }
	s.app = &app{
		in:  strings.NewReader(stdin),
		out: stream{Writer: s.out, tty: term.tty, colour: term.colour, width: width},
		err: stream{Writer: s.err, tty: term.tty || term.errTTY, colour: term.colour, width: width},
		env: env,
		start: func(context.Context, *nodeOptions) (node, error) {
			return nil, fmt.Errorf("no node in this test")
		},
		loc: time.UTC,
		now: func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) },
	}
	return s
}

// start runs a command line in the background; the channel has its exit status.
func (s *session) start(ctx context.Context, args ...string) <-chan int {
	done := make(chan int, 1)
	go func() { done <- s.app.run(ctx, args) }()
	return done
}

// exited waits for an exit status.
func exited(t *testing.T, done <-chan int) int {
	t.Helper()
	select {
	case code := <-done:
		return code
	case <-time.After(wait):
		t.Fatal("the command does not end")
		return -1
	}
}

// natsServer is an embedded server on a free port.
func natsServer(t *testing.T, change ...func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true}
	for _, c := range change {
		c(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(wait) {
		t.Fatal("the NATS server does not start")
	}
	return s
}

// responder is a node as seen from outside: it answers subjects.
type responder struct {
	t  *testing.T
	nc *nats.Conn
}

func newResponder(t *testing.T, s *server.Server, opts ...nats.Option) *responder {
	t.Helper()
	nc, err := nats.Connect("", append(opts, nats.InProcessServer(s))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return &responder{t, nc}
}

func (r *responder) on(subject string, answer func(*nats.Msg)) {
	r.t.Helper()
	if _, err := r.nc.Subscribe(subject, answer); err != nil {
		r.t.Fatal(err)
	}
	if err := r.nc.Flush(); err != nil {
		r.t.Fatal(err)
	}
}

// says answers a subject with the same text always.
func (r *responder) says(subject, text string) {
	r.on(subject, func(m *nats.Msg) { _ = m.Respond([]byte(text)) })
}

// golden compares text with testdata/<name>.golden.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join(testdata, name+".golden")
	if *update {
		if err := os.MkdirAll(testdata, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; with -update it is written anew\n--- got\n%s\n--- want\n%s", file, got, want)
	}
}

// transcript is what a user sees of one command line.
func transcript(args []string, code int, stdout, stderr string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "$ sluice %s\nexit %d\n-- stdout --\n%s-- stderr --\n%s", strings.Join(args, " "), code, stdout, stderr)
	return b.String()
}

// listenOn puts a server on an address that another has left.
func listenOn(t *testing.T, addr string) func(*server.Options) {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *server.Options) { o.Port, _ = strconv.Atoi(port) }
}
