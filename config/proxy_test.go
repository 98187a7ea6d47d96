package config

import (
	"slices"
	"testing"
)

// TestProxyPlace: the proxy stands before the first metered key, unless a file
// says where; without an address it stands nowhere.
func TestProxyPlace(t *testing.T) {
	t.Parallel()
	const env = "LLM_CLI_PROXY_URL=http://x:12435"
	for name, tc := range map[string]struct {
		file string
		env  []string
		want []string
	}{
		"no address":   {"", nil, []string{"copilot", "groq", "claude-code", "anthropic", "openai", "gemini", "github-models"}},
		"default":      {"", []string{env}, []string{"copilot", "proxy", "groq", "claude-code", "anthropic", "openai", "gemini", "github-models"}},
		"all metered":  {"provider_priority: {fast: [openai, groq]}", []string{env}, []string{"proxy", "openai", "groq"}},
		"none metered": {"provider_priority: {fast: [copilot]}", []string{env}, []string{"copilot", "proxy"}},
		"named":        {"provider_priority: {fast: [openai, proxy], standard: [groq], premium: [groq]}", []string{env}, []string{"openai", "proxy"}},
		"by file":      {"providers: {proxy: {baseUrl: http://y}}", nil, []string{"copilot", "proxy", "groq", "claude-code", "anthropic", "openai", "gemini", "github-models"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{Environ: tc.env}
			if tc.file != "" {
				o.File = "f.yaml"
				o.ReadFile = func(string) ([]byte, error) { return []byte(tc.file), nil }
			}
			cfg, err := Load(o)
			if err != nil {
				t.Fatal(err)
			}
			if got := cfg.ProviderPriority["fast"]; !slices.Equal(got, tc.want) {
				t.Errorf("%v, not %v", got, tc.want)
			}
		})
	}
}
