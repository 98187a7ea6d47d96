package openai

import (
	"net/http"
	"strings"

	"github.com/sluice-llm/sluice/providers/internal/httpx"
	"github.com/sluice-llm/sluice/subjects"
)

var (
	// tooMuch is a request that alone is above what an account may use in a
	// minute: OpenAI answers 429, Groq 413, both with the code of a rate limit.
	tooMuch = []string{"request too large"}
	// lacking and abilities, together, are a model that cannot do what a request
	// needs. There is no code for it; the servers agree on these words at most.
	lacking   = []string{"does not support", "doesn't support", "not supported", "only supported by", "unsupported"}
	abilities = []string{
		"response_format", "response format", "json_schema", "json mode", "structured output", "image", "vision", "multimodal",
		"tools", "tool call", "tool_choice", "tool use", "function call", "logprobs", "audio", "content type",
	}
)

// Refine is what every API of the form may know of its errors: that waiting does
// not help a request that is too large for a minute, that a page is no word on the
// key, and that a model's own limits are not the request's fault. The latter are
// PROVIDER_UNAVAILABLE with the status 422, which moves on to the next provider.
func Refine(f *httpx.Failure) (subjects.Kind, bool) {
	switch {
	case (f.Status == http.StatusTooManyRequests || f.Status == http.StatusRequestEntityTooLarge) && f.Reads(tooMuch) && f.Says(rateLimit):
		f.Final = true
		return subjects.KindRateLimited, true
	case f.Param == "stream" && f.Code == "unsupported_value": // an organization that is not verified
		f.ShowStatus = http.StatusUnprocessableEntity
		return subjects.KindProviderUnavailable, true
	case f.Status == http.StatusForbidden && f.Page(): // a firewall's, which says nothing of the key
		f.Remedy = "something before the API refuses the request"
		return subjects.KindProviderUnavailable, true
	case lacks(f):
		f.ShowStatus = http.StatusUnprocessableEntity
		return subjects.KindProviderUnavailable, true
	}
	return "", false
}

var rateLimit = []string{"rate_limit_exceeded"}

func lacks(f *httpx.Failure) bool {
	switch f.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusNotImplemented:
	default:
		return false
	}
	return !strings.HasPrefix(f.Code, "invalid_") && f.Reads(lacking) && f.Reads(abilities) &&
		named(f.Param, f.Message) == ""
}
