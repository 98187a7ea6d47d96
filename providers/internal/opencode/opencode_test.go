package opencode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
)

const (
	token = "gho_secretOfTheTest0001" //nolint:gosec // made up
	other = "gho_secretOfTheTest0002" //nolint:gosec // made up
)

// today is the file as OpenCode 1.18 writes it, old as its former plug-in did
// (WIRE.md B.1).
func today(token string) string {
	return fmt.Sprintf(`{"anthropic":{"type":"api","key":"sk-ant-x"},"github-copilot":{"type":"oauth","refresh":%q,"access":%q,"expires":0}}`, token, token)
}

func old(token string) string {
	return fmt.Sprintf(`{"github-copilot":{"type":"oauth","refresh":%q,"access":"tid=1;exp=1764500000;sku=plus:8kp","expires":1764500000000}}`, token)
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
	f := &fixture{t: t, file: filepath.Join(t.TempDir(), "auth.json"), now: time.Unix(1_796_000_000, 0)}
	f.Reader = New(Options{File: f.file, Now: func() time.Time { return f.now }})
	return f
}

// put writes the file anew, as if an hour ago.
func (f *fixture) put(text string) {
	f.t.Helper()
	if err := os.WriteFile(f.file+".new", []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	at := time.Now().Add(-time.Hour)
	if err := errors.Join(os.Chtimes(f.file+".new", at, at), os.Rename(f.file+".new", f.file)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) gives(want, base string) {
	f.t.Helper()
	got, err := f.Token(f.t.Context())
	if err != nil || got.Secret.Reveal() != want || got.BaseURL != base || got.Source == "" {
		f.t.Fatalf("%q at %s from %q, %v; want %q at %s", got.Secret.Reveal(), got.BaseURL, got.Source, err, want, base)
	}
}

// fails checks the reason, and that it shows neither the token nor the path.
func (f *fixture) fails(code, text string) {
	f.t.Helper()
	got, err := f.Token(f.t.Context())
	var e *subjects.Error
	if !errors.As(err, &e) || e.Kind != subjects.KindProviderUnavailable || e.Code != code || !strings.Contains(e.Message, text) {
		f.t.Fatalf("%v (%q), want %q with %q", err, e.Code, code, text)
	}
	if got.Secret.IsSet() || got.BaseURL != "" {
		f.t.Fatal("a token beside the error")
	}
	for _, hidden := range []string{"secretOfTheTest", filepath.Dir(f.file)} {
		if strings.Contains(e.Message, hidden) || strings.Contains(e.LogValue().String(), hidden) {
			f.t.Fatalf("shown: %v", e.LogValue())
		}
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	enterprise := func(entry, url string) string {
		return fmt.Sprintf(`{%q:{"type":"oauth","refresh":%q,"access":"x","expires":0,"enterpriseUrl":%s,"accountId":"1"}}`, entry, token, url)
	}
	const ghe = "https://copilot-api.company.ghe.com"
	for name, tc := range map[string]struct{ text, base string }{
		"today's":                    {today(token), personalAPI},
		"the old plug-in's":          {old(token), personalAPI},
		"a byte order mark":          {"\ufeff" + today(token), personalAPI},
		"space around":               {" \n" + today(" "+token+"\n") + "\n", personalAPI},
		"enterprise, bare host":      {enterprise("github-copilot", `"company.ghe.com"`), ghe},
		"enterprise, URL":            {enterprise("github-copilot", `"https://company.ghe.com/"`), ghe},
		"enterprise, plain HTTP":     {enterprise("github-copilot", `"http://Company.GHE.com"`), ghe},
		"enterprise, old entry":      {enterprise("github-copilot-enterprise", `"company.ghe.com"`), ghe},
		"no enterprise: null":        {enterprise("github-copilot", `null`), personalAPI},
		"no enterprise: empty":       {enterprise("github-copilot", `""`), personalAPI},
		"expires of any kind":        {strings.Replace(today(token), `"expires":0`, `"expires":"never"`, 1), personalAPI},
		"no expires, no access":      {`{"github-copilot":{"type":"oauth","refresh":"` + token + `"}}`, personalAPI},
		"the personal one first":     {strings.TrimSuffix(enterprise("github-copilot-enterprise", `"a.bc"`), "}") + "," + today(token)[1:], personalAPI},
		"the one that can be used":   {`{"github-copilot":{"type":"api","key":"x"},` + enterprise("github-copilot-enterprise", `"company.ghe.com"`)[1:], ghe},
		"something else beside them": {`{"x":[1],"github-copilot":{"type":"oauth","refresh":"` + token + `","new":{"y":1}},"z":null}`, personalAPI},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			f.put(tc.text)
			f.gives(token, tc.base)
		})
	}
}

// TestReasons: each reason has its own code and says what to do.
func TestReasons(t *testing.T) {
	t.Parallel()
	entry := func(v string) string { return `{"github-copilot":` + v + `}` }
	withURL := func(url string) string {
		return entry(`{"type":"oauth","refresh":"` + token + `","enterpriseUrl":` + url + `}`)
	}
	for name, tc := range map[string]struct{ text, code, want string }{
		"empty":              {``, CodeMalformed, "is not JSON"},
		"cut":                {today(token)[:60], CodeMalformed, "is not JSON; run `opencode auth login`"},
		"not UTF-8":          {entry("\"\xff\""), CodeMalformed, "is not JSON"},
		"a list":             {`[` + today(token) + `]`, CodeMalformed, "no object of logins"},
		"too large":          {`"` + strings.Repeat("x", 1<<20) + `"`, CodeMalformed, "more than 1048576 bytes"},
		"no login":           {`{"anthropic":{"type":"api","key":"x"}}`, CodeLoggedOut, "no login for github-copilot"},
		"null":               {entry(`null`), CodeLoggedOut, "no login for github-copilot"},
		"a text":             {entry(`"` + token + `"`), CodeMalformed, "that is no login"},
		"an API key":         {entry(`{"type":"api","key":"` + token + `"}`), CodeType, "of type api"},
		"a well-known entry": {entry(`{"type":"wellknown","key":"K","token":"` + token + `"}`), CodeType, "of type wellknown"},
		"of another type":    {entry(`{"type":"` + token + `","refresh":"` + token + `"}`), CodeType, "unknown type"},
		"no type":            {entry(`{"refresh":"` + token + `"}`), CodeType, "unknown type"},
		"no token":           {entry(`{"type":"oauth","access":"` + token + `"}`), CodeLoggedOut, "without a token"},
		"an empty token":     {entry(`{"type":"oauth","refresh":" "}`), CodeLoggedOut, "without a token"},
		"a number as token":  {entry(`{"type":"oauth","refresh":1}`), CodeLoggedOut, "without a token"},
		"a line break in it": {entry(`{"type":"oauth","refresh":"` + token + `\r\nX: y"}`), CodeMalformed, "does not fit a header"},
		"a long token":       {entry(`{"type":"oauth","refresh":"` + strings.Repeat("x", maxToken+1) + `"}`), CodeMalformed, "does not fit a header"},
		"a host with a port": {withURL(`"company.ghe.com:8443"`), CodeHost, "no host name"},
		"a host with a path": {withURL(`"https://company.ghe.com/x"`), CodeHost, "no host name"},
		"a host with a user": {withURL(`"https://me@company.ghe.com"`), CodeHost, "no host name"},
		"a single label":     {withURL(`"company"`), CodeHost, "no host name"},
		"an address":         {withURL(`"10.0.0.1"`), CodeHost, "no host name"},
		"a host too long":    {withURL(`"` + strings.Repeat("a.", 130) + `com"`), CodeHost, "no host name"},
		"a host of spaces":   {withURL(`" "`), CodeHost, "no host name"},
		"a number as host":   {withURL(`5`), CodeHost, "no text"},
		"enterprise without": {`{"github-copilot-enterprise":{"type":"oauth","refresh":"` + token + `"}}`, CodeHost, "no enterpriseUrl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			f.put(tc.text)
			f.fails(tc.code, tc.want)
		})
	}
}

func TestReasonsOfTheFile(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.fails(CodeMissing, "OpenCode's auth.json is not there; run `opencode auth login`")
	f.o.Named = true
	f.fails(CodeMissing, "the file that LLM_COPILOT_AUTH_FILE names is not there; correct the variable")
	f.o.File = filepath.Dir(f.file)
	f.fails(CodeUnreadable, "is not a plain file; name OpenCode's auth.json itself")
	f.o.File = filepath.Join(os.Args[0], "auth.json") // below a file
	f.fails(CodeUnreadable, "not a directory); make it readable")
	f.o.File = ""
	f.fails(CodeMissing, "set LLM_COPILOT_AUTH_FILE")
}

// TestChanges: the file is read anew whenever it has changed, also after a fault.
func TestChanges(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.fails(CodeMissing, "")
	f.put(today(token))
	f.gives(token, personalAPI)
	f.put(today(other))
	f.gives(other, personalAPI)
	f.put(`{}`)
	f.fails(CodeLoggedOut, "")
	f.fails(CodeLoggedOut, "")
	f.put(old(token))
	f.gives(token, personalAPI)
	if err := os.Chmod(f.file, 0o640); err != nil {
		t.Fatal(err)
	}
	f.fails(CodePermissions, "is open to others than its owner (mode 0640); chmod 600 it")
	if err := os.Remove(f.file); err != nil {
		t.Fatal(err)
	}
	f.fails(CodeMissing, "")
}

// TestAnUnchangedFileIsNotRead: what a changed file would say is not known as
// long as nothing of it that the system shows has changed.
func TestAnUnchangedFileIsNotRead(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.put(today(token))
	f.gives(token, personalAPI)
	info, err := os.Stat(f.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(f.file, []byte(today(other)), 0o600), os.Chtimes(f.file, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
	f.gives(token, personalAPI)
}

// TestRefused: a refused token is not given out while the file has it, for five
// minutes.
func TestRefused(t *testing.T) {
	t.Parallel()
	f := setup(t)
	refuse := func(token string) { f.Refused(rest.Token{Secret: config.NewSecret(token)}) }
	refuse(token)
	refuse("")
	f.put(today(token))
	f.gives(token, personalAPI)
	refuse(other) // no longer the file's
	f.gives(token, personalAPI)
	refuse(token)
	f.fails(CodeRefused, "log in again with opencode: run `opencode auth login`")
	f.put(old(token)) // written anew, with the same token
	f.fails(CodeRefused, "")
	f.put(today(other))
	f.gives(other, personalAPI)
	f.put(today(token))
	f.fails(CodeRefused, "")
	f.now = f.now.Add(refusedFor)
	f.gives(token, personalAPI)
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.put(today(token))
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			got, err := f.Token(t.Context())
			if err == nil && i%5 == 0 {
				f.Refused(got)
			}
			if err != nil && subjects.KindOf(err) != subjects.KindProviderUnavailable {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// FuzzParse: whatever stands in the file, there comes a token that fits a header
// and a root that is an HTTPS URL of a bare host, or an error that shows nothing of
// the file's values.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		today(token), old(token), `{}`, `[]`, ``, `{"github-copilot":null}`, `{"github-copilot":{"type":"api"}}`,
		`{"github-copilot-enterprise":{"type":"oauth","refresh":"x","enterpriseUrl":"https://a.bc/"}}`,
		`{"github-copilot":{"type":"oauth","refresh":"x","enterpriseUrl":"a.bc:1"}}`, "\ufeff{\"github\\u002dcopilot\":{}}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := parse(text)
		if err != nil {
			var fault *fault
			if !errors.As(err, &fault) || fault.code == "" || len(fault.text) > 200 || e != (entry{}) {
				t.Fatalf("%v, %+v", err, e)
			}
			return
		}
		if e.token == "" || !sendable(e.token) {
			t.Fatalf("token %q", e.token)
		}
		base := e.baseURL()
		if base != personalAPI && (!strings.HasPrefix(base, enterpriseAPI) || strings.ContainsAny(base[len("https://"):], "/:@?#% \\")) {
			t.Fatalf("root %q", base)
		}
	})
}

// BenchmarkToken is what every attempt pays: a look at the file.
func BenchmarkToken(b *testing.B) {
	file := filepath.Join(b.TempDir(), "auth.json")
	if err := os.WriteFile(file, []byte(today(token)), 0o600); err != nil {
		b.Fatal(err)
	}
	at := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, at, at); err != nil {
		b.Fatal(err)
	}
	r := New(Options{File: file})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Token(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
