//go:build unix

package claudecred

import (
	"syscall"
	"testing"
	"time"
)

// A pipe in the file's place is refused at once: nobody waits for its writer.
func TestPipe(t *testing.T) {
	t.Parallel()
	f := setup(t)
	if err := syscall.Mkfifo(f.file, 0o600); err != nil {
		t.Fatal(err)
	}
	f.fails(CodeUnreadable)
}

// A path that leads through a file is not the same as no login.
func TestNoWayThere(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.put(blob(secret, start.Add(time.Hour)))
	r := New(Options{File: f.file + "/x", Named: true})
	_, err := r.Token(t.Context())
	reason(t, err, CodeUnreadable)
}
