// Package openai talks to any API of OpenAI's chat-completions form: OpenAI
// itself, and by configuration every server that is compatible with it.
package openai

import (
	"bytes"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// Everything is all that the API's form can say. What one model of it lacks is
// its server's answer.
const Everything = wire.NeedTools | wire.NeedToolChoice | wire.NeedImages | wire.NeedImageURLs | wire.NeedDocuments |
	wire.NeedAudio | wire.NeedJSONMode | wire.NeedJSONSchema | wire.NeedChoices | wire.NeedLogProbs |
	wire.NeedStreaming | wire.NeedOpenAIChat

// New makes the provider of one configuration entry. What o leaves open is
// OpenAI's own. It does no I/O.
func New(cfg *config.Provider, o rest.Options) *rest.Provider {
	if o.Form == nil {
		o.Form = Form{StreamUsage: cfg.StreamUsage}
	}
	if o.Capabilities == 0 {
		o.Capabilities = Everything
	}
	return rest.New(cfg, o)
}

// Form is the API's form.
type Form struct {
	// StreamUsage asks for the usage of a stream (stream_options).
	StreamUsage bool
}

var _ rest.Form = Form{}

// Write implements rest.Form.
func (f Form) Write(job *providers.Job, stream bool) (*rest.Exchange, error) {
	body, err := job.Request.OpenAIChat(job.Model, stream, f.StreamUsage)
	if err != nil {
		return nil, err
	}
	return &rest.Exchange{Path: "/chat/completions", Body: body}, nil
}

// Read implements rest.Form.
func (f Form) Read(_ *providers.Job, body []byte) (*wire.Response, error) {
	resp := &wire.Response{Wire: wire.OpenAIChat, Raw: body}
	return resp, wire.DecodeSummary(resp)
}

// Reader implements rest.Form. A stream has its proper end with [DONE], or with
// a finish reason where one choice was asked for (of several, one may finish
// before another is cut off).
func (f Form) Reader(job *providers.Job) rest.Reader {
	return &reader{resp: &wire.Response{Wire: wire.OpenAIChat}, one: job.Request.Head.Needs&wire.NeedChoices == 0}
}

type reader struct {
	resp *wire.Response
	ev   wire.Event
	one  bool // one choice was asked for
	done bool
}

// Sum implements rest.Reader.
func (r *reader) Sum() *wire.Response { return r.resp }

// Whole implements rest.Reader. Some servers forget the finish reason, but not
// [DONE].
func (r *reader) Whole() bool {
	if r.done && r.resp.FinishReason == "" && r.resp.OutputBytes > 0 {
		r.resp.FinishReason = subjects.FinishStop
	}
	return r.resp.FinishReason != "" && (r.one || r.done)
}

var done = []byte("[DONE]")

// Event implements rest.Reader.
func (r *reader) Event(_ string, data []byte, yield func(*wire.Event) error) error {
	if bytes.Equal(bytes.TrimSpace(data), done) {
		r.done = true
		return rest.ErrDone
	}
	info, ok := wire.ReadOpenAIChunk(data)
	if !ok {
		return subjects.Errorf(subjects.KindProvider, "the stream has an event that is broken JSON")
	}
	if info.Error {
		return rest.ErrorIn(data)
	}
	r.sum(&info)
	r.ev = wire.Event{
		Wire: wire.OpenAIChat, Raw: data, UsageOnly: info.UsageOnly,
		Empty: info.OutputBytes == 0 && info.Finish == "" && !info.UsageOnly,
	}
	return yield(&r.ev)
}

// sum keeps what the chunks say of the whole. Usage may come in any of them and
// the last one counts, but for one that has lost what was said before.
func (r *reader) sum(info *wire.ChunkInfo) {
	r.resp.OutputBytes += info.OutputBytes
	if info.Finish != "" {
		r.resp.FinishReason = info.Finish
	}
	if info.UsageKnown && (!r.resp.UsageKnown || info.Usage != subjects.Usage{}) {
		r.resp.Usage, r.resp.UsageKnown = info.Usage, true
	}
	if r.resp.Model == "" && info.Model != "" {
		r.resp.Model = string(append([]byte(nil), info.Model...))
	}
}
