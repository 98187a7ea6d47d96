// Package groq talks to Groq's API, which has OpenAI's form (WIRE.md D): with one
// choice, without log-probabilities and documents, and with limits of its own. A
// model that lacks what a request needs (a schema, sight) is refused by the server
// with a text alone, which openai.Refine knows.
package groq

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

var (
	// malformed is what a model wrote that is no tool call, or no JSON: the request
	// is good, and the next try may well be.
	malformed = []string{"tool_use_failed", "json_validate_failed"}
	// spent is the account's own limit on what it spends.
	spent = []string{"blocked_api_access"}
	// notForAccount is a model that the account does not let itself use.
	notForAccount = []string{"model_permission_blocked_org", "model_permission_blocked_project", "model_terms_required"}
	// daily are the names of the limits that are counted over a day.
	daily = []string{"(rpd)", "(tpd)", "per day"}
)

func refine(f *httpx.Failure) (subjects.Kind, bool) {
	switch {
	case f.Says(malformed):
		return subjects.KindProvider, true
	case f.Says(spent):
		f.Remedy = "raise the spend limit at console.groq.com"
		return subjects.KindQuotaExhausted, true
	case f.Says(notForAccount):
		f.ShowStatus = http.StatusNotFound
		return subjects.KindProviderUnavailable, true
	case f.Status == http.StatusTooManyRequests && usedUp(f):
		return subjects.KindQuotaExhausted, true
	}
	return openai.Refine(f)
}

// usedUp tells a day's volume from a minute's: what x-ratelimit-*-requests counts
// is the day's, x-ratelimit-*-tokens the minute's, and the day's tokens have no
// header.
func usedUp(f *httpx.Failure) bool {
	return strings.TrimSpace(f.Header.Get("X-Ratelimit-Remaining-Requests")) == "0" || f.Reads(daily)
}
