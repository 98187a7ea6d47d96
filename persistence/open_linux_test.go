package persistence

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// A folder that this user may not write is refused with the reason.
func TestReadOnlyFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	// root may write everywhere; its file rights end with its file-system user id,
	// which is this thread's alone.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if os.Geteuid() == 0 {
		if err := syscall.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := syscall.Setfsuid(0); err != nil {
				panic(err)
			}
		}()
	}
	mustRefuse(t, dir, Permission, dir, "permission denied", "--data")
	mustRefuse(t, filepath.Join(dir, "usage"), Permission, "permission denied", "--data")
}
