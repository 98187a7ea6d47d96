// Package claudecode serves calls from a Claude subscription, through the claude
// program that its owner has logged in to: one cold `claude -p` for each call.
//
// A call goes: compose (the request as the program's own lines), start (bounded
// to one start-up per core at once), talk (lines in, lines out, the answer as
// events), stop. The program keeps a conversation in memory, so each process has
// one call and is gone when the call returns, with its children, however the
// call ends. What goes wrong with the process (not there, dies, prints what is
// no stream-json, is silent for the idle timeout) is told apart from what the
// API answered, which the program reports and failure.go classifies.
//
// The program is an agent's front end, made to act on its input. All of that is
// off here (arguments and environment in command.go), and the request goes in on
// standard input alone: a command line is world-readable.
//
// What the API bills is the sum over the requests that the program made. Tool
// use being off, that is one, but for a JSON schema that the model did not heed
// at once. Its automatic second tries after a refusal or a full token limit are
// prevented by ending the process there (talk.go).
//
// With providers.claude-code.direct the login's token is used without the
// program, and the program stands in where the API refuses that; see direct.go.
//
// Facts about the program are from its versions 2.1.332 and 2.1.197, recorded
// and tested (make test-claude); docs/claude-code.md says what callers notice.
package claudecode

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/claudecred"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// capabilities are what the program can carry. It has no tools but its own, takes
// no image by URL, and writes JSON to a schema by a tool of its own.
const capabilities = wire.NeedImages | wire.NeedJSONSchema | wire.NeedStreaming

// Options are what a test or an embedder may put in place of the usual.
type Options struct {
	// Transport carries the requests of the direct leg; nil = a pool of its own.
	Transport http.RoundTripper
	// Version is Sluice's, which it says to the API; "" = "dev".
	Version string
	// Environ stands in for os.Environ, Now for time.Now; nil = those.
	Environ func() []string
	Now     func() time.Time
}

// Provider is one login. Safe for concurrent use.
type Provider struct {
	cfg    *config.Provider
	o      Options
	starts chan struct{} // a slot for each start-up that runs
	cred   *claudecred.Reader
	status *status
	dir    emptyDir // where the program runs
	direct leg      // nil unless it is switched on
}

// leg is one way to the account.
type leg interface {
	Complete(context.Context, *providers.Job) (*wire.Response, error)
	Stream(context.Context, *providers.Job, func(*wire.Event) error) (*wire.Response, error)
	Capabilities() wire.Need
	Close()
}

var _ providers.Provider = (*Provider)(nil)

// New makes the provider of one configuration entry. It does no I/O.
func New(cfg *config.Provider, o Options) *Provider {
	o.Version = cmp.Or(o.Version, "dev")
	if o.Environ == nil {
		o.Environ = os.Environ
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Provider{
		cfg: cfg, o: o, starts: make(chan struct{}, max(1, runtime.NumCPU())),
		cred: claudecred.New(claudecred.Options{File: cfg.CredentialsFile, Named: cfg.CredentialsNamed, Now: o.Now}),
	}
	p.status = &status{p: p}
	if cfg.Direct {
		p.direct = newDirect(p)
	}
	return p
}

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() wire.Need {
	if p.direct != nil {
		return capabilities | p.direct.Capabilities()
	}
	return capabilities
}

// Check implements providers.Provider: the program is missing, or not logged in
// to a subscription. The program is asked, which takes a second or so; what it
// said is kept. With the direct leg a token that is good is enough.
func (p *Provider) Check(ctx context.Context) error {
	if p.direct != nil {
		if _, err := p.cred.Token(ctx); err == nil {
			return nil
		}
	}
	return p.status.check(ctx)
}

// Close ends what runs between calls. Calls that run go on.
func (p *Provider) Close() {
	p.status.close()
	p.dir.remove()
	if p.direct != nil {
		p.direct.Close()
	}
}

// Complete implements providers.Provider.
func (p *Provider) Complete(ctx context.Context, job *providers.Job) (*wire.Response, error) {
	resp, err := p.call(ctx, job, nil)
	return resp, p.named(err)
}

// Stream implements providers.Provider.
func (p *Provider) Stream(ctx context.Context, job *providers.Job, yield func(*wire.Event) error) (*wire.Response, error) {
	out := &outlet{yield: yield}
	resp, err := p.call(ctx, job, out)
	if out.left {
		return resp, err
	}
	return resp, p.named(err)
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

// outlet is where the events of a stream go. Its own error ends the stream and
// is returned as it is.
type outlet struct {
	yield func(*wire.Event) error
	begun bool
	left  bool
}

func (o *outlet) event(ev *wire.Event) error {
	o.begun = true
	err := o.yield(ev)
	o.left = o.left || err != nil
	return err
}

// call makes one attempt; out is nil for a whole answer.
func (p *Provider) call(ctx context.Context, job *providers.Job, out *outlet) (*wire.Response, error) {
	if p.direct == nil {
		return p.viaProgram(ctx, job, out, "")
	}
	o := p.viaDirect(ctx, job, out)
	if o.stands {
		return o.resp, o.err
	}
	return p.viaProgram(ctx, job, out, "the direct leg did not answer: "+o.why+"; the claude program did")
}

// viaProgram makes the attempt by the program. note is a warning to begin with.
func (p *Provider) viaProgram(ctx context.Context, job *providers.Job, out *outlet, note string) (*wire.Response, error) {
	in, err := compose(job)
	if err != nil {
		return nil, err
	}
	if note != "" {
		in.warnings = append([]string{note}, in.warnings...)
	}
	free, err := p.startSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	proc, err := p.start(p.callArgs(job.Model, in))
	if err != nil {
		return nil, err
	}
	t := &talk{p: p, proc: proc, in: in, job: job, out: out, booted: free}
	defer t.end() // also when the caller's side panics
	resp, err := t.run(ctx)
	p.status.heard(err)
	return resp, err
}

// startSlot waits for a place among the start-ups. free may be called again.
func (p *Provider) startSlot(ctx context.Context) (free func(), err error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	select {
	case p.starts <- struct{}{}:
	case <-ctx.Done():
		return nil, ended(ctx)
	}
	held := true
	return func() {
		if held {
			held = false
			<-p.starts
		}
	}, nil
}

// ended is the error of a context that is over. A cause that is an *Error is
// what ended it.
func ended(ctx context.Context) error {
	var own *subjects.Error
	if errors.As(context.Cause(ctx), &own) {
		return own
	}
	return subjects.AsError(ctx.Err())
}

// unavailable is an error for what cannot serve, with a code that tells why.
func unavailable(code, format string, args ...any) *subjects.Error {
	e := subjects.Errorf(subjects.KindProviderUnavailable, format, args...)
	e.Code = code
	return e
}

// notOfThisRequest says that the request is in the way, and not the provider: the
// call moves on, and nothing is held against the provider.
func notOfThisRequest(format string, args ...any) *subjects.Error {
	e := subjects.Errorf(subjects.KindProviderUnavailable, format, args...)
	e.HTTPStatus = subjects.KindCapabilityMissing.Status()
	return e
}

// without returns the environment's entries whose names are not in names.
func without(environ []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		return slices.Contains(names, nameOf(kv))
	})
}
