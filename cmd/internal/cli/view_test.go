package cli

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

func TestTableFitsAnyWidth(t *testing.T) {
	tb := &table{totals: true, columns: []column{{title: "NAME"}, {title: "N", right: true}, {title: "NOTE", drop: 1}, {title: "ZERO", none: "0"}}}
	tb.add(texts("a rather long name", "1,234", "hä\x1b[2Jhä", "0")...)
	tb.add(texts("total", "5", "", "0")...)
	for width := range 60 {
		s := stream{width: func() int { return width }}
		for _, line := range tb.lines(s) {
			if n := utf8.RuneCountInString(line); width > 0 && n > width {
				t.Errorf("width %d: %d runes: %q", width, n, line)
			}
			if strings.Contains(line, "\x1b") || strings.Contains(line, "ZERO") {
				t.Errorf("width %d: %q", width, line)
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", -999: "-999"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, not %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0 ms", 1499 * time.Microsecond: "1 ms", time.Second: "1 s", 1400 * time.Millisecond: "1.4 s", 12 * time.Second: "12 s",
		185 * time.Second: "3 min 5 s", 5 * time.Minute: "5 min", 2 * time.Hour: "2 h", 48 * time.Hour: "2 days", 125 * time.Minute: "2 h 5 min", 75 * time.Hour: "3 days 3 h",
	} {
		if got := durationText(d); got != want {
			t.Errorf("durationText(%d) = %q, not %q", d, got, want)
		}
	}
}

func TestSpinner(t *testing.T) {
	for name, tc := range map[string]struct {
		tty   bool
		lasts time.Duration
		want  string
	}{
		"short":       {tty: true, lasts: 900 * time.Millisecond},
		"no terminal": {lasts: time.Minute},
		"long":        {tty: true, lasts: 1150 * time.Millisecond, want: "\r\x1b[K⠋ thinking 1 s\r\x1b[K⠙ thinking 1 s\r\x1b[K"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ses := newSession("", terminal{errTTY: tc.tty})
				stop := ses.app.spin("thinking")
				<-time.After(tc.lasts)
				stop()
				stop()
				if got := ses.err.String(); got != tc.want {
					t.Errorf("%q, not %q", got, tc.want)
				}
			})
		})
	}
}

func TestColoursAreAskedFor(t *testing.T) {
	s := newStream(newBuffer(), environ{})
	if s.tty || s.colour || s.width() != 0 {
		t.Errorf("a buffer is taken for a terminal: %+v", s)
	}
}

func TestSafe(t *testing.T) {
	if got := safe("a\x1b[31m\n\u009b b"); got != "a?[31m?? b" {
		t.Errorf("%q", got)
	}
	if got := safeText("a\tb\r\nc\x07"); got != "a\tb\nc?" {
		t.Errorf("%q", got)
	}
}

func TestEnvironment(t *testing.T) {
	e := environ{"A=1", "A=2=3", "B=", "CA=4"}
	if e.get("A") != "2=3" || e.get("B") != "" || e.get("C") != "" {
		t.Errorf("%q %q %q", e.get("A"), e.get("B"), e.get("C"))
	}
}
