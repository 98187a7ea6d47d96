package persistence

import (
	"encoding/json"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/sluice-llm/sluice/subjects"
)

// defaultRecent is the limit of a query that names none.
const defaultRecent = 50

// Recent returns the newest rows as they were received, newest first: by
// timestamp, then by arrival. Rows dated in the future (a clock that jumped) come
// first. limit is 1 to subjects.MaxRecent, 0 = 50; outside it a *subjects.Error
// of kind VALIDATION_ERROR is returned. The slice is never nil.
func (s *Store) Recent(limit int) ([]json.RawMessage, error) {
	if limit == 0 {
		limit = defaultRecent
	}
	if limit < 0 || limit > subjects.MaxRecent {
		return nil, subjects.Errorf(subjects.KindValidation, "limit must be 1 to %d, not %d", subjects.MaxRecent, limit)
	}
	rows := make([]json.RawMessage, 0, min(limit, defaultRecent))
	err := s.view(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{Reverse: true, Prefix: []byte(rowPrefix)})
		defer it.Close()
		// In reverse, Badger starts at the key given and not at the prefix's end.
		for it.Seek([]byte(rowPrefix + "\xff")); it.Valid() && len(rows) < limit; it.Next() {
			row, err := copyRow(it.Item())
			if err != nil {
				return err
			}
			rows = append(rows, row)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// Each gives every row to f, the oldest first, as it was received; an error of f
// ends it and is returned. It reads one moment's state: Apply may go on meanwhile.
// f may keep the row and must not call the store; Close waits for it.
func (s *Store) Each(f func(json.RawMessage) error) error {
	return s.view(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte(rowPrefix)})
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			if s.isClosing() {
				return ErrClosed
			}
			row, err := copyRow(it.Item())
			if err != nil {
				return err
			}
			if err := f(row); err != nil {
				return err
			}
		}
		return nil
	})
}

// Get returns the row of a call id as it was received, the newest where the id
// was used again; false when there is none.
func (s *Store) Get(id string) (row json.RawMessage, found bool, err error) {
	if id == "" || len(id) > subjects.MaxRecordID {
		return nil, false, nil
	}
	err = s.view(func(txn *badger.Txn) error {
		ref, ok, err := newest(txn, id)
		if err != nil || !ok {
			return err
		}
		item, err := txn.Get(ref.key())
		if err != nil {
			return fmt.Errorf("usage database: the row of %q: %w", id, err)
		}
		row, err = copyRow(item)
		found = err == nil
		return err
	})
	return row, found, err
}

// newest finds the latest row of an id.
func newest(txn *badger.Txn, id string) (ref rowRef, found bool, err error) {
	prefix := idsKey(id)
	it := txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		if len(it.Item().Key()) != len(prefix)+8 {
			continue
		}
		found = true
		err = it.Item().Value(func(b []byte) (err error) {
			ref, err = parseIndex(b)
			return err
		})
		if err != nil {
			return ref, false, err
		}
	}
	return ref, found, nil
}

func parseIndex(b []byte) (rowRef, error) {
	if len(b) != 1+rowRefLen || b[0] != version {
		return rowRef{}, fmt.Errorf("an index entry of %d bytes: %w", len(b), errFormat)
	}
	return parseRowRef(b[1:])
}

func copyRow(item *badger.Item) (json.RawMessage, error) {
	var row json.RawMessage
	err := item.Value(func(value []byte) (err error) {
		row, err = unpackRow(value)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("usage database: reading a row: %w", err)
	}
	return row, nil
}
