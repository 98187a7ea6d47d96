package copilot

import (
	"net/http"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/providers/internal/httpx"
	"github.com/sluice-llm/sluice/providers/openai"
	"github.com/sluice-llm/sluice/subjects"
)

const (
	relogin = "log in again with `opencode auth login`"
	// shortWait is the wait up to which a limit of the whole account is worth
	// waiting for.
	shortWait = time.Minute
)

var (
	// usedUp are the codes of 402, WIRE.md B.4.
	usedUp = []string{"quota_exceeded", "free_quota_exceeded", "overage_limit_reached", "billing_not_configured"}
	// notForUs are refusals of the program or of the kind of token, and not of the
	// account: GitHub wants one of its own clients.
	notForUs   = []string{"copilot-integration-id", "not available for integrator"}
	wrongToken = []string{"personal access token", "token expired", "third-party user token"}
)

// refine reads the forms of WIRE.md B.4. Copilot's JSON often comes as text/plain,
// and much of it is no JSON.
func refine(f *httpx.Failure) (subjects.Kind, bool) {
	switch f.Status {
	case http.StatusBadRequest:
		return badRequest(f)
	case http.StatusUnauthorized:
		f.Remedy = relogin
		return subjects.KindAuth, true
	case http.StatusPaymentRequired:
		return subjects.KindQuotaExhausted, true
	case http.StatusForbidden:
		return forbidden(f)
	case http.StatusMisdirectedRequest:
		f.Remedy = "set LLM_BASE_URL_COPILOT to the account's own API, such as https://api.business.githubcopilot.com"
		return subjects.KindProviderUnavailable, true
	case http.StatusUnprocessableEntity: // the responsible-AI filter
		return subjects.KindContentPolicy, true
	case http.StatusTooManyRequests:
		return limited(f)
	case 466:
		f.Remedy = "GitHub no longer answers this version of its API; use a newer Sluice"
		return subjects.KindProviderUnavailable, true
	}
	if f.Says(usedUp) { // inside a success
		return subjects.KindQuotaExhausted, true
	}
	return openai.Refine(f)
}

// badRequest tells what is wrong with the token, the program or the topic from
// what is wrong with the request.
func badRequest(f *httpx.Failure) (subjects.Kind, bool) {
	switch {
	case f.Says([]string{"off_topic"}):
		return subjects.KindContentPolicy, true
	case f.Reads(wrongToken):
		f.Remedy = relogin
		return subjects.KindAuth, true
	case f.Reads(notForUs):
		f.Remedy = "choose models that GitHub offers to programs that are not its own, in providers.copilot.models"
		f.ShowStatus = http.StatusNotFound
		return subjects.KindProviderUnavailable, true
	}
	return openai.Refine(f)
}

// forbidden: the account may not use Copilot, or not this model; a page is a
// firewall's.
func forbidden(f *httpx.Failure) (subjects.Kind, bool) {
	switch {
	case f.Page():
		return openai.Refine(f)
	case f.Reads([]string{"model"}):
		f.ShowStatus = http.StatusNotFound
		return subjects.KindProviderUnavailable, true
	}
	f.Remedy = "the account needs a Copilot plan whose policy allows it; the decision is its owner's or its organization's"
	return subjects.KindAuth, true
}

// limited tells a used-up volume from going too fast. A code may have the plan
// behind a colon ("user_global_rate_limited:pro_plus"). A limit of one model is
// never the account's, however long it lasts; one that is not over soon is the
// model's quota.
func limited(f *httpx.Failure) (subjects.Kind, bool) {
	code, _, _ := strings.Cut(strings.ToLower(f.Code), ":")
	switch {
	case code == "model_overloaded":
		return subjects.KindProvider, true
	case code == "user_model_rate_limited":
		if f.Wait > shortWait {
			f.ModelOnly = true
			return subjects.KindQuotaExhausted, true
		}
		return subjects.KindRateLimited, true
	case code == "user_weekly_rate_limited", f.Says(usedUp):
		return subjects.KindQuotaExhausted, true
	case code == "user_global_rate_limited" || f.Header.Get("X-Ratelimit-Exceeded") != "":
		// The session's or the account's volume, unless it is nearly over.
		if f.Wait == 0 || f.Wait > shortWait {
			return subjects.KindQuotaExhausted, true
		}
	}
	return "", false
}
