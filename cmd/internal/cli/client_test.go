package cli

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/subjects"
)

// freePort is an address on which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestNoNode(t *testing.T) {
	url := "nats://me:secret@" + freePort(t)
	for _, args := range [][]string{
		{"health"}, {"providers"}, {"usage"}, {"explain"}, {"events"}, {"complete", "hi"}, {"complete", "--stream", "hi"}, {"health", "--json"},
	} {
		ses := newSession("", terminal{}, "SLUICE_NATS_URL="+url)
		code := ses.app.run(t.Context(), args)
		said := ses.err.String() + ses.out.String()
		if code != exitFailed || strings.Count(said, "\n") != 1 || !strings.Contains(said, "start one with `sluice serve`") {
			t.Errorf("%v: exit status %d: %q", args, code, said)
		}
		if strings.Contains(said, "secret") {
			t.Errorf("%v: the password is shown: %q", args, said)
		}
	}
}

// TestConnectFails has every way in which a connection may not come about.
func TestConnectFails(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	secured := natsServer(t, func(o *server.Options) { o.Username, o.Password = "admin", "right" })
	for name, tc := range map[string]struct {
		env  []string
		args []string
		want string
	}{
		"no password":      {[]string{"SLUICE_NATS_URL=" + secured.ClientURL()}, nil, "does not accept this user"},
		"wrong password":   {[]string{"SLUICE_NATS_URL=" + secured.ClientURL(), "SLUICE_USER=admin", "SLUICE_PASSWORD=wr0ng"}, nil, "does not accept this user"},
		"no password file": {[]string{"SLUICE_NATS_URL=" + secured.ClientURL()}, []string{"--user", "admin", "--password-file", "/nowhere"}, "--password-file: open /nowhere"},
		"no creds":         {[]string{"SLUICE_NATS_URL=" + secured.ClientURL()}, []string{"--creds", "/nowhere"}, "--creds: stat /nowhere"},
		"no host":          {[]string{"SLUICE_NATS_URL=nats://nowhere.invalid:4222"}, nil, "nowhere.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			ses := newSession("", terminal{}, tc.env...)
			code := ses.app.run(t.Context(), append([]string{"health"}, tc.args...))
			said := ses.err.String()
			if code != exitFailed || !strings.Contains(said, tc.want) || strings.Contains(said, "wr0ng") {
				t.Errorf("exit status %d: %q", code, said)
			}
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ses := newSession("", terminal{}, "SLUICE_NATS_URL=nats://"+silent.Addr().String())
		if code := ses.app.run(ctx, []string{"health"}); code != exitFailed || !strings.Contains(ses.err.String(), "interrupted") {
			t.Errorf("exit status %d: %q", code, ses.err.String())
		}
	})
}

func TestPasswordFile(t *testing.T) {
	s := natsServer(t, func(o *server.Options) { o.Username, o.Password = "admin", "right" })
	newResponder(t, s, nats.UserInfo("admin", "right")).says(subjects.QueryHealth, healthJSON)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("right\r\nsecond line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ses := newSession("", terminal{}, "SLUICE_NATS_URL="+s.ClientURL(), "SLUICE_USER=admin", "SLUICE_PASSWORD_FILE="+file)
	if code := ses.app.run(t.Context(), []string{"health"}); code != 0 {
		t.Errorf("exit status %d: %s", code, ses.err.String())
	}
}

// observerOnly may ask questions, listen on its own inboxes, and nothing else.
func observerOnly(o *server.Options) {
	o.Users = []*server.User{
		{Username: "node", Password: "n"},
		{Username: "observer", Password: "o", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{"llm.query.>"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.observer.>", "llm.budget"}},
		}},
	}
}

func TestPermissions(t *testing.T) {
	s := natsServer(t, observerOnly)
	r := newResponder(t, s, nats.UserInfo("node", "n"))
	answers(t, r)
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"health"}, 0, ""},
		{[]string{"complete", "hi"}, exitFailed, `may not do that: Publish to "llm.complete.interactive"`},
		{[]string{"complete", "--stream", "hi"}, exitFailed, `may not do that: Publish to "llm.complete.interactive"`},
		{[]string{"events", "llm.usage.>"}, exitFailed, `may not do that: Subscription to "llm.usage.>"`},
		{[]string{"complete", "--json", "hi"}, exitFailed, `"kind":"AUTH_ERROR"`},
	} {
		ses := newSession("", terminal{}, "SLUICE_NATS_URL="+s.ClientURL(), "SLUICE_USER=observer", "SLUICE_PASSWORD=o")
		code := exited(t, ses.start(t.Context(), tc.args...))
		if said := ses.err.String() + ses.out.String(); code != tc.code || !strings.Contains(said, tc.want) {
			t.Errorf("%v: exit status %d: %q", tc.args, code, said)
		}
	}
}

// TestRequest checks what a call says on the wire.
func TestRequest(t *testing.T) {
	s := natsServer(t)
	r := newResponder(t, s)
	calls := make(chan *nats.Msg, 1)
	r.on(subjects.Complete(subjects.ClassIngestion), func(m *nats.Msg) {
		calls <- m
		_ = m.Respond([]byte(resultJSON))
	})
	ses := newSession("two\nlines", terminal{}, "SLUICE_NATS_URL="+s.ClientURL(), "SLUICE_PROCESS=nightly")
	code := ses.app.run(t.Context(), []string{
		"complete", "--class", "ingestion", "--tier", "fast", "--task", "t", "--provider", "mock",
		"--model", "mock/m", "--system", "be brief", "--timeout", "90s", "--call-id", "c7", "-",
	})
	if code != 0 {
		t.Fatalf("exit status %d: %s", code, ses.err.String())
	}
	m := <-calls
	if id := m.Header.Get(subjects.HeaderCallID); id != "c7" {
		t.Errorf("the header has call id %q", id)
	}
	var got, want any
	if err := json.Unmarshal(m.Data, &got); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal([]byte(`{"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"two\nlines"}],
		"tier":"fast","task":"t","process":"nightly","provider":"mock","model":"mock/m","timeoutMs":90000,"callId":"c7"}`), &want)
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if string(g) != string(w) {
		t.Errorf("request\n%s, not\n%s", g, w)
	}
}

// TestInterruptedCallIsCancelled holds that Ctrl-C publishes llm.cancel.
func TestInterruptedCallIsCancelled(t *testing.T) {
	for _, extra := range [][]string{nil, {"--stream"}, {"--json"}} {
		s := natsServer(t)
		r := newResponder(t, s)
		cancelled := make(chan string, 1)
		r.on(subjects.Cancel, func(m *nats.Msg) { cancelled <- string(m.Data) })
		arrived := make(chan string, 1)
		r.on(subjects.Complete(subjects.ClassInteractive), func(m *nats.Msg) { arrived <- m.Header.Get(subjects.HeaderCallID) })
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		ses := newSession("", terminal{}, "SLUICE_NATS_URL="+s.ClientURL())
		done := ses.start(ctx, append([]string{"complete", "hi"}, extra...)...)
		id := <-arrived
		interrupt()
		code := exited(t, done)
		said := ses.err.String() + ses.out.String()
		if code != exitFailed || !strings.Contains(said, "CANCELLED") || !strings.Contains(said, id) {
			t.Errorf("%v: exit status %d: %q", extra, code, said)
		}
		select {
		case body := <-cancelled:
			if body != `{"callId":"`+id+`"}` {
				t.Errorf("%v: llm.cancel said %s", extra, body)
			}
		case <-time.After(wait):
			t.Errorf("%v: no llm.cancel", extra)
		}
	}
}

func TestCallTimesOut(t *testing.T) {
	s := natsServer(t)
	r := newResponder(t, s)
	r.on(subjects.Complete(subjects.ClassInteractive), func(m *nats.Msg) {
		respondError(m, subjects.Errorf(subjects.KindTimeout, "the deadline passed while waiting for a slot"))
	})
	ses := newSession("", terminal{}, "SLUICE_NATS_URL="+s.ClientURL())
	code := ses.app.run(t.Context(), []string{"complete", "--timeout", "1ms", "--call-id", "c7", "hi"})
	if code != exitFailed || !strings.Contains(ses.err.String(), "while waiting for a slot") || !strings.Contains(ses.err.String(), "call id: c7") {
		t.Errorf("exit status %d: %q", code, ses.err.String())
	}
}

// TestServerGoesAway holds that a call ends when the node's server does.
func TestServerGoesAway(t *testing.T) {
	for _, extra := range [][]string{nil, {"--stream"}} {
		s := natsServer(t)
		r := newResponder(t, s)
		r.on(subjects.Complete(subjects.ClassInteractive), func(*nats.Msg) { go s.Shutdown() })
		ses := newSession("", terminal{}, "SLUICE_NATS_URL="+s.ClientURL())
		code := exited(t, ses.start(t.Context(), append([]string{"complete", "hi"}, extra...)...))
		if code != exitFailed || !strings.Contains(ses.err.String(), "the connection to the node was lost") {
			t.Errorf("%v: exit status %d: %q", extra, code, ses.err.String())
		}
	}
}
