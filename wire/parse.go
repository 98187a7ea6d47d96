package wire

import (
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// Bounds on prompt fields beyond those of package subjects.
const (
	maxStop      = 64
	maxTokens    = 1 << 40
	maxChoices   = 128
	maxLogProbs  = 1_000
	maxPenalty   = 2.0
	maxHeat      = 2.0
	maxToolName  = subjects.MaxName
	maxPartsEach = 10_000
)

// built lists the wires of this version; all has those of the contract.
var (
	built = []string{string(Native), string(OpenAIChat)}
	all   = []string{string(Native), string(OpenAIChat), string(OpenAIResponses), string(AnthropicMessages)}
)

// Parse reads a request. It checks the whole body (one JSON object in UTF-8,
// and the type and bounds of every field it knows) and fills Head, without
// decoding the prompt. The body is kept, not copied: it must not change
// afterwards. The empty name is the native wire.
//
// On the native wire an unknown field is refused; the older names taskType and
// operationType (task), timeout (timeoutMs), agent (agentId) and subscription
// are understood. On openai-chat an unknown field belongs to that API and
// passes; a known one that comes twice, or in another case, is refused, since
// Sluice and the provider could read different ones.
func Parse(name Name, body []byte) (*Request, error) {
	var read func(*Request, raw) *subjects.Error
	switch name {
	case Native, "":
		name, read = Native, parseNative
	case OpenAIChat:
		read = parseOpenAIChat
	default:
		return nil, unknownWire(name)
	}
	if err := checkJSON(body); err != nil {
		return nil, err
	}
	r := &Request{Wire: name, Body: body}
	if err := read(r, view(body)); err != nil {
		return nil, err
	}
	return r, nil
}

func unknownWire(name Name) *subjects.Error {
	have := strings.Join(built, ", ")
	for _, w := range all {
		if string(name) == w {
			return invalid("wire", "%s is not built yet in this version; use one of %s", w, have)
		}
	}
	if near := subjects.Nearest(string(name), all); near != "" {
		return invalid("wire", "unknown; did you mean %s? This version has %s", near, have)
	}
	return invalid("wire", "unknown; this version has %s", have)
}

// seen notes top-level keys, to refuse one that comes twice.
type seen uint64

func (s *seen) again(i int) bool {
	was := *s&(1<<i) != 0
	*s |= 1 << i
	return was
}

// tally is what the messages of a request amount to.
type tally struct {
	needs Need
	// plain says that each message is the same JSON on the native wire and in openai-chat.
	plain bool
	tools bool
}
