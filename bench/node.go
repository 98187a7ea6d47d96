package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// nodePassword lets the echo speak on the node's server; it is made up for
// loopback and this run.
const nodePassword = "bench"

// nodeConfig leaves the node as it is by default, with room for the load.
const nodeConfig = `# Written by bench.
pools:
  max_queue: 20000
`

// node is the Sluice node under test.
type node struct {
	cmd  *exec.Cmd
	http string
	nats string
	log  string
	// pprof is the address of /debug/pprof, served by profnode only.
	pprof string
}

// buildNode builds the program in pkg, a path from the module's root, into dir.
func buildNode(ctx context.Context, pkg, dir string, errw io.Writer) (string, error) {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	if err != nil || root == "." || root == filepath.Dir(os.DevNull) {
		return "", errors.Join(errors.New("run bench inside the repository, or give -node"), err)
	}
	bin := filepath.Join(dir, "sluice")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, pkg)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, errw, errw
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build %s: %w", pkg, err)
	}
	return bin, nil
}

// startNode runs `sluice serve` with a data folder of its own and waits for its
// ready line.
func startNode(bin, dir, upstream string) (*node, error) {
	config := filepath.Join(dir, "llm-providers.yaml")
	if err := os.WriteFile(config, []byte(nodeConfig), 0o600); err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	n := &node{http: ports[0], nats: "nats://" + ports[1], log: filepath.Join(dir, "node.log"), pprof: ports[2]}
	log, err := os.Create(n.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	n.cmd = exec.Command(bin, "serve", "--config", config, "--data", filepath.Join(dir, "data"), "--http", ports[0], "--nats-listen", ports[1])
	// An environment of its own: the user's keys and settings stay out.
	n.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir,
		"OPENAI_API_KEY=test", "LLM_BASE_URL_OPENAI=http://" + upstream + "/v1", "LLM_MAX_RPM_OPENAI=10000",
		"LLM_INTERACTIVE_SLOTS=10000", "LLM_INGESTION_SLOTS=10000", "SLUICE_NODE_PASSWORD=" + nodePassword, "BENCH_PPROF=" + n.pprof,
	}
	n.cmd.Dir, n.cmd.Stderr, n.cmd.SysProcAttr = dir, log, dieWithParent()
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	if err := n.ready(out); err != nil {
		tail := n.tail()
		n.stop()
		return nil, fmt.Errorf("the node did not start: %w\n%s", err, tail)
	}
	return n, nil
}

func (n *node) ready(out io.ReadCloser) error {
	t := time.AfterFunc(30*time.Second, func() { _ = n.cmd.Process.Kill() })
	defer t.Stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("no ready line: %w", err)
	}
	if !strings.Contains(line, "ready") {
		return fmt.Errorf("unexpected first line %q", line)
	}
	return nil
}

func (n *node) pid() int { return n.cmd.Process.Pid }

// natsAsNode is the server's URL for the echo, which needs subjects that
// callers may not use.
func (n *node) natsAsNode() string {
	return strings.Replace(n.nats, "nats://", "nats://node:"+nodePassword+"@", 1)
}

// stop drains the node; it reports whether the node ended by itself.
func (n *node) stop() bool { return stopProcess(n.cmd, 10*time.Second) }

// tail returns the end of the node's log.
func (n *node) tail() string {
	b, err := os.ReadFile(n.log)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// usage asks for the node's usage totals by process.
func (n *node) usage(ctx context.Context) (map[string]subjects.UsageTotals, error) {
	b, err := get(ctx, "http://"+n.http+"/api/token-usage/summary?hours=2&bucketMinutes=60")
	if err != nil {
		return nil, fmt.Errorf("usage summary: %w", err)
	}
	return parseUsage(b)
}

// profile writes profiles of the next d (at least 1 s, whole seconds): CPU and
// allocations; then the heap as it is. It returns when all are written.
func (n *node) profile(ctx context.Context, d time.Duration, file string) error {
	seconds := "?seconds=" + strconv.Itoa(max(1, int(d.Round(time.Second)/time.Second)))
	allocs := make(chan error, 1)
	go func() { allocs <- n.oneProfile(ctx, "allocs"+seconds, file+".allocs.pprof") }()
	err := n.oneProfile(ctx, "profile"+seconds, file+".cpu.pprof")
	return errors.Join(err, <-allocs, n.oneProfile(ctx, "heap", file+".heap.pprof"))
}

func (n *node) oneProfile(ctx context.Context, path, file string) error {
	b, err := get(ctx, "http://"+n.pprof+"/debug/pprof/"+path)
	if err != nil {
		return fmt.Errorf("profile %s: %w", path, err)
	}
	return os.WriteFile(file, b, 0o644)
}

func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %.300s", resp.StatusCode, b)
	}
	return b, err
}

// freePorts returns loopback addresses that were free a moment ago.
func freePorts(n int) ([]string, error) {
	var out []string
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer ln.Close() // all are held until all are known, so that they differ
		out = append(out, ln.Addr().String())
	}
	return out, nil
}
