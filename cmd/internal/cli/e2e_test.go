package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
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
		"ok · mode mock":       {"health"},
		`"canServe":true`:      {"health", "--json"},
		"mock":                 {"providers"},
		`"providers":[`:        {"providers", "--json"},
		"mock-":                {"explain", "--tier", "fast"},
		`"chain":[`:            {"explain", "--json"},
		"class ingestion":      {"explain", "--class", "ingestion", "--needs", "images,json_schema", "--tools", "--run", "r1", "--batch", "b1", "--privacy", "any"},
		"sensitivity internal": {"explain", "--sensitivity", "internal", "--process", "nightly", "--paid"},
		`"quota":`:             {"quota", "mock", "--json"},
		"asked":                {"metrics"},
		`"cache":{`:            {"metrics", "--json"},
		"nothing was changed":  {"quota", "reset", "mock"},
		`"lifted":0`:           {"quota", "reset", "mock", "--json"},
		"has not changed":      {"reload"},
		`"changed":false`:      {"reload", "--json"},
	} {
		if got := n.sluice(t, 0, args...); !strings.Contains(got, want) {
			t.Errorf("%v does not say %q: %s", args, want, got)
		}
	}
	n.logged(t)
	n.edge(t)
	n.kept(t)
	n.headers(t)
}

// kept makes calls that share an answer, and looks at what is told of them.
func (n *served) kept(t *testing.T) {
	t.Helper()
	ask := func(args ...string) (res subjects.Result) {
		t.Helper()
		text := n.sluice(t, 0, append([]string{"complete", "--json", "--task", "git_history_analysis", "--run", "r7", "--batch", "b7", "what is kept?"}, args...)...)
		if err := json.Unmarshal([]byte(text), &res); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return res
	}
	for _, tc := range []struct {
		args   []string
		cached bool
	}{
		{nil, false},
		{nil, true},
		{[]string{"--skip-cache"}, false},
		{[]string{"--cache-scope", "a"}, false},
		{[]string{"--cache-scope", "a"}, true},
		{[]string{"--cache-scope", "b"}, false},
	} {
		if res := ask(tc.args...); res.Cached != tc.cached || res.Cached != (res.Usage.TotalTokens == 0) {
			t.Errorf("%v: cached is %v with %d tokens", tc.args, res.Cached, res.Usage.TotalTokens)
		}
	}
	var r routesReport
	text := n.sluice(t, 0, "usage", "--routes", "--hours", "1", "--json")
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	i := slices.IndexFunc(r.Groups, func(g *routeGroup) bool { return g.Task == "git_history_analysis" })
	if i < 0 || r.Groups[i].Calls != 6 || r.Groups[i].Cached != 2 || r.Groups[i].Declared == nil || len(r.Groups[i].Answered) != 1 || r.Groups[i].Answered[0].Calls != 4 {
		t.Errorf("%s", text)
	}
	if got := n.sluice(t, 0, "usage", "--routes"); !strings.Contains(got, "git_history_analysis (standard): 6 calls, 2 from the cache (33.3 %); served by place 1: 4") {
		t.Errorf("%s", got)
	}
	if got := n.sluice(t, 0, "cache", "clear"); !strings.Contains(got, "forgotten") {
		t.Errorf("%s", got)
	}
	if res := ask(); res.Cached {
		t.Error("cached after a clear")
	}
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

// headers makes HTTP calls whose metadata is in headers: the run and the batch
// are in the log, and the cache is shared within a scope.
func (n *served) headers(t *testing.T) {
	t.Helper()
	const body = `{"model":"fast","messages":[{"role":"user","content":"who shares this?"}]}`
	for i, tc := range []struct{ scope, skip, cached string }{
		{"", "", "false"},
		{"", "", "true"},
		{"a", "", "false"},
		{"a", "", "true"},
		{"a", "true", "false"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.http+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range map[string]string{
			"X-LLM-Cache-Scope": tc.scope, "X-LLM-Skip-Cache": tc.skip, "X-LLM-Run-Id": "run-7", "X-LLM-Batch-Id": "batch-7", "X-LLM-Process": "http",
		} {
			if v != "" {
				req.Header.Set(name, v)
			}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if got := resp.Header.Get("X-LLM-Cached"); got != tc.cached {
			t.Errorf("call %d: X-LLM-Cached is %q, not %q", i, got, tc.cached)
		}
	}
	text := n.sluice(t, 0, "usage", "--recent", "5", "--json")
	if strings.Count(text, `"run_id":"run-7","batch_id":"batch-7"`) != 5 {
		t.Errorf("%s", text)
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
