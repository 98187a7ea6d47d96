//go:build unix

package claudecred

import (
	"os"
	"syscall"
)

// open does not wait for a writer where the path is a pipe.
func open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// exposed reports whether others than the owner have rights to the file.
func exposed(info os.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }

func inode(info os.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino)
	}
	return 0
}
