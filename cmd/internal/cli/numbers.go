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

// dollars writes an amount with at least the cents, unless it is whole.
func dollars(u subjects.USD) string {
	s := u.String()
	if dot := strings.IndexByte(s, '.'); dot >= 0 && len(s)-dot == 2 {
		s += "0"
	}
	return "$" + s
}
