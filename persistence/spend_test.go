package persistence

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// spentBy sums the records that are.
func spentBy(records []*subjects.UsageRecord, are func(*subjects.UsageRecord) bool) (sum Spend) {
	for _, r := range records {
		if !are(r) {
			continue
		}
		sum.Calls++
		if r.Timestamp.After(sum.Last) {
			sum.Last = r.Timestamp.UTC()
		}
		for _, part := range withTries([]*subjects.UsageRecord{r}) {
			if part.Subscription != "local" && part.Subscription != "mock" {
				sum.Tokens += part.TotalTokens
			}
			if part.CostUSD != nil {
				sum.Cost += *part.CostUSD
			}
		}
	}
	return sum
}

func mustSpend(t *testing.T, s *Store, scope, id string, want Spend) {
	t.Helper()
	if got, err := s.Spent(scope, id); err != nil || got != want {
		t.Fatalf("%s %q: %+v, %v, want %+v", scope, id, got, err, want)
	}
}

// checkSpends holds every sum of spending against the records.
func checkSpends(t *testing.T, s *Store, records []*subjects.UsageRecord) {
	t.Helper()
	checkTimes(t, s, records, time.Time{})
	for _, scope := range []struct {
		name string
		id   func(*subjects.UsageRecord) string
	}{
		{subjects.BudgetRun, func(r *subjects.UsageRecord) string { return r.RunID }},
		{subjects.BudgetBatch, func(r *subjects.UsageRecord) string { return r.BatchID }},
	} {
		ids := map[string]bool{"nobody's": true}
		for _, r := range records {
			ids[scope.id(r)] = true
		}
		delete(ids, "")
		for id := range ids {
			mustSpend(t, s, scope.name, id, spentBy(records, func(r *subjects.UsageRecord) bool { return scope.id(r) == id }))
		}
		mustSpend(t, s, scope.name, "", Spend{})
	}
}

// checkTimes holds the sums of all months, of ever, and of the days from first on
// against the records.
func checkTimes(t *testing.T, s *Store, records []*subjects.UsageRecord, first time.Time) {
	t.Helper()
	times := map[string]func(*subjects.UsageRecord) bool{"all": func(*subjects.UsageRecord) bool { return true }}
	for _, format := range []string{dayFormat, monthFormat} {
		in := func(r *subjects.UsageRecord) string { return r.Timestamp.UTC().Format(format) }
		for _, at := range []string{"2001-01-01", "9999-12-31"} {
			times[at[:len(format)]] = func(*subjects.UsageRecord) bool { return false }
		}
		for _, r := range records {
			if format == dayFormat && r.Timestamp.Before(first) {
				continue
			}
			at := in(r)
			times[at] = func(r *subjects.UsageRecord) bool { return in(r) == at }
		}
	}
	for at, are := range times {
		mustSpend(t, s, subjects.BudgetTotal, at, spentBy(records, are))
	}
}

// Tokens of a try that failed are those of its provider and model, and no call;
// the record's own are not changed by them.
func TestTries(t *testing.T) {
	usd := func(n int64) *subjects.USD { return new(subjects.USD(n)) }
	r := record(1)
	r.Provider, r.Model, r.Process, r.Outcome, r.TokensEstimated = "openai", "gpt-5", "wiki", "ok", false
	r.Subscription, r.CostUSD, r.SavedUSD = "api-key", usd(100), nil
	r.InputTokens, r.OutputTokens, r.TotalTokens, r.ReasoningTokens, r.CacheReadTokens, r.CacheWriteTokens = 10, 20, 30, 4, 5, 6
	r.RunID, r.BatchID = "run", "batch"
	r.AttemptTrail = []subjects.Attempt{
		{Provider: "claude-code", Model: "sonnet", Outcome: "TIMEOUT", Spent: &subjects.Spent{
			Model: "claude-sonnet-4.5", Subscription: "max-subscription", InputTokens: 1000, OutputTokens: 1, CostUSD: usd(0), CacheReadTokens: 70,
		}},
		{Provider: "groq", Model: "x", Outcome: "PROVIDER_ERROR", Spent: &subjects.Spent{Model: "gpt-oss", Subscription: "api-key", InputTokens: 200, OutputTokens: 2, Estimated: true}},
		{Provider: "ollama", Outcome: "TIMEOUT", Spent: &subjects.Spent{Subscription: "local", InputTokens: 5000, OutputTokens: 3, ReasoningTokens: 2, CostUSD: usd(0)}},
		{Provider: "openai", Outcome: "TIMEOUT", Spent: &subjects.Spent{Model: "gpt-5", Subscription: "api-key", InputTokens: 8, OutputTokens: 9, CostUSD: usd(40)}},
		{Provider: "gemini", Outcome: "AUTH_ERROR"},
		{Provider: "mistral", Outcome: "TIMEOUT", Spent: &subjects.Spent{InputTokens: -5, OutputTokens: -1, CostUSD: usd(-3)}},
		{Provider: "openai", Outcome: "ok"},
	}
	s := openTest(t, t.TempDir())
	mustApply(t, s, "A", []Entry{entryOf(t, 1, r)}, Applied{Rows: 1})
	mustVerify(t, s)
	sum, err := s.Summary(subjects.UsageQuery{Hours: 24 * 30}, noon)
	if err != nil {
		t.Fatal(err)
	}
	got := sum.Totals
	got.AvgLatencyMs, got.AvgQueuedMs = 0, 0
	want := subjects.UsageTotals{
		Calls: 1, Cached: one(r.Cached), InputTokens: 6218, OutputTokens: 35, TotalTokens: 6253, RetriedTokens: 6223, ReasoningTokens: 6,
		CacheReadTokens: 75, CacheWriteTokens: 6, Estimated: 1, CostUSD: 140, Unpriced: 1, UnpricedTokens: 202,
	}
	if got != want {
		t.Errorf("totals\n%+v, want\n%+v", got, want)
	}
	rows := func(shares []subjects.UsageShare) (out string) {
		for _, row := range shares {
			out += fmt.Sprintf(" %s:%d/%d", row.Name, row.Calls, row.TotalTokens)
		}
		return out
	}
	for _, c := range []struct {
		rows []subjects.UsageShare
		want string
	}{
		{sum.ByProvider, " ollama:0/5003 claude-code:0/1001 groq:0/202 openai:1/47 mistral:0/0"},
		{sum.ByModel, " unknown:0/5003 claude-sonnet-4.5:0/1001 gpt-oss:0/202 gpt-5:1/47"},
		{sum.ByProcess, " wiki:1/6253"},
	} {
		if got := rows(c.rows); got != c.want {
			t.Errorf("rows%s, want%s", got, c.want)
		}
	}
	spend := Spend{Calls: 1, Tokens: 30 + 1001 + 202 + 17, Cost: 140, Last: r.Timestamp.Time}
	mustSpend(t, s, "run", "run", spend)
	mustSpend(t, s, "batch", "batch", spend)
	mustSpend(t, s, "total", "all", spend)
	mustSpend(t, s, "run", "batch", Spend{})
}

// A record with very many failed tries fits a transaction, beside others of its
// kind, and none of its tokens is lost.
func TestManyTries(t *testing.T) {
	s := openTest(t, t.TempDir())
	var batch []Entry
	var records []*subjects.UsageRecord
	for seq := range uint64(20) {
		r := record(seq)
		r.Process = strings.Repeat("/", 160)
		for i := range 100 {
			name := fmt.Sprintf("%d%s", i, strings.Repeat("%", 200))
			r.AttemptTrail = append(r.AttemptTrail, subjects.Attempt{Provider: name, Outcome: "TIMEOUT", Spent: &subjects.Spent{Model: name, InputTokens: 7, OutputTokens: 2}})
		}
		records = append(records, r)
		batch = append(batch, entryOf(t, seq+1, r))
		if n := len(batch[seq].Data); n > maxRecord {
			t.Fatalf("a record of %d bytes", n)
		}
	}
	mustApply(t, s, "A", batch, Applied{Rows: len(batch)})
	mustVerify(t, s)
	checkTimes(t, s, records, time.Time{})
	sum, err := s.Summary(subjects.UsageQuery{Hours: 24 * 30}, noon)
	if err != nil {
		t.Fatal(err)
	}
	if got := sum.Totals.RetriedTokens; got != 20*100*9 {
		t.Errorf("%d tokens of tries", got)
	}
	for _, row := range sum.ByModel {
		if row.Name == unnamed && row.RetriedTokens != 20*(100-maxTries+1)*9 {
			t.Errorf("%d tokens of tries without a row of their own", row.RetriedTokens)
		}
	}
}

// Records of several days in any order, one or many at once: what of a day is in
// the cursor and what is in its sum make up the day.
func TestDaysInAnyOrder(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	r := newRand(5)
	var records []*subjects.UsageRecord
	for seq := uint64(1); seq < 300; {
		var batch []Entry
		for range 1 + r.IntN(4) {
			rec := rich(seq)
			rec.Timestamp.Time = noon.Add(-time.Duration(r.IntN(4)) * 20 * 24 * time.Hour)
			records = append(records, rec)
			batch = append(batch, entryOf(t, seq, rec))
			seq++
		}
		mustApply(t, s, "A", batch, Applied{Rows: len(batch)})
		if r.IntN(20) == 0 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openTest(t, dir)
			mustVerify(t, s)
			checkSpends(t, s, records)
		}
	}
	checkSpends(t, s, records)
}

// What is not a sum of spending is refused.
func TestSpentBounds(t *testing.T) {
	s := openTest(t, t.TempDir())
	r := record(1)
	r.RunID = strings.Repeat("r", subjects.MaxName+10)
	mustApply(t, s, "A", []Entry{entryOf(t, 1, r)}, Applied{Rows: 1})
	if got, err := s.Spent(subjects.BudgetRun, r.RunID); err != nil || got.Calls != 1 {
		t.Errorf("a long id: %+v, %v", got, err)
	}
	for _, c := range [][2]string{{"", "x"}, {"RUN", "x"}, {"total", ""}, {"total", "2026"}, {"total", "2026-13"}, {"total", "2026-02-30"}, {"total", "2026-2-3"}, {"total", "2026-02-03T"}, {"total", "All"}} {
		if got, err := s.Spent(c[0], c[1]); !isKind(err, subjects.KindValidation) || got != (Spend{}) {
			t.Errorf("%q: %+v, %v", c, got, err)
		}
	}
}

// TestPrune: whatever GC forgets, at any time and dying anywhere: months and ever
// stay exact, days and runs are forgotten when they are old and not before, and
// Verify knows what may be gone.
func TestPrune(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := newRand(seed)
			s, err := Open(Options{InMemory: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			var records []*subjects.UsageRecord
			newest, seq := noon.AddDate(-4, 0, 0), uint64(0)
			for newest.Before(noon) {
				var batch []Entry
				for range 1 + r.IntN(20) {
					seq++
					rec := rich(seq)
					rec.RunID = fmt.Sprintf("run %d", seq/40)
					if rec.Timestamp.Time = newest.Add(-time.Duration(r.Int64N(int64(30 * 24 * time.Hour)))).Truncate(time.Millisecond); r.IntN(3) == 0 {
						newest = newest.Add(time.Duration(r.Int64N(int64(15 * 24 * time.Hour)))).Truncate(time.Millisecond)
						rec.Timestamp.Time = newest
					}
					records = append(records, rec)
					batch = append(batch, entryOf(t, seq, rec))
				}
				mustApply(t, s, "A", batch, Applied{Rows: len(batch)})
				if r.IntN(10) == 0 {
					pruneAndDie(t, s, func() bool { return r.IntN(3) == 0 })
					mustVerify(t, s)
				}
			}
			pruneAndDie(t, s, func() bool { return false })
			checkPruned(t, s, records)
		})
	}
}

// pruneAndDie prunes a year after the newest record, which is no matter, until no
// commit fails.
func pruneAndDie(t *testing.T, s *Store, dies func() bool) {
	t.Helper()
	s.failpoint = func(bool) error {
		if dies() {
			return errAbort
		}
		return nil
	}
	defer func() { s.failpoint = nil }()
	for err := errAbort; err != nil; {
		err = s.write(func() error { return s.prune(noon.AddDate(1, 0, 0)) })
		if err != nil && !errors.Is(err, errAbort) {
			t.Fatal(err)
		}
	}
}

func checkPruned(t *testing.T, s *Store, records []*subjects.UsageRecord) {
	t.Helper()
	mustVerify(t, s)
	newest := slices.MaxFunc(records, func(a, b *subjects.UsageRecord) int { return a.Timestamp.Compare(b.Timestamp.Time) }).Timestamp
	days, runs := newest.Add(-keepDays*time.Millisecond), newest.Add(-keepRuns*time.Millisecond)
	checkTimes(t, s, records, days)
	last := map[string]time.Time{}
	gone := 0
	for _, r := range records {
		last[r.RunID] = maxTimeOf(last[r.RunID], r.Timestamp.Time)
		if r.Timestamp.Before(days.AddDate(0, 0, -1)) {
			mustSpend(t, s, "total", r.Timestamp.Format(dayFormat), Spend{})
			gone++
		}
	}
	for run, at := range last {
		want := Spend{}
		if at.Before(runs) {
			gone++
		} else {
			want = spentBy(records, func(r *subjects.UsageRecord) bool { return r.RunID == run })
		}
		mustSpend(t, s, "run", run, want)
	}
	if gone < 100 {
		t.Errorf("only %d sums were forgotten", gone)
	}
}

func maxTimeOf(a, b time.Time) time.Time {
	if cmp.Compare(a.UnixMilli(), b.UnixMilli()) < 0 {
		return b
	}
	return a
}

// Neither a clock that is far ahead nor one that is far behind takes the sum of a
// run that goes on, nor does a record that is dated ahead.
func TestPruneAndClocks(t *testing.T) {
	s := openTest(t, t.TempDir())
	r := record(1)
	r.RunID = "run"
	mustApply(t, s, "A", []Entry{entryOf(t, 1, r)}, Applied{Rows: 1})
	prune := func(now time.Time) {
		t.Helper()
		if err := s.write(func() error { return s.prune(now) }); err != nil {
			t.Fatal(err)
		}
		mustVerify(t, s)
		if got, err := s.Spent("run", "run"); err != nil || got.Calls != 1 {
			t.Fatalf("at %v: %+v, %v", now, got, err)
		}
	}
	prune(noon.AddDate(50, 0, 0))
	prune(time.Time{})
	ahead := record(2)
	ahead.Timestamp.Time = noon.AddDate(50, 0, 0)
	mustApply(t, s, "A", []Entry{entryOf(t, 2, ahead)}, Applied{Rows: 1})
	prune(noon.AddDate(0, 0, 1))
}

// A run that was forgotten begins anew when it goes on after all.
func TestPrunedRunGoesOn(t *testing.T) {
	s := openTest(t, t.TempDir())
	for i, at := range []time.Time{noon.AddDate(0, 0, -200), noon, noon.Add(time.Hour)} {
		r := record(uint64(i + 1))
		r.RunID, r.Timestamp.Time = "run", at
		if i == 1 {
			r.RunID = "another"
		}
		if i == 2 {
			pruneAndDie(t, s, func() bool { return false })
			mustSpend(t, s, "run", "run", Spend{})
		}
		mustApply(t, s, "A", []Entry{entryOf(t, uint64(i+1), r)}, Applied{Rows: 1})
		mustVerify(t, s)
	}
	if got, err := s.Spent("run", "run"); err != nil || got.Calls != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// What GC and SaveStates write leaves no doubt whether the database is whole after
// the process has died.
func TestNoDoubt(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	for i, at := range []time.Time{noon.AddDate(-2, 0, 0), noon} {
		r := record(uint64(i))
		r.RunID, r.Timestamp.Time = fmt.Sprint("run", i), at
		mustApply(t, s, "A", []Entry{entryOf(t, uint64(i+1), r)}, Applied{Rows: 1})
	}
	pruneAndDie(t, s, func() bool { return false })
	mustSpend(t, s, "run", "run0", Spend{})
	mustSave(t, s, map[string][]byte{"a": []byte("1")})
	mustApply(t, s, "A", entries(t, 3, 3), Applied{Rows: 1})
	var out bytes.Buffer
	s, err := Open(Options{Dir: copyDir(t, dir), Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil || out.Len() > 0 {
		t.Errorf("%v, logged: %s", err, out.String())
	}
}

// GC looks at some of very many runs at a time and at all of them in the end.
func TestPruneIsBounded(t *testing.T) {
	s, err := Open(Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	var batch []Entry
	for _, runs := range []struct {
		name, day string
		n         int
	}{{"a", "2025-03-14", 5000}, {"m", "2026-03-14", maxLook}, {"z", "2025-03-14", 2000}} {
		for i := range runs.n {
			batch = append(batch, Entry{Seq: uint64(len(batch) + 1), Data: fmt.Appendf(nil, `{"id":"%[1]s%[2]d","timestamp":"%[3]sT12:00:00Z","run_id":"%[1]s%[2]d"}`, runs.name, i, runs.day)})
		}
	}
	mustApply(t, s, "A", batch, Applied{Rows: len(batch)})
	var left []int
	for range 3 {
		if err := s.GC(); err != nil {
			t.Fatal(err)
		}
		left = append(left, countPrefix(t, s, runPrefix))
	}
	if !slices.Equal(left, []int{maxLook + 2000, maxLook, maxLook}) {
		t.Errorf("left: %v", left)
	}
	mustVerify(t, s)
}

// Verify finds a sum that is wrong, gone or one too many.
func TestVerifySpends(t *testing.T) {
	for name, change := range map[string]func(w *writer) error{
		"wrong run":   func(w *writer) error { return putSums(w.txn, map[string]*spend{runPrefix + "run/1": {tokens: 1}}) },
		"run less":    func(w *writer) error { return w.txn.Set([]byte(runPrefix+"run/1"), (&spend{calls: 1}).encode()) },
		"wrong day":   func(w *writer) error { return putSums(w.txn, map[string]*spend{dayPrefix + "2026-03-10": {cost: 1}}) },
		"wrong month": func(w *writer) error { return putSums(w.txn, map[string]*spend{monthPrefix + "2026-03": {calls: 1}}) },
		"other month": func(w *writer) error { return putSums(w.txn, map[string]*spend{monthPrefix + "2026-01": {calls: 1}}) },
		"other batch": func(w *writer) error { return putSums(w.txn, map[string]*spend{batchPrefix + "x": {calls: 1}}) },
		"run gone":    func(w *writer) error { return w.txn.Delete([]byte(runPrefix + "run/1")) },
		"day gone":    func(w *writer) error { return w.txn.Delete([]byte(dayPrefix + "2026-03-10")) },
		"cursor": func(w *writer) error {
			w.cur.today.tokens++
			return w.cur.put(w.txn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, t.TempDir())
			var records []*subjects.UsageRecord
			for seq := range uint64(200) {
				records = append(records, rich(seq))
			}
			applyRecords(t, s, records)
			mustVerify(t, s)
			w := &writer{s: s, stream: "A"}
			defer w.discard()
			if err := errors.Join(w.begin(), change(w)); err != nil {
				t.Fatal(err)
			}
			if err := w.txn.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := s.Verify(); err == nil || !strings.Contains(err.Error(), "sum") {
				t.Errorf("%v", err)
			}
		})
	}
}
