package loginfile

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// nobody is a user who owns nothing.
const nobody = 65534

// TestUnreadable: root reads everything, so the test reads as another user, whom
// the kernel knows by its thread.
func TestUnreadable(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path := filepath.Join(t.TempDir(), "auth.json")
	write(t, path, "x")
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := syscall.Setfsuid(nobody); err != nil {
			t.Fatal(err)
		}
		defer syscall.Setfsuid(0)
	}
	_, _, err := Read(path)
	var e *Error
	if !errors.As(err, &e) || e.Problem != Unreadable || !strings.Contains(e.Error(), "permission denied") {
		t.Errorf("%v", err)
	}
}
