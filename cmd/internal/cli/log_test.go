package cli

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestLogGathers: lines up to info wait for each other, a warning does not and
// takes them along in order, and nothing is left behind.
func TestLogGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		log, flush := (&app{err: stream{Writer: &out}}).logger("info")
		count := func(want int) {
			t.Helper()
			synctest.Wait()
			if n := strings.Count(out.String(), "\n"); n != want {
				t.Errorf("%d lines are out, want %d: %s", n, want, out.String())
			}
		}
		log.Debug("none")
		log.Info("a")
		log.With("k", "v").WithGroup("g").Info("b")
		count(0)
		<-time.After(2 * logWait)
		count(2)
		log.Info("c")
		log.Warn("d")
		count(4)
		log.Info("e")
		flush()
		count(5)
		log.Info(strings.Repeat("x", logBuffer))
		count(6)
		<-time.After(2 * logWait)
		count(6)
		if i, j := strings.Index(out.String(), `"c"`), strings.Index(out.String(), `"d"`); i < 0 || j < i {
			t.Error("out of order")
		}
	})
}
