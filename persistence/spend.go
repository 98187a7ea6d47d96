package persistence

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/sluice-llm/sluice/subjects"
)

// Spend is what was spent by a run, by a batch or in a time.
type Spend struct {
	// Calls counts usage records.
	Calls int64
	// Tokens are the total tokens on accounts that are neither local nor mock,
	// those of failed tries among them.
	Tokens int64
	// Cost is what is known of the cost, that of failed tries in it.
	Cost subjects.USD
	// Last is the newest record's timestamp; zero when there is none.
	Last time.Time
}

// Spent returns what was spent so far: in scope subjects.BudgetRun by the run id,
// in subjects.BudgetBatch by the batch id, in subjects.BudgetTotal in a day
// ("2026-12-01"), a month ("2026-12"), both in UTC, or ever ("all"). A record
// counts where its timestamp is. The zero Spend is returned when there is
// nothing, and for what GC has forgotten; any other scope or time is a
// *subjects.Error of kind VALIDATION_ERROR.
func (s *Store) Spent(scope, id string) (Spend, error) {
	keys, prefixes, err := spendKeys(scope, id)
	if err != nil {
		return Spend{}, err
	}
	var sum spend
	err = s.view(func(txn *badger.Txn) error {
		for _, key := range keys {
			if err := sum.addStored(txn, key); err != nil {
				return err
			}
		}
		for _, prefix := range prefixes {
			if err := eachSpend(txn, prefix, func(_ []byte, one *spend) bool { sum.add(one); return true }); err != nil {
				return err
			}
		}
		c, err := readCursor(txn)
		today := dayKey(nil, c.today.last)
		if err == nil && (slices.ContainsFunc(keys, func(key []byte) bool { return bytes.Equal(key, today) }) ||
			slices.ContainsFunc(prefixes, func(prefix []byte) bool { return bytes.HasPrefix(today, prefix) })) {
			sum.add(&c.today)
		}
		return err
	})
	if err != nil || sum == (spend{}) {
		return Spend{}, err
	}
	return Spend{sum.calls, sum.tokens, subjects.USD(sum.cost), time.UnixMilli(int64(sum.last)).UTC()}, nil
}

// spendKeys says which sums make up what is asked for.
func spendKeys(scope, id string) (keys, prefixes [][]byte, err error) {
	is := func(layout string) bool {
		_, err := time.Parse(layout, id)
		return err == nil && len(id) == len(layout)
	}
	switch {
	case scope == subjects.BudgetRun:
		return [][]byte{[]byte(runPrefix + cut(id))}, nil, nil
	case scope == subjects.BudgetBatch:
		return [][]byte{[]byte(batchPrefix + cut(id))}, nil, nil
	case scope != subjects.BudgetTotal:
	case id == "all":
		return nil, [][]byte{[]byte(dayPrefix), []byte(monthPrefix)}, nil
	case is(dayFormat):
		return [][]byte{[]byte(dayPrefix + id)}, nil, nil
	case is(monthFormat):
		return [][]byte{[]byte(monthPrefix + id)}, [][]byte{[]byte(dayPrefix + id + "-")}, nil
	}
	return nil, nil, subjects.Errorf(subjects.KindValidation,
		`sums of spending are kept by run, batch, day ("2026-12-01"), month ("2026-12") and "all", not by %q %q`, scope, id)
}

// spend is a stored sum of spending. Like counters it is never negative and
// stops at the largest int64. Its key says of what:
//
//	s/r/<run id>    of a run, until 90 days after its last record
//	s/b/<batch id>  of a batch, likewise
//	s/d/<day>       of a day; after 400 days it is folded into its month
//	s/m/<month>     of those days of a month that were folded
//
// What the last row's day has beside its sum is in the cursor. So a transaction
// mostly writes no sum for any time, and a month, or ever, is added up when it is
// asked for, of at most some 400 days and the months before them.
type spend struct {
	calls, tokens int64
	cost          int64  // micro-dollars
	last          uint64 // milliseconds since 1970
}

const spendLen = 1 + 4*8

// count adds the tokens and the cost of c on an account.
func (s *spend) count(account string, c *counters) {
	if account != subjects.SubscriptionLocal && account != subjects.SubscriptionMock {
		s.tokens = addSaturated(s.tokens, c[cTotal])
	}
	s.cost = addSaturated(s.cost, c[cCost])
}

func (s *spend) add(o *spend) {
	s.calls = addSaturated(s.calls, o.calls)
	s.tokens = addSaturated(s.tokens, o.tokens)
	s.cost = addSaturated(s.cost, o.cost)
	s.last = max(s.last, o.last)
}

// within reports whether s may be a part of o.
func (s *spend) within(o *spend) bool {
	return s.calls <= o.calls && s.tokens <= o.tokens && s.cost <= o.cost && s.last <= o.last
}

func (s *spend) encode() []byte { return s.append(make([]byte, 0, spendLen)) }

func (s *spend) append(b []byte) []byte {
	b = append(b, version)
	for _, v := range [...]uint64{uint64(s.calls), uint64(s.tokens), uint64(s.cost), s.last} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

func (s *spend) decode(b []byte) error {
	if len(b) != spendLen || b[0] != version {
		return fmt.Errorf("a sum of spending of %d bytes: %w", len(b), errFormat)
	}
	var v [4]uint64
	for i := range v {
		if v[i] = binary.BigEndian.Uint64(b[1+8*i:]); v[i] > math.MaxInt64 {
			return fmt.Errorf("a negative sum of spending: %w", errFormat)
		}
	}
	*s = spend{int64(v[0]), int64(v[1]), int64(v[2]), v[3]}
	return nil
}

// addStored adds what is stored under a key; nothing when nothing is.
func (s *spend) addStored(txn *badger.Txn, key []byte) error {
	var stored spend
	_, err := read(txn, key, stored.decode)
	s.add(&stored)
	return err
}

// eachSpend calls f for the sums whose keys have a prefix, in their order, until
// it says false. The key holds until f returns.
func eachSpend(txn *badger.Txn, prefix []byte, f func(key []byte, sum *spend) bool) error {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		var sum spend
		if err := it.Item().Value(sum.decode); err != nil {
			return fmt.Errorf("usage database: reading %q: %w", it.Item().Key(), err)
		}
		if !f(it.Item().Key(), &sum) {
			break
		}
	}
	return nil
}
