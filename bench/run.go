package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/fakeopenai"
	"github.com/sluice-llm/sluice/subjects"
)

// cell is one group of rows: the targets are compared within it.
type cell struct {
	Latency     time.Duration `json:"upstreamLatencyNs"`
	Concurrency int           `json:"concurrency"`
	Mode        string        `json:"mode"`
}

func (c cell) String() string {
	return fmt.Sprintf("upstream %v, %d at once, %s", c.Latency, c.Concurrency, c.Mode)
}

// sample is one measurement: one target in one round of one cell.
type sample struct {
	cpu           time.Duration // per call
	p50, p99      time.Duration
	perSecond     float64
	memory        memory
	calls, failed int
}

// memory is a process's resident memory in bytes: all of it, the part that is
// not mapped files (the kernel takes those back when it needs room), and the
// peak of all since resetPeak.
type memory struct{ RSS, Anon, Peak int64 }

// bench is a run in progress.
type bench struct {
	p        *plan
	errw     io.Writer
	dir      string
	upstream *child
	floor    *child
	echo     *child
	load     *child
	node     *node
	idle     memory // the node's, before any load
	samples  map[cell]map[string][]sample
	// sent has the load's count of good calls by target, the warm-ups included.
	sent   map[string]int64
	faults []string
}

// run carries out a plan and prints its report. It returns an error when a call
// failed, when the counts differ, or, with -aims, when an aim is missed.
func run(ctx context.Context, p *plan, out, errw io.Writer) error {
	b := &bench{p: p, errw: &lockedWriter{w: errw}, samples: map[cell]map[string][]sample{}, sent: map[string]int64{}}
	started, load := time.Now(), loadAverage()
	err := b.start(ctx)
	if err == nil {
		err = b.measure(ctx)
	}
	if err == nil {
		b.witness(ctx)
	}
	b.stop()
	if err != nil {
		return err
	}
	r := b.report(started, load)
	if err := r.write(p.json, out); err != nil {
		return err
	}
	if len(b.faults) > 0 {
		return fmt.Errorf("%d faults: %s", len(b.faults), b.faults[0])
	}
	if p.aims && r.missed() {
		return errors.New("an aim is missed")
	}
	return nil
}

// lockedWriter lets the bench and its children write to one place.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer. Safe for concurrent use.
func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.errw, "bench: "+format+"\n", args...) }

func (b *bench) fault(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	b.faults = append(b.faults, s)
	b.say("FAULT: %s", s)
}

func (b *bench) start(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "sluice-bench-"); err != nil {
		return err
	}
	if b.p.needsNode() && b.p.node == "" {
		pkg := "./cmd/sluice"
		if b.p.profile != "" {
			pkg = "./bench/profnode"
			if err := os.MkdirAll(b.p.profile, 0o755); err != nil {
				return err
			}
		}
		b.say("building %s", pkg)
		if b.p.node, err = buildNode(ctx, pkg, b.dir, b.errw); err != nil {
			return err
		}
	} else if b.p.node, err = filepath.Abs(b.p.node); err != nil {
		return err
	}
	if b.upstream, err = startChild("upstream", b.errw); err != nil {
		return err
	}
	if b.load, err = startChild("load", b.errw); err != nil {
		return err
	}
	if b.p.has(targetFloor) {
		if b.floor, err = startChild("floor", b.errw, "-upstream", b.upstream.addr); err != nil {
			return err
		}
	}
	if !b.p.needsNode() {
		return nil
	}
	if b.node, err = startNode(b.p.node, b.dir, b.upstream.addr); err != nil {
		return err
	}
	settle(b.node.pid())
	if b.idle, err = memoryOf(b.node.pid()); err != nil {
		return err
	}
	if b.p.has(targetRaw) {
		b.echo, err = startChild("echo", b.errw, "-nats", b.node.natsAsNode())
	}
	return err
}

func (b *bench) stop() {
	for _, c := range []*child{b.load, b.echo, b.floor} {
		if c != nil {
			c.stop()
		}
	}
	if b.node != nil && !b.node.stop() {
		b.fault("the node did not end within 10 s of SIGTERM")
	}
	if b.upstream != nil {
		b.upstream.stop()
	}
	switch {
	case b.dir == "":
	case b.p.keep:
		b.say("kept in %s", b.dir)
	default:
		_ = os.RemoveAll(b.dir)
	}
}

func (b *bench) measure(ctx context.Context) error {
	for _, latency := range b.p.latencies {
		ms := latency.Milliseconds()
		if err := b.upstream.ask(upstreamCommand{LatencyMs: &ms}, &upstreamAnswer{}, 5*time.Second); err != nil {
			return err
		}
		for _, n := range b.p.concurrency {
			for _, mode := range b.p.modes {
				if err := b.cell(ctx, cell{latency, n, mode}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// cell measures every target in turn, as often as there are rounds. Each round
// begins with another target.
func (b *bench) cell(ctx context.Context, c cell) error {
	b.say("%v", c)
	b.samples[c] = map[string][]sample{}
	for round := range b.p.rounds {
		for i := range b.p.targets {
			t := b.p.targets[(i+round)%len(b.p.targets)]
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			s, err := b.one(ctx, c, t)
			if err != nil {
				return fmt.Errorf("%v, %s: %w%s", c, t, err, b.nodeTail(t))
			}
			b.samples[c][t] = append(b.samples[c][t], s)
		}
	}
	return nil
}

func (b *bench) nodeTail(target string) string {
	if b.node == nil || target == targetDirect || target == targetFloor {
		return ""
	}
	return "\nthe end of the node's log:\n" + b.node.tail()
}

// one measures one target once.
func (b *bench) one(ctx context.Context, c cell, target string) (sample, error) {
	pid, addr := b.subject(target)
	before, err := b.counts(target, true)
	if err != nil {
		return sample{}, err
	}
	limit := b.p.window + b.p.warm + 2*callLimit
	step := loadCommand{Op: "open", Target: target, Addr: addr, Mode: c.Mode, Concurrency: c.Concurrency, Conns: b.p.natsConns, Time: b.p.warm, Max: b.p.maxCalls}
	if _, err := b.step(step, limit); err != nil {
		return sample{}, err
	}
	settle(pid)
	resetPeak(pid)
	cpu0, err := cpuTime(pid)
	if err != nil {
		return sample{}, err
	}
	profiled := b.profile(ctx, c, target)
	a, err := b.step(loadCommand{Op: "run", Time: b.p.window, Max: b.p.maxCalls}, limit)
	if err := errors.Join(err, <-profiled); err != nil {
		return sample{}, err
	}
	settle(pid)
	cpu1, err := cpuTime(pid)
	if err != nil {
		return sample{}, err
	}
	s := sample{
		cpu: (cpu1 - cpu0) / time.Duration(max(1, a.Calls)), p50: a.P50, p99: a.P99, calls: a.Calls,
		perSecond: float64(a.Calls) / a.Took.Seconds(),
	}
	if s.memory, err = memoryOf(pid); err != nil {
		return sample{}, err
	}
	end, err := b.step(loadCommand{Op: "close"}, limit)
	if err != nil {
		return sample{}, err
	}
	s.failed = int(end.Failed)
	return s, b.compare(c, target, before, end)
}

// profile takes the node's profile while it is measured, where that is wanted.
func (b *bench) profile(ctx context.Context, c cell, target string) <-chan error {
	done := make(chan error, 1)
	if b.p.profile == "" || target != targetHTTP && target != targetNATS && target != targetRaw {
		done <- nil
		return done
	}
	file := fmt.Sprintf("%s-%dms-%d-%s", target, c.Latency.Milliseconds(), c.Concurrency, c.Mode)
	go func() { done <- b.node.profile(ctx, b.p.window, filepath.Join(b.p.profile, file)) }()
	return done
}

// subject is the process whose cost a target shows, and where the load goes.
func (b *bench) subject(target string) (pid int, addr string) {
	switch target {
	case targetFloor:
		return b.floor.pid(), b.floor.addr
	case targetHTTP:
		return b.node.pid(), b.node.http
	case targetNATS:
		return b.node.pid(), b.node.nats
	case targetRaw:
		return b.node.pid(), b.node.natsAsNode()
	}
	return b.upstream.pid(), b.upstream.addr
}

func (b *bench) step(c loadCommand, limit time.Duration) (loadAnswer, error) {
	var a loadAnswer
	if err := b.load.ask(c, &a, limit); err != nil {
		return a, err
	}
	if a.Error != "" {
		if a.OK == 0 {
			return a, errors.New(a.Error)
		}
		b.fault("%d of %d calls failed: %s", a.Failed, a.OK+a.Failed, a.Error)
	}
	return a, nil
}

func (b *bench) counts(target string, resetPeaks bool) (fakeopenai.Counts, error) {
	var a upstreamAnswer
	err := b.upstream.ask(upstreamCommand{ResetPeaks: resetPeaks}, &a, 5*time.Second)
	return a.Classes[target], err
}

// compare holds the load's count against the upstream's: every good answer came
// from exactly one call upstream, and never were more of them in flight than
// the load had callers.
func (b *bench) compare(c cell, target string, before fakeopenai.Counts, end loadAnswer) error {
	b.sent[target] += end.OK
	if target == targetRaw {
		return nil
	}
	after, err := b.counts(target, false)
	if err != nil {
		return err
	}
	if n := int64(after.Answered - before.Answered); n != end.OK {
		b.fault("%v, %s: the load had %d good answers, the upstream gave %d", c, target, end.OK, n)
	}
	if after.Peak > c.Concurrency {
		b.fault("%v, %s: %d calls were in flight upstream", c, target, after.Peak)
	}
	return nil
}

// settle waits until a process has come to rest (below 2 % of one CPU in two
// looks), at most 5 s: what the load left to do is part of its cost.
func settle(pid int) {
	const look = 40 * time.Millisecond
	tick := time.NewTicker(look)
	defer tick.Stop()
	last, err := cpuTime(pid)
	for quiet, n := 0, 0; quiet < 2 && n < 125 && err == nil; n++ {
		<-tick.C
		var now time.Duration
		now, err = cpuTime(pid)
		if quiet++; now-last > look/50 {
			quiet = 0
		}
		last = now
	}
}

// witness compares the node's usage log with what the upstream reported.
func (b *bench) witness(ctx context.Context) {
	if b.node == nil {
		return
	}
	for target, process := range map[string]string{targetHTTP: "bench-http", targetNATS: "bench-nats"} {
		if !b.p.has(target) {
			continue
		}
		want, err := b.counts(target, false)
		if err != nil {
			b.fault("%v", err)
			return
		}
		var got subjects.UsageTotals
		tick := time.NewTicker(100 * time.Millisecond)
		for n := 0; n < 100 && ctx.Err() == nil; n++ { // the log may be read some moments later: at most 10 s
			var all map[string]subjects.UsageTotals
			if all, err = b.node.usage(ctx); err != nil {
				break
			}
			if got = all[process]; same(got, want) {
				break
			}
			<-tick.C
		}
		tick.Stop()
		if err != nil || !same(got, want) {
			b.fault("%s: the usage log has %d calls, %d + %d tokens; the upstream answered %d with %d + %d (%v)", target,
				got.Calls, got.InputTokens+got.CacheReadTokens, got.OutputTokens, want.Answered, want.PromptTokens, want.CompletionTokens, err)
		}
	}
}

func same(u subjects.UsageTotals, c fakeopenai.Counts) bool {
	return u.Calls == int64(c.Answered) && u.InputTokens+u.CacheReadTokens == c.PromptTokens && u.OutputTokens == c.CompletionTokens
}

// parseUsage reads the totals by process out of a usage summary.
func parseUsage(b []byte) (map[string]subjects.UsageTotals, error) {
	var s subjects.UsageSummary
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("usage summary: %w", err)
	}
	out := map[string]subjects.UsageTotals{}
	for _, p := range s.ByProcess {
		out[p.Name] = p.UsageTotals
	}
	return out, nil
}
