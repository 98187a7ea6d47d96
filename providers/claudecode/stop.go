package claudecode

import "strings"

// cutter ends a text in front of the first of its stop sequences, as an API that
// knows them does; the program has no place for them. It holds back the end of
// what it has seen while that may be the beginning of one.
type cutter struct {
	stops []string
	held  string
}

// feed takes the next piece. It returns what is certainly in front of a stop
// sequence, and whether one was found: then nothing more belongs to the text.
func (c *cutter) feed(piece string) (text string, found bool) {
	if len(c.stops) == 0 {
		return piece, false
	}
	text = c.held + piece
	c.held = ""
	// The one that is complete first, wherever the pieces are cut; of two that end
	// together the longer.
	start, end := -1, 0
	for _, s := range c.stops {
		i := strings.Index(text, s)
		if i >= 0 && (start < 0 || i+len(s) < end || i+len(s) == end && i < start) {
			start, end = i, i+len(s)
		}
	}
	if start >= 0 {
		return text[:start], true
	}
	n := c.maybe(text)
	c.held = text[len(text)-n:]
	return text[:len(text)-n], false
}

// maybe is the length of the longest end of text that a stop sequence begins with.
func (c *cutter) maybe(text string) int {
	most := 0
	for _, s := range c.stops {
		for n := min(len(s)-1, len(text)); n > most; n-- {
			if strings.HasSuffix(text, s[:n]) {
				most = n
			}
		}
	}
	return most
}

// rest is what was held back; the text has ended.
func (c *cutter) rest() string {
	text := c.held
	c.held = ""
	return text
}
