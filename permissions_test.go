package sluice_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/sluicetest"
	"github.com/sluice-llm/sluice/subjects"
)

// TestRoles: with passwords everyone must log in, and each role may do what it
// needs and no more.
func TestRoles(t *testing.T) {
	node := sluicetest.Start(t, sluice.WithNATSListen("127.0.0.1:0"), sluice.WithEnviron([]string{
		"SEMANTIC_ANALYSIS_MODE=mock", "SLUICE_CALLER_PASSWORD=pw-caller", "SLUICE_OBSERVER_PASSWORD=pw-observer", "SLUICE_ADMIN_PASSWORD=pw-admin",
	}))
	if _, err := nats.Connect(node.NATSURL()); err == nil {
		t.Error("a client without a name is let in")
	}
	if _, err := nats.Connect(node.NATSURL(), nats.UserInfo("node", "")); err == nil {
		t.Error("a role without a password can log in")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for role, may := range map[string]struct{ call, query, admin, usage bool }{
		"caller":   {call: true, query: true},
		"observer": {query: true, usage: true},
		"admin":    {call: true, query: true, admin: true, usage: true},
	} {
		t.Run(role, func(t *testing.T) {
			nc, err := nats.Connect(node.NATSURL(), nats.UserInfo(role, "pw-"+role), nats.CustomInboxPrefix("_INBOX."+role),
				nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			allowed := func(what string, want bool, do func() error) {
				t.Helper()
				before := nc.LastError()
				if err := errors.Join(do(), nc.FlushWithContext(ctx)); err != nil {
					t.Fatal(err)
				}
				err := nc.LastError() // the server's word comes before its pong
				if got := err == before || !errors.Is(err, nats.ErrPermissionViolation); got != want {
					t.Errorf("%s: allowed is %v, want %v (%v)", what, got, want, err)
				}
			}
			publish := func(subject string) func() error { return func() error { return nc.Publish(subject, []byte("{}")) } }
			subscribe := func(subject string) func() error {
				return func() error {
					sub, err := nc.SubscribeSync(subject)
					if err != nil {
						return err
					}
					return sub.Unsubscribe()
				}
			}
			allowed("call", may.call, publish(subjects.Complete(subjects.ClassInteractive)))
			allowed("query", may.query, publish(subjects.QueryHealth))
			allowed("admin", may.admin, publish(subjects.AdminReload))
			allowed("forge a record", false, publish(subjects.UsageSubject("openai", "x")))
			allowed("drop the log", false, publish("$JS.API.STREAM.DELETE."+subjects.UsageStream))
			allowed("answer calls", false, subscribe(subjects.Complete(subjects.ClassInteractive)))
			allowed("say what a node hosts", false, publish(subjects.NodeStatus))
			allowed("listen to nodes' replies", false, subscribe(subjects.NodeInbox+".>"))
			allowed("read usage", may.usage, subscribe(subjects.UsageFilter))
			allowed("listen to callers' answers", role != "observer", subscribe("_INBOX.>"))
			allowed("events", true, subscribe(subjects.PoolSaturated))
			if may.call {
				if _, err := subjects.Call(ctx, subjects.NewClient(nc), subjects.ClassInteractive, ask("hi")); err != nil {
					t.Errorf("a call as %s: %v", role, err)
				}
			}
			var h subjects.Health
			if err := subjects.Query(ctx, subjects.NewClient(nc), subjects.QueryHealth, nil, &h); err != nil {
				t.Errorf("a query as %s: %v", role, err)
			}
		})
	}
}
