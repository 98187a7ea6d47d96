package httpx

import (
	"bytes"
	"io"
)

// gatherFrom is the length of an unfinished event from which gather holds its
// bytes back.
const gatherFrom = 64 << 10

// gather reads an event stream for the library's scanner, which looks through
// an unfinished event from its beginning whenever a read brings a little more:
// 8 MiB in reads of 16 KiB take it seconds. Ordinary events pass as they come;
// of one above gatherFrom bytes the rest is collected up to the blank line that
// ends it, and handed over at once.
type gather struct {
	r io.Reader

	since int  // bytes handed over since the last blank line
	last  byte // the last byte read
	held  []byte
	err   error // what r ended with, due after held
}

func (g *gather) Read(p []byte) (int, error) {
	if len(g.held) > 0 {
		n := copy(p, g.held)
		g.held = g.held[n:]
		return n, nil
	}
	if g.err != nil {
		return 0, g.err
	}
	if g.since >= gatherFrom {
		g.collect()
		return g.Read(p)
	}
	n, err := g.r.Read(p)
	if end := g.lastBlank(p[:n]); end >= 0 {
		g.since = n - end
	} else {
		g.since += n
	}
	return n, err
}

// collect reads up to the next blank line, the end, or one byte more than the
// scanner will take.
func (g *gather) collect() {
	var buf bytes.Buffer
	chunk := make([]byte, gatherFrom)
	for g.err == nil {
		var n int
		n, g.err = g.r.Read(chunk)
		end := g.lastBlank(chunk[:n])
		buf.Write(chunk[:n])
		if end >= 0 {
			g.since = n - end
			break
		}
		if g.since += n; g.since > MaxEvent {
			break
		}
	}
	g.held = buf.Bytes()
}

// lastBlank returns the index after the last blank line in b, or -1. Two line
// ends in a row are \n\n, \r\r, or \n\r whatever follows; \r\n is only one.
func (g *gather) lastBlank(b []byte) int {
	if len(b) == 0 {
		return -1
	}
	first := g.last
	g.last = b[len(b)-1]
	for i := len(b) - 1; i >= 0; i-- {
		if i = bytes.LastIndexAny(b[:i+1], "\n\r"); i < 0 {
			break
		}
		before := first
		if i > 0 {
			before = b[i-1]
		}
		if before == '\n' || before == '\r' && b[i] == '\r' {
			return i + 1
		}
	}
	return -1
}
