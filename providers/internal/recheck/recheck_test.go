package recheck

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestKept(t *testing.T) {
	now := time.Unix(1000, 0)
	var err error
	ran := 0
	k := Kept{Good: 10 * time.Second, Bad: time.Second, Now: func() time.Time { return now }, Do: func(context.Context) error { ran++; return err }}
	look := func(after time.Duration, want error, runs int) {
		t.Helper()
		now = now.Add(after)
		if got := k.Check(t.Context()); got != want || ran != runs { //nolint:errorlint // the very value
			t.Errorf("%v after %d runs, want %v after %d", got, ran, want, runs)
		}
	}
	look(0, nil, 1)
	look(9*time.Second, nil, 1)
	err = errors.New("down")
	look(time.Second, err, 2)
	look(time.Second/2, err, 2)
	err = nil
	look(time.Second, nil, 3)
	k.Drop()
	look(0, nil, 4)

	// One that the caller cut off says nothing about the provider.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k.Drop()
	err = context.Canceled
	if k.Check(ctx) == nil {
		t.Error("no error")
	}
	err = nil
	look(0, nil, 6)
}
