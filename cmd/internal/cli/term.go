package cli

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// stream is an output and what is known of it.
type stream struct {
	io.Writer
	// tty says that a person looks at it.
	tty bool
	// colour says that escape sequences for colour are welcome.
	colour bool
	// width is the number of columns; 0 = unlimited. It is asked anew for each
	// table, because windows are resized.
	width func() int
}

func newStream(w io.Writer, env environ) stream {
	s := stream{Writer: w, width: func() int { return 0 }}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	s.tty = true
	s.colour = env.get("NO_COLOR") == "" && env.get("TERM") != "dumb"
	s.width = func() int {
		w, _, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 80
		}
		return w
	}
	return s
}

// Colours. The zero value is none.
type colour string

const (
	plain  colour = ""
	bold   colour = "1"
	dim    colour = "2"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	cyan   colour = "36"
)

// paint colours text where colours are welcome.
func (s stream) paint(c colour, text string) string {
	if !s.colour || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// safe makes text fit one line of a terminal: control characters, which may be
// escape sequences that somebody sent as a name, become "?".
func safe(text string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, text)
}

// safeText is safe for text of many lines: newlines and tabs stay.
func safeText(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r':
			return -1
		case r < 0x20 || r >= 0x7f && r < 0xa0:
			return '?'
		}
		return r
	}, text)
}
