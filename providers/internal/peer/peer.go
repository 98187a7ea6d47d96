// Package peer says what the errors of a party that speaks Sluice's own wire mean
// on this side: of another Sluice behind the proxy, of an outside provider.
//
// A kind stays what it is, with these exceptions. What ends the other side's
// chain ends one attempt of ours: NO_PROVIDER and CAPABILITY_MISSING become
// PROVIDER_UNAVAILABLE, and RATE_LIMITED where all that the other side has waits
// for a limit. AUTH_ERROR about one of the other side's own accounts says nothing
// of ours: PROVIDER_UNAVAILABLE. CANCELLED, when nobody here cancelled, is the
// other side's failure: PROVIDER_ERROR.
package peer

import (
	"net/http"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/providers/internal/httpx"
	"github.com/sluice-llm/sluice/subjects"
)

const (
	// maxWait bounds what another party may ask us to wait.
	maxWait = 24 * time.Hour
	// maxCode bounds a code or a field's name, in bytes.
	maxCode = 64
)

// Meaning returns the kind of e on this side, and the status to show where it is
// not the kind's own.
func Meaning(e *subjects.Error) (kind subjects.Kind, status int) {
	switch e.Kind {
	case subjects.KindNoProvider:
		if e.Status() == http.StatusTooManyRequests {
			return subjects.KindRateLimited, 0
		}
		return subjects.KindProviderUnavailable, 0
	case subjects.KindCapabilityMissing:
		return subjects.KindProviderUnavailable, e.Kind.Status()
	case subjects.KindCancelled:
		return subjects.KindProvider, 0
	case subjects.KindAuth:
		if e.Provider != "" {
			return subjects.KindProviderUnavailable, 0
		}
	case subjects.KindValidation:
		switch e.HTTPStatus {
		case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
			return subjects.KindProviderUnavailable, 0 // it has no such route: not the caller's fault
		}
	}
	if !e.Kind.Known() {
		return subjects.KindProvider, 0
	}
	if status = e.HTTPStatus; status < 400 || status > 599 {
		status = 0
	}
	return e.Kind, status
}

// Error returns what another party's error is on this side: its kind by Meaning,
// its text cleaned of keys and of secret, bounded throughout. The other side's
// call id, trail and provider stay there.
func Error(e *subjects.Error, secret string) *subjects.Error {
	kind, status := Meaning(e)
	text := httpx.Clean(e.Message, secret)
	if text == "" {
		text = "it failed, and did not say how"
	}
	out := subjects.Errorf(kind, "%s", text)
	out.HTTPStatus = status
	out.RetryAfter = min(max(e.RetryAfter, 0), maxWait)
	if kind == subjects.KindValidation || kind == subjects.KindContentPolicy {
		out.Code, out.Param = word(e.Code, secret), word(e.Param, secret)
	}
	return out
}

// word passes a code or a field's name on, if it looks like one.
func word(s, secret string) string {
	odd := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_.-[]", c))
	}
	if len(s) > maxCode || strings.ContainsFunc(s, odd) || secret != "" && strings.Contains(s, secret) {
		return ""
	}
	return s
}
