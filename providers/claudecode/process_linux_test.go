package claudecode

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/wire"
)

func init() {
	// node makes a call, as a node would, of a program that does not notice the end
	// of its input.
	fakes["node"] = func(f *fake, _ string) {
		p := New(&config.Provider{ID: "claude-code", CLICommand: os.Args[0]}, Options{Environ: func() []string {
			return []string{fakeEnv + "=silent", dirEnv + "=" + filepath.Join(f.dir, "program")}
		}})
		r, err := wire.Parse(wire.Native, []byte(hi))
		if err == nil {
			_, err = p.Complete(context.Background(), &providers.Job{Request: r, Model: "m"})
		}
		f.note("error", err.Error())
	}
}

// A program does not outlive a node that is killed.
func TestKilledNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "program"), 0o700); err != nil {
		t.Fatal(err)
	}
	node := exec.Command(os.Args[0])
	node.Env = append(os.Environ(), fakeEnv+"=node", dirEnv+"="+dir)
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, dir: filepath.Join(dir, "program")}
	tick, limit := time.NewTicker(5*time.Millisecond), time.NewTimer(time.Minute)
	defer tick.Stop()
	defer limit.Stop()
	for !strings.Contains(p.noted("heard"), `"user"`) {
		select {
		case <-tick.C:
		case <-limit.C:
			failure, _ := os.ReadFile(filepath.Join(dir, "error"))
			t.Fatalf("the program was not asked: %s", failure)
		}
	}
	if err := node.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = node.Wait() // killed
	p.gone("pid")
}
