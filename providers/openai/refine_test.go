package openai

import (
	"net/http"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/providers/internal/formtest"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
)

// TestErrors has the forms of WIRE.md, section D, and what public threads show of
// models that lack something.
func TestErrors(t *testing.T) {
	t.Parallel()
	const (
		lacking = http.StatusUnprocessableEntity
		noModel = http.StatusNotFound
	)
	make := func(url string) *Provider { return New(configFor(url), rest.Options{}) }
	formtest.Errors(t, make, "gpt-4o", key, map[string]formtest.Error{
		"rate, requests": {
			Status: 429, Header: http.Header{"X-Ratelimit-Remaining-Requests": {"0"}, "X-Ratelimit-Reset-Requests": {"8.64s"}},
			Body: `{"error":{"message":"Rate limit reached for gpt-5.4 in organization org-x on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`,
			Kind: subjects.KindRateLimited, Wait: 8640 * time.Millisecond,
		},
		"rate, in milliseconds": {
			Status: 429, Header: http.Header{"Retry-After-Ms": {"120"}, "Retry-After": {"1"}},
			Body: `{"error":{"message":"x","type":"tokens","code":"rate_limit_exceeded"}}`,
			Kind: subjects.KindRateLimited, Wait: 120 * time.Millisecond,
		},
		"requests of a day": {
			Status: 429, Header: http.Header{"X-Ratelimit-Remaining-Requests": {"0"}, "X-Ratelimit-Reset-Requests": {"7h12m0s"}},
			Body: `{"error":{"message":"Rate limit reached on requests per day (RPD): Limit 200, Used 200, Requested 1.","type":"requests","code":"rate_limit_exceeded"}}`,
			Kind: subjects.KindQuotaExhausted, Wait: 7*time.Hour + 12*time.Minute,
		},
		"a model's requests of a day": {
			Status: 429, Header: http.Header{"X-Ratelimit-Reset-Requests": {"7h12m0s"}, "X-Ratelimit-Remaining-Requests": {"0"}},
			Body: `{"error":{"message":"Rate limit reached for gpt-5.4 in organization org-x on requests per day (RPD): Limit 200, Used 200, Requested 1.","type":"requests","code":"rate_limit_exceeded"}}`,
			Kind: subjects.KindQuotaExhausted, Wait: 7*time.Hour + 12*time.Minute, ModelOnly: true,
		},
		"too large for a minute": {
			Status: 429,
			Body:   `{"error":{"message":"Request too large for gpt-5.4 in organization org-x on tokens per min (TPM): Limit 30000, Requested 50000.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`,
			Kind:   subjects.KindRateLimited, Final: true,
		},
		"quota":               {Status: 429, Body: `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, Kind: subjects.KindQuotaExhausted},
		"hard limit":          {Status: 429, Body: `{"error":{"message":"x","type":"insufficient_quota","code":"billing_hard_limit_reached"}}`, Kind: subjects.KindQuotaExhausted},
		"hard limit as 400":   {Status: 400, Body: `{"error":{"message":"Billing hard limit has been reached","type":"invalid_request_error","param":null,"code":"billing_hard_limit_reached"}}`, Kind: subjects.KindQuotaExhausted},
		"billing not active":  {Status: 429, Body: `{"error":{"message":"Your account is not active, please check your billing details","type":"billing_not_active","param":null,"code":"billing_not_active"}}`, Kind: subjects.KindQuotaExhausted},
		"told not to retry":   {Status: 429, Header: http.Header{"X-Should-Retry": {"false"}}, Body: `{"error":{"message":"x","type":"insufficient_quota"}}`, Kind: subjects.KindQuotaExhausted, Final: true},
		"key":                 {Status: 401, Body: `{"error":{"message":"Incorrect API key provided: ` + key + `.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`, Kind: subjects.KindAuth},
		"country":             {Status: 403, Body: `{"error":{"code":"unsupported_country_region_territory","message":"Country, region, or territory not supported","param":null,"type":"request_forbidden"}}`, Kind: subjects.KindAuth},
		"no model":            {Status: 404, Body: `{"error":{"message":"The model 'gpt-9' does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}`, Kind: subjects.KindProviderUnavailable, Shown: noModel},
		"no access to it":     {Status: 403, Body: `{"error":{"message":"Project 'proj_x' does not have access to model 'gpt-5.5'","type":"invalid_request_error","param":null,"code":"model_not_found"}}`, Kind: subjects.KindProviderUnavailable, Shown: noModel},
		"context":             {Status: 400, Body: `{"error":{"message":"This model's maximum context length is 128000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, Kind: subjects.KindValidation, Code: subjects.CodeContextLength, Param: "messages"},
		"policy":              {Status: 400, Body: `{"error":{"message":"Invalid prompt: your prompt was flagged","type":"invalid_request_error","param":null,"code":"invalid_prompt"}}`, Kind: subjects.KindContentPolicy, Code: "invalid_prompt"},
		"a bad value":         {Status: 400, Body: `{"error":{"message":"Invalid value: 'x'.","type":"invalid_request_error","param":"messages[0].role","code":"invalid_value"}}`, Kind: subjects.KindValidation, Code: "invalid_value", Param: "messages[0].role"},
		"a bad schema":        {Status: 400, Body: `{"error":{"message":"Invalid schema for response_format 'r': 'oneOf' is not supported.","type":"invalid_request_error","param":"response_format","code":"invalid_json_schema"}}`, Kind: subjects.KindValidation, Code: "invalid_json_schema", Param: "response_format"},
		"stop is refused":     {Status: 400, Body: `{"error":{"message":"Unsupported parameter: 'stop' is not supported with this model.","type":"invalid_request_error","param":"stop","code":"unsupported_parameter"}}`, Kind: subjects.KindValidation, Code: "unsupported_parameter", Param: "stop"},
		"overloaded":          {Status: 503, Body: `{"error":{"message":"The engine is currently overloaded, please try again later","type":"engine_overloaded","param":null,"code":null}}`, Kind: subjects.KindProvider},
		"slow down":           {Status: 503, Header: http.Header{"Retry-After": {"5"}}, Body: `{"error":{"message":"Slow down","type":"server_error","code":"slow_down"}}`, Kind: subjects.KindProvider, Wait: 5 * time.Second},
		"not verified":        {Status: 400, Body: `{"error":{"message":"Your organization must be verified to stream this model.","type":"invalid_request_error","param":"stream","code":"unsupported_value"}}`, Kind: subjects.KindProviderUnavailable, Shown: lacking},
		"no images":           {Status: 400, Body: `{"error":{"message":"Invalid content type. image_url is only supported by certain models.","type":"invalid_request_error","param":"messages.[0].content.[1].type","code":null}}`, Kind: subjects.KindProviderUnavailable, Shown: lacking},
		"no schemas":          {Status: 400, Body: `{"error":{"message":"Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.","type":"invalid_request_error","param":"response_format","code":null}}`, Kind: subjects.KindProviderUnavailable, Shown: lacking},
		"no log-probs":        {Status: 403, Body: `{"error":{"message":"You are not allowed to request logprobs from this model","type":"invalid_request_error","param":null,"code":null}}`, Kind: subjects.KindAuth},
		"llama.cpp, no sight": {Status: 500, Body: `{"error":{"code":500,"message":"image input is not supported - hint: if this is unexpected, you may need to provide the mmproj","type":"server_error"}}`, Kind: subjects.KindProviderUnavailable, Shown: lacking},
		"vLLM, no tools":      {Status: 400, Body: `{"object":"error","message":"\"auto\" tool choice requires --enable-auto-tool-choice; tool_choice is not supported","type":"BadRequestError","param":null,"code":400}`, Kind: subjects.KindProviderUnavailable, Shown: lacking},
		"a real 500":          {Status: 500, Body: `{"error":{"message":"The server had an error while processing your request","type":"server_error","param":null,"code":null}}`, Kind: subjects.KindProvider},
	})
}
