package claudecode

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/providers/internal/httpx"
	"github.com/sluice-llm/sluice/subjects"
)

const (
	// statusGood and statusBad are how long an outcome of the check is kept.
	statusGood = time.Minute
	statusBad  = 20 * time.Second
	// statusWait bounds the program's own check, which takes 0.3 to 1 s, or more
	// where many start at once.
	statusWait = 20 * time.Second
	maxStatus  = 64 << 10
)

// The codes of a login that cannot serve.
const (
	codeChecking  = "checking"
	codeLoggedOut = "logged_out"
	codeAPIKey    = "logged_in_with_api_key"
	codeOtherAPI  = "other_api"
)

// status keeps what `claude auth status` said, and asks anew when that is old or
// the credentials file has changed. It runs in the background: whoever asks
// waits for it as long as they may, and then gets the last outcome. So a busy
// machine does not make a good login look like none.
type status struct {
	p *Provider

	mu      sync.Mutex // guards what follows
	err     error
	known   bool
	till    time.Time
	file    os.FileInfo   // what the credentials file was like; nil = not there
	running chan struct{} // closed at the end of the check that runs; nil = none
	stop    context.CancelFunc
	closed  bool
}

func (s *status) check(ctx context.Context) error {
	if _, err := s.p.program(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.fresh() || s.closed {
		defer s.mu.Unlock()
		return s.outcome()
	}
	if s.running == nil {
		s.begin()
	}
	running := s.running
	s.mu.Unlock()
	select {
	case <-running:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outcome()
}

// fresh is called with the lock held, as are outcome and begin.
func (s *status) fresh() bool {
	return s.known && s.p.o.Now().Before(s.till) && same(s.file, s.login())
}

// login is what the credentials file is like now.
func (s *status) login() os.FileInfo {
	info, err := os.Stat(s.p.cfg.CredentialsFile)
	if err != nil {
		return nil
	}
	return info
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}

func (s *status) outcome() error {
	if !s.known {
		return unavailable(codeChecking, "the claude program has not said yet whether it is logged in")
	}
	return s.err
}

func (s *status) begin() {
	ctx, cancel := context.WithTimeout(context.Background(), statusWait)
	done := make(chan struct{})
	s.running, s.stop = done, cancel
	go func() {
		defer cancel()
		file := s.login()
		err := s.p.authStatus(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.keep(err, file)
		s.running = nil
		close(done)
	}()
}

func (s *status) keep(err error, file os.FileInfo) {
	keep := statusGood
	if err != nil {
		keep = statusBad
	}
	s.err, s.known, s.file, s.till = err, true, file, s.p.o.Now().Add(keep)
}

// heard learns from a call: one that was answered shows that the login is good,
// one whose login was refused that the outcome is old.
func (s *status) heard(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && s.running == nil:
		s.keep(nil, s.login())
	case subjects.KindOf(err) == subjects.KindAuth:
		s.till = time.Time{}
	}
}

// close ends a check that runs and waits for it.
func (s *status) close() {
	s.mu.Lock()
	s.closed = true
	running := s.running
	if running != nil {
		s.stop()
	}
	s.mu.Unlock()
	if running != nil {
		<-running
	}
}

// report is what `claude auth status` prints; its exit status is 1 where
// nobody is logged in. It asks no network and prints no token.
type report struct {
	LoggedIn bool   `json:"loggedIn"`
	Method   string `json:"authMethod"` // claude.ai, oauth_token, api_key, none
	// Key is where an API key comes from that would be used; 2.1.197 says claude.ai
	// for the method all the same.
	Key string `json:"apiKeySource"`
	API string `json:"apiProvider"` // firstParty
}

// authStatus asks the program.
func (p *Provider) authStatus(ctx context.Context) error {
	free, err := p.startSlot(ctx)
	if err != nil {
		return unavailable(codeChecking, "the claude program could not be asked whether it is logged in: too many are starting")
	}
	defer free()
	// Without the settings files, as in a call: a key in one of them would be shown.
	proc, err := p.start([]string{"--setting-sources=", "auth", "status", "--json"}, p.environment())
	if err != nil {
		return err
	}
	defer proc.stop(told)
	proc.closeInput()
	text, err := proc.all(ctx, maxStatus)
	if err != nil {
		return err
	}
	var r report
	if json.Unmarshal(text, &r) != nil || r.Method == "" && !r.LoggedIn {
		return unavailable(codeTooOld, "`claude auth status` did not say whether it is logged in (%s)%s; update the program", exitText(proc), ifAny(": ", httpx.Clean(proc.said.String(), ""), ""))
	}
	return r.judge()
}

// judge says why a login cannot serve. One with an API key would be billed by the
// token, under the name of a subscription.
func (r *report) judge() error {
	switch {
	case !r.LoggedIn:
		return unavailable(codeLoggedOut, "claude is not logged in; %s", logIn)
	case r.API != "" && r.API != "firstParty":
		return unavailable(codeOtherAPI, "claude is set up for another API (%s) than the subscription's; %s", httpx.Clean(r.API, ""), logIn)
	case r.Method == "api_key", r.Key != "":
		return unavailable(codeAPIKey, "claude is logged in with an API key, which is billed by the token, and not with a subscription; run `claude auth logout`, then `claude auth login`, as the user that Sluice runs as; or use the provider anthropic")
	}
	return nil
}

// all reads the whole output, up to limit bytes, and waits for the end.
func (p *process) all(ctx context.Context, limit int) ([]byte, error) {
	var text []byte
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.within(termWait)
				within(p.hushed, 2*drainWait)
				return text, nil
			}
			if text = append(append(text, line...), '\n'); len(text) > limit {
				return nil, unavailable(codeTooOld, "`claude auth status` printed more than %d bytes", limit)
			}
		case <-ctx.Done():
			return nil, unavailable(codeChecking, "`claude auth status` did not end in time")
		}
	}
}
