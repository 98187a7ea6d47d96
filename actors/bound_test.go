package actors

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// TestAttemptBound: a provider's timeout bounds a whole answer, and of a stream the time
// until it begins; a stream that has begun goes on past it.
func TestAttemptBound(t *testing.T) {
	cfg, err := config.Load(config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	limit := cfg.Providers["openai"].Timeout
	for name, tc := range map[string]struct {
		provider string
		stream   bool
		deadline time.Duration // of the call
		begins   time.Duration // 0 = never
		lives    time.Duration // how long the attempt may go on
	}{
		"whole":                     {"openai", false, time.Hour, 0, limit},
		"stream that never begins":  {"openai", true, time.Hour, 0, limit},
		"stream that begins":        {"openai", true, time.Hour, limit - 1, time.Hour},
		"the call's deadline first": {"openai", true, limit / 2, 0, limit / 2},
		"no timeout":                {"mock", true, time.Hour, 0, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &work{s: newSetup(cfg, nil, nil), req: &wire.Request{Head: wire.Head{Stream: tc.stream}}}
				var cancel context.CancelFunc
				c.ctx, cancel = context.WithTimeout(t.Context(), tc.deadline)
				defer cancel()
				ctx, b := c.bounded(tc.provider)
				defer b.stop()
				if tc.begins > 0 {
					time.AfterFunc(tc.begins, b.begun)
				}
				start := time.Now()
				<-ctx.Done()
				if got := time.Since(start); got != tc.lives {
					t.Errorf("ended after %s, want %s", got, tc.lives)
				}
				// Whatever the provider makes of it.
				if err := b.outcome(errors.New("cut")); tc.stream && tc.lives == limit && subjects.KindOf(err) != subjects.KindTimeout {
					t.Errorf("%v", err)
				}
			})
		})
	}
}
