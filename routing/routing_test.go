package routing

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// at is the time of the tests.
var at = time.Date(2026, 3, 1, 14, 0, 0, 0, time.UTC)

func load(t testing.TB, env ...string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Options{Environ: env})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// with makes a snapshot in which these providers, and no other, can serve.
func with(ids ...string) Snapshot {
	s := Snapshot{}
	for _, id := range config.ProviderIDs {
		s[id] = State{Reason: ReasonUnavailable, Detail: "no key"}
	}
	for _, id := range ids {
		s[id] = State{Available: true, Has: ^wire.Need(0)}
	}
	return s
}

func chain(d *Decision) string {
	var out []string
	for _, c := range d.Chain {
		out = append(out, c.Provider+"/"+c.Model)
	}
	return strings.Join(out, " > ")
}

func TestResolve(t *testing.T) {
	weak := with("openai", "groq")
	weak["openai"] = State{Available: true, Has: wire.NeedStreaming}
	for _, c := range []struct {
		name  string
		env   []string
		snap  Snapshot
		job   Job
		tier  string
		chain string
	}{
		{"default tier", nil, with("groq"), Job{}, "standard", "groq/llama-3.3-70b-versatile"},
		{"task", nil, with("groq"), Job{Task: "basic_classification"}, "fast", "groq/llama-3.1-8b-instant"},
		{"tier wins over task", nil, with("groq"), Job{Task: "basic_classification", Tier: "premium"}, "premium", "groq/openai/gpt-oss-120b"},
		{"model is a tier", nil, with("groq"), Job{Model: "fast"}, "fast", "groq/llama-3.1-8b-instant"},
		{"auto", nil, with("groq"), Job{Model: "auto"}, "standard", "groq/llama-3.3-70b-versatile"},
		{"forced tier", []string{"SEMANTIC_ANALYSIS_TIER=premium"}, with("groq"), Job{Tier: "fast"}, "premium", "groq/openai/gpt-oss-120b"},
		{"budget", []string{"SEMANTIC_ANALYSIS_COST_MODE=budget"}, with("groq"), Job{Tier: "premium"}, "fast", "groq/llama-3.1-8b-instant"},
		{"forced tier over budget", []string{"SEMANTIC_ANALYSIS_COST_MODE=budget", "SEMANTIC_ANALYSIS_TIER=standard"}, with("groq"), Job{}, "standard", "groq/llama-3.3-70b-versatile"},
		{"priority", nil, with("groq", "copilot", "anthropic"), Job{}, "standard", "copilot/claude-sonnet-4.5 > groq/llama-3.3-70b-versatile > anthropic/claude-sonnet-4-5"},
		{"provider first", nil, with("groq", "copilot"), Job{Provider: "groq"}, "standard", "groq/llama-3.3-70b-versatile > copilot/claude-sonnet-4.5"},
		{"provider/model first", nil, with("groq", "copilot"), Job{Model: "groq/any/model"}, "standard", "groq/any/model > copilot/claude-sonnet-4.5"},
		{"provider and model", nil, with("groq", "copilot"), Job{Provider: "groq", Model: "x"}, "standard", "groq/x > copilot/claude-sonnet-4.5"},
		{"known model", nil, with("anthropic", "groq"), Job{Model: "claude-haiku-4-5"}, "standard", "anthropic/claude-haiku-4-5 > groq/llama-3.3-70b-versatile"},
		{"known model, other spelling", nil, with("anthropic"), Job{Model: "claude-haiku-4-5-20251001"}, "standard", "anthropic/claude-haiku-4-5"},
		{"the proxy takes a tier", []string{"LLM_CLI_PROXY_URL=http://x"}, with("proxy", "groq", "copilot"), Job{Tier: "fast"}, "fast", "copilot/claude-haiku-4.5 > proxy/fast > groq/llama-3.1-8b-instant"},
		{"and any model", []string{"LLM_CLI_PROXY_URL=http://x"}, with("proxy"), Job{Model: "proxy/groq/any/model"}, "standard", "proxy/groq/any/model"},
		{"exact", nil, with("groq", "copilot"), Job{Provider: "groq", Exact: true}, "standard", "groq/llama-3.3-70b-versatile"},
		{"forced provider", []string{"SEMANTIC_ANALYSIS_PROVIDER=anthropic"}, with("groq", "anthropic"), Job{Provider: "groq"}, "standard", "anthropic/claude-sonnet-4-5"},
		{"local last", nil, with("dmr", "groq"), Job{}, "standard", "groq/llama-3.3-70b-versatile > dmr/ai/llama3.2"},
		{"local mode", []string{"SEMANTIC_ANALYSIS_MODE=local"}, with("dmr", "groq"), Job{Provider: "groq"}, "standard", "dmr/ai/llama3.2"},
		{"mock mode", []string{"SEMANTIC_ANALYSIS_MODE=mock"}, with("mock", "groq"), Job{Model: "gpt-anything"}, "standard", "mock/gpt-anything"},
		{"mock mode, tier", []string{"SEMANTIC_ANALYSIS_MODE=mock"}, with("mock", "groq"), Job{Tier: "fast"}, "fast", "mock/mock-fast"},
		{"mock by name", nil, with("mock", "groq"), Job{Provider: "mock"}, "standard", "mock/mock-standard > groq/llama-3.3-70b-versatile"},
		{"capability", nil, weak, Job{Provider: "openai", Needs: wire.NeedTools}, "standard", "groq/llama-3.3-70b-versatile"},
		{"privacy", nil, with("groq", "dmr"), Job{Privacy: "local"}, "standard", "dmr/ai/llama3.2"},
		{"paid only", nil, with("copilot", "groq"), Job{ForcePaid: true}, "standard", "groq/llama-3.3-70b-versatile"},
		{"no model", nil, with("custom", "groq"), Job{Provider: "custom"}, "standard", "groq/llama-3.3-70b-versatile"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := New(load(t, c.env...)).Resolve(c.snap, &c.job, at)
			if err != nil {
				t.Fatal(err)
			}
			if d.Tier != c.tier || chain(d) != c.chain {
				t.Errorf("tier %s, chain %s\nwant %s, %s\nskipped %+v", d.Tier, chain(d), c.tier, c.chain, d.Skipped)
			}
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	for field, job := range map[string]Job{
		"tier":     {Tier: "standrad"},
		"provider": {Provider: "grok"},
		"model":    {Model: "claude-hiaku-4-5"},
		"slash":    {Model: "groq/"},
	} {
		_, err := New(load(t)).Resolve(with("groq"), &job, at)
		if subjects.KindOf(err) != subjects.KindValidation {
			t.Errorf("%s: %v", field, err)
		}
		if field != "slash" && !strings.Contains(fmt.Sprint(err), "did you mean") {
			t.Errorf("%s: no remedy in %v", field, err)
		}
	}
}

func TestNoProvider(t *testing.T) {
	r := New(load(t))
	d, err := r.Resolve(with(), &Job{}, at)
	if err != nil || len(d.Chain) != 0 {
		t.Fatal(d, err)
	}
	if e := NoProvider(d); e.Kind != subjects.KindNoProvider || len(e.Attempts) != len(d.Skipped) {
		t.Errorf("%+v", e)
	}
	weak := with("groq")
	weak["groq"] = State{Available: true}
	d, _ = r.Resolve(weak, &Job{Needs: wire.NeedTools}, at)
	if e := NoProvider(d); e.Kind != subjects.KindCapabilityMissing || e.Status() != 422 {
		t.Errorf("%+v", e)
	}
}

func TestClass(t *testing.T) {
	cfg := load(t)
	cfg.ProcessClasses = map[string]string{"wiki": "ingestion", "batch-*": "ingestion", "batch-now": "interactive"}
	for process, want := range map[string]string{"wiki": "ingestion", "batch-7": "ingestion", "batch-now": "interactive", "other": "interactive", "": "interactive"} {
		if got := Class(cfg, process); got != want {
			t.Errorf("%q is %s, want %s", process, got, want)
		}
	}
}

// TestAvailableModels: a provider with a list of models is not asked for others.
func TestAvailableModels(t *testing.T) {
	cfg := load(t)
	cfg.Providers["groq"].AvailableModels = append(Models(cfg.Providers["groq"]), "qwen-3", "claude-haiku-4-5")
	cfg.Providers["mock"].AvailableModels = Models(cfg.Providers["mock"])
	r := New(cfg)
	for _, c := range []struct {
		job   Job
		chain string
		why   string
	}{
		{Job{}, "groq/llama-3.3-70b-versatile > anthropic/claude-sonnet-4-5", ""},
		{Job{Model: "groq/qwen-3"}, "groq/qwen-3 > anthropic/claude-sonnet-4-5", ""},
		{Job{Model: "groq/Claude Haiku 4.5", Provider: "groq", Exact: true}, "groq/claude-haiku-4-5", ""},
		{Job{Model: "groq/qwen-4"}, "anthropic/claude-sonnet-4-5", "its models are llama-3.1-8b-instant, llama-3.3-70b-versatile, openai/gpt-oss-120b, qwen-3, claude-haiku-4-5"},
		{Job{Model: "qwen-4", Provider: "groq", Exact: true}, "", "its models are llama-3.1-8b-instant, llama-3.3-70b-versatile, openai/gpt-oss-120b, qwen-3, claude-haiku-4-5"},
		{Job{Model: "anthropic/anything"}, "anthropic/anything > groq/llama-3.3-70b-versatile", ""},
	} {
		d, err := r.Resolve(with("groq", "anthropic"), &c.job, at)
		if err != nil {
			t.Fatal(err)
		}
		why := ""
		for _, s := range d.Skipped {
			if s.Reason == ReasonNoModel {
				why = s.Detail
			}
		}
		if chain(d) != c.chain || why != c.why {
			t.Errorf("%+v: %s (%s)", c.job, chain(d), why)
		}
	}
	cfg.Mode = config.ModeMock
	if d, err := New(cfg).Resolve(with("mock"), &Job{Model: "groq/qwen-4"}, at); err != nil || chain(d) != "mock/qwen-4" {
		t.Errorf("the mock answers for every other: %v, %v", d, err)
	}
}

func TestOutsideProviders(t *testing.T) {
	cfg := load(t)
	outside := &config.Provider{ID: "reverse", Kind: config.KindOutside, Account: subjects.SubscriptionAPIKey, Models: map[string]string{"fast": "rev-1"}, AvailableModels: []string{"rev-1", "rev-2"}}
	local := &config.Provider{ID: "lab", Account: subjects.SubscriptionLocal, Models: map[string]string{"fast": "lab-1"}}
	r := New(cfg, outside, local)
	snap := with("groq", "ollama", "reverse", "lab")
	for _, c := range []struct {
		job   Job
		chain string
	}{
		{Job{Tier: "fast"}, "groq/llama-3.1-8b-instant > reverse/rev-1 > ollama/llama3.2 > lab/lab-1"},
		{Job{Tier: "fast", Provider: "reverse"}, "reverse/rev-1 > groq/llama-3.1-8b-instant > ollama/llama3.2 > lab/lab-1"},
		{Job{Tier: "fast", Model: "reverse/rev-2", Provider: "reverse", Exact: true}, "reverse/rev-2"},
		{Job{Tier: "fast", Model: "reverse/rev-9", Provider: "reverse", Exact: true}, ""},
		{Job{Tier: "premium", Model: "rev-2"}, "reverse/rev-2 > groq/openai/gpt-oss-120b > ollama/llama3.2"},
		{Job{Tier: "fast", Privacy: "local"}, "ollama/llama3.2 > lab/lab-1"},
	} {
		d, err := r.Resolve(snap, &c.job, at)
		if err != nil || chain(d) != c.chain {
			t.Errorf("%+v: %s, %v", c.job, chain(d), err)
		}
	}
	if r.Account("lab") != subjects.SubscriptionLocal || !r.Local("lab") || r.Local("reverse") || r.Local("nobody") || r.Provider("nobody") != nil {
		t.Error("accounts")
	}
	if _, err := New(cfg).Resolve(snap, &Job{Provider: "reverse"}, at); subjects.KindOf(err) != subjects.KindValidation {
		t.Errorf("before it was announced: %v", err)
	}
	if n := len(cfg.ProviderPriority["fast"]); n != 7 {
		t.Errorf("the configuration was changed: %d", n)
	}
}
