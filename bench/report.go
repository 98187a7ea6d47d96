package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"
)

// report is the result of a run. Times are in microseconds, memory in bytes.
type report struct {
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	Machine machine   `json:"machine"`
	// IdleRSS is the node's memory before any load; 0 = no node in this run.
	IdleRSS int64   `json:"nodeIdleRSS"`
	Rounds  int     `json:"rounds"`
	Window  float64 `json:"windowSeconds"`
	Rows    []row   `json:"rows"`
	Aims    []aim   `json:"aims"`
	// Faults are calls that failed and counts that differ; empty in a good run.
	Faults []string `json:"faults"`
}

type machine struct {
	Go       string `json:"go"`
	OS       string `json:"os"`
	CPUs     int    `json:"cpus"`
	LoadThen string `json:"loadAverageAtStart"`
}

// row is one target in one cell. Each figure is the median over the rounds.
// Added figures and the ratio to the floor are taken within a round and then
// the median of them; they are absent where the run has nothing to compare with.
type row struct {
	cell
	Target      string   `json:"target"`
	CPU         float64  `json:"cpuPerCall"`
	CPULow      float64  `json:"cpuPerCallLow"`
	CPUHigh     float64  `json:"cpuPerCallHigh"`
	FloorRatio  *float64 `json:"cpuToFloor,omitempty"`
	P50         float64  `json:"p50"`
	P99         float64  `json:"p99"`
	AddedP50    *float64 `json:"addedP50,omitempty"`
	AddedP99    *float64 `json:"addedP99,omitempty"`
	PerSecond   float64  `json:"perSecond"`
	RSS         int64    `json:"rss"`
	Anon        int64    `json:"rssWithoutFiles"`
	PeakRSS     int64    `json:"peakRSS"`
	Calls       int      `json:"calls"`
	FailedCalls int      `json:"failedCalls"`
}

// aim is one of the aims that the project has set itself.
type aim struct {
	Text string `json:"text"`
	// Got and Limit are in the unit that the text names.
	Got   float64 `json:"got"`
	Limit float64 `json:"limit"`
	// State is "met", "missed" or "not measured".
	State string `json:"state"`
}

// The aims, as they were set with the project: durable usage on.
const (
	aimHTTPRatio = 1.25
	aimNATSRatio = 0.6
	aimAddedP50  = 100.0 // µs above the floor's
	aimMemory    = 100e6 // bytes
	aimCPUAt     = 64    // concurrency of the CPU aims
	aimMemoryAt  = 500   // concurrency of the memory aim
)

func (b *bench) report(started time.Time, load string) *report {
	r := &report{
		Started: started.UTC().Truncate(time.Second), Seconds: time.Since(started).Seconds(), Rounds: b.p.rounds,
		Window: b.p.window.Seconds(), Faults: b.faults, IdleRSS: b.idle.RSS,
		Machine: machine{Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), LoadThen: load},
	}
	if r.Faults == nil {
		r.Faults = []string{}
	}
	for _, latency := range b.p.latencies {
		for _, n := range b.p.concurrency {
			for _, mode := range b.p.modes {
				c := cell{latency, n, mode}
				for _, t := range b.p.targets {
					r.Rows = append(r.Rows, newRow(c, t, b.samples[c]))
				}
			}
		}
	}
	r.aims()
	return r
}

func newRow(c cell, target string, all map[string][]sample) row {
	own := all[target]
	cpus := each(own, func(s sample) float64 { return micros(s.cpu) })
	r := row{
		cell: c, Target: target,
		CPU: median(cpus), CPULow: slices.Min(cpus), CPUHigh: slices.Max(cpus),
		P50:       median(each(own, func(s sample) float64 { return micros(s.p50) })),
		P99:       median(each(own, func(s sample) float64 { return micros(s.p99) })),
		PerSecond: median(each(own, func(s sample) float64 { return s.perSecond })),
		RSS:       median(each(own, func(s sample) int64 { return s.memory.RSS })),
		Anon:      median(each(own, func(s sample) int64 { return s.memory.Anon })),
		PeakRSS:   slices.Max(each(own, func(s sample) int64 { return s.memory.Peak })),
	}
	for _, s := range own {
		r.Calls += s.calls
		r.FailedCalls += s.failed
	}
	if target == targetDirect {
		return r
	}
	if target != targetRaw {
		r.AddedP50 = against(own, all[targetDirect], func(s, d sample) float64 { return micros(s.p50 - d.p50) })
		r.AddedP99 = against(own, all[targetDirect], func(s, d sample) float64 { return micros(s.p99 - d.p99) })
	}
	r.FloorRatio = against(own, all[targetFloor], func(s, f sample) float64 { return float64(s.cpu) / float64(max(1, f.cpu)) })
	return r
}

// against compares two targets round by round; nil when the other was not measured.
func against(own, other []sample, f func(own, other sample) float64) *float64 {
	if len(other) == 0 {
		return nil
	}
	var v []float64
	for i := range own {
		v = append(v, f(own[i], other[i]))
	}
	m := median(v)
	return &m
}

func each[T any](in []sample, f func(sample) T) []T {
	out := make([]T, len(in))
	for i, s := range in {
		out[i] = f(s)
	}
	return out
}

// median of an even number of values is the lower of the middle two.
func median[T cmp.Ordered](v []T) T {
	v = slices.Sorted(slices.Values(v))
	return v[(len(v)-1)/2]
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func (r *report) find(latency time.Duration, concurrency int, mode, target string) *row {
	for i := range r.Rows {
		w := &r.Rows[i]
		if w.cell == (cell{latency, concurrency, mode}) && w.Target == target {
			return w
		}
	}
	return nil
}

// aims holds the rows against the aims.
func (r *report) aims() {
	for _, mode := range []string{modePlain, modeStream} {
		r.aimRatio(fmt.Sprintf("HTTP: CPU per call at most %.2f × the floor's (%d at once, 0 ms, %s)", aimHTTPRatio, aimCPUAt, mode),
			r.find(0, aimCPUAt, mode, targetHTTP), aimHTTPRatio)
		r.aimAdded(mode)
		r.aimRatio(fmt.Sprintf("NATS: CPU per call at most %.2f × the floor's (%d at once, 0 ms, %s)", aimNATSRatio, aimCPUAt, mode),
			r.find(0, aimCPUAt, mode, targetNATS), aimNATSRatio)
	}
	a := aim{Text: fmt.Sprintf("memory of the node below %.0f MB at %d at once (MB)", aimMemory/1e6, aimMemoryAt), Limit: aimMemory / 1e6, State: "not measured"}
	for _, w := range r.Rows {
		if w.Concurrency == aimMemoryAt && (w.Target == targetHTTP || w.Target == targetNATS) {
			a.Got = max(a.Got, float64(w.PeakRSS)/1e6)
			a.State = met(a.Got < a.Limit)
		}
	}
	r.Aims = append(r.Aims, a)
}

func (r *report) aimRatio(text string, w *row, limit float64) {
	a := aim{Text: text, Limit: limit, State: "not measured"}
	if w != nil && w.FloorRatio != nil {
		a.Got = *w.FloorRatio
		a.State = met(a.Got <= limit)
	}
	r.Aims = append(r.Aims, a)
}

func (r *report) aimAdded(mode string) {
	a := aim{Text: fmt.Sprintf("HTTP: added p50 at most the floor's + %.0f µs (1 at once, 0 ms, %s)", aimAddedP50, mode), State: "not measured"}
	h, f := r.find(0, 1, mode, targetHTTP), r.find(0, 1, mode, targetFloor)
	if h != nil && f != nil && h.AddedP50 != nil && f.AddedP50 != nil {
		a.Got, a.Limit = *h.AddedP50, *f.AddedP50+aimAddedP50
		a.State = met(a.Got <= a.Limit)
	}
	r.Aims = append(r.Aims, a)
}

func met(ok bool) string {
	if ok {
		return "met"
	}
	return "missed"
}

func (r *report) missed() bool {
	return slices.ContainsFunc(r.Aims, func(a aim) bool { return a.State == "missed" })
}

// write prints the table to out, and the JSON where it is wanted.
func (r *report) write(file string, out io.Writer) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if file == "-" {
		_, err := out.Write(append(b, '\n'))
		return err
	}
	if file != "" {
		if err := os.WriteFile(file, append(b, '\n'), 0o644); err != nil {
			return err
		}
	}
	_, err = out.Write(r.markdown())
	return err
}

func (r *report) markdown() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# bench, %s\n\n", r.Started.Format(time.RFC3339))
	fmt.Fprintf(&b, "%s, %s, %d CPUs, load average at the start %s; %d rounds of %g s each, interleaved; medians. Took %.0f s.\n",
		r.Machine.Go, r.Machine.OS, r.Machine.CPUs, r.Machine.LoadThen, r.Rounds, r.Window, r.Seconds)
	b.WriteString("CPU and memory are those of the process under test: direct = the fake upstream, floor = a bare httputil.ReverseProxy, http, nats and raw = the node.\n")
	if r.IdleRSS > 0 {
		fmt.Fprintf(&b, "The node at rest, before any load: %.0f MB.\n", float64(r.IdleRSS)/1e6)
	}
	var last cell
	for i, w := range r.Rows {
		if i == 0 || w.cell != last {
			last = w.cell
			fmt.Fprintf(&b, "\n## %v\n\n", w.cell)
			b.WriteString("| target | CPU µs/call | lowest–highest | × floor | p50 µs | p99 µs | added p50 | added p99 | calls/s | RSS MB | without files | peak MB |\n")
			b.WriteString("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
		}
		fmt.Fprintf(&b, "| %s | %.1f | %.1f–%.1f | %s | %.0f | %.0f | %s | %s | %.0f | %.0f | %.0f | %.0f |\n", w.Target, w.CPU, w.CPULow, w.CPUHigh,
			optional("%.2f", w.FloorRatio), w.P50, w.P99, optional("%+.0f", w.AddedP50), optional("%+.0f", w.AddedP99),
			w.PerSecond, float64(w.RSS)/1e6, float64(w.Anon)/1e6, float64(w.PeakRSS)/1e6)
	}
	b.WriteString("\n## Aims\n\n| aim | got | limit | |\n|---|--:|--:|---|\n")
	for _, a := range r.Aims {
		got := fmt.Sprintf("%.2f", a.Got)
		if a.State == "not measured" {
			got = "–"
		}
		fmt.Fprintf(&b, "| %s | %s | %.2f | %s |\n", a.Text, got, a.Limit, a.State)
	}
	if len(r.Faults) == 0 {
		b.WriteString("\nWitness: every good answer came from exactly one call upstream, and the usage log has the tokens that the upstream reported.\n")
	} else {
		b.WriteString("\n## Faults\n\n")
		for _, f := range r.Faults {
			fmt.Fprintf(&b, "- %s\n", f)
		}
	}
	return b.Bytes()
}

func optional(format string, v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf(format, *v)
}
