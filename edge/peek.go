package edge

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/sluice-llm/sluice/wire"
)

// peeked is what the edge must know of a body. It judges nothing: a value of
// another type counts as not said, and the node refuses it.
type peeked struct {
	stream bool
	// The rest is the native wire's alone.
	process   string
	callID    string
	timeoutMs int64
}

// peek reads the top-level fields in one pass, at the speed of finding quotes.
// Of a field that is there twice the last counts, as in encoding/json. What is
// no JSON object gives nothing, or what came before the fault.
func peek(body []byte, w wire.Name) peeked {
	var p peeked
	native := w == wire.Native
	eachField(body, func(key, value []byte) {
		if bytes.IndexByte(key, '\\') >= 0 {
			key = []byte(text(append(append([]byte{'"'}, key...), '"')))
		}
		switch string(key) {
		case "stream":
			p.stream = string(value) == "true"
		case "process":
			if native {
				p.process = text(value)
			}
		case "callId":
			if native {
				p.callID = text(value)
			}
		case "timeoutMs":
			if native {
				p.timeoutMs = whole(value)
			}
		}
	})
	return p
}

// text is a JSON string's value; of anything else it is empty.
func text(value []byte) string {
	if len(value) < 2 || value[0] != '"' || value[len(value)-1] != '"' {
		return ""
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1])
	}
	var s string
	if json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}

func whole(value []byte) int64 {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// eachField visits the top-level fields of an object: the key without its
// quotes, the value as it stands.
func eachField(b []byte, visit func(key, value []byte)) {
	i := skipAny(b, 0, "")
	if i == len(b) || b[i] != '{' {
		return
	}
	for i++; ; {
		i = skipAny(b, i, ",")
		if i == len(b) || b[i] != '"' {
			return
		}
		end := stringEnd(b, i)
		if end < 0 {
			return
		}
		key := b[i+1 : end-1]
		i = skipAny(b, end, ":")
		if end = valueEnd(b, i); end < 0 {
			return
		}
		visit(key, b[i:end])
		i = end
	}
}

// skipAny is the index of the first byte from i on that is neither white space
// nor in also.
func skipAny(b []byte, i int, also string) int {
	for ; i < len(b); i++ {
		switch c := b[i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		case also != "" && c == also[0]:
		default:
			return i
		}
	}
	return i
}

// stringEnd is the index after the string that begins at i; -1 when it does not end.
func stringEnd(b []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		escapes := 0
		for b[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

// valueEnd is the index after the value that begins at i; -1 when it does not end.
func valueEnd(b []byte, i int) int {
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			end := stringEnd(b, i)
			if end < 0 || depth == 0 {
				return end
			}
			i = end - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // of a scalar, by its object's end
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return -1
}
