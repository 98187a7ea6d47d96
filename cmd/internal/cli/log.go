package cli

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// logWait is how long a line may wait for others, and logBuffer how many
	// bytes may.
	logWait   = 100 * time.Millisecond
	logBuffer = 32 << 10
)

// logger logs to stderr: text for people, JSON for machines. The JSON lines up
// to info are written together, at logWait or when flush is called: one write
// for each call costs more than making its line.
func (a *app) logger(level string) (log *slog.Logger, flush func()) {
	var l slog.Level
	_ = l.UnmarshalText([]byte(level)) // one of the enum
	opts := &slog.HandlerOptions{Level: l}
	if a.err.tty {
		return slog.New(slog.NewTextHandler(a.err, opts)), func() {}
	}
	w := &lines{to: a.err}
	return slog.New(lineHandler{slog.NewJSONHandler(w, opts), w}), w.flush
}

// lineHandler lets a line above info go out at once, with those that wait.
type lineHandler struct {
	slog.Handler
	w *lines
}

// Handle implements slog.Handler.
func (h lineHandler) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level > slog.LevelInfo {
		h.w.flush()
	}
	return err
}

// WithAttrs implements slog.Handler.
func (h lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lineHandler{h.Handler.WithAttrs(attrs), h.w}
}

// WithGroup implements slog.Handler.
func (h lineHandler) WithGroup(name string) slog.Handler {
	return lineHandler{h.Handler.WithGroup(name), h.w}
}

// lines gathers what is written to it. A timer runs while something waits.
type lines struct {
	to io.Writer

	mu    sync.Mutex // guards the rest, and the order of writes
	buf   bytes.Buffer
	timed bool
}

// Write implements io.Writer; it is given whole lines.
func (w *lines) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	if w.buf.Len() >= logBuffer {
		return len(p), w.write()
	}
	if !w.timed {
		w.timed = true
		time.AfterFunc(logWait, w.flush)
	}
	return len(p), nil
}

func (w *lines) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timed = false
	_ = w.write()
}

func (w *lines) write() error {
	_, err := w.buf.WriteTo(w.to)
	w.buf.Reset() // what cannot be written is not kept
	return err
}
