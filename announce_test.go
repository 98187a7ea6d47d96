package sluice_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/sluicetest"
	"github.com/sluice-llm/sluice/subjects"
)

// program is an outside provider that a test plays: a connection of its own, and
// a handler for its calls.
type program struct {
	t    *testing.T
	nc   *nats.Conn
	name string
}

// outsider starts a program that serves as name.
func outsider(t *testing.T, node *sluice.Node, name string, serve func(p *program, m *nats.Msg)) *program {
	t.Helper()
	nc, err := nats.Connect(node.NATSURL(), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, nc: nc, name: name}
	t.Cleanup(nc.Close)
	if _, err := nc.QueueSubscribe(subjects.Provider(name), "q", func(m *nats.Msg) { serve(p, m) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return p
}

// announce announces with these further fields and returns the refusal, if any.
func (p *program) announce(fields string) *subjects.Error {
	p.t.Helper()
	reply, err := p.nc.Request(subjects.ProviderAnnounce, []byte(`{"provider":"`+p.name+`",`+fields+`}`), 5*time.Second)
	if err != nil {
		p.t.Fatal(err)
	}
	return subjects.ErrorOf(&subjects.Msg{Header: subjects.Header(reply.Header), Data: reply.Data})
}

// reverse answers with the last message's text, backwards, in the form asked for.
func reverse(p *program, m *nats.Msg) {
	var req struct {
		Model    string
		Stream   bool
		Messages []struct{ Content string }
	}
	if err := json.Unmarshal(m.Data, &req); err != nil {
		p.t.Errorf("%v: %s", err, m.Data)
	}
	text := []rune(req.Messages[len(req.Messages)-1].Content)
	for i, j := 0, len(text)-1; i < j; i, j = i+1, j-1 {
		text[i], text[j] = text[j], text[i]
	}
	if req.Stream {
		for _, c := range text {
			event, _ := json.Marshal(subjects.Event{Type: subjects.EventDelta, Content: string(c)})
			_ = p.nc.Publish(m.Reply, event)
		}
	}
	res := map[string]any{"content": string(text), "model": req.Model, "finishReason": "stop", "usage": map[string]int{"inputTokens": len(text), "outputTokens": 1}}
	if req.Stream {
		res["type"] = subjects.EventResult
	}
	data, _ := json.Marshal(res)
	_ = p.nc.Publish(m.Reply, data)
	if req.Stream {
		_ = p.nc.Publish(m.Reply, nil)
	}
}

const reverseModels = `"models":["rev-1","rev-2"],"capabilities":["streaming","tools"],"caps":{"rev-1":3}`

// bare starts a node without any provider of its own.
func bare(t *testing.T, opts ...sluice.Option) *sluice.Node {
	t.Helper()
	return sluicetest.Start(t, append([]sluice.Option{sluice.WithEnviron(nil), sluice.WithNATSListen("127.0.0.1:0"), sluice.WithHTTP("127.0.0.1:0")}, opts...)...)
}

// until asks for health until cond holds; the test's own deadline bounds it.
func until(t *testing.T, node *sluice.Node, what string, cond func(*subjects.Health) bool) *subjects.Health {
	t.Helper()
	for {
		var h subjects.Health
		if err := subjects.Query(t.Context(), node.Client(), subjects.QueryHealth, nil, &h); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if cond(&h) {
			return &h
		}
	}
}

func available(id string) func(*subjects.Health) bool {
	return func(h *subjects.Health) bool { return h.Providers[id].Available }
}

// TestOutsideProvider: a program that announces itself is a provider like any
// other: in routing by each of its names, in health, in the lists, in usage, in
// events, with pools of its own.
func TestOutsideProvider(t *testing.T) {
	node := bare(t)
	events, err := node.Conn().SubscribeSync(subjects.ProviderStatus("reverse"))
	if err != nil {
		t.Fatal(err)
	}
	p := outsider(t, node, "reverse", reverse)
	if refusal := p.announce(reverseModels); refusal != nil {
		t.Fatal(refusal)
	}
	h := until(t, node, "the announcement", available("reverse"))
	if h.Providers["reverse"].Mode != "api" || !h.CanServe {
		t.Errorf("%+v", h)
	}
	if m, err := events.NextMsg(5 * time.Second); err != nil || !strings.Contains(string(m.Data), `"available":true`) {
		t.Errorf("no event of its coming: %v", err)
	}
	for model, want := range map[string]string{"": "rev-1", "premium": "rev-1", "reverse/rev-2": "rev-2", "rev-2": "rev-2"} {
		req := ask("hello")
		req.Model, req.Process = model, "caller"
		res, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, req)
		if err != nil || res.Content != "olleh" || res.Provider != "reverse" || res.Model != want || res.Usage.TotalTokens != 6 || res.Subscription != subjects.SubscriptionAPIKey {
			t.Errorf("model %q: %+v, %v", model, res, err)
		}
		text := ""
		res, err = subjects.CallStream(t.Context(), subjects.NewClient(p.nc), subjects.ClassIngestion, req, func(ev subjects.Event) error { text += ev.Content; return nil })
		if err != nil || text != "olleh" || res.Model != want || res.Usage.TotalTokens != 6 {
			t.Errorf("model %q: %q, %+v, %v", model, text, res, err)
		}
	}
	rows := recentRows(t.Context(), t, node.Client())
	if len(rows) != 8 || rows[0].Provider != "reverse" || rows[0].Process != "caller" || rows[0].TotalTokens != 6 {
		t.Errorf("%d rows, %+v", len(rows), rows[0])
	}
	h = until(t, node, "pools", func(*subjects.Health) bool { return true })
	if h.Pools["reverse/rev-1"].Cap != 3 || h.Pools["reverse/rev-2"].Cap != 8 {
		t.Errorf("%+v", h.Pools)
	}
	var list subjects.ProvidersReply
	if err := subjects.Query(t.Context(), node.Client(), subjects.QueryProviders, nil, &list); err != nil {
		t.Fatal(err)
	}
	last := list.Providers[len(list.Providers)-1]
	if last.Provider != "reverse" || !last.Available || last.Models["fast"] != "rev-1" || fmt.Sprint(last.Capabilities) != "[tools streaming]" {
		t.Errorf("%+v", last)
	}
	overHTTP(t, node)
	req := ask("hello")
	req.Provider, req.Model = "reverse", "rev-9"
	if _, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, req); subjects.KindOf(err) != subjects.KindNoProvider || !strings.Contains(err.Error(), "its models are rev-1, rev-2") {
		t.Errorf("a model that it has not: %v", err)
	}
	// A new announcement changes what runs.
	if refusal := p.announce(`"models":["rev-1"],"caps":5,"local":true`); refusal != nil {
		t.Fatal(refusal)
	}
	until(t, node, "the new cap", func(h *subjects.Health) bool {
		return h.Pools["reverse/rev-1"].Cap == 5 && h.Providers["reverse"].Mode == "local"
	})
	// It goes, and is missed.
	p.nc.Close()
	until(t, node, "its going", func(h *subjects.Health) bool {
		return !h.Providers["reverse"].Available && strings.Contains(h.Providers["reverse"].Reason, "nobody listens on llm.provider.reverse.complete")
	})
	if m, err := events.NextMsg(5 * time.Second); err != nil || !strings.Contains(string(m.Data), `"available":false`) {
		t.Errorf("no event of its going: %v", err)
	}
}

// overHTTP asks the reverse provider by HTTP, whole and as a stream.
func overHTTP(t *testing.T, node *sluice.Node) {
	t.Helper()
	for body, want := range map[string]string{
		`{"model":"reverse/rev-2","messages":[{"role":"user","content":"hello"}]}`:               `"content":"olleh"`,
		`{"model":"reverse/rev-2","messages":[{"role":"user","content":"hello"}],"stream":true}`: "data: [DONE]",
	} {
		resp, err := http.Post("http://"+node.HTTPAddr()+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(got), want) || resp.Header.Get("X-Llm-Provider") != "reverse" {
			t.Errorf("%d %s", resp.StatusCode, got)
		}
	}
}

// TestAnnouncementsRefused: a name that is taken, and whatever is not of the
// form, is refused with the reason.
func TestAnnouncementsRefused(t *testing.T) {
	node := bare(t)
	nc, err := nats.Connect(node.NATSURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for body, want := range map[string]string{
		`{"provider":"openai","models":["m"]}`:                     `"openai" is built in or configured here`,
		`{"provider":"mock","models":["m"]}`:                       `"mock" is built in or configured here`,
		`{"provider":"auto","models":["m"]}`:                       "has a meaning of its own",
		`{"provider":"x","models":["m"],"capabilities":["tool"]}`:  `"tool" is not known (did you mean tools?)`,
		`{"provider":"x","models":["m"],"capabilities":["audio"]}`: "audio cannot be said on the native wire",
		`{"provider":"x","models":["m"],"capabilites":[]}`:         "did you mean capabilities?",
		`hello`: "must be a JSON object",
	} {
		reply, err := nc.Request(subjects.ProviderAnnounce, []byte(body), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		e := subjects.ErrorOf(&subjects.Msg{Header: subjects.Header(reply.Header), Data: reply.Data})
		if e == nil || e.Kind != subjects.KindValidation || !strings.Contains(e.Message, want) {
			t.Errorf("%s: %v", body, e)
		}
	}
	h := until(t, node, "health", func(*subjects.Health) bool { return true })
	if len(h.Providers) != 12 {
		t.Errorf("%d providers", len(h.Providers))
	}
}

// TestDeathInMidCall: the program that has a call dies. Another instance answers;
// without one the next provider does; without that, the error is retryable and
// does not wait for the deadline. A stream that has begun ends with an error.
func TestDeathInMidCall(t *testing.T) {
	node := bare(t)
	var deaths atomic.Int32
	mortal := func(p *program, m *nats.Msg) {
		deaths.Add(1)
		if strings.Contains(string(m.Data), `"stream":true`) {
			_ = p.nc.Publish(m.Reply, []byte(`{"type":"delta","content":"o"}`))
			_ = p.nc.Flush()
		}
		p.nc.Close()
	}
	alone := outsider(t, node, "reverse", mortal)
	if refusal := alone.announce(reverseModels); refusal != nil {
		t.Fatal(refusal)
	}
	until(t, node, "the announcement", available("reverse"))
	_, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, ask("hello"))
	e := subjects.AsError(err)
	if e == nil {
		t.Fatal("a dead program answered")
	}
	var outcomes []string
	for _, a := range e.Attempts {
		if a.Provider == "reverse" {
			outcomes = append(outcomes, a.Outcome)
		}
	}
	if fmt.Sprint(outcomes) != "[PROVIDER_ERROR PROVIDER_UNAVAILABLE]" || deaths.Load() != 1 {
		t.Errorf("alone: %v after %d deaths", outcomes, deaths.Load())
	}

	first := outsider(t, node, "reverse", mortal)
	second := outsider(t, node, "reverse", mortal)
	outsider(t, node, "reverse", reverse)
	_ = first.announce(reverseModels)
	_ = second
	until(t, node, "the instances", available("reverse"))
	for range 5 { // until both have died of it
		res, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, ask("hello"))
		if err != nil || res.Content != "olleh" {
			t.Errorf("with others: %+v, %v", res, err)
		}
	}

	streaming := outsider(t, node, "streamer", mortal)
	if refusal := streaming.announce(reverseModels); refusal != nil {
		t.Fatal(refusal)
	}
	until(t, node, "the streamer", available("streamer"))
	req := ask("hello")
	req.Provider = "streamer"
	text := ""
	_, err = subjects.CallStream(t.Context(), node.Client(), subjects.ClassInteractive, req, func(ev subjects.Event) error { text += ev.Content; return nil })
	if text != "o" || subjects.KindOf(err) != subjects.KindProvider || !strings.Contains(err.Error(), "lost its connection") {
		t.Errorf("stream: %q, %v", text, err)
	}
	if row := recentRows(t.Context(), t, node.Client())[0]; row.Provider != "streamer" || !row.Partial || row.Outcome != string(subjects.KindProvider) {
		t.Errorf("%+v", row)
	}
}

// TestDeathFallsThrough: the next provider of the chain answers for a dead one.
func TestDeathFallsThrough(t *testing.T) {
	node := bare(t)
	dying := outsider(t, node, "dying", func(p *program, _ *nats.Msg) { p.nc.Close() })
	_ = dying.announce(`"models":["d"]`)
	living := outsider(t, node, "reverse", reverse)
	_ = living.announce(reverseModels)
	until(t, node, "both", func(h *subjects.Health) bool {
		return h.Providers["dying"].Available && h.Providers["reverse"].Available
	})
	for _, stream := range []bool{false, true} {
		req := ask("hello")
		req.Provider = "dying"
		var res *subjects.Result
		var err error
		if stream {
			res, err = subjects.CallStream(t.Context(), node.Client(), subjects.ClassInteractive, req, func(subjects.Event) error { return nil })
		} else {
			res, err = subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, req)
		}
		if err != nil || res.Provider != "reverse" || res.Content != "olleh" {
			t.Errorf("%+v, %v", res, err)
		}
	}
}

// TestOutsideStartedAgain: a program that died and is started again serves as soon
// as it has announced itself, not at the node's next look two seconds later.
func TestOutsideStartedAgain(t *testing.T) {
	node := bare(t)
	p := outsider(t, node, "reverse", reverse)
	_ = p.announce(reverseModels)
	until(t, node, "the announcement", available("reverse"))
	for range 3 { // so that no look is on time by chance
		p.nc.Close()
		until(t, node, "its death", func(h *subjects.Health) bool { return !h.Providers["reverse"].Available })
		p = outsider(t, node, "reverse", reverse)
		_ = p.announce(reverseModels)
		start := time.Now()
		until(t, node, "the new program", available("reverse"))
		if d := time.Since(start); d > 500*time.Millisecond {
			t.Errorf("it serves %s after it has announced itself", d)
		}
	}
}

// TestOutsideErrorsAndCancel: the program's error keeps its kind; a caller who
// leaves is said to it by llm.cancel, under the id that it was given.
func TestOutsideErrorsAndCancel(t *testing.T) {
	node := bare(t)
	ids := make(chan string, 1)
	p := outsider(t, node, "reverse", func(p *program, m *nats.Msg) {
		if strings.Contains(string(m.Data), "wait") {
			ids <- m.Header.Get(subjects.HeaderCallID)
			return
		}
		e := subjects.Errorf(subjects.KindContentPolicy, "not that").Msg()
		_ = p.nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header(e.Header), Data: e.Data})
	})
	cancels, err := p.nc.SubscribeSync(subjects.Cancel)
	if err != nil {
		t.Fatal(err)
	}
	_ = p.announce(reverseModels)
	until(t, node, "the announcement", available("reverse"))
	_, err = subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, ask("hello"))
	if e := subjects.AsError(err); e == nil || e.Kind != subjects.KindContentPolicy || e.Message != "not that" || e.Provider != "reverse" {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		req := ask("wait")
		req.CallID = "mine"
		_, err := subjects.Call(ctx, node.Client(), subjects.ClassInteractive, req)
		done <- err
	}()
	id := <-ids
	if !strings.HasPrefix(id, "mine~0~") {
		t.Errorf("id %q", id)
	}
	cancel()
	if err := <-done; subjects.KindOf(err) != subjects.KindCancelled {
		t.Error(err)
	}
	var c subjects.CancelRequest
	m, err := cancels.NextMsg(10 * time.Second)
	if err != nil || json.Unmarshal(m.Data, &c) != nil || c.CallID != id {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestProviderRole: with passwords, who serves may do that and nothing else.
func TestProviderRole(t *testing.T) {
	node := bare(t, sluice.WithEnviron([]string{"SLUICE_PROVIDER_PASSWORD=pw-provider", "SLUICE_CALLER_PASSWORD=pw-caller"}))
	nc, err := nats.Connect(node.NATSURL(), nats.UserInfo("provider", "pw-provider"), nats.CustomInboxPrefix("_INBOX.provider"),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	p := &program{t: t, nc: nc, name: "reverse"}
	if _, err := nc.QueueSubscribe(subjects.Provider("reverse"), "q", func(m *nats.Msg) { reverse(p, m) }); err != nil {
		t.Fatal(err)
	}
	if refusal := p.announce(reverseModels); refusal != nil {
		t.Fatal(refusal)
	}
	until(t, node, "the announcement", available("reverse"))
	caller, err := nats.Connect(node.NATSURL(), nats.UserInfo("caller", "pw-caller"))
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	text := ""
	_, err = subjects.CallStream(t.Context(), subjects.NewClient(caller), subjects.ClassInteractive, ask("hello"), func(ev subjects.Event) error { text += ev.Content; return nil })
	if err != nil || text != "olleh" {
		t.Errorf("%q, %v", text, err)
	}
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
	for _, subject := range []string{subjects.Complete("interactive"), subjects.Provider("openai"), subjects.Cancel, subjects.QueryHealth, subjects.UsageSubject("a", "b"), subjects.NodeStatus, "_INBOX.x"} {
		denied("publishing to "+subject, func() error { return nc.Publish(subject, nil) })
	}
	for _, subject := range []string{subjects.Complete("interactive"), subjects.Provider("openai"), "_INBOX.>", subjects.NodeInbox + ".>", subjects.UsageFilter} {
		denied("listening to "+subject, func() error { _, err := nc.SubscribeSync(subject); return err })
	}
	if _, err := nc.SubscribeSync(subjects.Cancel); err != nil {
		t.Error(err)
	}
}

// TestOutsideEchoesHeaders: some clients put the headers of a call on its answer
// (nats-py's respond does). The answer comes all the same, and the program's death
// is noticed.
func TestOutsideEchoesHeaders(t *testing.T) {
	dies := atomic.Bool{}
	serve := func(p *program, m *nats.Msg) {
		say := func(data string) {
			_ = p.nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: m.Header, Data: []byte(data)})
		}
		if !strings.Contains(string(m.Data), `"stream":true`) {
			say(`{"content":"ok","finishReason":"stop"}`)
			return
		}
		say(`{"type":"delta","content":"ok"}`)
		if dies.Load() {
			_ = p.nc.Flush()
			p.nc.Close()
			return
		}
		say(`{"type":"result","content":"ok","finishReason":"stop"}`)
		say("")
	}
	for name, environ := range map[string][]string{
		"open":      nil,
		"passwords": {"SLUICE_PROVIDER_PASSWORD=of-providers", "SLUICE_CALLER_PASSWORD=of-callers"},
	} {
		t.Run(name, func(t *testing.T) {
			dies.Store(false)
			node := bare(t, sluice.WithEnviron(environ))
			opts := []nats.Option{nats.NoReconnect()}
			if environ != nil {
				opts = append(opts, nats.UserInfo("provider", "of-providers"), nats.CustomInboxPrefix("_INBOX.provider"))
			}
			nc, err := nats.Connect(node.NATSURL(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			p := &program{t: t, nc: nc, name: "echo"}
			if _, err := nc.QueueSubscribe(subjects.Provider("echo"), "q", func(m *nats.Msg) { serve(p, m) }); err != nil {
				t.Fatal(err)
			}
			if refusal := p.announce(`"models":["m"],"capabilities":["streaming"]`); refusal != nil {
				t.Fatal(refusal)
			}
			until(t, node, "the announcement", available("echo"))
			req := ask("hello")
			req.Provider = "echo"
			if res, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, req); err != nil || res.Content != "ok" {
				t.Errorf("%+v, %v", res, err)
			}
			stream := func() (*subjects.Result, error) {
				return subjects.CallStream(t.Context(), node.Client(), subjects.ClassInteractive, req, func(subjects.Event) error { return nil })
			}
			if res, err := stream(); err != nil || res.Content != "ok" {
				t.Errorf("%+v, %v", res, err)
			}
			if err := nc.LastError(); err != nil {
				t.Error(err)
			}
			dies.Store(true)
			_, err = stream()
			if e := subjects.AsError(err); e == nil || e.Kind != subjects.KindProvider || !strings.Contains(e.Message, "lost its connection") {
				t.Errorf("after its death: %v", err)
			}
		})
	}
}

// TestOutsideOnTwoNodes: every node hears an announcement and calls the program
// itself, also one that hosts other providers only and has another's NATS server.
func TestOutsideOnTwoNodes(t *testing.T) {
	const secret = "SLUICE_NODE_PASSWORD=a-password-of-nodes"
	host := bare(t, sluice.WithEnviron([]string{secret}))
	asked := sluicetest.Start(t, sluice.WithNATSURL(host.NATSURL()), sluice.WithProviders([]string{"openai"}), sluice.WithEnviron([]string{secret}))
	p := outsider(t, host, "reverse", reverse)
	if refusal := p.announce(reverseModels); refusal != nil {
		t.Fatal(refusal)
	}
	until(t, host, "the announcement", available("reverse"))
	until(t, asked, "the announcement on the other node", available("reverse"))
	for _, node := range []*sluice.Node{host, asked} {
		req := ask("hello")
		req.Model = "reverse/rev-2"
		res, err := subjects.CallStream(t.Context(), node.Client(), subjects.ClassInteractive, req, func(subjects.Event) error { return nil })
		if err != nil || res.Content != "olleh" || len(recentRows(t.Context(), t, node.Client())) == 0 {
			t.Errorf("%+v, %v", res, err)
		}
		h := until(t, node, "pools", func(*subjects.Health) bool { return true })
		if h.Pools["reverse/rev-2"].Granted != 1 {
			t.Errorf("the slots are not the asking node's: %+v", h.Pools)
		}
	}
	p.nc.Close()
	req := ask("hello")
	req.Provider = "reverse"
	_, err := subjects.Call(t.Context(), asked.Client(), subjects.ClassInteractive, req)
	if e := subjects.AsError(err); e == nil || e.Kind != subjects.KindProviderUnavailable || !strings.Contains(e.Message, "nobody listens on llm.provider.reverse.complete") {
		t.Errorf("%v", err)
	}
}

// TestOutsideLocal: a program that says it is local serves where the content must
// stay on this side.
func TestOutsideLocal(t *testing.T) {
	node := bare(t, sluice.WithEnviron([]string{"SEMANTIC_ANALYSIS_MODE=local"}))
	p := outsider(t, node, "reverse", reverse)
	far := outsider(t, node, "far", reverse)
	_ = p.announce(`"local":true,"models":["rev"]`)
	_ = far.announce(`"models":["rev"]`)
	until(t, node, "both", func(h *subjects.Health) bool { return h.Providers["reverse"].Available && h.Providers["far"].Available })
	req := ask("hello")
	req.Provider, req.Privacy = "far", "local"
	res, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, req)
	if err != nil || res.Provider != "reverse" || !res.Local || res.CostUSD == nil || *res.CostUSD != 0 || res.Attempts[0].Reason != "mode" {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestOutsideLeaves: a program that has unsubscribed gets no new call and still
// answers the ones it has.
func TestOutsideLeaves(t *testing.T) {
	node := bare(t)
	held := make(chan *nats.Msg, 1)
	p := outsider(t, node, "reverse", func(_ *program, m *nats.Msg) {
		_ = m.Sub.Unsubscribe()
		held <- m
	})
	_ = p.announce(reverseModels)
	until(t, node, "the announcement", available("reverse"))
	done := make(chan error)
	go func() {
		res, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, ask("hello"))
		if err == nil && res.Content != "olleh" {
			err = errors.New(res.Content)
		}
		done <- err
	}()
	m := <-held
	until(t, node, "its leaving", func(h *subjects.Health) bool { return !h.Providers["reverse"].Available })
	reverse(p, m)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
