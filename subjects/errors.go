package subjects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"
)

// Kind classifies a failed call. It decides the status a caller sees, whether
// the same provider is tried again, whether the next one is, and whether the
// provider's breaker counts it (contract §8).
type Kind string

// The kinds of the contract.
const (
	KindValidation          Kind = "VALIDATION_ERROR"
	KindContentPolicy       Kind = "CONTENT_POLICY"
	KindAuth                Kind = "AUTH_ERROR"
	KindQuotaExhausted      Kind = "QUOTA_EXHAUSTED"
	KindRateLimited         Kind = "RATE_LIMITED"
	KindPoolFull            Kind = "POOL_FULL"
	KindBudgetExceeded      Kind = "BUDGET_EXCEEDED"
	KindProvider            Kind = "PROVIDER_ERROR"
	KindTimeout             Kind = "TIMEOUT"
	KindProviderUnavailable Kind = "PROVIDER_UNAVAILABLE"
	KindCapabilityMissing   Kind = "CAPABILITY_MISSING"
	KindNoProvider          Kind = "NO_PROVIDER"
	KindCancelled           Kind = "CANCELLED"
)

type kindRule struct {
	status              int
	retry, next, breaks bool
}

var kinds = map[Kind]kindRule{
	KindValidation:          {status: 400},
	KindContentPolicy:       {status: 400},
	KindAuth:                {status: 401, next: true},
	KindQuotaExhausted:      {status: 429, next: true},
	KindRateLimited:         {status: 429, retry: true, next: true},
	KindPoolFull:            {status: 429},
	KindBudgetExceeded:      {status: 402},
	KindProvider:            {status: 502, retry: true, next: true, breaks: true},
	KindTimeout:             {status: 504, next: true, breaks: true},
	KindProviderUnavailable: {status: 503, next: true, breaks: true},
	KindCapabilityMissing:   {status: 422},
	KindNoProvider:          {status: 503},
	KindCancelled:           {status: 499},
}

// Kinds lists every kind of the contract, in its order.
func Kinds() []Kind {
	return []Kind{
		KindValidation, KindContentPolicy, KindAuth, KindQuotaExhausted, KindRateLimited,
		KindPoolFull, KindBudgetExceeded, KindProvider, KindTimeout, KindProviderUnavailable,
		KindCapabilityMissing, KindNoProvider, KindCancelled,
	}
}

// Codes of errors that one kind does not tell apart.
const (
	// CodeContextLength: the prompt is longer than the model can take.
	CodeContextLength = "context_length_exceeded"
	// CodeTooLarge: the request has more bytes than Sluice carries, or the provider.
	CodeTooLarge = "request_too_large"
	// CodeReplyTooLarge: the answer to a query has more bytes than the NATS server
	// carries in one message; fewer rows may fit.
	CodeReplyTooLarge = "reply_too_large"
)

// Known reports whether k is a kind of the contract.
func (k Kind) Known() bool { _, ok := kinds[k]; return ok }

// Status is the HTTP-like status code of the kind; 500 for an unknown kind.
func (k Kind) Status() int {
	if r, ok := kinds[k]; ok {
		return r.status
	}
	return 500
}

// Retryable reports whether the same provider may be tried again.
func (k Kind) Retryable() bool { return kinds[k].retry }

// Advances reports whether the kind advances the provider chain by default;
// the configuration's fallback_on overrides it.
func (k Kind) Advances() bool { return kinds[k].next }

// CountsForBreaker reports whether a failure of this kind counts against the
// provider's circuit breaker.
func (k Kind) CountsForBreaker() bool { return kinds[k].breaks }

// Error is a failed call: the only error type that crosses the wire. Its
// Message is written for the caller: it holds no secret and no prompt.
type Error struct {
	Kind    Kind
	Message string
	// Provider is the account whose answer this is; empty when none was asked.
	Provider string
	// RetryAfter is how long to wait before trying again makes sense; 0 = not known.
	RetryAfter time.Duration
	CallID     string
	// Attempts is the trail of what was tried and skipped.
	Attempts []Attempt
	// RateLimit holds the provider's own rate-limit headers, lower-case names.
	RateLimit map[string]string
	// Code tells apart errors of one kind that programs treat differently: one of
	// the Code constants, the provider's own code, or "". Param is the field that
	// the provider names; "" = none. Both are short names, never text.
	Code  string
	Param string
	// HTTPStatus, when not 0, overrides the kind's status (429 for a
	// NO_PROVIDER whose candidates all wait for a limit).
	HTTPStatus int
	// ModelOnly says that a QUOTA_EXHAUSTED is of the one model, and not of the whole
	// account. It stays inside the node.
	ModelOnly bool
	// Final says that asking the same provider again is no use, whatever the kind:
	// it says so itself, or has made its own tries. It stays inside the node.
	Final bool

	cause error
}

// Errorf makes an error of kind with a message for the caller. A %w operand is
// kept as the cause.
func Errorf(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Message: err.Error(), cause: errors.Unwrap(err)}
}

// WithCause attaches the internal cause, which is for logs and errors.Is and
// never shown to the caller. It returns e.
func (e *Error) WithCause(cause error) *Error {
	e.cause = cause
	return e
}

// Error implements error.
func (e *Error) Error() string {
	if e.Provider != "" {
		return string(e.Kind) + ": " + e.Provider + ": " + e.Message
	}
	return string(e.Kind) + ": " + e.Message
}

// LogValue implements slog.LogValuer: one line, with the internal cause.
func (e *Error) LogValue() slog.Value {
	if e.cause != nil {
		return slog.StringValue(e.Error() + " (" + e.cause.Error() + ")")
	}
	return slog.StringValue(e.Error())
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is an *Error of the same kind with an empty
// message, so that errors.Is(err, &subjects.Error{Kind: k}) matches by kind.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind && t.Message == ""
}

// Status is the status code the caller sees.
func (e *Error) Status() int {
	if e.HTTPStatus != 0 {
		return e.HTTPStatus
	}
	return e.Kind.Status()
}

// AsError returns err as *Error. A context's end becomes TIMEOUT or CANCELLED;
// anything else becomes PROVIDER_ERROR with a neutral message and err as cause.
// It returns nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Errorf(KindTimeout, "the deadline passed").WithCause(err)
	case errors.Is(err, context.Canceled):
		return Errorf(KindCancelled, "the call was cancelled").WithCause(err)
	}
	return Errorf(KindProvider, "unexpected failure inside Sluice; the log has it under the call id").WithCause(err)
}

// KindOf returns the kind of err, or "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	return AsError(err).Kind
}

type errorBody struct {
	Kind         Kind              `json:"kind"`
	Message      string            `json:"message"`
	Provider     string            `json:"provider,omitempty"`
	RetryAfterMs int64             `json:"retryAfterMs,omitempty"`
	CallID       string            `json:"callId,omitempty"`
	Attempts     []Attempt         `json:"attempts,omitempty"`
	RateLimit    map[string]string `json:"rateLimit,omitempty"`
	Code         string            `json:"code,omitempty"`
	Param        string            `json:"param,omitempty"`
	Status       int               `json:"status,omitempty"`
}

// MarshalJSON writes the contract's body: {"error":{"kind",…}}.
func (e *Error) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Error errorBody `json:"error"`
	}{errorBody{
		Kind: e.Kind, Message: e.Message, Provider: e.Provider,
		RetryAfterMs: e.RetryAfter.Milliseconds(), CallID: e.CallID,
		Attempts: e.Attempts, RateLimit: e.RateLimit, Code: e.Code, Param: e.Param, Status: e.HTTPStatus,
	}})
}

// UnmarshalJSON reads the contract's body.
func (e *Error) UnmarshalJSON(b []byte) error {
	var body struct {
		Error errorBody `json:"error"`
	}
	if err := json.Unmarshal(b, &body); err != nil {
		return err
	}
	in := body.Error
	*e = Error{
		Kind: in.Kind, Message: in.Message, Provider: in.Provider,
		RetryAfter: time.Duration(in.RetryAfterMs) * time.Millisecond, CallID: in.CallID,
		Attempts: in.Attempts, RateLimit: in.RateLimit, Code: in.Code, Param: in.Param, HTTPStatus: in.Status,
	}
	return nil
}

// Msg makes the NATS form of the error: headers and JSON body. The short
// header text is one line; the body has the whole.
func (e *Error) Msg() *Msg {
	body, err := json.Marshal(e)
	if err != nil { // cannot happen: plain fields only
		body = []byte(`{"error":{"kind":"` + string(e.Kind) + `"}}`)
	}
	m := &Msg{Header: Header{}, Data: body}
	m.Header.Set(HeaderErrorCode, strconv.Itoa(e.Status()))
	m.Header.Set(HeaderError, headerSafe(string(e.Kind)+": "+e.Message))
	if e.CallID != "" {
		m.Header.Set(HeaderCallID, e.CallID)
	}
	return m
}

// ErrorOf returns the error that a reply message carries, or nil when it is
// not an error. A foreign service's error without our body keeps its text.
func ErrorOf(m *Msg) *Error {
	code := m.Header.Get(HeaderErrorCode)
	if code == "" {
		return nil
	}
	e := &Error{}
	if len(m.Data) > 0 && json.Unmarshal(m.Data, e) == nil && e.Kind != "" {
		return e
	}
	status, _ := strconv.Atoi(code)
	return &Error{
		Kind: kindForStatus(status), Message: m.Header.Get(HeaderError),
		CallID: m.Header.Get(HeaderCallID), HTTPStatus: status,
	}
}

func kindForStatus(status int) Kind {
	switch {
	case status == 401 || status == 403:
		return KindAuth
	case status == 402:
		return KindBudgetExceeded
	case status == 422:
		return KindCapabilityMissing
	case status == 429:
		return KindRateLimited
	case status == 499:
		return KindCancelled
	case status == 503:
		return KindProviderUnavailable
	case status == 504:
		return KindTimeout
	case status >= 400 && status < 500:
		return KindValidation
	}
	return KindProvider
}

// headerSafe makes s fit one NATS header line: control characters become
// spaces, and it is cut at 512 bytes (the body has the whole text).
func headerSafe(s string) string {
	const limit = 512
	b := make([]byte, 0, min(len(s), limit))
	for i := 0; i < len(s) && len(b) < limit; i++ {
		if c := s[i]; c < 0x20 || c == 0x7f {
			b = append(b, ' ')
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}
