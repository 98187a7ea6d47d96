// Package githubmodels talks to GitHub Models, whose API has OpenAI's form, with
// the fields of its REST reference: no choices, no log-probabilities (WIRE.md D).
//
// GitHub retired the service on 30 July 2026 and answers 410 since
// (github.blog/changelog/2026-07-30-github-models-is-now-retired). The provider
// says so; it serves where a base URL leads to something that speaks the same.
package githubmodels

import (
	"net/http"
	"strings"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers/internal/httpx"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/providers/openai"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

const capabilities = wire.NeedTools | wire.NeedToolChoice | wire.NeedImages | wire.NeedImageURLs |
	wire.NeedJSONMode | wire.NeedJSONSchema | wire.NeedStreaming

// New makes the provider of one configuration entry; o may bring a transport and
// the program's version. It does no I/O.
func New(cfg *config.Provider, o rest.Options) *openai.Provider {
	o.Capabilities = capabilities
	o.Refine = refine
	return openai.NewDialect(cfg, o, openai.Dialect{})
}

func refine(f *httpx.Failure) (subjects.Kind, bool) {
	switch {
	case f.Status == http.StatusGone:
		f.Remedy = "GitHub retired GitHub Models on 30 July 2026; take github-models out of provider_priority"
		return subjects.KindProviderUnavailable, true
	case f.Status == http.StatusUnauthorized:
		f.Remedy = "the token needs the permission models: read"
		return subjects.KindAuth, true
	case f.Says([]string{"no_access"}): // to the model
		f.ShowStatus = http.StatusNotFound
		return subjects.KindProviderUnavailable, true
	case f.Status == http.StatusTooManyRequests:
		return limited(f)
	}
	return openai.Refine(f)
}

// limited goes by the limit's name, in a header or in the text: UserByModelByDay,
// UserByModelByMinute, UserConcurrentRequests.
func limited(f *httpx.Failure) (subjects.Kind, bool) {
	name := strings.ToLower(f.Header.Get("X-Ratelimit-Type"))
	if name == "" {
		name = strings.ToLower(f.Message)
	}
	switch {
	case strings.Contains(name, "byday"):
		f.ModelOnly = strings.Contains(name, "bymodel")
		return subjects.KindQuotaExhausted, true
	case strings.Contains(name, "byminute"), strings.Contains(name, "concurrent"):
		return subjects.KindRateLimited, true
	}
	return openai.Refine(f)
}
