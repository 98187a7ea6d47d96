// Package opencode reads the GitHub token with which OpenCode uses a Copilot
// account, where OpenCode keeps it: its file auth.json (WIRE.md B.1).
//
// It only reads. The token is a GitHub OAuth token, used as it is: there is no
// exchange, and nothing to renew. Both generations of the file are understood:
// today's, in which access and refresh are the same GitHub token, and that of the
// plug-in opencode-copilot-auth, in which access is a Copilot token of half an
// hour, which is not looked at. OPENCODE_AUTH_CONTENT, which OpenCode prefers to
// the file, is not read: a token in the environment cannot change while Sluice
// runs, and every child process gets it.
//
// The file is looked at for every token, and read anew when it has changed. A
// token that the API refused is not given out again while the file still has it,
// for five minutes at most: after that the refusal may have been the API's passing
// mistake. Every reason why there is no token is an error of its own,
// PROVIDER_UNAVAILABLE with one of the codes below; none holds any part of a
// token, nor a path of this machine.
package opencode

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers/internal/loginfile"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
)

// Codes of the reasons why there is no token.
const (
	CodeMissing     = "credentials_missing"
	CodeUnreadable  = "credentials_unreadable"
	CodePermissions = "credentials_permissions"
	CodeMalformed   = "credentials_malformed"
	CodeLoggedOut   = "logged_out"
	CodeType        = "credentials_type"
	CodeHost        = "credentials_host"
	CodeRefused     = "credentials_refused"
)

const (
	// refusedFor bounds how long a token that was refused is held back.
	refusedFor = 5 * time.Minute

	login = "run `opencode auth login` as the user that Sluice runs as, and choose GitHub Copilot"
)

// Options say where the file is, and what a test puts in place of the usual.
type Options struct {
	// File is the path; "" = not known. Named says that it is the operator's own
	// choice (LLM_COPILOT_AUTH_FILE) and not OpenCode's usual place.
	File  string
	Named bool
	// Now is the clock; nil = time.Now.
	Now func() time.Time
}

// Reader gives out the token. Safe for concurrent use; one read at a time.
type Reader struct {
	o Options

	mu    sync.Mutex
	state loginfile.State // of the file that entry was read from
	entry entry
	err   error // why it has no token
	// The token that the API refused, as a hash, and when.
	refused   [sha256.Size]byte
	refusedAt time.Time
}

var _ rest.Credential = (*Reader)(nil)

// New makes a reader. It does no I/O.
func New(o Options) *Reader {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Reader{o: o}
}

// Token implements rest.Credential.
func (r *Reader) Token(context.Context) (rest.Token, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.state.Same(r.o.File) {
		r.read()
	}
	switch {
	case r.err != nil:
		return rest.Token{}, r.err
	case r.isRefused(r.entry.token):
		return rest.Token{}, unavailable(CodeRefused, "GitHub does not accept the token in %s; log in again with opencode: %s", r.source(), login)
	}
	return rest.Token{Secret: config.NewSecret(r.entry.token), BaseURL: r.entry.baseURL(), Source: r.source()}, nil
}

// Refused implements rest.Credential: the token is held back while the file
// still has it. One that is no longer the file's changes nothing.
func (r *Reader) Refused(t rest.Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token := t.Secret.Reveal(); token != "" && token == r.entry.token {
		r.refused, r.refusedAt = sha256.Sum256([]byte(token)), r.o.Now()
		r.state = loginfile.State{}
	}
}

func (r *Reader) isRefused(token string) bool {
	return !r.refusedAt.IsZero() && r.o.Now().Before(r.refusedAt.Add(refusedFor)) && sha256.Sum256([]byte(token)) == r.refused
}

// read reads the file anew.
func (r *Reader) read() {
	r.state, r.entry, r.err = loginfile.State{}, entry{}, nil
	if r.o.File == "" {
		r.err = unavailable(CodeMissing, "there is no home folder to look for OpenCode's auth.json in; set LLM_COPILOT_AUTH_FILE")
		return
	}
	text, state, err := loginfile.Read(r.o.File)
	if err != nil {
		r.err = r.unread(err)
		return
	}
	r.state = state
	if r.entry, err = parse(text); err != nil {
		r.err = r.wrong(err)
	}
}

// source is how errors call the file.
func (r *Reader) source() string {
	if r.o.Named {
		return "the file that LLM_COPILOT_AUTH_FILE names"
	}
	return "OpenCode's auth.json"
}

// unread is the error for a file that was not read.
func (r *Reader) unread(err error) error {
	var e *loginfile.Error
	if !errors.As(err, &e) {
		return unavailable(CodeUnreadable, "%s cannot be read", r.source()).WithCause(err)
	}
	code, remedy := CodeUnreadable, "make it readable for the user that Sluice runs as"
	switch e.Problem {
	case loginfile.Missing:
		code, remedy = CodeMissing, login
		if r.o.Named {
			remedy = "correct the variable, or unset it for OpenCode's own place"
		}
	case loginfile.NotPlain:
		remedy = "name OpenCode's auth.json itself in LLM_COPILOT_AUTH_FILE"
	case loginfile.Exposed:
		code, remedy = CodePermissions, "chmod 600 it, and log in again if anyone could have read it"
	case loginfile.TooLarge:
		code, remedy = CodeMalformed, "it cannot be OpenCode's auth.json; "+login
	case loginfile.Unreadable:
	}
	return unavailable(code, "%s %v; %s", r.source(), e, remedy).WithCause(e.Why)
}

// wrong is the error for a file without a token that can be used.
func (r *Reader) wrong(err error) error {
	var f *fault
	if !errors.As(err, &f) {
		return unavailable(CodeMalformed, "%s is not as expected; %s", r.source(), login).WithCause(err)
	}
	return unavailable(f.code, "%s %s; %s", r.source(), f.text, login)
}

func unavailable(code, format string, args ...any) *subjects.Error {
	e := subjects.Errorf(subjects.KindProviderUnavailable, format, args...)
	e.Code = code
	return e
}
