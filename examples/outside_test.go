package examples

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/subjects"
)

// server starts the example of an outside provider.
func server(t *testing.T, env []string, more ...string) *exec.Cmd {
	t.Helper()
	if _, err := tools(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("../.examples/venv/bin/python", "python/outside.py")
	cmd.Env = append(append([]string{}, env...), more...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(errs.String())
		}
	})
	return cmd
}

func wait(t *testing.T, node *sluice.Node, what string, cond func(*subjects.Health) bool) *subjects.Health {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond) // the programs need the processor, too
	defer tick.Stop()
	for {
		var h subjects.Health
		if err := subjects.Query(ctx, node.Client(), subjects.QueryHealth, nil, &h); err != nil {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		if cond(&h) {
			return &h
		}
		<-tick.C
	}
}

// TestOutside runs the example of a model server of one's own: it appears, answers
// over NATS and HTTP, whole and as a stream, is accounted for, and dies in the
// middle of a call.
func TestOutside(t *testing.T) {
	node, env := start(t, sluice.WithEnviron(nil)) // no provider of its own
	first := server(t, env)
	h := wait(t, node, "the program", func(h *subjects.Health) bool { return h.Providers["reverse"].Available })
	if h.Providers["reverse"].Mode != "local" {
		t.Errorf("%+v", h.Providers["reverse"])
	}
	for i, e := range programs(t) {
		process := "outside-" + strings.ReplaceAll(e.name, " ", "-")
		argv := []string{"Hello", "world"}
		if e.name == "command line" {
			argv = []string{"--process", process, "Hello world"}
		}
		t.Run(e.name, func(t *testing.T) {
			out, errs, err := run(t, e, append(append([]string{}, env...), "PROCESS="+process, "CLASS="+subjects.Classes[i%2]), argv...)
			if err != nil || out != "dlrow olleH\n" {
				t.Fatalf("%q %v\n%s", out, err, errs)
			}
			if rec := logged(t, node, process); rec.Provider != "reverse" || rec.Model != "reverse-1" || rec.TotalTokens != 12 || rec.Subscription != subjects.SubscriptionLocal {
				t.Errorf("%+v", rec)
			}
		})
	}
	if h := wait(t, node, "free slots", func(h *subjects.Health) bool { return h.Pools["reverse/reverse-1"].Active == 0 }); h.Pools["reverse/reverse-1"].Cap != 4 {
		t.Errorf("%+v", h.Pools)
	}
	_ = first.Process.Kill()
	_ = first.Wait()
	wait(t, node, "its end", func(h *subjects.Health) bool { return !h.Providers["reverse"].Available })
	diesInMidCall(t, node, env)
}

// diesInMidCall kills one of two instances while it streams nothing yet: the other
// answers. Then it kills the other one in the middle of a stream.
func diesInMidCall(t *testing.T, node *sluice.Node, env []string) {
	t.Helper()
	slow := server(t, env, "PAUSE=600")
	wait(t, node, "the slow one", func(h *subjects.Health) bool { return h.Providers["reverse"].Available })
	type answer struct {
		res *subjects.Result
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		res, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, ask("abc"))
		answers <- answer{res, err}
	}()
	wait(t, node, "the call", func(h *subjects.Health) bool { return h.Pools["reverse/reverse-1"].Active == 1 })
	server(t, env, "CAPS=5") // it listens before it announces
	wait(t, node, "the other one", func(h *subjects.Health) bool { return h.Pools["reverse/reverse-1"].Cap == 5 })
	_ = slow.Process.Kill()
	if a := <-answers; a.err != nil || a.res.Content != "cba" || len(a.res.Attempts) < 2 {
		t.Errorf("%+v, %v", a.res, a.err)
	}

	paced := server(t, env, "NAME=paced", "PAUSE=0.05")
	wait(t, node, "the paced one", func(h *subjects.Health) bool { return h.Providers["paced"].Available })
	req := ask(strings.Repeat("x", 1000))
	req.Provider = "paced"
	deltas := 0
	_, err := subjects.CallStream(t.Context(), node.Client(), subjects.ClassInteractive, req, func(subjects.Event) error {
		if deltas++; deltas == 3 {
			_ = paced.Process.Kill()
		}
		return nil
	})
	if e := subjects.AsError(err); deltas < 3 || e == nil || e.Kind != subjects.KindProvider || e.Provider != "paced" {
		t.Errorf("%d deltas, %v", deltas, err)
	}
}
