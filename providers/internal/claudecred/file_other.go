//go:build !unix

package claudecred

import "os"

func open(path string) (*os.File, error) { return os.Open(path) }

// exposed is left to the system's access lists, which the mode does not show.
func exposed(os.FileInfo) bool { return false }

func inode(os.FileInfo) uint64 { return 0 }
