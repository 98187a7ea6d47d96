package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// callLimit bounds one call of the load.
const callLimit = 30 * time.Second

// promptText makes a request body about 1 KB long.
var promptText = strings.Repeat("Say something about the length of this. ", 21)

// loadCommand is one step of a measurement: "open" makes the callers and runs
// them for Time as a warm-up, "run" measures, "close" closes the connections.
type loadCommand struct {
	Op          string        `json:"op"`
	Target      string        `json:"target,omitempty"`
	Addr        string        `json:"addr,omitempty"`
	Mode        string        `json:"mode,omitempty"`
	Concurrency int           `json:"concurrency,omitempty"`
	Conns       int           `json:"conns,omitempty"`
	Time        time.Duration `json:"time,omitempty"`
	Max         int           `json:"max,omitempty"`
}

// loadAnswer is what the load saw. Latencies are those of the step; OK and
// Failed count from "open" on, so that they can be compared with the upstream.
type loadAnswer struct {
	Error  string        `json:"error,omitempty"`
	Calls  int           `json:"calls"`
	Took   time.Duration `json:"took"`
	P50    time.Duration `json:"p50"`
	P99    time.Duration `json:"p99"`
	Max    time.Duration `json:"max"`
	OK     int64         `json:"ok"`
	Failed int64         `json:"failed"`
}

// caller makes calls one after the other. A call that failed leaves it usable.
type caller interface {
	call(seq uint64) error
	close()
}

// loadMain is the load generator: `bench load`.
func loadMain(_ []string, in io.Reader, out io.Writer) error {
	l := &loader{}
	defer l.close()
	return serveCommands(in, out, "", func(c loadCommand) (loadAnswer, error) {
		a, err := l.do(c)
		if err != nil {
			a.Error = err.Error()
		}
		return a, nil
	})
}

type loader struct {
	callers []caller
	shut    func()
	seq     atomic.Uint64
	ok      atomic.Int64
	failed  atomic.Int64

	mu    sync.Mutex
	first error // the first call that failed
}

func (l *loader) do(c loadCommand) (loadAnswer, error) {
	switch c.Op {
	case "open":
		if err := l.open(c); err != nil {
			l.close()
			return loadAnswer{}, err
		}
		return l.run(c.Time, c.Max)
	case "run":
		return l.run(c.Time, c.Max)
	case "close":
		l.close()
		return loadAnswer{OK: l.ok.Load(), Failed: l.failed.Load()}, nil
	}
	return loadAnswer{}, fmt.Errorf("unknown step %q", c.Op)
}

func (l *loader) open(c loadCommand) error {
	l.close()
	l.ok.Store(0)
	l.failed.Store(0)
	l.first = nil
	switch c.Target {
	case targetNATS, targetRaw:
		return l.openNATS(c)
	}
	for range c.Concurrency {
		h, err := dialHTTP(c.Addr, requestBody(c.Target, c.Mode), c.Mode == modeStream)
		if err != nil {
			return err
		}
		l.callers = append(l.callers, h)
	}
	return nil
}

func (l *loader) close() {
	for _, c := range l.callers {
		c.close()
	}
	l.callers = nil
	if l.shut != nil {
		l.shut()
		l.shut = nil
	}
}

// run lets every caller call until the time is over or max calls were made.
func (l *loader) run(d time.Duration, limit int) (loadAnswer, error) {
	lat := make([][]time.Duration, len(l.callers))
	var made atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	end := start.Add(d)
	for i, c := range l.callers {
		wg.Go(func() {
			for t := time.Now(); t.Before(end) && made.Add(1) <= int64(limit); {
				err := c.call(l.seq.Add(1))
				now := time.Now()
				l.count(err)
				lat[i] = append(lat[i], now.Sub(t))
				t = now
			}
		})
	}
	wg.Wait()
	a := summarise(slices.Concat(lat...))
	a.Took, a.OK, a.Failed = time.Since(start), l.ok.Load(), l.failed.Load()
	return a, l.first
}

func (l *loader) count(err error) {
	if err == nil {
		l.ok.Add(1)
		return
	}
	l.failed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = err
	}
}

func summarise(lat []time.Duration) loadAnswer {
	if len(lat) == 0 {
		return loadAnswer{}
	}
	slices.Sort(lat)
	return loadAnswer{Calls: len(lat), P50: lat[len(lat)/2], P99: lat[len(lat)*99/100], Max: lat[len(lat)-1]}
}

const seqDigits = 16

// body is a request body with a place for a number, so that no two requests are
// the same and none can be answered for another.
type body struct {
	text []byte
	at   int
}

func requestBody(target, mode string) body {
	model := "bench-model"
	if target == targetHTTP || target == targetNATS {
		model = "openai/bench-model"
	}
	head := `{"model":"` + model + `","messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"Call `
	tail := `: ` + promptText + `"}],"temperature":0.2,"max_tokens":300,"user":"` + target + `"`
	if mode == modeStream {
		tail += `,"stream":true,"stream_options":{"include_usage":true}`
	}
	return body{text: []byte(head + strings.Repeat("0", seqDigits) + tail + "}"), at: len(head)}
}

// number writes seq into b, which must be a copy of the body's text from offset
// off on.
func (y *body) number(b []byte, off int, seq uint64) {
	var digits [seqDigits]byte
	s := strconv.AppendUint(digits[:0], seq, 16)
	at := b[off+y.at : off+y.at+seqDigits]
	for i := range at {
		at[i] = '0'
	}
	copy(at[seqDigits-len(s):], s)
}

var errAnswer = errors.New("not the expected answer")

func unexpected(what string, b []byte) error {
	return fmt.Errorf("%w: %s: %.300s", errAnswer, what, b)
}
