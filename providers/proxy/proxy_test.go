package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/httpx"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "far.Token.51c2"

// made makes a proxy that leads to h.
func made(t *testing.T, h http.HandlerFunc) *Provider {
	t.Helper()
	s := httptest.NewServer(h)
	p := New(&config.Provider{ID: "proxy", BaseURL: s.URL, APIKeyEnv: "FAR", APIKey: config.NewSecret(token), IdleTimeout: time.Minute}, rest.Options{Version: "1"})
	t.Cleanup(func() {
		p.Close()
		s.Close()
	})
	return p
}

func job(t *testing.T, body string) *providers.Job {
	t.Helper()
	r, err := wire.Parse(wire.Native, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return &providers.Job{
		Request: r, Model: "fast", Tier: "fast", CallID: "call", Attempt: 2, Class: subjects.ClassIngestion, Hops: "a,b",
		Deadline: time.Now().Add(time.Minute),
	}
}

const plain = `{"messages":[{"role":"user","content":"hi"}]}`

// TestWhatGoesAlong: a tier is a tier over there, anything else a model; who calls
// and how long goes along, and no routing wish of the caller's.
func TestWhatGoesAlong(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]string{
		"fast":    `{"messages":[{"role":"user","content":"hi"}],"tier":"fast","task":"t","process":"p","skipCache":true,"forcePaid":true}`,
		"groq/ll": `{"messages":[{"role":"user","content":"hi"}],"model":"groq/ll","tier":"fast","task":"t","process":"p","skipCache":true,"forcePaid":true}`,
	} {
		p := made(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			h := r.Header
			ms, _ := strconv.Atoi(h.Get("X-Llm-Timeout-Ms"))
			if string(body) != want || r.URL.Path != "/api/complete" || h.Get("Authorization") != "Bearer "+token || h.Get("X-Llm-Hops") != "a,b" ||
				h.Get("X-Llm-Class") != "ingestion" || !strings.HasPrefix(h.Get("X-Llm-Call-Id"), "call~2~") || ms < 1 || ms > 60_000 {
				t.Errorf("%s %s %v", r.URL.Path, body, h)
			}
			_, _ = io.WriteString(w, `{"content":"x","provider":"groq","model":"m"}`)
		})
		j := job(t, `{"messages":[{"role":"user","content":"hi"}],"process":"p","task":"t","skipCache":true,"forcePaid":true,"provider":"proxy","privacy":"any","runId":"r"}`)
		j.Model = model
		resp, err := p.Complete(t.Context(), j)
		if err != nil || resp.Model != "groq/m" || resp.UsageKnown {
			t.Errorf("%+v, %v", resp, err)
		}
	}
}

// TestCapabilities: all of the wire of a Sluice, text alone of what is none, and
// what the configuration lists.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		body   string
		listed []string
		want   wire.Need
		fails  bool
	}{
		"a Sluice":           {200, `{"canServe":true}`, nil, wire.NativeNeeds, false},
		"one that is full":   {503, `{"canServe":false,"reasons":["shutting down"]}`, nil, wire.NativeNeeds, true},
		"a bridge":           {200, `{"status":"ok"}`, nil, wire.NeedStreaming, false},
		"without health":     {404, `not here`, nil, wire.NeedStreaming, false},
		"a bridge, as known": {404, `not here`, []string{"tools", "audio"}, wire.NeedTools, false},
	} {
		p := made(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/health" {
				t.Errorf("%s %s", r.Method, r.URL.Path)
			}
			w.WriteHeader(tc.status)
			_, _ = io.WriteString(w, tc.body)
		})
		if tc.listed != nil {
			p = New(&config.Provider{ID: "proxy", BaseURL: p.cfg.BaseURL, Capabilities: tc.listed}, rest.Options{})
			t.Cleanup(p.Close)
		}
		err := p.Check(t.Context())
		if p.Capabilities() != tc.want || (err != nil) != tc.fails || tc.fails && !strings.Contains(err.Error(), "shutting down") {
			t.Errorf("%s: %v, %v", name, p.Capabilities(), err)
		}
	}
}

// TestStreams: the result is the proper end, [DONE] alone is not, and an error in
// the stream is the other side's last word.
func TestStreams(t *testing.T) {
	t.Parallel()
	const result = "data: {\"type\":\"result\",\"content\":\"ab\",\"provider\":\"mock\",\"modelRaw\":\"m\"}\n\n"
	for name, tc := range map[string]struct {
		body, text string
		kind       subjects.Kind
		final      bool
	}{
		"whole":          {"data: {\"type\":\"delta\",\"content\":\"ab\"}\n\n" + result + "data: [DONE]\n\n", "ab", "", false},
		"no DONE":        {result, "ab", "", false},
		"a newer Sluice": {"data: {\"type\":\"thought\",\"content\":\"hm\"}\n\n" + result, "ab", "", false},
		"no result":      {"data: {\"type\":\"delta\",\"content\":\"a\"}\n\ndata: [DONE]\n\n", "a", subjects.KindProvider, false},
		"cut":            {"data: {\"type\":\"delta\",\"content\":\"a\"}\n\n", "a", subjects.KindProvider, false},
		"error":          {"data: {\"error\":{\"kind\":\"RATE_LIMITED\",\"message\":\"by " + token + "\",\"retryAfterMs\":7}}\n\n", "", subjects.KindRateLimited, true},
	} {
		p := made(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tc.body) })
		text := ""
		resp, err := p.Stream(t.Context(), job(t, plain), func(ev *wire.Event) error { text += ev.Text; return nil })
		e := subjects.AsError(err)
		switch {
		case text != tc.text || subjects.KindOf(err) != tc.kind:
			t.Errorf("%s: %q, %v", name, text, err)
		case err == nil && (resp.Model != "mock/m" || resp.FinishReason != ""):
			t.Errorf("%s: %+v", name, resp)
		case e != nil && (e.Final != tc.final || strings.Contains(e.Message, token) || tc.final && e.RetryAfter != 7*time.Millisecond):
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// FuzzRefine: whatever the other side answers with, the kind is one of the
// contract's, and nothing of its trail comes along.
func FuzzRefine(f *testing.F) {
	f.Add(429, `{"error":{"kind":"NO_PROVIDER","message":"x","status":429}}`)
	f.Add(503, `{"canServe":false,"reasons":["a"]}`)
	f.Add(401, `{"error":{"kind":"AUTH_ERROR","provider":"groq"}}`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		p := New(&config.Provider{ID: "proxy"}, rest.Options{})
		failure := &httpx.Failure{Status: status, Body: []byte(body)}
		kind, ok := p.refine(failure)
		if ok && !kind.Known() || !ok && kind != "" {
			t.Fatalf("%q %v", kind, ok)
		}
		if s := failure.ShowStatus; s != 0 && (s < 400 || s > 599) {
			t.Fatalf("status %d", s)
		}
		var far subjects.Error
		if json.Unmarshal([]byte(body), &far) == nil && far.Kind == subjects.KindNoProvider && kind == subjects.KindNoProvider {
			t.Fatal("the other side's chain is ours")
		}
	})
}
