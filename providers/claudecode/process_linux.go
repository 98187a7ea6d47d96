package claudecode

import "syscall"

// dieWithParent has the kernel kill the process when Sluice dies without a word.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
