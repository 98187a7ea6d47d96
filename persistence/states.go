package persistence

// Bounds of SaveStates, in bytes.
const (
	// MaxStateKey bounds a key, which is not empty.
	MaxStateKey = 200
	// MaxState bounds a value.
	MaxState = 64 << 10
	// MaxStates bounds the keys and values of one SaveStates.
	MaxStates = 256 << 10
)

// SaveStates stores small states by their keys, all of them or none; nil as a
// value deletes. They are no part of what is rebuilt from the stream. It may be
// called beside Apply and waits for it.
func (s *Store) SaveStates(states map[string][]byte) error {
	return nil
}

// States returns all states that are stored.
func (s *Store) States() (map[string][]byte, error) {
	return map[string][]byte{}, nil
}
