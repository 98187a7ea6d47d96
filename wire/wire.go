// Package wire knows the dialects in which callers and providers speak, and
// translates between them through one hub form (Chat).
//
// A request is read once, by Parse: it checks that the body is valid for its
// wire and takes out what routing must know (Head), without decoding the rest.
// Where the caller and the provider speak the same wire the body is patched and
// passed through, so that no field is lost; else Request.Chat decodes it and
// the provider's side encodes it anew. Answers go the other way: a provider
// gives a Response or Events with its own bytes in Raw, and an Encoder writes
// them for the caller, passing Raw on untouched when the wires match.
package wire

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// Name names a wire, as the header Llm-Wire does.
type Name string

// The wires of the contract. Anthropic and Responses are not built yet.
const (
	Native            Name = "native"
	OpenAIChat        Name = "openai-chat"
	OpenAIResponses   Name = "openai-responses"
	AnthropicMessages Name = "anthropic-messages"
)

// Need is a set of capabilities: what a request needs, or a provider has.
type Need uint16

// The capabilities, in the order of subjects.Capabilities. A provider that lacks
// one that a request needs is skipped.
const (
	NeedTools Need = 1 << iota
	NeedImages
	NeedDocuments
	NeedAudio
	NeedJSONMode
	NeedJSONSchema
	NeedChoices
	NeedLogProbs
	NeedStreaming
	// NeedImageURLs is an image by its http(s) URL: the provider fetches it.
	NeedImageURLs
	// NeedToolChoice is a tool call that is forced, any or one by name.
	NeedToolChoice
	// NeedOpenAIChat is something that only the openai-chat form can say: a tool
	// that is no function, a kind of part that Sluice does not know.
	NeedOpenAIChat
)

// Names lists the capabilities in the set.
func (n Need) Names() []string {
	names := []string{}
	for i, name := range subjects.Capabilities {
		if n&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Needs returns the set that names list; names that are none are left out.
func Needs(names []string) Need {
	var n Need
	for i, name := range subjects.Capabilities {
		if slices.Contains(names, name) {
			n |= 1 << i
		}
	}
	return n
}

// String joins the names with commas.
func (n Need) String() string { return strings.Join(n.Names(), ",") }

// Missing returns what of n is not in have.
func (n Need) Missing(have Need) Need { return n &^ have }

// Head is what routing must know of a request. Zero values mean "not said".
type Head struct {
	CallID   string
	Model    string
	Provider string
	Tier     string
	Task     string
	Process  string
	AgentID  string
	Privacy  string
	RunID    string
	BatchID  string
	// CacheScope names those who share the answer; "" = all who name none.
	CacheScope string
	Timeout    time.Duration
	Stream     bool
	SkipCache  bool
	ForcePaid  bool
	// StreamUsage is openai-chat's stream_options.include_usage: the caller wants
	// the usage chunk.
	StreamUsage bool
	Needs       Need
	// MaxTokens is the caller's bound on the answer; 0 = none.
	MaxTokens int64
}

// Request is one call's request. The body is the caller's own bytes and is
// never changed. Not safe for concurrent use.
type Request struct {
	Wire Name
	Body []byte
	Head Head

	chat *Chat
	// plain says that every message is the same JSON on both wires.
	plain bool
	// asked is the content of the last user message.
	asked raw
}

// Chat is the hub form of a request: what any wire can say, decoded.
type Chat struct {
	subjects.Prompt

	FrequencyPenalty *float64
	PresencePenalty  *float64
	User             string

	// Left names the caller's fields that the hub form does not carry; they steer
	// at most, and a provider that got the hub form warns of them.
	Left []string
}

// Response is a provider's whole answer. Not safe for concurrent use: Decode and
// EncodeResponse fill its hub form.
type Response struct {
	// Wire is the dialect of Raw; Raw is nil when the provider has no wire (mock).
	Wire Name
	Raw  []byte

	// Text, ToolCalls and FinishReason are the hub form. When Raw is set they may
	// be left empty; Decode fills them.
	Text         string
	ToolCalls    []subjects.ToolCall
	FinishReason string

	// Model is the id that the provider reports; empty = it reported none.
	Model string
	Usage subjects.Usage
	// OutputBytes counts the bytes of text that the model wrote, reasoning and tool
	// arguments too: what an estimate of its tokens stands on when an answer was
	// cut or its usage is not known.
	OutputBytes int64
	// UsageKnown says that Usage is what the provider reported, and not zero by default.
	UsageKnown bool
	Warnings   []string
	// RateLimit holds the provider's rate-limit headers, lower-case names.
	RateLimit map[string]string

	decoded bool // the hub form is filled from Raw
}

// Event is one piece of a provider's stream. Raw, when set, is the payload of
// one event in the dialect Wire, valid until the yield that got it returns.
type Event struct {
	Wire Name
	Raw  []byte

	// Text and ToolCall, a whole one, are the hub form. An event of openai-chat
	// leaves them empty: its encoders read Raw. One of another wire fills them,
	// unless the caller speaks that wire too.
	Text     string
	ToolCall *subjects.ToolCall

	// UsageOnly marks an event that carries nothing but usage: a caller who did
	// not ask for usage does not get it.
	UsageOnly bool
	// Empty marks an event that carries no output, such as the one that opens an
	// openai-chat stream with the role alone.
	Empty bool
}
