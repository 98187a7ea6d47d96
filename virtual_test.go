package sluice_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/sluicetest"
	"github.com/sluice-llm/sluice/subjects"
)

// A virtual is a whole node on virtual time: NATS inside the process, the real
// database, and all vendors behind a transport without a network. Hours pass in a
// moment. Each provider speaks OpenAI's form under a host of its own name, and
// keeps its account.
type virtual struct {
	t      *testing.T
	ctx    context.Context
	up     *upstreams
	cfg    *config.Config
	data   string
	node   *sluice.Node
	events map[string]int
	opts   []sluice.Option
}

// fails is how a provider answers its n-th request, from 1; nil = as a model would.
type fails func(n int, r *http.Request) (*http.Response, error)

// upstreams answers for all vendors.
type upstreams struct {
	mu    sync.Mutex
	as    map[string]fails
	asked map[string]int
}

// on says how a provider answers from now on.
func (u *upstreams) on(provider string, f fails) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.as[provider] = f
}

// count returns how often a provider was asked, and begins anew.
func (u *upstreams) count(provider string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := u.asked[provider]
	u.asked[provider] = 0
	return n
}

// RoundTrip implements http.RoundTripper.
func (u *upstreams) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	id := strings.TrimSuffix(r.URL.Hostname(), ".test")
	if r.Method == http.MethodGet { // a look whether a local runner is there
		return answer(r, 200, nil, `{"data":[],"models":[]}`), nil
	}
	u.mu.Lock()
	u.asked[id]++
	n, as := u.asked[id], u.as[id]
	u.mu.Unlock()
	if as != nil {
		if resp, err := as(n, r); resp != nil || err != nil {
			return resp, err
		}
	}
	return answer(r, 200, nil, `{"choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":10}}`), nil
}

func answer(r *http.Request, status int, header map[string]string, body string) *http.Response {
	h := http.Header{"Content-Type": {"application/json"}}
	for k, v := range header {
		h.Set(k, v)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), ProtoMajor: 1, ProtoMinor: 1, Request: r}
}

// refuses answers with an error of OpenAI's form.
func refuses(status int, code string, header map[string]string) fails {
	return func(_ int, r *http.Request) (*http.Response, error) {
		return answer(r, status, header, fmt.Sprintf(`{"error":{"message":"no","type":%q,"code":%q}}`, code, code)), nil
	}
}

// The ways in which a provider fails, each in a form that a vendor's API has.
var (
	badKey     = refuses(401, "invalid_api_key", nil)
	noQuota    = refuses(429, "insufficient_quota", nil)
	tooFast    = refuses(429, "rate_limit_exceeded", map[string]string{"Retry-After": "7"})
	badPrompt  = refuses(400, "invalid_request_error", nil)
	badContent = refuses(400, "content_policy_violation", nil)
	broken     = refuses(500, "server_error", nil)
	hangs      = fails(func(_ int, r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	refused = fails(func(int, *http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}}
	})
)

// inBubble is set in the process of one test on virtual time.
const inBubble = "SLUICE_TEST_IN_BUBBLE"

// virtually runs a test on virtual time, in a process of its own: the NATS client
// and server keep timers for all of a process, and those of one bubble are of no
// use in another. Only the providers named can serve; edit may change the
// configuration before the node starts. A test has one of it.
func virtually(t *testing.T, providers []string, edit func(*config.Config), test func(*virtual), opts ...sluice.Option) {
	t.Helper()
	if os.Getenv(inBubble) == "" {
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.timeout", "5m") //nolint:gosec // this program
		again.Env = append(os.Environ(), inBubble+"=1")
		if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	synctest.Test(t, func(t *testing.T) {
		v := &virtual{t: t, up: &upstreams{as: map[string]fails{}, asked: map[string]int{}}, data: t.TempDir(), events: map[string]int{}, opts: opts}
		var cancel context.CancelFunc
		v.ctx, cancel = context.WithTimeout(context.Background(), 1000*time.Hour)
		t.Cleanup(cancel)
		cfg, err := config.Load(config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for id, p := range cfg.Providers {
			if id == "mock" {
				continue
			}
			p.Kind, p.BaseURL = config.KindOpenAI, ""
			for _, can := range providers {
				if can == id {
					p.BaseURL, p.APIKeyEnv, p.APIKey = "https://"+id+".test/v1", "", config.NewSecret("")
				}
			}
		}
		if edit != nil {
			edit(cfg)
		}
		v.cfg = cfg
		v.start()
		test(v)
	})
}

func (v *virtual) start() {
	v.t.Helper()
	v.node = sluicetest.Start(v.t, append([]sluice.Option{sluice.WithData(v.data), sluice.WithConfig(v.cfg), sluice.WithTransport(v.up)}, v.opts...)...)
	if _, err := v.node.Conn().Subscribe("llm.>", func(m *nats.Msg) { v.events[m.Subject]++ }); err != nil {
		v.t.Fatal(err)
	}
	v.pass(3 * time.Second) // the providers have been looked at
}

// pass lets time pass.
func (v *virtual) pass(d time.Duration) { <-time.After(d) }

// restart ends the node and starts another on its data.
func (v *virtual) restart() {
	v.t.Helper()
	if err := v.node.Close(); err != nil {
		v.t.Fatal(err)
	}
	v.start()
}

// call makes a call, and says who answered it or how it failed.
func (v *virtual) call(change ...func(*subjects.Request)) (*subjects.Result, *subjects.Error) {
	v.t.Helper()
	req := ask("hi")
	for _, c := range change {
		c(req)
	}
	res, err := subjects.Call(v.ctx, v.node.Client(), subjects.ClassInteractive, req)
	if err != nil {
		return nil, subjects.AsError(err)
	}
	return res, nil
}

// served is call for a test that wants to know who answers.
func (v *virtual) served(want string, change ...func(*subjects.Request)) {
	v.t.Helper()
	res, err := v.call(change...)
	switch {
	case err != nil:
		v.t.Fatalf("at %s: %v; want an answer of %s", time.Now().Format(time.TimeOnly), err, want)
	case res.Provider != want:
		v.t.Fatalf("at %s: %s answers, want %s; %+v", time.Now().Format(time.TimeOnly), res.Provider, want, res.Attempts)
	}
}

func (v *virtual) provider(id string) subjects.ProviderInfo {
	v.t.Helper()
	var all subjects.ProvidersReply
	if err := subjects.Query(v.ctx, v.node.Client(), subjects.QueryProviders, nil, &all); err != nil {
		v.t.Fatal(err)
	}
	for _, p := range all.Providers {
		if p.Provider == id {
			return p
		}
	}
	v.t.Fatal("no provider " + id)
	return subjects.ProviderInfo{}
}

func (v *virtual) route(q subjects.RouteQuery) *subjects.Route {
	v.t.Helper()
	var r subjects.Route
	if err := subjects.Query(v.ctx, v.node.Client(), subjects.QueryRoute, q, &r); err != nil {
		v.t.Fatal(err)
	}
	return &r
}

func show(x any) string {
	b, _ := json.Marshal(x)
	return string(b)
}
