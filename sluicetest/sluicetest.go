// Package sluicetest starts Sluice nodes for the tests of other programs.
package sluicetest

import (
	"context"
	"testing"
	"time"

	sluice "github.com/sluice-llm/sluice"
)

// Start starts a node for one test and ends it with the test: NATS inside the
// process, no port, no file outside the test's temporary folder, the mock
// provider alone and nothing of the process's environment. Options given here
// come after those and win.
func Start(t testing.TB, opts ...sluice.Option) *sluice.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	all := append([]sluice.Option{
		sluice.WithData(t.TempDir()),
		sluice.WithEnviron([]string{"SEMANTIC_ANALYSIS_MODE=mock"}),
	}, opts...)
	node, err := sluice.Start(ctx, all...)
	if err != nil {
		t.Fatalf("sluicetest: %v", err)
	}
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Errorf("sluicetest: closing: %v", err)
		}
	})
	return node
}
