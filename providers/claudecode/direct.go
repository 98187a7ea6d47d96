package claudecode

import (
	"context"
	"net/http"
	"strings"

	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/anthropic"
	"github.com/sluice-llm/sluice/providers/internal/httpx"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// The direct leg asks the Messages API itself, with the token of the login. It
// is off until the operator switches it on, because the terms of a plan may not
// allow it (docs/claude-code.md says so to them). It says who it is: Sluice's own
// user agent, and nothing that the claude program sends but the beta without
// which the API takes no such token.
//
// Where the API refuses it (401, 403, 429, and the 400s of a token that is not
// for this use), or there is no token, the program answers in its place, within
// the same attempt: nothing has reached the caller by then. The program has
// limits of its own at the API, and renews the login.

const (
	// directBase is the API's root.
	directBase = ownHost + "/v1"
	oauthBeta  = "oauth-2025-04-20"
)

// newDirect makes the leg.
func newDirect(p *Provider) leg {
	cfg := *p.cfg
	if cfg.BaseURL == "" {
		cfg.BaseURL = directBase
	}
	return anthropic.New(&cfg, rest.Options{
		Credential: p.cred,
		Authorize:  func(h http.Header, secret string) { h.Set("Authorization", "Bearer "+secret) },
		Header:     http.Header{"Anthropic-Beta": {oauthBeta}},
		Refine:     refineDirect,
		Transport:  p.o.Transport,
		Version:    p.o.Version,
	})
}

// What the API says to a token that is used by something else than Claude Code:
// it is not for that, or that is paid for apart (both 400 invalid_request_error).
var (
	notForThis = []string{"only authorized for use with claude code"}
	paidApart  = []string{"extra usage"}
)

// refineDirect knows the refusals, and else what the API's errors mean.
//
// A plan's limit comes as 429 like any rate limit; that a claim is named and that
// the state is "rejected" tells it (WIRE.md C).
func refineDirect(f *httpx.Failure) (subjects.Kind, bool) {
	const unified = "Anthropic-Ratelimit-Unified-"
	claim := f.Header.Get(unified + "Representative-Claim")
	switch {
	case f.Status == http.StatusTooManyRequests && claim != "" && f.Header.Get(unified+"Status") == "rejected":
		f.ModelOnly = ofModel(claim)
		return subjects.KindQuotaExhausted, true
	case f.Status != http.StatusBadRequest:
	case f.Reads(notForThis):
		return subjects.KindAuth, true
	case f.Reads(paidApart):
		return subjects.KindQuotaExhausted, true
	}
	return anthropic.Refine(f)
}

// refusedDirect reports whether the program may do better than the direct leg.
func refusedDirect(err error) bool {
	switch subjects.KindOf(err) {
	case subjects.KindAuth, subjects.KindRateLimited, subjects.KindQuotaExhausted:
		return true
	}
	return false
}

// aliases are the program's short names for models, as its version 2.1.332 reads
// them; the API does not know them.
var aliases = map[string]string{
	"default": "claude-opus-5-5",
	"opus":    "claude-opus-5-5",
	"sonnet":  "claude-sonnet-5-5",
	"haiku":   "claude-haiku-5-5",
	"fable":   "claude-fable-5-2",
}

// apiModel is a model's id as the API writes it: an alias's, or one that is
// written with points; false = it is no id of the API.
func apiModel(model string) (string, bool) {
	if id, ok := aliases[model]; ok {
		return id, true
	}
	if !strings.HasPrefix(model, "claude-") || strings.ContainsAny(model, "[]") {
		return model, false
	}
	return strings.ReplaceAll(model, ".", "-"), true
}

// outcome is what came of the direct leg. Where it does not stand the program is
// asked, and the caller is told why.
type outcome struct {
	resp   *wire.Response
	err    error
	stands bool
	why    string
}

// viaDirect makes the attempt by the direct leg.
func (p *Provider) viaDirect(ctx context.Context, job *providers.Job, out *outlet) outcome {
	o := outcome{}
	model, ok := apiModel(job.Model)
	switch _, noToken := p.cred.Token(ctx); {
	case ctx.Err() != nil:
		return outcome{err: ended(ctx), stands: true}
	case noToken != nil:
		o.err, o.why = noToken, "there is no usable token ("+subjects.AsError(noToken).Code+")"
	case !ok:
		o.err = unavailable("model_alias", "the direct leg does not know the model %q; name its whole id, such as %s", job.Model, aliases["sonnet"])
		o.why = "it does not know the model's short name; name the whole id"
	default:
		own := *job
		own.Model = model
		if out == nil {
			o.resp, o.err = p.direct.Complete(ctx, &own)
		} else {
			o.resp, o.err = p.direct.Stream(ctx, &own, out.event)
		}
		o.why = string(subjects.KindOf(o.err))
		o.stands = o.err == nil || !refusedDirect(o.err) || out != nil && out.begun
	}
	// The program cannot carry everything, and may not be there; then the direct
	// leg's error stands.
	o.stands = o.stands || job.Request.Head.Needs.Missing(capabilities) != 0 || p.programMissing()
	return o
}
