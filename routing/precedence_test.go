package routing

import (
	"slices"
	"testing"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// TestPrecedence is the table of docs/concepts.md: what the environment says
// against what the call says.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	const (
		mode, tier     = "SEMANTIC_ANALYSIS_MODE=", "SEMANTIC_ANALYSIS_TIER="
		provider, cost = "SEMANTIC_ANALYSIS_PROVIDER=", "SEMANTIC_ANALYSIS_COST_MODE="
		premiumTask    = "insight_generation"
	)
	public := "copilot/claude-sonnet-4.5 > groq/llama-3.3-70b-versatile > dmr/ai/llama3.2"
	for _, c := range []struct {
		name  string
		env   []string
		job   Job
		tier  string
		chain string
		note  string
	}{
		{"nothing", nil, Job{}, "standard", public, ""},
		{"mode public", []string{mode + "public"}, Job{}, "standard", public, ""},
		{"task", nil, Job{Task: "commit_message_parsing"}, "fast", "copilot/claude-haiku-4.5 > groq/llama-3.1-8b-instant > dmr/ai/llama3.2:3B-Q4_K_M", ""},
		{"unknown task", nil, Job{Task: "x"}, "standard", public, "unknown task, default tier"},
		{"unknown task, tier", nil, Job{Task: "x", Tier: "fast"}, "fast", "copilot/claude-haiku-4.5 > groq/llama-3.1-8b-instant > dmr/ai/llama3.2:3B-Q4_K_M", ""},
		{"the call's tier over its model's", nil, Job{Tier: "standard", Model: "fast"}, "standard", public, ""},
		{"the model's tier over the task's", nil, Job{Model: "standard", Task: premiumTask}, "standard", public, ""},

		{"TIER over tier, model and task", []string{tier + "standard"}, Job{Tier: "fast", Model: "fast", Task: premiumTask}, "standard", public, "tier forced by SEMANTIC_ANALYSIS_TIER"},
		{"COST_MODE=budget over tier and task", []string{cost + "budget"}, Job{Tier: "premium", Task: premiumTask}, "fast", "copilot/claude-haiku-4.5 > groq/llama-3.1-8b-instant > dmr/ai/llama3.2:3B-Q4_K_M", "tier forced by cost mode budget"},
		{"TIER over COST_MODE", []string{cost + "budget", tier + "standard"}, Job{}, "standard", public, "tier forced by SEMANTIC_ANALYSIS_TIER"},
		{"COST_MODE=quality picks no tier", []string{cost + "quality"}, Job{}, "standard", public, ""},
		{"a model by name has its own tier", []string{tier + "fast"}, Job{Model: "groq/llama-3.3-70b-versatile"}, "fast", "groq/llama-3.3-70b-versatile > copilot/claude-haiku-4.5 > dmr/ai/llama3.2:3B-Q4_K_M", "tier forced by SEMANTIC_ANALYSIS_TIER"},

		{"PROVIDER over provider", []string{provider + "groq"}, Job{Provider: "copilot"}, "standard", "groq/llama-3.3-70b-versatile", "provider forced by SEMANTIC_ANALYSIS_PROVIDER"},
		{"PROVIDER over provider/model", []string{provider + "groq"}, Job{Model: "copilot/gpt-5.4"}, "standard", "groq/llama-3.3-70b-versatile", "provider forced by SEMANTIC_ANALYSIS_PROVIDER"},
		{"a model of PROVIDER", []string{provider + "groq"}, Job{Model: "groq/any"}, "standard", "groq/any", "provider forced by SEMANTIC_ANALYSIS_PROVIDER"},
		{"PROVIDER and TIER", []string{provider + "groq", tier + "fast"}, Job{}, "fast", "groq/llama-3.1-8b-instant", "provider forced by SEMANTIC_ANALYSIS_PROVIDER"},
		{"PROVIDER lets a call for one provider through", []string{provider + "groq"}, Job{Provider: "copilot", Exact: true}, "standard", "copilot/claude-sonnet-4.5", ""},
		{"PROVIDER in mode local", []string{provider + "ollama", mode + "local"}, Job{}, "standard", "ollama/llama3.2", "provider forced by SEMANTIC_ANALYSIS_PROVIDER"},
		{"MODE over PROVIDER", []string{provider + "groq", mode + "local"}, Job{}, "standard", "", "provider forced by SEMANTIC_ANALYSIS_PROVIDER"},

		{"MODE=local over provider", []string{mode + "local"}, Job{Provider: "groq"}, "standard", "dmr/ai/llama3.2 > ollama/llama3.2", ""},
		{"MODE=local and a local provider", []string{mode + "local"}, Job{Provider: "ollama"}, "standard", "ollama/llama3.2 > dmr/ai/llama3.2", ""},
		{"MODE=local over a call for one provider", []string{mode + "local"}, Job{Provider: "groq", Exact: true}, "standard", "", ""},
		{"MODE=mock over all", []string{mode + "mock", provider + "groq", cost + "budget"}, Job{Provider: "groq", Tier: "premium"}, "fast", "mock/mock-fast", "tier forced by cost mode budget"},
		{"MODE=mock over a call for one provider", []string{mode + "mock"}, Job{Provider: "groq", Exact: true}, "standard", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			snap := with("copilot", "groq", "dmr", "mock")
			if len(c.env) > 0 && slices.Contains(c.env, mode+"local") {
				snap["ollama"] = State{Available: true}
			}
			d, err := New(load(t, c.env...)).Resolve(snap, &c.job, at)
			if err != nil {
				t.Fatal(err)
			}
			if d.Tier != c.tier || chain(d) != c.chain || (c.note != "") != slices.Contains(d.Notes, c.note) || c.note == "" && d.Notes != nil {
				t.Errorf("tier %s, chain %q, notes %q\nwant %s, %q, %q", d.Tier, chain(d), d.Notes, c.tier, c.chain, c.note)
			}
		})
	}
}

func TestTaskPriority(t *testing.T) {
	t.Parallel()
	cfg := load(t)
	cfg.TaskPriority = map[string][]string{"semantic_code_analysis": {"anthropic", "dmr", "groq"}, "only-here": {}}
	r := New(cfg, &config.Provider{ID: "reverse", Kind: config.KindOutside, Account: subjects.SubscriptionAPIKey, Models: map[string]string{"standard": "rev"}})
	snap := with("copilot", "groq", "anthropic", "dmr", "ollama", "reverse")
	for _, c := range []struct {
		job   Job
		chain string
	}{
		{Job{Task: "semantic_code_analysis"}, "anthropic/claude-sonnet-4-5 > dmr/ai/llama3.2 > groq/llama-3.3-70b-versatile > ollama/llama3.2"},
		{Job{Task: "semantic_code_analysis", Provider: "copilot"}, "copilot/claude-sonnet-4.5 > anthropic/claude-sonnet-4-5 > dmr/ai/llama3.2 > groq/llama-3.3-70b-versatile > ollama/llama3.2"},
		{Job{Task: "semantic_code_analysis", Model: "claude-sonnet-4.5"}, "copilot/claude-sonnet-4.5 > anthropic/claude-sonnet-4-5 > dmr/ai/llama3.2 > groq/llama-3.3-70b-versatile > ollama/llama3.2"},
		{Job{Task: "git_history_analysis"}, "copilot/claude-sonnet-4.5 > groq/llama-3.3-70b-versatile > anthropic/claude-sonnet-4-5 > reverse/rev > dmr/ai/llama3.2 > ollama/llama3.2"},
		{Job{Task: "only-here"}, "dmr/ai/llama3.2 > ollama/llama3.2"},
		{Job{Task: "only-here", Provider: "reverse"}, "reverse/rev > dmr/ai/llama3.2 > ollama/llama3.2"},
	} {
		d, err := r.Resolve(snap, &c.job, at)
		if err != nil || chain(d) != c.chain {
			t.Errorf("%+v: %s, %v", c.job, chain(d), err)
		}
	}
	d, _ := r.Resolve(snap, &Job{Task: "only-here"}, at)
	if want := []string{"unknown task, default tier", "order by task_priority"}; !slices.Equal(d.Notes, want) {
		t.Errorf("notes %q, want %q", d.Notes, want)
	}
}
