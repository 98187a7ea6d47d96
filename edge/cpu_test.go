//go:build unix

package edge_test

import (
	"syscall"
	"testing"
	"time"
)

// reportCPU adds the process's CPU time per operation, which a busy machine
// disturbs less than the time by the clock. Call the result after the loop.
func reportCPU(b *testing.B) func() {
	before := cpuTime()
	return func() { b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op") }
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
