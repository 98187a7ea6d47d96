package sluice_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fakeopenai"
	"github.com/sluice-llm/sluice/sluicetest"
	"github.com/sluice-llm/sluice/subjects"
)

// TestNodesPassword: a node that may not join another's server says what to set.
func TestNodesPassword(t *testing.T) {
	t.Parallel()
	open := sluicetest.Start(t, sluice.WithNATSListen("127.0.0.1:0"), sluice.WithEnviron(nil))
	secured := sluicetest.Start(t, sluice.WithNATSListen("127.0.0.1:0"), sluice.WithEnviron([]string{"SLUICE_NODE_PASSWORD=of-nodes", "SLUICE_CALLER_PASSWORD=of-callers"}))
	for name, c := range map[string]struct {
		url     string
		environ []string
	}{
		"none is set":     {open.NATSURL(), nil},
		"only for one":    {secured.NATSURL(), nil},
		"another one":     {secured.NATSURL(), []string{"SLUICE_NODE_PASSWORD=another"}},
		"only for itself": {open.NATSURL(), []string{"SLUICE_NODE_PASSWORD=of-nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, err := sluice.Start(t.Context(), sluice.WithData(t.TempDir()), sluice.WithNATSURL(c.url), sluice.WithEnviron(c.environ))
			if err == nil {
				_ = node.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "set SLUICE_NODE_PASSWORD") || strings.Contains(err.Error(), "of-nodes") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestTwoNodes: one node hosts openai, the other does not and is asked. Its
// calls hop, wait in the first node's pool, and are recorded once.
func TestTwoNodes(t *testing.T) {
	gate := fakeopenai.NewGate()
	gate.Open()
	up := fakeopenai.New(fakeopenai.WithGate(gate), fakeopenai.WithScript(func(_ int, q *fakeopenai.Request) fakeopenai.Behaviour {
		if strings.Contains(string(q.Body), "refuse") {
			return fakeopenai.Behaviour{Status: 400}
		}
		return fakeopenai.Behaviour{}
	})).Start(t)
	secret := "SLUICE_NODE_PASSWORD=a-password-of-nodes"
	host := sluicetest.Start(t, sluice.WithNATSListen("127.0.0.1:0"), sluice.WithProviders([]string{"openai"}),
		sluice.WithEnviron([]string{secret, "OPENAI_API_KEY=sk-test", "LLM_BASE_URL_OPENAI=" + up.BaseURL(), "LLM_MAX_RPM_OPENAI=2"}))
	asked := sluicetest.Start(t, sluice.WithNATSURL(host.NATSURL()), sluice.WithProviders([]string{"mock"}), sluice.WithEnviron([]string{secret}))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for { // until the second node has heard the first
		var r subjects.Route
		if err := subjects.Query(ctx, asked.Client(), subjects.QueryRoute, subjects.RouteQuery{Model: "openai/gpt-test"}, &r); err != nil {
			t.Fatal(err)
		}
		if len(r.Chain) > 0 {
			break
		}
	}
	req := ask("hello over there")
	req.Model = "openai/gpt-test"
	res, err := subjects.Call(ctx, asked.Client(), subjects.ClassInteractive, req)
	if err != nil {
		t.Fatal(err)
	}
	events := 0
	streamed, err := subjects.CallStream(ctx, asked.Client(), subjects.ClassIngestion, req, func(subjects.Event) error { events++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if events == 0 || streamed.Content != res.Content || streamed.Usage != res.Usage || res.Provider != "openai" || res.Usage.TotalTokens == 0 {
		t.Errorf("%d events\n%+v\n%+v", events, res, streamed)
	}
	for _, stream := range []bool{false, true} {
		var got strings.Builder
		err := asked.Client().Stream(ctx, openAIMsg(subjects.ClassInteractive, fmt.Sprint("id-", stream), stream), func(m *subjects.Msg) error {
			got.Write(m.Data)
			return nil
		})
		if err != nil || !strings.Contains(got.String(), `"chat.completion`) {
			t.Errorf("stream %v: %v %q", stream, err, got.String())
		}
	}
	bad := ask("refuse this")
	bad.Model = "openai/gpt-test"
	_, err = subjects.Call(ctx, asked.Client(), subjects.ClassInteractive, bad)
	if subjects.KindOf(err) != subjects.KindValidation {
		t.Errorf("the provider's error over a hop: %v", err)
	}
	var tries []subjects.Attempt
	for _, a := range subjects.AsError(err).Attempts {
		if a.Outcome != subjects.OutcomeSkipped {
			tries = append(tries, a)
		}
	}
	if len(tries) != 1 || tries[0].Provider != "openai" || tries[0].Outcome != string(subjects.KindValidation) {
		t.Errorf("one try over a hop is told as %+v", tries)
	}
	gate.Shut()
	cancelOverHop(ctx, t, asked, host, gate, up)
	gate.Open()
	for _, node := range []*sluice.Node{asked, host} { // each has the whole log
		checkHopRows(ctx, t, node, up)
	}
	if c := up.Counts(); c.Peak > 2 {
		t.Errorf("%d at once, the hosting node's cap is 2", c.Peak)
	}
	if err := host.Close(); err != nil {
		t.Fatal(err)
	}
}

// cancelOverHop cancels a call that runs on the other node.
func cancelOverHop(ctx context.Context, t *testing.T, asked, host *sluice.Node, gate *fakeopenai.Gate, up *fakeopenai.Server) {
	t.Helper()
	end := make(chan error, 1)
	go func() {
		m := openAIMsg(subjects.ClassInteractive, "to-cancel", false)
		_, err := asked.Client().Request(ctx, m)
		end <- err
	}()
	if err := gate.WaitHeld(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := subjects.NewClient(host.Conn()).Cancel("to-cancel"); err != nil {
		t.Fatal(err)
	}
	if err := <-end; subjects.KindOf(err) != subjects.KindCancelled {
		t.Errorf("cancelled over a hop: %v", err)
	}
	if err := up.Wait(ctx, func(s fakeopenai.Snapshot) bool { return s.All.Aborted == 1 && s.All.InFlight == 0 }); err != nil {
		t.Error(err)
	}
}

// checkHopRows holds that a node's log has each call once, with what the
// upstream reported.
func checkHopRows(ctx context.Context, t *testing.T, node *sluice.Node, up *fakeopenai.Server) {
	t.Helper()
	rows := recentRows(ctx, t, node.Client())
	for len(rows) < 6 {
		if ctx.Err() != nil {
			t.Fatalf("%d rows", len(rows))
		}
		rows = recentRows(ctx, t, node.Client())
	}
	var input, output int64
	for _, row := range rows {
		if row.Provider != "openai" || row.Process != subjects.UnknownProcess || strings.Contains(row.ID, "~") {
			t.Errorf("row %+v", row)
		}
		if row.Outcome == "ok" {
			input, output = input+row.InputTokens+row.CacheReadTokens, output+row.OutputTokens
		}
	}
	if c := up.Counts(); len(rows) != 6 || input != c.PromptTokens || output != c.CompletionTokens {
		t.Errorf("%d rows, %d in, %d out; the upstream reported %+v", len(rows), input, output, c)
	}
}

// TestNodeHearsAtOnce: a node that joins asks the others what they host, and hears
// the one answer that each gives: it need not wait until they speak by themselves.
func TestNodeHearsAtOnce(t *testing.T) {
	t.Parallel()
	secret := "SLUICE_NODE_PASSWORD=a-password-of-nodes"
	server := sluicetest.Start(t, sluice.WithNATSListen("127.0.0.1:0"), sluice.WithProviders([]string{"mock"}), sluice.WithEnviron([]string{secret}))
	other, err := nats.Connect(server.NATSURL(), nats.UserInfo("node", "a-password-of-nodes"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	_, err = other.Subscribe(subjects.NodeStatus, func(m *nats.Msg) {
		if strings.Contains(string(m.Data), `"new":true`) {
			_ = other.Publish(subjects.NodeStatus, []byte(`{"node":"other","providers":{"openai":{"available":true,"has":0}}}`))
		}
	})
	if err == nil {
		err = other.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	joins := sluicetest.Start(t, sluice.WithNATSURL(server.NATSURL()), sluice.WithProviders([]string{"mock"}), sluice.WithEnviron([]string{secret}))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // a silent node is forgotten after seven
	defer cancel()
	for both := 0; both < 20; { // the two nodes share the queries
		var r subjects.Route
		if err := subjects.Query(ctx, joins.Client(), subjects.QueryRoute, subjects.RouteQuery{Model: "openai/gpt-test"}, &r); err != nil {
			t.Fatalf("openai is not heard of: %v", err)
		}
		if both++; len(r.Chain) == 0 {
			both = 0
		}
	}
}

// TestResetOnAnyNode: a quota that ran out on one node is lifted whichever node is
// asked to, and both say the same of it.
func TestResetOnAnyNode(t *testing.T) {
	t.Parallel()
	up := fakeopenai.New(fakeopenai.WithScript(func(_ int, q *fakeopenai.Request) fakeopenai.Behaviour {
		if strings.Contains(string(q.Body), "exhaust") {
			return fakeopenai.InsufficientQuota()
		}
		return fakeopenai.Behaviour{}
	})).Start(t)
	secret := "SLUICE_NODE_PASSWORD=a-password-of-nodes"
	host := sluicetest.Start(t, sluice.WithNATSListen("127.0.0.1:0"), sluice.WithProviders([]string{"openai"}),
		sluice.WithEnviron([]string{secret, "OPENAI_API_KEY=sk-test", "LLM_BASE_URL_OPENAI=" + up.BaseURL()}))
	other := sluicetest.Start(t, sluice.WithNATSURL(host.NATSURL()), sluice.WithProviders([]string{"mock"}), sluice.WithEnviron([]string{secret}))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	agree := func(state string) { // the two share the queries
		t.Helper()
		for n := 0; n < 12; n++ {
			var h subjects.Health
			if err := subjects.Query(ctx, other.Client(), subjects.QueryHealth, nil, &h); err != nil {
				t.Fatalf("waiting for %s: %v", state, err)
			}
			if p := h.Providers["openai"]; !p.Available || p.Quota != state {
				n = -1
			}
		}
	}
	agree(subjects.QuotaOK)
	for range 6 { // so that each of them is asked
		req := ask("exhaust")
		req.Provider = "openai"
		if _, err := subjects.Call(ctx, other.Client(), subjects.ClassInteractive, req); subjects.KindOf(err) == "" {
			t.Fatal("there is quota left")
		}
		agree(subjects.QuotaExhausted)
		var reply subjects.QuotaResetReply
		if err := subjects.Query(ctx, other.Client(), subjects.AdminQuotaReset, subjects.QuotaResetRequest{Provider: "openai"}, &reply); err != nil || reply.Lifted != 1 {
			t.Fatalf("%+v, %v", reply, err)
		}
		agree(subjects.QuotaOK)
	}
}
