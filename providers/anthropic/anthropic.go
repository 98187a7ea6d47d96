// Package anthropic talks to Anthropic's Messages API, with a metered key or (the
// direct leg of claude-code) with another credential.
//
// What a request can say there, and what is left out with a warning, is package
// wire's (EncodeAnthropic). The version of the API is pinned to 2023-06-01, which
// all models serve; no beta is asked for, and nothing that only another client
// sends.
package anthropic

import (
	"net/http"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/wire"
)

// Version is the version of the API that Form speaks.
const Version = "2023-06-01"

// Everything is what a request may need of the API. It has no JSON mode without
// a schema, gives one answer and no log-probabilities, and hears nothing. What
// one model of it lacks is the model's answer, or Form's.
const Everything = wire.NeedTools | wire.NeedToolChoice | wire.NeedImages | wire.NeedImageURLs |
	wire.NeedJSONSchema | wire.NeedStreaming

// New makes the provider of one configuration entry. What o leaves open is the
// API's own. It does no I/O.
func New(cfg *config.Provider, o rest.Options) *rest.Provider {
	if o.Form == nil {
		o.Form = Form{}
	}
	if o.Capabilities == 0 {
		o.Capabilities = Everything
	}
	if o.Authorize == nil {
		o.Authorize = authorize
	}
	if o.Refine == nil {
		o.Refine = Refine
	}
	o.Header = o.Header.Clone()
	if o.Header == nil {
		o.Header = http.Header{}
	}
	o.Header.Set("Anthropic-Version", Version)
	return rest.New(cfg, o)
}

func authorize(h http.Header, secret string) { h.Set("X-Api-Key", secret) }

// Form is the API's form.
type Form struct{}

var _ rest.Form = Form{}

// Write implements rest.Form.
func (Form) Write(job *providers.Job, stream bool) (*rest.Exchange, error) {
	chat, err := job.Request.Chat()
	if err != nil {
		return nil, err
	}
	body, warnings, err := wire.EncodeAnthropic(chat, job.Model, stream)
	if err != nil {
		return nil, err
	}
	return &rest.Exchange{Path: "/messages", Body: body, Warnings: warnings}, nil
}

// Read implements rest.Form.
func (Form) Read(_ *providers.Job, body []byte) (*wire.Response, error) {
	resp := &wire.Response{Wire: wire.AnthropicMessages, Raw: body}
	return resp, wire.DecodeAnthropicSummary(resp)
}

// Reader implements rest.Form. A stream has its proper end with message_stop.
func (Form) Reader(job *providers.Job) rest.Reader {
	r := &reader{same: job.Request.Wire == wire.AnthropicMessages}
	r.s.Hub = !r.same
	return r
}

type reader struct {
	s    wire.AnthropicStream
	ev   wire.Event
	same bool // the caller speaks this wire and gets every event as it is
}

// Sum implements rest.Reader.
func (r *reader) Sum() *wire.Response { return r.s.Sum() }

// Whole implements rest.Reader.
func (r *reader) Whole() bool { return r.s.Whole() }

// Event implements rest.Reader.
func (r *reader) Event(_ string, data []byte, yield func(*wire.Event) error) error {
	kind, err := r.s.Read(data, &r.ev)
	switch {
	case err != nil:
		return err
	case kind == wire.AnthropicError:
		return rest.ErrorIn(data)
	case kind == wire.AnthropicOutput, r.same:
		if err := yield(&r.ev); err != nil {
			return err
		}
	}
	if kind == wire.AnthropicEnd {
		return rest.ErrDone
	}
	return nil
}
