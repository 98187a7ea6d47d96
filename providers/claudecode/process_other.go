//go:build !unix

package claudecode

import "os/exec"

// isolate: there are no process groups here. The program itself is killed, and
// starts no others with its tools off.
func isolate(*exec.Cmd) {}

func terminateGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
