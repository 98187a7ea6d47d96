package wire

import (
	"syscall"
	"testing"
)

// cpu reports the process's CPU time per iteration, which a busy machine
// disturbs less than the clock.
func cpu(b *testing.B) {
	spent := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := spent()
	b.Cleanup(func() { b.ReportMetric(float64(spent()-before)/float64(b.N), "cpu-ns/op") })
}
