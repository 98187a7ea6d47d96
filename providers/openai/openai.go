// Package openai talks to any API of OpenAI's chat-completions form: OpenAI
// itself, and by configuration every server that is compatible with it.
package openai

import (
	"bytes"
	"context"
	"net/http"
	"net/url"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/httpx"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// capabilities are all that the API's form can say. What one model of it lacks
// is its server's answer.
const capabilities = wire.NeedTools | wire.NeedImages | wire.NeedDocuments | wire.NeedAudio |
	wire.NeedJSONMode | wire.NeedJSONSchema | wire.NeedChoices | wire.NeedLogProbs | wire.NeedStreaming

// Options are what a test or an embedder may put in place of the usual.
type Options struct {
	// Transport carries the requests; nil = a pool of the provider's own.
	Transport http.RoundTripper
	// Version is the program's, for the user agent.
	Version string
	// KeyOptional lets a provider without a key serve, without Authorization.
	KeyOptional bool
	// BaseURLHint says how to set a base URL that is missing.
	BaseURLHint string
}

// Provider is one account at one API. Host, path and key come from the
// configuration alone.
type Provider struct {
	cfg    *config.Provider
	opts   Options
	client *httpx.Client
	url    *url.URL // nil where there is none, or none that is usable
}

var _ providers.Provider = (*Provider)(nil)

// New makes the provider of one configuration entry. It does no I/O.
func New(cfg *config.Provider, opts Options) *Provider {
	header := http.Header{}
	if cfg.APIKey.IsSet() {
		header.Set("Authorization", "Bearer "+cfg.APIKey.Reveal())
	}
	p := &Provider{
		cfg: cfg, opts: opts,
		client: httpx.New(httpx.Options{Header: header, Transport: opts.Transport, Version: opts.Version}),
	}
	if u, err := url.Parse(cfg.BaseURL + "/chat/completions"); err == nil && u.Host != "" {
		p.url = u
	}
	return p
}

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() wire.Need { return capabilities }

// Check implements providers.Provider: a key that is missing, or a base URL.
func (p *Provider) Check() error {
	switch {
	case p.url == nil && p.cfg.BaseURL != "":
		return subjects.Errorf(subjects.KindProviderUnavailable, "the base URL is not usable; %s", p.baseURLHint())
	case p.url == nil:
		return subjects.Errorf(subjects.KindProviderUnavailable, "no base URL is set; %s", p.baseURLHint())
	case p.cfg.APIKey.IsSet() || p.opts.KeyOptional:
		return nil
	case p.cfg.APIKeyEnv == "":
		return subjects.Errorf(subjects.KindProviderUnavailable, "no key is set; name its variable in providers.%s.apiKeyEnvVar", p.cfg.ID)
	}
	return subjects.Errorf(subjects.KindProviderUnavailable, "%s is not set", p.cfg.APIKeyEnv)
}

func (p *Provider) baseURLHint() string {
	if p.opts.BaseURLHint != "" {
		return p.opts.BaseURLHint
	}
	return "set providers." + p.cfg.ID + ".baseUrl"
}

// Close closes the connections that nobody uses.
func (p *Provider) Close() { p.client.CloseIdle() }

func (p *Provider) request(job *providers.Job, stream bool) (*httpx.Request, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	body, err := job.Request.OpenAIChat(job.Model, stream, p.cfg.StreamUsage)
	if err != nil {
		return nil, err
	}
	return &httpx.Request{
		URL: p.url, Body: body,
		Secret: p.cfg.APIKey.Reveal(), Key: p.cfg.APIKeyEnv, Model: job.Model,
	}, nil
}

// named puts the provider's name on an error.
func (p *Provider) named(err error) error {
	if err == nil {
		return nil
	}
	e := subjects.AsError(err)
	if e.Provider == "" && e.Kind != subjects.KindCancelled {
		e.Provider = p.cfg.ID
	}
	return e
}

// Complete implements providers.Provider.
func (p *Provider) Complete(ctx context.Context, job *providers.Job) (*wire.Response, error) {
	req, err := p.request(job, false)
	if err != nil {
		return nil, p.named(err)
	}
	reply, err := p.client.Do(ctx, req)
	if err != nil {
		return nil, p.named(err)
	}
	resp, err := response(reply)
	return resp, p.named(err)
}

// response reads what must be known of a whole answer.
func response(reply *httpx.Reply) (*wire.Response, error) {
	resp := &wire.Response{Wire: wire.OpenAIChat, Raw: reply.Body, RateLimit: reply.RateLimit}
	return resp, wire.DecodeSummary(resp)
}

// Stream implements providers.Provider. A stream has its proper end with [DONE],
// or with a finish reason where one choice was asked for (of several, one may
// finish before another is cut off).
func (p *Provider) Stream(ctx context.Context, job *providers.Job, yield func(*wire.Event) error) (*wire.Response, error) {
	req, err := p.request(job, true)
	if err != nil {
		return nil, p.named(err)
	}
	s := &stream{p: p, req: req, yield: yield, resp: &wire.Response{Wire: wire.OpenAIChat}}
	reply, err := p.client.Stream(ctx, req, p.cfg.IdleTimeout, s.event)
	s.resp.RateLimit = reply.RateLimit
	if subjects.KindOf(err) == subjects.KindTimeout && ctx.Err() == nil && s.whole(job) {
		err = nil // the server forgot to end what it had finished
	}
	switch {
	case err != nil:
	case reply.Whole != nil:
		return p.unstreamed(job, reply.Whole, yield)
	case s.done && s.resp.FinishReason == "" && s.resp.OutputBytes > 0:
		s.resp.FinishReason = subjects.FinishStop
	case s.done && s.resp.FinishReason != "":
	case s.whole(job):
	default:
		err = subjects.Errorf(subjects.KindProvider, "the stream ended early, without a finish reason")
	}
	if err != nil && s.fromYield {
		return s.resp, err
	}
	return s.resp, p.named(err)
}

// stream is the reading of one stream.
type stream struct {
	p         *Provider
	req       *httpx.Request
	yield     func(*wire.Event) error
	resp      *wire.Response
	ev        wire.Event
	fromYield bool
	done      bool
}

// whole reports whether the answer is all there, without [DONE].
func (s *stream) whole(job *providers.Job) bool {
	return s.resp.FinishReason != "" && job.Request.Head.Needs&wire.NeedChoices == 0
}

var done = []byte("[DONE]")

func (s *stream) event(data []byte) error {
	if bytes.Equal(bytes.TrimSpace(data), done) {
		s.done = true
		return httpx.ErrDone
	}
	info, ok := wire.ReadOpenAIChunk(data)
	if !ok {
		return subjects.Errorf(subjects.KindProvider, "the stream has an event that is broken JSON")
	}
	if info.Error {
		if e := s.p.client.ErrorIn(s.req, data); e != nil {
			return e
		}
	}
	s.sum(&info)
	s.ev = wire.Event{
		Wire: wire.OpenAIChat, Raw: data, UsageOnly: info.UsageOnly,
		Empty: info.OutputBytes == 0 && info.Finish == "" && !info.UsageOnly,
	}
	if err := s.yield(&s.ev); err != nil {
		s.fromYield = true
		return err
	}
	return nil
}

// sum keeps what the chunks say of the whole. Usage may come in any of them and
// the last one counts, but for one that has lost what was said before.
func (s *stream) sum(info *wire.ChunkInfo) {
	s.resp.OutputBytes += info.OutputBytes
	if info.Finish != "" {
		s.resp.FinishReason = info.Finish
	}
	if info.UsageKnown && (!s.resp.UsageKnown || info.Usage != subjects.Usage{}) {
		s.resp.Usage, s.resp.UsageKnown = info.Usage, true
	}
	if s.resp.Model == "" && info.Model != "" {
		s.resp.Model = string(append([]byte(nil), info.Model...))
	}
}

// unstreamed gives a whole answer as a stream: the server does not stream. An
// answer that has more in it than text and tool calls is refused, not reduced.
func (p *Provider) unstreamed(job *providers.Job, reply *httpx.Reply, yield func(*wire.Event) error) (*wire.Response, error) {
	resp, err := response(reply)
	if err == nil && job.Request.Head.Needs&(wire.NeedChoices|wire.NeedLogProbs) != 0 {
		err = subjects.Errorf(subjects.KindProvider, "the server does not stream, and choices and log-probabilities cannot be streamed for it; ask without stream")
	}
	if err == nil {
		err = wire.Decode(resp)
	}
	if err != nil {
		return resp, p.named(err)
	}
	resp.Raw = nil
	if resp.Text != "" {
		if err := yield(&wire.Event{Text: resp.Text}); err != nil {
			return resp, err
		}
	}
	for i := range resp.ToolCalls {
		if err := yield(&wire.Event{ToolCall: &resp.ToolCalls[i]}); err != nil {
			return resp, err
		}
	}
	return resp, nil
}
