package persistence

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// schema is the layout of the keys and values in this package. Layouts from
// oldSchema on had fewer counters in a rollup and no sums of spending; they are
// brought to this one when they are opened.
const (
	schema    = 3
	oldSchema = 1
)

// check looks at an opened database: its layout, and whether transactions are
// missing from its middle. tables is the highest version in its table files.
func (s *Store) check(tables uint64) error {
	found, whole := false, true
	var layout byte
	err := s.view(func(txn *badger.Txn) (err error) {
		found, err = read(txn, []byte(schemaKey), func(b []byte) error {
			if len(b) == 1 {
				layout = b[0]
			}
			return nil
		})
		if err != nil || !found {
			return err
		}
		if layout < oldSchema || layout > schema {
			return &OpenError{Dir: s.dir, Reason: Other, Detail: fmt.Sprintf(
				"it has layout %d and this sluice writes layout %d; use the version that wrote it", layout, schema)}
		}
		whole = unbroken(txn, tables)
		_, err = read(txn, []byte(holeKey), func(b []byte) error { return corrupt(s.dir, "%s", b) })
		return err
	})
	switch {
	case err != nil:
		return openErrorOf(s.dir, err)
	case !found:
		return s.initialise(tables)
	case !whole: // before anything is written, which would hide the hole
		err = s.verifyDoubtful(layout)
	}
	if err == nil && layout < schema {
		err = s.migrate()
	}
	if err != nil {
		return openErrorOf(s.dir, err)
	}
	return nil
}

// initialise writes the layout into a new database. A database with content and
// no layout has lost its beginning.
func (s *Store) initialise(tables uint64) error {
	empty := tables == 0
	err := s.view(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{})
		defer it.Close()
		it.Rewind()
		empty = empty && !it.Valid()
		return nil
	})
	if err == nil && !empty {
		return corrupt(s.dir, "its beginning is missing")
	}
	if err == nil {
		err = s.db.Update(func(txn *badger.Txn) error {
			return errors.Join(txn.Set([]byte(schemaKey), []byte{schema}), txn.Set([]byte(cursorKey), cursor{}.encode()))
		})
	}
	if err != nil {
		return openErrorOf(s.dir, err)
	}
	return nil
}

// unbroken reports whether every transaction after those in the table files is
// there. Every transaction writes the cursor, its version is the transaction's
// number, and the logs and what is flushed from them keep every version.
//
// Within one log a loss is always its end. But up to three logs may exist, and a
// power cut, or damage, can take the end of an older one and leave a newer one:
// then rows are missing that the cursor counts. A compaction that comes before
// this look drops versions, too, so what is found is only a doubt.
func unbroken(txn *badger.Txn, tables uint64) bool {
	it := txn.NewKeyIterator([]byte(cursorKey), badger.IteratorOptions{})
	defer it.Close()
	it.Rewind()
	if !it.Valid() {
		return false
	}
	v := it.Item().Version()
	if v < tables {
		return false
	}
	for ; v > tables; v-- {
		if !it.Valid() || it.Item().Version() != v {
			return false
		}
		it.Next()
	}
	return true
}

// verifyDoubtful decides by counting everything; in an old layout all but the
// sums, which are counted anew anyway.
func (s *Store) verifyDoubtful(layout byte) error {
	s.log.Warn("usage database: it was not closed in order and may have a hole; checking every row", "dir", s.dir)
	if err := s.verify(layout == schema); err != nil {
		detail := firstLine(err.Error())
		if errors.Is(err, errDifferences) {
			// Closing moves the logs into table files, in which no hole shows: the next
			// Open must know.
			noted := s.db.Update(func(txn *badger.Txn) error { return txn.Set([]byte(holeKey), []byte(detail)) })
			err = errors.Join(err, noted)
		}
		return &OpenError{Dir: s.dir, Reason: Corrupt, Detail: detail, Err: err}
	}
	s.log.Info("usage database: it is whole", "dir", s.dir)
	return nil
}
