package sluice_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/hooks"
	"github.com/sluice-llm/sluice/sluicetest"
	"github.com/sluice-llm/sluice/subjects"
)

// own is an embedder's three hooks: its classifier never comes back until it is
// let go.
type own struct {
	free  chan struct{}
	costs chan hooks.BudgetCost
}

func (o *own) Classify(context.Context, *hooks.Content) (*hooks.Classification, error) {
	<-o.free
	return &hooks.Classification{Sensitivity: hooks.Confidential}, nil
}

func (o *own) OverBudget(_ context.Context, q *hooks.BudgetQuestion) (*hooks.BudgetAnswer, error) {
	return &hooks.BudgetAnswer{OverBudget: q.Process == "spent", Reason: "it is spent"}, nil
}

func (o *own) TrackCost(_ context.Context, c *hooks.BudgetCost) error {
	o.costs <- *c
	return nil
}

func (o *own) MockResponse(_ context.Context, r *hooks.MockRequest) (string, error) {
	return r.Task + " in " + r.Tier, nil
}

// TestEmbeddedHooks: an embedder's hooks serve a node's calls; while its classifier
// hangs, many calls at once are all answered by onError, an event says so, and what
// is not classified is not previewed.
func TestEmbeddedHooks(t *testing.T) {
	const calls = 400 // more than may hang in a hook
	o := &own{free: make(chan struct{}), costs: make(chan hooks.BudgetCost, calls+10)}
	defer close(o.free)
	file := filepath.Join(t.TempDir(), "hooks.yaml")
	if err := os.WriteFile(file, []byte("hooks: {sensitivity: {timeoutMs: 50, onError: allow}, budget: {timeoutMs: 60000, onError: deny}, mock: {timeoutMs: 60000, onError: deny}}\nbatch_cost_limits: {fallback_on_quota: false}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	node := sluicetest.Start(t, sluice.WithConfigFile(file), sluice.WithSensitivityClassifier(o), sluice.WithBudgetTracker(o), sluice.WithMockService(o))
	events, err := node.Conn().SubscribeSync(subjects.HookStatus("sensitivity"))
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	call := func(process, prompt string) (*subjects.Result, error) {
		req := ask(prompt)
		req.Process, req.Task = process, "insight_generation"
		return subjects.Call(ctx, node.Client(), subjects.ClassIngestion, req)
	}
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			if res, err := call("hooked", fmt.Sprintf("prompt %d", i)); err != nil || res.Content != "insight_generation in premium" {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
	wg.Wait()
	m, err := events.NextMsg(time.Minute)
	var ev subjects.HookEvent
	if err != nil || json.Unmarshal(m.Data, &ev) != nil || ev.OK || ev.OnError != "allow" {
		t.Errorf("%+v, %v", ev, err)
	}
	if _, err := call("spent", "one more"); subjects.KindOf(err) != subjects.KindBudgetExceeded {
		t.Error(err)
	}
	for range calls {
		if c := <-o.costs; c.Process != "hooked" || c.TotalTokens == 0 || c.Outcome != subjects.OutcomeOK {
			t.Errorf("%+v", c)
		}
	}
	rows := recentRows(ctx, t, node.Client())
	for i := range rows {
		if rows[i].PromptPreview != "" {
			t.Errorf("a preview of what nobody has classified: %+v", rows[i])
		}
	}
	if len(rows) != calls {
		t.Errorf("%d records", len(rows))
	}
}
