//go:build !race

// Not with the race detector: nats-server v2.15.3 itself writes two fields when
// JetStream is enabled again that goroutines of the first start read as they
// began (jetstream_api.go: setJetStreamExportSubs, processJSAPIRoutedRequests).
// `make test` runs this file without it.

package sluice

import (
	"context"
	"testing"

	"github.com/sluice-llm/sluice/subjects"
)

// TestRevive: JetStream can be started anew while it runs, and where an earlier
// revival left it off; calls are recorded afterwards.
func TestRevive(t *testing.T) {
	ctx := context.Background()
	node, err := Start(ctx, WithData(t.TempDir()), WithEnviron([]string{"SEMANTIC_ANALYSIS_MODE=mock"}))
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	call := func(id string) {
		t.Helper()
		req := &subjects.Request{CallID: id}
		req.Messages = []subjects.Message{{Role: "user", Content: subjects.Text("hi")}}
		if _, err := subjects.Call(ctx, node.Client(), subjects.ClassInteractive, req); err != nil {
			t.Fatal(err)
		}
	}
	call("before")
	for _, off := range []bool{false, true} {
		if off {
			if err := node.nats.srv.DisableJetStream(); err != nil {
				t.Fatal(err)
			}
		}
		if err := node.nats.revive(); err != nil {
			t.Fatalf("off %v: %v", off, err)
		}
	}
	call("after")
	h := node.engine.Queries()[subjects.QueryHealth]
	got, err := h(ctx, nil)
	if health, ok := got.(*subjects.Health); err != nil || !ok || health.Usage.LastSeq != 2 || health.Usage.Pending != 0 {
		t.Errorf("%+v %v: the stream has not kept its records", got, err)
	}
}
