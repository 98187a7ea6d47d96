//go:build !unix

package loginfile

import "os"

func open(path string) (*os.File, error) { return os.Open(path) }

// exposed is left to the system's access lists, which the mode does not show.
func exposed(os.FileInfo) bool { return false }
