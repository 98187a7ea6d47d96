package config

import "reflect"

// parts are what a configuration is made of, by the key of the file or the
// variable that sets it. File and Notes are no part of it: nothing acts on them.
var parts = []struct {
	name string
	of   func(*Config) any
}{
	{"mode", func(c *Config) any { return c.Mode }},
	{"default_tier", func(c *Config) any { return c.DefaultTier }},
	{"cost_mode", func(c *Config) any { return c.CostMode }},
	{"SEMANTIC_ANALYSIS_TIER", func(c *Config) any { return c.ForcedTier }},
	{"SEMANTIC_ANALYSIS_PROVIDER", func(c *Config) any { return c.ForcedProvider }},
	{"providers", func(c *Config) any { return []any{c.Providers, c.Order} }},
	{"provider_priority", func(c *Config) any { return c.ProviderPriority }},
	{"task_priority", func(c *Config) any { return c.TaskPriority }},
	{"task_tiers", func(c *Config) any { return c.TaskTiers }},
	{"process_classes", func(c *Config) any { return c.ProcessClasses }},
	{"pools", func(c *Config) any { return c.Pools }},
	{"retry", func(c *Config) any { return c.Retry }},
	{"fallback_on", func(c *Config) any { return c.FallbackOn }},
	{"usage", func(c *Config) any { return c.Usage }},
	{"cache", func(c *Config) any { return c.Cache }},
	{"circuit_breaker", func(c *Config) any { return c.Breaker }},
	{"cost_limits", func(c *Config) any { return c.Costs.PerRun }},
	{"batch_cost_limits", func(c *Config) any {
		batch := c.Costs
		batch.PerRun = nil
		return batch
	}},
	{"quota", func(c *Config) any { return c.Quota }},
	{"sensitivity", func(c *Config) any { return c.Sensitivity }},
	{"hooks", func(c *Config) any { return c.Hooks }},
	{"prices", func(c *Config) any { return c.Prices }},
}

// Changed names what differs between two configurations, in the order of the
// documentation: sections of the file, and variables that no key stands for. It
// is made for a log: names, no values. Keys and tokens count by their text.
func Changed(before, after *Config) []string {
	var names []string
	for _, p := range parts {
		if !reflect.DeepEqual(p.of(before), p.of(after)) {
			names = append(names, p.name)
		}
	}
	return names
}

// Equal reports whether o makes Sluice do the same as c. The file's name and the
// notes do not count.
func (c *Config) Equal(o *Config) bool { return len(Changed(c, o)) == 0 }
