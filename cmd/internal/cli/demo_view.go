package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// show is how the demo is shown while it runs. Its methods are called from one
// goroutine and only read the scenario.
type show interface {
	begin()
	pools(s *scenario)
	saturated(s *scenario)
	end(s *scenario)
}

const demoTitle = "20 ingestion and 3 interactive calls at once: mock provider, cap 12, 400 ms each"

// showNothing shows nothing.
type showNothing struct{}

func (showNothing) begin()              {}
func (showNothing) pools(*scenario)     {}
func (showNothing) saturated(*scenario) {}
func (showNothing) end(*scenario)       {}

// screen redraws a picture on a terminal.
type screen struct {
	out   stream
	drawn int
}

func (v *screen) begin()                { fmt.Fprintln(v.out, v.out.paint(bold, demoTitle)) }
func (v *screen) pools(s *scenario)     { v.draw(s) }
func (v *screen) saturated(s *scenario) { v.draw(s) }
func (v *screen) end(s *scenario)       { v.draw(s) }

// draw writes the picture over the one before.
func (v *screen) draw(s *scenario) {
	lines := frame(v.out, s, time.Since(s.start))
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.drawn)
	}
	for _, l := range lines {
		b.WriteString("\r\x1b[K" + l + "\n")
	}
	v.drawn = max(v.drawn, len(lines)) // events are only added: a picture never shrinks by much
	for range v.drawn - len(lines) {
		b.WriteString("\r\x1b[K\n")
	}
	fmt.Fprint(v.out, b.String())
}

// shownEvents is how many saturation events the picture has room for.
const shownEvents = 5

// frame is the picture: pools and classes with bars, then the events.
func frame(out stream, s *scenario, elapsed time.Duration) []string {
	t := &table{columns: []column{
		{title: seconds(elapsed)},
		{fixed: true, drop: 2},
		{title: "ACTIVE", right: true},
		{title: "QUEUED", right: true},
		{title: "PEAK", right: true},
		{title: "ANSWERED", right: true, drop: 1},
	}}
	for _, name := range slices.Sorted(maps.Keys(s.health.Pools)) {
		p := s.health.Pools[name]
		t.add(poolRow(name, p.Active, p.Cap, p.Queued, p.Peak, "", cyan)...)
	}
	totals := map[string]int{subjects.ClassIngestion: demoIngestion, subjects.ClassInteractive: demoInteractive}
	for _, name := range classNames(s.health.Classes) {
		c := s.health.Classes[name]
		answered := fmt.Sprintf("%d/%d", s.done[name], totals[name])
		t.add(poolRow("  "+name, c.Active, c.Slots, c.Queued, c.Peak, answered, green)...)
	}
	lines := t.lines(out)
	first := max(len(s.saturated)-shownEvents, 0)
	for _, e := range s.saturated[first:] {
		text := seconds(e.after) + "  " + subjects.PoolSaturated + "  " + safe(saturatedText(&e.event))
		if w := out.width(); w > 0 {
			text = cut(text, w)
		}
		lines = append(lines, out.paint(yellow, text))
	}
	return lines
}

func poolRow(name string, active, limit, queued, peak int, answered string, c colour) []cell {
	q := plain
	if queued > 0 {
		q = yellow
	}
	return []cell{
		{text: name},
		{bar(active, limit), c},
		{text: fmt.Sprintf("%d/%d", active, limit)},
		{strconv.Itoa(queued), q},
		{text: strconv.Itoa(peak)},
		{text: answered},
	}
}

// bar draws one mark a slot, for up to 24.
func bar(active, limit int) string {
	const most = 24
	if limit > most {
		active, limit = active*most/limit, most
	}
	active = max(min(active, limit), 0)
	return strings.Repeat("█", active) + strings.Repeat("·", max(limit-active, 0))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// progress writes plain lines, at most a few a second.
type progress struct {
	out   stream
	last  string
	at    time.Duration
	shown int
}

// progressEvery is the least time between two lines.
const progressEvery = 200 * time.Millisecond

func (v *progress) begin() { fmt.Fprintln(v.out, demoTitle) }

func (v *progress) pools(s *scenario) {
	elapsed := time.Since(s.start)
	if elapsed-v.at < progressEvery {
		return
	}
	v.line(s, elapsed)
}

func (v *progress) line(s *scenario, elapsed time.Duration) {
	text := progressText(s)
	if text == v.last {
		return
	}
	v.last, v.at = text, elapsed
	fmt.Fprintf(v.out, "%s  %s\n", seconds(elapsed), text)
}

func (v *progress) saturated(s *scenario) {
	for ; v.shown < len(s.saturated); v.shown++ {
		e := s.saturated[v.shown]
		fmt.Fprintf(v.out, "%s  %s  %s\n", seconds(e.after), subjects.PoolSaturated, safe(saturatedText(&e.event)))
	}
}

func (v *progress) end(s *scenario) { v.line(s, time.Since(s.start)) }

func progressText(s *scenario) string {
	active, queued := 0, 0
	var classes []string
	for _, name := range classNames(s.health.Classes) {
		c := s.health.Classes[name]
		classes = append(classes, fmt.Sprintf("%s %d/%d", name, c.Active, c.Slots))
	}
	for _, p := range s.health.Pools {
		active += p.Active
		queued += p.Queued
	}
	return fmt.Sprintf("%d in flight (%s), %d queued, %d of %d answered", active, strings.Join(classes, ", "), queued,
		len(s.results), demoIngestion+demoInteractive)
}
