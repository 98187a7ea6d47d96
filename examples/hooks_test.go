package examples

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/subjects"
)

// hook starts a hook's example and waits until it listens.
func hook(t *testing.T, env []string, file string, args ...string) {
	t.Helper()
	if _, err := tools(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("../.examples/venv/bin/python", append([]string{file}, args...)...)
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
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(errs.String())
		}
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "listening\n" {
		t.Fatalf("first line %q: %v", line, err)
	}
}

// startWith starts a node with a configuration.
func startWith(t *testing.T, yaml string) (*sluice.Node, []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hooks.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, sluice.WithConfigFile(file))
}

// TestHookSensitivity: what the example finds confidential goes to nobody but the
// providers that it names, and is not previewed; without it, onError decides, and
// an event says so.
func TestHookSensitivity(t *testing.T) {
	node, env := startWith(t, "hooks: {sensitivity: {timeoutMs: 30000, onError: deny}}\n")
	events, err := node.Conn().SubscribeSync(subjects.HookStatus("sensitivity"))
	if err != nil {
		t.Fatal(err)
	}
	call := func(process, prompt string) error {
		req := ask(prompt)
		req.Process = process
		_, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, req)
		return err
	}
	if err := call("early", "hello"); subjects.KindOf(err) != subjects.KindNoProvider || !strings.Contains(err.Error(), "classifier does not answer") {
		t.Errorf("%v", err)
	}
	hook(t, append(env, "ONLY=ollama"), "python/hook_sensitivity.py")
	if err := call("plain", "hello"); err != nil {
		t.Error(err)
	}
	if rec := logged(t, node, "plain"); rec.PromptPreview != "hello" {
		t.Errorf("%+v", rec)
	}
	if err := call("secret", "my PASSWORD is sesame"); subjects.KindOf(err) != subjects.KindNoProvider || strings.Contains(err.Error(), "sesame") {
		t.Errorf("%v", err)
	}
	for _, ok := range []bool{false, true} {
		var ev subjects.HookEvent
		m, err := events.NextMsg(30 * time.Second)
		if err != nil || json.Unmarshal(m.Data, &ev) != nil || ev.OK != ok {
			t.Errorf("%+v, %v, want ok %v", ev, err, ok)
		}
	}

	hook(t, append(env, "ONLY=mock"), "python/hook_sensitivity.py") // both may be asked
	for range 100 {
		if err = call("secret", "my PASSWORD is sesame"); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if rec := logged(t, node, "secret"); rec.PromptPreview != "" {
		t.Errorf("a preview of what is confidential: %+v", rec)
	}
}

// TestHookBudget: costs are told, and calls over the budget end.
func TestHookBudget(t *testing.T) {
	node, env := startWith(t, "hooks: {budget: {timeoutMs: 30000, onError: deny}}\nbatch_cost_limits: {fallback_on_quota: false}\n")
	hook(t, append(env, "TOKENS=1000"), "python/hook_budget.py")
	req := ask("hello")
	req.Process, req.Task, req.SkipCache = "spender", "mock:in=400,out=200", true
	var err error
	calls := 0
	for ; err == nil && calls < 100; calls++ { // costs come a little after their calls
		_, err = subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, req)
	}
	if calls < 3 || subjects.KindOf(err) != subjects.KindBudgetExceeded || !strings.Contains(err.Error(), "process spender has used") {
		t.Errorf("%d calls, %v", calls, err)
	}
	req.Process = "another"
	if _, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, req); err != nil {
		t.Error(err)
	}
}

// TestHookMock: the example writes the mock's answers.
func TestHookMock(t *testing.T) {
	node, env := startWith(t, "hooks: {mock: {timeoutMs: 30000, onError: deny}}\n")
	file := filepath.Join(t.TempDir(), "answers.json")
	if err := os.WriteFile(file, []byte(`{"insight_generation": "an insight"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	hook(t, env, "python/hook_mock.py", file)
	for task, want := range map[string]string{"insight_generation": "an insight", "git_history_analysis": "the standard answer to git_history_analysis"} {
		req := ask("hello")
		req.Task = task
		res, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, req)
		if err != nil || res.Content != want {
			t.Errorf("%s: %+v, %v", task, res, err)
		}
	}
}
