package claudecode

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/providers/internal/httpx"
	"github.com/sluice-llm/sluice/subjects"
)

// failure is what the program reports of a turn that went wrong: the API's status
// (0 = it did not answer), the program's own word for it, how the turn ended and
// its text for a person.
type failure struct {
	status   int
	word     string // assistant.error
	terminal string
	subtype  string
	text     string
}

func (f *failure) read(result gjson.Result) {
	f.status = int(result.Get("api_error_status").Int())
	f.terminal, f.subtype = result.Get("terminal_reason").Str, result.Get("subtype").Str
	f.text = result.Get("result").Str
	if f.text == "" {
		f.text = result.Get("errors.0").Str
	}
}

// Remedies.
const (
	logIn   = "run `claude auth login` as the user that Sluice runs as"
	payer   = "see the account's plan and billing"
	shorter = "shorten the messages"
)

// error classifies. Words and statuses decide; wording is looked at only where
// the program has no word (WIRE.md A.9).
func (f *failure) error(l *limits, now time.Time, model string) error {
	switch {
	case f.word == "rate_limit", f.status == http.StatusTooManyRequests:
		return f.limited(l, now)
	case f.tooLong():
		e := f.of(subjects.KindValidation, shorter)
		e.Code = subjects.CodeContextLength
		return e
	case f.word == "billing_error", f.status == http.StatusPaymentRequired, f.reads("extra usage"):
		return f.of(subjects.KindQuotaExhausted, payer)
	case f.reads("only authorized for use with claude code"):
		return f.of(subjects.KindAuth, "")
	case f.word == "model_not_found", f.status == http.StatusNotFound:
		e := subjects.Errorf(subjects.KindProviderUnavailable, "the model %s is not there: %s", strconv.Quote(model), f.clean())
		e.HTTPStatus = http.StatusNotFound
		return e
	case f.credentials():
		if f.word == "authentication_failed" || f.word == "" {
			return f.of(subjects.KindAuth, logIn)
		}
		return f.of(subjects.KindAuth, "") // the account's own trouble: the text says what to do
	case f.status == http.StatusRequestEntityTooLarge:
		e := f.of(subjects.KindValidation, shorter)
		e.Code = subjects.CodeTooLarge
		return e
	case f.reads("content filtering policy"):
		return f.of(subjects.KindContentPolicy, "")
	case f.status >= 400 && f.status < 500 && f.status != http.StatusRequestTimeout && f.status != http.StatusConflict:
		return f.of(subjects.KindValidation, "")
	}
	return f.of(subjects.KindProvider, "")
}

// tooLong reports whether the prompt does not fit, by the API's word or by the
// program's own count.
func (f *failure) tooLong() bool {
	return f.terminal == "prompt_too_long" || f.terminal == "blocking_limit" ||
		(f.word == "invalid_request" || f.status == http.StatusBadRequest) && f.reads("prompt is too long")
}

// credentials reports whether it is the login that is at fault.
func (f *failure) credentials() bool {
	switch f.word {
	case "authentication_failed", "oauth_org_not_allowed", "account_on_hold", "verification_required", "cloud_credential_error":
		return true
	}
	return f.status == http.StatusUnauthorized || f.status == http.StatusForbidden || f.status == 0 && f.reads("not logged in")
}

// limited tells a plan's limit, which ends at a known time, from going too fast.
// The status alone does not: it is "rejected" for both. The program says nothing
// of a limit whose end it takes for past; then its text is left.
func (f *failure) limited(l *limits, now time.Time) error {
	kind := subjects.KindRateLimited
	plan := l.status == "rejected" && (l.claim != "" || !l.resets.IsZero())
	if plan || f.reads("extra usage") || f.reads("you've hit your") {
		kind = subjects.KindQuotaExhausted
	}
	e := f.of(kind, "")
	if kind == subjects.KindQuotaExhausted && l.resets.After(now) {
		e.RetryAfter = min(l.resets.Sub(now), maxWait)
	}
	e.ModelOnly = kind == subjects.KindQuotaExhausted && ofModel(l.claim)
	e.RateLimit = l.headers()
	return e
}

// ofModel reports whether a plan's limit is that of one model's kind, and leaves
// the others to be used.
func ofModel(claim string) bool { return claim == "seven_day_opus" || claim == "seven_day_sonnet" }

// maxWait bounds what is believed of a limit's end: the longest window is a week.
const maxWait = 8 * 24 * time.Hour

func (f *failure) reads(text string) bool { return strings.Contains(strings.ToLower(f.text), text) }

func (f *failure) clean() string {
	if said := httpx.Clean(f.text, ""); said != "" {
		return said
	}
	if f.status != 0 {
		return "the API answered " + strconv.Itoa(f.status)
	}
	return "the turn failed" + ifAny(" (", httpx.Clean(f.subtype, ""), ")")
}

func ifAny(before, text, after string) string {
	if text == "" {
		return ""
	}
	return before + text + after
}

func (f *failure) of(kind subjects.Kind, remedy string) *subjects.Error {
	return subjects.Errorf(kind, "%s%s", f.clean(), ifAny("; ", remedy, ""))
}

// windowNames are the program's names for a plan's windows and those that stand in
// the API's headers.
var windowNames = map[string]string{
	"five_hour": "5h", "seven_day": "7d", "seven_day_opus": "7d-opus", "seven_day_sonnet": "7d-sonnet", "seven_day_overage_included": "7d_oi",
}

// limits are what the program says of the plan's limits.
type limits struct {
	status  string // allowed, allowed_warning, rejected
	claim   string // five_hour, seven_day, …: the limit that decides
	resets  time.Time
	overage bool // calls are served from extra usage
	windows map[string]string
}

func (l *limits) read(v gjson.Result) {
	*l = limits{status: v.Get("status").Str, claim: v.Get("rateLimitType").Str, overage: v.Get("isUsingOverage").Bool()}
	if s := v.Get("resetsAt").Int(); s > 0 && s < 1<<40 {
		l.resets = time.Unix(s, 0)
	}
	l.windows = map[string]string{}
	for name, short := range windowNames {
		w := v.Get("unifiedWindows." + name)
		for _, field := range []struct{ from, to string }{{"utilization", "utilization"}, {"resetsAt", "reset"}, {"status", "status"}} {
			if x := w.Get(field.from); x.Exists() && len(x.String()) <= 32 {
				l.windows[short+"-"+field.to] = httpx.Clean(x.String(), "")
			}
		}
	}
}

// headers are the limits under the names that the API itself gives them.
func (l *limits) headers() map[string]string {
	if l.status == "" {
		return nil
	}
	const prefix = "anthropic-ratelimit-unified-"
	out := map[string]string{prefix + "status": httpx.Clean(l.status, "")}
	if l.claim != "" {
		out[prefix+"representative-claim"] = httpx.Clean(l.claim, "")
	}
	if !l.resets.IsZero() {
		out[prefix+"reset"] = strconv.FormatInt(l.resets.Unix(), 10)
	}
	if l.overage {
		out[prefix+"overage-in-use"] = "true"
	}
	for name, value := range l.windows {
		out[prefix+name] = value
	}
	return out
}

// why says why the output ended before the answer did.
func (p *process) why() error {
	if p.failed != nil {
		return p.failed
	}
	if !p.within(termWait) {
		return subjects.Errorf(subjects.KindProvider, "the claude program closed its output in mid-answer")
	}
	within(p.hushed, 2*drainWait)
	said := httpx.Clean(p.said.String(), "")
	if strings.Contains(said, "unknown option") {
		return unavailable(codeTooOld, "the claude program does not know what it is asked (%s); update it", said)
	}
	return subjects.Errorf(subjects.KindProvider, "the claude program ended before its answer (%s)%s", exitText(p), ifAny(": ", said, ""))
}

func exitText(p *process) string {
	if p.state == nil {
		return "status unknown"
	}
	return p.state.String()
}
