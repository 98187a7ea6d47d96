package sluice_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/sluicetest"
	"github.com/sluice-llm/sluice/subjects"
)

// ask is a request that goes to a provider each time.
func ask(text string) *subjects.Request {
	r := &subjects.Request{SkipCache: true}
	r.Messages = []subjects.Message{{Role: "user", Content: subjects.Text(text)}}
	return r
}

func TestNode(t *testing.T) {
	start := time.Now()
	node := sluicetest.Start(t)
	t.Logf("ready after %v", time.Since(start))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, tr := range []struct {
		name string
		t    subjects.Transport
	}{{"local", node.Client()}, {"nats", subjects.NewClient(node.Conn())}} {
		t.Run(tr.name, func(t *testing.T) {
			res, err := subjects.Call(ctx, tr.t, subjects.ClassInteractive, ask("hello"))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", res)
			n := 0
			res2, err := subjects.CallStream(ctx, tr.t, subjects.ClassIngestion, ask("hello"), func(subjects.Event) error { n++; return nil })
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 || res2.Content != res.Content {
				t.Fatalf("%d events, %q against %q", n, res2.Content, res.Content)
			}
		})
	}
	var sum subjects.UsageSummary
	if err := subjects.Query(ctx, node.Client(), subjects.QueryUsageSummary, nil, &sum); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", sum.Totals)
	if sum.Totals.Calls != 4 {
		t.Fatalf("%d calls", sum.Totals.Calls)
	}
	var h subjects.Health
	if err := subjects.Query(ctx, node.Client(), subjects.QueryHealth, nil, &h); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", h)
}
