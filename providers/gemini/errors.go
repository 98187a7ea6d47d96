package gemini

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/providers/internal/httpx"
	"github.com/sluice-llm/sluice/subjects"
)

// The API's errors are google.rpc.Status in JSON: a numeric code, a status word,
// a message, and details of several types (QuotaFailure, RetryInfo, ErrorInfo).
// Their use is as observed in public reports of 2025 and 2026; where there is no
// detail to go by, the wording is looked at.
var (
	// ranOut are the texts of a 429 that no waiting mends: money.
	ranOut = []string{"spending cap", "spend cap", "prepay", "credits are depleted", "out of credits"}
	// lacking are the texts of a 400 by which a model says that it does not do what
	// was asked: "Penalty is not enabled for models/…", "Thinking level MEDIUM is
	// not supported for this model", "Function calling with a response mime type:
	// 'application/json' is unsupported", "Requests ending with a model turn are not
	// supported".
	lacking = []string{"is not enabled for", "not supported for this model", "not supported by this model", "is unsupported", "a model turn are not supported", "this model does not support", "unsupported mime type"}
	// elsewhere are the texts of a FAILED_PRECONDITION that is the account's: the
	// region, or billing that is off.
	elsewhere = []string{"location", "country", "region", "billing", "free tier"}
	// keyReasons are reasons of an ErrorInfo that are the key's, with whatever status.
	keyReasons = []string{
		"api_key_invalid", "api_key_expired", "api_key_service_blocked", "api_key_ip_address_blocked",
		"api_key_http_referrer_blocked", "service_disabled", "consumer_suspended", "consumer_invalid", "billing_disabled",
	}
)

// noLimit finds the limit of nought that a tier without the model has.
var noLimit = regexp.MustCompile(`\blimit: 0(?:[^.0-9]|\.?$)`)

// refine is what this API's failures mean, where the general words do not tell.
func refine(f *httpx.Failure) (subjects.Kind, bool) {
	switch {
	case f.Says(keyReasons):
		return subjects.KindAuth, true
	case f.Status == http.StatusTooManyRequests || f.Says([]string{"resource_exhausted"}):
		return exhausted(f), true
	case f.Says([]string{"failed_precondition"}):
		if f.Reads(elsewhere) {
			return subjects.KindAuth, true
		}
		return subjects.KindProviderUnavailable, true
	case f.Status == http.StatusBadRequest && f.Reads(lacking):
		f.ShowStatus = http.StatusUnprocessableEntity
		f.Remedy = "another model may"
		return subjects.KindProviderUnavailable, true
	}
	return "", false
}

// exhausted tells what a RESOURCE_EXHAUSTED is of: a minute's limit comes back by
// itself; a day's quota does not soon, whatever RetryInfo says; and a limit of
// nought means that the model is not on the account's tier, which is as if it
// were not there, and says nothing of the account's other models. Without any
// detail the API is short of capacity, or has a limit that it does not name.
func exhausted(f *httpx.Failure) subjects.Kind {
	periods := func(word string) bool {
		return slices.ContainsFunc(f.Words, func(w string) bool { return strings.Contains(w, word) })
	}
	said := strings.ToLower(f.Message)
	switch {
	case noLimit.MatchString(said):
		f.ShowStatus, f.Wait = http.StatusNotFound, 0
		f.Remedy = "this model is not on the account's tier; set up billing, or use another model"
		return subjects.KindProviderUnavailable
	case f.Reads(ranOut):
		f.Wait = 0
		return subjects.KindQuotaExhausted
	case periods("perday"):
		f.Wait = 0
		f.ModelOnly = ofModel(f.Body)
		return subjects.KindQuotaExhausted
	case f.Wait >= httpx.LongWait:
		f.ModelOnly = ofModel(f.Body)
		return subjects.KindQuotaExhausted
	case periods("perminute"), f.Wait > 0:
		return subjects.KindRateLimited
	case strings.Contains(said, "exceeded your current quota"):
		return subjects.KindQuotaExhausted
	}
	return subjects.KindRateLimited
}

// ofModel reports whether all quotas that a QuotaFailure names are one model's: by
// the quota's id (GenerateRequestsPerDayPerProjectPerModel-FreeTier) or by its
// dimensions ({"model":"gemini-2.5-pro"}). Where a day's are among them, those of a
// minute do not matter.
func ofModel(body []byte) bool {
	root := gjson.ParseBytes(body)
	if root.IsArray() {
		root = root.Get("0")
	}
	var days, others []bool
	root.Get("error.details.#.violations|@flatten").ForEach(func(_, v gjson.Result) bool {
		id := strings.ToLower(v.Get("quotaId").Str)
		is := strings.Contains(id, "permodel") || v.Get("quotaDimensions.model").Str != ""
		if strings.Contains(id, "perday") {
			days = append(days, is)
		} else {
			others = append(others, is)
		}
		return true
	})
	if len(days) == 0 {
		days = others
	}
	return len(days) > 0 && !slices.Contains(days, false)
}
