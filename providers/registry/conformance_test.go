package registry

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/internal/conformance"
	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// secret is the key of every provider that has one. It is of no vendor's form, so
// that only the knowledge of the key itself can take it out of a text.
const secret = "Conformance.Key.7f3a9b"

// made returns how the suite makes a provider of the registry.
func made(id string, edit func(testing.TB, *config.Provider)) func(testing.TB, conformance.Setup) providers.Provider {
	return func(t testing.TB, s conformance.Setup) providers.Provider {
		t.Helper()
		p := &config.Provider{ID: id, Kind: id, BaseURL: s.BaseURL, StreamUsage: true, IdleTimeout: s.Idle}
		if edit != nil {
			edit(t, p)
		}
		cfg := &config.Config{Providers: map[string]*config.Provider{id: p}}
		return New(cfg, Options{Transport: s.Transport, Version: conformance.Version})[id]
	}
}

func withKey(_ testing.TB, p *config.Provider) {
	p.APIKeyEnv, p.APIKey = "SOME_API_KEY", config.NewSecret(secret)
}

// withLogin puts the key into an auth.json of OpenCode's, as if an hour ago.
func withLogin(model string) func(testing.TB, *config.Provider) {
	return func(t testing.TB, p *config.Provider) {
		t.Helper()
		p.CredentialsFile = filepath.Join(t.TempDir(), "auth.json")
		p.Models = map[string]string{subjects.TierStandard: model}
		login, at := `{"github-copilot":{"type":"oauth","refresh":"`+secret+`","access":"`+secret+`","expires":0}}`, time.Now().Add(-time.Hour)
		if err := errors.Join(os.WriteFile(p.CredentialsFile, []byte(login), 0o600), os.Chtimes(p.CredentialsFile, at, at)); err != nil {
			t.Fatal(err)
		}
	}
}

// copilotHeaders say what is true of a request; see package copilot.
var copilotHeaders = []string{"X-Github-Api-Version", "X-Initiator", "Copilot-Vision-Request"}

// Capabilities that only an API of the openai-chat form can have.
const chatAlone = wire.NeedDocuments | wire.NeedAudio | wire.NeedChoices | wire.NeedLogProbs | wire.NeedOpenAIChat

// ollamaKinds differ from the table for reasons that package ollama gives.
var ollamaKinds = map[vendors.Fault]subjects.Kind{
	vendors.Forbidden:  subjects.KindProviderUnavailable, // it is about the models of the cloud alone
	vendors.Overloaded: subjects.KindRateLimited,         // its queue is full
}

// cases has one line for each provider, or a few where its API has several ways.
var cases = []conformance.Case{
	{ID: "openai", Model: "gpt-4.1", BasePath: "/v1", Secret: secret, Make: made("openai", withKey), Voice: vendors.OpenAI{Base: "/v1"}},
	{ID: "custom", Model: "local/model:Q4", BasePath: "/api/v1", Make: made("custom", nil), Voice: vendors.OpenAI{Base: "/api/v1", KeyOptional: true}},
	{ID: "copilot", Model: "claude-sonnet-4.5", Secret: secret, Login: true, Make: made("copilot", withLogin("claude-sonnet-4.5")), Voice: vendors.OpenAI{Host: vendors.HostCopilot}, Cannot: chatAlone | wire.NeedImageURLs | wire.NeedJSONMode | wire.NeedJSONSchema, Header: copilotHeaders},
	{ID: "copilot", Model: "gpt-5-mini", Secret: secret, Login: true, Make: made("copilot", withLogin("gpt-5-mini")), Voice: vendors.OpenAI{Host: vendors.HostCopilot}, Cannot: chatAlone | wire.NeedImageURLs, Header: copilotHeaders},
	{ID: "groq", Model: "openai/gpt-oss-120b", BasePath: "/openai/v1", Secret: secret, Make: made("groq", withKey), Voice: vendors.OpenAI{Host: vendors.HostGroq, Base: "/openai/v1"}, Cannot: chatAlone},
	{ID: "github-models", Model: "openai/gpt-4.1", BasePath: "/inference", Secret: secret, Make: made("github-models", withKey), Voice: vendors.OpenAI{Host: vendors.HostGitHubModels, Base: "/inference"}, Cannot: chatAlone, Kinds: map[vendors.Fault]subjects.Kind{
		vendors.Forbidden: subjects.KindProviderUnavailable, // it is about one model
	}},
	{ID: "dmr", Model: "ai/llama3.2:3B-Q4_K_M", BasePath: "/engines/v1", Make: made("dmr", nil), Voice: vendors.OpenAI{Host: vendors.HostLlama, Base: "/engines/v1", KeyOptional: true}, Cannot: chatAlone&^wire.NeedLogProbs | wire.NeedImageURLs, NarrowsChoice: true},
	{ID: "anthropic", Model: "claude-sonnet-4-5", BasePath: "/v1", Secret: secret, Make: made("anthropic", withKey), Voice: vendors.Anthropic{Base: "/v1"}, Cannot: chatAlone | wire.NeedJSONMode, Refuses: []string{"one stop"}, Header: []string{"Anthropic-Version", "X-Api-Key"}},
	{ID: "anthropic", Model: "claude-opus-5", BasePath: "/v1", Secret: secret, Make: made("anthropic", withKey), Voice: vendors.Anthropic{Base: "/v1"}, Cannot: chatAlone | wire.NeedJSONMode, Refuses: []string{"one stop"}, Header: []string{"Anthropic-Version", "X-Api-Key"}},
	{ID: "gemini", Model: "gemini-2.5-flash", BasePath: "/v1beta", Secret: secret, Make: made("gemini", withKey), Voice: vendors.Gemini{Base: "/v1beta", NoIDs: true}, Cannot: chatAlone | wire.NeedImageURLs, Refuses: []string{"schema and tools"}, Header: []string{"X-Goog-Api-Key"}},
	{ID: "gemini", Model: "gemini-3.8-flash", BasePath: "/v1beta", Secret: secret, Make: made("gemini", withKey), Voice: vendors.Gemini{Base: "/v1beta"}, Cannot: chatAlone | wire.NeedImageURLs, Header: []string{"X-Goog-Api-Key"}},
	{ID: "ollama", Model: "llama3.2:3b", Make: made("ollama", nil), Voice: vendors.Ollama{}, Cannot: chatAlone | wire.NeedImageURLs | wire.NeedToolChoice, Kinds: ollamaKinds},
	{ID: "ollama", Model: "gpt-oss:120b-cloud", Secret: secret, Make: made("ollama", withKey), Voice: vendors.Ollama{Thinks: true}, Cannot: chatAlone | wire.NeedImageURLs | wire.NeedToolChoice, Kinds: ollamaKinds},
	{ID: "proxy", Model: "groq/llama-3.3-70b-versatile", Make: made("proxy", withKey), Secret: secret, Voice: vendors.Sluice{}, Cannot: chatAlone, Header: []string{"X-Llm-Call-Id", "X-Llm-Timeout-Ms"}, Kinds: map[vendors.Fault]subjects.Kind{
		vendors.Forbidden: subjects.KindProviderUnavailable, // an account of the other side's
		vendors.Timeout:   subjects.KindTimeout,             // the other side's word for it
	}},
}

func TestConformance(t *testing.T) {
	for _, c := range cases {
		t.Run(c.ID+"/"+c.Model, func(t *testing.T) { conformance.Run(t, c) })
	}
}
