package openai

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// TestErrors has the forms of WIRE.md, section D, and what public threads show of
// models that lack something.
func TestErrors(t *testing.T) {
	t.Parallel()
	const (
		lacking = http.StatusUnprocessableEntity
		noModel = http.StatusNotFound
	)
	for name, tc := range map[string]struct {
		status int
		header http.Header
		body   string
		kind   subjects.Kind
		shown  int // the status, where it is not the kind's
		code   string
		param  string
		wait   time.Duration
		final  bool
	}{
		"rate, requests": {
			status: 429, header: http.Header{"X-Ratelimit-Remaining-Requests": {"0"}, "X-Ratelimit-Reset-Requests": {"8.64s"}},
			body: `{"error":{"message":"Rate limit reached for gpt-5.4 in organization org-x on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`,
			kind: subjects.KindRateLimited, wait: 8640 * time.Millisecond,
		},
		"rate, in milliseconds": {
			status: 429, header: http.Header{"Retry-After-Ms": {"120"}, "Retry-After": {"1"}},
			body: `{"error":{"message":"x","type":"tokens","code":"rate_limit_exceeded"}}`,
			kind: subjects.KindRateLimited, wait: 120 * time.Millisecond,
		},
		"requests of a day": {
			status: 429, header: http.Header{"X-Ratelimit-Remaining-Requests": {"0"}, "X-Ratelimit-Reset-Requests": {"7h12m0s"}},
			body: `{"error":{"message":"Rate limit reached on requests per day (RPD): Limit 200, Used 200, Requested 1.","type":"requests","code":"rate_limit_exceeded"}}`,
			kind: subjects.KindQuotaExhausted, wait: 7*time.Hour + 12*time.Minute,
		},
		"too large for a minute": {
			status: 429,
			body:   `{"error":{"message":"Request too large for gpt-5.4 in organization org-x on tokens per min (TPM): Limit 30000, Requested 50000.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`,
			kind:   subjects.KindRateLimited, final: true,
		},
		"quota":               {status: 429, body: `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, kind: subjects.KindQuotaExhausted},
		"hard limit":          {status: 429, body: `{"error":{"message":"x","type":"insufficient_quota","code":"billing_hard_limit_reached"}}`, kind: subjects.KindQuotaExhausted},
		"hard limit as 400":   {status: 400, body: `{"error":{"message":"Billing hard limit has been reached","type":"invalid_request_error","param":null,"code":"billing_hard_limit_reached"}}`, kind: subjects.KindQuotaExhausted},
		"billing not active":  {status: 429, body: `{"error":{"message":"Your account is not active, please check your billing details","type":"billing_not_active","param":null,"code":"billing_not_active"}}`, kind: subjects.KindQuotaExhausted},
		"told not to retry":   {status: 429, header: http.Header{"X-Should-Retry": {"false"}}, body: `{"error":{"message":"x","type":"insufficient_quota"}}`, kind: subjects.KindQuotaExhausted, final: true},
		"key":                 {status: 401, body: `{"error":{"message":"Incorrect API key provided: ` + key + `.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`, kind: subjects.KindAuth},
		"country":             {status: 403, body: `{"error":{"code":"unsupported_country_region_territory","message":"Country, region, or territory not supported","param":null,"type":"request_forbidden"}}`, kind: subjects.KindAuth},
		"no model":            {status: 404, body: `{"error":{"message":"The model 'gpt-9' does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}`, kind: subjects.KindProviderUnavailable, shown: noModel},
		"no access to it":     {status: 403, body: `{"error":{"message":"Project 'proj_x' does not have access to model 'gpt-5.5'","type":"invalid_request_error","param":null,"code":"model_not_found"}}`, kind: subjects.KindProviderUnavailable, shown: noModel},
		"context":             {status: 400, body: `{"error":{"message":"This model's maximum context length is 128000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, kind: subjects.KindValidation, code: subjects.CodeContextLength, param: "messages"},
		"policy":              {status: 400, body: `{"error":{"message":"Invalid prompt: your prompt was flagged","type":"invalid_request_error","param":null,"code":"invalid_prompt"}}`, kind: subjects.KindContentPolicy, code: "invalid_prompt"},
		"a bad value":         {status: 400, body: `{"error":{"message":"Invalid value: 'x'.","type":"invalid_request_error","param":"messages[0].role","code":"invalid_value"}}`, kind: subjects.KindValidation, code: "invalid_value", param: "messages[0].role"},
		"a bad schema":        {status: 400, body: `{"error":{"message":"Invalid schema for response_format 'r': 'oneOf' is not supported.","type":"invalid_request_error","param":"response_format","code":"invalid_json_schema"}}`, kind: subjects.KindValidation, code: "invalid_json_schema", param: "response_format"},
		"stop is refused":     {status: 400, body: `{"error":{"message":"Unsupported parameter: 'stop' is not supported with this model.","type":"invalid_request_error","param":"stop","code":"unsupported_parameter"}}`, kind: subjects.KindValidation, code: "unsupported_parameter", param: "stop"},
		"overloaded":          {status: 503, body: `{"error":{"message":"The engine is currently overloaded, please try again later","type":"engine_overloaded","param":null,"code":null}}`, kind: subjects.KindProvider},
		"slow down":           {status: 503, header: http.Header{"Retry-After": {"5"}}, body: `{"error":{"message":"Slow down","type":"server_error","code":"slow_down"}}`, kind: subjects.KindProvider, wait: 5 * time.Second},
		"not verified":        {status: 400, body: `{"error":{"message":"Your organization must be verified to stream this model.","type":"invalid_request_error","param":"stream","code":"unsupported_value"}}`, kind: subjects.KindProviderUnavailable, shown: lacking},
		"no images":           {status: 400, body: `{"error":{"message":"Invalid content type. image_url is only supported by certain models.","type":"invalid_request_error","param":"messages.[0].content.[1].type","code":null}}`, kind: subjects.KindProviderUnavailable, shown: lacking},
		"no schemas":          {status: 400, body: `{"error":{"message":"Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.","type":"invalid_request_error","param":"response_format","code":null}}`, kind: subjects.KindProviderUnavailable, shown: lacking},
		"no log-probs":        {status: 403, body: `{"error":{"message":"You are not allowed to request logprobs from this model","type":"invalid_request_error","param":null,"code":null}}`, kind: subjects.KindAuth},
		"llama.cpp, no sight": {status: 500, body: `{"error":{"code":500,"message":"image input is not supported - hint: if this is unexpected, you may need to provide the mmproj","type":"server_error"}}`, kind: subjects.KindProviderUnavailable, shown: lacking},
		"vLLM, no tools":      {status: 400, body: `{"object":"error","message":"\"auto\" tool choice requires --enable-auto-tool-choice; tool_choice is not supported","type":"BadRequestError","param":null,"code":400}`, kind: subjects.KindProviderUnavailable, shown: lacking},
		"a real 500":          {status: 500, body: `{"error":{"message":"The server had an error while processing your request","type":"server_error","param":null,"code":null}}`, kind: subjects.KindProvider},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fake(t, func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range tc.header {
					w.Header()[k] = v
				}
				w.WriteHeader(tc.status)
				io.WriteString(w, tc.body)
			})
			_, err := p.Complete(t.Context(), job(t, wire.Native, nativeHi))
			var e *subjects.Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			want := tc.kind.Status()
			if tc.shown != 0 {
				want = tc.shown
			}
			if e.Kind != tc.kind || e.Status() != want || e.Code != tc.code || e.Param != tc.param || e.RetryAfter != tc.wait || e.Final != tc.final {
				t.Errorf("%v: status %d, code %q, param %q, wait %v, final %v", e, e.Status(), e.Code, e.Param, e.RetryAfter, e.Final)
			}
		})
	}
}
