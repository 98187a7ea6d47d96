package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// environmentFile stands in Fault.File for a fault of a variable.
const environmentFile = "environment"

// maxFaults bounds the faults that one Load reports.
const maxFaults = 100

// Fault is one thing wrong with the configuration.
type Fault struct {
	// File is the file's name as it was given, or "environment".
	File string `json:"file"`
	// Line and Column count from 1; 0 = the fault has no place in a file.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Path is the key, dotted, or the variable's name; "" = the whole file.
	Path string `json:"path,omitempty"`
	// Message says what was found and what to do. It never holds a secret.
	Message string `json:"message"`
	// Suggestion is the nearest valid name, or "".
	Suggestion string `json:"suggestion,omitempty"`
}

// String is one line: file:line:column: path: message (did you mean "x"?).
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
	}
	if f.Path != "" {
		b.WriteString(": " + f.Path)
	}
	b.WriteString(": " + f.Message)
	if f.Suggestion != "" {
		fmt.Fprintf(&b, " (did you mean %q?)", f.Suggestion)
	}
	return b.String()
}

// Error is what Load returns: every fault that was found, the file's first by
// line, then the environment's.
type Error struct {
	Faults []Fault

	cause error
}

// Error has one fault a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns why the file could not be read, or nil.
func (e *Error) Unwrap() error { return e.cause }

// arrange orders the faults for a reader and bounds their number.
func arrange(faults []Fault) []Fault {
	slices.SortStableFunc(faults, func(a, b Fault) int {
		return cmp.Or(
			cmp.Compare(btoi(a.File == environmentFile), btoi(b.File == environmentFile)),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
		)
	})
	if more := len(faults) - maxFaults; more > 0 {
		last := faults[maxFaults-1]
		faults = append(faults[:maxFaults:maxFaults], Fault{
			File:    last.File,
			Message: fmt.Sprintf("and %d faults more; mend these first", more),
		})
	}
	return faults
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// keyPrefixes are how the vendors' keys and tokens begin.
var keyPrefixes = []string{
	"sk-", "sk_", "gsk_", "ghp_", "gho_", "ghu_", "ghs_", "github_pat_", "AIza", "xai-", "hf_", "Bearer ",
}

// looksSecret reports whether text may be a key that was put in a wrong place.
func looksSecret(text string) bool {
	for _, p := range keyPrefixes {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return len(text) >= 40 && !strings.ContainsAny(text, " /\n") &&
		strings.ContainsAny(text, "0123456789")
}

// show quotes a text for a message: cut at 40 characters, and hidden when it
// may be a key.
func show(text string) string {
	if looksSecret(text) {
		return fmt.Sprintf("a text of %d characters", utf8.RuneCountInString(text))
	}
	if r := []rune(text); len(r) > 40 {
		return strconv.Quote(string(r[:40])) + "…"
	}
	return strconv.Quote(text)
}

// list writes names for a message: "a, b, c".
func list(names []string) string { return strings.Join(names, ", ") }
