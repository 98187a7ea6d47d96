package cli

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/subjects"
)

var someEvents = []struct{ subject, data string }{
	{subjects.PoolSaturated, `{"provider":"mock","model":"mock-standard","class":"ingestion","waitedMs":500,"active":11,"queued":4,"cap":12,"suppressed":3,"at":"2026-03-01T11:59:58.250Z"}`},
	{"llm.breaker.groq", `{"provider":"groq","state":"open","from":"closed","reason":"TIMEOUT","failures":5,"retryAt":"2026-03-01T12:01:00Z","at":"2026-03-01T11:59:59.000Z"}`},
	{"llm.breaker.groq", `{"provider":"groq","from":"open","state":"half-open","at":"2026-03-01T12:00:59.000Z"}`},
	{"llm.breaker.groq", `{"provider":"groq","from":"half-open","state":"closed","at":"2026-03-01T12:01:00.000Z"}`},
	{"llm.quota.copilot", `{"provider":"copilot","state":"soft_limit","at":"2026-03-01T11:50:00.000Z"}`},
	{"llm.quota.copilot", `{"provider":"copilot","model":"claude-opus-5","state":"exhausted","retryAt":"2026-03-01T12:05:00Z","resetAt":"2026-03-02T00:00:00Z","at":"2026-03-01T12:00:00.000Z"}`},
	{"llm.quota.copilot", `{"provider":"copilot","state":"ok","at":"2026-03-01T12:05:01.000Z"}`},
	{subjects.BudgetStatus, `{"scope":"run","id":"nightly-7","unit":"usd","percent":80,"spent":0.4012,"limit":0.5,"at":"2026-03-01T11:59:59.000Z"}`},
	{subjects.BudgetStatus, `{"scope":"batch","id":"b1","unit":"tokens","percent":100,"spent":500123,"limit":500000,"at":"2026-03-01T11:59:59.000Z"}`},
	{"llm.hook_status.sensitivity", `{"hook":"sensitivity","ok":false,"reason":"no answer within 250 ms","onError":"local","at":"2026-03-01T11:59:59.000Z"}`},
	{"llm.hook_status.sensitivity", `{"hook":"sensitivity","ok":true,"at":"2026-03-01T12:00:09.000Z"}`},
	{subjects.ConfigStatus, `{"ok":false,"file":"my.yaml","error":"my.yaml:3:5: unknown key\nmy.yaml:7:1: unknown key","at":"2026-03-01T11:59:59.000Z"}`},
	{subjects.ConfigStatus, `{"ok":true,"file":"my.yaml","at":"2026-03-01T12:00:09.000Z"}`},
	{"llm.budget", `{"percent":80,"limit":{"usd":10},
		"name":""}`},
	{subjects.StoreStatus, "not JSON \x1b[2J"},
	{"llm.usage.openai.writer", `{"id":"c2","timestamp":"2026-03-01T11:59:58.250Z","provider":"openai","model":"gpt-5-mini","process":"writer","class":"ingestion","input_tokens":1200,"output_tokens":34,"cost_usd":null,"latency_ms":1400.4,"outcome":"ok"}`},
}

func TestEvents(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		term terminal
		// published counts the events that the command ends after.
		code int
	}{
		"events":          {args: []string{"events", "--usage", "--count", "16"}},
		"events-terminal": {args: []string{"events", "--usage", "--count", "16"}, term: terminal{tty: true, colour: true, width: 80}},
		"events-json":     {args: []string{"events", "--usage", "--count", "16", "--json"}},
		"events-one":      {args: []string{"events", "llm.budget", "--count", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := natsServer(t)
			r := newResponder(t, s)
			tc.term.errTTY = true // then it says when it listens
			ses := newSession("", tc.term, "SLUICE_NATS_URL="+s.ClientURL())
			done := ses.start(t.Context(), tc.args...)
			ses.err.waitFor(t, "Ctrl-C ends")
			for _, e := range someEvents {
				if err := r.nc.Publish(e.subject, []byte(e.data)); err != nil {
					t.Fatal(err)
				}
			}
			code := exited(t, done)
			golden(t, name, transcript(tc.args, code, ses.out.String(), ses.err.String()))
		})
	}
}

func TestEventsEndWithASignal(t *testing.T) {
	s := natsServer(t)
	ctx, interrupt := context.WithCancel(t.Context())
	ses := newSession("", terminal{errTTY: true}, "SLUICE_NATS_URL="+s.ClientURL())
	done := ses.start(ctx, "events")
	ses.err.waitFor(t, "Ctrl-C ends")
	interrupt()
	if code := exited(t, done); code != 0 {
		t.Errorf("exit status %d: %s", code, ses.err.String())
	}
}

// TestEventsComeBack restarts the server under a running command.
func TestEventsComeBack(t *testing.T) {
	s := natsServer(t)
	port := s.Addr().String()
	ses := newSession("", terminal{errTTY: true}, "SLUICE_NATS_URL="+s.ClientURL())
	done := ses.start(t.Context(), "events", "--count", "1")
	ses.err.waitFor(t, "Ctrl-C ends")
	s.Shutdown()
	s.WaitForShutdown()
	ses.err.waitFor(t, "connection lost")
	again := natsServer(t, listenOn(t, port))
	ses.err.waitFor(t, "connected again")
	r := newResponder(t, again)
	if err := r.nc.Publish(subjects.PoolSaturated, []byte(someEvents[0].data)); err != nil {
		t.Fatal(err)
	}
	if code := exited(t, done); code != 0 {
		t.Errorf("exit status %d: %s", code, ses.err.String())
	}
}

func TestUnknownEvent(t *testing.T) {
	a := newSession("", terminal{}).app
	for data, want := range map[string]string{
		``:                         ``,
		`[1]`:                      `[1]`,
		`{"a":"b c","n":1,"o":{}}`: `a="b c" n=1 o={}`,
		`{"at":"never"}`:           `at=never`,
	} {
		if got := a.eventText(&nats.Msg{Subject: "llm.new", Data: []byte(data)}); got.text != want {
			t.Errorf("%s: %q, not %q", data, got.text, want)
		}
	}
}
