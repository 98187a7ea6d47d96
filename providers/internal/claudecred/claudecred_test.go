package claudecred

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/providers/internal/loginfile"
	"github.com/sluice-llm/sluice/subjects"
)

const secret = "sk-ant-oat01-secret-of-the-test" //nolint:gosec // made up

var start = time.UnixMilli(1_796_000_000_000)

func blob(token string, expires time.Time) string {
	return fmt.Sprintf(`{"mcpOAuth":{"x":{"accessToken":"other"}},"claudeAiOauth":{"accessToken":%q,"refreshToken":"sk-ant-ort01-never","expiresAt":%d,"scopes":["user:inference"],"subscriptionType":"max"},"organizationUuid":"o"}`, token, expires.UnixMilli())
}

// fixture is a reader of one file, at a time of the test's choosing.
type fixture struct {
	*Reader
	t    *testing.T
	file string
	now  time.Time
}

func setup(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, file: filepath.Join(t.TempDir(), ".credentials.json"), now: start}
	f.Reader = New(Options{File: f.file, Named: true, Now: func() time.Time { return f.now }})
	return f
}

// put writes the file as the claude program does: a new one in the old one's place.
func (f *fixture) put(text string) {
	f.t.Helper()
	if err := os.WriteFile(f.file+".new", []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(f.file+".new", f.file); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) gives(want string) {
	f.t.Helper()
	if got, err := f.Token(f.t.Context()); err != nil || got.Secret.Reveal() != want {
		f.t.Fatalf("%q, %v; want %q", got.Secret.Reveal(), err, want)
	}
}

func (f *fixture) fails(code string) {
	f.t.Helper()
	got, err := f.Token(f.t.Context())
	reason(f.t, err, code)
	if got.Secret.IsSet() {
		f.t.Fatal("a token beside the error")
	}
}

// reason checks a reason: its kind and code, and that it tells no secret and
// names a remedy.
func reason(t *testing.T, err error, code string) {
	t.Helper()
	var e *subjects.Error
	if !errors.As(err, &e) || e.Kind != subjects.KindProviderUnavailable || e.Code != code {
		t.Fatalf("%v (%#v), want code %s", err, e, code)
	}
	for _, part := range []string{"secret", "sk-ant", "never", os.TempDir()} {
		if strings.Contains(e.Message, part) {
			t.Fatalf("%q tells %q", e.Message, part)
		}
	}
	if e.Message == "" {
		t.Fatal("no message")
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()
	good := blob(secret, start.Add(time.Hour))
	seen := map[string]string{}
	for _, c := range []struct {
		name, text, code string
		prepare          func(path string) error
	}{
		{name: "no file", code: CodeMissing},
		{name: "not JSON", text: `{"claudeAiOauth":` + secret, code: CodeMalformed},
		{name: "wrong type", text: `{"claudeAiOauth":{"accessToken":17}}`, code: CodeMalformed},
		{name: "an array", text: `[1]`, code: CodeMalformed},
		{name: "empty file", text: " ", code: CodeMalformed},
		{name: "empty object", text: `{}`, code: CodeLoggedOut},
		{name: "null", text: `{"claudeAiOauth":null}`, code: CodeLoggedOut},
		{name: "logged out", text: `{"claudeAiOauth":{"accessToken":"","refreshToken":"","expiresAt":0}}`, code: CodeLoggedOut},
		{name: "a token with a line end", text: blob("sk-ant-oat01-x\nX-Evil: 1", start.Add(time.Hour)), code: CodeMalformed},
		{name: "expired", text: blob(secret, start), code: CodeExpired},
		{name: "readable by others", text: good, code: CodePermissions, prepare: func(p string) error { return os.Chmod(p, 0o644) }},
		{name: "too large", text: good + strings.Repeat(" ", loginfile.Max), code: CodeMalformed},
		{name: "a folder", code: CodeUnreadable, prepare: func(p string) error { return os.Mkdir(p, 0o700) }},
	} {
		f := setup(t)
		if c.text != "" {
			f.put(c.text)
		}
		if c.prepare != nil {
			if err := c.prepare(f.file); err != nil {
				t.Fatal(err)
			}
		}
		_, err := f.Token(t.Context())
		t.Run(c.name, func(t *testing.T) { reason(t, err, c.code) })
		seen[c.code] = err.Error()
	}
	if len(seen) != 6 {
		t.Errorf("%d reasons, want 6: %v", len(seen), seen)
	}
}

func TestKeptAndReadAnew(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.put(blob("one", start.Add(time.Hour)))
	f.gives("one")

	// The same bytes, time and size in another inode count as a change.
	info, err := os.Stat(f.file)
	if err != nil {
		t.Fatal(err)
	}
	f.put(blob("two", start.Add(time.Hour)))
	if err := os.Chtimes(f.file, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	f.gives("two")

	// Less than a minute before its end it is read anew, and good until then.
	f.now = start.Add(time.Hour - 30*time.Second)
	f.gives("two")
	f.now = start.Add(time.Hour)
	f.fails(CodeExpired)
	f.put(blob("three", start.Add(9*time.Hour)))
	f.gives("three")

	if err := os.Chmod(f.file, 0o640); err != nil {
		t.Fatal(err)
	}
	f.fails(CodePermissions)
	if err := os.Remove(f.file); err != nil {
		t.Fatal(err)
	}
	f.fails(CodeMissing)
}

func TestRefused(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.put(blob("one", start.Add(10*time.Hour)))
	token, err := f.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.Refused(token)
	f.fails(CodeRefused)
	f.fails(CodeRefused)
	f.put(blob("two", start.Add(10*time.Hour)))
	f.gives("two")
	f.Refused(token) // late news of the old one
	f.gives("two")

	// A refusal is not for ever: the API may have been wrong.
	f.put(blob("one", start.Add(10*time.Hour)))
	f.fails(CodeRefused)
	f.now = start.Add(refusedFor)
	f.gives("one")
}

func TestTokenWithoutAnEnd(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, at := range []string{`0`, `-5`, `1e300`, `null`} {
		f.put(`{"claudeAiOauth":{"accessToken":"` + secret + `","expiresAt":` + at + `}}`)
		f.gives(secret)
	}
}

func TestWhereItLooks(t *testing.T) {
	t.Parallel()
	file := setup(t)
	file.put(blob("of-file", start.Add(time.Hour)))
	options := func(named bool, keychain string, failed error) Options {
		return Options{File: file.file, Named: named, Now: func() time.Time { return start }, Keychain: func(context.Context) ([]byte, error) {
			if keychain == "" {
				return nil, failed
			}
			return []byte(blob(keychain, start.Add(time.Hour))), failed
		}}
	}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{options(false, "", nil), "of-file"},
		{options(false, "of-keychain", nil), "of-keychain"},
		{options(true, "not asked", errors.New("not asked")), "of-file"},
	} {
		got, err := New(c.o).Token(t.Context())
		if err != nil || got.Secret.Reveal() != c.want || got.Source == "" {
			t.Errorf("%q from %q, %v; want %q", got.Secret.Reveal(), got.Source, err, c.want)
		}
	}
	_, err := New(options(false, "", errors.New("locked"))).Token(t.Context())
	reason(t, err, CodeKeychain)
	_, err = New(Options{Keychain: func(context.Context) ([]byte, error) { return nil, nil }}).Token(t.Context())
	reason(t, err, CodeMissing)
}

// A keychain that does not answer holds nobody longer than that one's context.
func TestKeychainThatWaits(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	r := New(Options{Keychain: func(ctx context.Context) ([]byte, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, errors.New("asking a person")
	}})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := r.Token(ctx); subjects.KindOf(err) != subjects.KindCancelled {
			t.Errorf("%v, want CANCELLED", err)
		}
	})
	<-asked
	other, stop := context.WithCancel(t.Context())
	stop()
	if _, err := r.Token(other); subjects.KindOf(err) != subjects.KindCancelled {
		t.Errorf("%v, want CANCELLED", err)
	}
	cancel()
	wg.Wait()
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.put(blob("one", start.Add(time.Hour)))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				token, err := f.Token(t.Context())
				if err == nil {
					f.Refused(token)
				}
			}
		})
	}
	for i := range 50 {
		f.put(blob(fmt.Sprint("token-", i), start.Add(time.Hour)))
	}
	wg.Wait()
	f.put(blob("last", start.Add(time.Hour)))
	f.gives("last")
}

// FuzzParse gives any text as the credentials: what comes out is a token that can
// stand in a header, or a reason that tells nothing of the text.
func FuzzParse(f *testing.F) {
	f.Add(blob(secret, start.Add(time.Hour)))
	f.Add(`{"claudeAiOauth":{"accessToken":"","expiresAt":1e400}}`)
	f.Add(`{"claudeAiOauth":[]}`)
	f.Add(`{"claudeAiOauth":{"accessToken":"a b","expiresAt":"12"}}`)
	f.Add(strings.Repeat(`{"claudeAiOauth":`, 500))
	r := New(Options{Now: func() time.Time { return start }})
	f.Fuzz(func(t *testing.T, text string) {
		k, err := r.parse([]byte(text), "the store")
		if err != nil {
			var e *subjects.Error
			if !errors.As(err, &e) || e.Code == "" || k.token != "" {
				t.Fatalf("%v beside %q", err, k.token)
			}
			return
		}
		if !sendable(k.token) || k.token == "" || !k.till.IsZero() && !start.Before(k.till) {
			t.Fatalf("gave %q until %v", k.token, k.till)
		}
	})
}
