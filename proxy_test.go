package sluice_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/sluicetest"
	"github.com/sluice-llm/sluice/subjects"
)

// far starts a node that other nodes' proxies lead to: the mock, behind a token.
func far(t *testing.T) *sluice.Node {
	t.Helper()
	return sluicetest.Start(t, sluice.WithHTTP("127.0.0.1:0"), sluice.WithEnviron([]string{"SEMANTIC_ANALYSIS_MODE=mock", "SLUICE_HTTP_TOKEN=far-token"}))
}

// near starts a node that has nothing but its proxy.
func near(t *testing.T, url, token string) *sluice.Node {
	t.Helper()
	file := filepath.Join(t.TempDir(), "near.yaml")
	if err := os.WriteFile(file, []byte("providers: {proxy: {apiKeyEnvVar: FAR_TOKEN}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return sluicetest.Start(t, sluice.WithConfigFile(file), sluice.WithHTTP("127.0.0.1:0"),
		sluice.WithEnviron([]string{"LLM_CLI_PROXY_URL=" + url, "FAR_TOKEN=" + token}))
}

// TestProxy: a call goes through two Sluices, with its tier, process, task and
// class; both logs have it, and the near one says who answered over there.
func TestProxy(t *testing.T) {
	other := far(t)
	node := near(t, "http://"+other.HTTPAddr(), "far-token")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req := ask("hello over there")
	req.Tier, req.Process, req.Task, req.CallID = subjects.TierPremium, "wiki", "mock:in=3,out=5", "my-call"
	req.Tools = []subjects.Tool{{Name: "look"}}
	res, err := subjects.Call(ctx, node.Client(), subjects.ClassIngestion, req)
	if err != nil {
		t.Fatal(err)
	}
	if res.Provider != "proxy" || res.ModelRaw != "mock/mock-premium" || res.Usage.TotalTokens != 8 || res.Usage.Estimated || res.Content == "" || res.CostUSD != nil {
		t.Errorf("%+v", res)
	}
	req.CallID = ""
	deltas := 0
	streamed, err := subjects.CallStream(ctx, node.Client(), subjects.ClassIngestion, req, func(ev subjects.Event) error { deltas++; return nil })
	if err != nil || streamed.Content != res.Content || streamed.ModelRaw != res.ModelRaw || streamed.Usage != res.Usage || deltas < 2 {
		t.Errorf("%d deltas, %+v, %v", deltas, streamed, err)
	}
	for _, row := range recentRows(ctx, t, node.Client()) {
		if row.Provider != "proxy" || row.Process != "wiki" || row.TotalTokens != 8 || row.Outcome != subjects.OutcomeOK {
			t.Errorf("near: %+v", row)
		}
	}
	rows := recentRows(ctx, t, other.Client())
	if len(rows) != 2 {
		t.Fatalf("far: %d rows", len(rows))
	}
	for _, row := range rows {
		if row.Provider != "mock" || row.Tier != subjects.TierPremium || row.Process != "wiki" || row.Task != "mock:in=3,out=5" || row.Class != subjects.ClassIngestion || row.TotalTokens != 8 {
			t.Errorf("far: %+v", row)
		}
	}
	if !strings.HasPrefix(rows[1].ID, "my-call~0~") {
		t.Errorf("the far call's id is %q", rows[1].ID)
	}
	forced := ask("use it")
	forced.Tools, forced.ToolChoice, forced.Model = []subjects.Tool{{Name: "look"}}, &subjects.ToolChoice{Name: "look"}, "proxy/fast"
	if res, err := subjects.Call(ctx, node.Client(), subjects.ClassInteractive, forced); err != nil || len(res.ToolCalls) != 1 || res.ToolCalls[0].Name != "look" || res.FinishReason != subjects.FinishToolCalls || res.ModelRaw != "mock/mock-fast" {
		t.Errorf("%+v, %v", res, err)
	}
	var chat strings.Builder
	err = node.Client().Stream(ctx, &subjects.Msg{
		Subject: subjects.Complete(subjects.ClassInteractive), Header: subjects.Header{subjects.HeaderWire: {"openai-chat"}},
		Data: []byte(`{"model":"auto","stream":true,"user":"me","messages":[{"role":"user","content":"hi"}]}`),
	}, func(m *subjects.Msg) error { chat.Write(m.Data); return nil })
	if err != nil || !strings.Contains(chat.String(), `"finish_reason":"stop"`) {
		t.Errorf("%s, %v", chat.String(), err)
	}
}

// TestProxyErrors: the kind of the other side's error stays, and what it has
// tried is not tried again here.
func TestProxyErrors(t *testing.T) {
	for kind, want := range map[subjects.Kind]subjects.Kind{
		subjects.KindRateLimited: subjects.KindRateLimited, subjects.KindProvider: subjects.KindProvider,
		subjects.KindContentPolicy: subjects.KindContentPolicy, subjects.KindValidation: subjects.KindValidation,
		subjects.KindQuotaExhausted: subjects.KindQuotaExhausted, subjects.KindTimeout: subjects.KindTimeout,
		subjects.KindAuth: subjects.KindProviderUnavailable, // of one of its accounts
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream %t", kind, stream), func(t *testing.T) {
				t.Parallel() // nodes of its own: what fails is remembered
				proxyError(t, kind, want, stream)
			})
		}
	}
}

func proxyError(t *testing.T, kind, want subjects.Kind, stream bool) {
	t.Helper()
	node := near(t, "http://"+far(t).HTTPAddr(), "far-token")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req := ask("hello")
	req.Task = "mock:errors=0,retryAfter=1m,error=" + string(kind)
	if kind == subjects.KindProvider {
		req.Task = "mock:error=PROVIDER_ERROR,errors=9"
	}
	var err error
	if stream {
		req.Task += ",failAfter=1"
		_, err = subjects.CallStream(ctx, node.Client(), subjects.ClassInteractive, req, func(subjects.Event) error { return nil })
	} else {
		_, err = subjects.Call(ctx, node.Client(), subjects.ClassInteractive, req)
	}
	e := subjects.AsError(err)
	if e == nil || e.Kind != want || e.Provider != "proxy" {
		t.Fatalf("%v", err)
	}
	tries := 0
	for _, a := range e.Attempts {
		if a.Outcome != subjects.OutcomeSkipped {
			tries++
		}
	}
	if tries != 1 {
		t.Errorf("%d tries", tries)
	}
	if kind == subjects.KindRateLimited && e.RetryAfter != time.Minute {
		t.Errorf("wait %s", e.RetryAfter)
	}
}

// TestProxyNotThere: an address where nobody is, a token that is wrong, and a far
// side that cannot serve, are reasons in health.
func TestProxyNotThere(t *testing.T) {
	none := httptest.NewServer(nil)
	none.Close()
	idle := sluicetest.Start(t, sluice.WithHTTP("127.0.0.1:0"), sluice.WithEnviron(nil)) // no provider at all
	for name, tc := range map[string]struct{ url, token, reason string }{
		"nobody":       {none.URL, "", "connection refused; start the other side, or correct LLM_CLI_PROXY_URL"},
		"wrong token":  {"http://" + far(t).HTTPAddr(), "wrong", "the key from FAR_TOKEN was refused"},
		"cannot serve": {"http://" + idle.HTTPAddr(), "", "the other Sluice cannot serve now: no provider can serve in mode public"},
		"no address":   {"", "", "set LLM_CLI_PROXY_URL"},
	} {
		t.Run(name, func(t *testing.T) {
			node := near(t, tc.url, tc.token)
			var h subjects.Health
			if err := subjects.Query(t.Context(), node.Client(), subjects.QueryHealth, nil, &h); err != nil {
				t.Fatal(err)
			}
			if p := h.Providers["proxy"]; p.Available || !strings.Contains(p.Reason, tc.reason) {
				t.Errorf("%+v", p)
			}
		})
	}
}

// TestProxyCancel: a caller who leaves the near side ends the call on the far one.
func TestProxyCancel(t *testing.T) {
	other := far(t)
	node := near(t, "http://"+other.HTTPAddr(), "far-token")
	inFlight := func() int {
		var h subjects.Health
		if err := subjects.Query(t.Context(), other.Client(), subjects.QueryHealth, nil, &h); err != nil {
			t.Fatal(err)
		}
		return h.InFlightRequests
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		req := ask("hello")
		req.Task = "mock:latency=1h"
		_, err := subjects.Call(ctx, node.Client(), subjects.ClassInteractive, req)
		done <- err
	}()
	for inFlight() == 0 {
	}
	cancel()
	if err := <-done; subjects.KindOf(err) != subjects.KindCancelled {
		t.Error(err)
	}
	for inFlight() != 0 {
	}
}

// TestProxyCircle: proxies that lead in a circle end a call at once, with an error
// that says so, and a provider that stands behind the proxy answers.
func TestProxyCircle(t *testing.T) {
	var target atomic.Pointer[url.URL]
	relay := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target.Load())
		r.Out.Host = ""
	}})
	t.Cleanup(relay.Close)
	// Until the circle is closed, the relay leads to a Sluice that can serve.
	target.Store(&url.URL{Scheme: "http", Host: sluicetest.Start(t, sluice.WithHTTP("127.0.0.1:0")).HTTPAddr()})
	first := near(t, relay.URL, "")
	second := near(t, "http://"+first.HTTPAddr(), "")
	target.Store(&url.URL{Scheme: "http", Host: second.HTTPAddr()})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := subjects.Call(ctx, first.Client(), subjects.ClassInteractive, ask("round and round"))
	if e := subjects.AsError(err); e == nil || e.Kind != subjects.KindProviderUnavailable || !strings.Contains(e.Message, "the proxies lead in a circle; correct LLM_CLI_PROXY_URL") {
		t.Errorf("%v", err)
	}
	// The bound holds for circles through nodes that do not know each other.
	_, err = first.Client().Request(ctx, &subjects.Msg{
		Subject: subjects.Complete(subjects.ClassInteractive), Header: subjects.Header{subjects.HeaderHops: {"a,b,c,d"}},
		Data: []byte(`{"messages":[{"role":"user","content":"hi"}]}`),
	})
	if e := subjects.AsError(err); e == nil || e.Kind != subjects.KindProviderUnavailable || !strings.Contains(e.Message, "came through 4 proxies") {
		t.Errorf("%v", err)
	}
}

// TestBridge: the older bridge answers without a form of its own for streams and
// errors, and has no health; it is asked for text alone.
func TestBridge(t *testing.T) {
	bridge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/complete" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(`{"content":"from the bridge","provider":"copilot","model":"claude-haiku-4.5","tokens":{"input":9,"output":4,"total":13},"latencyMs":3}`))
	}))
	t.Cleanup(bridge.Close)
	node := near(t, bridge.URL, "")
	req := ask("hello")
	res, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, req)
	if err != nil || res.Content != "from the bridge" || res.ModelRaw != "copilot/claude-haiku-4.5" || res.Usage.InputTokens != 9 || res.Usage.OutputTokens != 4 || res.Usage.Estimated {
		t.Errorf("%+v, %v", res, err)
	}
	text := ""
	streamed, err := subjects.CallStream(t.Context(), node.Client(), subjects.ClassInteractive, req, func(ev subjects.Event) error { text += ev.Content; return nil })
	if err != nil || text != "from the bridge" || streamed.Usage.TotalTokens != 13 {
		t.Errorf("%q, %+v, %v", text, streamed, err)
	}
	req.Tools = []subjects.Tool{{Name: "f"}}
	if _, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, req); subjects.KindOf(err) != subjects.KindCapabilityMissing {
		t.Errorf("tools: %v", err)
	}
}
