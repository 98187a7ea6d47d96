package wire

import (
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// CanonicalModel writes a model id the one way that usage rows use: lower-case,
// words joined by "-", without the date of a snapshot ("gpt-4o-2024-08-06" is
// "gpt-4o"). Claude's ids come in several spellings; "claude-sonnet-4-5",
// "Claude Sonnet 4.5" and "claude-sonnet-4-5-20250929" are "claude-sonnet-4.5".
// A publisher in front ("openai/gpt-oss-120b") stays. It is idempotent; a name
// longer than subjects.MaxName bytes is cut.
func CanonicalModel(id string) string {
	if len(id) > subjects.MaxName {
		id = id[:subjects.MaxName]
	}
	id = joinWords(strings.ToValidUTF8(id, ""))
	for {
		next := shorten(id)
		if next == id {
			return id
		}
		id = next
	}
}

// shorten does one step; each takes characters away or makes a "-" a ".".
func shorten(id string) string {
	id = stripDate(id)
	slash := strings.LastIndexByte(id, '/') + 1
	if base := id[slash:]; strings.HasPrefix(base, "claude-") {
		return id[:slash] + canonicalClaude(base)
	}
	return id
}

// joinWords lower-cases, and writes each run of spaces as one "-". Control
// characters count as spaces; those at the ends go.
func joinWords(s string) string {
	words := strings.FieldsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f && r <= 0xa0
	})
	return strings.ToLower(strings.Join(words, "-"))
}

// stripDate takes -YYYYMMDD, @YYYYMMDD or -YYYY-MM-DD off the end.
func stripDate(s string) string {
	if n := len(s) - 9; n > 0 && (s[n] == '-' || s[n] == '@') && isDate(s[n+1:n+5], s[n+5:n+7], s[n+7:]) {
		return s[:n]
	}
	if n := len(s) - 11; n > 0 && s[n] == '-' && s[n+5] == '-' && s[n+8] == '-' && isDate(s[n+1:n+5], s[n+6:n+8], s[n+9:]) {
		return s[:n]
	}
	return s
}

func isDate(year, month, day string) bool {
	return digits(year) && strings.HasPrefix(year, "20") &&
		digits(month) && month >= "01" && month <= "12" &&
		digits(day) && day >= "01" && day <= "31"
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// canonicalClaude writes the version with a point and drops ".0" and "-latest":
// Anthropic's own ids write 4.5 as 4-5, everyone else's as 4.5.
func canonicalClaude(s string) string {
	words := strings.Split(strings.TrimSuffix(s, "-latest"), "-")
	out := words[:0:0]
	for _, w := range words {
		if last := len(out) - 1; last >= 0 && short(w) && short(out[last]) {
			w = out[last] + "." + w
			out = out[:last]
		}
		out = append(out, strings.TrimSuffix(w, ".0"))
	}
	return strings.Join(out, "-")
}

// short reports whether s is a version number's part: one or two digits.
func short(s string) bool { return len(s) <= 2 && digits(s) }
