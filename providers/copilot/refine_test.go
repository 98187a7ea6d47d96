package copilot

import (
	"net/http"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/providers/internal/formtest"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/providers/openai"
	"github.com/sluice-llm/sluice/subjects"
)

// TestErrors has the forms of WIRE.md B.4, and those that public threads show. All
// come as text/plain, also what is JSON.
func TestErrors(t *testing.T) {
	t.Parallel()
	e := func(status int, h http.Header, body string, kind subjects.Kind, text string, wait time.Duration, shown int) formtest.Error {
		header := http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
		for k, v := range h {
			header[k] = v
		}
		return formtest.Error{Status: status, Header: header, Body: body, Kind: kind, Text: text, Wait: wait, Shown: shown}
	}
	in := func(seconds string) http.Header { return http.Header{"Retry-After": {seconds}} }
	limited := func(code string) string {
		return `{"error":{"message":"Sorry, you've been rate-limited.","code":"` + code + `"}}`
	}
	cases := map[string]formtest.Error{
		"quota":                  e(402, in("3600"), `{"error":{"message":"You have no quota","code":"quota_exceeded"}}`, subjects.KindQuotaExhausted, "You have no quota", time.Hour, 0),
		"quota, a date":          e(402, http.Header{"Retry-After": {time.Now().Add(48 * time.Hour).UTC().Format(http.TimeFormat)}}, `{"error":{"code":"free_quota_exceeded"}}`, subjects.KindQuotaExhausted, "", 24*time.Hour, 0),
		"overage":                e(402, nil, `{"error":{"message":"x","code":"overage_limit_reached"}}`, subjects.KindQuotaExhausted, "", 0, 0),
		"billing":                e(402, nil, `{"error":{"message":"x","code":"billing_not_configured"}}`, subjects.KindQuotaExhausted, "", 0, 0),
		"quota inside a success": e(200, nil, `{"error":{"message":"x","code":"quota_exceeded"}}`, subjects.KindQuotaExhausted, "", 0, 0),

		"token expired":        e(401, nil, "unauthorized: token expired\n", subjects.KindAuth, "unauthorized: token expired; log in again", 0, 0),
		"no permission":        e(401, nil, "unauthorized: Personal Access Token does not have Copilot Requests permission\n", subjects.KindAuth, "Personal Access Token", 0, 0),
		"a PAT":                e(400, nil, "checking third-party user token: bad request: Personal Access Tokens are not supported for this endpoint\n", subjects.KindAuth, "log in again", 0, 0),
		"not authorized":       e(403, nil, "unauthorized: not authorized to use this Copilot feature\n", subjects.KindAuth, "not authorized to use this Copilot feature; the account needs", 0, 0),
		"not licensed":         e(403, nil, "unauthorized: not licensed to use Copilot\n", subjects.KindAuth, "not licensed to use Copilot", 0, 0),
		"a firewall's page":    e(403, http.Header{"Content-Type": {"text/html"}}, "<html><body>Access denied</body></html>", subjects.KindProviderUnavailable, "answered 403 with a web page; something before the API", 0, 0),
		"a model by policy":    e(403, nil, "Access to this model is disabled by policy\n", subjects.KindProviderUnavailable, "disabled by policy", 0, 404),
		"another account's":    e(421, nil, "Misdirected Request", subjects.KindProviderUnavailable, "set LLM_BASE_URL_COPILOT", 0, 0),
		"not for programs":     e(400, nil, `{"error":{"message":"The requested model is not available for integrator \"copilot-language-server\". Available models: [gpt-4.1 gpt-5-mini]","code":"model_not_available_for_integrator"}}`, subjects.KindProviderUnavailable, "Available models: [gpt-4.1 gpt-5-mini]; choose models", 0, 404),
		"wants an integration": e(400, nil, "bad request: missing required Copilot-Integration-Id header\n", subjects.KindProviderUnavailable, "missing required", 0, 404),

		"weekly":                  e(429, in("120"), limited("user_weekly_rate_limited"), subjects.KindQuotaExhausted, "", 2*time.Minute, 0),
		"weekly, of a plan":       e(429, in("5"), limited("user_weekly_rate_limited:pro"), subjects.KindQuotaExhausted, "", 5*time.Second, 0),
		"session":                 e(429, http.Header{"X-Ratelimit-User-Retry-After": {"2733"}}, limited("user_global_rate_limited:pro_plus"), subjects.KindQuotaExhausted, "", 2733*time.Second, 0),
		"session, no time":        e(429, nil, limited("user_global_rate_limited:pro"), subjects.KindQuotaExhausted, "", 0, 0),
		"session, nearly over":    e(429, http.Header{"Retry-After": {"2"}, "X-Ratelimit-Exceeded": {"global-chat:x"}}, limited("user_global_rate_limited:pro"), subjects.KindRateLimited, "", 2*time.Second, 0),
		"exceeded, by the header": e(429, http.Header{"X-Ratelimit-Exceeded": {"global-chat:x"}}, "too many requests", subjects.KindQuotaExhausted, "", 0, 0),
		"58 hours":                e(429, in("208800"), limited("rate_limited"), subjects.KindQuotaExhausted, "", 24*time.Hour, 0),
		"rate":                    e(429, in("2"), limited("rate_limited"), subjects.KindRateLimited, "", 2*time.Second, 0),
		"a model's":               e(429, in("208800"), limited("user_model_rate_limited:pro"), subjects.KindQuotaExhausted, "", 24*time.Hour, 0),
		"a model's, nearly over":  e(429, in("20"), limited("user_model_rate_limited:pro"), subjects.KindRateLimited, "", 20*time.Second, 0),
		"the program's":           e(429, nil, limited("integration_rate_limited"), subjects.KindRateLimited, "", 0, 0),
		"agent mode":              e(429, nil, limited("agent_mode_limit_exceeded"), subjects.KindRateLimited, "", 0, 0),
		"overloaded":              e(429, in("1"), limited("model_overloaded"), subjects.KindProvider, "", time.Second, 0),
		"429 alone":               e(429, nil, "", subjects.KindRateLimited, "", 0, 0),

		"prompt too long":    e(400, nil, `{"error":{"message":"prompt token count of 200000 exceeds the limit of 128000","code":"model_max_prompt_tokens_exceeded"}}`, subjects.KindValidation, "200000 exceeds", 0, 0),
		"off topic":          e(400, nil, `{"error":{"message":"off topic","code":"off_topic"}}`, subjects.KindContentPolicy, "", 0, 0),
		"unknown model":      e(400, nil, `{"error":{"message":"The requested model is not supported.","code":"model_not_supported","param":"model","type":"invalid_request_error"}}`, subjects.KindProviderUnavailable, `the model "claude-haiku-4.5" is not there`, 0, 404),
		"another endpoint's": e(400, nil, `{"error":{"message":"model \"gpt-5.3-codex\" is not accessible via the /chat/completions endpoint","code":"unsupported_api_for_model"}}`, subjects.KindProviderUnavailable, "not accessible", 0, 404),
		"too many images":    e(400, nil, `{"error":{"message":"too many URL images in request (max 20)","code":""}}`, subjects.KindValidation, "max 20", 0, 0),
		"too large":          e(413, nil, "failed to parse request\n", subjects.KindValidation, "failed to parse", 0, 0),
		"filtered":           e(422, nil, `{"error":{"message":"The response was filtered"}}`, subjects.KindContentPolicy, "filtered", 0, 0),
		"an agent's":         e(424, nil, "failed dependency", subjects.KindProvider, "", 0, 0),
		"too old":            e(466, nil, "client not supported", subjects.KindProviderUnavailable, "use a newer Sluice", 0, 0),
		"cancelled":          e(499, nil, "", subjects.KindProvider, "", 0, 0),
		"upstream":           e(503, nil, `{"error":{"message":"upstream rate limit","code":"upstream_provider_rate_limit"}}`, subjects.KindProvider, "upstream", 0, 0),
		"bad gateway":        e(502, nil, "<html>unicorn</html>", subjects.KindProvider, "answered 502 with a web page", 0, 0),
	}
	c := cases["a model's"]
	c.ModelOnly = true
	cases["a model's"] = c
	for name, code := range map[string]string{"prompt too long": subjects.CodeContextLength, "off topic": "off_topic"} {
		c := cases[name]
		c.Code = code
		cases[name] = c
	}
	make := func(url string) *openai.Provider { return New(configFor(t, url), rest.Options{}) }
	formtest.Errors(t, make, "claude-haiku-4.5", token, cases)
}
