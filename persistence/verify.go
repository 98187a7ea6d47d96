package persistence

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dgraph-io/badger/v4"
)

// maxDifferences is how many differences Verify tells.
const maxDifferences = 10

// Verify counts everything again: every row is read, is indexed by its id and time
// exactly once and not after the cursor, there are as many as were applied, and
// every sum is that of its rows, as far as GC has not forgotten it. It returns the
// first differences, or nil. It takes about 20 µs a row and memory for one hour,
// and for each run, batch and day; Apply may go on meanwhile.
func (s *Store) Verify() error { return s.verify(true) }

func (s *Store) verify(sums bool) error {
	v := &verifier{closing: s.isClosing, sums: sums, spends: map[string]*rowSum{}}
	if err := s.view(v.run); err != nil {
		return err
	}
	if v.count == 0 {
		return nil
	}
	return fmt.Errorf("usage database: %d %w: %w", v.count, errDifferences, errors.Join(v.found...))
}

var errDifferences = errors.New("differences")

type verifier struct {
	closing func() bool
	sums    bool // compare the sums, too
	txn     *badger.Txn
	cur     cursor
	found   []error
	count   int
	audits  []*audit
	spends  map[string]*rowSum // by key
}

func (v *verifier) differ(format string, args ...any) {
	if v.count++; v.count <= maxDifferences {
		v.found = append(v.found, fmt.Errorf(format, args...))
	}
}

func (v *verifier) run(txn *badger.Txn) (err error) {
	v.txn = txn
	if v.cur, err = readCursor(txn); err != nil {
		return err
	}
	for _, r := range resolutions {
		if !v.sums {
			break
		}
		a := &audit{v: v, res: r, it: txn.NewIterator(badger.IteratorOptions{Prefix: r.prefix()})}
		defer a.it.Close()
		a.it.Rewind()
		a.want = make(map[string]*counters)
		v.audits = append(v.audits, a)
	}
	rows, err := v.rows()
	if err != nil {
		return err
	}
	for _, a := range v.audits {
		a.finish()
	}
	if v.sums {
		if err := v.compareSpends(); err != nil {
			return err
		}
	}
	if ids := v.countKeys(idPrefix); ids != rows || rows != v.cur.rows {
		v.differ("%d rows and %d ids, and there should be %d", rows, ids, v.cur.rows)
	}
	if dead := v.countKeys(deadPrefix); dead != v.cur.dead {
		v.differ("%d records were put aside, and there should be %d", dead, v.cur.dead)
	}
	return nil
}

// rows reads every row by time.
func (v *verifier) rows() (n uint64, err error) {
	it := v.txn.NewIterator(badger.IteratorOptions{Prefix: []byte(rowPrefix)})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		if v.closing() {
			return n, ErrClosed
		}
		n++
		key := it.Item().Key()
		ref, err := parseRowRef(key[len(rowPrefix):])
		if err != nil {
			v.differ("row %x: %w", key, err)
			continue
		}
		if err := it.Item().Value(func(b []byte) error { return v.row(ref, b) }); err != nil {
			return n, fmt.Errorf("usage database: reading a row: %w", err)
		}
	}
	return n, nil
}

func (v *verifier) row(ref rowRef, value []byte) error {
	data, err := unpackRow(value)
	if err != nil {
		v.differ("row %+v: %w", ref, err)
		return nil
	}
	m, err := measure(data, nil)
	if err != nil {
		v.differ("row %+v: %w", ref, err)
		return nil
	}
	if m.ms != ref.ms {
		v.differ("row %q is stored at %d ms and says %d", m.id, ref.ms, m.ms)
	}
	if ref.gen > v.cur.gen || ref.gen == v.cur.gen && ref.seq > v.cur.seq {
		v.differ("row %q is after the cursor", m.id)
	}
	if err := v.indexed(m.id, ref); err != nil {
		return err
	}
	for _, a := range v.audits {
		a.add(m)
	}
	if v.sums {
		v.addSpend(m)
	}
	return nil
}

func (v *verifier) indexed(id string, ref rowRef) error {
	found, err := read(v.txn, idKey(id, ref.ms), func(b []byte) error {
		if at, err := parseIndex(b); err != nil {
			v.differ("id %q: %w", id, err)
		} else if at != ref {
			v.differ("id %q is indexed at %+v and stored at %+v", id, at, ref)
		}
		return nil
	})
	if err == nil && !found {
		v.differ("id %q is not indexed", id)
	}
	return err
}

func (v *verifier) countKeys(prefix string) (n uint64) {
	it := v.txn.NewIterator(badger.IteratorOptions{Prefix: []byte(prefix)})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		n++
	}
	return n
}

// audit compares the rollups of one resolution with the rows, bucket by bucket.
type audit struct {
	v      *verifier
	res    resolution
	it     *badger.Iterator
	minute int64
	want   map[string]*counters // of the bucket that starts at minute
}

func (a *audit) add(m *measured) {
	minute := m.minute()
	if minute -= minute % a.res.minutes; minute != a.minute {
		a.flush()
		a.minute = minute
	}
	m.addTo(a.want)
}

// flush compares the rollups up to and with the bucket at a.minute.
func (a *audit) flush() {
	for ; a.it.Valid(); a.it.Next() {
		item := a.it.Item()
		minute, series, err := splitRollup(item.Key())
		if err != nil {
			a.v.differ("rollup %x: %w", item.Key(), err)
			continue
		}
		if minute > a.minute {
			break
		}
		want := a.want[string(series)]
		if minute < a.minute || want == nil {
			a.v.differ("rollup %s has no rows", a.name(minute, series))
			continue
		}
		delete(a.want, string(series))
		var got counters
		if err := item.Value(got.decode); err != nil {
			a.v.differ("rollup %s: %w", a.name(minute, series), err)
		} else if got != *want {
			a.v.differ("rollup %s is %v and its rows are %v", a.name(minute, series), got, *want)
		}
	}
	for series := range a.want {
		a.v.differ("rollup %s is missing", a.name(a.minute, []byte(series)))
	}
	clear(a.want)
}

// finish compares what is left.
func (a *audit) finish() {
	a.flush()
	a.minute = maxTime / 60_000
	a.flush()
}

func (a *audit) name(minute int64, series []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%c of %s, %q", a.res.letter, timeOf(minute).Format("2006-01-02T15:04Z"), series)
	return b.String()
}

// rowSum is what rows say of a sum of spending.
type rowSum struct {
	spend

	first uint64 // the oldest row, in milliseconds since 1970
}

func (v *verifier) addSpend(m *measured) {
	for _, key := range m.spendKeys() {
		want := v.spends[key]
		if want == nil {
			want = &rowSum{first: m.ms} // rows come by time
			v.spends[key] = want
		}
		want.add(&m.spend)
	}
}

// compareSpends compares the sums of spending with the rows. Days may have left
// their own sums for their month's, and together they are exact; a run or a batch
// that has rows before the last pruning may have begun anew.
func (v *verifier) compareSpends() error {
	pruned, err := readPruned(v.txn)
	if err != nil {
		return err
	}
	months := map[string]*spend{} // stored
	if today := &v.cur.today; today.calls > 0 {
		addTo(months, string(monthKey(dayKey(nil, today.last))), today)
	}
	if err := eachSpend(v.txn, []byte(spendPrefix), func(k []byte, got *spend) bool {
		key := string(k)
		day := strings.HasPrefix(key, dayPrefix)
		if day || strings.HasPrefix(key, monthPrefix) {
			addTo(months, string(monthKey(k)), got)
		}
		want := v.spends[key]
		switch {
		case strings.HasPrefix(key, monthPrefix):
			return true
		case want == nil:
			v.differ("the sum %q has no rows", key)
		case *got != want.spend && !(got.within(&want.spend) && (day || want.first < pruned)):
			v.differ("the sum %q is %+v and its rows are %+v", key, *got, want.spend)
		}
		if want != nil && !day {
			delete(v.spends, key)
		}
		return true
	}); err != nil {
		return err
	}
	v.missingSpends(months, pruned)
	return nil
}

// missingSpends compares what is left when the stored sums have been seen.
func (v *verifier) missingSpends(months map[string]*spend, pruned uint64) {
	want := map[string]*spend{}
	for key, rows := range v.spends {
		if strings.HasPrefix(key, dayPrefix) {
			addTo(want, string(monthKey([]byte(key))), &rows.spend)
		} else if rows.first >= pruned {
			v.differ("the sum %q is missing", key)
		}
	}
	for key, rows := range want {
		if got := months[key]; got == nil || *got != *rows {
			v.differ("the sums of the month %q are %+v and its rows are %+v", key, got, *rows)
		}
		delete(months, key)
	}
	for key := range months {
		v.differ("the sums of the month %q have no rows", key)
	}
}
