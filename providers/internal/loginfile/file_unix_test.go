//go:build unix

package loginfile

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestRights(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "auth.json")
	write(t, path, "x")
	for mode, want := range map[os.FileMode]Problem{
		0o600: 0, 0o400: 0, 0o700: 0, 0o640: Exposed, 0o604: Exposed, 0o620: Exposed, 0o666: Exposed, 0o601: Exposed,
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, _, err := Read(path)
		var e *Error
		errors.As(err, &e)
		if want == 0 && err != nil || want != 0 && (e == nil || e.Problem != want || e.Mode.Perm() != mode) {
			t.Errorf("%04o: %v", mode, err)
		}
	}
	if got := (&Error{Problem: Exposed, Mode: 0o644}).Error(); got != "is open to others than its owner (mode 0644)" {
		t.Error(got)
	}
}

// TestChangedRights: chmod changes no time that is looked at, but the mode.
func TestChangedRights(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "auth.json")
	write(t, path, "x")
	_, state, err := Read(path)
	if err != nil || !state.Same(path) {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil || state.Same(path) {
		t.Errorf("the same, %v", err)
	}
}

// TestPipe: a pipe without a writer does not hold the reader.
func TestPipe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := Read(path)
	var e *Error
	if !errors.As(err, &e) || e.Problem != NotPlain {
		t.Errorf("%v", err)
	}
}
