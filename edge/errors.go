package edge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// form is how a route's API writes an error.
type form uint8

const (
	formNative form = iota
	formOpenAI
	formAnthropic
	formText
)

func formOf(path string) form {
	switch {
	case path == "/v1/messages" || strings.HasPrefix(path, "/v1/messages/"):
		return formAnthropic
	case strings.HasPrefix(path, "/v1/"):
		return formOpenAI
	case path == "/metrics" || path == "/token-usage":
		return formText
	}
	return formNative
}

// refusal is an error of the edge's own: HTTP manners, not a call.
func refusal(status int, format string, args ...any) *subjects.Error {
	kind := subjects.KindValidation
	if status == http.StatusForbidden || status == http.StatusUnauthorized {
		kind = subjects.KindAuth
	}
	e := subjects.Errorf(kind, format, args...)
	e.HTTPStatus = status
	return e
}

// fail answers with an error in the route's form, or ends a stream with one.
func (x *exchange) fail(err *subjects.Error) {
	e := *err // may be shared with other calls
	if e.CallID == "" {
		e.CallID = x.callID
	}
	if x.status != 0 {
		if x.streaming {
			x.failStream(&e)
		}
		return
	}
	status := e.Status()
	if status < 400 || status > 599 {
		status = http.StatusBadGateway
	}
	x.errorHeaders(&e)
	if x.form == formText {
		x.send(status, typeText, []byte(e.Message+"\n"))
		return
	}
	x.send(status, typeJSON, x.form.body(&e))
}

// failStream ends a stream that has begun: one error event, and no [DONE].
func (x *exchange) failStream(e *subjects.Error) {
	b := append([]byte("data: "), x.form.body(e)...)
	n, _ := x.w.Write(append(b, "\n\n"...))
	x.bytes += int64(n)
	_ = http.NewResponseController(x.w).Flush()
}

// longestRetry is how long a client is let wait by Retry-After: the OpenAI SDKs
// obey longer ones in full or fall back to their own half second, by version.
const longestRetry = time.Minute

func (x *exchange) errorHeaders(e *subjects.Error) {
	h := x.w.Header()
	if e.CallID != "" {
		x.setCallID(e.CallID)
	}
	if e.Provider != "" {
		h["X-Llm-Provider"] = []string{headerSafe(e.Provider)}
	}
	for name, v := range e.RateLimit {
		if rateLimitHeader(name) {
			h.Set(name, headerSafe(v))
		}
	}
	if d := e.RetryAfter; d > 0 {
		h["Retry-After"] = []string{strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)}
		h["Retry-After-Ms"] = []string{strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)}
	}
	if !worthRetrying(e) {
		h["X-Should-Retry"] = []string{"false"}
	}
}

// worthRetrying says whether the same request may go better soon. Sluice has
// made its own tries at what is worth them: a client's are for what passes by
// itself, or after the time that the error names.
func worthRetrying(e *subjects.Error) bool {
	switch e.Kind {
	case subjects.KindPoolFull, subjects.KindProviderUnavailable:
		return e.RetryAfter <= longestRetry
	case subjects.KindNoProvider, subjects.KindProvider, subjects.KindRateLimited, subjects.KindQuotaExhausted, subjects.KindTimeout:
		return e.RetryAfter > 0 && e.RetryAfter <= longestRetry
	}
	return e.HTTPStatus == http.StatusRequestTimeout
}

func (f form) body(e *subjects.Error) []byte {
	var b []byte
	var err error
	switch f {
	case formOpenAI:
		b, err = json.Marshal(openAIError{newOpenAIError(e)})
	case formAnthropic:
		b, err = json.Marshal(anthropicError{"error", anthropicDetail{anthropicType(e), e.Message}, e.CallID})
	default:
		b, err = e.MarshalJSON()
	}
	if err != nil { // cannot happen: plain fields only
		return []byte(`{"error":{"message":"` + string(e.Kind) + `"}}`)
	}
	return b
}

type openAIError struct {
	Error openAIDetail `json:"error"`
}

// openAIDetail is OpenAI's error object, and what Sluice knows beyond it.
type openAIDetail struct {
	Message      string             `json:"message"`
	Type         string             `json:"type"`
	Param        *string            `json:"param"`
	Code         string             `json:"code"`
	Kind         subjects.Kind      `json:"kind"`
	Provider     string             `json:"provider,omitempty"`
	RetryAfterMs int64              `json:"retryAfterMs,omitempty"`
	CallID       string             `json:"callId,omitempty"`
	Attempts     []subjects.Attempt `json:"attempts,omitempty"`
}

func newOpenAIError(e *subjects.Error) openAIDetail {
	typ, code := openAIType(e)
	var param *string
	if e.Param != "" {
		param = &e.Param
	}
	return openAIDetail{
		Message: e.Message, Type: typ, Param: param, Code: code, Kind: e.Kind, Provider: e.Provider,
		RetryAfterMs: e.RetryAfter.Milliseconds(), CallID: e.CallID, Attempts: e.Attempts,
	}
}

// openAIType gives OpenAI's type and code. Where OpenAI has no code of its own
// for a kind, the kind in lower case is one.
func openAIType(e *subjects.Error) (typ, code string) {
	const invalid = "invalid_request_error"
	switch e.HTTPStatus {
	case http.StatusNotFound:
		return invalid, "not_found"
	case http.StatusNotImplemented:
		return invalid, "not_implemented"
	case http.StatusForbidden:
		return "permission_error", "forbidden"
	}
	code = strings.ToLower(string(e.Kind))
	switch e.Kind {
	case subjects.KindValidation:
		if e.Code != "" {
			return invalid, e.Code
		}
		return invalid, "invalid_request"
	case subjects.KindContentPolicy:
		return invalid, "content_policy_violation"
	case subjects.KindCapabilityMissing:
		return invalid, code
	case subjects.KindAuth:
		return "authentication_error", code
	case subjects.KindQuotaExhausted:
		return "insufficient_quota", "insufficient_quota"
	case subjects.KindBudgetExceeded:
		return "insufficient_quota", code
	case subjects.KindCancelled:
		return "cancelled", code
	}
	if e.Status() == http.StatusTooManyRequests {
		return "rate_limit_exceeded", "rate_limit_exceeded"
	}
	return "server_error", code
}

type anthropicError struct {
	Type      string          `json:"type"`
	Error     anthropicDetail `json:"error"`
	RequestID string          `json:"request_id,omitempty"`
}

type anthropicDetail struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func anthropicType(e *subjects.Error) string {
	switch status := e.Status(); {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusPaymentRequired:
		return "billing_error"
	case status == http.StatusForbidden:
		return "permission_error"
	case status == http.StatusNotFound:
		return "not_found_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= 500:
		return "api_error"
	}
	return "invalid_request_error"
}

// headerSafe writes s so that it fits one header line: a byte that is not
// printable ASCII, and "%", as %XX (as gRPC does), and no more than 1 KiB of it.
func headerSafe(s string) string {
	const limit, hex = 1024, "0123456789ABCDEF"
	safe := len(s) <= limit
	for i := 0; safe && i < len(s); i++ {
		safe = plainByte(s[i])
	}
	if safe {
		return s
	}
	b := make([]byte, 0, min(len(s)+16, limit))
	for i := 0; i < len(s) && len(b) <= limit-3; i++ {
		if c := s[i]; plainByte(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

func plainByte(c byte) bool { return c >= ' ' && c <= '~' && c != '%' }

// rateLimitHeader reports whether a provider's header is one of those that
// reach the caller, and may be a header's name at all: limits, and what is left
// of a plan (Copilot's x-quota-snapshot-premium_interactions).
func rateLimitHeader(name string) bool {
	if !strings.Contains(name, "ratelimit-") && !strings.HasPrefix(name, "x-quota-snapshot-") {
		return false
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// clip shortens what a caller sent for a message that repeats it.
func clip(s string) string {
	const limit = 100
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}

func typeName(v any) string { return fmt.Sprintf("%T", v) }
