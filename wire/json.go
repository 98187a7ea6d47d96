package wire

import (
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/subjects"
)

// raw is the JSON text of one value, without space around it. Its methods
// expect valid JSON and do no harm with other text: they end early.
//
// It walks a body without decoding it: a string's escapes are undone only when
// the string is asked for, which gjson's own iteration does for every value.
type raw string

// view makes a raw of bytes without copying them. The bytes must not change
// while it is used.
func view(b []byte) raw {
	s := unsafe.String(unsafe.SliceData(b), len(b))
	s = s[skipSpace(s, 0):]
	for len(s) > 0 && isSpace(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return raw(s)
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// kind is the first byte, which tells a JSON value's type; 0 for none.
func (v raw) kind() byte {
	if v == "" {
		return 0
	}
	return v[0]
}

func (v raw) isNull() bool   { return v.kind() == 'n' }
func (v raw) isString() bool { return v.kind() == '"' }
func (v raw) isObject() bool { return v.kind() == '{' }
func (v raw) isArray() bool  { return v.kind() == '[' }
func (v raw) isBool() bool   { return v.kind() == 't' || v.kind() == 'f' }
func (v raw) isNumber() bool { return v.kind() == '-' || v.kind() >= '0' && v.kind() <= '9' }

// what names the type for an error.
func (v raw) what() string {
	switch {
	case v.isString():
		return "a string"
	case v.isObject():
		return "an object"
	case v.isArray():
		return "an array"
	case v.isBool():
		return "a boolean"
	case v.isNumber():
		return "a number"
	case v.isNull():
		return "null"
	}
	return "nothing"
}

// inner is the text between a string's quotes, escapes and all.
func (v raw) inner() string {
	if !v.isString() || len(v) < 2 {
		return ""
	}
	return string(v[1 : len(v)-1])
}

// str is a string's value; it shares the body's memory where it can.
func (v raw) str() string {
	s := v.inner()
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	return gjson.Parse(string(v)).Str
}

// textLen is the length of a string's value in bytes, without making it.
func (v raw) textLen() int {
	s := v.inner()
	n := len(s)
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 || i+1 >= len(s) {
			return n
		}
		if s[i+1] == 'u' && i+6 <= len(s) {
			n -= 6 - escapedLen(s[i+2:i+6])
			s = s[i+6:]
			continue
		}
		n--
		s = s[i+2:]
	}
}

// escapedLen is the length in UTF-8 of one \uXXXX; each half of a surrogate
// pair counts two of the pair's four bytes.
func escapedLen(hex string) int {
	n, err := strconv.ParseUint(hex, 16, 32)
	switch {
	case err != nil:
		return 0
	case n < 0x80:
		return 1
	case n < 0x800, n >= 0xd800 && n < 0xe000:
		return 2
	}
	return 3
}

func skipSpace(s string, i int) int {
	for i < len(s) && isSpace(s[i]) {
		i++
	}
	return i
}

// skipString returns the index after the string that starts at s[i]. A quote
// ends it unless an odd number of backslashes stands before the quote.
func skipString(s string, i int) int {
	for end := i + 1; ; end++ {
		q := strings.IndexByte(s[end:], '"')
		if q < 0 {
			return len(s)
		}
		end += q
		k := end
		for k > i+1 && s[k-1] == '\\' {
			k--
		}
		if (end-k)%2 == 0 {
			return end + 1
		}
	}
}

// skipValue returns the index after the value that starts at s[i].
func skipValue(s string, i int) int {
	depth := 0
	for i < len(s) {
		switch c := s[i]; c {
		case '"':
			i = skipString(s, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
			i++
		case ',', ':', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
			i++
			continue
		default:
			i++
			if depth == 0 && i < len(s) && !ends(s[i]) {
				continue
			}
			if depth > 0 {
				continue
			}
		}
		if depth == 0 {
			return i
		}
	}
	return len(s)
}

func ends(c byte) bool { return isSpace(c) || c == ',' || c == ':' || c == '}' || c == ']' }

// field is one member of an object. At is where its key starts and To where
// its value ends, in the object's text.
type field struct {
	Key   string
	Value raw
	At    int
	From  int
	To    int
}

// fields walks an object's members in order; of anything else there are none.
func (v raw) fields() iter.Seq[field] {
	return func(yield func(field) bool) {
		if !v.isObject() {
			return
		}
		s := string(v)
		for i := skipSpace(s, 1); i < len(s) && s[i] == '"'; {
			f := field{At: i}
			i = skipString(s, i)
			f.Key = raw(s[f.At:i]).str()
			if i = skipSpace(s, i); i >= len(s) || s[i] != ':' {
				return
			}
			f.From = skipSpace(s, i+1)
			f.To = skipValue(s, f.From)
			f.Value = raw(s[f.From:f.To])
			if !yield(f) {
				return
			}
			if i = skipSpace(s, f.To); i >= len(s) || s[i] != ',' {
				return
			}
			i = skipSpace(s, i+1)
		}
	}
}

// items walks an array's elements in order; of anything else there are none.
func (v raw) items() iter.Seq2[int, raw] {
	return func(yield func(int, raw) bool) {
		if !v.isArray() {
			return
		}
		s := string(v)
		for n, i := 0, skipSpace(s, 1); i < len(s) && s[i] != ']'; n++ {
			end := skipValue(s, i)
			if end == i || !yield(n, raw(s[i:end])) {
				return
			}
			if i = skipSpace(s, end); i >= len(s) || s[i] != ',' {
				return
			}
			i = skipSpace(s, i+1)
		}
	}
}

// get returns an object's member, the last one of that key; "" when it has none.
func (v raw) get(key string) raw {
	var found raw
	for f := range v.fields() {
		if f.Key == key {
			found = f.Value
		}
	}
	return found
}

// count is the number of an array's elements.
func (v raw) count() int {
	n := 0
	for range v.items() {
		n++
	}
	return n
}

// reader reads values and keeps the first fault. A null reads as not said.
type reader struct{ err *subjects.Error }

func (r *reader) fail(e *subjects.Error) {
	if r.err == nil {
		r.err = e
	}
}

func (r *reader) boolean(place string, v raw) bool {
	if !v.isBool() && !v.isNull() {
		r.fail(invalid(place, "must be true or false, not %s", v.what()))
	}
	return v.kind() == 't'
}

// name reads a short string that routing or accounting uses.
func (r *reader) name(place string, v raw, limit int) string {
	if v.isNull() {
		return ""
	}
	if !v.isString() {
		r.fail(invalid(place, "must be a string, not %s", v.what()))
		return ""
	}
	s := v.str()
	if err := CheckName(place, s, limit); err != nil {
		r.fail(subjects.AsError(err))
		return ""
	}
	return strings.Clone(s)
}

// oneOf reads a string that is one of few; the empty string reads as not said.
func (r *reader) oneOf(place string, v raw, allowed ...string) string {
	s := r.name(place, v, subjects.MaxName)
	if s == "" {
		return ""
	}
	for _, a := range allowed {
		if s == a {
			return a
		}
	}
	r.fail(invalid(place, "must be one of %s", strings.Join(allowed, ", ")))
	return ""
}

// whole reads a whole number within [low, high]; ok is false for null and faults.
func (r *reader) whole(place string, v raw, low, high int64) (n int64, ok bool) {
	if v.isNull() {
		return 0, false
	}
	if !v.isNumber() {
		r.fail(invalid(place, "must be a whole number, not %s", v.what()))
		return 0, false
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < low || n > high {
		r.fail(invalid(place, "must be a whole number from %d to %d", low, high))
		return 0, false
	}
	return n, true
}

// number checks a number within [low, high].
func (r *reader) number(place string, v raw, low, high float64) {
	if v.isNull() {
		return
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if !v.isNumber() {
		r.fail(invalid(place, "must be a number, not %s", v.what()))
	} else if err != nil || f < low || f > high {
		r.fail(invalid(place, "must be a number from %g to %g", low, high))
	}
}

// text checks a string of any length.
func (r *reader) text(place string, v raw) {
	if !v.isString() && !v.isNull() {
		r.fail(invalid(place, "must be a string, not %s", v.what()))
	}
}

// object checks for an object.
func (r *reader) object(place string, v raw) bool {
	if v.isNull() {
		return false
	}
	if !v.isObject() {
		r.fail(invalid(place, "must be an object, not %s", v.what()))
		return false
	}
	return true
}

// array checks for an array.
func (r *reader) array(place string, v raw) bool {
	if v.isNull() {
		return false
	}
	if !v.isArray() {
		r.fail(invalid(place, "must be an array, not %s", v.what()))
		return false
	}
	return true
}

// each checks that v is an array of at most limit elements and reads each one;
// a fault inside gets the element's place in front. It returns their number.
func (r *reader) each(place string, v raw, limit int, read func(raw)) int {
	if !r.array(place, v) {
		return 0
	}
	n := 0
	for i, item := range v.items() {
		if n++; n > limit {
			r.fail(invalid(place, "has more than %d entries; send fewer", limit))
			return n
		}
		if read(item); r.err != nil {
			r.within(place + "[" + strconv.Itoa(i) + "]")
			return n
		}
	}
	return n
}

// within puts a place in front of the fault's own.
func (r *reader) within(place string) {
	if r.err == nil {
		return
	}
	if !strings.HasPrefix(r.err.Message, ":") {
		place += "."
	}
	r.err.Message = place + r.err.Message
}

// stop checks stop sequences: a string or a list of them.
func (r *reader) stop(place string, v raw) {
	if v.isString() {
		return
	}
	r.each(place, v, maxStop, func(s raw) {
		if !s.isString() {
			r.fail(invalid("", "must be a string, not %s", s.what()))
		}
	})
}

// unknown refuses a member by name, with the nearest one that is known.
func (r *reader) unknown(key string, known []string) {
	if len(key) > 64 {
		key = strings.ToValidUTF8(key[:64], "") + "…"
	}
	if near := subjects.Nearest(key, known); near != "" {
		r.fail(invalid(printable(key), "unknown field; did you mean %s? The fields are %s", near, strings.Join(known, ", ")))
		return
	}
	r.fail(invalid(printable(key), "unknown field; remove it. The fields are %s", strings.Join(known, ", ")))
}

// CheckName refuses a name (process, task, model, call id, …) that is longer
// than limit bytes, is not valid UTF-8 or has control characters. field names
// it in the error; the empty name passes.
func CheckName(field, name string, limit int) error {
	if len(name) > limit {
		return invalid(field, "is %d bytes long; at most %d are allowed", len(name), limit)
	}
	for i, c := range name {
		if c < 0x20 || c >= 0x7f && c < 0xa0 {
			return invalid(field, "has a control character at byte %d; remove it", i)
		}
		if c == utf8.RuneError && !strings.HasPrefix(name[i:], "\uFFFD") {
			return invalid(field, "is not valid UTF-8 at byte %d", i)
		}
	}
	return nil
}

// invalid makes the VALIDATION_ERROR for one value: its place, what is wrong
// with it and what to do. It never has the value itself.
func invalid(place, format string, args ...any) *subjects.Error {
	return subjects.Errorf(subjects.KindValidation, "%s: %s", place, fmt.Sprintf(format, args...))
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
