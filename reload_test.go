package sluice_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fakeopenai"
	"github.com/sluice-llm/sluice/sluicetest"
	"github.com/sluice-llm/sluice/subjects"
)

// reloading is a node whose configuration file the test edits.
type reloading struct {
	t      *testing.T
	ctx    context.Context
	file   string
	node   *sluice.Node
	nc     *nats.Conn
	events chan *nats.Msg
}

func newReloading(t *testing.T, yaml string, env ...string) *reloading {
	t.Helper()
	r := &reloading{t: t, file: filepath.Join(t.TempDir(), "llm-providers.yaml"), events: make(chan *nats.Msg, 100)}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	r.write(yaml)
	r.node = sluicetest.Start(t, sluice.WithConfigFile(r.file), sluice.WithNATSListen("127.0.0.1:0"), sluice.WithEnviron(env))
	nc, err := nats.Connect(r.node.NATSURL(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := nc.ChanSubscribe(subjects.ConfigStatus, r.events); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	r.nc = nc
	return r
}

// write replaces the file as editors do: another file takes its name.
func (r *reloading) write(yaml string) {
	r.t.Helper()
	tmp := r.file + "~"
	if err := errors.Join(os.WriteFile(tmp, []byte(yaml), 0o600), os.Rename(tmp, r.file)); err != nil {
		r.t.Fatal(err)
	}
}

// event waits for what is said of an edit.
func (r *reloading) event() subjects.ConfigEvent {
	r.t.Helper()
	select {
	case m := <-r.events:
		var e subjects.ConfigEvent
		if err := json.Unmarshal(m.Data, &e); err != nil {
			r.t.Fatal(err)
		}
		return e
	case <-r.ctx.Done():
		r.t.Fatal("nothing is said of the edit")
		return subjects.ConfigEvent{}
	}
}

func (r *reloading) chain(q subjects.RouteQuery) string {
	r.t.Helper()
	var route subjects.Route
	if err := subjects.Query(r.ctx, r.node.Client(), subjects.QueryRoute, q, &route); err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, c := range route.Chain {
		out = append(out, c.Provider+"/"+c.Model)
	}
	return strings.Join(out, " > ")
}

// TestReload: an edit is taken over while the node runs; a broken one changes
// nothing and is reported, and so is its repair.
func TestReload(t *testing.T) {
	t.Parallel()
	r := newReloading(t, "default_tier: fast\n", "OPENAI_API_KEY=sk-1", "GROQ_API_KEY=gsk-1")
	local := " > dmr/ai/llama3.2:3B-Q4_K_M > ollama/llama3.2"
	first := r.chain(subjects.RouteQuery{})
	if !strings.HasPrefix(first, "groq/llama-3.1-8b-instant > openai/gpt-5.4-mini") {
		t.Fatal(first, local)
	}
	r.write("default_tier: standard\nprovider_priority: {standard: [openai, groq]}\n")
	if e := r.event(); !e.OK || e.File != r.file {
		t.Fatalf("%+v", e)
	}
	second := r.chain(subjects.RouteQuery{})
	if !strings.HasPrefix(second, "openai/gpt-5.4 > groq/llama-3.3-70b-versatile") {
		t.Fatal(second)
	}
	r.write("default_tier: standrad\n")
	if e := r.event(); e.OK || !strings.Contains(e.Error, "did you mean \"standard\"") {
		t.Fatalf("%+v", e)
	}
	if got := r.chain(subjects.RouteQuery{}); got != second {
		t.Errorf("a broken edit changed the route to %s", got)
	}
	var reply subjects.ReloadReply
	err := subjects.Query(r.ctx, r.node.Client(), subjects.AdminReload, nil, &reply)
	if subjects.KindOf(err) != subjects.KindValidation || !strings.Contains(err.Error(), "line 1") && !strings.Contains(err.Error(), ":1:") {
		t.Errorf("who asks hears of the fault: %v", err)
	}
	r.event()
	r.write("default_tier: standard\nprovider_priority: {standard: [openai, groq]}\n")
	if e := r.event(); !e.OK {
		t.Fatalf("the repair: %+v", e)
	}
	if err := subjects.Query(r.ctx, r.node.Client(), subjects.AdminReload, nil, &reply); err != nil || reply.Changed {
		t.Errorf("nothing has changed: %+v, %v", reply, err)
	}
}

// TestReloadKeepsRunningCalls: a call that has begun keeps what it began with,
// and every later one goes by the new.
func TestReloadKeepsRunningCalls(t *testing.T) {
	t.Parallel()
	gate := fakeopenai.NewGate()
	old, next := fakeopenai.New(fakeopenai.WithGate(gate)).Start(t), fakeopenai.New().Start(t)
	yaml := func(base, model string) string {
		return "providers:\n  openai:\n    baseUrl: " + base + "\n    models: {standard: " + model + "}\nprovider_priority: {standard: [openai]}\n"
	}
	r := newReloading(t, yaml(old.BaseURL(), "gpt-old"), "OPENAI_API_KEY=sk-1")
	call := func(text string) chan string {
		done := make(chan string, 1)
		go func() {
			res, err := subjects.Call(r.ctx, subjects.NewClient(r.nc), "interactive", &subjects.Request{
				Prompt: subjects.Prompt{Messages: []subjects.Message{{Role: "user", Content: subjects.Text(text)}}},
			})
			if err != nil {
				done <- err.Error()
				return
			}
			done <- res.ModelRaw
		}()
		return done
	}
	running := call("one")
	if err := gate.WaitHeld(r.ctx, 1); err != nil {
		t.Fatal(err)
	}
	r.write(yaml(next.BaseURL(), "gpt-new"))
	if e := r.event(); !e.OK {
		t.Fatalf("%+v", e)
	}
	if got := <-call("two"); got != "gpt-new" {
		t.Errorf("a later call got %s", got)
	}
	gate.Open()
	if got := <-running; got != "gpt-old" {
		t.Errorf("the running call got %s", got)
	}
}

// TestReloadAddsAProvider: a provider that an edit adds is called at once, by its
// own subject too, which a program that may be an outside provider cannot take;
// one that an edit takes away is gone.
func TestReloadAddsAProvider(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"model":"m","choices":[{"message":{"content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":1}}`)
	}))
	t.Cleanup(up.Close)
	r := newReloading(t, "mode: public\n")
	r.write("providers:\n  team-llama:\n    api: openai\n    baseUrl: " + up.URL + "/v1\n    models: {standard: m}\n")
	if e := r.event(); !e.OK {
		t.Fatalf("%+v", e)
	}
	req := &subjects.Msg{Subject: subjects.Provider("team-llama"), Data: []byte(`{"messages":[{"role":"user","content":"hi"}]}`)}
	if m, err := subjects.NewClient(r.nc).Request(r.ctx, req); err != nil || m.Header.Get(subjects.HeaderProvider) != "team-llama" {
		t.Errorf("%v, %v", m, err)
	}
	before := r.nc.LastError()
	if _, err := r.nc.SubscribeSync(subjects.Provider("team-llama")); err == nil {
		_ = r.nc.Flush()
		if err := r.nc.LastError(); err == before || !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("anybody may take the calls of the new provider: %v", err)
		}
	}
	r.write("mode: public\n")
	if e := r.event(); !e.OK {
		t.Fatalf("%+v", e)
	}
	if _, err := subjects.NewClient(r.nc).Request(r.ctx, req); subjects.KindOf(err) != subjects.KindValidation {
		t.Errorf("a provider that is gone: %v", err)
	}
	r.write("providers:\n  team-llama:\n    api: openai\n    baseUrl: " + up.URL + "/v1\n    models: {standard: m}\n")
	if e := r.event(); !e.OK {
		t.Fatalf("%+v", e)
	}
	req.Data = []byte(`{"messages":[{"role":"user","content":"hi again"}]}`)
	if _, err := subjects.NewClient(r.nc).Request(r.ctx, req); err != nil {
		t.Errorf("a provider that is back: %v", err)
	}
	info, err := r.nc.RequestWithContext(r.ctx, "$SRV.INFO.llm", nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(info.Data), `"`+subjects.Provider("team-llama")+`"`); n != 1 {
		t.Errorf("%d endpoints of a provider that went and came back", n)
	}
}

// TestReloadForgetsWhatBeganBefore: a call that was still being classified when the
// cache was cleared for an edit leaves nothing of the old configuration there.
func TestReloadForgetsWhatBeganBefore(t *testing.T) {
	t.Parallel()
	up := fakeopenai.New().Start(t)
	yaml := func(model string) string {
		return "providers:\n  openai:\n    models: {standard: " + model + "}\nprovider_priority: {standard: [openai]}\nhooks: {sensitivity: {timeoutMs: 60000}}\n"
	}
	r := newReloading(t, yaml("gpt-old"), "OPENAI_API_KEY=sk-1", "LLM_BASE_URL_OPENAI="+up.BaseURL())
	asked := make(chan *nats.Msg, 10)
	if _, err := r.nc.ChanSubscribe("llm.hook.sensitivity", asked); err != nil || r.nc.Flush() != nil {
		t.Fatal(err)
	}
	public := func(m *nats.Msg) { _ = m.Respond([]byte(`{"sensitivity":"public"}`)) }
	call := func() (string, error) {
		req := ask("the same")
		req.SkipCache = false
		res, err := subjects.Call(r.ctx, r.node.Client(), subjects.ClassInteractive, req)
		if err != nil {
			return "", err
		}
		return res.ModelRaw, nil
	}
	first := make(chan string, 1)
	go func() {
		model, err := call()
		if err != nil {
			model = err.Error()
		}
		first <- model
	}()
	m := <-asked
	r.write(yaml("gpt-new"))
	if e := r.event(); !e.OK {
		t.Fatalf("%+v", e)
	}
	public(m)
	if got := <-first; got != "gpt-old" {
		t.Errorf("the call that had begun got %s", got)
	}
	go func() { public(<-asked) }()
	if got, err := call(); err != nil || got != "gpt-new" {
		t.Errorf("the next call got %s, %v", got, err)
	}
}

// TestReloadInABusyFolder: a log that is written all the time beside the file does
// not keep its edits from being noticed, and neither does a link stand in the way
// that leads to another file from then on, as those of Kubernetes' volumes do.
func TestReloadInABusyFolder(t *testing.T) {
	t.Parallel()
	r := newReloading(t, "default_tier: fast\n", "OPENAI_API_KEY=sk-1")
	dir := filepath.Dir(r.file)
	ctx, stop := context.WithCancel(r.ctx)
	written := make(chan error, 1)
	go func() {
		every := time.NewTicker(20 * time.Millisecond)
		defer every.Stop()
		for {
			select {
			case <-ctx.Done():
				written <- nil
				return
			case at := <-every.C:
				if err := os.WriteFile(filepath.Join(dir, "node.log"), []byte(at.String()), 0o600); err != nil {
					written <- err
					return
				}
			}
		}
	}()
	r.write("default_tier: standard\n")
	if e := r.event(); !e.OK {
		t.Fatalf("%+v", e)
	}
	volume := func(name, yaml string) {
		t.Helper()
		data := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(filepath.Join(data, "c.yaml"), []byte(yaml), 0o600),
			os.Symlink(name, data+".link"), os.Rename(data+".link", filepath.Join(dir, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	volume("one", "default_tier: premium\n")
	if err := errors.Join(os.Symlink(filepath.Join("..data", "c.yaml"), r.file+"~"), os.Rename(r.file+"~", r.file)); err != nil {
		t.Fatal(err)
	}
	if e := r.event(); !e.OK {
		t.Fatalf("%+v", e)
	}
	volume("two", "default_tier: fast\n")
	if e := r.event(); !e.OK {
		t.Fatalf("%+v", e)
	}
	if chain := r.chain(subjects.RouteQuery{}); !strings.HasPrefix(chain, "openai/gpt-5.4-mini") {
		t.Error(chain)
	}
	if err := os.WriteFile(filepath.Join(dir, "two", "c.yaml"), []byte("default_tier: standard\n"), 0o600); err != nil { // in place
		t.Fatal(err)
	}
	if e := r.event(); !e.OK {
		t.Fatalf("%+v", e)
	}
	stop()
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// onWarning does something at the first warning of a log.
type onWarning struct {
	slog.Handler
	do *sync.Once
	f  func()
}

func (h onWarning) Enabled(context.Context, slog.Level) bool { return true }

func (h onWarning) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		h.do.Do(h.f)
	}
	return nil
}

// TestReloadOfAnEditWhileStarting: an edit that comes after the file was read and
// before it is followed is taken over. The node remarks on the file in between.
func TestReloadOfAnEditWhileStarting(t *testing.T) {
	t.Parallel()
	r := &reloading{t: t, file: filepath.Join(t.TempDir(), "llm-providers.yaml")}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r.write("default_tier: fast\nsensitivity: {allow: {internal: [nobody-yet]}}\n")
	log := slog.New(onWarning{slog.DiscardHandler, &sync.Once{}, func() { r.write("default_tier: premium\n") }})
	r.node = sluicetest.Start(t, sluice.WithConfigFile(r.file), sluice.WithEnviron([]string{"OPENAI_API_KEY=sk-1"}), sluice.WithLogger(log))
	for !strings.HasPrefix(r.chain(subjects.RouteQuery{}), "openai/gpt-5.5") { // ends with r.ctx
	}
}
