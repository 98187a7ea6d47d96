package config

import (
	"reflect"
	"slices"
	"testing"

	"github.com/sluice-llm/sluice/subjects"
)

func TestAddedProvider(t *testing.T) {
	c := mustLoad(t, `
provider_priority: {fast: [team-llama, openai]}
pools: {caps: {team-llama: 3}}
providers:
  zeta: {api: openai, baseUrl: "http://z/v1", local: true}
  team-llama:
    api: openai
    baseUrl: http://10.0.0.7:8000/v1
    apiKeyEnvVar: TEAM_KEY
    models: {fast: llama-8b}
    capabilities: [tools, streaming, tools]
  alpha: {api: openai, baseUrl: http://a/v1}
`, "TEAM_KEY=k", "LLM_MAX_RPM_ZETA=2", "LLM_BASE_URL_ALPHA=http://b/v1", "SEMANTIC_ANALYSIS_PROVIDER=alpha")
	if want := append(slices.Clone(ProviderIDs), "alpha", "team-llama", "zeta"); !slices.Equal(c.Order, want) {
		t.Errorf("order: %q", c.Order)
	}
	p := c.Providers["team-llama"]
	if p.Kind != KindOpenAI || p.Account != subjects.SubscriptionAPIKey || p.APIKey.Reveal() != "k" || !p.StreamUsage ||
		!slices.Equal(p.Capabilities, []string{"tools", "streaming"}) || !reflect.DeepEqual(p.Models, map[string]string{"fast": "llama-8b"}) {
		t.Errorf("%+v", p)
	}
	if z := c.Providers["zeta"]; !z.Local() || z.Account != subjects.SubscriptionLocal || c.Pools.Caps["zeta"] != 2 {
		t.Errorf("%+v", z)
	}
	if a := c.Providers["alpha"]; a.BaseURL != "http://b/v1" || c.ForcedProvider != "alpha" {
		t.Errorf("%+v", a)
	}
	if got := c.ProviderPriority["fast"]; !slices.Equal(got, []string{"team-llama", "openai", "alpha"}) {
		t.Errorf("fast: %q", got)
	}
	if got := c.ProviderPriority["premium"]; got[len(got)-1] != "alpha" || slices.Contains(got, "zeta") || slices.Contains(got, "team-llama") {
		t.Errorf("premium: %q", got)
	}
}

func TestLogins(t *testing.T) {
	for _, c := range []struct {
		environ         []string
		copilot, claude string
		cli             string
		direct          bool
	}{
		{nil, "", "", "claude", true},
		{[]string{"HOME=/h"}, "/h/.local/share/opencode/auth.json", "/h/.claude/.credentials.json", "claude", true},
		{[]string{"HOME=/h", "XDG_DATA_HOME=/x", "CLAUDE_CONFIG_DIR=/c", "LLM_CLAUDE_CLI=/bin/claude"}, "/x/opencode/auth.json", "/c/.credentials.json", "/bin/claude", true},
		{[]string{"HOME=/h", "LLM_COPILOT_AUTH_FILE=/a", "LLM_CLAUDE_CREDENTIALS_FILE=/b", "LLM_PROXY_DISABLE_CLAUDE_DIRECT=1"}, "/a", "/b", "claude", false},
		{[]string{"LLM_PROXY_DISABLE_CLAUDE_DIRECT=0"}, "", "", "claude", true},
	} {
		cfg := mustLoad(t, "providers: {claude-code: {direct: true}}", c.environ...)
		copilot, claude := cfg.Providers["copilot"], cfg.Providers["claude-code"]
		if copilot.CredentialsFile != c.copilot || claude.CredentialsFile != c.claude || claude.CLICommand != c.cli || claude.Direct != c.direct {
			t.Errorf("%q: %q, %q, %q, %t", c.environ, copilot.CredentialsFile, claude.CredentialsFile, claude.CLICommand, claude.Direct)
		}
		if copilot.CredentialsNamed != (c.copilot == "/a") {
			t.Errorf("%q: named %t", c.environ, copilot.CredentialsNamed)
		}
	}
}
