package claudecode

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

func cwd(t *testing.T) string {
	t.Helper()
	d, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ code, says string }{
		"good":        {},
		"setup-token": {},
		"logged-out":  {codeLoggedOut, "claude auth login"},
		"api-key":     {codeAPIKey, "billed"},
		"api-key-old": {codeAPIKey, "billed"},
		"bedrock":     {codeOtherAPI, "bedrock"},
		"gibberish":   {codeTooOld, "update"},
		"flood":       {codeTooOld, "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := with(t, name)
			err := p.Check(t.Context())
			switch e := subjects.AsError(err); {
			case want.code == "" && err != nil, want.code != "" && (e == nil || e.Code != want.code || e.Kind != subjects.KindProviderUnavailable || !strings.Contains(e.Message, want.says)):
				t.Errorf("%v, want %+v", err, want)
			}
			if got := p.noted("args"); got != "--setting-sources=\nauth\nstatus\n--json" {
				t.Errorf("arguments %q", got)
			}
			if env := p.noted("env"); strings.Contains(env, "secret") {
				t.Errorf("the environment %q", env)
			}
		})
	}
}

// started counts how often the program was started.
func (p *program) started() int {
	text := p.noted("pid")
	if text == "" {
		return 0
	}
	return strings.Count(text, "\n") + 1
}

func TestCheckIsKept(t *testing.T) {
	t.Parallel()
	p := with(t, "answer:hello")
	now := time.Now()
	p.o.Now = func() time.Time { return now }
	look := func(runs int) {
		t.Helper()
		if err := p.Check(t.Context()); err != nil || p.started() != runs {
			t.Fatalf("%v after %d runs, want %d", err, p.started(), runs)
		}
	}
	look(1)
	look(1)
	now = now.Add(statusGood)
	look(2)
	if err := os.WriteFile(p.cfg.CredentialsFile, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	look(3)
	look(3)
	if err := os.Remove(p.cfg.CredentialsFile); err != nil {
		t.Fatal(err)
	}
	look(4)

	// A call that was answered says as much as the check; a refused login that the
	// check is old.
	now = now.Add(statusGood)
	if _, err := p.Complete(t.Context(), request(t, wire.Native, hi)); err != nil {
		t.Fatal(err)
	}
	look(5) // the call's
	p.status.heard(subjects.Errorf(subjects.KindAuth, "refused"))
	look(6)
}

// A check that takes longer than its asker can wait goes on; the asker gets what
// was known before. Closing ends it.
func TestCheckThatWaits(t *testing.T) {
	t.Parallel()
	p := with(t, "hang-status", func(c *config.Provider) {})
	short := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return p.Check(ctx)
	}
	if e := subjects.AsError(short()); e == nil || e.Code != codeChecking {
		t.Fatalf("%v", e)
	}
	p.status.mu.Lock()
	p.status.err, p.status.known = nil, true
	p.status.mu.Unlock()
	if err := short(); err != nil {
		t.Errorf("a good login looks bad: %v", err)
	}
	p.Close()
	if p.started() > 1 {
		t.Errorf("%d runs at once", p.started())
	}
	if err := p.Check(t.Context()); err == nil {
		t.Error("a check that was ended says that all is well")
	}
}
