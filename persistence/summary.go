package persistence

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/sluice-llm/sluice/subjects"
)

// Summary adds up a window of time. q.Hours is 1 to 87,840 (ten years), 0 = 24;
// q.BucketMinutes is the timeline's step, 1 to 44,640 and at most 1,500 buckets,
// 0 = the smallest usual one that gives at most 500. Outside these a
// *subjects.Error of kind VALIDATION_ERROR is returned that says what is allowed.
//
// The window begins with the bucket that now − hours is in and ends with the one
// that now is in, so it may be longer than hours by a bucket. Its sums are those
// of the rows with From <= timestamp < To, exactly. Rows dated after To (a clock
// that jumped) are stored, and seen when their time has come. Every bucket is in
// the timeline, and its maps have total tokens per name. Buckets are counted in
// UTC from 1970, weeks from a Monday.
func (s *Store) Summary(q subjects.UsageQuery, now time.Time) (*subjects.UsageSummary, error) {
	w, err := windowOf(q, now)
	if err != nil {
		return nil, err
	}
	var a *adder
	err = s.view(func(txn *badger.Txn) error {
		a = newAdder(w)
		return a.addWindow(txn)
	})
	if err != nil {
		return nil, err
	}
	return a.summary(), nil
}

// adder adds rollups up into a summary.
type adder struct {
	w        window
	series   map[string]*series // by encoded names
	touched  []*series          // those with a rollup in the bucket being added
	bucket   counters
	timeline []subjects.UsageBucket
}

// series is one combination of names.
type series struct {
	names   names
	total   counters
	touched bool  // in the bucket being added
	tokens  int64 // in the bucket being added
}

func newAdder(w window) *adder {
	return &adder{
		w: w, series: make(map[string]*series),
		timeline: make([]subjects.UsageBucket, 0, (w.to-w.from)/int64(w.step)),
	}
}

// addWindow reads whole hours from the hour rollups and the rest from those of
// minutes, bucket by bucket.
func (a *adder) addWindow(txn *badger.Txn) error {
	minutes, hours := newScanner(txn, byMinute), newScanner(txn, byHour)
	defer minutes.close()
	defer hours.close()
	for from := a.w.from; from < a.w.to; from += int64(a.w.step) {
		to := from + int64(a.w.step)
		firstHour := floorDiv(from+59, 60) * 60
		lastHour := floorDiv(to, 60) * 60
		var err error
		if firstHour >= lastHour {
			err = minutes.each(from, to, a.add)
		} else {
			err = cmp.Or(
				minutes.each(from, firstHour, a.add),
				hours.each(firstHour, lastHour, a.add),
				minutes.each(lastHour, to, a.add))
		}
		if err != nil {
			return err
		}
		a.endBucket(from)
	}
	return nil
}

func (a *adder) add(seriesKey []byte, c *counters) error {
	s := a.series[string(seriesKey)]
	if s == nil {
		n, err := parseSeries(seriesKey)
		if err != nil {
			return err
		}
		s = &series{names: n}
		a.series[string(seriesKey)] = s
	}
	if !s.touched {
		s.touched = true
		a.touched = append(a.touched, s)
	}
	s.tokens = addSaturated(s.tokens, c[cTotal])
	s.total.add(c)
	a.bucket.add(c)
	return nil
}

func (a *adder) endBucket(from int64) {
	b := subjects.UsageBucket{
		Start: timeOf(from), UsageTotals: a.bucket.totals(),
		ByProvider: map[string]int64{}, ByProcess: map[string]int64{}, ByModel: map[string]int64{},
	}
	for _, s := range a.touched {
		b.ByProvider[s.names.provider] = addSaturated(b.ByProvider[s.names.provider], s.tokens)
		b.ByProcess[s.names.process] = addSaturated(b.ByProcess[s.names.process], s.tokens)
		b.ByModel[s.names.model] = addSaturated(b.ByModel[s.names.model], s.tokens)
		s.touched, s.tokens = false, 0
	}
	a.timeline = append(a.timeline, b)
	a.touched, a.bucket = a.touched[:0], counters{}
}

func (a *adder) summary() *subjects.UsageSummary {
	var total counters
	providers, processes, models := map[string]*counters{}, map[string]*counters{}, map[string]*counters{}
	for _, s := range a.series {
		total.add(&s.total)
		addTo(providers, s.names.provider, &s.total)
		addTo(processes, s.names.process, &s.total)
		addTo(models, s.names.model, &s.total)
	}
	return &subjects.UsageSummary{
		From: timeOf(a.w.from), To: timeOf(a.w.to), Hours: a.w.hours, BucketMinutes: a.w.step,
		Totals:     total.totals(),
		ByProvider: shares(providers, &total), ByProcess: shares(processes, &total), ByModel: shares(models, &total),
		Timeline: a.timeline,
	}
}

// shares lists a breakdown by falling total tokens, then by name. Shares are of
// the tokens, or of the calls where there are no tokens.
func shares(sums map[string]*counters, total *counters) []subjects.UsageShare {
	by := cTotal
	if total[cTotal] == 0 {
		by = cCalls
	}
	out := make([]subjects.UsageShare, 0, len(sums))
	for name, c := range sums {
		out = append(out, subjects.UsageShare{
			Name: name, UsageTotals: c.totals(), Share: float64(c[by]) / float64(total[by]),
		})
	}
	slices.SortFunc(out, func(a, b subjects.UsageShare) int {
		return cmp.Or(cmp.Compare(b.TotalTokens, a.TotalTokens), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// scanner reads the rollups of one resolution forwards.
type scanner struct {
	it  *badger.Iterator
	res resolution
	key []byte // of the last seek
}

func newScanner(txn *badger.Txn, res resolution) *scanner {
	return &scanner{it: txn.NewIterator(badger.IteratorOptions{Prefix: res.prefix()}), res: res}
}

func (s *scanner) close() { s.it.Close() }

// each calls fn for every rollup that starts in [from, to), by time. Later calls
// must not go back. The arguments of fn hold until it returns.
func (s *scanner) each(from, to int64, fn func(series []byte, c *counters) error) error {
	from = max(from, 0)
	if from >= to {
		return nil
	}
	start := s.res.key(from, "")
	// The iterator stands where the last call stopped, which is often the place.
	if s.key == nil || (s.it.Valid() && bytes.Compare(s.it.Item().Key(), start) < 0) {
		s.it.Seek(start)
	}
	s.key = start
	var c counters
	decode := func(value []byte) error { return c.decode(value) }
	for ; s.it.Valid(); s.it.Next() {
		item := s.it.Item()
		minute, series, err := splitRollup(item.Key())
		if err != nil {
			return err
		}
		if minute >= to {
			return nil
		}
		if err := item.Value(decode); err != nil {
			return fmt.Errorf("usage database: reading a rollup: %w", err)
		}
		if err := fn(series, &c); err != nil {
			return err
		}
	}
	return nil
}
