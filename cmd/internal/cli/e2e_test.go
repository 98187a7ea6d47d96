package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/subjects"
)

// served is a real node, started by the command line itself.
type served struct {
	env  []string
	http string
}

var ready = regexp.MustCompile(`^sluice ready: NATS (\S+), HTTP (\S+)\n$`)

// serve runs `sluice serve` until the test ends, then holds that a signal ends it well.
func serve(t *testing.T) *served {
	t.Helper()
	ses := newSession("", terminal{}, "SEMANTIC_ANALYSIS_MODE=mock")
	ses.app.start = startNode
	ctx, signal := context.WithCancel(context.Background())
	done := ses.start(ctx, "serve", "--data", t.TempDir(), "--http", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0")
	t.Cleanup(func() {
		signal()
		if code := exited(t, done); code != 0 {
			t.Errorf("serve: exit status %d: %s", code, ses.err.String())
		}
	})
	ses.out.waitFor(t, "\n")
	m := ready.FindStringSubmatch(ses.out.String())
	if m == nil {
		t.Fatalf("serve said %q", ses.out.String())
	}
	return &served{env: []string{"SLUICE_NATS_URL=" + m[1]}, http: m[2]}
}

// sluice runs one command line that must end with code.
func (n *served) sluice(t *testing.T, code int, args ...string) string {
	t.Helper()
	ses := newSession("", terminal{}, n.env...)
	if got := exited(t, ses.start(t.Context(), args...)); got != code {
		t.Fatalf("%v: exit status %d, not %d: %s%s", args, got, code, ses.out.String(), ses.err.String())
	}
	return ses.out.String()
}

// TestRealNode runs every client command against a node.
func TestRealNode(t *testing.T) {
	n := serve(t)
	answer := n.sluice(t, 0, "complete", "--process", "first", "hello")
	streamed := n.sluice(t, 0, "complete", "--process", "second", "--stream", "hello")
	if answer == "\n" || answer != streamed {
		t.Errorf("answered %q, streamed %q", answer, streamed)
	}
	var res subjects.Result
	text := n.sluice(t, 0, "complete", "--json", "--call-id", "call-7", "--provider", "mock", "hello")
	if err := json.Unmarshal([]byte(text), &res); err != nil || res.CallID != "call-7" || res.Provider != "mock" || res.Usage.TotalTokens == 0 {
		t.Errorf("%v: %s", err, text)
	}
	text = n.sluice(t, exitFailed, "complete", "--json", "--provider", "nobody", "hello")
	var e subjects.Error
	if err := json.Unmarshal([]byte(text), &e); err != nil || !e.Kind.Known() || e.Message == "" {
		t.Errorf("%v: %s", err, text)
	}
	for want, args := range map[string][]string{
		"ok · mode mock":  {"health"},
		`"canServe":true`: {"health", "--json"},
		"mock":            {"providers"},
		`"providers":[`:   {"providers", "--json"},
		"mock-":           {"explain", "--tier", "fast"},
		`"chain":[`:       {"explain", "--json"},
	} {
		if got := n.sluice(t, 0, args...); !strings.Contains(got, want) {
			t.Errorf("%v does not say %q: %s", args, want, got)
		}
	}
	n.logged(t)
	n.edge(t)
}

// edge makes the HTTP requests that the demo tells its user to try.
func (n *served) edge(t *testing.T) {
	t.Helper()
	for url, body := range map[string]string{
		"/health":              "",
		"/v1/models":           "",
		"/api/complete":        `{"messages":[{"role":"user","content":"hello"}]}`,
		"/v1/chat/completions": `{"model":"auto","messages":[{"role":"user","content":"hello"}]}`,
	} {
		method := http.MethodGet
		if body != "" {
			method = http.MethodPost
		}
		req, err := http.NewRequestWithContext(t.Context(), method, n.http+url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !json.Valid(got) {
			t.Errorf("%s: %s %v: %s", url, resp.Status, err, got)
		}
	}
}

// logged waits until the usage commands have the three calls.
func (n *served) logged(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), wait)
	defer stop()
	var r subjects.RecentUsage
	for len(r.Calls) < 3 {
		if ctx.Err() != nil {
			t.Fatalf("the usage log has %d calls of 3", len(r.Calls))
		}
		text := n.sluice(t, 0, "usage", "--recent", "10", "--json")
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	if got := n.sluice(t, 0, "usage", "--recent", "10"); strings.Count(got, " ok ") != 3 {
		t.Errorf("%s", got)
	}
	for by, want := range map[string][]string{"process": {"first", "second", "unknown"}, "provider": {"mock"}, "model": {"mock-"}} {
		got := n.sluice(t, 0, "usage", "--by", by)
		for _, w := range append(want, "total") {
			if !strings.Contains(got, "\n"+w) {
				t.Errorf("by %s: no row of %s: %s", by, w, got)
			}
		}
	}
}

// TestRealEvents follows the usage record of a call.
func TestRealEvents(t *testing.T) {
	n := serve(t)
	ses := newSession("", terminal{errTTY: true}, n.env...)
	done := ses.start(t.Context(), "events", "llm.usage.>", "--count", "1", "--json")
	ses.err.waitFor(t, "Ctrl-C ends")
	n.sluice(t, 0, "complete", "--process", "Nightly Job", "hello")
	if code := exited(t, done); code != 0 {
		t.Errorf("exit status %d: %s", code, ses.err.String())
	}
	var r subjects.UsageRecord
	if err := json.Unmarshal([]byte(ses.out.String()), &r); err != nil || r.Process != "Nightly Job" {
		t.Errorf("%v: %s", err, ses.out.String())
	}
}

// TestRealDemo plays the demo on a real node, shown in each way.
func TestRealDemo(t *testing.T) {
	for _, term := range []terminal{{}, {tty: true, colour: true, width: 80}} {
		ses := newSession("", term)
		ses.app.start = startNode
		code := exited(t, ses.start(t.Context(), "demo", "--once"))
		if out := ses.out.String(); code != 0 || !strings.Contains(out, "PASS") || !strings.Contains(out, subjects.PoolSaturated) {
			t.Errorf("exit status %d: %s%s", code, out, ses.err.String())
		}
	}
}
