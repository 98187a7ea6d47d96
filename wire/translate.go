package wire

import (
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// What the dialects of providers have in common when the hub form is written in
// them.

// cannot is the error for what an API, or one model of it, is known to refuse:
// nothing is sent, and another provider may do it. 422 says that it is about this
// request.
func cannot(format string, args ...any) *subjects.Error {
	err := subjects.Errorf(subjects.KindProviderUnavailable, format, args...)
	err.HTTPStatus = subjects.KindCapabilityMissing.Status()
	return err
}

// appendArguments writes the arguments of a tool call where they must be an
// object. Another model may have written something else; it is shown as it was,
// and text says so.
func appendArguments(dst []byte, args string) (out []byte, text bool) {
	args = strings.TrimSpace(args)
	if args == "" {
		return append(dst, "{}"...), false
	}
	if _, problem := check(args); problem == "" && args[0] == '{' {
		return append(dst, args...), false
	}
	return append(appendText(append(dst, '{'), "arguments", args), '}'), true
}

// asText is the warning that goes with it.
func asText(provider string) string {
	return "a tool call's arguments that are no JSON object were sent to " + provider + " as text"
}
