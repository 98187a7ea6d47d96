package sluice_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fakeopenai"
	"github.com/sluice-llm/sluice/sluicetest"
	"github.com/sluice-llm/sluice/subjects"
)

// rig is a node whose openai (and custom) are fake upstreams that count.
type rig struct {
	t        *testing.T
	ctx      context.Context
	node     *sluice.Node
	nc       *nats.Conn
	client   *subjects.Client
	upstream *fakeopenai.Server
	// cancels says that calls were cut off: a slot may then have been given for
	// a request that never left.
	cancels bool
}

// newRig starts a rig. env comes after the defaults and wins. At the end of the
// test all slots must be free, and the upstream must have seen no call that the
// pools did not grant.
func newRig(t *testing.T, up *fakeopenai.Server, env ...string) *rig {
	t.Helper()
	r := &rig{t: t, upstream: up}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	all := append([]string{
		"OPENAI_API_KEY=sk-test", "LLM_BASE_URL_OPENAI=" + up.BaseURL(),
	}, env...)
	r.node = sluicetest.Start(t, sluice.WithEnviron(all), sluice.WithNATSListen("127.0.0.1:0"), sluice.WithHTTP("127.0.0.1:0"))
	nc, err := nats.Connect(r.node.NATSURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r.nc, r.client = nc, subjects.NewClient(nc)
	t.Cleanup(r.settle)
	return r
}

func (r *rig) health() *subjects.Health {
	r.t.Helper()
	var h subjects.Health
	if err := subjects.Query(r.ctx, r.node.Client(), subjects.QueryHealth, nil, &h); err != nil {
		r.t.Fatal(err)
	}
	return &h
}

// until polls a condition about the node, without sleeping between looks: each
// look is a query that the node answers.
func (r *rig) until(what string, cond func(*subjects.Health) bool) {
	r.t.Helper()
	for {
		h := r.health()
		if cond(h) {
			return
		}
		if r.ctx.Err() != nil {
			r.t.Fatalf("waiting for %s: %+v", what, h)
		}
	}
}

func (r *rig) settle() {
	if r.t.Failed() {
		return
	}
	r.until("all slots free", func(h *subjects.Health) bool {
		busy := h.InFlightRequests
		for _, p := range h.Pools {
			busy += p.Active + p.Queued
		}
		for _, c := range h.Classes {
			busy += c.Active + c.Queued
		}
		return busy == 0
	})
	var granted int64
	for _, p := range r.health().Pools {
		granted += p.Granted
	}
	total := int64(r.upstream.Counts().Total)
	if total > granted || total != granted && !r.cancels {
		r.t.Errorf("the upstream saw %d calls, the pools granted %d", total, granted)
	}
}

// usage is the log's totals.
func (r *rig) usage() subjects.UsageTotals {
	r.t.Helper()
	var sum subjects.UsageSummary
	if err := subjects.Query(r.ctx, r.node.Client(), subjects.QueryUsageSummary, nil, &sum); err != nil {
		r.t.Fatal(err)
	}
	return sum.Totals
}

func (r *rig) recent() []subjects.UsageRecord {
	r.t.Helper()
	return recentRows(r.ctx, r.t, r.node.Client())
}

func recentRows(ctx context.Context, t testing.TB, tr subjects.Transport) []subjects.UsageRecord {
	t.Helper()
	var reply struct {
		Calls []subjects.UsageRecord `json:"calls"`
	}
	if err := subjects.Query(ctx, tr, subjects.QueryUsageRecent, subjects.RecentQuery{Limit: subjects.MaxRecent}, &reply); err != nil {
		t.Fatal(err)
	}
	return reply.Calls
}

// openAIMsg is an openai-chat request whose user field tells the upstream the class.
func openAIMsg(class, callID string, stream bool) *subjects.Msg {
	h := subjects.Header{subjects.HeaderWire: {"openai-chat"}, subjects.HeaderSkipCache: {"true"}}
	if callID != "" {
		h.Set(subjects.HeaderCallID, callID)
	}
	body := fmt.Sprintf(`{"model":"openai/gpt-test","user":%q,"stream":%v,"messages":[{"role":"user","content":"hello there"}]}`, class, stream)
	return &subjects.Msg{Subject: subjects.Complete(class), Header: h, Data: []byte(body)}
}
