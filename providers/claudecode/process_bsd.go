//go:build unix && !linux

package claudecode

import "syscall"

// dieWithParent: the program ends by itself at the end of its input, which comes
// when Sluice dies.
func dieWithParent(*syscall.SysProcAttr) {}
