package edge_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/edge"
	"github.com/sluice-llm/sluice/subjects"
)

// connect starts a NATS server in this process and gives a connection to it.
func connect(t testing.TB, maxPayload int32) *nats.Conn {
	t.Helper()
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, MaxPayload: maxPayload})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc.Close()
		s.Shutdown()
		s.WaitForShutdown()
	})
	return nc
}

func respond(t testing.TB, nc *nats.Conn, subject string, h func(*nats.Msg)) {
	t.Helper()
	sub, err := nc.Subscribe(subject, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestOverNATS(t *testing.T) {
	nc := connect(t, 1<<20)
	got := make(chan *nats.Msg, 1)
	respond(t, nc, "llm.complete.*", func(m *nats.Msg) {
		got <- m
		id := m.Header.Get("Llm-Call-Id")
		reply := &nats.Msg{Subject: m.Reply, Header: nats.Header{"Llm-Provider": {"mock"}, "Llm-Model": {"mock-1"}, "Llm-Call-Id": {id}}}
		if strings.Contains(string(m.Data), `"stream":true`) {
			for _, d := range []string{`{"n":1}`, `{"n":2}`, ``} {
				reply.Data = []byte(d)
				_ = nc.PublishMsg(reply)
			}
			return
		}
		reply.Data = []byte(chatReply)
		_ = nc.PublishMsg(reply)
	})
	respond(t, nc, subjects.QueryModels, func(m *nats.Msg) { _ = m.Respond([]byte(`{"models":[{"id":"mock/m","provider":"mock"}]}`)) })
	r := start(t, subjects.NewClient(nc), edge.Options{})

	a := r.post(t, "/v1/chat/completions", chatBody, "X-LLM-Call-Id", "n1", "X-LLM-Class", "ingestion")
	m := within(t, got, "the request")
	if a.status != 200 || a.body != chatReply || a.header.Get("X-LLM-Provider") != "mock" || a.header.Get("X-LLM-Model") != "mock-1" || a.header.Get("X-Request-Id") != "n1" {
		t.Errorf("plain: %d %v %s", a.status, a.header, a.body)
	}
	if m.Subject != "llm.complete.ingestion" || string(m.Data) != chatBody || m.Header.Get("Llm-Wire") != "openai-chat" {
		t.Errorf("the node got %s %v %s", m.Subject, m.Header, m.Data)
	}
	a = r.post(t, "/v1/chat/completions", chatStream)
	<-got
	if a.status != 200 || a.body != "data: {\"n\":1}\n\ndata: {\"n\":2}\n\ndata: [DONE]\n\n" || a.header.Get("X-LLM-Provider") != "mock" {
		t.Errorf("stream: %d %v %q", a.status, a.header, a.body)
	}
	if a = r.get(t, "/v1/models"); !strings.Contains(a.body, `"mock/m"`) {
		t.Errorf("models: %d %s", a.status, a.body)
	}
}

func TestErrorsOverNATS(t *testing.T) {
	nc := connect(t, 1<<20)
	respond(t, nc, "llm.complete.interactive", func(m *nats.Msg) {
		e := withRetry(callError(subjects.KindRateLimited, "slow down"), 1500*time.Millisecond)
		e.CallID = m.Header.Get("Llm-Call-Id")
		e.RateLimit = map[string]string{"x-ratelimit-remaining-requests": "0"}
		em := e.Msg()
		_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header(em.Header), Data: em.Data})
	})
	r := start(t, subjects.NewClient(nc), edge.Options{})
	for _, body := range []string{chatBody, chatStream} {
		a := r.post(t, "/v1/chat/completions", body)
		e := a.errorOf(t)
		if a.status != 429 || e["code"] != "rate_limit_exceeded" || a.header.Get("Retry-After") != "2" || a.header.Get("retry-after-ms") != "1500" ||
			a.header.Get("x-ratelimit-remaining-requests") != "0" || e["callId"] != a.header.Get("X-LLM-Call-Id") {
			t.Errorf("got %d %v %s", a.status, a.header, a.body)
		}
		a = r.post(t, "/v1/chat/completions", body, "X-LLM-Class", "ingestion")
		if e := a.errorOf(t); a.status != 503 || e["kind"] != "PROVIDER_UNAVAILABLE" {
			t.Errorf("nobody there: %d %s", a.status, a.body)
		}
	}
	a := r.post(t, "/v1/chat/completions", `{"pad":"`+strings.Repeat("x", 1<<20)+`"}`)
	if e := a.errorOf(t); a.status != 400 || e["code"] != "request_too_large" || !strings.Contains(e["message"].(string), "max_payload of 1048576") {
		t.Errorf("above max_payload: %d %s", a.status, a.body)
	}
}

// TestHangUpOverNATS has llm.cancel published with the call's own id.
func TestHangUpOverNATS(t *testing.T) {
	nc := connect(t, 1<<20)
	calls, cancelled := make(chan *nats.Msg, 1), make(chan string, 16)
	respond(t, nc, "llm.complete.interactive", func(m *nats.Msg) { calls <- m })
	respond(t, nc, subjects.Cancel, func(m *nats.Msg) {
		var c subjects.CancelRequest
		_ = json.Unmarshal(m.Data, &c)
		cancelled <- c.CallID
	})
	r := start(t, subjects.NewClient(nc), edge.Options{})
	for _, tt := range []struct{ path, body, id string }{
		{"/v1/chat/completions", chatBody, ""},
		{"/v1/chat/completions", chatStream, ""},
		{"/api/complete", `{"callId":"from-body"}`, "from-body"},
		{"/api/complete", `{"callId":"from-body-2","stream":true}`, "from-body-2"},
	} {
		c := dial(t, r.addr)
		if _, err := c.Write([]byte(rawPost(tt.path, tt.body))); err != nil {
			t.Fatal(err)
		}
		id := within(t, calls, "the call").Header.Get("Llm-Call-Id")
		if tt.id != "" && id != tt.id {
			t.Errorf("call id %q, want %q", id, tt.id)
		}
		c.Close()
		for got := ""; got != id; { // it may be said twice
			got = within(t, cancelled, "llm.cancel of "+id)
		}
	}
}
