// Package rest drives every provider that is one HTTP POST with a JSON answer or
// a stream of events. What is one API's own stands in its Form; the exchange,
// the credential, the classification of failures and the rules for streams are
// here, once.
//
// An attempt: ready → written → exchanged → read. It fails before the exchange
// for want of a base URL or a credential (PROVIDER_UNAVAILABLE) or because the
// request cannot be said in the API's form; in it as package httpx classifies; in
// the reading when the answer is not of the form. A credential that the API
// refused is dropped, so that the next attempt reads it anew.
//
// A stream has its proper end when its Reader says so: ErrDone, or Whole at the
// end of the body. Everything else is PROVIDER_ERROR, with what is known of the
// answer beside it. An event named error is an error in every form.
package rest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/httpx"
	"github.com/sluice-llm/sluice/providers/internal/recheck"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// ErrDone says that the last event of a stream has come.
var ErrDone = httpx.ErrDone

// Form is one API's own. It keeps nothing; its methods may be called
// concurrently.
type Form interface {
	// Write writes the request of one attempt.
	Write(job *providers.Job, stream bool) (*Exchange, error)
	// Read reads a whole answer: valid JSON without an error member. A Response
	// beside an error holds what is known (the usage of a blocked prompt).
	Read(job *providers.Job, body []byte) (*wire.Response, error)
	// Reader makes the reader of one stream.
	Reader(job *providers.Job) Reader
}

// Exchange is one request in an API's form.
type Exchange struct {
	// Path is below the base URL and begins with a slash; escaped.
	Path  string
	Query string
	Body  []byte
	// Header is sent beside the client's own.
	Header http.Header
	// Warnings name what the form could not carry.
	Warnings []string
}

// Reader reads one stream, from one goroutine.
type Reader interface {
	// Event takes one event and yields what it says; ErrDone = the proper end.
	Event(name string, data []byte, yield func(*wire.Event) error) error
	// Whole reports whether the answer is whole if the body ends now.
	Whole() bool
	// Sum is what the events have said so far: usage, finish reason, model, bytes.
	// It is the same one at every call.
	Sum() *wire.Response
}

// inStream is an error that came as an event.
type inStream struct{ data []byte }

func (*inStream) Error() string { return "an error in the stream" }

// ErrorIn is what a Reader returns for an event that is an error of the API: the
// driver classifies its JSON.
func ErrorIn(data []byte) error { return &inStream{data} }

// Token is a credential at one moment.
type Token struct {
	Secret config.Secret
	// BaseURL, when not empty, is the API root that goes with it.
	BaseURL string
	// Source names where it comes from, for errors: a variable, a kind of file.
	Source string
}

// Credential gives the token for one attempt. Safe for concurrent use.
type Credential interface {
	// Token returns it, or PROVIDER_UNAVAILABLE with the reason and the remedy.
	Token(ctx context.Context) (Token, error)
	// Refused says that the API did not accept the token (401).
	Refused(Token)
}

// Options are what a provider sets, and what a test puts in place of the usual.
type Options struct {
	Form         Form
	Capabilities wire.Need
	// Credential, when nil, is the key of the configuration.
	Credential Credential
	// KeyOptional lets a provider without a key serve, without authorization.
	KeyOptional bool
	// Authorize sets the headers that carry a secret; nil = Authorization: Bearer.
	Authorize func(h http.Header, secret string)
	// Header is sent with every request.
	Header http.Header
	// Refine and Format are the API's own; see httpx.Options.
	Refine func(*httpx.Failure) (subjects.Kind, bool)
	Format httpx.Format
	// Probe, when set, is a path whose GET tells whether the server is there, for
	// runners that are started by hand. ProbeHint is the remedy when it is not;
	// ProbeRead, when set, says what in its answer speaks against serving.
	Probe, ProbeHint string
	ProbeRead        func(body []byte) error
	// BaseURLHint says how to set a base URL that is missing.
	BaseURLHint string
	Transport   http.RoundTripper
	Version     string
}

// Provider is one account at one API. Host, path and key come from the
// configuration or the credential, never from a caller.
type Provider struct {
	cfg    *config.Provider
	o      Options
	client *httpx.Client
	base   *url.URL // nil where there is none, or none that is usable
	probe  *recheck.Kept
	last   atomic.Pointer[place]
}

var _ providers.Provider = (*Provider)(nil)

// How long the outcome of a probe is kept.
const (
	probeGood = 10 * time.Second
	probeBad  = 2 * time.Second
)

// New makes the provider of one configuration entry. It does no I/O.
func New(cfg *config.Provider, o Options) *Provider {
	if o.Authorize == nil {
		o.Authorize = bearer
	}
	if cfg.Capabilities != nil {
		o.Capabilities &= wire.Needs(cfg.Capabilities)
	}
	header := o.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if o.Credential == nil && cfg.APIKey.IsSet() {
		o.Authorize(header, cfg.APIKey.Reveal())
	}
	p := &Provider{
		cfg: cfg, o: o, base: parse(cfg.BaseURL),
		client: httpx.New(httpx.Options{
			Header: header, Transport: o.Transport, Version: o.Version, Refine: o.Refine, Format: o.Format,
		}),
	}
	if o.Probe != "" {
		p.probe = &recheck.Kept{Do: p.reach, Good: probeGood, Bad: probeBad}
	}
	return p
}

func bearer(h http.Header, secret string) { h.Set("Authorization", "Bearer "+secret) }

func parse(base string) *url.URL {
	if u, err := url.Parse(base); err == nil && u.Host != "" {
		return u
	}
	return nil
}

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() wire.Need { return p.o.Capabilities }

// Close closes the connections that nobody uses.
func (p *Provider) Close() { p.client.CloseIdle() }

// Check implements providers.Provider: a base URL or a credential that is
// missing; for a runner on a machine of one's own, that it does not answer.
func (p *Provider) Check(ctx context.Context) error {
	if p.probe != nil {
		return p.probe.Check(ctx)
	}
	_, _, err := p.ready(ctx)
	return err
}

// reach asks the server for anything.
func (p *Provider) reach(ctx context.Context) error {
	token, base, err := p.ready(ctx)
	if err != nil {
		return err
	}
	r := p.request(token, base, &Exchange{Path: p.o.Probe}, "")
	r.Method = http.MethodGet
	reply, err := p.client.Do(ctx, r)
	if err == nil && p.o.ProbeRead != nil {
		return p.o.ProbeRead(reply.Body)
	}
	e := subjects.AsError(err)
	if err == nil || e.Kind == subjects.KindProvider && ctx.Err() == nil {
		return nil // it answers, if not as expected: a call will say more
	}
	if p.o.ProbeHint != "" && e.Kind != subjects.KindAuth {
		return subjects.Errorf(subjects.KindProviderUnavailable, "%s; %s", e.Message, p.o.ProbeHint)
	}
	return err
}

// ready returns the token and the base URL of the next attempt, or why there
// can be none.
func (p *Provider) ready(ctx context.Context) (Token, *url.URL, error) {
	var token Token
	var err error
	base, text := p.base, p.cfg.BaseURL
	if p.o.Credential != nil {
		if token, err = p.o.Credential.Token(ctx); err != nil {
			return token, nil, err
		}
		if text == "" {
			base, text = parse(token.BaseURL), token.BaseURL
		}
	}
	switch {
	case text == "":
		err = subjects.Errorf(subjects.KindProviderUnavailable, "no base URL is set; %s", p.baseURLHint())
	case base == nil:
		err = subjects.Errorf(subjects.KindProviderUnavailable, "the base URL is not usable; %s", p.baseURLHint())
	case p.o.Credential == nil:
		return token, base, p.key()
	}
	return token, base, err
}

func (p *Provider) key() error {
	switch {
	case p.cfg.APIKey.IsSet() || p.o.KeyOptional:
		return nil
	case p.cfg.APIKeyEnv == "":
		return subjects.Errorf(subjects.KindProviderUnavailable, "no key is set; name its variable in providers.%s.apiKeyEnvVar", p.cfg.ID)
	}
	return subjects.Errorf(subjects.KindProviderUnavailable, "%s is not set", p.cfg.APIKeyEnv)
}

func (p *Provider) baseURLHint() string {
	if p.o.BaseURLHint != "" {
		return p.o.BaseURLHint
	}
	return "set providers." + p.cfg.ID + ".baseUrl"
}

// place is where the last exchange went; most go to one path.
type place struct {
	base        *url.URL
	path, query string
	url         *url.URL
}

// at returns the URL of an exchange. It is shared and not to be changed.
func (p *Provider) at(base *url.URL, ex *Exchange) *url.URL {
	if l := p.last.Load(); l != nil && l.base == base && l.path == ex.Path && l.query == ex.Query {
		return l.url
	}
	u := *base
	u.RawPath = base.EscapedPath() + ex.Path
	u.Path, _ = url.PathUnescape(u.RawPath)
	u.RawQuery = ex.Query
	p.last.Store(&place{base, ex.Path, ex.Query, &u})
	return &u
}

// SomeModel is a model that the configuration names for a tier, to stand in a
// hint; "MODEL" where it names none.
func SomeModel(cfg *config.Provider) string {
	for _, tier := range []string{subjects.TierStandard, subjects.TierFast, subjects.TierPremium} {
		if m := cfg.Models[tier]; m != "" {
			return m
		}
	}
	return "MODEL"
}

// request puts an exchange on its way.
func (p *Provider) request(token Token, base *url.URL, ex *Exchange, model string) *httpx.Request {
	r := &httpx.Request{URL: p.at(base, ex), Body: ex.Body, Header: ex.Header, Model: model}
	if p.o.Credential == nil {
		r.Secret, r.Key = p.cfg.APIKey.Reveal(), p.cfg.APIKeyEnv
		return r
	}
	r.Secret, r.Key = token.Secret.Reveal(), token.Source
	if token.Secret.IsSet() {
		if r.Header = r.Header.Clone(); r.Header == nil {
			r.Header = http.Header{}
		}
		p.o.Authorize(r.Header, r.Secret)
	}
	return r
}

// try is one attempt on its way.
type try struct {
	token    Token
	req      *httpx.Request
	warnings []string
}

func (p *Provider) write(ctx context.Context, job *providers.Job, stream bool) (*try, error) {
	token, base, err := p.ready(ctx)
	if err != nil {
		return nil, err
	}
	ex, err := p.o.Form.Write(job, stream)
	if err != nil {
		return nil, err
	}
	return &try{token, p.request(token, base, ex, job.Model), ex.Warnings}, nil
}

// failed puts the provider's name on an error, and lets go of what the error
// says is no longer true: a token, a server that was there.
func (p *Provider) failed(t *try, err error) error {
	if err == nil {
		return nil
	}
	e := subjects.AsError(err)
	if e.Provider == "" && e.Kind != subjects.KindCancelled {
		e.Provider = p.cfg.ID
	}
	// Only a 401 is about the token: with another status, or none (in a stream), it
	// is about what the account may do, and another token would not help.
	if e.Kind == subjects.KindAuth && t != nil && p.o.Credential != nil && httpx.StatusOf(err) == http.StatusUnauthorized {
		p.o.Credential.Refused(t.token)
	}
	if e.Kind == subjects.KindProviderUnavailable && p.probe != nil {
		p.probe.Drop()
	}
	return e
}

// Complete implements providers.Provider.
func (p *Provider) Complete(ctx context.Context, job *providers.Job) (*wire.Response, error) {
	t, err := p.write(ctx, job, false)
	if err != nil {
		return nil, p.failed(nil, err)
	}
	reply, err := p.client.Do(ctx, t.req)
	if err != nil {
		return nil, p.failed(t, err)
	}
	resp, err := p.read(job, t, reply)
	return resp, p.failed(t, err)
}

func (p *Provider) read(job *providers.Job, t *try, reply *httpx.Reply) (*wire.Response, error) {
	resp, err := p.o.Form.Read(job, reply.Body)
	if resp != nil {
		resp.RateLimit = reply.RateLimit
		resp.Warnings = append(resp.Warnings, t.warnings...)
	}
	return resp, err
}

// Stream implements providers.Provider.
func (p *Provider) Stream(ctx context.Context, job *providers.Job, yield func(*wire.Event) error) (*wire.Response, error) {
	t, err := p.write(ctx, job, true)
	if err != nil {
		return nil, p.failed(nil, err)
	}
	s := &stream{p: p, t: t, job: job, r: p.o.Form.Reader(job)}
	s.yield = func(ev *wire.Event) error {
		err := yield(ev)
		s.left = s.left || err != nil
		return err
	}
	sum := s.r.Sum()
	sum.Warnings = append(sum.Warnings, t.warnings...)
	reply, err := p.client.Open(ctx, t.req, p.cfg.IdleTimeout, func(r *httpx.StreamReply) {
		sum.RateLimit = r.RateLimit
		job.Open(sum)
	}, s.event)
	sum.RateLimit = reply.RateLimit
	switch {
	case s.left:
		return sum, err
	case subjects.KindOf(err) == subjects.KindTimeout && ctx.Err() == nil && s.r.Whole():
		err = nil // the server forgot to end what it had finished
	case err != nil:
	case reply.Whole != nil:
		return p.unstreamed(job, t, reply.Whole, yield)
	case !s.done && !s.r.Whole():
		err = subjects.Errorf(subjects.KindProvider, "the stream ended early, without its proper end")
	}
	return sum, p.failed(t, err)
}

// stream is the reading of one stream.
type stream struct {
	p     *Provider
	t     *try
	job   *providers.Job
	r     Reader
	begun bool
	left  bool // the caller's side ended it
	done  bool

	yield func(*wire.Event) error
}

func (s *stream) event(name string, data []byte) error {
	if !s.begun {
		s.begun = true
		s.job.Begin()
	}
	if name == "error" {
		return s.p.client.ErrorOf(s.t.req, data)
	}
	err := s.r.Event(name, data, s.yield)
	if err == nil || s.left {
		return err
	}
	var own *inStream
	switch {
	case errors.As(err, &own):
		return s.p.client.ErrorOf(s.t.req, own.data)
	case errors.Is(err, ErrDone):
		if !s.r.Whole() {
			return subjects.Errorf(subjects.KindProvider, "the stream ended early, without an answer in it")
		}
		s.done = true
	}
	return err
}

// unstreamed gives a whole answer as a stream: the server does not stream. An
// answer that has more in it than text and tool calls is refused, not reduced.
func (p *Provider) unstreamed(job *providers.Job, t *try, reply *httpx.Reply, yield func(*wire.Event) error) (*wire.Response, error) {
	resp, err := p.read(job, t, reply)
	if err == nil && job.Request.Head.Needs&(wire.NeedChoices|wire.NeedLogProbs) != 0 {
		err = subjects.Errorf(subjects.KindProvider, "the server does not stream, and choices and log-probabilities cannot be streamed for it; ask without stream")
	}
	if err == nil {
		err = wire.Decode(resp)
	}
	if err != nil {
		return resp, p.failed(t, err)
	}
	resp.Raw = nil
	return resp, job.AsStream(resp, yield)
}
