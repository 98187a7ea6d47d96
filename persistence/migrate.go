package persistence

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// migrate brings a database of an older layout to this one: every sum is counted
// anew from its rows, since an old one does not say what the new counters would.
// The rows stay as they are. It takes about 20 µs a row and memory for one hour,
// and for each run and batch.
//
// The layout is written with the last sums, and each sum whole, so a process that
// dies meanwhile leaves a database that the next Open counts again.
// Every transaction writes the cursor, as Apply's do: see unbroken.
func (s *Store) migrate() error {
	s.log.Info("usage database: counting its sums anew for a new layout; this takes some seconds per 100,000 records", "dir", s.dir, "layout", schema)
	return s.write(func() error {
		m := &migration{
			s: s, rows: s.db.NewTransaction(false), sums: map[resolution]*bucket{},
			day: map[string]*spend{}, runs: map[string]*spend{},
		}
		defer m.rows.Discard()
		if err := m.begin(); err != nil {
			return err
		}
		defer func() { m.txn.Discard() }()
		if err := m.run(); err != nil {
			return err
		}
		s.log.Info("usage database: its sums are counted", "rows", m.count, "sums without rows", m.stale)
		return nil
	})
}

// migration reads one moment's rows and writes their sums.
type migration struct {
	s     *Store
	rows  *badger.Txn
	sums  map[resolution]*bucket
	day   map[string]*spend // the day of the last row, by its key
	runs  map[string]*spend // runs and batches, by their keys
	count int               // of rows
	stale int               // rollups that had no row

	txn        *badger.Txn
	puts, size int64 // what txn holds, by Badger's measure
	cursor     []byte
}

// bucket has the sums of one minute or hour.
type bucket struct {
	minute int64
	series map[string]*counters
}

func (m *migration) run() error {
	for _, r := range resolutions {
		m.sums[r] = &bucket{series: map[string]*counters{}}
	}
	it := m.rows.NewIterator(badger.IteratorOptions{Prefix: []byte(rowPrefix)})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		if m.s.isClosing() {
			return ErrClosed
		}
		if err := m.row(it.Item()); err != nil {
			return err
		}
	}
	for _, r := range resolutions {
		if err := m.flush(r); err != nil {
			return err
		}
	}
	if err := errors.Join(m.flushSpends(m.day), m.flushSpends(m.runs)); err != nil {
		return err
	}
	if err := m.dropStale(); err != nil {
		return err
	}
	if err := m.set([]byte(schemaKey), []byte{schema}); err != nil {
		return err
	}
	return m.commit()
}

func (m *migration) row(item *badger.Item) error {
	data, err := copyRow(item)
	if err != nil {
		return err
	}
	row, err := measure(data, nil)
	if err != nil {
		return fmt.Errorf("usage database: row %x: %w", item.Key(), err)
	}
	m.count++
	if err := m.addSpend(row); err != nil {
		return err
	}
	for _, r := range resolutions {
		minute := row.minute() - row.minute()%r.minutes
		b := m.sums[r]
		if minute != b.minute {
			if err := m.flush(r); err != nil {
				return err
			}
			b.minute = minute
		}
		row.addTo(b.series)
	}
	return nil
}

// addSpend counts a row among the sums of its day, its run and its batch.
func (m *migration) addSpend(row *measured) error {
	for i, key := range row.spendKeys() {
		sums := m.runs
		if i == 0 {
			sums = m.day
			if sums[key] == nil { // another day than the last row's
				if err := m.flushSpends(sums); err != nil {
					return err
				}
			}
		}
		addTo(sums, key, &row.spend)
	}
	return nil
}

func (m *migration) flushSpends(sums map[string]*spend) error {
	for key, sum := range sums {
		if err := m.set([]byte(key), sum.encode()); err != nil {
			return err
		}
	}
	clear(sums)
	return nil
}

// flush writes the rollups of a bucket whose rows have all been read.
func (m *migration) flush(r resolution) error {
	b := m.sums[r]
	for series, sum := range b.series {
		if err := m.set(r.key(b.minute, series), sum.encode()); err != nil {
			return err
		}
	}
	clear(b.series)
	return nil
}

// dropStale deletes what is left of the old layout: rollups without a row.
func (m *migration) dropStale() error {
	if err := m.commit(); err != nil {
		return err
	}
	if err := m.begin(); err != nil {
		return err
	}
	var stale [][]byte
	now := m.s.db.NewTransaction(false)
	defer now.Discard()
	it := now.NewIterator(badger.IteratorOptions{Prefix: []byte(rollPrefix)})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		old := false
		if err := it.Item().Value(func(b []byte) error {
			old = len(b) == 0 || b[0] != rollVersion
			return nil
		}); err != nil {
			return fmt.Errorf("usage database: reading a rollup: %w", err)
		}
		if old {
			stale = append(stale, it.Item().KeyCopy(nil))
		}
	}
	m.stale = len(stale)
	for _, key := range stale {
		if err := m.room(key, 0); err != nil {
			return err
		}
		if err := m.txn.Delete(key); err != nil {
			return fmt.Errorf("usage database: deleting a rollup: %w", err)
		}
	}
	return nil
}

func (m *migration) set(key, value []byte) error {
	if err := m.room(key, len(value)); err != nil {
		return err
	}
	if err := m.txn.Set(key, value); err != nil {
		return fmt.Errorf("usage database: writing: %w", err)
	}
	return nil
}

// room commits what is pending when another entry may not fit beside it.
func (m *migration) room(key []byte, value int) error {
	n := entryBytes(key, value)
	if m.puts+1 > m.s.maxCount || m.size+n > m.s.maxBytes {
		if err := m.commit(); err != nil {
			return err
		}
		if err := m.begin(); err != nil {
			return err
		}
	}
	m.puts++
	m.size += n
	return nil
}

func (m *migration) begin() error {
	if err := m.s.checkSpace(); err != nil {
		return err
	}
	m.txn, m.puts, m.size = m.s.db.NewTransaction(true), 0, 0
	if m.cursor != nil {
		return nil
	}
	item, err := m.rows.Get([]byte(cursorKey))
	if err == nil {
		m.cursor, err = item.ValueCopy(nil)
	}
	if err != nil {
		return fmt.Errorf("usage database: its cursor: %w", err)
	}
	return nil
}

func (m *migration) commit() error {
	if err := m.txn.Set([]byte(cursorKey), m.cursor); err != nil {
		return fmt.Errorf("usage database: writing: %w", err)
	}
	return m.s.commit(m.txn)
}
