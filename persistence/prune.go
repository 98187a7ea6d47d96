package persistence

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// How long sums of spending are kept: of runs and batches from their last record
// on, of days by themselves before they become part of their month.
const (
	keepRuns = 90 * dayMillis
	keepDays = 400 * dayMillis
)

// How much one GC does: sums of runs and batches that it looks at, and sums that
// one transaction takes away.
const (
	maxLook  = 20_000
	maxPrune = 500
)

// prune forgets the sums of runs and batches that ended long ago and folds old
// days into their months. Its time is the newest record's, or now when that is
// earlier: neither a clock that is wrong now nor a record from one that was
// takes the sum of a run that goes on. Only the writer calls it.
func (s *Store) prune(now time.Time) error {
	var newest spend
	var days, runs [][]byte
	var cutoff uint64
	err := s.view(func(txn *badger.Txn) error {
		if err := eachSpend(txn, []byte(dayPrefix), func(_ []byte, day *spend) bool { newest.add(day); return true }); err != nil {
			return err
		}
		c, err := readCursor(txn)
		if err != nil {
			return err
		}
		at := min(max(newest.last, c.today.last), uint64(max(now.UnixMilli(), 0)))
		if days, err = oldDays(txn, before(at, keepDays)); err == nil {
			cutoff = before(at, keepRuns)
			runs, err = s.oldRuns(txn, cutoff)
		}
		return err
	})
	if err == nil && len(days) > 0 {
		err = s.update(func(txn *badger.Txn) error { return foldDays(txn, days) })
	}
	for keys := range slices.Chunk(runs, maxPrune) {
		if err != nil {
			return err
		}
		err = s.update(func(txn *badger.Txn) error { return dropRuns(txn, keys, cutoff) })
	}
	return err
}

func before(at, keep uint64) uint64 { return max(at, keep) - keep }

// oldDays finds days before that of cutoff, at most maxPrune.
func oldDays(txn *badger.Txn, cutoff uint64) (keys [][]byte, err error) {
	first := dayKey(nil, cutoff)
	err = eachSpend(txn, []byte(dayPrefix), func(key []byte, _ *spend) bool {
		if bytes.Compare(key, first) >= 0 || len(keys) == maxPrune {
			return false
		}
		keys = append(keys, bytes.Clone(key))
		return true
	})
	return keys, err
}

// foldDays makes days part of their months.
func foldDays(txn *badger.Txn, days [][]byte) error {
	months := map[string]*spend{}
	for _, key := range days {
		var day spend
		if err := day.addStored(txn, key); err != nil {
			return err
		}
		addTo(months, string(monthKey(key)), &day)
		if err := txn.Delete(key); err != nil {
			return fmt.Errorf("usage database: deleting %q: %w", key, err)
		}
	}
	return putSums(txn, months)
}

// oldRuns finds runs and batches whose last record is before cutoff. It goes on
// where the last call stopped and looks at maxLook sums.
func (s *Store) oldRuns(txn *badger.Txn, cutoff uint64) (keys [][]byte, err error) {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte(spendPrefix)})
	defer it.Close()
	looked := 0
	for it.Seek(s.pruneFrom); it.Valid(); it.Next() {
		key := it.Item().Key()
		if looked++; looked > maxLook {
			s.pruneFrom = bytes.Clone(key)
			return keys, nil
		}
		if !bytes.HasPrefix(key, []byte(runPrefix)) && !bytes.HasPrefix(key, []byte(batchPrefix)) {
			continue
		}
		var sum spend
		if err := it.Item().Value(sum.decode); err != nil {
			return nil, fmt.Errorf("usage database: reading %q: %w", key, err)
		}
		if sum.last < cutoff {
			keys = append(keys, bytes.Clone(key))
		}
	}
	s.pruneFrom = nil
	return keys, nil
}

// dropRuns deletes sums and notes up to when: such a sum may begin anew, and is
// then less than its rows.
func dropRuns(txn *badger.Txn, keys [][]byte, cutoff uint64) error {
	noted, err := readPruned(txn)
	if err != nil {
		return err
	}
	value := binary.BigEndian.AppendUint64([]byte{version}, max(noted, cutoff))
	err = txn.Set([]byte(prunedKey), value)
	for _, key := range keys {
		if err == nil {
			err = txn.Delete(key)
		}
	}
	if err != nil {
		return fmt.Errorf("usage database: deleting sums: %w", err)
	}
	return nil
}

// readPruned returns the time in milliseconds before whose records the sums of
// runs and batches may be gone; 0 = none is.
func readPruned(txn *badger.Txn) (ms uint64, err error) {
	_, err = read(txn, []byte(prunedKey), func(b []byte) error {
		if len(b) != 9 || b[0] != version {
			return fmt.Errorf("a time of %d bytes: %w", len(b), errFormat)
		}
		ms = binary.BigEndian.Uint64(b[1:])
		return nil
	})
	return ms, err
}
