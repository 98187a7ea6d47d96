package persistence

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// withTries adds to the records what their failed tries spent, each as a record
// without an id: it is no call and saved nothing.
func withTries(records []*subjects.UsageRecord) (all []*subjects.UsageRecord) {
	for _, r := range records {
		all = append(all, r)
		for _, a := range r.AttemptTrail {
			if s := a.Spent; s != nil {
				all = append(all, &subjects.UsageRecord{
					Timestamp: r.Timestamp, Provider: a.Provider, Process: r.Process, Model: s.Model, Subscription: s.Subscription, Outcome: "ok",
					InputTokens: s.InputTokens, OutputTokens: s.OutputTokens, TotalTokens: s.InputTokens + s.OutputTokens,
					CacheReadTokens: s.CacheReadTokens, CacheWriteTokens: s.CacheWriteTokens, ReasoningTokens: s.ReasoningTokens,
					TokensEstimated: s.Estimated, CostUSD: s.CostUSD, SavedUSD: new(subjects.USD),
				})
			}
		}
	}
	return all
}

// checkSummary holds a summary against the records themselves.
func checkSummary(t *testing.T, s *Store, records []*subjects.UsageRecord, q subjects.UsageQuery, now time.Time) *subjects.UsageSummary {
	t.Helper()
	records = withTries(records)
	slices.SortFunc(records, func(a, b *subjects.UsageRecord) int { return a.Timestamp.Compare(b.Timestamp.Time) })
	sum, err := s.Summary(q, now)
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	step := time.Duration(sum.BucketMinutes) * time.Minute
	hours := time.Duration(sum.Hours) * time.Hour
	switch from, to := sum.From.Time, sum.To.Time; {
	case from.After(now.Add(-hours)), !from.Add(step).After(now.Add(-hours).Truncate(time.Minute)):
		t.Fatalf("%+v at %v begins at %v", q, now, from)
	case !to.After(now), to.Add(-step).After(now):
		t.Fatalf("%+v at %v ends at %v", q, now, to)
	case len(sum.Timeline) != int(to.Sub(from)/step):
		t.Fatalf("%d buckets of %v from %v to %v", len(sum.Timeline), step, from, to)
	}
	if want := sumOf(records, sum.From.Time, sum.To.Time); sum.Totals != want {
		t.Fatalf("%+v: totals\n%+v, rows\n%+v", q, sum.Totals, want)
	}
	for i, b := range sum.Timeline {
		start := sum.From.Add(time.Duration(i) * step)
		in := within(records, start, start.Add(step))
		want := subjects.UsageBucket{
			Start: subjects.Time{Time: start}, UsageTotals: sumOf(in, start, start.Add(step)),
			ByProvider: map[string]int64{}, ByProcess: map[string]int64{}, ByModel: map[string]int64{},
		}
		for _, r := range in {
			want.ByProvider[r.Provider] += r.TotalTokens
			want.ByProcess[r.Process] += r.TotalTokens
			want.ByModel[r.Model] += r.TotalTokens
		}
		if !reflect.DeepEqual(b, want) {
			t.Fatalf("%+v: bucket %d\n%+v, rows\n%+v", q, i, b, want)
		}
	}
	in := within(records, sum.From.Time, sum.To.Time)
	checkShares(t, sum.ByProvider, in, func(r *subjects.UsageRecord) string { return r.Provider })
	checkShares(t, sum.ByProcess, in, func(r *subjects.UsageRecord) string { return r.Process })
	checkShares(t, sum.ByModel, in, func(r *subjects.UsageRecord) string { return r.Model })
	return sum
}

// within is the part of the records, which are by time, from from and before to.
func within(records []*subjects.UsageRecord, from, to time.Time) []*subjects.UsageRecord {
	before := func(r *subjects.UsageRecord, at time.Time) int { return r.Timestamp.Compare(at) }
	first, _ := slices.BinarySearchFunc(records, from, before)
	last, _ := slices.BinarySearchFunc(records, to, before)
	return records[first:last]
}

func sumOf(records []*subjects.UsageRecord, from, to time.Time) (t subjects.UsageTotals) {
	var latency, queued int64
	for _, r := range within(records, from, to) {
		if r.ID != "" {
			t.Calls++
		} else {
			t.RetriedTokens += r.TotalTokens
		}
		t.Errors += one(r.Outcome != "ok")
		t.Cached += one(r.Cached)
		t.InputTokens += r.InputTokens
		t.OutputTokens += r.OutputTokens
		t.TotalTokens += r.TotalTokens
		t.CacheReadTokens += r.CacheReadTokens
		t.CacheWriteTokens += r.CacheWriteTokens
		t.ReasoningTokens += r.ReasoningTokens
		t.Estimated += one(r.TokensEstimated)
		if r.CostUSD == nil {
			t.Unpriced++
			t.UnpricedTokens += r.TotalTokens
		} else {
			t.CostUSD += *r.CostUSD
		}
		if r.SavedUSD != nil {
			t.SavedUSD += *r.SavedUSD
		} else {
			t.SavedUnknown += one(strings.HasSuffix(r.Subscription, "-subscription"))
		}
		latency += int64(math.Round(r.LatencyMs * 1000))
		queued += int64(math.Round(r.QueuedMs * 1000))
	}
	if t.Calls > 0 {
		t.AvgLatencyMs = float64(latency) / 1000 / float64(t.Calls)
		t.AvgQueuedMs = float64(queued) / 1000 / float64(t.Calls)
	}
	return t
}

func checkShares(t *testing.T, got []subjects.UsageShare, in []*subjects.UsageRecord, name func(*subjects.UsageRecord) string) {
	t.Helper()
	groups := map[string][]*subjects.UsageRecord{}
	tokens, calls := int64(0), int64(0)
	for _, r := range in {
		groups[name(r)] = append(groups[name(r)], r)
		tokens += r.TotalTokens
		calls += one(r.ID != "")
	}
	if len(got) != len(groups) || got == nil {
		t.Fatalf("%d rows, want %d", len(got), len(groups))
	}
	share := 0.0
	for i, row := range got {
		rows := groups[row.Name]
		want := sumOf(rows, time.Time{}, noon.AddDate(10_000, 0, 0))
		wantShare := float64(want.TotalTokens) / float64(tokens)
		if tokens == 0 {
			wantShare = float64(want.Calls) / float64(calls)
		}
		if row.UsageTotals != want || row.Share != wantShare {
			t.Fatalf("%q: %+v, rows %+v, share %v", row.Name, row, want, wantShare)
		}
		share += row.Share
		if i > 0 {
			if p := got[i-1]; p.TotalTokens < row.TotalTokens || p.TotalTokens == row.TotalTokens && p.Name >= row.Name {
				t.Fatalf("%q before %q", p.Name, row.Name)
			}
		}
	}
	if len(got) > 0 && math.Abs(share-1) > 1e-9 {
		t.Fatalf("shares sum to %v", share)
	}
}

func applyRecords(t *testing.T, s *Store, records []*subjects.UsageRecord) {
	t.Helper()
	batch := make([]Entry, len(records))
	for i, r := range records {
		batch[i] = entryOf(t, uint64(i+1), r)
	}
	mustApply(t, s, "A", batch, Applied{Rows: len(batch)})
}

func TestSummaryIsExact(t *testing.T) {
	s := openTest(t, t.TempDir())
	var records []*subjects.UsageRecord
	r := newRand(1)
	for seq := range uint64(3000) {
		rec := rich(seq)
		if seq%3 == 0 { // close to edges of minutes, hours and days
			edge := noon.Truncate(24 * time.Hour).Add(time.Duration(r.IntN(100)-80) * time.Hour)
			rec.Timestamp.Time = edge.Add(time.Duration(r.IntN(5)-2) * time.Millisecond)
		}
		records = append(records, rec)
	}
	applyRecords(t, s, records)
	mustVerify(t, s)
	nows := []time.Time{
		noon, noon.Add(time.Millisecond), noon.Add(-time.Millisecond), noon.Truncate(24 * time.Hour),
		noon.Add(17*time.Minute + 31*time.Second + 999*time.Millisecond), noon.In(time.FixedZone("half", 5*3600+1800)),
	}
	for _, q := range []subjects.UsageQuery{
		{},
		{Hours: 1},
		{Hours: 2, BucketMinutes: 1},
		{Hours: 24, BucketMinutes: 2},
		{Hours: 24, BucketMinutes: 7},
		{Hours: 48, BucketMinutes: 45},
		{Hours: 48, BucketMinutes: 61},
		{Hours: 48, BucketMinutes: 59},
		{Hours: 48, BucketMinutes: 90},
		{Hours: 168},
		{Hours: 168, BucketMinutes: 60},
		{Hours: 168, BucketMinutes: 150},
		{Hours: 168, BucketMinutes: 1439},
		{Hours: 720},
		{Hours: 8784},
		{Hours: 8784, BucketMinutes: 2 * minutesPerWeek},
		{Hours: maxHours},
		{Hours: maxHours, BucketMinutes: maxStep},
	} {
		for _, now := range nows {
			checkSummary(t, s, records, q, now)
		}
	}
	for range 40 {
		q := subjects.UsageQuery{Hours: 1 + r.IntN(200), BucketMinutes: 10 + r.IntN(3000)}
		checkSummary(t, s, records, q, noon.Add(-time.Duration(r.Int64N(int64(8*24*time.Hour)))))
	}
}

// A row belongs to exactly the bucket its millisecond is in.
func TestSummaryEdges(t *testing.T) {
	s := openTest(t, t.TempDir())
	var records []*subjects.UsageRecord
	for i, at := range []string{
		"2026-03-13T23:59:59.999Z", "2026-03-14T00:00:00.000Z", "2026-03-14T10:59:59.999Z", "2026-03-14T11:00:00.000Z",
		"2026-03-14T11:59:59.999Z", "2026-03-14T12:00:00.000Z", "2026-03-14T12:00:59.999Z", "2026-03-14T12:01:00.000Z",
		"2026-03-14T13:00:00.000+01:00", "2026-03-14T12:00:00.000999Z",
	} {
		rec := record(1)
		rec.ID = fmt.Sprint(i)
		if err := json.Unmarshal([]byte(`"`+at+`"`), &rec.Timestamp); err != nil {
			t.Fatal(err)
		}
		records = append(records, rec)
	}
	applyRecords(t, s, records)
	for _, step := range []int{1, 60, 1440} {
		for _, at := range []time.Duration{-time.Millisecond, 0, time.Minute - time.Millisecond, time.Minute} {
			checkSummary(t, s, records, subjects.UsageQuery{Hours: 1, BucketMinutes: step}, noon.Add(at))
		}
	}
	sum := checkSummary(t, s, records, subjects.UsageQuery{Hours: 1, BucketMinutes: 1}, noon)
	if n := len(sum.Timeline); n != 61 || sum.Totals.Calls != 6 || sum.Timeline[60].Calls != 4 {
		t.Fatalf("%d buckets, %+v", n, sum.Totals)
	}
}

func TestSummaryWithoutTokens(t *testing.T) {
	s := openTest(t, t.TempDir())
	var records []*subjects.UsageRecord
	for i := range uint64(7) {
		rec := record(i)
		rec.TotalTokens, rec.Timestamp.Time = 0, noon
		records = append(records, rec)
	}
	applyRecords(t, s, records)
	checkSummary(t, s, records, subjects.UsageQuery{Hours: 1}, noon)
}

// The timeline is in weeks from Monday, days from midnight.
func TestBuckets(t *testing.T) {
	for _, c := range []struct {
		q          subjects.UsageQuery
		step, n    int
		from, last string
	}{
		{subjects.UsageQuery{}, 5, 289, "2026-03-13T12:00", "2026-03-14T12:00"},
		{subjects.UsageQuery{Hours: 1}, 1, 61, "2026-03-14T11:00", "2026-03-14T12:00"},
		{subjects.UsageQuery{Hours: 8}, 1, 481, "2026-03-14T04:00", "2026-03-14T12:00"},
		{subjects.UsageQuery{Hours: 9}, 2, 271, "2026-03-14T03:00", "2026-03-14T12:00"},
		{subjects.UsageQuery{Hours: 24, BucketMinutes: 2}, 2, 721, "2026-03-13T12:00", "2026-03-14T12:00"},
		{subjects.UsageQuery{Hours: 48}, 10, 289, "2026-03-12T12:00", "2026-03-14T12:00"},
		{subjects.UsageQuery{Hours: 168}, 30, 337, "2026-03-07T12:00", "2026-03-14T12:00"},
		{subjects.UsageQuery{Hours: 720}, 120, 361, "2026-02-12T12:00", "2026-03-14T12:00"},
		{subjects.UsageQuery{Hours: 720, BucketMinutes: 1440}, 1440, 31, "2026-02-12T00:00", "2026-03-14T00:00"},
		{subjects.UsageQuery{Hours: 720, BucketMinutes: 10080}, 10080, 5, "2026-02-09T00:00", "2026-03-09T00:00"},
		{subjects.UsageQuery{Hours: 24 * 365}, 1440, 366, "2025-03-14T00:00", "2026-03-14T00:00"},
		{subjects.UsageQuery{Hours: maxHours}, 20160, 262, "2016-02-29T00:00", "2026-03-02T00:00"},
	} {
		w, err := windowOf(c.q, noon)
		if err != nil {
			t.Fatal(err)
		}
		n := int(w.to-w.from) / w.step
		from, last := timeOf(w.from).Format("2006-01-02T15:04"), timeOf(w.to-int64(w.step)).Format("2006-01-02T15:04")
		if w.step != c.step || n != c.n || from != c.from || last != c.last {
			t.Errorf("%+v: step %d, %d buckets, %s to %s", c.q, w.step, n, from, last)
		}
	}
}

func TestQueryBounds(t *testing.T) {
	s := openTest(t, t.TempDir())
	for _, c := range []struct {
		q    subjects.UsageQuery
		says []string
	}{
		{subjects.UsageQuery{Hours: -1}, []string{"hours", "-1", "87840"}},
		{subjects.UsageQuery{Hours: maxHours + 1}, []string{"hours", "87841", "87840"}},
		{subjects.UsageQuery{BucketMinutes: -1}, []string{"bucketMinutes", "-1", "44640"}},
		{subjects.UsageQuery{BucketMinutes: maxStep + 1}, []string{"bucketMinutes", "44641", "44640"}},
		{subjects.UsageQuery{Hours: 25, BucketMinutes: 1}, []string{"bucketMinutes 1 ", "1501 buckets", "use 2 or more"}},
		{subjects.UsageQuery{Hours: 720, BucketMinutes: 28}, []string{"bucketMinutes 28 ", "1544 buckets", "use 29 or more"}},
		{subjects.UsageQuery{Hours: maxHours, BucketMinutes: 60}, []string{"bucketMinutes 60 ", "87841 buckets", "use 3516 or more"}},
		{subjects.UsageQuery{Hours: math.MaxInt, BucketMinutes: math.MaxInt}, []string{"hours"}},
		{subjects.UsageQuery{Hours: math.MinInt, BucketMinutes: math.MinInt}, []string{"hours"}},
	} {
		_, err := s.Summary(c.q, noon)
		if !isKind(err, subjects.KindValidation) {
			t.Errorf("%+v: %v", c.q, err)
			continue
		}
		for _, part := range c.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: %q does not say %q", c.q, err, part)
			}
		}
	}
	// The step that a refusal names is allowed, at any moment, and its window is within bounds.
	for hours := 1; hours <= maxHours; hours += 1 + hours/50 {
		least := (hours*60 + maxBuckets - 2) / (maxBuckets - 1)
		for _, now := range []time.Time{noon, noon.Add(-time.Minute), noon.Add(59 * time.Second)} {
			w, err := windowOf(subjects.UsageQuery{Hours: hours, BucketMinutes: least}, now)
			if n := int(w.to-w.from) / w.step; err != nil || n > maxBuckets {
				t.Fatalf("%d hours by %d: %d buckets, %v", hours, least, n, err)
			}
			if w, err = windowOf(subjects.UsageQuery{Hours: hours}, now); err != nil || int(w.to-w.from)/w.step > autoBuckets {
				t.Fatalf("%d hours: %+v, %v", hours, w, err)
			}
		}
		if least > 1 {
			if _, err := windowOf(subjects.UsageQuery{Hours: hours, BucketMinutes: least - 1}, noon); err == nil {
				t.Fatalf("%d hours by %d passed", hours, least-1)
			}
		}
	}
}

// A clock that is absurd gives an absurd window and no error.
func TestSummaryAtAbsurdTimes(t *testing.T) {
	s := openTest(t, t.TempDir())
	first := record(1)
	first.Timestamp.Time = time.UnixMilli(0)
	last := record(2)
	last.Timestamp.Time = time.UnixMilli(maxTime).UTC()
	records := []*subjects.UsageRecord{first, last}
	applyRecords(t, s, records)
	for _, now := range []time.Time{{}, time.UnixMilli(0), time.UnixMilli(1), time.UnixMilli(maxTime).UTC(), time.Unix(-1, 0), noon} {
		for _, q := range []subjects.UsageQuery{{}, {Hours: maxHours}, {Hours: 100, BucketMinutes: 61}} {
			checkSummary(t, s, records, q, now)
		}
	}
}

// Readers see whole batches while a writer writes.
func TestSummaryWhileWriting(t *testing.T) {
	s := openTest(t, t.TempDir())
	const batches, size = 60, 50
	done := make(chan error, 1)
	go func() {
		for i := range uint64(batches) {
			batch := make([]Entry, size)
			for j := range batch {
				rec := record(i*size + uint64(j) + 1)
				rec.Timestamp.Time = noon
				data, err := json.Marshal(rec)
				if err != nil {
					done <- err
					return
				}
				batch[j] = Entry{Seq: i*size + uint64(j) + 1, Data: data}
			}
			if _, err := s.Apply("A", batch); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	last := int64(0)
	for last < batches*size {
		sum, err := s.Summary(subjects.UsageQuery{Hours: 1}, noon)
		if err != nil {
			t.Fatal(err)
		}
		calls := sum.Totals.Calls
		if calls%size != 0 || calls < last {
			t.Fatalf("%d calls after %d", calls, last)
		}
		last = calls
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			done <- nil
		default:
		}
	}
	mustVerify(t, s)
}
