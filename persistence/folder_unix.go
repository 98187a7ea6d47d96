//go:build linux || darwin

package persistence

import (
	"errors"
	"os"
	"syscall"
)

// freeBytes is the space that an ordinary user may still take under dir. A file
// system without a size (some network ones) is not known.
func freeBytes(dir string) (free uint64, known bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil || st.Blocks == 0 {
		return 0, false
	}
	return st.Bavail * uint64(st.Bsize), true
}

// lockFolder takes the lock that Badger takes. ok is false when another process,
// or another Store of this one, has it.
func lockFolder(dir string) (unlock func(), ok bool, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, false, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, f.Close()
	}
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, true, nil
}
