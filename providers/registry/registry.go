// Package registry makes the providers of a configuration: the one place that
// names them all.
package registry

import (
	"cmp"
	"net/http"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/hooks"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/anthropic"
	"github.com/sluice-llm/sluice/providers/claudecode"
	"github.com/sluice-llm/sluice/providers/copilot"
	"github.com/sluice-llm/sluice/providers/dmr"
	"github.com/sluice-llm/sluice/providers/gemini"
	"github.com/sluice-llm/sluice/providers/githubmodels"
	"github.com/sluice-llm/sluice/providers/groq"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/providers/mock"
	"github.com/sluice-llm/sluice/providers/ollama"
	"github.com/sluice-llm/sluice/providers/openai"
	"github.com/sluice-llm/sluice/providers/outside"
	"github.com/sluice-llm/sluice/providers/proxy"
	"github.com/sluice-llm/sluice/subjects"
)

// Options are what a test or an embedder may put in place of the usual.
type Options struct {
	// Transport carries the requests of every provider; nil = a pool of each
	// provider's own.
	Transport http.RoundTripper
	// Version is the program's version, for the user agent; "" = "dev".
	Version string
	// Mock writes the answers of the mock provider; nil = they are built in.
	Mock hooks.MockService
}

type maker func(*config.Provider, Options) providers.Provider

// over makes a provider that is one POST (package rest).
func over[P providers.Provider](make func(*config.Provider, rest.Options) P) maker {
	return func(c *config.Provider, o Options) providers.Provider {
		return make(c, rest.Options{Transport: o.Transport, Version: o.Version})
	}
}

// build has one line for each provider.
var build = map[string]maker{
	"anthropic":       over(anthropic.New),
	"claude-code":     claudeCode,
	"copilot":         over(copilot.New),
	"custom":          custom,
	"dmr":             over(dmr.New),
	"gemini":          over(gemini.New),
	"github-models":   over(githubmodels.New),
	"groq":            over(groq.New),
	config.KindMock:   func(c *config.Provider, o Options) providers.Provider { return mock.New(c, o.Mock) },
	"ollama":          over(ollama.New),
	"openai":          over(openai.New),
	"proxy":           over(proxy.New),
	config.KindOpenAI: added,
}

func claudeCode(c *config.Provider, o Options) providers.Provider {
	return claudecode.New(c, claudecode.Options{Transport: o.Transport, Version: o.Version})
}

func custom(c *config.Provider, o Options) providers.Provider {
	return openai.New(c, rest.Options{
		Transport: o.Transport, Version: o.Version, KeyOptional: true,
		BaseURLHint: "set LLM_BASE_URL_CUSTOM or providers.custom.baseUrl",
	})
}

// added makes a provider that the configuration adds.
func added(c *config.Provider, o Options) providers.Provider {
	return openai.New(c, rest.Options{Transport: o.Transport, Version: o.Version, KeyOptional: c.APIKeyEnv == ""})
}

// New makes every provider of the configuration. It does no I/O.
func New(cfg *config.Config, opts Options) map[string]providers.Provider {
	all := make(map[string]providers.Provider, len(cfg.Providers))
	for id, c := range cfg.Providers {
		all[id] = build[cmp.Or(c.Kind, id)](c, opts)
	}
	return all
}

// Outside makes the function that makes the providers of what programs announce.
// transport carries their calls; present reports whether anybody listens on a
// subject, nil = that cannot be known.
func Outside(transport subjects.Transport, present func(subject string) bool) func(*config.Provider, func() error) providers.Provider {
	return func(cfg *config.Provider, alive func() error) providers.Provider {
		return outside.New(cfg, outside.Options{Transport: transport, Present: present, Alive: alive})
	}
}

// Close closes the connections that the providers keep open. Calls that run go
// on.
func Close(all map[string]providers.Provider) {
	for _, p := range all {
		if c, ok := p.(interface{ Close() }); ok {
			c.Close()
		}
	}
}
