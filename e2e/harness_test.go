//go:build e2e_model

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// providerCap is the most calls that the node may have in flight.
	providerCap = 4
	// answerTokens is where the server ends an answer that names no limit.
	answerTokens = 24
	// contextTokens is the context of each of the server's slots.
	contextTokens = 2048
	// patience bounds every wait for something that should come soon.
	patience = time.Minute
)

// install is what model.sh prints: where the parts are.
type install struct {
	server, model, modelName, python string
}

// installed runs model.sh, which installs at most once. Where that cannot be
// done, the test is skipped with the script's reason.
func installed(t *testing.T) install {
	t.Helper()
	facts := script(t, "./model.sh")
	return install{facts["LLAMA_SERVER"], facts["MODEL_FILE"], facts["MODEL_NAME"], facts["PYTHON"]}
}

// script runs one that installs something and returns what it prints.
func script(t *testing.T, name string) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 77 {
		t.Skip(lastLine(errs.String()))
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, errs.String())
	}
	facts := map[string]string{}
	for line := range strings.Lines(out.String()) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		facts[k] = v
	}
	return facts
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// process is a program that runs until the test ends.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended; err is set before
	err  error
}

// start starts cmd with its output in a file, which is shown when the test fails.
func start(t *testing.T, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{name: name, cmd: cmd, log: filepath.Join(t.TempDir(), name+".log"), done: make(chan struct{})}
	f, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = f, f
	// None outlives a test that is killed; a group of its own takes its children along.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		f.Close()
		t.Fatal(err)
	}
	go func() {
		p.err = cmd.Wait()
		f.Close()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the end of %s's output:\n%s", name, p.tail())
		}
	})
	return p
}

// kill ends it and its children, and waits for the end.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

func (p *process) output() string {
	b, _ := os.ReadFile(p.log)
	return string(b)
}

func (p *process) tail() string {
	lines := strings.Split(strings.TrimSpace(p.output()), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// answers waits until p answers 200 at url.
func (p *process) answers(t *testing.T, url string) {
	t.Helper()
	eventually(t, p.name+" answers at "+url, func() string {
		select {
		case <-p.done:
			t.Fatalf("%s ended: %v\n%s", p.name, p.err, p.tail())
		default:
		}
		resp, err := http.Get(url)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		if resp.StatusCode != http.StatusOK {
			return resp.Status + " " + string(body)
		}
		return ""
	})
}

// eventually asks until the answer is "" and fails with the last one when that
// does not come.
func eventually(t *testing.T, what string, ask func() string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		last := ask()
		if last == "" {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %s until %s: %s", patience, what, last)
		}
	}
}

// freeAddr returns a loopback address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// startModel starts llama.cpp's server with the model and returns its URL.
func startModel(t *testing.T, in install, key string) string {
	t.Helper()
	return runLlama(t, in, "chat-template.jinja", "", "--api-key", key)
}

// runLlama starts llama.cpp's server with a chat template of testdata, below a
// path, and returns its URL without the path.
func runLlama(t *testing.T, in install, template, prefix string, more ...string) string {
	t.Helper()
	addr := freeAddr(t)
	host, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(in.server, append([]string{
		"--model", in.model, "--alias", in.modelName,
		"--host", host, "--port", port, "--api-prefix", prefix,
		"--parallel", fmt.Sprint(providerCap), "--ctx-size", fmt.Sprint(providerCap * contextTokens),
		"--threads", "2", "--threads-batch", "2", "--device", "none",
		"--predict", fmt.Sprint(answerTokens), "--temp", "0",
		"--jinja", "--chat-template-file", "testdata/" + template,
	}, more...)...)
	// Threads that spin while they wait for each other starve a machine of two
	// cores on which other programs run too.
	cmd.Env = append(os.Environ(), "OMP_WAIT_POLICY=passive")
	p := start(t, "llama-server", cmd)
	p.answers(t, "http://"+addr+prefix+"/health")
	return "http://" + addr
}

// node is a running sluice.
type node struct {
	*process
	bin     string
	http    string // base URL
	natsURL string
}

// startNode starts sluice with the server at upstream as "custom".
func startNode(t *testing.T, in install, upstream, key string) *node {
	t.Helper()
	return runNode(t, fmt.Sprintf(`providers:
  custom:
    models: {fast: %[1]q, standard: %[1]q, premium: %[1]q}
provider_priority: {fast: [custom], standard: [custom], premium: [custom]}
`, in.modelName),
		"LLM_BASE_URL_CUSTOM="+upstream+"/v1",
		"CUSTOM_API_KEY="+key,
		fmt.Sprintf("LLM_MAX_RPM_CUSTOM=%d", providerCap))
}

// runNode builds and starts sluice with a configuration and an environment.
// $SLUICE_E2E_BIN is a program to run instead of building one.
func runNode(t *testing.T, text string, env ...string) *node {
	t.Helper()
	dir := t.TempDir()
	bin := os.Getenv("SLUICE_E2E_BIN")
	if bin == "" {
		bin = filepath.Join(dir, "sluice")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../cmd/sluice")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
	}
	config := filepath.Join(dir, "llm-providers.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	httpAddr, natsAddr := freeAddr(t), freeAddr(t)
	cmd := exec.Command(bin, "serve", "--config", config, "--data", filepath.Join(dir, "data"),
		"--http", httpAddr, "--nats-listen", natsAddr)
	// Nothing of the environment of who runs the test: no other account can serve.
	cmd.Env = append([]string{"HOME=" + dir, "PATH=/usr/bin:/bin"}, env...)
	n := &node{process: start(t, "sluice", cmd), bin: bin, http: "http://" + httpAddr, natsURL: "nats://" + natsAddr}
	n.answers(t, n.http+"/health")
	return n
}

// get reads a JSON answer of the node.
func (n *node) get(t *testing.T, path string, into any) {
	t.Helper()
	resp, err := http.Get(n.http + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s: %s", path, resp.Status, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("GET %s: %v: %s", path, err, body)
	}
}

// stop ends the node as an operator would, and reports how it ended.
func (n *node) stop(ctx context.Context) error {
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-n.done:
		return n.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
