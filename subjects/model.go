package subjects

import (
	"bytes"
	"unicode/utf8"
)

// CanonicalModel writes a model id the one way that usage rows and prices use,
// so that one model is one row however a provider spells it:
//
//   - lower-case (ASCII), with words joined by "-";
//   - without the date of a snapshot: "gpt-4.1-2025-04-14" is "gpt-4.1";
//   - Claude's version with a point, without ".0", "-latest" and the "[1m]" of a
//     long context: "claude-sonnet-4-5-20250929", "Claude Sonnet 4.5" and
//     "claude-sonnet-4.5" are one, "claude-3-5-haiku-latest" is "claude-3.5-haiku";
//   - Gemini's without the number of a release ("-001") and without "models/",
//     the form in which that API lists them;
//   - without ":latest", the tag that Ollama and Docker leave out. Any other tag
//     is another model: "ai/llama3.2:3b-q4_k_m" stays;
//   - without the publisher's name where the family is its own: "openai/gpt-4.1",
//     as GitHub Models has it, is "gpt-4.1". The publisher of open weights stays
//     ("openai/gpt-oss-120b"): there, hosts have it in the id.
//
// A name that moves with time ("gemini-flash-latest", "chatgpt-4o-latest") is no
// spelling of another and stays. It is idempotent, and safe on any text: bytes
// that are not UTF-8 go, and what is over MaxName bytes is cut.
func CanonicalModel(id string) string {
	if len(id) > MaxName {
		id = id[:MaxName]
	}
	var buf [MaxName]byte
	name := foldModel(buf[:0], id)
	for changed := true; changed; {
		name, changed = shortenModel(name)
	}
	if string(name) == id {
		return id
	}
	return string(name)
}

// shortenModel takes one thing off a name or makes a "-" of it a ".", and says
// whether it did: so this ends, and the last name stays as it is.
func shortenModel(b []byte) ([]byte, bool) {
	if out, did := cutTag(b); did {
		return out, true
	}
	if out, did := cutPublisher(b); did {
		return out, true
	}
	if out, did := cutDate(b); did {
		return out, true
	}
	if out, did := shortenClaude(b); did {
		return out, true
	}
	return cutRelease(b)
}

// foldModel appends id lower-cased, each run of spaces or control characters in
// it as one "-", and those at its ends left out.
func foldModel(b []byte, id string) []byte {
	gap := false
	for i, r := range id {
		size := 1
		if r >= utf8.RuneSelf {
			if r, size = utf8.DecodeRuneInString(id[i:]); r == utf8.RuneError && size == 1 {
				continue
			}
		}
		if r <= ' ' || r >= 0x7f && r <= 0xa0 {
			gap = len(b) > 0
			continue
		}
		if gap {
			b, gap = append(b, '-'), false
		}
		if size > 1 {
			b = append(b, id[i:i+size]...)
			continue
		}
		c := id[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}

func cutSuffix(b []byte, suffix string) ([]byte, bool) {
	n := len(b) - len(suffix)
	if n < 1 || string(b[n:]) != suffix {
		return b, false
	}
	return b[:n], true
}

func cutTag(b []byte) ([]byte, bool) { return cutSuffix(b, ":latest") }

// publishers have, for each, how the names of its own families begin and which
// of those are open weights. "models/" is how the Gemini API lists a model.
var publishers = [...]struct {
	prefix, open string
	families     []string
}{
	{"anthropic/", "", []string{"claude-"}},
	{"openai/", "gpt-oss", []string{"gpt-", "chatgpt-", "o1", "o3", "o4"}},
	{"google/", "", []string{"gemini-"}},
	{"models/", "", []string{"gemini-", "gemma-"}},
}

func cutPublisher(b []byte) ([]byte, bool) {
	for i := range publishers {
		p := &publishers[i]
		if !hasPrefix(b, p.prefix) {
			continue
		}
		base := b[len(p.prefix):]
		if p.open != "" && hasPrefix(base, p.open) {
			return b, false
		}
		for _, family := range p.families {
			if hasPrefix(base, family) {
				return base, true
			}
		}
	}
	return b, false
}

func hasPrefix(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && string(b[:len(prefix)]) == prefix
}

// cutDate takes -YYYYMMDD, @YYYYMMDD or -YYYY-MM-DD off the end.
func cutDate(b []byte) ([]byte, bool) {
	if n := len(b) - 9; n > 0 && (b[n] == '-' || b[n] == '@') && isDate(b[n+1:n+5], b[n+5:n+7], b[n+7:]) {
		return b[:n], true
	}
	if n := len(b) - 11; n > 0 && b[n] == '-' && b[n+5] == '-' && b[n+8] == '-' && isDate(b[n+1:n+5], b[n+6:n+8], b[n+9:]) {
		return b[:n], true
	}
	return b, false
}

func isDate(year, month, day []byte) bool {
	return digits(year) && hasPrefix(year, "20") &&
		digits(month) && string(month) >= "01" && string(month) <= "12" &&
		digits(day) && string(day) >= "01" && string(day) <= "31"
}

func digits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

// family returns where the name after the last "/" begins, when that is of a family.
func family(b []byte, prefix string) (at int, ok bool) {
	at = bytes.LastIndexByte(b, '/') + 1
	return at, hasPrefix(b[at:], prefix)
}

// shortenClaude writes the version with a point and drops what says nothing:
// Anthropic's own ids write 4.5 as 4-5, everyone else's as 4.5.
func shortenClaude(b []byte) ([]byte, bool) {
	at, ok := family(b, "claude-")
	if !ok {
		return b, false
	}
	for _, suffix := range [...]string{"[1m]", "-latest"} {
		if out, did := cutSuffix(b, suffix); did {
			return out, true
		}
	}
	for i := at; i < len(b); i++ {
		switch {
		case b[i] == '-' && shortNumber(lastWord(b[at:i])) && shortNumber(firstWord(b[i+1:])):
			b[i] = '.'
			return b, true
		case b[i] == '.' && isZero(b, i):
			return append(b[:i], b[i+2:]...), true
		}
	}
	return b, false
}

// isZero reports whether b has a word's end of ".0" at i.
func isZero(b []byte, i int) bool {
	return i+1 < len(b) && b[i+1] == '0' && (i+2 == len(b) || b[i+2] == '-')
}

// shortNumber reports whether a word is part of a version: one or two digits.
func shortNumber(word []byte) bool { return len(word) <= 2 && digits(word) }

// firstWord is b up to its first "-".
func firstWord(b []byte) []byte {
	if i := bytes.IndexByte(b, '-'); i >= 0 {
		return b[:i]
	}
	return b
}

// lastWord is b from after its last "-".
func lastWord(b []byte) []byte { return b[bytes.LastIndexByte(b, '-')+1:] }

// cutRelease takes -001 to -009 off the end of a Gemini model's name.
func cutRelease(b []byte) ([]byte, bool) {
	n := len(b) - 4
	if n < 1 || !hasPrefix(b[n:], "-00") || b[n+3] < '1' || b[n+3] > '9' {
		return b, false
	}
	if _, ok := family(b[:n], "gemini-"); !ok {
		return b, false
	}
	return b[:n], true
}
