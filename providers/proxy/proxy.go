// Package proxy forwards calls to another Sluice, or to the LLM proxy bridge that
// came before Sluice: POST <base>/api/complete, on the native wire.
//
// The prompt goes along, and who calls: process, task, class. So does the tier,
// unless a model was chosen: which account serves it is the other side's to
// decide. Routing wishes of the caller's do not. The other side's own provider and
// model come back as the model, "groq/llama-3.3-70b-versatile"; its cost does not:
// the other side counts it, in its own log.
//
// What the other side can do is known only of a Sluice, which refuses what it
// cannot do. A bridge may drop a tool without a word, so it is asked for text
// alone unless the configuration lists its capabilities.
//
// Proxies that lead in a circle: each node adds itself to X-LLM-Hops, and one that
// finds itself there, or too many others, refuses the call (actors/request.go).
package proxy

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/httpx"
	"github.com/sluice-llm/sluice/providers/internal/peer"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// Provider is one other Sluice, or bridge.
type Provider struct {
	*rest.Provider
	cfg *config.Provider
	// sluice says that the last look found a Sluice.
	sluice atomic.Bool
}

var _ providers.Provider = (*Provider)(nil)

// New makes the provider of one configuration entry. It does no I/O.
func New(cfg *config.Provider, o rest.Options) *Provider {
	p := &Provider{cfg: cfg}
	o.Form = form{id: cfg.ID, secret: cfg.APIKey}
	o.Capabilities = wire.NativeNeeds
	o.KeyOptional = true
	o.Refine = p.refine
	o.Probe, o.ProbeRead = "/health", p.readHealth
	o.BaseURLHint = "set LLM_CLI_PROXY_URL to the address of another Sluice or LLM proxy, such as http://host:12435"
	p.Provider = rest.New(cfg, o)
	return p
}

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() wire.Need {
	if p.cfg.Capabilities != nil || p.sluice.Load() {
		return p.Provider.Capabilities()
	}
	return p.Provider.Capabilities() & wire.NeedStreaming
}

// Check implements providers.Provider: the other side's own /health says whether
// it can serve. A bridge need not have one.
func (p *Provider) Check(ctx context.Context) error {
	err := p.Provider.Check(ctx)
	if err == nil {
		return nil
	}
	e := subjects.AsError(err)
	switch status := httpx.StatusOf(err); {
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		p.sluice.Store(false)
		return nil
	case status == 0 && e.Kind == subjects.KindProviderUnavailable && p.cfg.BaseURL != "":
		return subjects.Errorf(e.Kind, "%s; start the other side, or correct LLM_CLI_PROXY_URL", e.Message).WithCause(err)
	}
	return err
}

// health is what counts of a Sluice's health; a bridge's has no canServe.
type health struct {
	CanServe *bool    `json:"canServe"`
	Reasons  []string `json:"reasons"`
}

// readHealth reads the body of a health of status 200.
func (p *Provider) readHealth(body []byte) error {
	var h health
	p.sluice.Store(json.Unmarshal(body, &h) == nil && h.CanServe != nil)
	return nil
}

// refine knows two forms: the contract's error, and a health of status 503.
func (p *Provider) refine(f *httpx.Failure) (subjects.Kind, bool) {
	var far subjects.Error
	if json.Unmarshal(f.Body, &far) == nil && far.Kind.Known() {
		kind, status := peer.Meaning(&far)
		f.ShowStatus = status
		if kind == subjects.KindAuth && f.Status == http.StatusUnauthorized && p.cfg.APIKeyEnv == "" {
			f.Remedy = "put the other side's SLUICE_HTTP_TOKEN in a variable and name that in providers." + p.cfg.ID + ".apiKeyEnvVar"
		}
		return kind, true
	}
	var h health
	if f.Status == http.StatusServiceUnavailable && json.Unmarshal(f.Body, &h) == nil && h.CanServe != nil {
		p.sluice.Store(true)
		f.Message = "the other Sluice cannot serve now: " + strings.Join(h.Reasons, "; ")
		return subjects.KindProviderUnavailable, true
	}
	return "", false
}

// form is the native wire over HTTP.
type form struct {
	id     string
	secret config.Secret
}

var _ rest.Form = form{}

// Write implements rest.Form.
func (f form) Write(job *providers.Job, stream bool) (*rest.Exchange, error) {
	h := &job.Request.Head
	ask := wire.NativeAsk{Task: h.Task, Process: h.Process, Tier: job.Tier, SkipCache: h.SkipCache, ForcePaid: h.ForcePaid, Stream: stream}
	if subjects.ValidTier(job.Model) {
		ask.Tier = job.Model
	} else {
		ask.Model = job.Model
	}
	if ask.Process == subjects.UnknownProcess {
		ask.Process = ""
	}
	body, warnings, err := job.Request.Native(&ask, f.id)
	if err != nil {
		return nil, err
	}
	return &rest.Exchange{Path: "/api/complete", Body: body, Header: header(job), Warnings: warnings}, nil
}

func header(job *providers.Job) http.Header {
	out := http.Header{"X-Llm-Call-Id": {job.AttemptID()}}
	if job.Hops != "" {
		out.Set("X-Llm-Hops", job.Hops)
	}
	if job.Class != "" {
		out.Set("X-Llm-Class", job.Class)
	}
	if !job.Deadline.IsZero() {
		ms := max(1, time.Until(job.Deadline).Milliseconds())
		out.Set("X-Llm-Timeout-Ms", strconv.FormatInt(min(ms, subjects.MaxTimeoutMs), 10))
	}
	return out
}

// Read implements rest.Form.
func (form) Read(_ *providers.Job, body []byte) (*wire.Response, error) {
	resp, provider, err := wire.ReadNative(body)
	if err == nil {
		resp.Model = full(provider, resp.Model)
	}
	return resp, err
}

// full names the other side's choice whole.
func full(provider, model string) string {
	if provider == "" || model == "" {
		return model
	}
	return provider + "/" + model
}

// Reader implements rest.Form.
func (f form) Reader(*providers.Job) rest.Reader { return &reader{secret: f.secret.Reveal()} }

type reader struct {
	wire.NativeReader
	secret string
}

// Event implements rest.Reader. A Sluice ends its stream with [DONE], after the
// result; nothing is said after the result, so its end is not waited for.
func (r *reader) Event(_ string, data []byte, yield func(*wire.Event) error) error {
	if string(data) == "[DONE]" {
		return rest.ErrDone
	}
	err := r.NativeReader.Event(data, yield)
	switch far := r.Failed(); {
	case far != nil:
		e := peer.Error(far, r.secret)
		e.Final = true // it has made its own tries
		return e
	case err == nil && r.Whole():
		r.Sum().Model = full(r.Provider(), r.Sum().Model)
		return rest.ErrDone
	}
	return err
}
