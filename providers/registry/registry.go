// Package registry makes the providers of a configuration: the one place that
// names them all.
package registry

import (
	"cmp"
	"context"
	"net/http"

	"github.com/sluice-llm/sluice/config"
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
	"github.com/sluice-llm/sluice/wire"
)

// Options are what a test or an embedder may put in place of the usual.
type Options struct {
	// Transport carries the requests of every provider; nil = a pool of each
	// provider's own.
	Transport http.RoundTripper
	// Version is the program's version, for the user agent; "" = "dev".
	Version string
}

// build has one line for each provider that is built.
var build = map[string]func(*config.Provider, Options) providers.Provider{
	"mock": func(c *config.Provider, _ Options) providers.Provider { return mock.New(c) },
	"openai": func(c *config.Provider, o Options) providers.Provider {
		return openai.New(c, rest.Options{Transport: o.Transport, Version: o.Version})
	},
	config.KindOpenAI: func(c *config.Provider, o Options) providers.Provider {
		return openai.New(c, rest.Options{Transport: o.Transport, Version: o.Version, KeyOptional: c.APIKeyEnv == ""})
	},
	"claude-code": func(c *config.Provider, o Options) providers.Provider {
		return claudecode.New(c, claudecode.Options{Transport: o.Transport, Version: o.Version})
	},
	"copilot": func(c *config.Provider, o Options) providers.Provider {
		return copilot.New(c, rest.Options{Transport: o.Transport, Version: o.Version})
	},
	"groq": func(c *config.Provider, o Options) providers.Provider {
		return groq.New(c, rest.Options{Transport: o.Transport, Version: o.Version})
	},
	"anthropic": func(c *config.Provider, o Options) providers.Provider {
		return anthropic.New(c, rest.Options{Transport: o.Transport, Version: o.Version})
	},
	"gemini": func(c *config.Provider, o Options) providers.Provider {
		return gemini.New(c, rest.Options{Transport: o.Transport, Version: o.Version})
	},
	"github-models": func(c *config.Provider, o Options) providers.Provider {
		return githubmodels.New(c, rest.Options{Transport: o.Transport, Version: o.Version})
	},
	"dmr": func(c *config.Provider, o Options) providers.Provider {
		return dmr.New(c, rest.Options{Transport: o.Transport, Version: o.Version})
	},
	"ollama": func(c *config.Provider, o Options) providers.Provider {
		return ollama.New(c, rest.Options{Transport: o.Transport, Version: o.Version})
	},
	"custom": func(c *config.Provider, o Options) providers.Provider {
		return openai.New(c, rest.Options{
			Transport: o.Transport, Version: o.Version, KeyOptional: true,
			BaseURLHint: "set LLM_BASE_URL_CUSTOM or providers.custom.baseUrl",
		})
	},
	"proxy": func(c *config.Provider, o Options) providers.Provider {
		return proxy.New(c, rest.Options{Transport: o.Transport, Version: o.Version})
	},
}

// New makes every provider of the configuration. One that is not built in this
// version has a stand-in that says so. It does no I/O.
func New(cfg *config.Config, opts Options) map[string]providers.Provider {
	all := make(map[string]providers.Provider, len(cfg.Providers))
	for id, c := range cfg.Providers {
		if make, ok := build[cmp.Or(c.Kind, id)]; ok {
			all[id] = make(c, opts)
		} else {
			all[id] = standIn{}
		}
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

// standIn stands for a provider that is not built.
type standIn struct{}

var _ providers.Provider = standIn{}

func (standIn) Complete(context.Context, *providers.Job) (*wire.Response, error) {
	return nil, errNotBuilt()
}

func (standIn) Stream(context.Context, *providers.Job, func(*wire.Event) error) (*wire.Response, error) {
	return nil, errNotBuilt()
}

func (standIn) Capabilities() wire.Need { return 0 }

func (standIn) Check(context.Context) error { return errNotBuilt() }

func errNotBuilt() error {
	return subjects.Errorf(subjects.KindProviderUnavailable, "not built yet in this version")
}
