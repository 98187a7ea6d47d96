//go:build unix

package claudecode

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

func init() {
	// stubborn has a child, and neither heeds SIGTERM.
	fakes["stubborn"] = func(f *fake, _ string) {
		signal.Ignore(syscall.SIGTERM)
		f.child("sleeps", nil)
		f.hear()
		say(initLine, startLine, blockLine, delta("part"))
		forever()
	}
	fakes["sleeps"] = func(*fake, string) { signal.Ignore(syscall.SIGTERM); forever() }
	// orphans answers and leaves a child behind that holds its output open, in its
	// group or in a session of its own.
	fakes["orphans"] = func(f *fake, how string) {
		f.child("sleeps", &syscall.SysProcAttr{Setsid: how == "escaped"})
		f.hear()
		answerWith("hello")
		f.leave()
	}
	fakes["orphans-early"] = func(f *fake, _ string) {
		f.child("sleeps", &syscall.SysProcAttr{Setsid: true})
		f.hear()
		say(initLine)
		exit(4)
	}
	fakes["shot"] = func(f *fake, _ string) {
		f.hear()
		say(initLine)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		forever()
	}
}

// child starts another fake, which shares the pipes.
func (f *fake) child(name string, attr *syscall.SysProcAttr) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fakeEnv+"="+name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdin, os.Stdout, os.Stderr, attr
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	f.note("child", fmt.Sprint(cmd.Process.Pid))
}

// alive reports whether a process runs; one that nobody has waited for does not.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// gone waits until the processes that the fake noted have ended: what is killed
// may need a moment.
func (p *program) gone(names ...string) {
	p.t.Helper()
	tick, limit := time.NewTicker(5*time.Millisecond), time.NewTimer(10*time.Second)
	defer tick.Stop()
	defer limit.Stop()
	for _, name := range names {
		pid := p.noted(name)
		if pid == "" {
			p.t.Fatalf("no %s was noted", name)
		}
		for alive(pid) {
			select {
			case <-tick.C:
			case <-limit.C:
				p.t.Fatalf("the %s %s still runs", name, pid)
			}
		}
	}
}

// However a call ends, its process and the children of that are gone.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("processes are looked up in /proc, which is not here")
	}
	t.Run("cancel", func(t *testing.T) {
		t.Parallel()
		p := with(t, "stubborn")
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := p.Stream(ctx, request(t, wire.Native, hi), func(*wire.Event) error { cancel(); return nil })
		failed(t, err, subjects.KindCancelled)
		if resp.OutputBytes != 4 || resp.Usage.InputTokens != 11 || resp.UsageKnown {
			t.Errorf("beside it %+v", resp)
		}
		p.gone("pid", "child")
	})
	t.Run("timeout", func(t *testing.T) {
		t.Parallel()
		p := with(t, "stubborn", func(c *config.Provider) { c.IdleTimeout = startsWithin })
		_, err := p.Complete(t.Context(), request(t, wire.Native, hi))
		failed(t, err, subjects.KindTimeout)
		p.gone("pid", "child")
	})
	t.Run("panic", func(t *testing.T) {
		t.Parallel()
		p := with(t, "stubborn")
		func() {
			defer func() { _ = recover() }()
			_, _ = p.Stream(t.Context(), request(t, wire.Native, hi), func(*wire.Event) error { panic("the caller's") })
		}()
		p.gone("pid", "child")
	})
	t.Run("answer with a child", func(t *testing.T) {
		t.Parallel()
		p := with(t, "orphans:here")
		if resp, err := p.Complete(t.Context(), request(t, wire.Native, hi)); err != nil || resp.Text != "hello" {
			t.Errorf("%+v, %v", resp, err)
		}
		p.gone("pid", "child")
	})
	t.Run("killed from outside", func(t *testing.T) {
		t.Parallel()
		p := with(t, "shot")
		_, err := p.Complete(t.Context(), request(t, wire.Native, hi))
		if e := failed(t, err, subjects.KindProvider); !strings.Contains(e.Message, "killed") {
			t.Errorf("%q", e.Message)
		}
		p.gone("pid")
	})
}

// A child that has left the group holds the output open, and nobody up.
func TestEscapedChild(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"orphans:escaped", "orphans-early"} {
		p := with(t, name)
		resp, err := p.Complete(t.Context(), request(t, wire.Native, hi))
		if name == "orphans-early" {
			failed(t, err, subjects.KindProvider)
		} else if err != nil || resp.Text != "hello" {
			t.Errorf("%+v, %v", resp, err)
		}
		var pid int
		if _, err := fmt.Sscan(p.noted("child"), &pid); err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
