package config

import (
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// Bounds of what is kept, waited for and spent.
const (
	maxUSD = 1_000_000_000
	maxDay = int64(24 * time.Hour / time.Millisecond)
	// maxKept bounds the life of a cached answer: 30 days.
	maxKept = 30 * maxDay
)

var (
	costModes = []string{CostBudget, CostStandard, CostQuality}
	periods   = []string{PeriodMonth, PeriodDay, PeriodAll}
)

// limitSections are the keys of what bounds and spares calls.
func (d *decoder) limitSections() []field {
	return []field{
		{"cache", d.cache},
		{"circuit_breaker", d.breaker},
		{"cost_mode", oneOf(&d.cfg.CostMode, costModes)},
		{"cost_limits", d.costLimits},
		{"batch_cost_limits", d.batchLimits},
		{"quota", d.quota},
	}
}

func (d *decoder) cache(v value) {
	c := &d.cfg.Cache
	v.object(
		field{"maxSize", whole(&c.MaxEntries, bounds{lo: 0, hi: maxCount})},
		field{"ttlMs", millis(&c.TTL, 1, maxKept)},
		field{"maxBytes", whole(&c.MaxBytes, bounds{lo: 0, hi: maxBytes, unit: "bytes"})},
		field{"maxEntryBytes", whole(&c.MaxEntryBytes, bounds{lo: 1, hi: maxBytes, unit: "bytes"})},
	)
}

func (d *decoder) breaker(v value) {
	b := &d.cfg.Breaker
	v.object(
		field{"threshold", whole(&b.Threshold, count)},
		field{"resetTimeoutMs", millis(&b.ResetTimeout, 1, maxDay)},
		field{"maxResetTimeoutMs", millis(&b.MaxPause, 1, maxDay)},
	)
}

// costLimits reads the limit of a run by cost mode.
func (d *decoder) costLimits(v value) {
	var all []field
	for _, mode := range costModes {
		all = append(all, field{mode + "_mode", func(v value) {
			limit := d.cfg.Costs.PerRun[mode]
			dollars(&limit)(v)
			d.cfg.Costs.PerRun[mode] = limit
		}})
	}
	v.object(all...)
}

func (d *decoder) batchLimits(v value) {
	c := &d.cfg.Costs
	v.object(
		field{"max_tokens_per_batch", whole(&c.BatchTokens, bounds{lo: 0, hi: maxBytes, unit: "tokens", orNone: true})},
		field{"max_cost_per_batch_usd", dollars(&c.BatchUSD)},
		field{"total_budget_usd", dollars(&c.TotalUSD)},
		field{"total_budget_period", oneOf(&c.TotalPeriod, periods)},
		field{"fallback_on_quota", boolean(&c.Fallback)},
	)
}

// quota reads what is held back of the providers' windows, by class.
func (d *decoder) quota(v value) {
	v.object(field{"reserve", func(v value) {
		v.choice("class", subjects.Classes, func(class string, v value) {
			part := d.cfg.Quota.Reserve[class]
			decimal(&part, 1)(v)
			d.cfg.Quota.Reserve[class] = part
		})
	}})
}

// trackingFields are the keys of how a subscription's completions are counted.
func trackingFields(q *QuotaTracking) []field {
	return []field{{"quotaTracking", fields(
		field{"enabled", boolean(&q.Enabled)},
		field{"softLimitPerHour", whole(&q.SoftLimitPerHour, bounds{lo: 0, hi: maxCount})},
	)}}
}
