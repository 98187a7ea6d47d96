// Package claudecred reads the OAuth token of a Claude subscription where the
// claude program keeps it: the macOS keychain, or a credentials file.
//
// It only reads. Refresh tokens are single-use, so two programs that refresh
// from one file log each other out; renewing is the claude program's, and what
// is expired here is an error that says so.
//
// A token is kept until a minute before it expires, until the API refuses it or
// the file changes (package loginfile). A token that was refused is not given
// out again while the store still holds it, for five minutes at most: after that
// the refusal may have been the API's passing mistake. Every reason why there is
// no token is an error of its own, PROVIDER_UNAVAILABLE with one of the codes
// below; none holds any part of a token, nor a path of this machine.
package claudecred

import (
	"context"
	"crypto/sha256"
	"errors"
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
	CodeExpired     = "credentials_expired"
	CodeRefused     = "credentials_refused"
	CodeKeychain    = "keychain_unavailable"
)

const (
	// early is how long before its end a token is read anew.
	early = time.Minute
	// refusedFor bounds how long a token that was refused is held back.
	refusedFor = 5 * time.Minute
	// keychainWait bounds the keychain program, which may ask a person.
	keychainWait = 5 * time.Second

	login = "run `claude auth login` as the user that Sluice runs as"
	renew = "run `claude` once as the user that Sluice runs as, which renews it"
)

// Options say where the token is, and what a test puts in place of the usual.
type Options struct {
	// File is the credentials file; "" = not known. Named says that it was set for
	// Sluice: then the keychain is not asked.
	File  string
	Named bool
	// Now stands in for time.Now; nil = that.
	Now func() time.Time
	// Keychain returns the keychain's entry; a nil text = there is none. nil =
	// this system's, and none but on macOS.
	Keychain func(context.Context) ([]byte, error)
}

// Reader gives out the token. Safe for concurrent use; one read at a time.
type Reader struct {
	o    Options
	turn chan struct{} // holds one value; who has it may touch the rest
	kept kept
	// The token that the API refused, as a hash, and when.
	refused   [sha256.Size]byte
	refusedAt time.Time
}

// kept is a token that was read, and from what.
type kept struct {
	token  string
	source string
	till   time.Time // zero = it does not say when it expires
	file   loginfile.State
	stored bool // in the file, and not in the keychain
}

var _ rest.Credential = (*Reader)(nil)

// New makes a reader. It does no I/O.
func New(o Options) *Reader {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Keychain == nil {
		o.Keychain = systemKeychain
	}
	r := &Reader{o: o, turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// lock waits for the turn, or for the end of ctx.
func (r *Reader) lock(ctx context.Context) error {
	select {
	case <-r.turn:
		return nil
	case <-ctx.Done():
		return subjects.AsError(ctx.Err())
	}
}

func (r *Reader) unlock() { r.turn <- struct{}{} }

// Token implements rest.Credential.
func (r *Reader) Token(ctx context.Context) (rest.Token, error) {
	if err := r.lock(ctx); err != nil {
		return rest.Token{}, err
	}
	defer r.unlock()
	if !r.fresh() {
		k, err := r.read(ctx)
		r.kept = k
		if err != nil {
			return rest.Token{}, err
		}
	}
	if r.isRefused(r.kept.token) {
		return rest.Token{}, unavailable(CodeRefused, "the API refused the token in %s; it is tried again when the login changes, or in %d minutes; %s", r.kept.source, int(refusedFor.Minutes()), renew)
	}
	return rest.Token{Secret: config.NewSecret(r.kept.token), Source: r.kept.source}, nil
}

// Refused implements rest.Credential: the token is dropped, and held back while
// the store still has it. A token that is no longer the kept one changes nothing.
func (r *Reader) Refused(t rest.Token) {
	<-r.turn
	defer r.unlock()
	if t.Secret.Reveal() != r.kept.token || r.kept.token == "" {
		return
	}
	r.refused, r.refusedAt = sha256.Sum256([]byte(r.kept.token)), r.o.Now()
	r.kept = kept{}
}

func (r *Reader) isRefused(token string) bool {
	return !r.refusedAt.IsZero() && r.o.Now().Before(r.refusedAt.Add(refusedFor)) && sha256.Sum256([]byte(token)) == r.refused
}

// fresh reports whether the kept token may be given out without a new read.
func (r *Reader) fresh() bool {
	k := &r.kept
	if k.token == "" || !k.till.IsZero() && !r.o.Now().Before(k.till.Add(-early)) {
		return false
	}
	return !k.stored || k.file.Same(r.o.File)
}

// read looks in the keychain, unless a file is named, and then in the file.
func (r *Reader) read(ctx context.Context) (kept, error) {
	if !r.o.Named {
		bounded, cancel := context.WithTimeout(ctx, keychainWait)
		defer cancel()
		blob, err := r.o.Keychain(bounded)
		switch {
		case err != nil && ctx.Err() != nil:
			return kept{}, subjects.AsError(ctx.Err())
		case err != nil:
			return kept{}, unavailable(CodeKeychain, "the keychain does not give the Claude credentials (%v); unlock it, or set LLM_CLAUDE_CREDENTIALS_FILE", err).WithCause(err)
		case blob != nil:
			return r.parse(blob, "the keychain")
		}
	}
	if r.o.File == "" {
		return kept{}, unavailable(CodeMissing, "it is not known where Claude's credentials are; set HOME, or LLM_CLAUDE_CREDENTIALS_FILE")
	}
	source := "Claude's credentials file"
	if r.o.Named {
		source = "the credentials file that is set for Sluice"
	}
	text, state, err := loginfile.Read(r.o.File)
	if err != nil {
		return kept{}, unread(err, source)
	}
	k, err := r.parse(text, source)
	k.file, k.stored = state, true
	return k, err
}

// unread says what is in the way, and what can be done.
func unread(err error, source string) error {
	code, remedy := CodeUnreadable, "make it readable for the user that Sluice runs as"
	var why *loginfile.Error
	if errors.As(err, &why) {
		switch why.Problem {
		case loginfile.Missing:
			return unavailable(CodeMissing, "not logged in: %s is not there; %s", source, login).WithCause(err)
		case loginfile.Exposed:
			code, remedy = CodePermissions, "chmod 600 it, and renew the login if anyone could have read it"
		case loginfile.TooLarge:
			code, remedy = CodeMalformed, "it cannot be Claude's; "+login
		case loginfile.NotPlain, loginfile.Unreadable:
		}
	}
	return unavailable(code, "%s %v; %s", source, err, remedy).WithCause(err)
}

func unavailable(code, format string, args ...any) *subjects.Error {
	e := subjects.Errorf(subjects.KindProviderUnavailable, format, args...)
	e.Code = code
	return e
}
