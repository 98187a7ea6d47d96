package actors

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// attemptMeter counts a provider's attempts since the node started, part of its
// account's state. Nothing of it is kept through a restart.
type attemptMeter struct {
	since  time.Time
	sums   subjects.ProviderMetrics // but for what is worked out when asked
	errors map[string]int64
	// took is the sum of the successes' times, recent those of the last ones.
	took   time.Duration
	recent [recentLatencies]time.Duration
	pace   [paceSlots]paceSlot
}

const (
	// recentLatencies is how many successes the percentiles are of.
	recentLatencies = 512
	// The pace is counted in slots of ten seconds over five minutes.
	paceSlot10s = 10 * time.Second
	paceWindow  = 5 * time.Minute
	paceSlots   = int64(paceWindow / paceSlot10s)
)

type paceSlot struct {
	slot          int64 // since 1970
	calls, tokens int64
}

// otherKind stands in the metrics for a kind that the contract does not have.
const otherKind = "other"

// add takes an attempt's outcome.
func (m *attemptMeter) add(o *outcome, now time.Time) {
	s := &m.sums
	s.Calls++
	switch {
	case o.err == nil:
		m.recent[s.Successes%recentLatencies] = o.ran
		s.Successes++
		m.took += o.ran
	case o.err.Kind == subjects.KindCancelled, o.callerEnded && o.err.Kind != subjects.KindTimeout:
		s.Cancelled++
	default:
		s.Failures++
		kind := otherKind
		if o.err.Kind.Known() {
			kind = string(o.err.Kind)
		}
		if m.errors == nil {
			m.errors = map[string]int64{}
		}
		m.errors[kind]++
	}
	tokens := tokensOf(o)
	s.InputTokens += o.usage.InputTokens
	s.OutputTokens += o.usage.OutputTokens
	s.TotalTokens += tokens
	switch {
	case o.cost != nil:
		s.EstimatedCostUSD += *o.cost
	case o.err == nil || tokens > 0:
		s.Unpriced++
	}
	if o.saved != nil {
		s.SavedUSD += *o.saved
	}
	n := now.UnixNano() / int64(paceSlot10s)
	p := &m.pace[uint64(n)%uint64(paceSlots)] //nolint:gosec // an index
	if p.slot != n {
		*p = paceSlot{slot: n}
	}
	p.calls++
	p.tokens += tokens
}

// tokensOf is the contract's total of an attempt's tokens.
func tokensOf(o *outcome) int64 { return o.usage.InputTokens + o.usage.OutputTokens }

// usual is what the provider usually takes, the median of the recent successes,
// where an outcome's judgement depends on it; 0 = it does not, or it is not known.
func (m *attemptMeter) usual(o *outcome) time.Duration {
	n := min(m.sums.Successes, recentLatencies)
	if n == 0 || o.err == nil || o.err.Kind != subjects.KindTimeout || !o.callerEnded {
		return 0
	}
	return percentile(slices.Sorted(slices.Values(m.recent[:n])), 50)
}

// metrics is what people see.
func (m *attemptMeter) metrics(now time.Time) subjects.ProviderMetrics {
	out := m.sums
	if out.Errors = maps.Clone(m.errors); out.Errors == nil {
		out.Errors = map[string]int64{}
	}
	if n := float64(out.Successes + out.Failures); n > 0 {
		out.SuccessRate, out.FailureRate = float64(out.Successes)/n, float64(out.Failures)/n
	}
	if n := out.Successes; n > 0 {
		out.AvgLatencyMs = ms(m.took) / float64(n)
		last := slices.Sorted(slices.Values(m.recent[:min(n, recentLatencies)]))
		out.P50LatencyMs, out.P95LatencyMs = ms(percentile(last, 50)), ms(percentile(last, 95))
		out.MaxLatencyMs = ms(last[len(last)-1])
	}
	minutes := min(max(now.Sub(m.since), time.Minute), paceWindow).Minutes()
	n := now.UnixNano() / int64(paceSlot10s)
	for _, p := range m.pace {
		if p.slot > n-paceSlots && p.slot <= n {
			out.CallsPerMinute += float64(p.calls) / minutes
			out.TokensPerMinute += float64(p.tokens) / minutes
		}
	}
	return out
}

// percentile is that of sorted values by nearest rank.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[max((len(sorted)*p+99)/100, 1)-1]
}
