package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestChanged edits one thing at a time.
func TestChanged(t *testing.T) {
	t.Parallel()
	before := mustLoad(t, "", "OPENAI_API_KEY="+hidden)
	for name, edits := range map[string][]string{
		"mode":              {"mode: mock"},
		"default_tier":      {"default_tier: fast"},
		"cost_mode":         {"cost_mode: quality"},
		"providers":         {"providers: {groq: {fast: x}}", "providers: {mine: {api: openai}}", "providers: {copilot: {quotaTracking: {enabled: false}}}", "providers: {mock: {tasks: {a: {chunks: 1}}}}"},
		"provider_priority": {"provider_priority: {fast: [groq]}"},
		"task_priority":     {"task_priority: {a: [groq]}"},
		"task_tiers":        {"task_tiers: {fast: [a]}"},
		"process_classes":   {"process_classes: {a: ingestion}"},
		"pools":             {"pools: {caps: {groq: 1}}", "pools: {classes: {ingestion: {weight: 2}}}"},
		"retry":             {"retry: {jitter: 0.25}"},
		"fallback_on":       {"fallback_on: []"},
		"usage":             {"usage: {max_pending: 1}"},
		"cache":             {"cache: {maxSize: 0}"},
		"circuit_breaker":   {"circuit_breaker: {threshold: 1}"},
		"cost_limits":       {"cost_limits: {budget_mode: none}"},
		"batch_cost_limits": {"batch_cost_limits: {total_budget_period: day}"},
		"quota":             {"quota: {reserve: {interactive: 0.1}}"},
		"sensitivity":       {"sensitivity: {allow: {internal: [local]}}"},
		"hooks":             {"hooks: {budget: {}}"},
		"prices":            {"prices: {groq/x: {input: 1, output: 2}}", "prices: {anthropic/claude-opus-5: unknown}"},
	} {
		for _, edit := range edits {
			after := mustLoad(t, edit, "OPENAI_API_KEY="+hidden)
			if got := Changed(before, after); !slices.Equal(got, []string{name}) || before.Equal(after) {
				t.Errorf("%s: %q", edit, got)
			}
		}
	}
}

// TestUnchanged are edits without effect.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	before := mustLoad(t, "", "OPENAI_API_KEY="+hidden)
	for _, edit := range []string{
		"", "# a remark", BuiltIn() + "# edited\n", "mode: public", "providers: {copilot: {cliCommand: other}}", "providers: {groq: {availableModels: []}}",
		"hooks: {}", "quota: {reserve: {}}", "sensitivity: {allow: {internal: [all]}}", "cost_limits: {budget_mode: 0.050000}",
	} {
		after := mustLoad(t, edit, "OPENAI_API_KEY= "+hidden)
		after.File = "another.yaml"
		if got := Changed(before, after); len(got) != 0 || !before.Equal(after) {
			t.Errorf("%q changes %q", edit, got)
		}
	}
}

// TestChangedSecrets counts keys by their text, and never shows one.
func TestChangedSecrets(t *testing.T) {
	t.Parallel()
	before := mustLoad(t, "", "OPENAI_API_KEY="+hidden)
	after := mustLoad(t, "", "OPENAI_API_KEY="+hidden+"2")
	got := Changed(before, after)
	if !slices.Equal(got, []string{"providers"}) || strings.Contains(fmt.Sprint(got), "hunter") {
		t.Errorf("%q", got)
	}
	after = mustLoad(t, "", "OPENAI_API_KEY="+hidden, "SEMANTIC_ANALYSIS_TIER=fast", "SEMANTIC_ANALYSIS_PROVIDER=groq")
	if got := Changed(before, after); !slices.Equal(got, []string{"SEMANTIC_ANALYSIS_TIER", "SEMANTIC_ANALYSIS_PROVIDER"}) {
		t.Errorf("%q", got)
	}
}

// TestEveryPartCounts empties each field of a Config in turn: that must show.
func TestEveryPartCounts(t *testing.T) {
	t.Parallel()
	full := mustLoad(t, "hooks: {budget: {}}\nquota: {reserve: {interactive: 0.2}}\ntask_priority: {a: [groq]}\n",
		"SEMANTIC_ANALYSIS_TIER=fast", "SEMANTIC_ANALYSIS_PROVIDER=groq")
	for i := range reflect.TypeFor[Config]().NumField() {
		name := reflect.TypeFor[Config]().Field(i).Name
		less := *full
		f := reflect.ValueOf(&less).Elem().Field(i)
		if f.SetZero(); name != "Notes" && name != "File" && full.Equal(&less) {
			t.Errorf("a change of %s is not seen", name)
		}
	}
}
