package examples

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/sluicetest"
	"github.com/sluice-llm/sluice/subjects"
)

// scratch is the folder of what is built for the tests; "" = none was needed.
var scratch string

// tools are the programs that run the examples, made once.
var tools = sync.OnceValues(func() (dir string, err error) {
	if out, err := exec.Command("./install.sh").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	if dir, err = os.MkdirTemp("", "sluice-examples-"); err != nil {
		return "", err
	}
	scratch = dir
	for name, pkg := range map[string]string{"complete": "./go", "sluice": "../cmd/sluice"} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, name), pkg).CombinedOutput(); err != nil {
			return dir, fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if scratch != "" {
		_ = os.RemoveAll(scratch)
	}
	os.Exit(code)
}

// example is one program and how it is called.
type example struct {
	name string
	argv []string
	env  []string
}

// programs lists every example that asks one question.
func programs(t *testing.T) []example {
	t.Helper()
	dir, err := tools()
	if err != nil {
		t.Fatal(err)
	}
	python, stream := "../.examples/venv/bin/python", []string{"STREAM=1"}
	return []example{
		{"go", []string{filepath.Join(dir, "complete")}, nil},
		{"python", []string{python, "python/complete.py"}, nil},
		{"python stream", []string{python, "python/stream.py"}, nil},
		{"python openai", []string{python, "python/openai_sdk.py"}, nil},
		{"python openai stream", []string{python, "python/openai_sdk.py"}, stream},
		{"node", []string{"node", "node/complete.mjs"}, nil},
		{"node stream", []string{"node", "node/complete.mjs"}, stream},
		{"node openai", []string{"node", "node/openai_sdk.mjs"}, nil},
		{"node openai stream", []string{"node", "node/openai_sdk.mjs"}, stream},
		{"shell", []string{"shell/complete.sh"}, nil},
		{"command line", []string{filepath.Join(dir, "sluice"), "complete"}, nil},
	}
}

// start starts a node that listens, and returns the environment that the
// examples find it by.
func start(t *testing.T, opts ...sluice.Option) (*sluice.Node, []string) {
	t.Helper()
	node := sluicetest.Start(t, append([]sluice.Option{
		sluice.WithNATSListen("127.0.0.1:0"), sluice.WithHTTP("127.0.0.1:0"),
	}, opts...)...)
	return node, []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "PYTHONDONTWRITEBYTECODE=1",
		"NATS_URL=" + node.NATSURL(), "SLUICE_NATS_URL=" + node.NATSURL(),
		"SLUICE_URL=http://" + node.HTTPAddr() + "/v1",
	}
}

func run(t *testing.T, e example, env []string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, e.argv[0], append(slices.Clone(e.argv[1:]), args...)...)
	cmd.Env = slices.Concat(env, e.env)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// TestPrograms runs each example and finds its answer on stdout and its call in
// the usage log, under its process and class.
func TestPrograms(t *testing.T) {
	file := filepath.Join(t.TempDir(), "uncached.yaml") // they all ask the same
	if err := os.WriteFile(file, []byte("cache: {maxSize: 0}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	node, env := start(t, sluice.WithConfigFile(file))
	argv := []string{"Greet the", `"world" & <all>`}
	prompt := strings.Join(argv, " ")
	want, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, ask(prompt))
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range programs(t) {
		class, process := subjects.Classes[i%2], strings.ReplaceAll(e.name, " ", "-")
		t.Run(e.name+" "+class, func(t *testing.T) {
			argv := argv
			if e.name == "command line" {
				argv = []string{"--class", class, "--process", process, prompt}
			}
			out, errs, err := run(t, e, append(slices.Clone(env), "CLASS="+class, "PROCESS="+process), argv...)
			if err != nil {
				t.Fatalf("%v\n%s", err, errs)
			}
			// The mock's answer has the prompt's hash.
			if out != want.Content+"\n" {
				t.Errorf("stdout %q, not %q", out, want.Content)
			}
			rec := logged(t, node, process)
			if rec.Class != class || rec.Outcome != subjects.OutcomeOK || rec.TotalTokens != want.Usage.TotalTokens {
				t.Errorf("logged %+v", rec)
			}
		})
	}
}

func ask(prompt string) *subjects.Request {
	req := &subjects.Request{}
	req.Messages = []subjects.Message{{Role: "user", Content: subjects.Text(prompt)}}
	return req
}

// logged returns the one usage record of a process.
func logged(t *testing.T, node *sluice.Node, process string) *subjects.UsageRecord {
	t.Helper()
	var recent subjects.RecentUsage
	if err := subjects.Query(t.Context(), node.Client(), subjects.QueryUsageRecent, nil, &recent); err != nil {
		t.Fatal(err)
	}
	var found []*subjects.UsageRecord
	for _, row := range recent.Calls {
		rec := &subjects.UsageRecord{}
		if err := json.Unmarshal(row, rec); err != nil {
			t.Fatal(err)
		}
		if rec.Process == process {
			found = append(found, rec)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d usage records of process %q, not 1", len(found), process)
	}
	return found[0]
}

// TestErrors runs each example against an error from the node: a bad status,
// nothing on stdout, and the error's text where a person sees it.
func TestErrors(t *testing.T) {
	_, env := start(t)
	env = append(env, "PROVIDER=opnai", "MODEL=mock/")
	for _, e := range programs(t) {
		t.Run(e.name, func(t *testing.T) {
			want, argv := "did you mean openai?", []string{"hello"}
			switch {
			case e.name == "command line":
				argv = []string{"--provider", "opnai", "hello"}
			case strings.Contains(e.name, "openai"): // that API names no provider
				want = "names no model after the slash"
			}
			out, errs, err := run(t, e, env, argv...)
			if err == nil || strings.TrimSpace(out) != "" {
				t.Errorf("no bad status, or an answer: %v %q", err, out)
			}
			if !strings.Contains(errs, want) {
				t.Errorf("stderr does not have %q: %s", want, errs)
			}
		})
	}
}

// TestNobodyAnswers runs the NATS examples against a NATS server without a node
// behind the subject.
func TestNobodyAnswers(t *testing.T) {
	_, env := start(t)
	for _, e := range programs(t) {
		if strings.Contains(e.name, "openai") || e.name == "shell" || e.name == "command line" {
			continue // by HTTP the edge says it; the command line knows the classes
		}
		t.Run(e.name, func(t *testing.T) {
			_, errs, err := run(t, e, append(slices.Clone(env), "CLASS=nobody"), "hello")
			if err == nil {
				t.Error("no bad status")
			}
			if !regexp.MustCompile(`(?i)nobody answers|no ?responders`).MatchString(errs) {
				t.Errorf("stderr does not say that nobody answers: %s", errs)
			}
		})
	}
}

// TestSaturation holds the only slot of a pool and sees the example report the
// call that waits behind it, while it still waits.
func TestSaturation(t *testing.T) {
	if _, err := tools(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "one-slot.yaml")
	if err := os.WriteFile(file, []byte("pools: {caps: {mock: 1}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	node, env := start(t, sluice.WithConfigFile(file))
	cmd := exec.CommandContext(t.Context(), "../.examples/venv/bin/python", "python/saturation.py", "1")
	cmd.Env = env
	var errs bytes.Buffer
	cmd.Stderr = &errs
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	if line, err := lines.ReadString('\n'); line != "listening\n" {
		t.Fatalf("first line %q: %v\n%s", line, err, errs.String())
	}
	ctx, stop := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			req := ask("hello")
			req.Task, req.SkipCache = "mock:latency=1m", true
			_, err := subjects.Call(ctx, node.Client(), subjects.ClassIngestion, req)
			if subjects.KindOf(err) != subjects.KindCancelled {
				t.Errorf("the call ended by itself: %v", err)
			}
		})
	}
	rest, err := io.ReadAll(lines)
	stop()
	calls.Wait()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	want := regexp.MustCompile(`^\S+Z mock/mock-standard: ingestion calls wait [56]\d\d ms, 1 in line, 1 of 1 slots in use, 0 more events left out\n$`)
	if err != nil || !want.Match(rest) {
		t.Errorf("got %q, %v", rest, err)
	}
}
