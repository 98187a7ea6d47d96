package actors

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/sluice-llm/sluice/wire"
)

// cacheKey says what a call asks for: calls of the same key may have the same
// answer. It is a SHA-256, so that nobody finds a prompt with another's key.
type cacheKey [sha256.Size]byte

// cacheKeyOf makes the key of a request and of what else decides who answers it
// and who may share the answer: parts, whose order matters.
func cacheKeyOf(req *wire.Request, parts ...string) cacheKey {
	h := sha256.New()
	req.WriteCacheKey(h)
	b := make([]byte, 0, 512)
	for _, p := range parts {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(p)))
		b = append(b, p...)
	}
	h.Write(b)
	var k cacheKey
	h.Sum(k[:0])
	return k
}
