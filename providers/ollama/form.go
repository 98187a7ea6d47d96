package ollama

import (
	"strings"

	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// form is the API's form. It keeps nothing but what the server's list says of
// its models.
type form struct{ cloud *cloud }

var _ rest.Form = form{}

// Write implements rest.Form.
func (f form) Write(job *providers.Job, stream bool) (*rest.Exchange, error) {
	if err := f.cloud.private(job); err != nil {
		return nil, err
	}
	chat, err := job.Request.Chat()
	if err != nil {
		return nil, err
	}
	body, warnings, err := wire.EncodeOllama(chat, job.Model, stream)
	if err != nil {
		return nil, err
	}
	return &rest.Exchange{Path: "/api/chat", Body: body, Warnings: warnings}, nil
}

// Read implements rest.Form.
func (form) Read(_ *providers.Job, body []byte) (*wire.Response, error) {
	a, ok := wire.ReadOllama(body)
	if !ok {
		return nil, subjects.Errorf(subjects.KindProvider, "the answer is no JSON object")
	}
	resp := &wire.Response{Text: a.Text, ToolCalls: a.ToolCalls}
	sum(resp, &a)
	if !a.Done {
		return resp, subjects.Errorf(subjects.KindProvider, "the answer is not done; the server ends one that repeats itself")
	}
	return resp, nil
}

// sum adds what one JSON text says to what is known of the whole.
func sum(resp *wire.Response, a *wire.OllamaAnswer) {
	resp.OutputBytes += a.OutputBytes
	if a.UsageKnown {
		resp.Usage, resp.UsageKnown = a.Usage, true
	}
	if a.Done {
		resp.Model, resp.FinishReason = a.Model, a.Finish
	}
}

// Reader implements rest.Form. A stream has its proper end with the line that
// is done.
func (form) Reader(*providers.Job) rest.Reader { return &reader{resp: &wire.Response{}} }

type reader struct {
	resp  *wire.Response
	ev    wire.Event
	calls bool // the model has called a tool
	done  bool
}

// Sum implements rest.Reader.
func (r *reader) Sum() *wire.Response { return r.resp }

// Whole implements rest.Reader.
func (r *reader) Whole() bool { return r.done }

// Event implements rest.Reader. What the model thinks is counted and not shown.
func (r *reader) Event(_ string, line []byte, yield func(*wire.Event) error) error {
	a, ok := wire.ReadOllama(line)
	if !ok {
		return subjects.Errorf(subjects.KindProvider, "the stream has a line that is broken JSON")
	}
	if a.Error {
		return rest.ErrorIn(line)
	}
	sum(r.resp, &a)
	if a.Text != "" {
		r.ev = wire.Event{Text: strings.Clone(a.Text)}
		if err := yield(&r.ev); err != nil {
			return err
		}
	}
	for i := range a.ToolCalls {
		c := a.ToolCalls[i]
		r.ev = wire.Event{ToolCall: &subjects.ToolCall{
			ID: strings.Clone(c.ID), Name: strings.Clone(c.Name), Arguments: strings.Clone(c.Arguments),
		}}
		r.calls = true
		if err := yield(&r.ev); err != nil {
			return err
		}
	}
	if !a.Done {
		return nil
	}
	if r.done = true; r.calls && r.resp.FinishReason == subjects.FinishStop {
		r.resp.FinishReason = subjects.FinishToolCalls
	}
	return rest.ErrDone
}
