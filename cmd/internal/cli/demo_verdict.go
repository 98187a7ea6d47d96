package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// verdict is the outcome of the demo.
type verdict struct {
	OK      bool   `json:"ok"`
	Summary string `json:"summary"`
	// Checks are the promises, each with what was measured.
	Checks []check `json:"checks"`
	// LongestWaitMs is the longest wait for a slot by class.
	LongestWaitMs map[string]float64              `json:"longestWaitMs"`
	ServiceMs     float64                         `json:"serviceMs"`
	Pools         map[string]subjects.PoolHealth  `json:"pools"`
	Classes       map[string]subjects.ClassHealth `json:"classes"`
	Saturated     []subjects.PoolSaturatedEvent   `json:"saturated"`
	Failures      []string                        `json:"failures,omitempty"`
	Usage         *subjects.UsageSummary          `json:"usage"`
}

// check is one promise.
type check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// judge compares what was measured with what is promised. Peaks are exact: the
// pools' own actors count them.
func (s *scenario) judge(got logged, sum *subjects.UsageSummary) *verdict {
	v := &verdict{
		Pools: s.health.Pools, Classes: s.health.Classes, Failures: s.failures, Usage: sum,
		LongestWaitMs: map[string]float64{}, Saturated: []subjects.PoolSaturatedEvent{},
	}
	for _, e := range s.saturated {
		v.Saturated = append(v.Saturated, e.event)
	}
	for _, r := range s.results {
		v.ServiceMs = max(v.ServiceMs, r.LatencyMs)
		v.LongestWaitMs[r.Class] = max(v.LongestWaitMs[r.Class], r.QueuedMs)
	}
	v.Checks = []check{s.answeredAll(), v.providerCap(), v.classCaps(), v.interactiveWait(), s.counted(got)}
	v.OK = allOK(v.Checks)
	v.Summary = v.summary()
	return v
}

func allOK(checks []check) bool {
	for _, c := range checks {
		if !c.OK {
			return false
		}
	}
	return true
}

func (s *scenario) answeredAll() check {
	const all = demoIngestion + demoInteractive
	c := check{Name: "all answered", OK: len(s.results) == all, Detail: fmt.Sprintf("%d of %d", len(s.results), all)}
	if len(s.failures) > 0 {
		c.Detail += "; the first failure: " + s.failures[0]
	}
	return c
}

func (v *verdict) providerCap() check {
	c := check{Name: "provider cap held", OK: len(v.Pools) > 0}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(v.Pools)) {
		p := v.Pools[name]
		c.OK = c.OK && p.Peak <= p.Cap && p.Cap > 0
		parts = append(parts, fmt.Sprintf("%s peak %d in flight, cap %d", name, p.Peak, p.Cap))
	}
	c.Detail = orElse(strings.Join(parts, "; "), "no pool was seen")
	return c
}

func (v *verdict) classCaps() check {
	c := check{Name: "class caps held", OK: len(v.Classes) > 0}
	var parts []string
	for _, name := range classNames(v.Classes) {
		k := v.Classes[name]
		c.OK = c.OK && k.Peak <= k.Slots
		parts = append(parts, fmt.Sprintf("%s peak %d, slots %d", name, k.Peak, k.Slots))
	}
	c.Detail = orElse(strings.Join(parts, "; "), "no class was seen")
	return c
}

func (v *verdict) interactiveWait() check {
	wait := v.LongestWaitMs[subjects.ClassInteractive]
	return check{
		Name: "interactive passes the ingestion queue", OK: v.ServiceMs > 0 && wait <= v.ServiceMs,
		Detail: fmt.Sprintf("longest interactive wait %s, one service time %s (ingestion waited up to %s)",
			millis(wait), millis(v.ServiceMs), millis(v.LongestWaitMs[subjects.ClassIngestion])),
	}
}

// counted compares the usage log with the answers.
func (s *scenario) counted(got logged) check {
	var want int64
	for _, r := range s.results {
		want += r.Usage.TotalTokens
	}
	c := check{
		Name: "each answered call once in the usage log",
		OK:   got.calls == len(s.results) && got.twice == 0 && got.tokens == want,
		Detail: fmt.Sprintf("%d of %d calls, %s of %s tokens",
			got.calls, len(s.results), count(got.tokens), count(want)),
	}
	if got.twice > 0 {
		c.Detail += fmt.Sprintf(", %d logged twice", got.twice)
	}
	return c
}

func (v *verdict) summary() string {
	peak, limit := 0, 0
	for _, p := range v.Pools {
		if p.Peak >= peak {
			peak, limit = p.Peak, p.Cap
		}
	}
	held := "held"
	if !v.classCaps().OK {
		held = "broken"
	}
	return fmt.Sprintf("peak in flight %d, cap %d; class caps %s; longest interactive wait %s, one service time %s",
		peak, limit, held, millis(v.LongestWaitMs[subjects.ClassInteractive]), millis(v.ServiceMs))
}
