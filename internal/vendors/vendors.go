// Package vendors has fakes of the vendors' servers, one file for each wire, for
// the conformance suite that every provider runs through (internal/conformance).
//
// What is said and what is heard is kept apart from how a wire writes it: a test
// gives an Answer or a Fault and looks at what was Seen; a Voice writes the one
// and reads the other in the form of one API. A Voice is strict: what the real
// API would refuse (an unknown role, a field that is missing or of the wrong
// type, a wrong path, a missing key), its Hear refuses, and the test fails.
//
// A Server speaks with one Voice. What it does with a request is a Script, taken
// in order from those that Next was given: it answers, faults, breaks off after n
// events, holds its tongue until the client has gone, packs, splits, and frames
// its events in each way the standards allow. There are no clocks in it: a test
// lets it go on through channels.
//
// The package imports nothing of this module, so that it does not share the
// mistakes of what it tests. The forms are those of the vendors' own documents and
// SDKs, and of recorded exchanges; each voice says where its own are from.
package vendors

import (
	"encoding/json"
	"net/http"
)

// Answer is what a model says, apart from any wire.
type Answer struct {
	// Pieces is the text in the pieces in which it is streamed. A piece is never
	// split further by a Voice.
	Pieces []string
	// Reasoning is what a model that thinks aloud says before; "" = nothing.
	Reasoning string
	Calls     []Call
	// Finish is one of the Finish constants; "" = FinishCalls where there are
	// Calls, else FinishStop.
	Finish string
	// Model is the id that the answer names; "" = the one that was asked for.
	Model string
	Usage Usage
	// NoUsage leaves the usage out of the answer.
	NoUsage bool
}

// Call is a tool call. Arguments is JSON; "" = the model gave none at all, which
// each API writes in its own way.
type Call struct{ ID, Name, Arguments string }

// Usage is a number of tokens. Fresh, CacheRead and CacheWrite add up to the
// prompt; Reasoning is part of Output. Each Voice writes them by its API's own
// convention, and leaves out what the API has no field for (see Traits).
type Usage struct{ Fresh, CacheRead, CacheWrite, Output, Reasoning int64 }

// Why an answer ended.
const (
	FinishStop   = "stop"
	FinishLength = "length"
	FinishCalls  = "tool_calls"
	FinishFilter = "content_filter"
)

// End is the finish reason with its default filled in.
func (a *Answer) End() string {
	switch {
	case a.Finish != "":
		return a.Finish
	case len(a.Calls) > 0:
		return FinishCalls
	}
	return FinishStop
}

// Text is the whole text.
func (a *Answer) Text() string {
	text := ""
	for _, p := range a.Pieces {
		text += p
	}
	return text
}

// ModelOf is the id that the answer to s names.
func (a *Answer) ModelOf(s *Seen) string {
	if a.Model != "" {
		return a.Model
	}
	return s.Model
}

// Seen is what a request said, apart from any wire.
type Seen struct {
	Model string
	// System is the text of all system turns, joined by a blank line; they are not
	// among Messages.
	System   string
	Messages []Turn
	Tools    []Tool
	// ToolChoice is auto, none, required or "name:<tool>"; "" = not said.
	ToolChoice string
	// Parallel is whether several tool calls at once are welcome; nil = not said.
	Parallel *bool
	// Format is text, json_object or json_schema; "" = not said. Schema goes with
	// the last.
	Format string
	Schema json.RawMessage
	Stop   []string
	// What steers; nil or "" = not said. Effort is the API's own word.
	Temperature, TopP *float64
	MaxTokens, Seed   *int64
	Effort            string
	Stream            bool
	// StreamUsage says that the usage of a stream was asked for, or that the API
	// always gives it.
	StreamUsage bool
	// Secret is the credential, as read from the place where this API has it.
	Secret string

	Method      string
	Path, Query string
	Header      http.Header
	Body        []byte
}

// asked is the text of the last turn of a user.
func (s *Seen) asked() string {
	for i := len(s.Messages) - 1; i >= 0; i-- {
		if s.Messages[i].Role == "user" {
			return s.Messages[i].Text
		}
	}
	return ""
}

// Turn is one message: of user, assistant or tool.
type Turn struct {
	Role string
	// Text is all of its text, parts joined by "\n".
	Text   string
	Images []Image
	Calls  []Call
	// ResultOf is the id of the call whose result it is; in an API without ids the
	// tool's name. Results that an API puts into a user turn are turns of their
	// own here, with the role tool.
	ResultOf string
}

// Image is either data (MediaType and Base64) or a URL.
type Image struct{ MediaType, Base64, URL string }

// Tool is a function on offer.
type Tool struct {
	Name, Description string
	Schema            json.RawMessage
}

// Fault is a kind of error that an API answers with.
type Fault int

// The faults. Those from HTMLPage on are not an API's own but what stands between
// it and a client; the server has them for every Voice.
const (
	NoFault Fault = iota
	// Unauthorized: the key is not accepted. Its text shows the key, as some do
	// (write it as KeyMark).
	Unauthorized
	Forbidden     // the key is good, but not for this
	RateLimited   // going too fast; try again in 2 s (RetryAfter)
	Quota         // paid or granted volume is used up; waiting a little does not help
	ContextLength // the prompt is longer than the model takes
	Policy        // the prompt is not allowed
	Overloaded    // no capacity for now
	ServerError   // an unforeseen failure, 500
	NoModel       // there is no such model
	BadRequest    // a field is wrong
	TooLarge      // the request has too many bytes
	Timeout       // the API itself ran out of time

	HTMLPage  // 502 with a web page
	PlainText // 503 with a line of text
	NoPath    // 404 with a web page: the base URL is wrong
	Redirect  // 307 to another host
)

// Faults lists all of them.
func Faults() []Fault {
	var all []Fault
	for f := Unauthorized; f <= Redirect; f++ {
		all = append(all, f)
	}
	return all
}

var faultNames = [...]string{
	"none", "unauthorized", "forbidden", "rate limited", "quota", "context length", "policy", "overloaded",
	"server error", "no model", "bad request", "too large", "timeout", "HTML page", "plain text", "no path", "redirect",
}

func (f Fault) String() string { return faultNames[f] }

// KeyMark stands, in the body of a fault, for the key that the request had. It is
// plain text inside a JSON string.
const KeyMark = "{key}"

// RetryAfterSeconds is how long every Voice's RateLimited asks to wait.
const RetryAfterSeconds = 2

// Traits say what an API's form has, so that the suite asks no more of it.
type Traits struct {
	// Lines: the stream is one JSON text a line, not server-sent events.
	Lines bool
	// CacheRead, CacheWrite and Reasoning: usage has fields for these.
	CacheRead, CacheWrite, Reasoning bool
	// CallIDs: tool calls have ids, and results name them.
	CallIDs bool
	// NoEnd: a stream has no last event of its own beside the finish reason (so
	// that one which ends after the finish reason is whole).
	NoEnd bool
	// Finishes lists the finish reasons that the API can say.
	Finishes []string
	// Header is on every answer: request ids, rate limits.
	Header http.Header
}

// Voice is one API's form. A Voice keeps no state; its methods may be called
// concurrently.
type Voice interface {
	Traits() Traits
	// Hear reads a request; its error says what the real API would refuse. The
	// server fills Method, Path, Query, Header and Body.
	Hear(r *http.Request, body []byte) (*Seen, error)
	// Whole writes the answer to a request that does not stream.
	Whole(s *Seen, a *Answer) []byte
	// Events writes it as a stream, each event with its framing: SSE lines that
	// end with "\n" and a blank line, or one line. The last is the proper end.
	Events(s *Seen, a *Answer) [][]byte
	// Fault writes an error answer. ok is false for a fault that the API does not
	// know, and may be for those from HTMLPage on. A nil header means JSON.
	Fault(s *Seen, f Fault) (status int, header http.Header, body []byte, ok bool)
	// InStream writes a fault as an event inside a stream, with its framing; nil =
	// the API has no such event for it.
	InStream(f Fault) []byte
	ContentType(stream bool) string
}

// Prober is a Voice that also answers GET requests, by which a client learns
// whether the server is there.
type Prober interface {
	// Probe answers r; ok is false where the API has no such path.
	Probe(r *http.Request) (body []byte, ok bool)
}
