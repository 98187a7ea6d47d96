package sluice_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/persistence"
	"github.com/sluice-llm/sluice/subjects"
)

var kills = flag.Int("kills", 20, "how often TestKill kills the node")

// nodeEnv makes the test binary a node on the data folder it names.
const nodeEnv = "SLUICE_TEST_NODE_DATA"

func TestMain(m *testing.M) {
	if dir := os.Getenv(nodeEnv); dir != "" {
		serveForever(dir)
	}
	os.Exit(m.Run())
}

func serveForever(dir string) {
	node, err := sluice.Start(context.Background(), sluice.WithData(dir), sluice.WithNATSListen("127.0.0.1:0"),
		sluice.WithEnviron([]string{"SEMANTIC_ANALYSIS_MODE=mock", "LLM_INGESTION_SLOTS=32", "LLM_INTERACTIVE_SLOTS=32", "LLM_MAX_RPM_MOCK=32"}))
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println(node.NATSURL())
	<-node.Done()
	os.Exit(0)
}

// startNode runs a node in a process of its own and waits until it answers.
func startNode(t *testing.T, dir string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), nodeEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "nats://") {
		t.Fatalf("the node did not start without help: %q %v", line, err)
	}
	return cmd, strings.TrimSpace(line)
}

// TestQueriesAfterAStart: the first query after a start has every answered call,
// however far behind the stream the database is.
func TestQueriesAfterAStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func() *sluice.Node {
		node, err := sluice.Start(t.Context(), sluice.WithData(dir), sluice.WithEnviron([]string{"SEMANTIC_ANALYSIS_MODE=mock"}))
		if err != nil {
			t.Fatal(err)
		}
		return node
	}
	const calls = 300
	node := start()
	for range calls {
		req := &subjects.Request{}
		req.Messages = []subjects.Message{{Role: "user", Content: subjects.Text("hi")}}
		if _, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, req); err != nil {
			t.Fatal(err)
		}
	}
	node.Close()
	if err := os.RemoveAll(filepath.Join(dir, "usage")); err != nil {
		t.Fatal(err)
	}
	node = start()
	defer node.Close()
	if rows := recentRows(t.Context(), t, node.Client()); len(rows) != calls {
		t.Errorf("%d of %d calls", len(rows), calls)
	}
}

// TestKill kills the serving process at random moments under load. Each
// answered call is in the store exactly once, every total is the sum of its
// rows, and each start needs no help.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	answered := map[string]int64{} // call id → tokens in its answer
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(1, uint64(*kills)))
	for round := range *kills {
		cmd, url := startNode(t, dir)
		load(t, url, round, func(id string, tokens int64) {
			mu.Lock()
			answered[id] = tokens
			mu.Unlock()
		}, func() {
			<-time.After(time.Duration(rng.IntN(150)) * time.Millisecond)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	cmd, url := startNode(t, dir)
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	var h subjects.Health
	for !caughtUp(t, nc, &h) { // each look asks the node and waits for its answer
	}
	nc.Close()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	checkStore(t, dir, answered)
}

// caughtUp looks whether the database has reached the end of the stream.
func caughtUp(t *testing.T, nc *nats.Conn, h *subjects.Health) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := subjects.Query(ctx, subjects.NewClient(nc), subjects.QueryHealth, nil, h); err != nil {
		t.Fatal(err)
	}
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	info, err := js.StreamInfo(subjects.UsageStream)
	if err != nil {
		t.Fatal(err)
	}
	return h.Usage.Pending == 0 && h.Usage.AppliedSeq >= info.State.LastSeq
}

// load sends calls from 16 goroutines until until has killed the node.
func load(t *testing.T, url string, round int, on func(id string, tokens int64), until func()) {
	nc, err := nats.Connect(url, nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("r%d-w%d-%d", round, w, i)
				req := ask("question " + id)
				req.CallID, req.Process = id, "kill-test"
				res, err := subjects.Call(ctx, subjects.NewClient(nc), subjects.Classes[i%2], req)
				if err != nil {
					return
				}
				on(id, res.Usage.TotalTokens)
			}
		})
	}
	until()
	cancel()
	nc.Close()
	wg.Wait()
}

func checkStore(t *testing.T, dir string, answered map[string]int64) {
	t.Helper()
	store, err := persistence.Open(persistence.Options{Dir: filepath.Join(dir, "usage")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Verify(); err != nil {
		t.Errorf("a total differs from the sum of its rows: %v", err)
	}
	seen, rows := map[string]int{}, 0
	err = store.Each(func(raw json.RawMessage) error {
		var row subjects.UsageRecord
		if err := json.Unmarshal(raw, &row); err != nil {
			return err
		}
		rows++
		seen[row.ID]++
		if tokens, ok := answered[row.ID]; ok && tokens != row.TotalTokens {
			t.Errorf("%s was answered with %d tokens, the record has %d", row.ID, tokens, row.TotalTokens)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s is in the store %d times", id, n)
		}
	}
	lost := 0
	for id := range answered {
		if seen[id] == 0 {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d answered calls are not in the store", lost, len(answered))
	}
	t.Logf("%d kills, %d calls answered, %d records", *kills, len(answered), rows)
	if len(answered) == 0 {
		t.Error("no call was answered: the test shows nothing")
	}
}
