package githubmodels

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers/internal/formtest"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/providers/openai"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "github_pat_secretOfTheTest"

func at(url string) *openai.Provider {
	return New(&config.Provider{
		ID: "github-models", BaseURL: url + "/inference", APIKeyEnv: "GITHUB_TOKEN", APIKey: config.NewSecret(key), StreamUsage: true,
	}, rest.Options{})
}

// TestErrors has the forms of WIRE.md D and of public threads.
func TestErrors(t *testing.T) {
	t.Parallel()
	body := func(code, message string) string {
		return `{"error":{"code":"` + code + `","message":"` + message + `","details":"` + message + `"}}`
	}
	limit := func(kind string, seconds string) http.Header {
		return http.Header{"X-Ratelimit-Type": {kind}, "X-Ratelimit-Timeremaining": {seconds}, "Retry-After": {seconds}}
	}
	formtest.Errors(t, at, "openai/gpt-4.1", key, map[string]formtest.Error{
		"requests of a day": {
			Status: 429, Header: limit("UserByModelByDay", "52220"), Body: body("RateLimitReached", "Rate limit of 50 per 86400s exceeded for UserByModelByDay. Please wait 52220 seconds before retrying."),
			Kind: subjects.KindQuotaExhausted, Wait: 52220 * time.Second, ModelOnly: true,
		},
		"of a day, nearly over": {Status: 429, Header: limit("UserByModelByDay", "30"), Body: body("RateLimitReached", "x"), Kind: subjects.KindQuotaExhausted, Wait: 30 * time.Second, ModelOnly: true},
		"of a day, by the text": {Status: 429, Body: body("RateLimitReached", "Rate limit of 50 per 86400s exceeded for UserByModelByDay."), Kind: subjects.KindQuotaExhausted, ModelOnly: true},
		"all models' of a day":  {Status: 429, Header: limit("UserByDay", "52220"), Body: body("RateLimitReached", "x"), Kind: subjects.KindQuotaExhausted, Wait: 52220 * time.Second},
		"of a day, by the wait": {Status: 429, Header: http.Header{"X-Ratelimit-Timeremaining": {"600"}}, Body: body("RateLimitReached", "x"), Kind: subjects.KindQuotaExhausted, Wait: 10 * time.Minute},
		"requests of a minute":  {Status: 429, Header: limit("UserByModelByMinute", "4"), Body: body("RateLimitReached", "Rate limit of 10 per 60s exceeded for UserByModelByMinute. Please wait 4 seconds before retrying."), Kind: subjects.KindRateLimited, Wait: 4 * time.Second},
		"requests at once":      {Status: 429, Header: limit("UserConcurrentRequests", "0"), Body: body("RateLimitReached", "Rate limit of 2 per 0s exceeded for UserConcurrentRequests. Please wait 0 seconds before retrying."), Kind: subjects.KindRateLimited},
		"too many tokens":       {Status: 413, Body: body("tokens_limit_reached", "Request body too large for gpt-4.1 model. Max size: 8000 tokens."), Kind: subjects.KindValidation, Text: "Max size", Code: subjects.CodeContextLength},
		"filtered": {
			Status: 400, Body: `{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation","content_filter_result":{"hate":{"filtered":true,"severity":"high"}}}}}`,
			Kind: subjects.KindContentPolicy, Code: "content_filter", Param: "prompt",
		},
		"token":             {Status: 401, Body: body("unauthorized", "The 'models' permission is required to access this endpoint"), Kind: subjects.KindAuth, Text: "; the token needs the permission models: read"},
		"no access":         {Status: 403, Body: body("no_access", "No access to model: openai/gpt-4.1"), Kind: subjects.KindProviderUnavailable, Text: "No access to model", Shown: 404},
		"unknown model":     {Status: 404, Body: body("unknown_model", "Unknown model: x/y"), Kind: subjects.KindProviderUnavailable, Shown: 404},
		"unavailable model": {Status: 400, Body: body("unavailable_model", "Unavailable model: o4-mini"), Kind: subjects.KindProviderUnavailable, Shown: 404},
		"retired":           {Status: 410, Body: `{"error":{"code":"github_models_retirement_brownout","message":"GitHub Models is temporarily unavailable as part of a scheduled retirement brownout."}}`, Kind: subjects.KindProviderUnavailable, Text: "take github-models out of provider_priority"},
		"a firewall's page": {Status: 403, Body: "<html></html>", Kind: subjects.KindProviderUnavailable},
		"server":            {Status: 500, Body: body("internal_error", "x"), Kind: subjects.KindProvider},
	})
}

func TestWhatIsSent(t *testing.T) {
	t.Parallel()
	p := formtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/inference/chat/completions" || r.Header.Get("Authorization") != "Bearer "+key || !strings.Contains(string(sent), `"model":"openai/o4-mini"`) || !strings.Contains(string(sent), `"max_completion_tokens":5`) {
			t.Errorf("%s %v %s", r.URL, r.Header, sent)
		}
		io.WriteString(w, `{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop","content_filter_results":{"hate":{"filtered":false}}}],"usage":{"prompt_tokens":1,"completion_tokens":1},"prompt_filter_results":[]}`)
	}, at)
	resp, err := p.Complete(t.Context(), formtest.Job(t, wire.Native, "openai/o4-mini", `{"messages":[{"role":"user","content":"hi"}],"maxTokens":5}`))
	if err != nil || !resp.UsageKnown || resp.FinishReason != "stop" {
		t.Errorf("%+v, %v", resp, err)
	}
}
