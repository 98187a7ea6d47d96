package wire

import (
	"bytes"
	"encoding/binary"
	"hash"
	"slices"
)

// keyedElsewhere are the top-level members that WriteCacheKey leaves out, by
// wire: those that change nothing in the answer (who asks, for which run, how
// long), and those that steer where the call goes. The latter are in Head, which
// headers may overrule; who makes a key adds what came of them.
var (
	nativeKeyedElsewhere = []string{
		"stream", "callId", "timeoutMs", "timeout", "process", "agentId", "agent", "runId", "batchId", "skipCache", "cacheScope",
		"tier", "task", "taskType", "operationType", "provider", "model", "privacy", "forcePaid", "subscription",
	}
	openAIKeyedElsewhere = []string{"model", "stream"}
)

// WriteCacheKey writes to h all of the body that can change the answer, then the
// wire's name and whether a stream is asked for. Two requests that write the same
// ask for the same; two that ask for the same and differ in their white space or
// in the order of their members may write different things. What routing decides
// by (task, tier, provider, model, privacy, forcePaid) is left to the caller.
//
// The form: each member as it stands in the body, from its key to the end of its
// value, after its length in 8 bytes, little-endian; a length of 0; the wire's
// name after its length; one byte, 1 for a stream.
func (r *Request) WriteCacheKey(h hash.Hash) {
	skip := openAIKeyedElsewhere
	if r.Wire == Native {
		skip = nativeKeyedElsewhere
	}
	body := bytes.TrimLeft(r.Body, " \n\t\r") // as view does, whose text the places are in
	var size [8]byte
	write := func(b []byte) {
		binary.LittleEndian.PutUint64(size[:], uint64(len(b)))
		h.Write(size[:])
		h.Write(b)
	}
	for f := range view(body).fields() {
		if !slices.Contains(skip, f.Key) {
			write(body[f.At:f.To])
		}
	}
	write(nil)
	write([]byte(r.Wire))
	size[0] = 0
	if r.Head.Stream {
		size[0] = 1
	}
	h.Write(size[:1])
}
