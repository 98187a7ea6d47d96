package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// TestDefaults holds the seed's values, and that the built-in file is whole.
func TestDefaults(t *testing.T) {
	c, err := Load(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Notes) != 0 || c.File != "" || c.Mode != ModePublic || c.DefaultTier != "standard" {
		t.Errorf("notes %q, file %q, mode %q, tier %q", c.Notes, c.File, c.Mode, c.DefaultTier)
	}
	order := []string{"copilot", "groq", "claude-code", "anthropic", "openai", "gemini", "github-models"}
	for _, tier := range subjects.Tiers {
		if got := c.ProviderPriority[tier]; !slices.Equal(got, order) {
			t.Errorf("order of %s: %q", tier, got)
		}
	}
	for id, want := range map[string]string{
		"claude-code": "sonnet sonnet opus",
		"copilot":     "claude-haiku-4.5 claude-sonnet-4.5 claude-opus-5",
		"groq":        "llama-3.1-8b-instant llama-3.3-70b-versatile openai/gpt-oss-120b",
		"anthropic":   "claude-haiku-4-5 claude-sonnet-4-5 claude-opus-5",
		"dmr":         "ai/llama3.2:3B-Q4_K_M ai/llama3.2 ai/llama3.2",
	} {
		m := c.Providers[id].Models
		if got := m["fast"] + " " + m["standard"] + " " + m["premium"]; got != want {
			t.Errorf("models of %s: %s", id, got)
		}
	}
	pools := Pools{
		Caps:       map[string]int{"openai": 12, "anthropic": 6, "ollama": 4, "custom": 8},
		DefaultCap: 8, MaxQueue: 2000, MaxCalls: 20000, MaxBytes: 512 << 20,
		Classes:        map[string]Class{"interactive": {6, 3}, "ingestion": {8, 1}},
		SaturatedAfter: 500 * time.Millisecond,
	}
	if !reflect.DeepEqual(c.Pools, pools) {
		t.Errorf("pools: %+v", c.Pools)
	}
	if want := (Retry{3, 500 * time.Millisecond, 30 * time.Second, 0.5, 300 * time.Second}); c.Retry != want {
		t.Errorf("retry: %+v", c.Retry)
	}
	if want := (Usage{true, 1 << 30, 64 << 20, 10_000}); c.Usage != want {
		t.Errorf("usage: %+v", c.Usage)
	}
	for _, k := range subjects.Kinds() {
		if c.FallbackOn[k] != k.Advances() {
			t.Errorf("fallback_on has %s: %t", k, c.FallbackOn[k])
		}
	}
}

func TestDefaultProviders(t *testing.T) {
	c, err := Load(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ProviderIDs {
		p := c.Providers[id]
		if p == nil || p.ID != id || p.IdleTimeout != time.Minute || p.StreamUsage == (id == "copilot") || p.Kind != id || p.APIKey.IsSet() || (p.Mock != nil) != (id == "mock") {
			t.Errorf("%s: %+v", id, p)
		}
		want := 120 * time.Second
		switch id {
		case "claude-code":
			want = time.Minute
		case "mock":
			want = 0
		}
		if p.Timeout != want {
			t.Errorf("%s: timeout %s, want %s", id, p.Timeout, want)
		}
	}
	for task, tier := range map[string]string{
		"git_file_extraction": "fast", "commit_message_parsing": "fast", "basic_classification": "fast",
		"git_history_analysis": "standard", "semantic_code_analysis": "standard", "ontology_classification": "standard",
		"insight_generation": "premium", "observation_generation": "premium", "pattern_recognition": "premium",
	} {
		if c.TaskTiers[task] != tier {
			t.Errorf("%s: tier %q", task, c.TaskTiers[task])
		}
	}
}

// TestCopyOfTheDefault loads the built-in file as a user's: nothing changes.
func TestCopyOfTheDefault(t *testing.T) {
	want, err := Load(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c := mustLoad(t, BuiltIn()); len(c.Notes) != 0 {
		t.Errorf("notes on a file that nobody has edited: %q", c.Notes)
	}
	got := mustLoad(t, BuiltIn()+"# edited\n")
	got.File = ""
	if !reflect.DeepEqual(got, want) {
		t.Error("a copy of the built-in file makes another configuration")
	}
}

// TestEmptyFiles are files that say nothing.
func TestEmptyFiles(t *testing.T) {
	want, err := Load(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{
		"", "\n", "# nothing\n", "---\n", "---\n...\n", "{}", "\ufeff", "~\n", "\ufeff# nothing",
		"providers:\npools:\n  caps:\n  classes:\n    ingestion:\nretry:\nusage:\ncache:\ntask_tiers:\nprocess_classes:\nprovider_priority:\n",
	} {
		got := mustLoad(t, file)
		got.File = ""
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q makes another configuration", file)
		}
	}
}

// TestPrecedence sets one thing in the file and in the environment: the
// environment counts, then the file, then the default.
func TestPrecedence(t *testing.T) {
	for _, c := range []struct {
		name, file string
		environ    string
		read       func(*Config) any
		byDefault  any
		byFile     any
		byEnv      any
	}{
		{"mode", "mode: mock", "SEMANTIC_ANALYSIS_MODE=local", func(c *Config) any { return c.Mode }, "public", "mock", "local"},
		{"cost mode", "cost_mode: quality", "SEMANTIC_ANALYSIS_COST_MODE=budget", func(c *Config) any { return c.CostMode }, "standard", "quality", "budget"},
		{"cap", "pools: {caps: {openai: 2}}", "LLM_MAX_RPM_OPENAI=3", func(c *Config) any { return c.Pools.Cap("openai", "m") }, 12, 2, 3},
		{"cap of a model", "pools: {caps: {openai/m: 2}}", "LLM_MAX_RPM_OPENAI=3", func(c *Config) any { return c.Pools.Cap("openai", "m") }, 12, 2, 2},
		{"default cap", "pools: {default_cap: 2}", "LLM_MAX_RPM_GITHUB_MODELS=3", func(c *Config) any { return c.Pools.Cap("github-models", "m") }, 8, 2, 3},
		{"ingestion", "pools: {classes: {ingestion: {slots: 2}}}", "LLM_INGESTION_SLOTS=3", func(c *Config) any { return c.Pools.Classes["ingestion"] }, Class{8, 1}, Class{2, 1}, Class{3, 1}},
		{"interactive", "pools: {classes: {interactive: {slots: 2}}}", "LLM_INTERACTIVE_SLOTS=3", func(c *Config) any { return c.Pools.Classes["interactive"] }, Class{6, 3}, Class{2, 3}, Class{3, 3}},
		{"base URL", "providers: {openai: {baseUrl: http://f/v1/}}", "LLM_BASE_URL_OPENAI=http://e/v1//", func(c *Config) any { return c.Providers["openai"].BaseURL }, "https://api.openai.com/v1", "http://f/v1", "http://e/v1"},
		{"ollama", "providers: {ollama: {baseUrl: http://f}}", "OLLAMA_HOST=e:1", func(c *Config) any { return c.Providers["ollama"].BaseURL }, "http://127.0.0.1:11434", "http://f", "http://e:1"},
		{"dmr host", "providers: {dmr: {baseUrl: http://f}}", "DMR_HOST=e", func(c *Config) any { return c.Providers["dmr"].BaseURL }, "http://localhost:12434/engines/v1", "http://f", "http://e:12434/engines/v1"},
		{"dmr port", "providers: {dmr: {baseUrl: http://f}}", "DMR_PORT=1", func(c *Config) any { return c.Providers["dmr"].BaseURL }, "http://localhost:12434/engines/v1", "http://f", "http://localhost:1/engines/v1"},
		{"proxy", "providers: {proxy: {baseUrl: http://f}}", "LLM_CLI_PROXY_URL=http://e:12435/", func(c *Config) any { return c.Providers["proxy"].BaseURL }, "", "http://f", "http://e:12435"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.read(mustLoad(t, "")); got != c.byDefault {
				t.Errorf("default: %v, want %v", got, c.byDefault)
			}
			if got := c.read(mustLoad(t, c.file)); got != c.byFile {
				t.Errorf("file: %v, want %v", got, c.byFile)
			}
			if got := c.read(mustLoad(t, c.file, c.environ)); got != c.byEnv {
				t.Errorf("environment: %v, want %v", got, c.byEnv)
			}
			name, _, _ := strings.Cut(c.environ, "=")
			if got := c.read(mustLoad(t, c.file, c.environ, name+"=")); got != c.byFile {
				t.Errorf("empty variable: %v, want %v", got, c.byFile)
			}
		})
	}
}

func TestForced(t *testing.T) {
	c := mustLoad(t, "", "SEMANTIC_ANALYSIS_TIER=premium", "SEMANTIC_ANALYSIS_PROVIDER=github-models", "SEMANTIC_ANALYSIS_COST_MODE=budget")
	if c.ForcedTier != "premium" || c.ForcedProvider != "github-models" || c.CostMode != "budget" {
		t.Errorf("%q %q %q", c.ForcedTier, c.ForcedProvider, c.CostMode)
	}
}

// TestMerge lays a file over the default: keys one by one, lists as a whole.
func TestMerge(t *testing.T) {
	c := mustLoad(t, `
providers:
  groq:
    timeout: 5000
    premium: big
  openai:
    models: {fast: ""}
    streamUsage: false
    baseUrl: ""
    apiKeyEnvVar: ""
provider_priority:
  fast: [openai]
task_tiers:
  premium: [git_history_analysis, mine]
process_classes:
  planner: interactive
  batch-*: ingestion
fallback_on: []
pools:
  caps: {openai/gpt-x: 3, groq/openai/gpt-oss-120b: 4}
`)
	groq := c.Providers["groq"]
	if groq.Timeout != 5*time.Second || groq.Models["premium"] != "big" || groq.Models["fast"] != "llama-3.1-8b-instant" || groq.APIKeyEnv != "GROQ_API_KEY" {
		t.Errorf("groq: %+v", groq)
	}
	openai := c.Providers["openai"]
	if _, ok := openai.Models["fast"]; ok || openai.Models["standard"] == "" || openai.StreamUsage || openai.BaseURL != "" || openai.APIKeyEnv != "" {
		t.Errorf("openai: %+v", openai)
	}
	if !slices.Equal(c.ProviderPriority["fast"], []string{"openai"}) || len(c.ProviderPriority["standard"]) != 7 {
		t.Errorf("order: %q", c.ProviderPriority)
	}
	if c.TaskTiers["git_history_analysis"] != "premium" || c.TaskTiers["mine"] != "premium" || c.TaskTiers["insight_generation"] != "premium" || c.TaskTiers["basic_classification"] != "fast" {
		t.Errorf("tasks: %q", c.TaskTiers)
	}
	if len(c.FallbackOn) != 0 || c.Pools.Cap("openai", "gpt-x") != 3 || c.Pools.Cap("openai", "y") != 12 || c.Pools.Cap("groq", "openai/gpt-oss-120b") != 4 {
		t.Errorf("fallback %v, caps %v", c.FallbackOn, c.Pools.Caps)
	}
	if c.File != "f.yaml" {
		t.Errorf("file %q", c.File)
	}
}

func TestClassOf(t *testing.T) {
	c := mustLoad(t, "process_classes: {\"b*\": ingestion, \"batch-*\": interactive, \"batch-7\": ingestion, \"*\": interactive}")
	for process, want := range map[string]string{
		"batch-7": "ingestion", "batch-8": "interactive", "batch": "ingestion", "b": "ingestion", "x": "interactive",
		"": "interactive", "planner": "ingestion", "planner2": "interactive",
	} {
		if got := c.ClassOf(process); got != want {
			t.Errorf("%q: %q, want %q", process, got, want)
		}
	}
	if got := mustLoad(t, "").ClassOf("x"); got != "" {
		t.Errorf("without a match: %q", got)
	}
}

// TestSpellings has each key in snake_case and in camelCase.
func TestSpellings(t *testing.T) {
	snakes := `
default_tier: fast
providers:
  openai: {base_url: "http://h/v1", api_key_env_var: K, idle_timeout: 7, available_models: [a], stream_usage: false, models: {fast: a, standard: a, premium: a}}
  copilot: {quota_tracking: {enabled: false, soft_limit_per_hour: 5}}
  mock: {latency_ms: 1, chunk_delay_ms: 2, input_tokens: 3, output_tokens: 4, retry_after_ms: 5, fail_after_chunks: 6}
pools: {default_cap: 1, max_queue: 2, max_calls: 3, max_bytes: 4, saturated_after_ms: 5}
retry: {max_attempts: 1, base_delay_ms: 2, max_delay_ms: 3, call_timeout_ms: 4}
usage: {prompt_preview: false, stream_max_bytes: 65536, reserve_bytes: 0, max_pending: 1}
cost_mode: budget
cache: {max_size: 1, ttl_ms: 2, max_bytes: 3, max_entry_bytes: 4}
circuit_breaker: {reset_timeout_ms: 1, max_reset_timeout_ms: 2}
cost_limits: {budget_mode: 1, standard_mode: 2, quality_mode: 3}
batch_cost_limits: {max_tokens_per_batch: 1, max_cost_per_batch_usd: 2, total_budget_usd: 3, total_budget_period: all, fallback_on_quota: false}
task_priority: {a_b: [groq]}
hooks: {budget: {timeout_ms: 1, on_error: deny}}
fallback_on: []
process_classes: {a_b: ingestion}
`
	camels := camelKeys(snakes)
	if strings.Contains(strings.ReplaceAll(camels, "a_b", ""), "_") {
		t.Fatalf("not all camelCase: %s", camels)
	}
	a, b := mustLoad(t, snakes, "K=key"), mustLoad(t, camels, "K=key")
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%+v\n%+v", a, b)
	}
	if a.Pools.MaxBytes != 4 || a.Providers["openai"].APIKey.Reveal() != "key" || a.Providers["mock"].Mock.Default.RetryAfter != 5*time.Millisecond {
		t.Errorf("%+v", a)
	}
}

// camelKeys writes snake_case words as camelCase, but a_b.
func camelKeys(s string) string {
	s = strings.ReplaceAll(s, "a_b", "a?b")
	for i := strings.IndexByte(s, '_'); i >= 0; i = strings.IndexByte(s, '_') {
		s = s[:i] + strings.ToUpper(s[i+1:i+2]) + s[i+2:]
	}
	return strings.ReplaceAll(s, "a?b", "a_b")
}

func TestMock(t *testing.T) {
	c := mustLoad(t, `
providers:
  mock:
    tasks:
      slow: {latency_ms: 2000, content: "${GREETING:-none}, $5"}
      broken: {error: RATE_LIMITED, errors: 2, retry_after_ms: 100}
      fine: {error: ""}
    latency_ms: 50
    output_tokens: 7
    error: TIMEOUT
`, "GREETING=hello")
	def := MockBehaviour{Latency: 50 * time.Millisecond, OutputTokens: 7, Error: subjects.KindTimeout}
	slow, broken, fine := def, def, def
	slow.Latency, slow.Content = 2*time.Second, "hello, $5"
	broken.Error, broken.Errors, broken.RetryAfter = subjects.KindRateLimited, 2, 100*time.Millisecond
	fine.Error = ""
	want := &Mock{Default: def, Tasks: map[string]MockBehaviour{"slow": slow, "broken": broken, "fine": fine}}
	if got := c.Providers["mock"].Mock; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestCustom joins the order when it can be reached, and stays where the
// user's file puts it.
func TestCustom(t *testing.T) {
	const base = "providers: {custom: {baseUrl: http://h/v1}}\n"
	for _, c := range []struct {
		file, environ string
		want          map[string]int
	}{
		{"", "", map[string]int{"fast": -1, "premium": -1}},
		{"", "CUSTOM_API_KEY=k", map[string]int{"fast": -1, "premium": -1}},
		{base, "", map[string]int{"fast": 7, "premium": 7}},
		{"", "LLM_BASE_URL_CUSTOM=http://h/v1", map[string]int{"fast": 7, "premium": 7}},
		{base + "provider_priority: {fast: [groq]}", "", map[string]int{"fast": 1, "premium": 7}},
		{base + "provider_priority: {fast: [custom, groq]}", "", map[string]int{"fast": 0, "premium": -1}},
		{"provider_priority: {fast: [custom, groq]}", "", map[string]int{"fast": 0, "premium": -1}},
	} {
		cfg := mustLoad(t, c.file, c.environ)
		for tier, want := range c.want {
			if got := slices.Index(cfg.ProviderPriority[tier], "custom"); got != want {
				t.Errorf("%q, %q: %s has it at %d, want %d", c.file, c.environ, tier, got, want)
			}
		}
	}
}

func TestKeys(t *testing.T) {
	c := mustLoad(t, "providers: {custom: {apiKeyEnvVar: OTHER}, ollama: {apiKeyEnvVar: OTHER}}",
		"GROQ_API_KEY=a", "ANTHROPIC_API_KEY=b", "OPENAI_API_KEY= c\n", "GOOGLE_API_KEY=d", "GITHUB_TOKEN=e",
		"CUSTOM_API_KEY=no", "OTHER=first", "OTHER=f")
	for id, want := range map[string]string{
		"groq": "a", "anthropic": "b", "openai": "c", "gemini": "d", "github-models": "e", "custom": "f", "ollama": "f",
		"dmr": "", "proxy": "", "mock": "", "claude-code": "", "copilot": "",
	} {
		if got := c.Providers[id].APIKey; got.Reveal() != want || got.IsSet() != (want != "") {
			t.Errorf("%s: %q", id, got.Reveal())
		}
	}
}

func TestNotes(t *testing.T) {
	for _, c := range []struct{ file, environ, want string }{
		{"prices: {opena/gpt-5.4: {input: 1.25, output: 10}}", "", "prices.opena/gpt-5.4: there is no provider \"opena\" here; did you mean openai?"},
		{"providers: {copilot: {cliCommand: other}}", "", "providers.copilot.cliCommand: changes nothing, copilot is called directly and no command is run"},
		{"providers: {copilot: {cliCommand: copilot-cli}}", "", ""},
		{"sensitivity: {allow: {internal: [grog]}}", "", "sensitivity.allow.internal[0]: there is no provider \"grog\" here; did you mean groq?"},
		{"sensitivity: {allow: {internal: [local, gpu-box]}}", "", "sensitivity.allow.internal[1]: there is no provider \"gpu-box\" here; it counts once one announces itself by that name"},
		{"sensitivity: {allow: {internal: [\"${BOX}\"]}}", "BOX=gpu-box", "sensitivity.allow.internal[0]: there is no provider \"${BOX}\" here; it counts once one announces itself by that name"},
		{"", "LLM_PROXY_WORKER_IDLE_MS=5", "LLM_PROXY_WORKER_IDLE_MS: changes nothing, the warm pool of claude workers is not built yet"},
		{"", "LLM_CLAUDE_CLI=/bin/claude", ""},
		{"", "LLM_BASE_URL_MOCK=http://h", "LLM_BASE_URL_MOCK: changes nothing, the mock provider has no network"},
		{"", "LLM_INGESTION_SLOT=4", "LLM_INGESTION_SLOT: changes nothing, Sluice does not know it; did you mean LLM_INGESTION_SLOTS?"},
		{"", "LLM_SOMETHING_ELSE=4", ""},
		{"cost_limits:", "", ""},
	} {
		got := mustLoad(t, c.file, c.environ).Notes
		if want := []string{c.want}; c.want != "" && !slices.Equal(got, want) || c.want == "" && len(got) != 0 {
			t.Errorf("%q, %q: %q", c.file, c.environ, got)
		}
	}
	for mode, want := range map[string][]string{
		"mock":   {"SEMANTIC_ANALYSIS_PROVIDER: changes nothing, in mode mock the mock serves"},
		"local":  {"SEMANTIC_ANALYSIS_PROVIDER: groq is not local and the mode is: no call can be served"},
		"public": nil,
	} {
		if got := mustLoad(t, "", "SEMANTIC_ANALYSIS_PROVIDER=groq", "SEMANTIC_ANALYSIS_MODE="+mode).Notes; !slices.Equal(got, want) {
			t.Errorf("%s: %q", mode, got)
		}
	}
	for _, c := range [][2]string{{"ollama", "local"}, {"mock", "mock"}} {
		if got := mustLoad(t, "mode: "+c[1], "SEMANTIC_ANALYSIS_PROVIDER="+c[0]).Notes; len(got) != 0 {
			t.Errorf("%s: %q", c, got)
		}
	}
	got := mustLoad(t, "", "OLLAMA_HOST=a", "LLM_BASE_URL_OLLAMA=http://b").Notes
	if want := []string{"OLLAMA_HOST: changes nothing, LLM_BASE_URL_OLLAMA is set and wins"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestNumbersFromVariables may stand where a number or a switch does.
func TestNumbersFromVariables(t *testing.T) {
	c := mustLoad(t, "pools: {default_cap: \"${N}\"}\nretry:\n  jitter: ${J:-0.25}\nusage:\n  prompt_preview: ${P}\n", "N=5", "P=false")
	if c.Pools.DefaultCap != 5 || c.Retry.Jitter != 0.25 || c.Usage.PromptPreview {
		t.Errorf("%d %g %t", c.Pools.DefaultCap, c.Retry.Jitter, c.Usage.PromptPreview)
	}
}

// TestLineEnds reads a file from another system.
func TestLineEnds(t *testing.T) {
	c := mustLoad(t, "\ufeffmode: mock\r\npools:\r\n  default_cap: 5\r\nproviders:\r\n  mock:\r\n    content: |\r\n      a\r\n      b\r\n")
	if c.Mode != "mock" || c.Pools.DefaultCap != 5 || c.Providers["mock"].Mock.Default.Content != "a\nb\n" {
		t.Errorf("%+v", c)
	}
	faults := loadFaults(t, "mode: mock\r\n\r\npools:\r\n  defaultCap: x\r\n")
	if f := faults[0]; f.Line != 4 || f.Column != 15 {
		t.Errorf("%v", f)
	}
}

func TestAnchors(t *testing.T) {
	c := mustLoad(t, "provider_priority: {fast: &o [groq, openai], standard: *o, premium: *o}\nproviders: {mock: &m {latency_ms: &n 5}}\npools: {default_cap: *n}\n")
	if got := c.ProviderPriority["premium"]; !slices.Equal(got, []string{"groq", "openai"}) || c.Pools.DefaultCap != 5 {
		t.Errorf("%q %d", got, c.Pools.DefaultCap)
	}
	c.ProviderPriority["fast"][0] = "changed"
	if c.ProviderPriority["standard"][0] != "groq" {
		t.Error("two tiers share one list")
	}
}

// TestNothingShared changes all of one Config and looks at the next.
func TestNothingShared(t *testing.T) {
	opts := text(BuiltIn(), "OPENAI_API_KEY=k", "LLM_BASE_URL_CUSTOM=http://h")
	first, err := Load(opts)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	wipe(reflect.ValueOf(first))
	second, err := Load(opts)
	if err != nil {
		t.Fatal(err)
	}
	if after, _ := json.Marshal(second); string(after) != string(before) {
		t.Errorf("before %s\nafter %s", before, after)
	}
}

// wipe changes everything that can be reached from v.
func wipe(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			wipe(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				wipe(v.Field(i))
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			wipe(v.MapIndex(k))
		}
		v.Clear()
	case reflect.Slice:
		for i := range v.Len() {
			wipe(v.Index(i))
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString("wiped")
		}
	}
}

func TestReadsFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "llm-providers.yaml")
	if err := os.WriteFile(name, []byte("mode: mock\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Options{File: name})
	if err != nil || c.Mode != "mock" || c.File != name {
		t.Errorf("%+v, %v", c, err)
	}
}
