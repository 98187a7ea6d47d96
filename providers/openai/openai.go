// Package openai talks to any API of OpenAI's chat-completions form: OpenAI
// itself, by configuration every server that is compatible with it, and the
// providers that say in a Dialect what is their own (copilot, groq, …).
//
// What merely steers an answer and is refused by the server is left out and named
// in the answer's warnings (see steers).
package openai

import (
	"context"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/wire"
)

// Everything is all that the API's form can say. What one model of it lacks is
// its server's answer.
const Everything = wire.NeedTools | wire.NeedToolChoice | wire.NeedImages | wire.NeedImageURLs | wire.NeedDocuments |
	wire.NeedAudio | wire.NeedJSONMode | wire.NeedJSONSchema | wire.NeedChoices | wire.NeedLogProbs |
	wire.NeedStreaming | wire.NeedOpenAIChat

// Dialect is what is one API's own in the form that all of them share. Its
// functions may be called concurrently.
type Dialect struct {
	// Prepare, when set, changes a request that is written: its body, its headers.
	// Its error is why this API cannot serve the request.
	Prepare func(job *providers.Job, ex *rest.Exchange) error
	// Mend, when set, puts a whole answer right that is not in the form.
	Mend func(job *providers.Job, body []byte) ([]byte, error)
}

// Provider is one account at one API of the form.
type Provider struct {
	*rest.Provider
	steers *steers
}

var _ providers.Provider = (*Provider)(nil)

// New makes the provider of one configuration entry. What o leaves open is
// OpenAI's own. It does no I/O.
func New(cfg *config.Provider, o rest.Options) *Provider {
	if o.Refine == nil {
		o.Refine = Refine
	}
	return NewDialect(cfg, o, Dialect{})
}

// NewDialect makes the provider of an API with a dialect.
func NewDialect(cfg *config.Provider, o rest.Options, d Dialect) *Provider {
	steers := &steers{provider: cfg.ID, streamUsage: cfg.StreamUsage}
	o.Form = form{cfg.StreamUsage, d, steers}
	if o.Capabilities == 0 {
		o.Capabilities = Everything
	}
	return &Provider{Provider: rest.New(cfg, o), steers: steers}
}

// Complete implements providers.Provider.
func (p *Provider) Complete(ctx context.Context, job *providers.Job) (*wire.Response, error) {
	tries := tries{steers: p.steers, job: job}
	for {
		resp, err := p.Provider.Complete(ctx, job)
		if err == nil || !tries.again(err) {
			return resp, err
		}
	}
}

// Stream implements providers.Provider.
func (p *Provider) Stream(ctx context.Context, job *providers.Job, yield func(*wire.Event) error) (*wire.Response, error) {
	tries := tries{steers: p.steers, job: job, stream: true}
	for begun := false; ; {
		resp, err := p.Provider.Stream(ctx, job, func(ev *wire.Event) error {
			begun = true
			return yield(ev)
		})
		if err == nil || begun || !tries.again(err) {
			return resp, err
		}
	}
}

// form is the API's form.
type form struct {
	streamUsage bool // ask for the usage of a stream (stream_options)
	dialect     Dialect
	steers      *steers
}

var _ rest.Form = form{}

// Write implements rest.Form.
func (f form) Write(job *providers.Job, stream bool) (*rest.Exchange, error) {
	body, err := job.Request.OpenAIChat(job.Model, stream, f.streamUsage)
	if err != nil {
		return nil, err
	}
	ex := &rest.Exchange{Path: "/chat/completions", Body: body}
	f.steers.leaveOut(job, ex)
	if f.dialect.Prepare != nil {
		err = f.dialect.Prepare(job, ex)
	}
	return ex, err
}

// Read implements rest.Form.
func (f form) Read(job *providers.Job, body []byte) (*wire.Response, error) {
	if f.dialect.Mend != nil {
		var err error
		if body, err = f.dialect.Mend(job, body); err != nil {
			return nil, err
		}
	}
	resp := &wire.Response{Wire: wire.OpenAIChat, Raw: body}
	return resp, wire.DecodeSummary(resp)
}

// Reader implements rest.Form. A stream has its proper end with [DONE], or with
// a finish reason where one choice was asked for (of several, one may finish
// before another is cut off).
func (f form) Reader(job *providers.Job) rest.Reader {
	return &reader{resp: &wire.Response{Wire: wire.OpenAIChat}, one: job.Request.Head.Needs&wire.NeedChoices == 0}
}
