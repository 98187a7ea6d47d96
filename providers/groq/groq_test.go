package groq

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

const key = "gsk_secretOfTheTest"

func at(url string) *openai.Provider {
	return New(&config.Provider{
		ID: "groq", BaseURL: url + "/openai/v1", APIKeyEnv: "GROQ_API_KEY", APIKey: config.NewSecret(key), StreamUsage: true,
	}, rest.Options{})
}

// TestErrors has the forms of WIRE.md D and of Groq's documents and public threads.
func TestErrors(t *testing.T) {
	t.Parallel()
	body := func(message, kind, code string) string {
		return `{"error":{"message":"` + message + `","type":"` + kind + `","code":"` + code + `"}}`
	}
	headers := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	const rate = "rate_limit_exceeded"
	formtest.Errors(t, at, "llama-3.3-70b-versatile", key, map[string]formtest.Error{
		"tokens of a minute": {
			Status: 429, Header: headers("Retry-After", "6", "X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "5.289s", "X-Ratelimit-Remaining-Requests", "13000"),
			Body: body("Rate limit reached for model `llama-3.3-70b-versatile` on tokens per minute (TPM): Limit 15000, Used 11972, Requested 4351. Please try again in 5.289s.", "tokens", rate),
			Kind: subjects.KindRateLimited, Wait: 6 * time.Second,
		},
		"requests of a minute": {
			Status: 429, Header: headers("Retry-After", "2"), Body: body("Rate limit reached on requests per minute (RPM): Limit 30, Used 30, Requested 1.", "requests", rate),
			Kind: subjects.KindRateLimited, Wait: 2 * time.Second,
		},
		"requests of a day, by the header": {
			Status: 429, Header: headers("Retry-After", "86", "X-Ratelimit-Remaining-Requests", "0"), Body: body("Rate limit reached", "requests", rate),
			Kind: subjects.KindQuotaExhausted, Wait: 86 * time.Second,
		},
		"requests of a day, by the text": {
			Status: 429, Body: body("Rate limit reached on requests per day (RPD): Limit 1000, Used 1000, Requested 1.", "requests", rate),
			Kind: subjects.KindQuotaExhausted,
		},
		"tokens of a day": {
			Status: 429, Header: headers("Retry-After", "107", "X-Ratelimit-Remaining-Requests", "900"), Body: body("Rate limit reached on tokens per day (TPD): Limit 500000, Used 500370, Requested 252. Please try again in 1m47.5854s.", "tokens", rate),
			Kind: subjects.KindQuotaExhausted, Wait: 107 * time.Second,
		},
		"a model's tokens of a day": {
			Status: 429, Header: headers("Retry-After", "107"), Body: body("Rate limit reached for model `llama-3.3-70b-versatile` in organization `org_x` service tier `on_demand` on tokens per day (TPD): Limit 100000, Used 99900, Requested 252. Please try again in 1m47.5s.", "tokens", rate),
			Kind: subjects.KindQuotaExhausted, Wait: 107 * time.Second, ModelOnly: true,
		},
		"a long wait": {Status: 429, Header: headers("Retry-After", "3600"), Body: body("x", "tokens", rate), Kind: subjects.KindQuotaExhausted, Wait: time.Hour},
		"above a minute's tokens": {
			Status: 413, Body: body("Request too large for model `openai/gpt-oss-120b` on tokens per minute (TPM): Limit 8000, Requested 8590, please reduce your message size and try again.", "tokens", rate),
			Kind: subjects.KindRateLimited, Final: true,
		},
		"too large":           {Status: 413, Body: body("Request Entity Too Large", "invalid_request_error", "request_too_large"), Kind: subjects.KindValidation, Code: subjects.CodeTooLarge},
		"spent":               {Status: 400, Body: body("Your API access is blocked: you reached your spend limit", "invalid_request_error", "blocked_api_access"), Kind: subjects.KindQuotaExhausted, Text: "; raise the spend limit"},
		"flex capacity":       {Status: 498, Body: body("Flex tier capacity exceeded", "capacity_exceeded", "capacity_exceeded"), Kind: subjects.KindProvider},
		"cancelled":           {Status: 499, Kind: subjects.KindProvider},
		"dependency":          {Status: 424, Body: body("failed dependency", "x", "x"), Kind: subjects.KindProvider},
		"over capacity":       {Status: 503, Body: body("Service Unavailable", "internal_server_error", ""), Kind: subjects.KindProvider},
		"key":                 {Status: 401, Body: body("Invalid API Key", "invalid_request_error", "invalid_api_key"), Kind: subjects.KindAuth, Text: "the key from GROQ_API_KEY was refused"},
		"blocked by a page":   {Status: 403, Body: "<!DOCTYPE html><title>Attention Required! | Cloudflare</title>", Kind: subjects.KindProviderUnavailable, Text: "something before the API"},
		"no model":            {Status: 404, Body: body("The model `x` does not exist or you do not have access to it.", "invalid_request_error", "model_not_found"), Kind: subjects.KindProviderUnavailable, Shown: 404},
		"a model of the past": {Status: 400, Body: body("The model `x` has been decommissioned and is no longer supported.", "invalid_request_error", "model_decommissioned"), Kind: subjects.KindProviderUnavailable, Shown: 404},
		"a model not allowed": {Status: 403, Body: body("The model `x` is blocked at the organization level", "permissions_error", "model_permission_blocked_org"), Kind: subjects.KindProviderUnavailable, Shown: 404},
		"context":             {Status: 400, Body: body("Please reduce the length of the messages or completion.", "invalid_request_error", "context_length_exceeded"), Kind: subjects.KindValidation, Code: subjects.CodeContextLength},
		"no tool call":        {Status: 400, Body: `{"error":{"message":"Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"<function=f{}>"}}`, Kind: subjects.KindProvider},
		"no JSON":             {Status: 400, Body: body("Failed to generate JSON. Please adjust your prompt.", "invalid_request_error", "json_validate_failed"), Kind: subjects.KindProvider},
		"no schemas here":     {Status: 400, Body: body("This model does not support response format `json_schema`. See supported models", "invalid_request_error", ""), Kind: subjects.KindProviderUnavailable, Shown: 422},
		"a bad request":       {Status: 400, Body: body("'messages.0' : for 'role:user' the following must be satisfied", "invalid_request_error", ""), Kind: subjects.KindValidation},
	})
}

// TestUsage: that of the last chunk's x_groq counts where there is no other, and an
// error in it ends the stream.
func TestUsage(t *testing.T) {
	t.Parallel()
	const text = `data: {"id":"1","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}],"x_groq":{"id":"req_1"}}` + "\n\n"
	for name, tc := range map[string]struct {
		end  string
		kind subjects.Kind
		want subjects.Usage
	}{
		"x_groq alone":    {`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"req_1","usage":{"queue_time":0.1,"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":4}}}}` + "\n\ndata: [DONE]\n\n", "", subjects.Usage{InputTokens: 5, OutputTokens: 2, TotalTokens: 7, CacheReadTokens: 4}},
		"the usual chunk": {`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}` + "\n\ndata: [DONE]\n\n", "", subjects.Usage{InputTokens: 9, OutputTokens: 2, TotalTokens: 11}},
		"an error":        {`data: {"choices":[],"x_groq":{"error":"over capacity"}}` + "\n\n", subjects.KindProvider, subjects.Usage{}},
	} {
		p := formtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			sent, _ := io.ReadAll(r.Body)
			if r.URL.Path != "/openai/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer "+key || !strings.Contains(string(sent), `"include_usage":true`) {
				t.Errorf("%s %v %s", r.URL, r.Header, sent)
			}
			io.WriteString(w, text+tc.end)
		}, at)
		resp, err := p.Stream(t.Context(), formtest.Job(t, wire.Native, "llama-3.1-8b-instant", formtest.Hi), func(*wire.Event) error { return nil })
		if subjects.KindOf(err) != tc.kind || resp.Usage != tc.want || resp.UsageKnown != (tc.kind == "") {
			t.Errorf("%s: %+v, %v", name, resp, err)
		}
		if tc.kind != "" && !strings.Contains(err.Error(), "over capacity") {
			t.Errorf("%v", err)
		}
	}
}
