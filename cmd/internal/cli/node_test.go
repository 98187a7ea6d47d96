package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/subjects"
)

// fakeNode is a node whose pools are what the test says. It is for the ways in
// which a real one does not fail.
type fakeNode struct {
	nc            *nats.Conn
	url, http     string
	done          chan struct{}
	err, drainErr error

	mu      sync.Mutex
	calls   []string // what happened: drain, close
	records []json.RawMessage
	twice   bool
	summary atomic.Value // of the usage log, as JSON
}

func (n *fakeNode) NATSURL() string       { return n.url }
func (n *fakeNode) HTTPAddr() string      { return n.http }
func (n *fakeNode) Conn() *nats.Conn      { return n.nc }
func (n *fakeNode) Done() <-chan struct{} { return n.done }
func (n *fakeNode) Err() error            { return n.err }

func (n *fakeNode) did(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, what)
}

func (n *fakeNode) Drain(ctx context.Context) error {
	n.did("drain")
	if deadline, ok := ctx.Deadline(); ctx.Err() != nil || !ok || time.Until(deadline) > drainTime {
		return errors.New("a drain that ends at once, or never")
	}
	return n.drainErr
}

func (n *fakeNode) Close() error {
	n.did("close")
	return nil
}

// starts makes a session's serve and demo start n, and hands the options on.
func (n *fakeNode) starts(s *session) <-chan *nodeOptions {
	got := make(chan *nodeOptions, 1)
	s.app.start = func(_ context.Context, o *nodeOptions) (node, error) {
		got <- o
		return n, nil
	}
	return got
}

func TestServe(t *testing.T) {
	t.Chdir(t.TempDir())
	n := &fakeNode{url: "nats://127.0.0.1:4222", http: "127.0.0.1:12435", done: make(chan struct{})}
	ses := newSession("", terminal{}, "SLUICE_PROVIDERS=openai,mock", "SLUICE_DATA=d")
	options := n.starts(ses)
	ctx, signal := context.WithCancel(t.Context())
	done := ses.start(ctx, "serve", "--nats-listen", "127.0.0.1:4333", "--http", "none")
	ses.out.waitFor(t, "\n")
	if got, want := ses.out.String(), "sluice ready: NATS nats://127.0.0.1:4222, HTTP http://127.0.0.1:12435\n"; got != want {
		t.Errorf("said %q, not %q", got, want)
	}
	signal()
	if code := exited(t, done); code != 0 {
		t.Errorf("exit status %d: %s", code, ses.err.String())
	}
	if want := []string{"drain", "close"}; !slices.Equal(n.calls, want) {
		t.Errorf("the node was asked to %v, not to %v", n.calls, want)
	}
	o := <-options
	if o.HTTP != "" || o.NATSListen != "127.0.0.1:4333" || o.Data != "d" || o.ConfigFile != "" || !slices.Equal(o.Providers, []string{"openai", "mock"}) {
		t.Errorf("started with %+v", o)
	}
	if !json.Valid([]byte(strings.TrimSpace(ses.err.String()))) {
		t.Errorf("the log is not one JSON line: %q", ses.err.String())
	}
}

func TestServeDefaults(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("config", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(defaultConfig, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	n := &fakeNode{done: make(chan struct{})}
	close(n.done)
	ses := newSession("", terminal{})
	options := n.starts(ses)
	ses.app.run(t.Context(), []string{"serve"})
	if o := <-options; o.HTTP != "127.0.0.1:12435" || o.NATSListen != "127.0.0.1:4222" || o.Data != ".data" || o.ConfigFile != defaultConfig || o.Providers != nil {
		t.Errorf("started with %+v", o)
	}
	ses = newSession("", terminal{})
	options = n.starts(ses)
	ses.app.run(t.Context(), []string{"serve", "--nats-url", "nats://elsewhere:4222", "--creds", "c", "--config", "x.yaml"})
	if o := <-options; o.NATSURL != "nats://elsewhere:4222" || o.NATSListen != "" || o.Creds != "c" || o.ConfigFile != "x.yaml" {
		t.Errorf("started with %+v", o)
	}
}

func TestServeFails(t *testing.T) {
	t.Run("at the start", func(t *testing.T) {
		ses := newSession("", terminal{})
		code := ses.app.run(t.Context(), []string{"serve"})
		if want := "sluice: no node in this test\n"; code != exitFailed || ses.err.String() != want {
			t.Errorf("exit status %d: %q", code, ses.err.String())
		}
	})
	t.Run("later", func(t *testing.T) {
		n := &fakeNode{done: make(chan struct{}), err: errors.New("the HTTP edge failed")}
		close(n.done)
		ses := newSession("", terminal{})
		n.starts(ses)
		code := ses.app.run(t.Context(), []string{"serve"})
		if code != exitFailed || !strings.Contains(ses.err.String(), "the HTTP edge failed") || !slices.Equal(n.calls, []string{"close"}) {
			t.Errorf("exit status %d: %q, %v", code, ses.err.String(), n.calls)
		}
	})
	for name, tc := range map[string]struct {
		err  error
		code int
		want string
	}{
		"draining too slowly": {context.DeadlineExceeded, 0, "cut off"},
		"draining":            {errors.New("the disk is full"), exitFailed, "the disk is full"},
	} {
		t.Run(name, func(t *testing.T) {
			n := &fakeNode{done: make(chan struct{}), drainErr: tc.err}
			ctx, signal := context.WithCancel(t.Context())
			signal()
			ses := newSession("", terminal{tty: true})
			n.starts(ses)
			code := ses.app.run(ctx, []string{"serve"})
			if code != tc.code || !strings.Contains(ses.err.String(), tc.want) || !slices.Equal(n.calls, []string{"drain", "close"}) {
				t.Errorf("exit status %d: %q, %v", code, ses.err.String(), n.calls)
			}
		})
	}
}

// demoNode answers the demo's calls at once, and says of its pools what health
// has.
func demoNode(t *testing.T, health, result string) *fakeNode {
	t.Helper()
	s := natsServer(t)
	r := newResponder(t, s)
	n := &fakeNode{nc: r.nc, url: "nats://127.0.0.1:4333", http: "127.0.0.1:8080", done: make(chan struct{})}
	r.says(subjects.QueryHealth, health)
	saturated := false
	r.on("llm.complete.*", func(m *nats.Msg) {
		id, class := m.Header.Get(subjects.HeaderCallID), strings.TrimPrefix(m.Subject, "llm.complete.")
		n.mu.Lock()
		n.records = append(n.records, json.RawMessage(`{"id":"`+id+`","timestamp":"2026-03-01T12:00:00Z","total_tokens":10}`))
		n.mu.Unlock()
		if !saturated && class == subjects.ClassIngestion {
			saturated = true
			_ = r.nc.Publish(subjects.PoolSaturated, []byte(someEvents[0].data))
		}
		_ = m.Respond([]byte(fmt.Sprintf(result, id, class)))
	})
	r.on(subjects.QueryUsageRecent, func(m *nats.Msg) {
		n.mu.Lock()
		defer n.mu.Unlock()
		calls := n.records
		if n.twice {
			calls = append(calls, calls[0])
		}
		b, _ := json.Marshal(subjects.RecentUsage{Calls: calls})
		_ = m.Respond(b)
	})
	n.summary.Store(summaryJSON)
	r.on(subjects.QueryUsageSummary, func(m *nats.Msg) { _ = m.Respond([]byte(n.summary.Load().(string))) })
	return n
}

const (
	demoHealth = `{"status":"ok","canServe":true,"pools":{"mock/mock-standard":{"cap":12,"active":0,"queued":0,"peak":11,"granted":23}},
"classes":{"ingestion":{"slots":8,"active":0,"queued":0,"peak":8,"granted":20},"interactive":{"slots":6,"active":0,"queued":0,"peak":3,"granted":3}}}`
	demoResult = `{"callId":%q,"class":%q,"content":"ok","latencyMs":400,"queuedMs":120,"usage":{"totalTokens":10}}`
)

// What depends on the machine's speed: the moments, and how many lines of progress there are.
var (
	moment = regexp.MustCompile(`\d+\.\d\d s  `)
	steps  = regexp.MustCompile(`(?m)^.*\d+ in flight \(.*\n`)
)

func TestDemo(t *testing.T) {
	for name, tc := range map[string]struct {
		health, result string
		twice          bool
		args           []string
		code           int
	}{
		"demo":             {args: []string{"demo", "--once"}},
		"demo-json":        {args: []string{"demo", "--once", "--json"}},
		"demo-over-cap":    {health: strings.Replace(demoHealth, `"peak":11`, `"peak":13`, 1), args: []string{"demo", "--once"}, code: exitFailed},
		"demo-over-class":  {health: strings.Replace(demoHealth, `"peak":8`, `"peak":9`, 1), args: []string{"demo", "--once"}, code: exitFailed},
		"demo-waited":      {result: strings.Replace(demoResult, "120", "450", 1), args: []string{"demo", "--once"}, code: exitFailed},
		"demo-logged-more": {twice: true, args: []string{"demo", "--once"}, code: exitFailed},
		"demo-no-pools":    {health: `{}`, args: []string{"demo", "--once"}, code: exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			n := demoNode(t, orElse(tc.health, demoHealth), orElse(tc.result, demoResult))
			n.twice = tc.twice
			ses := newSession("", terminal{})
			options := n.starts(ses)
			code := exited(t, ses.start(t.Context(), tc.args...))
			if code != tc.code || !slices.Equal(n.calls, []string{"drain", "close"}) {
				t.Errorf("exit status %d, not %d; the node was asked to %v", code, tc.code, n.calls)
			}
			o := <-options
			if o.HTTP != "" || o.NATSListen != none || o.Config.Pools.Cap("mock", "mock-standard") != demoCap {
				t.Errorf("started with %+v", o)
			}
			if _, err := os.Stat(o.Data); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the temporary folder is left: %v", err)
			}
			if name == "demo-json" {
				checkDemoJSON(t, ses.out.String())
				return
			}
			out := moment.ReplaceAllString(steps.ReplaceAllString(ses.out.String(), ""), "0.00 s  ")
			golden(t, name, transcript(tc.args, code, out, ses.err.String()))
		})
	}
}

func checkDemoJSON(t *testing.T, text string) {
	t.Helper()
	var v verdict
	if err := json.Unmarshal([]byte(text), &v); err != nil || strings.Count(text, "\n") != 1 {
		t.Fatalf("not one line of JSON (%v): %s", err, text)
	}
	if !v.OK || len(v.Checks) != 5 || len(v.Saturated) != 1 || v.Usage.Totals.Calls != 23 {
		t.Errorf("%s", text)
	}
}

func TestDemoStaysUp(t *testing.T) {
	n := demoNode(t, demoHealth, demoResult)
	ses := newSession("", terminal{})
	options := n.starts(ses)
	ctx, signal := context.WithCancel(t.Context())
	done := ses.start(ctx, "demo", "--data", filepath.Join(t.TempDir(), "kept"))
	ses.out.waitFor(t, "base URL\n")
	signal()
	if code := exited(t, done); code != 0 {
		t.Errorf("exit status %d: %s", code, ses.err.String())
	}
	if o := <-options; o.HTTP != "127.0.0.1:12435" || o.NATSListen != "127.0.0.1:4222" || !strings.HasSuffix(o.Data, "kept") {
		t.Errorf("started with %+v", o)
	}
	_, next, _ := strings.Cut(ses.out.String(), "PASS")
	golden(t, "demo-next-steps", next)
}

func TestDemoNodeFails(t *testing.T) {
	ses := newSession("", terminal{})
	if code := ses.app.run(t.Context(), []string{"demo"}); code != exitFailed || ses.err.String() != "sluice: no node in this test\n" {
		t.Errorf("exit status %d: %q", code, ses.err.String())
	}
	n := demoNode(t, demoHealth, demoResult)
	n.err = errors.New("the disk is full")
	ses = newSession("", terminal{})
	n.starts(ses)
	done := ses.start(t.Context(), "demo")
	ses.out.waitFor(t, "base URL\n")
	close(n.done)
	if code := exited(t, done); code != exitFailed || !strings.Contains(ses.err.String(), "the disk is full") {
		t.Errorf("exit status %d: %q", code, ses.err.String())
	}
}

// TestPicture holds the picture on a terminal, of 90 columns and of 40.
func TestPicture(t *testing.T) {
	s := &scenario{done: map[string]int{subjects.ClassIngestion: 3}}
	if err := json.Unmarshal([]byte(`{"pools":{"mock/mock-standard":{"cap":12,"active":11,"queued":9,"peak":11},"mock/big":{"cap":100,"active":50,"queued":0,"peak":50}},
		"classes":{"ingestion":{"slots":8,"active":8,"queued":9,"peak":8},"interactive":{"slots":6,"active":3,"queued":0,"peak":3}}}`), &s.health); err != nil {
		t.Fatal(err)
	}
	var e subjects.PoolSaturatedEvent
	if err := json.Unmarshal([]byte(someEvents[0].data), &e); err != nil {
		t.Fatal(err)
	}
	for i := range shownEvents + 1 {
		s.saturated = append(s.saturated, saturation{time.Duration(i) * time.Second, e})
	}
	var b strings.Builder
	for _, term := range []terminal{{tty: true, colour: true, width: 90}, {tty: true, width: 40}} {
		ses := newSession("", term)
		b.WriteString(strings.Join(frame(ses.app.out, s, 1234*time.Millisecond), "\n") + "\n")
	}
	b.WriteString(progressText(s) + "\n")
	golden(t, "picture", b.String())
}

// TestScreenRedraws holds that a picture is drawn over the one before.
func TestScreenRedraws(t *testing.T) {
	ses := newSession("", terminal{tty: true, width: 80})
	v := &screen{out: ses.app.out}
	s := &scenario{start: time.Now(), done: map[string]int{}}
	v.draw(s)
	before := len(ses.out.String())
	v.draw(s)
	if again := ses.out.String()[before:]; !strings.HasPrefix(again, "\x1b[1A\r\x1b[K") || strings.Count(again, "\n") != 1 {
		t.Errorf("%q", again)
	}
}
