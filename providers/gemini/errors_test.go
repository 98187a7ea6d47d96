package gemini

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// rpc is an error in the API's form.
func rpc(code int, status, message string, details ...string) string {
	more := ""
	if len(details) > 0 {
		more = `,"details":[` + strings.Join(details, ",") + `]`
	}
	return fmt.Sprintf(`{"error":{"code":%d,"message":%q,"status":%q%s}}`, code, message, status, more)
}

func reason(s string) string {
	return `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"` + s + `","domain":"googleapis.com","metadata":{"service":"generativelanguage.googleapis.com"}}`
}

func quota(ids ...string) string {
	var all []string
	for _, id := range ids {
		all = append(all, `{"quotaMetric":"generativelanguage.googleapis.com/generate_content_free_tier_requests","quotaId":"`+id+`","quotaDimensions":{"location":"global"},"quotaValue":"10"}`)
	}
	return `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[` + strings.Join(all, ",") + `]}`
}

const (
	help    = `{"@type":"type.googleapis.com/google.rpc.Help","links":[]}`
	retry37 = `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"37s"}`

	exceeded = "You exceeded your current quota, please check your plan and billing details. For more information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits."
	ofMetric = "\n* Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: %s, model: gemini-2.5-pro\nPlease retry in 37.2s."
)

func TestErrors(t *testing.T) {
	t.Parallel()
	const minute, day = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
	for name, tc := range map[string]struct {
		status int
		body   string
		kind   subjects.Kind
		shown  int // the error's status; 0 = its kind's
		code   string
		wait   time.Duration
		says   string
	}{
		"a minute's limit":       {429, rpc(429, "RESOURCE_EXHAUSTED", exceeded+fmt.Sprintf(ofMetric, "10"), quota(minute), help, retry37), subjects.KindRateLimited, 0, "", 37 * time.Second, "exceeded"},
		"a day's quota":          {429, rpc(429, "RESOURCE_EXHAUSTED", exceeded+fmt.Sprintf(ofMetric, "250"), quota(day), help, retry37), subjects.KindQuotaExhausted, 0, "", 0, "exceeded"},
		"both":                   {429, rpc(429, "RESOURCE_EXHAUSTED", exceeded, quota(minute, day), retry37), subjects.KindQuotaExhausted, 0, "", 0, ""},
		"not on this tier":       {429, rpc(429, "RESOURCE_EXHAUSTED", exceeded+fmt.Sprintf(ofMetric, "0"), quota(minute, day), retry37), subjects.KindProviderUnavailable, 404, "", 0, "not on the account's tier"},
		"a long wait, no detail": {429, rpc(429, "RESOURCE_EXHAUSTED", exceeded, `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"35999.5s"}`), subjects.KindQuotaExhausted, 0, "", 35_999_500 * time.Millisecond, ""},
		"a limit, no detail":     {429, rpc(429, "RESOURCE_EXHAUSTED", exceeded, help, retry37), subjects.KindRateLimited, 0, "", 37 * time.Second, ""},
		"a quota, no detail":     {429, rpc(429, "RESOURCE_EXHAUSTED", exceeded), subjects.KindQuotaExhausted, 0, "", 0, ""},
		"short of capacity":      {429, rpc(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."), subjects.KindRateLimited, 0, "", 0, "exhausted"},
		"money":                  {429, rpc(429, "RESOURCE_EXHAUSTED", "Your project has exceeded its monthly spending cap.", retry37), subjects.KindQuotaExhausted, 0, "", 0, "spending cap"},
		"in a list":              {429, "[" + rpc(429, "RESOURCE_EXHAUSTED", exceeded, quota(minute), retry37) + "]", subjects.KindRateLimited, 0, "", 37 * time.Second, ""},
		"a wrong key":            {400, rpc(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", reason("API_KEY_INVALID")), subjects.KindAuth, 0, "", 0, "GOOGLE_API_KEY was refused"},
		"a key that has expired": {400, rpc(400, "INVALID_ARGUMENT", "API key expired. Please renew the API key.", reason("API_KEY_INVALID")), subjects.KindAuth, 0, "", 0, "expired"},
		"a suspended key":        {403, rpc(403, "PERMISSION_DENIED", "Permission denied: Consumer 'api_key:"+key+"' has been suspended.", reason("CONSUMER_SUSPENDED")), subjects.KindAuth, 0, "", 0, "suspended"},
		"no key":                 {403, rpc(403, "PERMISSION_DENIED", "Method doesn't allow unregistered callers."), subjects.KindAuth, 0, "", 0, ""},
		"an odd token":           {401, rpc(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.", reason("ACCESS_TOKEN_TYPE_UNSUPPORTED")), subjects.KindAuth, 0, "", 0, ""},
		"region":                 {400, rpc(400, "FAILED_PRECONDITION", "User location is not supported for the API use."), subjects.KindAuth, 0, "", 0, "location"},
		"billing":                {400, rpc(400, "FAILED_PRECONDITION", "Gemini API free tier is not available in your country. Please enable billing on your project in Google AI Studio."), subjects.KindAuth, 0, "", 0, "billing"},
		"a precondition":         {400, rpc(400, "FAILED_PRECONDITION", "Precondition check failed."), subjects.KindProviderUnavailable, 0, "", 0, "Precondition"},
		"too long":               {400, rpc(400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."), subjects.KindValidation, 0, subjects.CodeContextLength, 0, "input token count"},
		"a wrong field":          {400, rpc(400, "INVALID_ARGUMENT", "Invalid value at 'generation_config.temperature' (TYPE_FLOAT), \"x\"", `{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"generation_config.temperature"}]}`), subjects.KindValidation, 0, "", 0, "temperature"},
		"no penalty":             {400, rpc(400, "INVALID_ARGUMENT", "Penalty is not enabled for models/gemini-2.5-flash"), subjects.KindProviderUnavailable, 422, "", 0, "another model may"},
		"no such level":          {400, rpc(400, "INVALID_ARGUMENT", "Thinking level MEDIUM is not supported for this model. Please retry with other thinking level."), subjects.KindProviderUnavailable, 422, "", 0, ""},
		"no such image":          {400, rpc(400, "INVALID_ARGUMENT", "Unsupported MIME type: image/gif"), subjects.KindProviderUnavailable, 422, "", 0, "another model may"},
		"no prefill":             {400, rpc(400, "INVALID_ARGUMENT", "Requests ending with a model turn are not supported."), subjects.KindProviderUnavailable, 422, "", 0, ""},
		"no such model":          {404, rpc(404, "NOT_FOUND", "models/gemini-9 is not found for API version v1beta, or is not supported for generateContent. Call ListModels to see the list of available models and their supported methods."), subjects.KindProviderUnavailable, 404, "", 0, `the model "gemini-2.5-flash" is not there`},
		"overloaded":             {503, rpc(503, "UNAVAILABLE", "The model is overloaded. Please try again later."), subjects.KindProvider, 0, "", 0, "overloaded"},
		"internal":               {500, rpc(500, "INTERNAL", "An internal error has occurred."), subjects.KindProvider, 0, "", 0, ""},
		"out of time":            {504, rpc(504, "DEADLINE_EXCEEDED", "Deadline expired before operation could complete."), subjects.KindProvider, 0, "", 0, ""},
		"cancelled":              {499, rpc(499, "CANCELLED", "The operation was cancelled."), subjects.KindProvider, 0, "", 0, ""},
		"too many bytes":         {413, rpc(413, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes."), subjects.KindValidation, 0, "", 0, ""},
		"inside a success":       {200, "[" + rpc(503, "UNAVAILABLE", "overloaded") + "]", subjects.KindProvider, 0, "", 0, "overloaded"},
		"a page":                 {502, "<html>bad gateway</html>", subjects.KindProvider, 0, "", 0, "web page"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fake(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json; charset=UTF-8")
				w.WriteHeader(tc.status)
				io.WriteString(w, tc.body)
			})
			_, err := p.Complete(t.Context(), job(t, "gemini-2.5-flash", hi))
			_, streamed := p.Stream(t.Context(), job(t, "gemini-2.5-flash", hi), func(*wire.Event) error { return nil })
			for _, err := range []error{err, streamed} {
				e := subjects.AsError(err)
				if err == nil || e.Kind != tc.kind || e.Code != tc.code || e.RetryAfter != tc.wait || !strings.Contains(e.Message, tc.says) || e.Provider != "gemini" {
					t.Errorf("%v (code %q, wait %s)", err, e.Code, e.RetryAfter)
				}
				if want := tc.shown; want != 0 && e.Status() != want || want == 0 && e.Status() != tc.kind.Status() {
					t.Errorf("status %d", e.Status())
				}
				if strings.Contains(fmt.Sprintf("%+v", err), key) {
					t.Errorf("the key is shown: %+v", err)
				}
			}
		})
	}
}

// TestModelOnly tells a model's quota from the project's, by the ids and the
// dimensions of all that a QuotaFailure names.
func TestModelOnly(t *testing.T) {
	t.Parallel()
	const (
		minuteOfModel = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
		dayOfModel    = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
		minute        = "GenerateContentInputTokensPerMinutePerProject-FreeTier"
		day           = "GenerateRequestsPerDayPerProject"
		hour          = "GenerateRequestsPerHourPerProjectPerModel"
		retryLong     = `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"3599s"}`
	)
	dims := strings.ReplaceAll(quota(day), `{"location":"global"}`, `{"location":"global","model":"gemini-2.5-pro"}`)
	for name, tc := range map[string]struct {
		details []string
		kind    subjects.Kind
		want    bool
	}{
		"a model's day":                      {[]string{help, quota(dayOfModel), retry37}, subjects.KindQuotaExhausted, true},
		"and the project's minute":           {[]string{quota(minute, dayOfModel)}, subjects.KindQuotaExhausted, true},
		"the project's day":                  {[]string{quota(day)}, subjects.KindQuotaExhausted, false},
		"both days":                          {[]string{quota(day, dayOfModel)}, subjects.KindQuotaExhausted, false},
		"both days, apart":                   {[]string{quota(dayOfModel), quota(day)}, subjects.KindQuotaExhausted, false},
		"a model's day, by its dimensions":   {[]string{dims}, subjects.KindQuotaExhausted, true},
		"a model's minute is no quota":       {[]string{quota(minuteOfModel), retry37}, subjects.KindRateLimited, false},
		"a model's long wait":                {[]string{quota(hour), retryLong}, subjects.KindQuotaExhausted, true},
		"a long wait that is not said whose": {[]string{retryLong}, subjects.KindQuotaExhausted, false},
	} {
		for _, form := range []string{"%s", "[%s]"} {
			p := fake(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(429)
				fmt.Fprintf(w, form, rpc(429, "RESOURCE_EXHAUSTED", exceeded, tc.details...))
			})
			_, err := p.Complete(t.Context(), job(t, "gemini-2.5-pro", hi))
			if e := subjects.AsError(err); e == nil || e.Kind != tc.kind || e.ModelOnly != tc.want {
				t.Errorf("%s, %s: %+v", name, form, e)
			}
		}
	}
	p := fake(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(429)
		io.WriteString(w, rpc(429, "RESOURCE_EXHAUSTED", "Your project has exceeded its monthly spending cap.", quota(dayOfModel)))
	})
	_, err := p.Complete(t.Context(), job(t, "gemini-2.5-pro", hi))
	if e := subjects.AsError(err); e == nil || e.Kind != subjects.KindQuotaExhausted || e.ModelOnly {
		t.Errorf("money: %+v", e)
	}
}

func TestLimitOfNought(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]bool{
		"metric: x, limit: 0, model: y": true, "limit: 0": true, "limit: 0.": true, "limit: 0\nplease": true,
		"limit: 05": false, "limit: 0.5, model": false, "limit: 10, model": false, "limit: 20": false,
	} {
		if noLimit.MatchString(said) != want {
			t.Errorf("%q", said)
		}
	}
}
