package sluice_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/hooks"
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
			allowed("ask a hook", false, publish(subjects.HookBudget))
			allowed("answer for a hook", false, subscribe(subjects.HookSensitivity))
			for _, event := range []string{subjects.PoolSaturated, "llm.hook_status.*", subjects.ConfigStatus} {
				allowed("events "+event, true, subscribe(event))
			}
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

// TestHookRole: with passwords, who answers for hooks may do that and nothing
// else; as a micro service, too.
func TestHookRole(t *testing.T) {
	node := sluicetest.Start(t, sluice.WithNATSListen("127.0.0.1:0"), sluice.WithEnviron([]string{"SLUICE_HOOK_PASSWORD=pw-hook"}))
	nc, err := nats.Connect(node.NATSURL(), nats.UserInfo("hook", "pw-hook"), nats.CustomInboxPrefix("_INBOX.hook"),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	classify(t, node, nc)
	denied := func(what string, do func() error) {
		t.Helper()
		before := nc.LastError()
		if err := errors.Join(do(), nc.Flush()); err != nil {
			t.Fatal(err)
		}
		if err := nc.LastError(); err == before || !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%s is allowed (%v)", what, err)
		}
	}
	for _, subject := range []string{subjects.HookBudget, subjects.Complete("interactive"), subjects.ProviderAnnounce, subjects.Cancel, subjects.QueryHealth, subjects.HookStatus("budget"), "$SRV.PING", "_INBOX.x"} {
		denied("publishing to "+subject, func() error { return nc.Publish(subject, nil) })
	}
	for _, subject := range []string{subjects.Complete("interactive"), subjects.Provider("x"), "_INBOX.>", subjects.NodeInbox + ".>", subjects.UsageFilter, "$SRV.PING.llm", "$SRV.INFO.llm.x"} {
		denied("listening to "+subject, func() error { _, err := nc.SubscribeSync(subject); return err })
	}
}

// classify answers one question as a micro service and sees it arrive.
func classify(t *testing.T, node *sluice.Node, nc *nats.Conn) {
	t.Helper()
	service, err := micro.AddService(nc, micro.Config{Name: "classifier", Version: "1.0.0", Endpoint: &micro.EndpointConfig{
		Subject: subjects.HookSensitivity,
		Handler: micro.HandlerFunc(func(r micro.Request) { _ = r.RespondJSON(hooks.Classification{Sensitivity: hooks.Internal}) }),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = service.Stop() }()
	if err := errors.Join(nc.Flush(), nc.LastError()); err != nil {
		t.Fatal(err)
	}
	got, err := hooks.OverNATS(subjects.NewClient(node.Conn()), subjects.HookSensitivity).Classify(t.Context(), &hooks.Content{Text: "x"})
	if err != nil || got.Sensitivity != hooks.Internal || got.AllowedProviders != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if m, err := node.Conn().Request("$SRV.PING.classifier", nil, 10*time.Second); err != nil || len(m.Data) == 0 {
		t.Errorf("nats service list does not show it: %v", err)
	}
}
