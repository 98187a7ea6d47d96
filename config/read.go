package config

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/sluice-llm/sluice/subjects"
)

// bounds are the least and the greatest value of a number, and its unit.
// orNone says that the word none may stand for NoLimit.
type bounds struct {
	lo, hi int64
	unit   string
	orNone bool
}

func (b bounds) must() string {
	unit := b.unit
	if unit != "" {
		unit = " of " + unit
	}
	must := fmt.Sprintf("must be a whole number%s from %d to %d", unit, b.lo, b.hi)
	if b.orNone {
		must += noLimitHint
	}
	return must
}

// noLimit is written where an amount is not bounded.
const (
	noLimit     = "none"
	noLimitHint = ", or " + noLimit + " for no limit"
)

// isNone reports whether the value is the word for no limit.
func (v value) isNone() bool {
	raw, ok := rawText(v.node)
	return ok && raw == noLimit
}

// parseWhole reads a whole number in plain digits within bounds.
func parseWhole(text string, b bounds) (int64, bool) {
	if text == "" || len(text) > 18 || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	if text[0] == '0' && len(text) > 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= b.lo && n <= b.hi
}

// whole reads a whole number into to.
func whole[T ~int | ~int64](to *T, b bounds) func(value) {
	return func(v value) {
		if v.describing() {
			v.describeWhole(int64(*to), b)
			return
		}
		if b.orNone && v.isNone() {
			*to = NoLimit
			return
		}
		text, ok := v.plain(b.must())
		if !ok {
			return
		}
		n, fits := parseWhole(text, b)
		if !fits {
			v.wrong(b.must())
			return
		}
		*to = T(n)
	}
}

func (v value) describeWhole(def int64, b bounds) {
	v.number("integer", b.lo, b.hi)
	v.standard(def)
	if b.orNone {
		v.orWord(noLimit)
		if def == NoLimit {
			v.standard(noLimit)
		}
	}
}

// millis reads milliseconds into a duration, which is a whole number of them.
func millis(to *time.Duration, lo, hi int64) func(value) {
	return func(v value) {
		ms := to.Milliseconds()
		whole(&ms, bounds{lo: lo, hi: hi, unit: "milliseconds"})(v)
		*to = time.Duration(ms) * time.Millisecond
	}
}

// fraction is a number in plain digits.
var fraction = regexp.MustCompile(`^([0-9]+\.?[0-9]*|\.[0-9]+)$`)

// decimal reads a number from 0 to hi into to.
func decimal(to *float64, hi float64) func(value) {
	must := "must be a number from 0 to " + strconv.FormatFloat(hi, 'f', -1, 64)
	return func(v value) {
		if v.describing() {
			v.number("number", 0, hi)
			v.standard(*to)
			return
		}
		text, ok := v.plain(must)
		if !ok {
			return
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n > hi || !fraction.MatchString(text) {
			v.wrong(must)
			return
		}
		*to = n
	}
}

// dollars reads an amount that may be unlimited, exactly to a micro-dollar.
func dollars(to *subjects.USD) func(value) {
	must := fmt.Sprintf("must be US dollars in plain digits, from 0 to %d, with at most 6 decimals", int64(maxUSD)) + noLimitHint
	return func(v value) {
		switch {
		case v.describing():
			v.number("number", 0, int64(maxUSD))
			v.orWord(noLimit)
			if v.standard(json.Number(to.String())); *to == NoLimit {
				v.standard(noLimit)
			}
			return
		case v.isNone():
			*to = NoLimit
			return
		}
		text, ok := v.plain(must)
		if !ok {
			return
		}
		n, fits := parseMicro(text, maxUSD)
		if !fits {
			v.wrong(must)
			return
		}
		*to = subjects.USD(n)
	}
}

// boolean reads true or false into to.
func boolean(to *bool) func(value) {
	const must = "must be true or false, without quotes"
	return func(v value) {
		if v.describing() {
			v.says(schema{"type": "boolean"})
			v.orVariable()
			v.standard(*to)
			return
		}
		text, ok := v.plain(must)
		if !ok {
			return
		}
		switch text {
		case "true", "True", "TRUE":
			*to = true
		case "false", "False", "FALSE":
			*to = false
		default:
			v.wrong(must)
		}
	}
}

// oneOf reads one of a few words into to.
func oneOf(to *string, words []string) func(value) {
	return func(v value) {
		if v.describing() {
			v.words(words, *to)
			return
		}
		text, ok := v.text()
		switch {
		case !ok:
		case slices.Contains(words, text):
			*to = text
		default:
			v.suggest(subjects.Nearest(text, words), "found %s; %s", describe(v.node), mustBe(words))
		}
	}
}

func mustBe(words []string) string {
	if len(words) == 1 {
		return "must be " + words[0]
	}
	return "must be one of " + list(words)
}

// name reads a model id, task or the like: short, one line, nothing around it.
func (v value) name() (string, bool) {
	v.says(nameShape())
	text, ok := v.text()
	if !ok {
		return "", false
	}
	if problem := badName(text); problem != "" {
		v.fault("found %s; %s", describe(v.node), problem)
		return "", false
	}
	return text, true
}

// badName says why text is no name; "" when it is one.
func badName(text string) string {
	switch {
	case text == "":
		return "must not be empty"
	case len(text) > subjects.MaxName:
		return fmt.Sprintf("has %d bytes, must have at most %d", len(text), subjects.MaxName)
	case strings.TrimSpace(text) != text:
		return "must have no space around it"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "must have no control character in it"
	}
	return ""
}
