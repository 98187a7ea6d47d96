package actors

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/hooks"
	"github.com/sluice-llm/sluice/subjects"
)

// secret is what no log line, event or error may repeat.
const secret = "the-prompt"

// fakeHook is all three hooks; each question does what act does first.
type fakeHook struct {
	mu    sync.Mutex // guards act
	act   func(context.Context) error
	class *hooks.Classification
	over  *hooks.BudgetAnswer
	inside,
	most atomic.Int64 // questions inside it now, and the most that ever were
	costs atomic.Int64
}

func (f *fakeHook) set(act func(context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.act = act
}

func (f *fakeHook) do(ctx context.Context) error {
	n := f.inside.Add(1)
	defer f.inside.Add(-1)
	for old := f.most.Load(); n > old && !f.most.CompareAndSwap(old, n); old = f.most.Load() {
	}
	f.mu.Lock()
	act := f.act
	f.mu.Unlock()
	return act(ctx)
}

func (f *fakeHook) MockResponse(ctx context.Context, _ *hooks.MockRequest) (string, error) {
	return "from the hook", f.do(ctx)
}

func (f *fakeHook) OverBudget(ctx context.Context, _ *hooks.BudgetQuestion) (*hooks.BudgetAnswer, error) {
	return f.over, f.do(ctx)
}

func (f *fakeHook) TrackCost(ctx context.Context, _ *hooks.BudgetCost) error {
	err := f.do(ctx)
	if err == nil {
		f.costs.Add(1)
	}
	return err
}

func (f *fakeHook) Classify(ctx context.Context, _ *hooks.Content) (*hooks.Classification, error) {
	return f.class, f.do(ctx)
}

func answers(context.Context) error { return nil }

func refuses(context.Context) error { return errors.New(secret) }

// desk is a hookDesk with what it says.
type desk struct {
	*hookDesk
	cfg    *config.Config
	hook   *fakeHook
	log    bytes.Buffer
	mu     sync.Mutex // guards events
	events []*subjects.HookEvent
}

// heard returns the events so far.
func (d *desk) heard() []*subjects.HookEvent {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*subjects.HookEvent(nil), d.events...)
}

// newDesk starts a desk whose hooks are Go code, each with a rule.
func newDesk(t testing.TB, onError string) *desk {
	t.Helper()
	d := &desk{
		hook: &fakeHook{act: answers, class: &hooks.Classification{Sensitivity: hooks.Internal}, over: &hooks.BudgetAnswer{}},
		cfg:  &config.Config{Hooks: map[string]config.Hook{}},
	}
	d.cfg.Costs.Fallback = true
	for _, name := range []string{config.HookMock, config.HookBudget, config.HookSensitivity} {
		d.cfg.Hooks[name] = config.Hook{Subject: "llm.hook." + name, Timeout: 250 * time.Millisecond, OnError: onError}
	}
	log := slog.New(slog.NewTextHandler(&d.log, nil))
	sys := newSystem(log)
	t.Cleanup(sys.close)
	d.hookDesk = newHookDesk(sys, d.cfg, hookOptions{
		Mock: d.hook, Budget: d.hook, Sensitivity: d.hook, Log: log,
		Emit: func(subject string, event any) {
			ev := event.(*subjects.HookEvent)
			if subject != subjects.HookStatus(ev.Hook) {
				t.Errorf("an event of %s on %s", ev.Hook, subject)
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.events = append(d.events, ev)
		},
	})
	t.Cleanup(d.close)
	return d
}

// ask asks one hook and says in a word what became of the call.
func (d *desk) ask(ctx context.Context, name string) string {
	if name == config.HookMock {
		text, err := d.mock().MockResponse(ctx, &hooks.MockRequest{Text: secret})
		switch {
		case errors.Is(err, hooks.ErrBuiltIn):
			return "allow"
		case err != nil:
			return err.Error()
		}
		return text
	}
	var v verdict
	if name == config.HookBudget {
		v = d.budget(ctx, &hooks.BudgetQuestion{RunID: "r"})
	} else {
		v = d.sensitivity(ctx, &hooks.Content{Text: secret})
	}
	switch {
	case v.err != nil:
		return v.err.Error()
	case v.localOnly != "":
		return "local: " + v.localOnly
	case v.freeOnly != "":
		return "free: " + v.freeOnly
	case v.sensitivity != "":
		return v.sensitivity
	}
	return "allow"
}

var wrongHooks = map[string]func(stop <-chan struct{}) func(context.Context) error{
	"slow": func(<-chan struct{}) func(context.Context) error {
		return func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	},
	"hanging": func(stop <-chan struct{}) func(context.Context) error {
		return func(context.Context) error { <-stop; return nil }
	},
	"failing": func(<-chan struct{}) func(context.Context) error { return refuses },
	"panicking": func(<-chan struct{}) func(context.Context) error {
		return func(context.Context) error { panic(secret) }
	},
	"faulty": func(<-chan struct{}) func(context.Context) error {
		return func(context.Context) error { return []error{}[len(secret)] }
	},
	"leaving": func(<-chan struct{}) func(context.Context) error {
		return func(context.Context) error { runtime.Goexit(); return nil }
	},
}

// TestHookFails: whatever a hook does wrong, a call is held up no longer than the
// hook's timeout, onError decides, one event says so and one that it answers
// again, and nothing of a prompt is repeated.
func TestHookFails(t *testing.T) {
	t.Parallel()
	for how, wrong := range wrongHooks {
		for _, name := range []string{config.HookMock, config.HookBudget, config.HookSensitivity} {
			for _, onError := range []string{config.OnErrorAllow, config.OnErrorLocal, config.OnErrorDeny} {
				t.Run(how+" "+name+" "+onError, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { failsOnce(t, wrong, how, name, onError) })
				})
			}
		}
	}
}

func failsOnce(t *testing.T, wrong func(<-chan struct{}) func(context.Context) error, how, name, onError string) {
	stop := make(chan struct{})
	d := newDesk(t, onError)
	t.Cleanup(func() { close(stop) })
	good := map[string]string{config.HookMock: "from the hook", config.HookBudget: "allow", config.HookSensitivity: "internal"}[name]
	if got := d.ask(t.Context(), name); got != good {
		t.Fatalf("%s", got)
	}
	d.hook.set(wrong(stop))
	want := onError
	switch {
	case onError == config.OnErrorDeny:
		want = map[string]string{config.HookMock: "PROVIDER_UNAVAILABLE: ", config.HookBudget: "BUDGET_EXCEEDED: ", config.HookSensitivity: "NO_PROVIDER: "}[name]
	case name == config.HookMock:
		want = "allow"
	}
	for range 3 {
		start := time.Now()
		got := d.ask(t.Context(), name)
		if took := time.Since(start); took > 250*time.Millisecond || took > 0 && how != "slow" && how != "hanging" {
			t.Errorf("it held a call up for %s", took)
		}
		if !strings.HasPrefix(got, want) || strings.Contains(got, secret) {
			t.Errorf("%q, want %s", got, want)
		}
	}
	pass(hookQuiet)
	d.hook.set(answers)
	for range 3 {
		if got := d.ask(t.Context(), name); got != good {
			t.Errorf("%q", got)
		}
	}
	ev := d.heard()
	if len(ev) != 2 || ev[0].OK || ev[0].Hook != name || ev[0].OnError != onError || ev[0].Reason == "" || !ev[1].OK || ev[1].Hook != name {
		t.Errorf("%+v", ev)
	} else if log := d.log.String() + ev[0].Reason; strings.Contains(log, secret) || !strings.Contains(log, "a hook fails") || !strings.Contains(log, "answers again") {
		t.Error(log)
	}
}

// TestHookLies: an answer that is none is a failure.
func TestHookLies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, config.OnErrorLocal)
		for _, class := range []*hooks.Classification{nil, {}, {Sensitivity: "Public"}, {Sensitivity: secret}} {
			d.hook.class = class
			v := d.sensitivity(t.Context(), &hooks.Content{})
			if v.localOnly == "" || !v.unclassified || v.sensitivity != "" || v.err != nil {
				t.Errorf("%+v", v)
			}
		}
		d.hook.over = nil
		if v := d.budget(t.Context(), &hooks.BudgetQuestion{}); v.localOnly == "" || v.err != nil {
			t.Errorf("%+v", v)
		}
		if ev := d.heard(); len(ev) != 2 || strings.Contains(d.log.String(), secret) {
			t.Errorf("%+v\n%s", ev, d.log.String())
		}
	})
}

// TestHookAnswers: what a hook says reaches the verdict.
func TestHookAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, config.OnErrorDeny)
		for _, only := range [][]string{nil, {}, {"groq"}} {
			d.hook.class = &hooks.Classification{Sensitivity: hooks.Confidential, AllowedProviders: only}
			v := d.sensitivity(t.Context(), &hooks.Content{})
			if v.sensitivity != config.Confidential || (v.only == nil) != (only == nil) || len(v.only) != len(only) || v.unclassified || v.err != nil {
				t.Errorf("%+v", v)
			}
		}
		left := subjects.USD(-250_000)
		d.hook.over = &hooks.BudgetAnswer{OverBudget: true, RemainingUSD: &left, Reason: "team\na" + strings.Repeat("ä", 500)}
		v := d.budget(t.Context(), &hooks.BudgetQuestion{})
		if v.err != nil || v.localOnly != "" || !strings.Contains(v.freeOnly, "-0.25 USD remain: team aä") || len(v.freeOnly) > 300 {
			t.Errorf("%+v", v)
		}
		d.cfg.Costs.Fallback = false
		d.reconfigure(d.cfg)
		if v := d.budget(t.Context(), &hooks.BudgetQuestion{}); v.freeOnly != "" || subjects.KindOf(v.err) != subjects.KindBudgetExceeded || v.err.Status() != 402 {
			t.Errorf("%+v", v)
		}
		d.hook.set(func(context.Context) error { return hooks.ErrBuiltIn })
		if got := d.ask(t.Context(), config.HookMock); got != "allow" {
			t.Errorf("%q", got)
		}
		if ev := d.heard(); len(ev) > 0 {
			t.Errorf("%+v", ev[0])
		}
	})
}

// TestHookAskerLeaves: the end of a call is no fault of the hook.
func TestHookAskerLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, config.OnErrorAllow)
		d.hook.set(wrongHooks["slow"](nil))
		for name, kind := range map[string]string{config.HookMock: "CANCELLED", config.HookBudget: "TIMEOUT", config.HookSensitivity: "CANCELLED"} {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if kind == "CANCELLED" {
				time.AfterFunc(50*time.Millisecond, cancel)
			}
			start := time.Now()
			if got := d.ask(ctx, name); !strings.HasPrefix(got, kind) || time.Since(start) > 100*time.Millisecond {
				t.Errorf("%s: %q after %s", name, got, time.Since(start))
			}
			cancel()
		}
		if ev := d.heard(); len(ev) > 0 {
			t.Errorf("%+v", ev[0])
		}
	})
}
