package hooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/hooks"
	"github.com/sluice-llm/sluice/subjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect starts a NATS server inside the process.
func connect(t testing.TB) *nats.Conn {
	t.Helper()
	srv, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

const subject = "llm.hook.test"

// answering makes a service that gives one answer, and shows what it was asked.
func answering(t *testing.T, reply *nats.Msg) (s *hooks.Service, asked func() string) {
	t.Helper()
	nc := connect(t)
	got := make(chan string, 1)
	_, err := nc.Subscribe(subject, func(m *nats.Msg) {
		got <- string(m.Data)
		if reply != nil {
			again := *reply
			again.Subject = m.Reply
			_ = nc.PublishMsg(&again)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return hooks.OverNATS(subjects.NewClient(nc), subject), func() string { return <-got }
}

// TestQuestions holds the JSON of each question, which services in other
// languages read.
func TestQuestions(t *testing.T) {
	t.Parallel()
	usd := subjects.USD(1_250_000)
	for name, c := range map[string]struct {
		ask  func(context.Context, *hooks.Service) error
		want string
	}{
		"mock": {func(ctx context.Context, s *hooks.Service) error {
			_, err := s.MockResponse(ctx, &hooks.MockRequest{CallID: "c", Process: "p", Task: "t", Tier: "fast", Class: "ingestion", AgentID: "a", RunID: "r", Model: "m", Text: "<a>", Truncated: true})
			return err
		}, `{"callId":"c","process":"p","task":"t","tier":"fast","class":"ingestion","agentId":"a","runId":"r","model":"m","text":"<a>","truncated":true}`},
		"over_budget": {func(ctx context.Context, s *hooks.Service) error {
			_, err := s.OverBudget(ctx, &hooks.BudgetQuestion{CallID: "c", Process: "p", Task: "t", Class: "interactive", RunID: "r", BatchID: "b", Providers: []string{"openai"}})
			return err
		}, `{"question":"over_budget","callId":"c","process":"p","task":"t","class":"interactive","runId":"r","batchId":"b","providers":["openai"]}`},
		"track_cost": {func(ctx context.Context, s *hooks.Service) error {
			return s.TrackCost(ctx, &hooks.BudgetCost{CallID: "c", Process: "p", Task: "t", Class: "interactive", RunID: "r", BatchID: "b", Provider: "openai", Model: "m", Subscription: "api-key", InputTokens: 1, OutputTokens: 2, TotalTokens: 3, CostUSD: &usd, Outcome: "ok"})
		}, `{"question":"track_cost","callId":"c","process":"p","task":"t","class":"interactive","runId":"r","batchId":"b","provider":"openai","model":"m","subscription":"api-key","inputTokens":1,"outputTokens":2,"totalTokens":3,"costUsd":1.25,"savedUsd":null,"outcome":"ok"}`},
		"sensitivity": {func(ctx context.Context, s *hooks.Service) error {
			_, err := s.Classify(ctx, &hooks.Content{CallID: "c", Process: "p", Task: "t", Class: "interactive", AgentID: "a", RunID: "r", Text: "x & y", Attachments: 2, Providers: []string{"groq", "ollama"}})
			return err
		}, `{"callId":"c","process":"p","task":"t","class":"interactive","agentId":"a","runId":"r","text":"x & y","truncated":false,"attachments":2,"providers":["groq","ollama"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, asked := answering(t, &nats.Msg{Data: []byte(`{"content":"","overBudget":false,"sensitivity":"public"}`)})
			if err := c.ask(t.Context(), s); err != nil {
				t.Error(err)
			}
			if got := strings.TrimSpace(asked()); got != c.want {
				t.Errorf("asked\n%s, want\n%s", got, c.want)
			}
		})
	}
}

// reply is a transport that gives one reply.
type reply []byte

func (r reply) Request(context.Context, *subjects.Msg) (*subjects.Msg, error) {
	return &subjects.Msg{Data: r}, nil
}

func (r reply) Stream(context.Context, *subjects.Msg, func(*subjects.Msg) error) error {
	return errors.ErrUnsupported
}

func TestReplies(t *testing.T) {
	t.Parallel()
	usd := subjects.USD(-500_000)
	for _, c := range []struct {
		reply string
		want  any
		err   string
	}{
		{`{"sensitivity":"public"}`, hooks.Classification{Sensitivity: hooks.Public}, ""},
		{` {"sensitivity":"internal","allowedProviders":null,"more":1} `, hooks.Classification{Sensitivity: hooks.Internal}, ""},
		{`{"sensitivity":"confidential","allowedProviders":[]}`, hooks.Classification{Sensitivity: hooks.Confidential, AllowedProviders: []string{}}, ""},
		{`{"sensitivity":"public","allowedProviders":["groq"]}`, hooks.Classification{Sensitivity: hooks.Public, AllowedProviders: []string{"groq"}}, ""},
		{`{"sensitivity":"secret"}`, hooks.Classification{}, "field sensitivity: public, internal or confidential"},
		{`{"sensitivity":"Public"}`, hooks.Classification{}, "field sensitivity"},
		{`{}`, hooks.Classification{}, "field sensitivity"},
		{`null`, hooks.Classification{}, "field sensitivity"},
		{`{"sensitivity":7}`, hooks.Classification{}, "field sensitivity: it has the wrong type"},
		{`{"sensitivity":"public","allowedProviders":"groq"}`, hooks.Classification{}, "field allowedProviders"},
		{``, hooks.Classification{}, "not the JSON"},
		{`public`, hooks.Classification{}, "not the JSON"},
		{`["public"]`, hooks.Classification{}, "not the JSON"},

		{`{"overBudget":false}`, hooks.BudgetAnswer{}, ""},
		{`{"overBudget":true,"remainingUsd":-0.5,"reason":"team a"}`, hooks.BudgetAnswer{OverBudget: true, RemainingUSD: &usd, Reason: "team a"}, ""},
		{`{}`, hooks.BudgetAnswer{}, "field overBudget"},
		{`{"overBudget":null}`, hooks.BudgetAnswer{}, "field overBudget"},
		{`{"overBudget":"no"}`, hooks.BudgetAnswer{}, "field overBudget"},
		{`{"overBudget":false,"remainingUsd":"much"}`, hooks.BudgetAnswer{}, "not the JSON"},

		{`{"content":"hello"}`, "hello", ""},
		{`{"content":""}`, "", ""},
		{`{}`, "", "field content"},
		{`{"content":["hello"]}`, "", "field content"},
	} {
		var got any
		var err error
		s := hooks.OverNATS(reply(c.reply), subject)
		switch c.want.(type) {
		case hooks.Classification:
			var p *hooks.Classification
			if p, err = s.Classify(t.Context(), &hooks.Content{}); err == nil {
				got = *p
			}
		case hooks.BudgetAnswer:
			var p *hooks.BudgetAnswer
			if p, err = s.OverBudget(t.Context(), &hooks.BudgetQuestion{}); err == nil {
				got = *p
			}
		case string:
			got, err = s.MockResponse(t.Context(), &hooks.MockRequest{})
		}
		switch {
		case c.err == "" && (err != nil || !reflect.DeepEqual(got, c.want)):
			t.Errorf("%s: %+v, %v", c.reply, got, err)
		case c.err != "" && (subjects.KindOf(err) != subjects.KindProvider || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), subject)):
			t.Errorf("%s: %v, want %s", c.reply, err, c.err)
		}
	}
	if err := hooks.OverNATS(reply(""), subject).TrackCost(t.Context(), &hooks.BudgetCost{}); err != nil {
		t.Errorf("a cost needs no answer but a reply: %v", err)
	}
}

// TestNoReply: each way to get none is an error that says which, and has nothing
// of what the service wrote.
func TestNoReply(t *testing.T) {
	t.Parallel()
	ask := func(ctx context.Context, s *hooks.Service, text string) error {
		_, err := s.Classify(ctx, &hooks.Content{Text: text})
		return err
	}
	is := func(err error, kind subjects.Kind, text string) {
		t.Helper()
		if subjects.KindOf(err) != kind || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "prompt") {
			t.Errorf("%v, want %s: %s", err, kind, text)
		}
	}
	failing, _ := answering(t, &nats.Msg{Header: nats.Header{"Nats-Service-Error-Code": {"503"}, "Nats-Service-Error": {"the prompt was: hi"}}})
	is(ask(t.Context(), failing, "hi"), subjects.KindProvider, "llm.hook.test replied with an error (code 503)")

	silent, _ := answering(t, nil)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	is(ask(short, silent, "hi"), subjects.KindTimeout, "deadline")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	is(ask(gone, silent, "hi"), subjects.KindCancelled, "cancelled")

	nc := connect(t)
	nobody := hooks.OverNATS(subjects.NewClient(nc), "llm.hook.nobody")
	is(ask(t.Context(), nobody, "hi"), subjects.KindProviderUnavailable, "nobody answers llm.hook.nobody")
	is(ask(t.Context(), nobody, strings.Repeat("x", 2<<20)), subjects.KindProvider, "max_payload")
	nc.Close()
	is(ask(t.Context(), nobody, "hi"), subjects.KindProviderUnavailable, "connection")
}

// FuzzReply: no reply makes a panic or an answer that is none of the words.
func FuzzReply(f *testing.F) {
	for _, s := range []string{`{"sensitivity":"internal","allowedProviders":["a"]}`, `{"overBudget":true,"remainingUsd":1e300}`, `{"content":"x"}`, `[`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := hooks.OverNATS(reply(data), subject)
		if c, err := s.Classify(t.Context(), &hooks.Content{}); err == nil && !hooks.KnownSensitivity(c.Sensitivity) {
			t.Errorf("%+v", c)
		}
		if a, err := s.OverBudget(t.Context(), &hooks.BudgetQuestion{}); err == nil {
			var said struct {
				OverBudget *bool `json:"overBudget"`
			}
			if json.Unmarshal(data, &said) != nil || said.OverBudget == nil || *said.OverBudget != a.OverBudget {
				t.Errorf("%+v of %s", a, data)
			}
		}
		_, _ = s.MockResponse(t.Context(), &hooks.MockRequest{})
	})
}
