package routing

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// twelve makes a router whose chain has 12 providers, and a snapshot in which all
// can serve, or every other one is held back or not there.
func twelve(tb testing.TB, half bool) (*Router, Snapshot, *Job) {
	tb.Helper()
	cfg := load(tb, "LLM_CLI_PROXY_URL=http://127.0.0.1:1", "LLM_BASE_URL_CUSTOM=http://127.0.0.1:2")
	cfg.Providers["custom"].Models = map[string]string{subjects.TierStandard: "m"}
	out := &config.Provider{ID: "out", Kind: config.KindOutside, Account: subjects.SubscriptionAPIKey, Models: map[string]string{subjects.TierStandard: "m"}}
	r, job := New(cfg, out), &Job{Task: "semantic_code_analysis", Class: subjects.ClassInteractive}
	snap := with(r.IDs()...)
	for i, s := range r.tiers[1] {
		st := snap[s.id]
		switch {
		case half && i%4 == 0:
			st.Quota = held(5*time.Minute, "")
		case half && i%4 == 2:
			st.Breaker = held(30*time.Second, "after PROVIDER_ERROR")
		}
		snap[s.id] = st
	}
	return r, snap, job
}

// TestResolveAllocations: nothing but the result. The decision and its chain; of
// what is skipped a list, its places, and one text for all that a time stands in.
func TestResolveAllocations(t *testing.T) {
	for _, c := range []struct {
		half  bool
		chain int
		most  float64
	}{{false, 12, 2}, {true, 6, 5}} {
		r, snap, job := twelve(t, c.half)
		got := testing.AllocsPerRun(100, func() {
			if d, err := r.Resolve(snap, job, at); err != nil || len(d.Chain) != c.chain || len(d.Chain)+len(d.Skipped) != 12 {
				t.Fatal(d, err)
			}
		})
		if got > c.most {
			t.Errorf("%d of 12 serve: %v allocations, at most %v are the result", c.chain, got, c.most)
		}
	}
}

func BenchmarkResolve(b *testing.B) {
	bench := func(half bool, change func(*Job)) func(*testing.B) {
		return func(b *testing.B) {
			r, snap, job := twelve(b, half)
			change(job)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Resolve(snap, job, at); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("all of 12", bench(false, func(*Job) {}))
	b.Run("half skipped", bench(true, func(*Job) {}))
	b.Run("provider and model asked for", bench(false, func(j *Job) { j.Model = "anthropic/claude-haiku-4-5" }))
	b.Run("model asked for", bench(false, func(j *Job) { j.Model = "claude-sonnet-4-5" }))
}

func BenchmarkNew(b *testing.B) {
	cfg := load(b)
	b.ReportAllocs()
	for b.Loop() {
		New(cfg)
	}
}
