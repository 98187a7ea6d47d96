package httpx

import (
	"bytes"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// Failure is what an error answer says, from whichever of the known forms.
type Failure struct {
	// Status is the HTTP status; of an error inside a success the one that its
	// body names, or 0.
	Status int
	// Header is nil for an error inside a success.
	Header http.Header
	// Code, Param and Message are the body's own, as they came.
	Code, Param, Message string
	// Words are its codes and types, lower-case: error.code, error.type,
	// error.status, and those of details and inner errors.
	Words []string
	// Body is the whole body, up to 256 KiB.
	Body []byte
	// Model is the id that was asked for.
	Model string

	// Wait is how long the API asks to wait, 0 = it does not say; Final, that it
	// asks not to be tried again.
	Wait  time.Duration
	Final bool

	// Remedy and ShowStatus are for Refine to set, Wait and Final to correct (Gemini
	// names half a minute for a quota of a day): what can be done, put after the
	// message, and the error's status where it is not its kind's (422: the request is
	// in the way, and not the provider).
	Remedy     string
	ShowStatus int
	// ModelOnly is for Refine to set where a quota that is used up is that of the one
	// model, and not of the whole account.
	ModelOnly bool

	html bool
}

// Codes and types that decide by themselves, whatever the status. Wording is
// looked at only where a provider gives no code.
var (
	quotaWords = []string{
		"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "quota_exceeded",
		"usage_limit_reached", "enforced_spend_limit_reached", "contract_spend_limit_reached",
		"billing_error", "insufficient_balance", "credit_balance_too_low", "account_deactivated",
	}
	policyWords = []string{
		"content_policy_violation", "content_filter", "invalid_prompt", "responsibleaipolicyviolation",
		"content_policy", "moderation_blocked",
	}
	lengthWords = []string{
		"context_length_exceeded", "exceed_context_size_error", "tokens_limit_reached",
		"model_max_prompt_tokens_exceeded", "string_above_max_length",
	}
	sizeWords = []string{"request_too_large"}
	authWords = []string{
		"invalid_api_key", "authentication_error", "permission_error", "api_key_invalid", "permission_denied",
		"unauthenticated", "unsupported_country_region_territory", "invalid_organization", "ip_not_authorized",
	}
	rateWords     = []string{"rate_limit_exceeded", "rate_limit_error", "ratelimitreached", "resource_exhausted", "too_many_requests"}
	overloadWords = []string{"overloaded_error", "overloaded", "server_error", "api_error", "internal_error", "internal_server_error", "unavailable", "unavailable_error", "service_unavailable", "engine_overloaded", "timeout_error"}
	badWords      = []string{"invalid_request_error", "bad_request", "badrequesterror", "invalid_argument", "validation_error"}
	modelWords    = []string{
		"model_not_found", "model_not_available", "unknown_model", "deploymentnotfound", "model_decommissioned",
		"model_not_supported", "unavailable_model", "unsupported_api_for_model",
	}

	quotaTexts  = []string{"exceeded your current quota", "insufficient balance", "insufficient credit", "weekly usage limit", "monthly usage limit", "daily usage limit", "bymodelbyday", "credit balance is too low", "perday"}
	lengthTexts = []string{"context length", "context window", "context size", "prompt is too long", "input token count", "maximum context", "exceed context limit"}
	policyTexts = []string{"content management policy", "content filtering policy"}
	keyTexts    = []string{"api key not valid", "invalid api key", "incorrect api key"}
	modelTexts  = []string{"model"}
)

// LongWait is the wait from which a limit is taken for a volume that is used up:
// no limit on speed is counted over so long a time.
const LongWait = 10 * time.Minute

// classify turns an answer that is no success into the contract's error.
func (c *Client) classify(r *Request, resp *http.Response, body []byte) *subjects.Error {
	f := readFailure(resp.StatusCode, resp.Header.Get("Content-Type"), body)
	f.Header = resp.Header
	f.Wait = retryAfter(resp.Header, body, c.now())
	f.Final = strings.EqualFold(resp.Header.Get("X-Should-Retry"), "false")
	e := f.error(r, c.refine)
	e.RateLimit = rateLimit(resp.Header, r.Secret)
	return e.WithCause(httpStatus(resp.StatusCode))
}

// httpStatus is the cause of an error that an API answered.
type httpStatus int

func (s httpStatus) Error() string { return "HTTP " + strconv.Itoa(int(s)) }

// StatusOf is the HTTP status of the answer that err is; 0 = it is none, or one
// inside a success.
func StatusOf(err error) int {
	var s httpStatus
	errors.As(err, &s)
	return int(s)
}

// ErrorIn returns the error that a JSON text inside a success is, or nil: an
// answer of status 200, or one event of a stream.
func (c *Client) ErrorIn(r *Request, body []byte) *subjects.Error {
	if !hasError(body) {
		return nil
	}
	return c.ErrorOf(r, body)
}

// ErrorOf returns the error that a JSON text is, whatever its form: one that
// came as an event named error.
func (c *Client) ErrorOf(r *Request, body []byte) *subjects.Error {
	f := readFailure(0, "application/json", body)
	f.Wait = retryAfter(nil, body, c.now())
	return f.error(r, c.refine)
}

// modelsLimit is how OpenAI and Groq say whose rate limit it is: "Rate limit reached
// for gpt-4o in organization org-x on requests per day (RPD)", "Rate limit reached
// for model `x` on tokens per day (TPD)".
var modelsLimit = regexp.MustCompile(`(?i)\blimit reached for (?:model )?\S+ (?:in organization|on) `)

// ofModel reports whether a rate limit is that of the model: these APIs count each
// model's apart.
func (f *Failure) ofModel() bool {
	return f.Says(rateWords) && !f.Says(quotaWords) && modelsLimit.MatchString(f.Message)
}

// hasError looks for an error member that says something.
func hasError(body []byte) bool {
	v := gjson.GetBytes(body, "error")
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		v = gjson.GetBytes(body, "0.error")
	}
	return v.Exists() && v.Type != gjson.Null && v.Raw != `""` && v.Raw != "{}" && v.Raw != "false"
}

// checkBody refuses a success that is none: empty, a page, broken, or an error.
func (c *Client) checkBody(r *Request, resp *http.Response, body []byte) *subjects.Error {
	trimmed := bytes.TrimSpace(body)
	switch {
	case len(trimmed) == 0:
		return subjects.Errorf(subjects.KindProvider, "%s answered %d with nothing in it", r.host(), resp.StatusCode)
	case trimmed[0] == '<':
		return subjects.Errorf(subjects.KindProvider, "%s answered with a web page, not JSON; is the base URL right?", r.host())
	case !wire.ValidJSON(body):
		return subjects.Errorf(subjects.KindProvider, "%s answered with broken JSON", r.host())
	}
	return c.ErrorIn(r, trimmed)
}

// readFailure reads {"error":{…}}, {"error":"text"}, [{"error":{…}}], the flat
// {"message","code"}, {"detail":…}, plain text and web pages.
func readFailure(status int, contentType string, body []byte) Failure {
	f := Failure{Status: status, Body: body}
	body = bytes.TrimSpace(body)
	if !wire.ValidJSON(body) {
		f.html = bytes.HasPrefix(body, []byte("<")) || strings.Contains(contentType, "html")
		if !f.html {
			f.Message = string(body[:min(len(body), 4*maxMessage)])
		}
		return f
	}
	root := gjson.ParseBytes(body)
	if root.IsArray() {
		root = root.Get("0")
	}
	e := root.Get("error")
	if !e.Exists() {
		e = root.Get("x_groq.error")
	}
	switch {
	case e.Type == gjson.String:
		f.Message = e.Str
		e = root
	case !e.IsObject():
		e = root
	}
	if f.Message == "" {
		f.Message = firstText(e.Get("message"), e.Get("detail"), e.Get("detail.0.msg"), root.Get("message"))
	}
	f.Code, f.Param = e.Get("code").Str, e.Get("param").Str
	if place := e.Get("detail.0.loc").Array(); f.Param == "" && len(place) > 0 {
		f.Param = place[len(place)-1].Str
	}
	for _, path := range []string{
		"code", "type", "status", "details.error_code", "innererror.code", "inner_error.code",
		"details.#.reason", "details.#.violations.#.quotaId",
	} {
		f.word(e.Get(path))
	}
	if n := e.Get("code").Int(); status == 0 && n >= 400 && n < 600 {
		f.Status = int(n)
	}
	return f
}

func firstText(all ...gjson.Result) string {
	for _, v := range all {
		if v.Type == gjson.String && v.Str != "" {
			return v.Str[:min(len(v.Str), 8*maxMessage)]
		}
	}
	return ""
}

func (f *Failure) word(v gjson.Result) {
	switch {
	case v.Type == gjson.String:
		f.Words = append(f.Words, strings.ToLower(v.Str[:min(len(v.Str), 256)]))
	case v.IsArray() && len(f.Words) < 32:
		for _, item := range v.Array() {
			f.word(item)
		}
	}
}

// Page reports whether the body is a web page: of something that stands between
// the API and us.
func (f *Failure) Page() bool { return f.html }

// Says reports whether one of its codes or types is among words, lower-case.
func (f *Failure) Says(words []string) bool {
	return slices.ContainsFunc(f.Words, func(w string) bool { return slices.Contains(words, w) })
}

// Reads looks for wording, lower-case, in the message and in ids such as
// GenerateRequestsPerDayPerProject.
func (f *Failure) Reads(texts []string) bool {
	all := strings.ToLower(f.Message) + " " + strings.Join(f.Words, " ")
	return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(all, t) })
}

// error decides the kind. Quota stands before the rate limit, since both come
// as 429 and only one is worth waiting for.
func (f *Failure) error(r *Request, refine func(*Failure) (subjects.Kind, bool)) *subjects.Error {
	f.Model = r.Model
	kind, ok := subjects.Kind(""), false
	if refine != nil {
		kind, ok = refine(f)
	}
	if !ok {
		kind = f.kind()
	}
	e := f.ofKind(kind, r)
	e.Final = f.Final
	e.RetryAfter = f.Wait
	e.ModelOnly = kind == subjects.KindQuotaExhausted && (f.ModelOnly || f.ofModel())
	if f.Remedy != "" {
		e.Message += "; " + f.Remedy
	}
	if f.ShowStatus != 0 {
		e.HTTPStatus = f.ShowStatus
	}
	return e
}

func (f *Failure) ofKind(kind subjects.Kind, r *Request) *subjects.Error {
	if kind == subjects.KindProviderUnavailable && f.modelMissing() {
		return f.noModel(r)
	}
	e := subjects.Errorf(kind, "%s", f.text(r, kind))
	if kind == subjects.KindValidation || kind == subjects.KindContentPolicy { // the caller's to mend, in its API's own words
		e.Code, e.Param = f.name(f.Code, r.Secret), f.name(f.Param, r.Secret)
	}
	switch {
	case kind != subjects.KindValidation:
	case f.Says(lengthWords), f.Reads(lengthTexts):
		e.Code = subjects.CodeContextLength
	case f.Says(sizeWords):
		e.Code = subjects.CodeTooLarge
	}
	return e
}

// name passes a code or a field's name on, if it looks like one.
func (f *Failure) name(s, secret string) string {
	odd := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_.-[]", c))
	}
	if len(s) > 64 || strings.ContainsFunc(s, odd) || secret != "" && strings.Contains(s, secret) {
		return ""
	}
	return s
}

func (f *Failure) kind() subjects.Kind {
	switch {
	case f.Says(quotaWords), f.Status == http.StatusPaymentRequired,
		f.Status == http.StatusTooManyRequests && (f.Wait >= LongWait || f.Reads(quotaTexts)):
		return subjects.KindQuotaExhausted
	case f.Says(policyWords), f.Status == http.StatusBadRequest && f.Reads(policyTexts):
		return subjects.KindContentPolicy
	case f.Says(lengthWords), f.Says(sizeWords):
		return subjects.KindValidation
	case f.Says(authWords), f.Status == http.StatusBadRequest && f.Reads(keyTexts):
		return subjects.KindAuth
	case f.Says(modelWords):
		return subjects.KindProviderUnavailable
	case f.Status == 0:
		return f.kindByWord()
	}
	return f.kindByStatus()
}

// kindByWord is for an error inside a success, which has no status.
func (f *Failure) kindByWord() subjects.Kind {
	switch {
	case f.Says(rateWords):
		return subjects.KindRateLimited
	case f.Says(overloadWords):
		return subjects.KindProvider
	case f.Says(badWords), f.Reads(lengthTexts):
		return subjects.KindValidation
	}
	return subjects.KindProvider
}

func (f *Failure) kindByStatus() subjects.Kind {
	switch s := f.Status; {
	case s == http.StatusTooManyRequests:
		return subjects.KindRateLimited
	case s == http.StatusRequestEntityTooLarge && f.Says(rateWords):
		// Groq: one request above the tokens of a minute. Waiting does not help
		// here, another provider may.
		return subjects.KindRateLimited
	case s == http.StatusUnauthorized, s == http.StatusForbidden, s == http.StatusProxyAuthRequired:
		return subjects.KindAuth
	case s == http.StatusNotFound, s == http.StatusGone, s == http.StatusPreconditionFailed, s >= 300 && s < 400:
		return subjects.KindProviderUnavailable
	case s == http.StatusRequestTimeout, s == http.StatusConflict, s == http.StatusFailedDependency,
		s == http.StatusTooEarly, s == 498, s == 499:
		// The provider's own trouble in the dress of a client's: out of time, a
		// conflict, no capacity. All pass by themselves.
		return subjects.KindProvider
	case s >= 400 && s < 500:
		return subjects.KindValidation
	}
	return subjects.KindProvider
}

// modelMissing reports whether it is the model that was not found, not the path.
func (f *Failure) modelMissing() bool {
	return f.Says(modelWords) || f.Status == http.StatusNotFound && !f.html && f.Reads(modelTexts)
}

// noModel is the error for a model that the provider does not have. It is no
// VALIDATION_ERROR, although the model's name came with the call: that kind
// ends the chain, and another provider may well have the model. The kind that
// moves on without a retry is PROVIDER_UNAVAILABLE. It counts for the breaker,
// which a wrong name should not open for everyone; HTTPStatus 404 tells the
// provider actor, and the caller, that it is the model alone.
func (f *Failure) noModel(r *Request) *subjects.Error {
	name := "the model"
	if r.Model != "" {
		name = "the model " + strconv.Quote(r.Model)
	}
	e := subjects.Errorf(subjects.KindProviderUnavailable, "%s is not there: %s", name, f.text(r, subjects.KindProviderUnavailable))
	e.HTTPStatus = http.StatusNotFound
	return e
}

// text is the message for the caller: what the provider said, cleaned, or what
// its status means.
func (f *Failure) text(r *Request, kind subjects.Kind) string {
	said := Clean(f.Message, r.Secret)
	switch {
	case kind == subjects.KindAuth && r.Key != "" && !f.html:
		return join("the key from "+r.Key+" was refused", said)
	case f.Status >= 300 && f.Status < 400:
		return "the API redirects (" + strconv.Itoa(f.Status) + "), which is not followed; set the base URL to where it leads"
	case f.Status == http.StatusNotFound && !f.modelMissing():
		return join(r.host()+" has no such path (404); is the base URL right?", said)
	case f.html:
		return r.host() + " answered " + strconv.Itoa(f.Status) + " with a web page"
	case said != "":
		return said
	case f.Status != 0:
		return strings.TrimSpace(r.host() + " answered " + strconv.Itoa(f.Status) + " " + http.StatusText(f.Status))
	}
	return r.host() + " reported an error without saying which"
}

func join(first, said string) string {
	if said == "" {
		return first
	}
	return first + ": " + said
}
