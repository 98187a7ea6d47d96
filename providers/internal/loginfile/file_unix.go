//go:build unix

package loginfile

import (
	"os"
	"syscall"
)

// open does not wait for a writer where the path is a pipe.
func open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

func exposed(info os.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }
