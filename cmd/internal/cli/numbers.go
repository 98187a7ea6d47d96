package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// count writes a whole number with a comma between thousands.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// millis writes a time given in milliseconds.
func millis(ms float64) string {
	return durationText(time.Duration(ms * float64(time.Millisecond)))
}

// percent writes a share of 0 to 1.
func percent(share float64) string { return fmt.Sprintf("%.1f %%", share*100) }

// clock writes a moment: the time of day, with the date where that is another
// than today.
func (a *app) clock(t time.Time) string {
	t, now := t.In(a.loc), a.now().In(a.loc)
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format("2006-01-02 15:04")
}

// when writes a moment that is to come, and how far off it is; "" for none.
func (a *app) when(t *subjects.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	left := t.Sub(a.now()).Round(time.Second)
	if left <= 0 {
		return a.clock(t.Time) + " (now)"
	}
	return a.clock(t.Time) + " (in " + durationText(left) + ")"
}

// dollars writes an amount with at least the cents, unless it is whole.
func dollars(u subjects.USD) string {
	s := u.String()
	if dot := strings.IndexByte(s, '.'); dot >= 0 && len(s)-dot == 2 {
		s += "0"
	}
	return "$" + s
}
