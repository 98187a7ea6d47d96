package anthropic

import (
	"net/http"
	"regexp"
	"time"

	"github.com/sluice-llm/sluice/providers/internal/httpx"
	"github.com/sluice-llm/sluice/subjects"
)

// What the API's errors are told apart by. It says so in error.type and, for
// limits of spending, in error.details.error_code; the rest of a 400 has the type
// invalid_request_error whatever is the matter, and only its wording is left.
// Sources: the vendor's page "Claude API errors", and the bodies that clients have
// reported.
var (
	// passing limits of growth: the API asks for a slower rise of the traffic.
	rampWords = []string{"ramp_limit_exceeded"}
	// caps on what an organisation spends, its tier's or its contract's. They come
	// as 429 like a rate limit, without Retry-After, and last until the month ends.
	capWords = []string{"enforced_spend_limit_reached", "contract_spend_limit_reached", "billing_error"}

	// limits that the customer has set, and prepaid credit that is used up: 400.
	capTexts = []string{
		"you have reached your specified api usage limits",
		"you have reached your specified workspace api usage limits",
		"credit balance is too low",
	}
	policyTexts = []string{"content filtering policy"}
	// the prompt alone, or with max_tokens, is longer than the model's window.
	lengthTexts = []string{"prompt is too long", "exceed context limit"}
)

// statusOverloaded is the API's own: it has no capacity for now.
const statusOverloaded = 529

// Refine is what this API's errors mean where the common word lists do not know,
// for rest.Options: answers, and error events inside a stream, which have no
// status.
func Refine(f *httpx.Failure) (subjects.Kind, bool) {
	wrong := f.Status == http.StatusBadRequest || f.Status == 0
	switch {
	case f.Says(rampWords):
		return subjects.KindRateLimited, true
	case f.Says(capWords), f.Status == http.StatusPaymentRequired,
		(wrong || f.Status == http.StatusTooManyRequests) && f.Reads(capTexts):
		if f.Wait == 0 {
			f.Wait = untilAccess(f.Message, time.Now())
		}
		return subjects.KindQuotaExhausted, true
	case wrong && f.Reads(policyTexts):
		return subjects.KindContentPolicy, true
	case wrong && f.Reads(lengthTexts):
		return subjects.KindValidation, true
	case f.Status == statusOverloaded:
		return subjects.KindProvider, true
	}
	return "", false
}

// access is how the API says until when a limit of spending holds.
var access = regexp.MustCompile(`regain access on (\d{4}-\d{2}-\d{2}) at (\d{2}:\d{2}) UTC`)

// maxWait bounds a wait, as package httpx does.
const maxWait = 24 * time.Hour

// untilAccess is how long the limit still holds; 0 = not said.
func untilAccess(message string, now time.Time) time.Duration {
	m := access.FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	at, err := time.Parse("2006-01-02 15:04", m[1]+" "+m[2])
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxWait)
}
