package wire

import (
	"errors"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// ReadGemini reads a whole answer of Gemini's generateContent into the hub form;
// a list of them, as the stream is without alt=sse, is read as one answer. body
// is valid JSON, is kept by the response (its text) and must not change.
//
// A prompt that was blocked is a CONTENT_POLICY error, and an answer that came to
// an end other than the model's own a PROVIDER_ERROR; the Response beside it has
// the usage and whatever was written. An answer that a filter cut is a success
// with the finish reason content_filter.
func ReadGemini(body []byte) (*Response, error) {
	var a geminiAnswer
	var text geminiText
	resp := &Response{}
	call := func(c *subjects.ToolCall) error {
		resp.ToolCalls = append(resp.ToolCalls, *c)
		return nil
	}
	v := view(body)
	var err error
	if v.isArray() {
		for _, item := range v.items() {
			if err = a.read(item, text.add, call); err != nil {
				break
			}
		}
	} else {
		err = a.read(v, text.add, call)
	}
	a.sum(resp)
	resp.Text = text.String()
	switch {
	case errors.Is(err, errGeminiFailure): // in a list, not in its first place
		err = subjects.Errorf(subjects.KindProvider, "the answer breaks off with an error")
	case err != nil:
	case !a.seen:
		err = subjects.Errorf(subjects.KindProvider, "the answer has no candidates")
	case a.finish == "" && (a.bytes == 0 || v.isArray()):
		err = subjects.Errorf(subjects.KindProvider, "the answer ended early, without a finish reason")
	}
	return resp, err
}

// errGeminiFailure says that a piece of an answer is an error of the API.
var errGeminiFailure = errors.New("an error of the API")

// geminiText joins pieces of text. A single one, the usual case, is not copied.
type geminiText struct {
	first string
	b     strings.Builder
}

func (t *geminiText) add(s string) error {
	switch {
	case t.first == "" && t.b.Len() == 0:
		t.first = s
		return nil
	case t.b.Len() == 0:
		t.b.Grow(2 * (len(t.first) + len(s)))
		t.b.WriteString(t.first)
	}
	if t.b.Len()+len(s) > maxAnswer {
		return tooLong()
	}
	t.b.WriteString(s)
	return nil
}

func (t *geminiText) String() string {
	if t.b.Len() > 0 {
		return t.b.String()
	}
	return t.first
}

// geminiAnswer is what the pieces of one answer have said so far: a whole answer
// is one piece, a stream has many of the same form.
type geminiAnswer struct {
	counts geminiCounts
	model  string
	finish string // the contract's word, once the candidate has ended
	seen   bool   // a candidate came
	calls  int
	bytes  int64
	ids    map[string]bool // of the calls so far
	left   []string        // kinds of parts that have no place in the hub form
	warned int             // how many of them the response names
}

// read takes one GenerateContentResponse. Its usage is noted before its parts are
// given out, so that it is known when one of them fails.
func (a *geminiAnswer) read(v raw, text func(string) error, call func(*subjects.ToolCall) error) error {
	var candidates, feedback raw
	for f := range v.fields() {
		switch f.Key {
		case "error":
			if saysError(f.Value) {
				return errGeminiFailure
			}
		case "candidates":
			candidates = f.Value
		case "promptFeedback":
			feedback = f.Value
		case "usageMetadata":
			a.counts.read(f.Value)
		case "modelVersion":
			if a.model == "" {
				a.model = boundedName(f.Value)
			}
		}
	}
	c := firstCandidate(candidates)
	if c == "" {
		if reason := feedback.get("blockReason"); reason.inner() != "" && a.bytes == 0 && !a.seen {
			return blockedPrompt(reason)
		}
		return nil
	}
	return a.candidate(c, text, call)
}

// firstCandidate is the one of index 0, which a candidate without an index is:
// a zero is not written.
func firstCandidate(v raw) raw {
	for _, c := range v.items() {
		if index := c.get("index"); c.isObject() && (index == "" || index == "0") {
			return c
		}
	}
	return ""
}

func blockedPrompt(reason raw) *subjects.Error {
	name := boundedName(reason)
	e := subjects.Errorf(subjects.KindContentPolicy, "the prompt was blocked (%s); change it, or ask another provider", name)
	e.Code = name
	return e
}

func (a *geminiAnswer) candidate(c raw, text func(string) error, call func(*subjects.ToolCall) error) error {
	a.seen = true
	var finish raw
	for f := range c.fields() {
		switch f.Key {
		case "finishReason":
			finish = f.Value
		case "content":
			for _, p := range f.Value.get("parts").items() {
				if err := a.part(p, text, call); err != nil {
					return err
				}
			}
		}
	}
	if finish.inner() == "" {
		return nil
	}
	word, ok := geminiFinish(finish.str())
	if !ok {
		return subjects.Errorf(subjects.KindProvider, "the model ended without an answer (%s)", boundedName(finish))
	}
	a.finish = word
	return nil
}

// geminiFinish maps a finish reason to the contract's word. false = the answer
// came to no proper end: a function call that could not be read, a signature or
// an image that is missing, OTHER, a reason that is not known here.
func geminiFinish(reason string) (word string, ok bool) {
	switch reason {
	case "STOP":
		return subjects.FinishStop, true
	case "MAX_TOKENS",
		"CONTINUATION": // the API's own limit of one request, since Gemini 4
		return subjects.FinishLength, true
	case "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
		"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION":
		return subjects.FinishContentFilter, true
	}
	return "", false
}

// geminiData are the kinds of parts beside text and function calls that an
// answer may have.
var geminiData = []string{
	"inlineData", "fileData", "executableCode", "codeExecutionResult", "toolCall", "toolResponse", "functionResponse",
}

// part reads one part. A thought is counted and not shown.
func (a *geminiAnswer) part(p raw, text func(string) error, call func(*subjects.ToolCall) error) error {
	var said, fn raw
	thought := false
	for f := range p.fields() {
		switch f.Key {
		case "text":
			said = f.Value
		case "functionCall":
			fn = f.Value
		case "thought":
			thought = f.Value == "true"
		case "thoughtSignature":
		default:
			a.other(f.Key)
		}
	}
	if thought {
		a.bytes += int64(said.textLen())
		return nil
	}
	if s := said.str(); s != "" {
		a.bytes += int64(len(s))
		if err := text(s); err != nil {
			return err
		}
	}
	if !fn.isObject() {
		return nil
	}
	c := a.call(fn)
	a.bytes += int64(len(c.Name) + len(c.Arguments))
	return call(c)
}

func (a *geminiAnswer) other(kind string) {
	if slices.Contains(geminiData, kind) && !slices.Contains(a.left, kind) {
		a.left = append(a.left, strings.Clone(kind))
	}
}

// call reads a function call. The API names them from Gemini 3 on; one without an
// id, or with one that an earlier call of the answer has, gets its own.
func (a *geminiAnswer) call(fn raw) *subjects.ToolCall {
	c := &subjects.ToolCall{Arguments: "{}"}
	for f := range fn.fields() {
		switch f.Key {
		case "id":
			c.ID = strings.Clone(f.Value.str())
		case "name":
			c.Name = strings.Clone(f.Value.str())
		case "args":
			if f.Value.isObject() {
				c.Arguments = strings.Clone(compact(f.Value))
			}
		}
	}
	if c.ID == "" || a.ids[c.ID] {
		c.ID = newCallID()
	}
	if a.ids == nil {
		a.ids = map[string]bool{}
	}
	a.ids[c.ID] = true
	a.calls++
	return c
}

// sum fills what is known of the answer but for its text and calls. It may be
// called again as more becomes known.
func (a *geminiAnswer) sum(resp *Response) {
	resp.Model, resp.OutputBytes = a.model, a.bytes
	resp.FinishReason = finishReason(a.finish, a.finish != "" && a.calls > 0, false)
	resp.Usage, resp.UsageKnown = a.counts.usage(), a.counts.known
	for ; a.warned < len(a.left); a.warned++ {
		resp.Warnings = append(resp.Warnings, "a part of the answer ("+a.left[a.warned]+") is not supported by sluice and was left out")
	}
}

// geminiCounts are the counts of usageMetadata. In a stream each piece may have
// them; they are running totals, and what one piece does not say stays.
type geminiCounts struct {
	prompt, cached, candidates, thoughts, tools int64

	known bool
}

func (c *geminiCounts) read(v raw) {
	for f := range v.fields() {
		var to *int64
		switch f.Key {
		case "promptTokenCount":
			to = &c.prompt
		case "cachedContentTokenCount":
			to = &c.cached
		case "candidatesTokenCount":
			to = &c.candidates
		case "thoughtsTokenCount":
			to = &c.thoughts
		case "toolUsePromptTokenCount":
			to = &c.tools
		}
		if to != nil && f.Value.isNumber() {
			*to, c.known = count(f.Value), true
		}
	}
}

// usage is the contract's form: the cached tokens stand inside the prompt's
// here, the thoughts outside the candidates'.
func (c *geminiCounts) usage() subjects.Usage {
	u := subjects.Usage{
		CacheReadTokens: min(c.cached, c.prompt),
		OutputTokens:    c.candidates + c.thoughts,
		ReasoningTokens: c.thoughts,
	}
	u.InputTokens = c.prompt - u.CacheReadTokens + c.tools
	u.TotalTokens = u.InputTokens + u.OutputTokens
	return u
}

// GeminiStream reads the events of one streamGenerateContent?alt=sse. The zero
// value is ready. Not safe for concurrent use.
type GeminiStream struct {
	answer geminiAnswer
	ev     Event
	resp   Response
}

// Chunk reads one event and yields its text and its function calls, which come
// whole. failure says that the event is an error of the API, {"error":…} or a list
// of one, for the caller to classify. The text of a yielded event is valid until
// yield returns. The errors are those of ReadGemini.
func (s *GeminiStream) Chunk(data []byte, yield func(*Event) error) (failure bool, err error) {
	v := view(data)
	if !v.isObject() && !v.isArray() || !ValidJSON(data) {
		return false, subjects.Errorf(subjects.KindProvider, "the stream has an event that is broken JSON")
	}
	text := func(text string) error {
		s.ev = Event{Text: text}
		return yield(&s.ev)
	}
	call := func(c *subjects.ToolCall) error {
		s.ev = Event{ToolCall: c}
		return yield(&s.ev)
	}
	if v.isObject() {
		err = s.answer.read(v, text, call)
	}
	for _, item := range v.items() {
		if err = s.answer.read(item, text, call); err != nil {
			break
		}
	}
	s.answer.sum(&s.resp)
	if errors.Is(err, errGeminiFailure) {
		return true, nil
	}
	return false, err
}

// Whole reports whether the model has come to its end: the stream has no event
// of its own for that.
func (s *GeminiStream) Whole() bool { return s.answer.finish != "" }

// Sum is what the events have said so far: the same Response at every call, which
// each Chunk brings up to date.
func (s *GeminiStream) Sum() *Response { return &s.resp }
