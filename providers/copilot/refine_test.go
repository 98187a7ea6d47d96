package copilot

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// TestErrors has the forms of WIRE.md B.4, and those that public threads show.
func TestErrors(t *testing.T) {
	t.Parallel()
	in := func(seconds string) http.Header { return http.Header{"Retry-After": {seconds}} }
	limited := func(code string) string {
		return `{"error":{"message":"Sorry, you've been rate-limited.","code":"` + code + `"}}`
	}
	for name, tc := range map[string]struct {
		status int
		header http.Header
		body   string
		kind   subjects.Kind
		text   string
		wait   time.Duration
		shown  int
	}{
		"quota":                  {402, in("3600"), `{"error":{"message":"You have no quota","code":"quota_exceeded"}}`, subjects.KindQuotaExhausted, "You have no quota", time.Hour, 0},
		"quota, a date":          {402, http.Header{"Retry-After": {time.Now().Add(48 * time.Hour).UTC().Format(http.TimeFormat)}}, `{"error":{"code":"free_quota_exceeded"}}`, subjects.KindQuotaExhausted, "", 24 * time.Hour, 0},
		"overage":                {402, nil, `{"error":{"message":"x","code":"overage_limit_reached"}}`, subjects.KindQuotaExhausted, "", 0, 0},
		"billing":                {402, nil, `{"error":{"message":"x","code":"billing_not_configured"}}`, subjects.KindQuotaExhausted, "", 0, 0},
		"quota inside a success": {200, nil, `{"error":{"message":"x","code":"quota_exceeded"}}`, subjects.KindQuotaExhausted, "", 0, 0},

		"token expired":        {401, nil, "unauthorized: token expired\n", subjects.KindAuth, "unauthorized: token expired; log in again", 0, 0},
		"no permission":        {401, nil, "unauthorized: Personal Access Token does not have Copilot Requests permission\n", subjects.KindAuth, "Personal Access Token", 0, 0},
		"a PAT":                {400, nil, "checking third-party user token: bad request: Personal Access Tokens are not supported for this endpoint\n", subjects.KindAuth, "log in again", 0, 0},
		"not authorized":       {403, nil, "unauthorized: not authorized to use this Copilot feature\n", subjects.KindAuth, "not authorized to use this Copilot feature; the account needs", 0, 0},
		"not licensed":         {403, nil, "unauthorized: not licensed to use Copilot\n", subjects.KindAuth, "not licensed to use Copilot", 0, 0},
		"a firewall's page":    {403, http.Header{"Content-Type": {"text/html"}}, "<html><body>Access denied</body></html>", subjects.KindProviderUnavailable, "answered 403 with a web page; something before GitHub Copilot", 0, 0},
		"a model by policy":    {403, nil, "Access to this model is disabled by policy\n", subjects.KindProviderUnavailable, "disabled by policy", 0, 404},
		"another account's":    {421, nil, "Misdirected Request", subjects.KindProviderUnavailable, "set LLM_BASE_URL_COPILOT", 0, 0},
		"not for programs":     {400, nil, `{"error":{"message":"The requested model is not available for integrator \"copilot-language-server\". Available models: [gpt-4.1 gpt-5-mini]","code":"model_not_available_for_integrator"}}`, subjects.KindProviderUnavailable, "Available models: [gpt-4.1 gpt-5-mini]; choose models", 0, 404},
		"wants an integration": {400, nil, "bad request: missing required Copilot-Integration-Id header\n", subjects.KindProviderUnavailable, "missing required", 0, 404},

		"weekly":                  {429, in("120"), limited("user_weekly_rate_limited"), subjects.KindQuotaExhausted, "", 2 * time.Minute, 0},
		"weekly, of a plan":       {429, in("5"), limited("user_weekly_rate_limited:pro"), subjects.KindQuotaExhausted, "", 5 * time.Second, 0},
		"session":                 {429, http.Header{"X-Ratelimit-User-Retry-After": {"2733"}}, limited("user_global_rate_limited:pro_plus"), subjects.KindQuotaExhausted, "", 2733 * time.Second, 0},
		"session, no time":        {429, nil, limited("user_global_rate_limited:pro"), subjects.KindQuotaExhausted, "", 0, 0},
		"session, nearly over":    {429, http.Header{"Retry-After": {"2"}, "X-Ratelimit-Exceeded": {"global-chat:x"}}, limited("user_global_rate_limited:pro"), subjects.KindRateLimited, "", 2 * time.Second, 0},
		"exceeded, by the header": {429, http.Header{"X-Ratelimit-Exceeded": {"global-chat:x"}}, "too many requests", subjects.KindQuotaExhausted, "", 0, 0},
		"58 hours":                {429, in("208800"), limited("rate_limited"), subjects.KindQuotaExhausted, "", 24 * time.Hour, 0},
		"rate":                    {429, in("2"), limited("rate_limited"), subjects.KindRateLimited, "", 2 * time.Second, 0},
		"a model's":               {429, in("208800"), limited("user_model_rate_limited:pro"), subjects.KindRateLimited, "", 24 * time.Hour, 0},
		"the program's":           {429, nil, limited("integration_rate_limited"), subjects.KindRateLimited, "", 0, 0},
		"agent mode":              {429, nil, limited("agent_mode_limit_exceeded"), subjects.KindRateLimited, "", 0, 0},
		"overloaded":              {429, in("1"), limited("model_overloaded"), subjects.KindProvider, "", time.Second, 0},
		"429 alone":               {429, nil, "", subjects.KindRateLimited, "", 0, 0},

		"prompt too long":    {400, nil, `{"error":{"message":"prompt token count of 200000 exceeds the limit of 128000","code":"model_max_prompt_tokens_exceeded"}}`, subjects.KindValidation, "200000 exceeds", 0, 0},
		"off topic":          {400, nil, `{"error":{"message":"off topic","code":"off_topic"}}`, subjects.KindContentPolicy, "", 0, 0},
		"unknown model":      {400, nil, `{"error":{"message":"The requested model is not supported.","code":"model_not_supported","param":"model","type":"invalid_request_error"}}`, subjects.KindProviderUnavailable, `the model "claude-haiku-4.5" is not there`, 0, 404},
		"another endpoint's": {400, nil, `{"error":{"message":"model \"gpt-5.3-codex\" is not accessible via the /chat/completions endpoint","code":"unsupported_api_for_model"}}`, subjects.KindProviderUnavailable, "not accessible", 0, 404},
		"too many images":    {400, nil, `{"error":{"message":"too many URL images in request (max 20)","code":""}}`, subjects.KindValidation, "max 20", 0, 0},
		"too large":          {413, nil, "failed to parse request\n", subjects.KindValidation, "failed to parse", 0, 0},
		"filtered":           {422, nil, `{"error":{"message":"The response was filtered"}}`, subjects.KindContentPolicy, "filtered", 0, 0},
		"an agent's":         {424, nil, "failed dependency", subjects.KindProvider, "", 0, 0},
		"too old":            {466, nil, "client not supported", subjects.KindProviderUnavailable, "use a newer Sluice", 0, 0},
		"cancelled":          {499, nil, "", subjects.KindProvider, "", 0, 0},
		"upstream":           {503, nil, `{"error":{"message":"upstream rate limit","code":"upstream_provider_rate_limit"}}`, subjects.KindProvider, "upstream", 0, 0},
		"bad gateway":        {502, nil, "<html>unicorn</html>", subjects.KindProvider, "answered 502 with a web page", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fake(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/plain; charset=utf-8") // also of JSON
				for k, v := range tc.header {
					w.Header()[k] = v
				}
				w.WriteHeader(tc.status)
				io.WriteString(w, tc.body)
			})
			_, err := p.Complete(t.Context(), job(t, wire.Native, hi))
			var e *subjects.Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			want := tc.kind.Status()
			if tc.shown != 0 {
				want = tc.shown
			}
			if e.Kind != tc.kind || !strings.Contains(e.Message, tc.text) || e.RetryAfter != tc.wait || e.Status() != want || e.Provider != "copilot" {
				t.Errorf("%v, wait %v, status %d", e, e.RetryAfter, e.Status())
			}
			if length := e.Code == subjects.CodeContextLength; length != (name == "prompt too long") {
				t.Errorf("code %q", e.Code)
			}
			if strings.Contains(err.Error(), token) {
				t.Errorf("the token is shown: %v", err)
			}
		})
	}
}
