package registry

import (
	"testing"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/internal/conformance"
	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/providers"
)

// secret is the key of every provider that has one. It is of no vendor's form, so
// that only the knowledge of the key itself can take it out of a text.
const secret = "Conformance.Key.7f3a9b"

// made returns how the suite makes a provider of the registry.
func made(id string, edit func(*testing.T, *config.Provider)) func(*testing.T, conformance.Setup) providers.Provider {
	return func(t *testing.T, s conformance.Setup) providers.Provider {
		t.Helper()
		p := &config.Provider{ID: id, Kind: id, BaseURL: s.BaseURL, StreamUsage: true, IdleTimeout: s.Idle}
		if edit != nil {
			edit(t, p)
		}
		cfg := &config.Config{Providers: map[string]*config.Provider{id: p}}
		return New(cfg, Options{Transport: s.Transport, Version: conformance.Version})[id]
	}
}

func withKey(_ *testing.T, p *config.Provider) {
	p.APIKeyEnv, p.APIKey = "SOME_API_KEY", config.NewSecret(secret)
}

// TestConformance has one line for each provider.
func TestConformance(t *testing.T) {
	for _, c := range []conformance.Case{
		{ID: "openai", Model: "gpt-4.1", BasePath: "/v1", Secret: secret, Make: made("openai", withKey), Voice: vendors.OpenAI{Base: "/v1"}},
		{ID: "custom", Model: "local/model:Q4", BasePath: "/api/v1", Make: made("custom", nil), Voice: vendors.OpenAI{Base: "/api/v1", KeyOptional: true}},
	} {
		t.Run(c.ID, func(t *testing.T) { conformance.Run(t, c) })
	}
}
