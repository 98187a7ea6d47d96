// Package mock is a provider without a network: it answers from the prompt
// alone, the same every time, and behaves as it is told. The configuration says
// how by task name; a task may also say it itself:
//
//	mock:latency=250ms,error=RATE_LIMITED,errors=2,retryAfter=1s
//	git_history_analysis mock:in=10,out=20,chunks=5,pace=20ms
//
// After "mock:" (at the start, or after a space) come settings, joined by
// commas. They lie over the behaviour that the configuration has for the task
// in front, or its default:
//
//	latency=DURATION   time to the answer, or to the first event of a stream
//	pace=DURATION      time between two events of a stream
//	chunks=N           events of a stream; 0 = one a word
//	in=N, out=N        tokens reported; 0 = counted from the text
//	content=TEXT       the answer; it ends at the next comma, or at the end
//	error=KIND         the error kind that fails the call
//	errors=N           how many of the call's tries fail; 0 = all
//	retryAfter=DURATION
//	failAfter=N        fail a stream after N events
//
// Durations are Go's ("250ms", "1.5s"), at most an hour. latency alone is
// waited for before an error, too. failAfter without error is PROVIDER_ERROR.
//
// A mock service (package hooks), where there is one, writes the answer in place
// of all that; latency, tokens and errors stay as they are told. It is not asked
// for a tool call that the request insists on, nor for a try that fails without
// a word.
package mock

import (
	"context"
	"errors"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/hooks"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// capabilities leaves out what the mock does not do: documents and audio it
// does not read, and it has one answer and no probabilities.
const capabilities = wire.NeedTools | wire.NeedToolChoice | wire.NeedImages | wire.NeedImageURLs | wire.NeedJSONMode | wire.NeedJSONSchema | wire.NeedStreaming

// Provider is the mock. It keeps no state: which of a call's tries fail is
// counted by the try's own number.
type Provider struct {
	id        string
	behaviour config.Mock
	service   hooks.MockService
}

var _ providers.Provider = (*Provider)(nil)

// New makes the mock of a configuration entry, whatever its id and account are;
// without a behaviour of its own it answers at once. service writes the answers;
// nil = there is none.
func New(cfg *config.Provider, service hooks.MockService) *Provider {
	p := &Provider{id: cfg.ID, service: service}
	if cfg.Mock != nil {
		p.behaviour = *cfg.Mock
	}
	return p
}

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() wire.Need { return capabilities }

// Check implements providers.Provider: the mock can always serve.
func (p *Provider) Check(context.Context) error { return nil }

// Complete implements providers.Provider.
func (p *Provider) Complete(ctx context.Context, job *providers.Job) (*wire.Response, error) {
	a, err := p.prepare(ctx, job)
	if err != nil {
		return nil, err
	}
	if err := wait(ctx, a.Latency); err != nil {
		return nil, err
	}
	if a.fails(job.Attempt) {
		return nil, a.failure()
	}
	resp := a.response()
	resp.Text, resp.ToolCalls = a.text, a.calls
	resp.OutputBytes = int64(len(a.text))
	return resp, nil
}

// Stream implements providers.Provider.
func (p *Provider) Stream(ctx context.Context, job *providers.Job, yield func(*wire.Event) error) (*wire.Response, error) {
	a, err := p.prepare(ctx, job)
	if err != nil {
		return nil, err
	}
	if err := wait(ctx, a.Latency); err != nil {
		return nil, err
	}
	if a.wordless(job.Attempt) {
		return nil, a.failure()
	}
	fails := a.fails(job.Attempt)
	resp := a.response()
	for i, piece := range a.pieces() {
		if fails && i == a.FailAfterChunks {
			break
		}
		if i > 0 {
			err = wait(ctx, a.ChunkDelay)
		}
		if err == nil {
			err = yield(&piece)
		}
		if err != nil {
			return partial(resp), err
		}
		resp.OutputBytes += int64(len(piece.Text))
	}
	if fails {
		return partial(resp), a.failure()
	}
	return resp, nil
}

// partial is what is known of an answer that was cut: nothing is reported yet.
func partial(resp *wire.Response) *wire.Response {
	return &wire.Response{Model: resp.Model, OutputBytes: resp.OutputBytes}
}

// answer is what the mock will do with one job.
type answer struct {
	config.MockBehaviour
	id     string
	model  string
	text   string
	calls  []subjects.ToolCall
	finish string
	input  int64
}

func (p *Provider) prepare(ctx context.Context, job *providers.Job) (*answer, error) {
	b, err := p.behaviourFor(job.Request.Head.Task)
	if err != nil {
		return nil, err
	}
	chat, err := job.Request.Chat()
	if err != nil {
		return nil, err
	}
	a := &answer{MockBehaviour: b, id: p.id, model: job.Model, finish: subjects.FinishStop, input: job.Request.EstimateInput()}
	sum := hash(chat)
	if tool, ok := demandedTool(chat); ok {
		a.calls = []subjects.ToolCall{{ID: "call_" + sum, Name: tool, Arguments: `{"mock":"` + sum + `"}`}}
		a.finish = subjects.FinishToolCalls
		return a, nil
	}
	a.write(chat, sum)
	if p.service != nil && !a.wordless(job.Attempt) {
		if err := p.ask(ctx, job, a); err != nil {
			return nil, err
		}
	}
	if chat.MaxTokens != nil {
		a.cut(*chat.MaxTokens)
	}
	return a, nil
}

// write makes the text: JSON where that is demanded, else a sentence with the
// prompt's hash.
func (a *answer) write(chat *wire.Chat, sum string) {
	switch {
	case a.Content != "":
		a.text = a.Content
	case chat.ResponseFormat != nil && chat.ResponseFormat.Type != "text":
		a.text = `{"mock":"` + sum + `"}`
	default:
		a.text = "This is the mock's answer " + sum + " to a prompt of " + strconv.FormatInt(a.input, 10) + " tokens."
	}
}

// ask lets the service write the text.
func (p *Provider) ask(ctx context.Context, job *providers.Job, a *answer) error {
	h := &job.Request.Head
	req := &hooks.MockRequest{
		CallID: job.CallID, Process: h.Process, Task: taskName(h.Task), Tier: job.Tier, Class: job.Class,
		AgentID: h.AgentID, RunID: h.RunID, Model: job.Model,
	}
	req.Text, req.Truncated, _ = job.Request.Texts(hooks.MaxText)
	text, err := p.service.MockResponse(ctx, req)
	switch {
	case err == nil:
		a.text = text
	case !errors.Is(err, hooks.ErrBuiltIn):
		e := *subjects.AsError(err)
		e.Provider = p.id
		return &e
	}
	return nil
}

// cut bounds the answer to so many tokens, at four bytes each.
func (a *answer) cut(tokens int64) {
	if a.OutputTokens > tokens {
		a.OutputTokens = tokens
		a.finish = subjects.FinishLength
	}
	if wire.EstimateTokens(a.text) > tokens {
		a.text = strings.ToValidUTF8(a.text[:tokens*4], "")
		a.finish = subjects.FinishLength
	}
}

// hash is a short name for the prompt.
func hash(chat *wire.Chat) string {
	h := fnv.New32a()
	for i := range chat.Messages {
		m := &chat.Messages[i]
		h.Write([]byte(m.Role))
		h.Write([]byte{0})
		h.Write([]byte(m.Content.String()))
		h.Write([]byte{0})
	}
	const width = 8
	s := strconv.FormatUint(uint64(h.Sum32()), 16)
	return strings.Repeat("0", width-len(s)) + s
}

// demandedTool is the tool that the request insists on.
func demandedTool(chat *wire.Chat) (string, bool) {
	c := chat.ToolChoice
	switch {
	case c == nil || len(chat.Tools) == 0:
		return "", false
	case c.Name != "":
		return c.Name, true
	}
	return chat.Tools[0].Name, c.Mode == "required"
}

// response has the answer's sums.
func (a *answer) response() *wire.Response {
	u := subjects.Usage{InputTokens: a.InputTokens, OutputTokens: a.OutputTokens}
	if u.InputTokens == 0 {
		u.InputTokens = a.input
	}
	if u.OutputTokens == 0 {
		u.OutputTokens = wire.EstimateTokens(a.text)
		for _, c := range a.calls {
			u.OutputTokens += wire.EstimateTokens(c.Name + c.Arguments)
		}
	}
	u.TotalTokens = u.InputTokens + u.OutputTokens
	return &wire.Response{Model: a.model, FinishReason: a.finish, Usage: u, UsageKnown: true}
}

func (a *answer) fails(attempt int) bool {
	return a.Error != "" && (a.Errors == 0 || attempt < a.Errors)
}

// wordless reports whether a try fails before its answer begins.
func (a *answer) wordless(attempt int) bool { return a.fails(attempt) && a.FailAfterChunks == 0 }

func (a *answer) failure() error {
	e := subjects.Errorf(a.Error, "the mock was told to fail")
	e.Provider = a.id
	e.RetryAfter = a.RetryAfter
	return e
}

// pieces cuts the answer into the events of a stream.
func (a *answer) pieces() []wire.Event {
	var out []wire.Event
	for _, s := range split(a.text, a.Chunks) {
		out = append(out, wire.Event{Text: s})
	}
	for i := range a.calls {
		out = append(out, wire.Event{ToolCall: &a.calls[i]})
	}
	return out
}

// split cuts s into n pieces of about the same number of characters, the last
// ones empty if there are too few; n = 0 cuts after each word.
func split(s string, n int) []string {
	if n == 0 {
		return strings.SplitAfter(s, " ")
	}
	runes := []rune(s)
	out := make([]string, 0, n)
	for i := range n {
		out = append(out, string(runes[i*len(runes)/n:(i+1)*len(runes)/n]))
	}
	return out
}

// wait lets time pass, or returns what ended ctx.
func wait(ctx context.Context, d time.Duration) error {
	if ctx.Err() == nil && d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil {
		return nil
	}
	return subjects.AsError(context.Cause(ctx))
}
