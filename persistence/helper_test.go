package persistence

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// noon is the moment around which test records lie.
var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

func openTest(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// record makes a plausible record within a week before noon, the same for the
// same seq.
func record(seq uint64) *subjects.UsageRecord {
	r := newRand(seq)
	in, out := r.Int64N(4000), r.Int64N(2000)
	rec := &subjects.UsageRecord{
		ID: fmt.Sprintf("call-%08d", seq), Timestamp: subjects.Time{Time: noon.Add(-time.Duration(r.Int64N(int64(7 * 24 * time.Hour)))).Truncate(time.Millisecond)},
		Provider: pick(r, "claude-code", "copilot", "openai", "groq"),
		Model:    pick(r, "claude-sonnet-4.5", "gpt-5", "llama/70b"),
		ModelRaw: "claude-sonnet-4-5-20250929", Process: pick(r, "semantic", "wave/agent", "ingest 100%"),
		Task: "analysis", Class: "interactive", Tier: "standard", Subscription: accounts[seq%uint64(len(accounts))],
		InputTokens: in, OutputTokens: out, TotalTokens: in + out, CacheReadTokens: r.Int64N(100),
		CacheWriteTokens: r.Int64N(100), ReasoningTokens: r.Int64N(out + 1), TokensEstimated: r.IntN(5) == 0,
		LatencyMs: r.Float64() * 5000, QueuedMs: r.Float64() * 50, OverheadMs: 0.4,
		Cached: r.IntN(10) == 0, Outcome: pick(r, "ok", "ok", "ok", "TIMEOUT"),
		AttemptTrail:  []subjects.Attempt{{Provider: "claude-code", Model: "sonnet", Outcome: "ok", Ms: 1200}},
		PromptPreview: "Summarise the following conversation in three sentences and list the open questions at the end, with names",
	}
	if r.IntN(3) > 0 {
		cost, saved := subjects.USD(r.Int64N(50_000)), subjects.USD(r.Int64N(50_000))
		rec.CostUSD, rec.SavedUSD = &cost, &saved
	}
	return rec
}

// rich is record(seq), often of a run or a batch, and sometimes with tries that
// failed while a later one gave the outcome.
func rich(seq uint64) *subjects.UsageRecord {
	rec, r := record(seq), newRand(seq+1e9)
	if r.IntN(2) == 0 {
		rec.RunID = fmt.Sprint("run/", r.IntN(7))
	}
	if r.IntN(3) == 0 {
		rec.BatchID = pick(r, "nightly", "b%ü", "run/1")
	}
	for range max(r.IntN(6)-3, 0) {
		a := subjects.Attempt{Provider: pick(r, "groq", "ollama", "only/tries"), Model: "raw", Outcome: "TIMEOUT", Ms: r.Int64N(5000)}
		if r.IntN(5) > 0 {
			a.Spent = &subjects.Spent{
				Model: pick(r, "gpt-5", "half/way"), Subscription: accounts[r.IntN(len(accounts))], InputTokens: r.Int64N(3000), OutputTokens: r.Int64N(500),
				CacheReadTokens: r.Int64N(2) * 40, CacheWriteTokens: r.Int64N(2) * 50, ReasoningTokens: r.Int64N(10), Estimated: r.IntN(3) == 0,
			}
			if r.IntN(3) > 0 {
				a.Spent.CostUSD = new(subjects.USD(r.Int64N(9000)))
			}
		}
		rec.AttemptTrail = append([]subjects.Attempt{a}, rec.AttemptTrail...)
	}
	return rec
}

// accounts are those of the records; "" and an odd one may come from elsewhere.
var accounts = []string{subjects.SubscriptionMax, subjects.SubscriptionCopilot, subjects.SubscriptionAPIKey, subjects.SubscriptionLocal, "", "x-subscription-y", subjects.SubscriptionMock}

func pick(r *rand.Rand, s ...string) string { return s[r.IntN(len(s))] }

// entryOf is a record as the stream would give it.
func entryOf(t testing.TB, seq uint64, r *subjects.UsageRecord) Entry {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return Entry{Seq: seq, Data: b}
}

// entries makes the entries with sequences from..to.
func entries(t testing.TB, from, to uint64) []Entry {
	t.Helper()
	var batch []Entry
	for seq := from; seq <= to; seq++ {
		batch = append(batch, entryOf(t, seq, record(seq)))
	}
	return batch
}

func mustApply(t testing.TB, s *Store, stream string, batch []Entry, want Applied) {
	t.Helper()
	got, err := s.Apply(stream, batch)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Fatalf("Apply of %d entries: %+v, want %+v", len(batch), got, want)
	}
}

func mustVerify(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Verify(); err != nil {
		t.Fatal(err)
	}
}

func mustCursor(t testing.TB, s *Store, want Cursor) {
	t.Helper()
	got, err := s.Cursor()
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Fatalf("cursor %+v, want %+v", got, want)
	}
}

// allCalls sums everything up to noon's bucket.
func allTotals(t testing.TB, s *Store) subjects.UsageTotals {
	t.Helper()
	sum, err := s.Summary(subjects.UsageQuery{Hours: 24 * 365}, noon)
	if err != nil {
		t.Fatal(err)
	}
	return sum.Totals
}

func rowCount(t testing.TB, s *Store) int {
	t.Helper()
	rows, err := s.Recent(subjects.MaxRecent)
	if err != nil {
		t.Fatal(err)
	}
	return len(rows)
}

// copyDir copies a live folder: what a process that is killed now leaves.
func copyDir(t testing.TB, from string) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(filepath.Join(to, e.Name()), b, 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func isKind(err error, kind subjects.Kind) bool {
	return errors.Is(err, &subjects.Error{Kind: kind})
}
