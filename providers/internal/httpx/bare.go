package httpx

import (
	"bytes"
	"io"

	"github.com/sluice-llm/sluice/wire"
)

// maxBare bounds what stands at the end of an event stream and is none of it.
const maxBare = 64 << 10

// bare finds the error that ends an event stream without being an event: a server
// that fails after it has begun to answer writes it as it does otherwise, as JSON
// (Gemini does, and gateways). The library skips such lines, as the standard has it.
type bare struct {
	r      io.Reader
	inLine bool
	found  []byte
	in     bool
}

func (b *bare) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		if !b.inLine {
			b.line(rest[0])
		}
		i := bytes.IndexByte(rest, '\n')
		b.inLine = i < 0
		if b.inLine {
			i = len(rest) - 1
		}
		if b.in {
			b.found = append(b.found, rest[:min(i+1, maxBare+1-len(b.found))]...)
		}
		rest = rest[i+1:]
	}
	return n, err
}

// line looks at how a line begins. An indented one, and one that closes what is
// open, goes on with what was found; an event's is not.
func (b *bare) line(first byte) {
	switch {
	case first == '{' && !b.in, first == '[' && !b.in:
		b.in = true
	case first == ':', first >= 'a' && first <= 'z':
		b.in, b.found = false, b.found[:0]
	}
}

// failure returns the error that was found, or nil.
func (b *bare) failure() []byte {
	if !b.in || len(b.found) > maxBare || !wire.ValidJSON(b.found) || !hasError(b.found) {
		return nil
	}
	return bytes.TrimSpace(b.found)
}
