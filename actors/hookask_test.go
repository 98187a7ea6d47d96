package actors

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/hooks"
	"github.com/sluice-llm/sluice/subjects"
)

// TestManyCallsOneHungHook: no more than the bound ever hang in a hook; every call
// gets its verdict within the timeout, at once where all places are lost, and once
// they return the hook is asked again.
func TestManyCallsOneHungHook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const calls = 1000
		d := newDesk(t, config.OnErrorLocal)
		stop := make(chan struct{})
		d.hook.set(wrongHooks["hanging"](stop))
		crowd := func(bound time.Duration) {
			var wg sync.WaitGroup
			for range calls {
				wg.Go(func() {
					start := time.Now()
					if got := d.ask(t.Context(), config.HookSensitivity); !strings.HasPrefix(got, "local: ") {
						t.Errorf("%q", got)
					}
					if took := time.Since(start); took > bound {
						t.Errorf("a call was held up for %s", took)
					}
				})
			}
			wg.Wait()
		}
		crowd(250 * time.Millisecond)
		crowd(0)
		if n := d.hook.most.Load(); n != maxHookQuestions || d.classes.hung.Load() != maxHookQuestions {
			t.Errorf("%d questions hang, %d are counted", n, d.classes.hung.Load())
		}
		if got := d.ask(t.Context(), config.HookBudget); got == "allow" { // that hook has places of its own
			t.Error("the budget hook does not hang")
		}
		close(stop)
		d.hook.set(answers)
		synctest.Wait()
		if got := d.ask(t.Context(), config.HookSensitivity); got != hooks.Internal {
			t.Errorf("%q", got)
		}
		if d.classes.hung.Load() != 0 || len(d.classes.places) != 0 {
			t.Errorf("%d hang, %d places are taken", d.classes.hung.Load(), len(d.classes.places))
		}
	})
}

// TestHookQuestionsWaitForAPlace: more calls than places are all answered by a hook
// that answers, within its timeout.
func TestHookQuestionsWaitForAPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, config.OnErrorDeny)
		d.hook.set(func(context.Context) error { pass(50 * time.Millisecond); return nil })
		var wg sync.WaitGroup
		for range 4 * maxHookQuestions {
			wg.Go(func() {
				if got := d.ask(t.Context(), config.HookSensitivity); got != hooks.Internal {
					t.Errorf("%q", got)
				}
			})
		}
		wg.Wait()
		if d.hook.most.Load() != maxHookQuestions || len(d.heard()) > 0 {
			t.Errorf("%d at once", d.hook.most.Load())
		}
	})
}

// TestHookWatch holds against random outcomes what the events of a hook promise:
// they alternate, beginning with a failure; two are a second apart at least; and
// once nothing changes any more, the last one is true.
func TestHookWatch(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			var said []*subjects.HookEvent
			sys := newSystem(slog.New(slog.DiscardHandler))
			defer sys.close()
			w := &hookWatch{
				log: slog.New(slog.DiscardHandler), now: time.Now, again: sys.after, hooks: map[string]*hookState{},
				emit: func(_ string, ev any) { said = append(said, ev.(*subjects.HookEvent)) },
			}
			pid := sys.spawn(w)
			points := []*hookPoint{newHookPoint("budget", hooks.QuestionOverBudget), newHookPoint("budget", hooks.QuestionTrackCost)}
			fails := make([]bool, len(points))
			for range 200 {
				i := rnd.IntN(len(points))
				why := ""
				if fails[i] = rnd.IntN(2) == 0; fails[i] {
					why = "it fails"
				}
				sys.send(pid, hookOutcome{point: points[i], why: why})
				pass(time.Duration(rnd.IntN(700)) * time.Millisecond)
			}
			pass(2 * hookQuiet)
			synctest.Wait()
			for i, ev := range said {
				if ev.OK != (i%2 == 1) || i > 0 && ev.At.Sub(said[i-1].At.Time) < hookQuiet {
					t.Errorf("seed %d: event %d: %+v", seed, i, ev)
				}
			}
			if last := said[len(said)-1]; last.OK == (fails[0] || fails[1]) {
				t.Errorf("seed %d: at the end %+v, and the questions fail: %v", seed, last, fails)
			}
		})
	}
}

// TestCosts: all costs are told, those at the end within the grace; a tracker that
// hangs holds nobody up, and what it was not told of is counted.
func TestCosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, config.OnErrorAllow)
		d.hook.set(func(context.Context) error { pass(time.Millisecond); return nil })
		for range maxCosts {
			d.track(&hooks.BudgetCost{})
		}
		d.close()
		if n := d.hook.costs.Load(); n != maxCosts {
			t.Errorf("%d of %d costs were told", n, maxCosts)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		d := newDesk(t, config.OnErrorAllow)
		t.Cleanup(func() { close(stop) })
		d.hook.set(wrongHooks["hanging"](stop))
		start := time.Now()
		for range 2 * maxCosts {
			d.track(&hooks.BudgetCost{Task: secret})
		}
		if time.Since(start) > 0 {
			t.Error("a call waits for the tracker")
		}
		d.close()
		if took := time.Since(start); took > costGrace+250*time.Millisecond {
			t.Errorf("closing took %s", took)
		}
		log := d.log.String()
		if !strings.Contains(log, "was not told of costs") || strings.Contains(log, secret) || len(d.heard()) != 1 {
			t.Errorf("%+v\n%s", d.heard(), log)
		}
	})
}

// TestLostCostsAreCounted: the log says how many, and not a line for each.
func TestLostCostsAreCounted(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	now := time.Unix(1, 0)
	w := &hookWatch{log: slog.New(slog.NewTextHandler(&out, nil)), now: func() time.Time { return now }}
	for range 1000 {
		w.receive((*actor.PID)(nil), costLost{})
		now = now.Add(30 * time.Millisecond)
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 3 || !strings.HasSuffix(lines[0], "costs=1") || !strings.HasSuffix(lines[1], "costs=334") {
		t.Errorf("%s", out.String())
	}
}

// TestHookRules: who is asked, and what an edit of the configuration changes.
func TestHookRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, config.OnErrorDeny)
		if log := d.log.String(); strings.Count(log, "a hook is asked") != 3 || strings.Contains(log, "llm.hook.") {
			t.Error(log) // the embedder's implementation wins
		}
		d.reconfigure(&config.Config{})
		for name, onError := range map[string]string{config.HookMock: "allow", config.HookBudget: "allow", config.HookSensitivity: "local"} {
			if !d.asks(name) {
				t.Errorf("%s is not asked", name)
			}
			d.hook.set(wrongHooks["slow"](nil))
			start := time.Now()
			if got := d.ask(t.Context(), name); !strings.HasPrefix(got, onError) || time.Since(start) != defaultHookTimeout {
				t.Errorf("%s: %q after %s", name, got, time.Since(start))
			}
		}
		d.o.Sensitivity, d.o.Mock, d.o.Budget = nil, nil, nil
		d.log.Reset()
		d.reconfigure(&config.Config{})
		d.reconfigure(&config.Config{})
		if n := strings.Count(d.log.String(), "is not asked any more"); n != 3 || d.asks(config.HookSensitivity) || d.asks(config.HookBudget) || d.asks(config.HookMock) {
			t.Errorf("%s", d.log.String())
		}
		for _, name := range []string{config.HookMock, config.HookBudget, config.HookSensitivity} {
			if got := d.ask(t.Context(), name); got != "allow" {
				t.Errorf("%s: %q", name, got)
			}
		}
		d.track(&hooks.BudgetCost{})
	})
}

// TestHookOverNATS: a service that is not there fails at once, one that is silent
// at the timeout, and one that answers is heard.
func TestHookOverNATS(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	srv, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	defer func() { srv.Shutdown(); srv.WaitForShutdown() }()
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sys := newSystem(slog.New(slog.DiscardHandler))
	defer sys.close()
	events := make(chan *subjects.HookEvent, 10)
	cfg := &config.Config{Hooks: map[string]config.Hook{config.HookSensitivity: {Subject: subjects.HookSensitivity, Timeout: 100 * time.Millisecond, OnError: config.OnErrorDeny}}}
	d := newHookDesk(sys, cfg, hookOptions{
		Transport: subjects.NewClient(nc), Log: slog.New(slog.DiscardHandler),
		Emit: func(_ string, ev any) { events <- ev.(*subjects.HookEvent) },
	})
	defer d.close()
	ask := func() verdict { return d.sensitivity(t.Context(), &hooks.Content{Text: secret}) }
	if v := ask(); v.err == nil || v.err.Status() != 503 || !strings.Contains(v.err.Message, "nobody answers llm.hook.sensitivity") {
		t.Errorf("%+v", v)
	}
	silent, err := nc.SubscribeSync(subjects.HookSensitivity)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if v := ask(); v.err == nil || !strings.Contains(v.err.Message, "no answer of llm.hook.sensitivity within 100ms") {
		t.Errorf("%+v", v)
	}
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("given up after %s", took)
	}
	_ = silent.Unsubscribe()
	if _, err := nc.Subscribe(subjects.HookSensitivity, func(m *nats.Msg) {
		_ = m.Respond([]byte(fmt.Sprintf(`{"sensitivity":%q,"allowedProviders":["ollama"]}`, config.Internal)))
	}); err != nil {
		t.Fatal(err)
	}
	if v := ask(); v.err != nil || v.sensitivity != config.Internal || len(v.only) != 1 {
		t.Errorf("%+v", v)
	}
	if first, second := <-events, <-events; first.OK || !second.OK {
		t.Errorf("%+v, %+v", first, second)
	}
}

// BenchmarkHook is a question to a hook in the same process.
func BenchmarkHook(b *testing.B) {
	d := newDesk(b, config.OnErrorAllow)
	content := &hooks.Content{}
	b.ReportAllocs()
	for b.Loop() {
		if v := d.sensitivity(b.Context(), content); v.err != nil {
			b.Fatal(v.err)
		}
	}
}
