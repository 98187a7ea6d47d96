package persistence

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// Bounds of SaveStates, in bytes.
const (
	// MaxStateKey bounds a key, which is not empty.
	MaxStateKey = 200
	// MaxState bounds a value.
	MaxState = 64 << 10
	// MaxStates bounds the keys and values of one SaveStates.
	MaxStates = 256 << 10
)

// SaveStates stores small states by their keys, in one transaction; nil as a
// value deletes, an empty value is one. States are no part of what is rebuilt
// from the stream: they last as long as the folder. It may be called beside Apply
// and waits for it. ErrNoSpace: try later. ErrBroken: close and reopen.
func (s *Store) SaveStates(states map[string][]byte) error {
	size := 0
	for key, value := range states {
		if key == "" || len(key) > MaxStateKey {
			return fmt.Errorf("usage database: a state's key of %d bytes, not 1 to %d", len(key), MaxStateKey)
		}
		if len(value) > MaxState {
			return fmt.Errorf("usage database: the state %q has %d bytes, more than %d", key, len(value), MaxState)
		}
		size += len(key) + len(value)
	}
	if size > MaxStates {
		return fmt.Errorf("usage database: states of %d bytes, more than %d at once", size, MaxStates)
	}
	if len(states) == 0 {
		return nil
	}
	return s.write(func() error {
		return s.update(func(txn *badger.Txn) error { return setStates(txn, states) })
	})
}

func setStates(txn *badger.Txn, states map[string][]byte) (err error) {
	for key, value := range states {
		k := append([]byte(statePrefix), key...)
		if value == nil {
			err = errors.Join(err, txn.Delete(k))
			continue
		}
		err = errors.Join(err, txn.Set(k, append([]byte{version}, value...)))
	}
	if err != nil {
		return fmt.Errorf("usage database: writing states: %w", err)
	}
	return nil
}

// States returns all states that are stored; never nil without an error.
func (s *Store) States() (map[string][]byte, error) {
	states := map[string][]byte{}
	err := s.view(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte(statePrefix)})
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			key := string(it.Item().Key()[len(statePrefix):])
			value, err := it.Item().ValueCopy(nil)
			if err != nil {
				return fmt.Errorf("usage database: reading the state %q: %w", key, err)
			}
			if len(value) == 0 || value[0] != version {
				return fmt.Errorf("usage database: the state %q: %w", key, errFormat)
			}
			states[key] = value[1:]
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return states, nil
}
