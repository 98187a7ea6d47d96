package wire

import (
	"math/bits"
	"strings"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/subjects"
)

// maxDepth bounds the nesting of a body.
const maxDepth = 200

// checkJSON refuses a body that is not one JSON object in UTF-8 of bounded depth.
func checkJSON(body []byte) *subjects.Error {
	v := view(body)
	if v == "" {
		return invalid("request", "the body is empty; send a JSON object")
	}
	if !utf8.Valid(body) {
		return invalid("request", "not valid UTF-8 at byte %d; encode the body as UTF-8", badUTF8(body))
	}
	if at, problem := check(string(v)); problem != "" {
		line := 1 + strings.Count(string(v[:at]), "\n")
		return invalid("request", "not valid JSON at byte %d (line %d): %s", at, line, problem)
	}
	if !v.isObject() {
		return invalid("request", "must be a JSON object, not %s", v.what())
	}
	return nil
}

func badUTF8(b []byte) int {
	at := 0
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n <= 1 {
			return at
		}
		b, at = b[n:], at+n
	}
	return at
}

// ValidJSON reports whether b is one JSON value in UTF-8 that nests at most 200
// levels deep. It does not recurse: text from a stranger cannot cost a stack.
func ValidJSON(b []byte) bool {
	_, problem := check(string(view(b)))
	return problem == "" && utf8.Valid(b)
}

// What check finds, as its caller reads it.
const (
	early     = "it ends too early; send the whole body"
	unwanted  = "an unexpected character"
	afterEnd  = "more text after the value"
	noKey     = "a key in quotes was expected"
	noColon   = "a colon was expected"
	noComma   = "a comma or a closing bracket was expected"
	badString = "a control character or a wrong escape in a string"
	badNumber = "a wrong number"
	tooNested = "nested more than 200 levels deep; flatten it"
)

// checker is the place in a text and what is open there.
type checker struct {
	s     string
	i     int
	depth int
	open  [maxDepth]byte
}

// check looks whether s is one JSON value, from its first byte to its last,
// within maxDepth. It goes once over the text, does not recurse and stops at
// the first fault: where it is, and what.
//
// It stands in for gjson.Valid, which recurses without a bound, does not say
// where, and is several times slower on long strings, which prompts are.
func check(s string) (at int, problem string) {
	c := checker{s: s}
	if problem = c.value(); problem != "" {
		return c.i, problem
	}
	for c.depth > 0 {
		if problem = c.next(); problem != "" {
			return c.i, problem
		}
	}
	if c.i = skipSpace(s, c.i); c.i < len(s) {
		return c.i, afterEnd
	}
	return c.i, ""
}

// peek skips space and returns the byte there, 0 at the end.
func (c *checker) peek() byte {
	if c.i = skipSpace(c.s, c.i); c.i == len(c.s) {
		return 0
	}
	return c.s[c.i]
}

// value reads a whole scalar, or the opening of an array or object and then
// its first element, and so on inwards.
func (c *checker) value() string {
	for {
		b := c.peek()
		switch {
		case b == '"':
			return c.str()
		case b == '{' || b == '[':
			if c.depth == maxDepth {
				return tooNested
			}
			c.open[c.depth] = b
			c.depth++
			c.i++
			if end := c.peek(); end == b+2 { // } and ] stand two after { and [
				c.i++
				c.depth--
				return ""
			}
			if b == '{' {
				if problem := c.key(); problem != "" {
					return problem
				}
			}
			continue
		case b == '-' || b >= '0' && b <= '9':
			return c.number()
		case b == 't':
			return c.literal("true")
		case b == 'f':
			return c.literal("false")
		case b == 'n':
			return c.literal("null")
		}
		return c.missing(unwanted)
	}
}

// next reads what follows a value inside an array or object.
func (c *checker) next() string {
	open := c.open[c.depth-1]
	switch c.peek() {
	case open + 2:
		c.i++
		c.depth--
		return ""
	case ',':
		c.i++
		if open == '{' {
			if problem := c.key(); problem != "" {
				return problem
			}
		}
		return c.value()
	}
	return c.missing(noComma)
}

func (c *checker) key() string {
	if c.peek() != '"' {
		return c.missing(noKey)
	}
	if problem := c.str(); problem != "" {
		return problem
	}
	if c.peek() != ':' {
		return c.missing(noColon)
	}
	c.i++
	return ""
}

// missing is problem, or the end of the text where that is why.
func (c *checker) missing(problem string) string {
	if c.i >= len(c.s) {
		return early
	}
	return problem
}

func (c *checker) literal(word string) string {
	if !strings.HasPrefix(c.s[c.i:], word) {
		return c.missing(unwanted)
	}
	c.i += len(word)
	return ""
}

func (c *checker) str() string {
	c.i++
	for {
		c.i = plainEnd(c.s, c.i)
		if c.i >= len(c.s) {
			return early
		}
		switch c.s[c.i] {
		case '"':
			c.i++
			return ""
		case '\\':
			n := escapeLen(c.s[c.i:])
			if n == 0 {
				return badString
			}
			c.i += n
		default:
			return badString
		}
	}
}

// escapeLen is the length of the escape that s begins with; 0 = a wrong one.
func escapeLen(s string) int {
	if len(s) < 2 {
		return 0
	}
	switch s[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(s) >= 6 && isHex(s[2]) && isHex(s[3]) && isHex(s[4]) && isHex(s[5]) {
			return 6
		}
	}
	return 0
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

func (c *checker) number() string {
	start := c.i
	if c.s[c.i] == '-' {
		c.i++
	}
	zero := strings.HasPrefix(c.s[c.i:], "0")
	if n := c.digits(); n == 0 || zero && n > 1 {
		c.i = start
		return badNumber
	}
	if strings.HasPrefix(c.s[c.i:], ".") {
		c.i++
		if c.digits() == 0 {
			return badNumber
		}
	}
	if c.i < len(c.s) && c.s[c.i]|0x20 == 'e' {
		c.i++
		if c.i < len(c.s) && (c.s[c.i] == '+' || c.s[c.i] == '-') {
			c.i++
		}
		if c.digits() == 0 {
			return badNumber
		}
	}
	return ""
}

func (c *checker) digits() int {
	start := c.i
	for c.i < len(c.s) && c.s[c.i] >= '0' && c.s[c.i] <= '9' {
		c.i++
	}
	return c.i - start
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plainEnd returns the index of the first byte from i on that is not plain
// text inside a JSON string: a quote, a backslash, or a control character. It
// looks at eight bytes at a time: a byte's high bit is set in m where the byte
// is one of the three; only the lowest one that is set is certain.
func plainEnd(s string, i int) int {
	for ; i+8 <= len(s); i += 8 {
		w := s[i : i+8]
		x := uint64(w[0]) | uint64(w[1])<<8 | uint64(w[2])<<16 | uint64(w[3])<<24 |
			uint64(w[4])<<32 | uint64(w[5])<<40 | uint64(w[6])<<48 | uint64(w[7])<<56
		quote := x ^ '"'*ones
		slash := x ^ '\\'*ones
		m := (x - 0x20*ones) &^ x
		m |= (quote - ones) &^ quote
		m |= (slash - ones) &^ slash
		if m &= highs; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' {
			break
		}
	}
	return i
}
