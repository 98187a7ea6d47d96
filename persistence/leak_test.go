package persistence

import (
	"testing"

	"go.uber.org/goleak"
)

// Close leaves no goroutine behind.
func TestNoLeak(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, "A", entries(t, 1, 100), Applied{Rows: 100})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	goleak.VerifyNone(t, before)
}
