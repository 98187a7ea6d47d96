package persistence

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/sluice-llm/sluice/subjects"
)

// The counters of a rollup, in the order they are stored. None is ever
// negative, and adding stops at the largest int64 instead of turning over.
const (
	cCalls = iota
	cErrors
	cCached
	cInput
	cOutput
	cTotal
	cCacheRead
	cCacheWrite
	cReasoning
	cEstimated
	cCost  // micro-dollars
	cSaved // micro-dollars
	cUnpriced
	cLatency // microseconds
	cQueued  // microseconds
	// since layout 2
	cUnpricedTokens
	cSavedUnknown
	// since layout 3
	cRetried
	nCounters
)

type counters [nCounters]int64

// countersLen is the length of an encoded rollup, rollVersion its first byte. A
// rollup of version 1 has no counters after cQueued, one of version 2 none after
// cSavedUnknown.
const (
	countersLen = 1 + 8*nCounters
	rollVersion = 3
)

// sum is what the database keeps sums of: the pointer to counters or to spend.
// add does not depend on the order.
type sum[T any] interface {
	*T
	add(*T)
	encode() []byte
	decode([]byte) error
}

// addTo adds c to the sum of a name.
func addTo[T any, S sum[T]](sums map[string]S, name string, c S) {
	s := sums[name]
	if s == nil {
		s = new(T)
		sums[name] = s
	}
	s.add(c)
}

// add sums two non-negative sets.
func (c *counters) add(o *counters) {
	for i, v := range o {
		c[i] = addSaturated(c[i], v)
	}
}

func addSaturated(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

func (c *counters) encode() []byte {
	b := make([]byte, 1, countersLen)
	b[0] = rollVersion
	for _, v := range c {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func (c *counters) decode(b []byte) error {
	if len(b) != countersLen || b[0] != rollVersion {
		return fmt.Errorf("a rollup of %d bytes: %w", len(b), errFormat)
	}
	for i := range c {
		v := binary.BigEndian.Uint64(b[1+8*i:])
		if v > math.MaxInt64 {
			return fmt.Errorf("a negative counter: %w", errFormat)
		}
		c[i] = int64(v)
	}
	return nil
}

func (c *counters) totals() subjects.UsageTotals {
	t := subjects.UsageTotals{
		Calls: c[cCalls], Errors: c[cErrors], Cached: c[cCached],
		InputTokens: c[cInput], OutputTokens: c[cOutput], TotalTokens: c[cTotal],
		CacheReadTokens: c[cCacheRead], CacheWriteTokens: c[cCacheWrite], ReasoningTokens: c[cReasoning],
		Estimated: c[cEstimated], CostUSD: subjects.USD(c[cCost]), SavedUSD: subjects.USD(c[cSaved]),
		Unpriced: c[cUnpriced], UnpricedTokens: c[cUnpricedTokens], SavedUnknown: c[cSavedUnknown],
		RetriedTokens: c[cRetried],
	}
	if t.Calls > 0 {
		t.AvgLatencyMs = float64(c[cLatency]) / 1000 / float64(t.Calls)
		t.AvgQueuedMs = float64(c[cQueued]) / 1000 / float64(t.Calls)
	}
	return t
}

// countersOf measures one record. What cannot be is clamped: a negative number
// counts as 0.
func countersOf(r *subjects.UsageRecord) counters {
	c := counters{
		cCalls: 1, cErrors: one(r.Outcome != subjects.OutcomeOK), cCached: one(r.Cached),
		cInput: max(r.InputTokens, 0), cOutput: max(r.OutputTokens, 0), cTotal: max(r.TotalTokens, 0),
		cCacheRead: max(r.CacheReadTokens, 0), cCacheWrite: max(r.CacheWriteTokens, 0),
		cReasoning: max(r.ReasoningTokens, 0), cEstimated: one(r.TokensEstimated),
		cLatency: micros(r.LatencyMs), cQueued: micros(r.QueuedMs),
	}
	c.price(r.CostUSD)
	if r.SavedUSD != nil {
		c[cSaved] = max(int64(*r.SavedUSD), 0)
	} else {
		c[cSavedUnknown] = one(subjects.HasMeteredTwin(r.Subscription))
	}
	return c
}

// countersOfTry measures a try that failed while a later one gave the call's
// outcome: its tokens and their cost. The call itself, its time and what it saved
// are the record's.
func countersOfTry(t *subjects.Spent) counters {
	c := counters{
		cInput: max(t.InputTokens, 0), cOutput: max(t.OutputTokens, 0),
		cCacheRead: max(t.CacheReadTokens, 0), cCacheWrite: max(t.CacheWriteTokens, 0),
		cReasoning: max(t.ReasoningTokens, 0), cEstimated: one(t.Estimated),
	}
	c[cTotal] = addSaturated(c[cInput], c[cOutput])
	c[cRetried] = c[cTotal]
	c.price(t.CostUSD)
	return c
}

// price counts a cost; nil = not known.
func (c *counters) price(usd *subjects.USD) {
	if usd != nil {
		c[cCost] = max(int64(*usd), 0)
	} else {
		c[cUnpriced], c[cUnpricedTokens] = 1, c[cTotal]
	}
}

func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// micros turns milliseconds into whole microseconds, from 0 to a century.
func micros(ms float64) int64 {
	const century = 100 * 366 * 24 * 3600 * 1e6
	us := math.Round(ms * 1000)
	switch {
	case us > century:
		return century
	case us > 0: // false for NaN
		return int64(us)
	}
	return 0
}
