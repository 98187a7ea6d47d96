package vendors

// Break is how an answer is broken off.
type Break int

// The ways. "After n" counts events of a stream; of a whole answer half the body
// is sent where n is above 0.
const (
	Unbroken Break = iota
	// BreakError sends the Script's Fault as an event after n events, then ends.
	BreakError
	// BreakCut closes the connection after n events, without the end of the body.
	BreakCut
	// BreakReset resets the connection after n events; the client may lose events
	// that it has not read.
	BreakReset
	// BreakEnd ends the body properly after n events: too early.
	BreakEnd
	// BreakHold sends nothing more after n events, and with n = 0 not even the
	// headers, until the client has gone.
	BreakHold
)

// Script is what the server does with one request. The zero Script answers Hello.
type Script struct {
	// Answer is what it says; nil = Hello.
	Answer *Answer
	// Echo answers with the text of the last turn of a user, in two pieces.
	Echo bool
	// Fault, without a Break, is the whole answer; Inside gives it the status 200.
	Fault  Fault
	Inside bool
	// Body, when not nil, is the answer as it is, with status 200 and the content
	// type of a whole or a streamed answer.
	Body []byte

	Break Break
	After int

	// Gate, when not nil, holds the answer back, headers included, until it is closed.
	Gate <-chan struct{}
	// Pause holds the stream after its headers, before its first event.
	Pause <-chan struct{}

	// Split, when above 0, sends that many bytes at a time.
	Split   int
	Framing Framing
	Gzip    bool
	// WholeForStream answers a streaming request with one JSON object.
	WholeForStream bool
}

// Hello is the answer where a Script has none.
var Hello = &Answer{
	Pieces: []string{"Hel", "lo, ", "wörld ", "✓"},
	Usage:  Usage{Fresh: 11, Output: 7},
}

func (s *Script) answer(seen *Seen) *Answer {
	switch {
	case s.Echo:
		return &Answer{Pieces: halves(seen.asked())}
	case s.Answer != nil:
		return s.Answer
	}
	return Hello
}

// Framing is how the events of a stream are written. Every one is legal.
type Framing int

// The framings. Those that speak of colons, names and data are of server-sent
// events alone; a stream of lines has them as Plain.
const (
	Plain       Framing = iota // LF, "data: …"
	CRLF                       // lines end with CR LF
	CR                         // lines end with CR
	NoSpace                    // "data:…"
	Comments                   // comments and unknown fields before, between and inside events
	BOM                        // a byte order mark before all
	DataLines                  // the data on several lines, broken between JSON tokens
	IDsAndRetry                // id: and retry: fields
	NoLastBlank                // the last event lacks its blank line (or line end)
	BlankLines                 // several blank lines between events
)

// Framings lists all that a stream of events, or of lines, can have.
func Framings(lines bool) []Framing {
	if lines {
		return []Framing{Plain, CRLF, BOM, NoLastBlank, BlankLines}
	}
	return []Framing{Plain, CRLF, CR, NoSpace, Comments, BOM, DataLines, IDsAndRetry, NoLastBlank, BlankLines}
}

func (f Framing) String() string {
	return [...]string{
		"plain", "CRLF", "CR", "no space", "comments", "BOM", "data lines", "ids and retry", "no last blank", "blank lines",
	}[f]
}
