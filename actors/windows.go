package actors

import (
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

// What providers report of their limits comes with each answer, in two forms
// (WIRE.md B.4 and C; the claude program's rate_limit_event is put into the first
// by its package):
//
//	anthropic-ratelimit-unified-5h-utilization: 0.42   the part that is spent
//	anthropic-ratelimit-unified-5h-reset: 1796063565   epoch seconds
//	anthropic-ratelimit-unified-5h-status: allowed
//	x-quota-snapshot-premium_interactions: ent=300&ov=0.0&ovPerm=false&rem=35.5&rst=2026-04-01T00%3A00%3A00Z
//	x-usage-ratelimit-weekly: rem=5.7&rst=2026-04-21T06%3A35%3A37Z
//
// where rem is what is left in per cent, ent the whole (-1 = without end) and ov
// what was taken beyond it. Whatever does not look so is left out.
const (
	unifiedPrefix  = "anthropic-ratelimit-unified-"
	snapshotPrefix = "x-quota-snapshot-"
	usagePrefix    = "x-usage-ratelimit-"

	statusRejected  = "rejected"
	statusUnlimited = "unlimited"
	// overage is what is paid beyond the plan: no window, and nothing to keep.
	overage = "overage"
)

const (
	// maxWindows bounds the windows of a provider, maxWindowName their names and the
	// other words of theirs.
	maxWindows    = 32
	maxWindowName = 32
	// maxUsed bounds what is believed of a window's use: 100 times the whole.
	maxUsed = 100
	// undatedWindow is how long a window is believed that names no end.
	undatedWindow = time.Hour
)

// window is one limit as its provider reports it. reset is zero where no
// believable end was named.
type window struct {
	Used   float64   `json:"used"`
	Status string    `json:"status,omitempty"`
	Reset  time.Time `json:"reset"`
	Seen   time.Time `json:"seen"`
}

// end is when the window says nothing any more.
func (w *window) end() time.Time {
	if w.Reset.IsZero() {
		return w.Seen.Add(undatedWindow)
	}
	return w.Reset
}

// windows are a provider's, by name.
type windows map[string]window

// read takes what an answer reports, and says whether there was anything.
func (ws windows) read(limits map[string]string, now time.Time) (found bool) {
	for header, value := range limits {
		name, w, ok := readWindow(header, value, limits, now)
		if !ok {
			continue
		}
		found = true
		if len(ws) >= maxWindows {
			ws.drop(now)
		}
		if _, known := ws[name]; !w.end().After(now) {
			delete(ws, name)
		} else if known || len(ws) < maxWindows {
			ws[name] = w
		}
	}
	return found
}

// readWindow reads the window of one header; the rest of a unified one stands in
// others beside it.
func readWindow(header, value string, limits map[string]string, now time.Time) (name string, w window, ok bool) {
	w.Seen = now
	if name, ok = strings.CutPrefix(header, unifiedPrefix); ok {
		if name, ok = strings.CutSuffix(name, "-utilization"); !ok || !windowWord(name) {
			return "", w, false
		}
		if w.Used, ok = number(value); !ok || w.Used < 0 || w.Used > maxUsed {
			return "", w, false
		}
		if s := limits[unifiedPrefix+name+"-status"]; windowWord(s) {
			w.Status = s
		}
		w.Reset = epoch(limits[unifiedPrefix+name+"-reset"], now)
		return name, w, true
	}
	if name, ok = strings.CutPrefix(header, snapshotPrefix); !ok {
		if name, ok = strings.CutPrefix(header, usagePrefix); !ok {
			return "", w, false
		}
	}
	if !windowWord(name) || !w.snapshot(value, now) {
		return "", w, false
	}
	return name, w, true
}

// snapshot reads Copilot's form.
func (w *window) snapshot(value string, now time.Time) bool {
	if len(value) > 512 {
		return false
	}
	v, err := url.ParseQuery(value)
	if err != nil {
		return false
	}
	left, ok := number(v.Get("rem"))
	if !ok || left < -100*maxUsed || left > 100 {
		return false
	}
	w.Used = math.Round(1e6-left*1e4) / 1e6
	whole, ok := number(v.Get("ent"))
	if beyond, over := number(v.Get("ov")); ok && over && whole > 0 && beyond > 0 {
		w.Used = min(max(w.Used, 1+beyond/whole), maxUsed)
	}
	if ok && whole == -1 {
		w.Used, w.Status = 0, statusUnlimited
	}
	if t, err := time.Parse(time.RFC3339, v.Get("rst")); err == nil {
		w.Reset = believed(t, now)
	}
	return true
}

// windowWord reports whether s may be shown: a short word of the provider's.
func windowWord(s string) bool {
	odd := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.')
	}
	return s != "" && len(s) <= maxWindowName && !strings.ContainsFunc(s, odd)
}

// number reads a decimal that is one.
func number(s string) (float64, bool) {
	if s == "" || len(s) > 32 {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
}

// epoch reads seconds since 1970; zero = no believable end.
func epoch(s string, now time.Time) time.Time {
	n, ok := number(s)
	if !ok || n <= 0 || n > 1<<40 {
		return time.Time{}
	}
	return believed(time.Unix(int64(n), 0), now)
}

// believed is a reset that may be: one that is too far away is as if not named.
func believed(t, now time.Time) time.Time {
	if t.Sub(now) > longestReset {
		return time.Time{}
	}
	return t
}

// rejectedUntil is the end that a refusal's headers name: of the limit that
// decides, else the last of the windows that are rejected, else the last of those
// that are used up; zero = none.
func rejectedUntil(limits map[string]string, now time.Time) time.Time {
	if limits[unifiedPrefix+"status"] == statusRejected {
		if t := epoch(limits[unifiedPrefix+"reset"], now); t.After(now) {
			return t
		}
	}
	var rejected, usedUp time.Time
	for header, value := range limits {
		_, w, ok := readWindow(header, value, limits, now)
		switch {
		case !ok || !w.Reset.After(now):
		case w.Status == statusRejected:
			rejected = later(rejected, w.Reset)
		case w.Used >= 1:
			usedUp = later(usedUp, w.Reset)
		}
	}
	if rejected.IsZero() {
		return usedUp
	}
	return rejected
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// drop forgets the windows that are over.
func (ws windows) drop(now time.Time) {
	maps.DeleteFunc(ws, func(_ string, w window) bool { return !w.end().After(now) })
}

// heldFor is the class for which the rest of a window is kept, when so little is
// left of it; "" = none. Where it is kept for several classes the greatest part
// decides: two that shut each other out would leave the rest to nobody.
func (w *window) heldFor(name string, reserve map[string]float64) string {
	class, part := "", 0.0
	if name == overage || w.Status == statusUnlimited {
		return class
	}
	for _, c := range subjects.Classes {
		if p := reserve[c]; p > part && 1-w.Used <= p+1e-9 {
			class, part = c, p
		}
	}
	return class
}

// withheld says from which classes the rest of a window keeps the provider, and
// when the first such window ends; nil = from none.
func (ws windows) withheld(reserve map[string]float64, now time.Time) (holds map[string]routing.Hold, next time.Time) {
	if len(reserve) == 0 {
		return nil, next
	}
	for _, name := range slices.Sorted(maps.Keys(ws)) {
		w := ws[name]
		kept := w.heldFor(name, reserve)
		if kept == "" || !w.end().After(now) {
			continue
		}
		if next.IsZero() || w.end().Before(next) {
			next = w.end()
		}
		for _, class := range subjects.Classes {
			if class == kept || !w.end().After(holds[class].Until) {
				continue
			}
			if holds == nil {
				holds = map[string]routing.Hold{}
			}
			holds[class] = routing.Hold{On: true, Until: w.end(), Detail: "the rest of the window " + name + " is kept for " + kept}
		}
	}
	return holds, next
}

// info lists the windows that are not over, by name.
func (ws windows) info(reserve map[string]float64, now time.Time) []subjects.QuotaWindow {
	var out []subjects.QuotaWindow
	for _, name := range slices.Sorted(maps.Keys(ws)) {
		w := ws[name]
		if !w.end().After(now) {
			continue
		}
		out = append(out, subjects.QuotaWindow{
			Name: name, Used: w.Used, Status: w.Status, ResetAt: optionalTime(w.Reset),
			SeenAt: subjects.Time{Time: w.Seen}, HeldFor: w.heldFor(name, reserve),
		})
	}
	return out
}
