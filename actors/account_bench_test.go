package actors

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// BenchmarkPermit is a permit and its outcome: free, of one who counts
// completions and reads windows, and refused.
func BenchmarkPermit(b *testing.B) {
	answer := outcome{ran: time.Second, usage: subjects.Usage{InputTokens: 100, OutputTokens: 20, TotalTokens: 120}}
	claude := answer
	claude.limits = unified("5h", 0.42, time.Hour, "allowed")
	for name, tc := range map[string]struct {
		provider string
		o        outcome
	}{"free": {"q", answer}, "counted": {"p", answer}, "windows": {"p", claude}} {
		b.Run(name, func(b *testing.B) {
			a := openBank(b, bankConfig(), nil)
			b.ReportAllocs()
			for b.Loop() {
				p, _, err := a.permit(context.Background(), tc.provider, "m", subjects.ClassInteractive)
				if err != nil {
					b.Fatal(err)
				}
				p.done(tc.o)
				p.release()
			}
		})
	}
	b.Run("refused", func(b *testing.B) {
		a := openBank(b, bankConfig(), nil)
		a.try(outOfQuota(0))
		b.ReportAllocs()
		for b.Loop() {
			if _, no, _ := a.permit(context.Background(), "p", "m", subjects.ClassInteractive); no == nil {
				b.Fatal("let pass")
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		a := openBank(b, bankConfig(), nil)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				p, _, _ := a.permit(context.Background(), "q", "m", subjects.ClassInteractive)
				p.done(answer)
			}
		})
	})
}
