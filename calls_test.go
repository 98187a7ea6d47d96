package sluice_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fakeopenai"
	"github.com/sluice-llm/sluice/sluicetest"
	"github.com/sluice-llm/sluice/subjects"
)

// TestAcceptance is the seed's scenario with the upstream as the witness: 20
// ingestion and 3 interactive calls at once, cap 12. All that may run does, no
// more, and the interactive calls are among them though they came last.
func TestAcceptance(t *testing.T) {
	gate := fakeopenai.NewGate()
	up := fakeopenai.New(fakeopenai.WithGate(gate)).Start(t)
	r := newRig(t, up, "LLM_MAX_RPM_OPENAI=12")
	var wg sync.WaitGroup
	call := func(class string) {
		wg.Go(func() {
			if _, err := r.client.Request(r.ctx, openAIMsg(class, "", false)); err != nil {
				t.Error(err)
			}
		})
	}
	for range 20 {
		call(subjects.ClassIngestion)
	}
	r.until("ingestion waiting", func(h *subjects.Health) bool { return h.Classes[subjects.ClassIngestion].Queued == 12 })
	for range 3 {
		call(subjects.ClassInteractive)
	}
	if err := up.WaitInFlight(r.ctx, 11); err != nil {
		t.Fatal(err)
	}
	if c := up.Class(subjects.ClassInteractive); c.InFlight != 3 {
		t.Fatalf("%d interactive calls run beside %d ingestion calls, want 3", c.InFlight, up.Class(subjects.ClassIngestion).InFlight)
	}
	gate.Open()
	wg.Wait()
	if all := up.Counts(); all.Peak > 12 {
		t.Errorf("%d calls in flight at once, the cap is 12", all.Peak)
	}
	if c := up.Class(subjects.ClassIngestion); c.Peak > 8 {
		t.Errorf("%d ingestion calls at once, the class has 8 slots", c.Peak)
	}
	if u, want := r.usage(), up.Counts(); u.Calls != 23 || u.InputTokens+u.CacheReadTokens != want.PromptTokens || u.OutputTokens != want.CompletionTokens {
		t.Errorf("usage %+v, the upstream reported %+v", u, want)
	}
}

// TestErrorTable holds the contract's table for one provider: what the caller
// gets, and how often the provider was asked.
func TestErrorTable(t *testing.T) {
	for _, c := range []struct {
		name  string
		does  fakeopenai.Behaviour
		kind  subjects.Kind
		tries int
	}{
		{"bad key", fakeopenai.InvalidAPIKey(), subjects.KindAuth, 1},
		{"quota", fakeopenai.InsufficientQuota(), subjects.KindQuotaExhausted, 1},
		{"rate", fakeopenai.RateLimited(20 * time.Millisecond), subjects.KindRateLimited, 3},
		{"rate, far", fakeopenai.RateLimited(5 * time.Minute), subjects.KindRateLimited, 1},
		{"rate, very far", fakeopenai.RateLimited(time.Hour), subjects.KindQuotaExhausted, 1},
		{"context", fakeopenai.ContextLengthExceeded(), subjects.KindValidation, 1},
		{"policy", fakeopenai.ContentPolicy(), subjects.KindContentPolicy, 1},
		{"500", fakeopenai.ServerError(), subjects.KindProvider, 3},
		{"overloaded", fakeopenai.Overloaded(), subjects.KindProvider, 3},
		{"html", fakeopenai.Behaviour{HTMLError: true}, subjects.KindProvider, 3},
		{"broken", fakeopenai.Behaviour{BrokenJSON: true}, subjects.KindProvider, 3},
		{"cut", fakeopenai.Behaviour{CutAfterChunks: fakeopenai.BeforeFirst}, subjects.KindProvider, 3},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s stream=%v", c.name, stream), func(t *testing.T) {
				t.Parallel()
				up := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Always(c.does))).Start(t)
				r := newRig(t, up)
				r.t = t
				err := r.client.Stream(r.ctx, openAIMsg(subjects.ClassInteractive, "", stream), func(*subjects.Msg) error { return nil })
				var e *subjects.Error
				if !errors.As(err, &e) || e.Kind != c.kind || e.Status() != c.kind.Status() {
					t.Fatalf("got %v, want %s", err, c.kind)
				}
				if n := up.Counts().Total; n != c.tries {
					t.Errorf("the provider was asked %d times, want %d", n, c.tries)
				}
				if e.CallID == "" || e.Provider != "openai" || len(e.Attempts) < c.tries {
					t.Errorf("error lacks its facts: %+v", e)
				}
				rows := r.recent()
				if len(rows) != 1 || rows[0].Outcome != string(c.kind) {
					t.Errorf("rows %+v", rows)
				}
			})
		}
	}
}

// TestStreamFailsBeforeOutput: a stream that ends after its opening chunk, with
// nothing said, is tried again, and the caller sees one whole stream.
func TestStreamFailsBeforeOutput(t *testing.T) {
	for _, fails := range []fakeopenai.Behaviour{
		{ErrorAfterChunks: fakeopenai.BeforeFirst}, {CutAfterChunks: fakeopenai.BeforeFirst}, {BrokenJSON: true},
	} {
		up := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Sequence(fails, fakeopenai.Behaviour{}))).Start(t)
		r := newRig(t, up)
		roles := 0
		err := r.client.Stream(r.ctx, openAIMsg(subjects.ClassInteractive, "", true), func(m *subjects.Msg) error {
			roles += strings.Count(string(m.Data), `"role":`)
			return nil
		})
		if err != nil || roles != 1 || up.Counts().Total != 2 {
			t.Errorf("%+v: %v, %d opening chunks, %d tries", fails, err, roles, up.Counts().Total)
		}
	}
}

// TestFallback holds that a failing provider is left for the next one, and
// that the record says how.
func TestFallback(t *testing.T) {
	bad := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Always(fakeopenai.InvalidAPIKey()))).Start(t)
	good := fakeopenai.New().Start(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cfg := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(cfg, []byte("providers:\n  custom:\n    baseUrl: "+good.BaseURL()+"\n    models: {fast: c-model, standard: c-model, premium: c-model}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	node := sluicetest.Start(t, sluice.WithConfigFile(cfg), sluice.WithEnviron([]string{"OPENAI_API_KEY=x", "LLM_BASE_URL_OPENAI=" + bad.BaseURL()}))
	req := ask("hi")
	req.Model = "openai/gpt-test"
	for _, stream := range []bool{false, true} {
		var res *subjects.Result
		var err error
		if stream {
			res, err = subjects.CallStream(ctx, node.Client(), subjects.ClassInteractive, req, func(subjects.Event) error { return nil })
		} else {
			res, err = subjects.Call(ctx, node.Client(), subjects.ClassInteractive, req)
		}
		if err != nil {
			t.Fatal(err)
		}
		if res.Provider != "custom" || res.ModelRaw != "c-model" {
			t.Fatalf("served by %s/%s", res.Provider, res.ModelRaw)
		}
		row := recentRows(ctx, t, node.Client())[0]
		if at := map[bool]int{false: 1, true: 0}[stream]; row.ChainPosition != at || row.Outcome != "ok" {
			t.Errorf("row %+v", row)
		}
		trail := row.AttemptTrail
		first := string(subjects.KindAuth)
		if stream { // its breaker is open by now
			first = subjects.OutcomeSkipped
		}
		if trail[0].Outcome != first || trail[len(trail)-1].Outcome != "ok" || trail[1].Outcome != subjects.OutcomeSkipped {
			t.Errorf("trail %+v", trail)
		}
	}
}

// TestSlotFreeWhileBackingOff: with one slot, a second call runs while the
// first waits for its Retry-After.
func TestSlotFreeWhileBackingOff(t *testing.T) {
	gate := fakeopenai.NewGate()
	first := fakeopenai.RateLimited(time.Second)
	up := fakeopenai.New(fakeopenai.WithScript(func(n int, _ *fakeopenai.Request) fakeopenai.Behaviour {
		if n == 1 {
			return first
		}
		return fakeopenai.Behaviour{Gate: gate}
	})).Start(t)
	r := newRig(t, up, "LLM_MAX_RPM_OPENAI=1")
	var wg sync.WaitGroup
	call := func(id string) {
		wg.Go(func() {
			if _, err := r.client.Request(r.ctx, openAIMsg(subjects.ClassInteractive, id, false)); err != nil {
				t.Error(err)
			}
		})
	}
	call("one")
	if err := up.Wait(r.ctx, func(s fakeopenai.Snapshot) bool { return s.All.Failed == 1 }); err != nil {
		t.Fatal(err)
	}
	call("two")
	if err := gate.WaitHeld(r.ctx, 1); err != nil { // the second call, well within the second
		t.Fatal(err)
	}
	gate.Open()
	wg.Wait()
	for _, row := range r.recent() {
		if row.ID == "one" && (row.QueuedMs < 900 || len(row.AttemptTrail) < 2) {
			t.Errorf("the first call's wait is not in its record: %+v", row)
		}
	}
}

// TestSameCallID holds the de-duplication: together, after success, after failure.
func TestSameCallID(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream=", stream), func(t *testing.T) {
			gate := fakeopenai.NewGate()
			up := fakeopenai.New(fakeopenai.WithGate(gate)).Start(t)
			r := newRig(t, up)
			answers := make(chan string, 3)
			call := func() {
				var got bytes.Buffer
				err := r.client.Stream(r.ctx, openAIMsg(subjects.ClassInteractive, "same", stream), func(m *subjects.Msg) error {
					got.Write(m.Data)
					if !stream {
						return errStop
					}
					return nil
				})
				if err != nil && !errors.Is(err, errStop) {
					t.Error(err)
				}
				answers <- got.String()
			}
			go call()
			go call()
			if err := gate.WaitHeld(r.ctx, 1); err != nil {
				t.Fatal(err)
			}
			r.until("both calls here", func(h *subjects.Health) bool { return h.InFlightRequests == 2 })
			gate.Open()
			a, b := <-answers, <-answers
			go call()
			if c := <-answers; a != b || b != c || a == "" {
				t.Errorf("three answers to one call: %q, %q, %q", a, b, c)
			}
			if n := up.Counts().Total; n != 1 {
				t.Errorf("the provider was asked %d times", n)
			}
			if u := r.usage(); u.Calls != 1 {
				t.Errorf("%d records", u.Calls)
			}
			err := r.client.Stream(r.ctx, openAIMsg(subjects.ClassInteractive, "same", !stream), func(*subjects.Msg) error { return errStop })
			if subjects.KindOf(err) != subjects.KindValidation {
				t.Errorf("the same id in another form: %v", err)
			}
		})
	}
}

var errStop = errors.New("stop")

// TestSameCallIDAfterFailure: a failed call may be sent again under its id, and
// each run has its own record.
func TestSameCallIDAfterFailure(t *testing.T) {
	up := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Sequence(fakeopenai.Behaviour{Status: 400}, fakeopenai.Behaviour{}))).Start(t)
	r := newRig(t, up)
	_, err := r.client.Request(r.ctx, openAIMsg(subjects.ClassInteractive, "again", false))
	if subjects.KindOf(err) != subjects.KindValidation {
		t.Fatal(err)
	}
	if _, err := r.client.Request(r.ctx, openAIMsg(subjects.ClassInteractive, "again", false)); err != nil {
		t.Fatal(err)
	}
	rows := r.recent()
	if len(rows) != 2 || rows[0].ID != "again#2" || rows[1].ID != "again" || rows[0].Outcome != "ok" {
		t.Fatalf("rows %+v", rows)
	}
}

// TestCancel holds llm.cancel: in line, before the answer, in mid-stream, and
// before the call itself has come.
func TestCancel(t *testing.T) {
	gate := fakeopenai.NewGate()
	up := fakeopenai.New(fakeopenai.WithScript(func(_ int, q *fakeopenai.Request) fakeopenai.Behaviour {
		if q.Stream {
			return fakeopenai.Behaviour{HangAfterChunks: 2}
		}
		return fakeopenai.Behaviour{Gate: gate}
	})).Start(t)
	r := newRig(t, up, "LLM_MAX_RPM_OPENAI=1")
	r.cancels = true
	start := func(id string, stream bool, on func()) <-chan error {
		end := make(chan error, 1)
		go func() {
			end <- r.client.Stream(r.ctx, openAIMsg(subjects.ClassInteractive, id, stream), func(*subjects.Msg) error { on(); return nil })
		}()
		return end
	}
	cancelled := func(id string, end <-chan error) {
		t.Helper()
		if err := r.client.Cancel(id); err != nil {
			t.Fatal(err)
		}
		if err := <-end; subjects.KindOf(err) != subjects.KindCancelled {
			t.Errorf("%s: %v", id, err)
		}
	}
	running := start("unanswered", false, func() {})
	if err := gate.WaitHeld(r.ctx, 1); err != nil {
		t.Fatal(err)
	}
	waiting := start("in-line", false, func() {})
	r.until("one in line", func(h *subjects.Health) bool { return h.Classes[subjects.ClassInteractive].Queued == 1 })
	cancelled("in-line", waiting)
	cancelled("unanswered", running)

	deltas := make(chan struct{}, 100)
	streaming := start("streaming", true, func() { deltas <- struct{}{} })
	for range 3 { // the role chunk and two pieces
		<-deltas
	}
	cancelled("streaming", streaming)

	if err := r.client.Cancel("early"); err != nil {
		t.Fatal(err)
	}
	for range 3 { // over the same connection: the node has heard the cancel by then
		if err := subjects.Query(r.ctx, r.client, subjects.QueryHealth, nil, &subjects.Health{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-start("early", false, func() {}); subjects.KindOf(err) != subjects.KindCancelled {
		t.Errorf("cancelled before it came: %v", err)
	}
	rows := map[string]subjects.UsageRecord{}
	for _, row := range r.recent() {
		rows[row.ID] = row
	}
	if _, ok := rows["in-line"]; ok || len(rows) != 2 {
		t.Errorf("records %+v: a call that reached no provider has none", rows)
	}
	for _, id := range []string{"unanswered", "streaming"} {
		if row := rows[id]; !row.Partial || !row.TokensEstimated || row.InputTokens == 0 || row.Outcome != string(subjects.KindCancelled) {
			t.Errorf("%s: %+v", id, row)
		}
	}
	if rows["streaming"].OutputTokens == 0 {
		t.Error("the pieces that came before the cancel cost nothing")
	}
}

// TestDeadline: in line and at the provider, the caller hears TIMEOUT.
func TestDeadline(t *testing.T) {
	gate := fakeopenai.NewGate()
	up := fakeopenai.New(fakeopenai.WithGate(gate)).Start(t)
	r := newRig(t, up, "LLM_MAX_RPM_OPENAI=1")
	r.cancels = true
	ends := make(chan error, 2)
	for _, id := range []string{"a", "b"} {
		go func() {
			m := openAIMsg(subjects.ClassInteractive, id, false)
			m.Header.Set(subjects.HeaderTimeoutMs, "300")
			_, err := r.client.Request(r.ctx, m)
			ends <- err
		}()
	}
	for range 2 {
		if err := <-ends; subjects.KindOf(err) != subjects.KindTimeout {
			t.Error(err)
		}
	}
	if n := up.Counts().Peak; n != 1 {
		t.Errorf("%d calls at once went through one slot", n)
	}
}

// TestHangUps: a third of the callers leave at random points, over HTTP and
// NATS; all slots come back (newRig checks), no goroutine is left, and the rest
// are answered.
func TestHangUps(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { // runs last: the node and the upstream are closed
		http.DefaultClient.CloseIdleConnections()
		// protoactor waits a second after a message to a stopped actor.
		goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
	})
	up := fakeopenai.New(fakeopenai.WithScript(func(n int, _ *fakeopenai.Request) fakeopenai.Behaviour {
		return fakeopenai.Behaviour{Latency: time.Duration(n%7) * time.Millisecond, ChunkDelay: time.Duration(n%3) * time.Millisecond}
	})).Start(t)
	r := newRig(t, up, "LLM_MAX_RPM_OPENAI=4")
	r.cancels = true
	var wg sync.WaitGroup
	for i := range 300 {
		class, stream, leaves := subjects.Classes[i%2], i%4 < 2, i%3 == 0
		ctx, cancel := context.WithCancel(r.ctx)
		if leaves {
			time.AfterFunc(time.Duration(i%40)*time.Millisecond, cancel)
		}
		wg.Go(func() {
			defer cancel()
			var err error
			if i%5 < 3 {
				err = httpCall(ctx, r.node.HTTPAddr(), class, stream)
			} else {
				err = r.client.Stream(ctx, openAIMsg(class, "", stream), func(*subjects.Msg) error {
					if !stream {
						return errStop
					}
					return nil
				})
			}
			if err != nil && !leaves && !errors.Is(err, errStop) {
				t.Errorf("call %d (%s, stream %v): %v", i, class, stream, err)
			}
		})
	}
	wg.Wait()
}

func httpCall(ctx context.Context, addr, class string, stream bool) error {
	m := openAIMsg(class, "", stream)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/chat/completions", bytes.NewReader(m.Data))
	if err != nil {
		return err
	}
	req.Header.Set("X-LLM-Class", class)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", res.StatusCode, body)
	}
	if err == nil && stream && !strings.HasSuffix(strings.TrimSpace(string(body)), "data: [DONE]") {
		err = fmt.Errorf("the stream has no end: %q", body)
	}
	return err
}

// TestGoneNATSCaller: a program that is killed while it waits frees its slot,
// though nobody says cancel.
func TestGoneNATSCaller(t *testing.T) {
	gate := fakeopenai.NewGate()
	up := fakeopenai.New(fakeopenai.WithGate(gate)).Start(t)
	r := newRig(t, up)
	r.cancels = true
	nc, err := nats.Connect(r.node.NATSURL())
	if err != nil {
		t.Fatal(err)
	}
	m := openAIMsg(subjects.ClassInteractive, "", false)
	if err := nc.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: nc.NewInbox(), Header: nats.Header(m.Header), Data: m.Data}); err != nil {
		t.Fatal(err)
	}
	if err := gate.WaitHeld(r.ctx, 1); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if err := up.Wait(r.ctx, func(s fakeopenai.Snapshot) bool { return s.All.Aborted == 1 }); err != nil {
		t.Fatal(err)
	}
}

// TestDrain: running calls finish, new ones are refused, the log is whole.
func TestDrain(t *testing.T) {
	gate := fakeopenai.NewGate()
	up := fakeopenai.New(fakeopenai.WithGate(gate)).Start(t)
	r := newRig(t, up)
	end := make(chan error, 1)
	go func() {
		_, err := r.client.Request(r.ctx, openAIMsg(subjects.ClassInteractive, "", false))
		end <- err
	}()
	if err := gate.WaitHeld(r.ctx, 1); err != nil {
		t.Fatal(err)
	}
	drained := make(chan error, 1)
	go func() { drained <- r.node.Drain(r.ctx) }()
	r.until("draining", func(h *subjects.Health) bool { return h.Status == "degraded" && !h.CanServe })
	if _, err := subjects.Call(r.ctx, r.node.Client(), subjects.ClassInteractive, ask("x")); subjects.KindOf(err) != subjects.KindNoProvider {
		t.Errorf("a new call while draining: %v", err)
	}
	gate.Open()
	if err := <-end; err != nil {
		t.Errorf("the running call: %v", err)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if u := r.usage(); u.Calls != 1 {
		t.Errorf("%d records", u.Calls)
	}
}

// TestFlood: ten thousand calls at once are each answered, or refused with a
// clear error; nothing hangs.
func TestFlood(t *testing.T) {
	const n = 10_000
	up := fakeopenai.New().Start(t)
	r := newRig(t, up)
	inbox := r.nc.NewInbox()
	sub, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	m := openAIMsg(subjects.ClassIngestion, "", false)
	for range n {
		if err := r.nc.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: inbox, Header: nats.Header(m.Header), Data: m.Data}); err != nil {
			t.Fatal(err)
		}
	}
	outcomes := map[subjects.Kind]int{}
	for range n {
		reply, err := sub.NextMsgWithContext(r.ctx)
		if err != nil {
			t.Fatalf("after %v: %v", outcomes, err)
		}
		var kind subjects.Kind
		if e := subjects.ErrorOf(&subjects.Msg{Header: subjects.Header(reply.Header), Data: reply.Data}); e != nil {
			kind = e.Kind
		}
		outcomes[kind]++
	}
	if outcomes[""]+outcomes[subjects.KindPoolFull] != n || outcomes[""] == 0 {
		t.Errorf("outcomes %v", outcomes)
	}
	if u := r.usage(); int(u.Calls) != outcomes[""] || int(u.Calls) != up.Counts().Answered {
		t.Errorf("%d records, %d answers, %d of the upstream", u.Calls, outcomes[""], up.Counts().Answered)
	}
}

// TestBadInput: each bad request gets an error that names the field, and costs
// no token.
func TestBadInput(t *testing.T) {
	up := fakeopenai.New().Start(t)
	r := newRig(t, up)
	msgs := `"messages":[{"role":"user","content":"x"}]`
	for _, c := range []struct {
		name, body string
		header     subjects.Header
		names      string
	}{
		{"empty", ``, nil, "body"},
		{"not JSON", `hello`, nil, "JSON"},
		{"cut", `{"messages":[`, nil, "JSON"},
		{"array", `[]`, nil, "object"},
		{"no messages", `{}`, nil, "messages"},
		{"empty messages", `{"messages":[]}`, nil, "messages"},
		{"wrong type", `{"messages":"hi"}`, nil, "messages"},
		{"wrong role", `{"messages":[{"role":"robot","content":"x"}]}`, nil, "messages[0].role"},
		{"unknown field", `{` + msgs + `,"temprature":1}`, nil, "temperature"},
		{"negative", `{` + msgs + `,"maxTokens":-1}`, nil, "maxTokens"},
		{"absurd", `{` + msgs + `,"temperature":1e300}`, nil, "temperature"},
		{"tier", `{` + msgs + `,"tier":"standart"}`, nil, "standard"},
		{"provider", `{` + msgs + `,"provider":"opnai"}`, nil, "openai"},
		{"model", `{` + msgs + `,"model":"no-such-model-anywhere"}`, nil, "model"},
		{"past deadline", `{` + msgs + `,"timeoutMs":-5}`, nil, "timeoutMs"},
		{"utf8", "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", nil, "UTF-8"},
		{"nul", "{\"messages\":[{\"role\":\"user\",\"content\":\"\x00\"}]}", nil, "JSON"},
		{"wire", `{` + msgs + `}`, subjects.Header{subjects.HeaderWire: {"openai-chatt"}}, "openai-chat"},
		{"timeout header", `{` + msgs + `}`, subjects.Header{subjects.HeaderTimeoutMs: {"soon"}}, subjects.HeaderTimeoutMs},
		{"call id", `{` + msgs + `}`, subjects.Header{subjects.HeaderCallID: {strings.Repeat("x", 200)}}, subjects.HeaderCallID},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &subjects.Msg{Subject: subjects.Complete(subjects.ClassInteractive), Header: c.header, Data: []byte(c.body)}
			for _, tr := range []subjects.Transport{r.client, r.node.Client()} {
				_, err := tr.Request(r.ctx, m)
				var e *subjects.Error
				if !errors.As(err, &e) || e.Kind != subjects.KindValidation || !strings.Contains(e.Message, c.names) {
					t.Errorf("got %v, want a VALIDATION_ERROR that names %s", err, c.names)
				}
			}
		})
	}
	if n := up.Counts().Total; n != 0 {
		t.Errorf("%d bad requests reached the provider", n)
	}
	huge := &subjects.Msg{Subject: subjects.Complete(subjects.ClassInteractive), Data: bytes.Repeat([]byte("x"), 9<<20)}
	if _, err := r.client.Request(r.ctx, huge); subjects.KindOf(err) != subjects.KindValidation || !strings.Contains(err.Error(), "max_payload") {
		t.Errorf("a request above the limit: %v", err)
	}
	if _, err := r.client.Request(r.ctx, &subjects.Msg{Subject: "llm.complete.urgent", Data: []byte(`{}`)}); subjects.KindOf(err) != subjects.KindProviderUnavailable {
		t.Errorf("an unknown class: %v", err)
	}
	if err := r.nc.Publish(subjects.Complete(subjects.ClassInteractive), []byte(`{`+msgs+`}`)); err != nil { // no inbox
		t.Fatal(err)
	}
}

// TestStartErrors: a data folder or a port in use is said so, with the remedy.
func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	first := sluicetest.Start(t, sluice.WithData(dir), sluice.WithHTTP("127.0.0.1:0"), sluice.WithNATSListen("127.0.0.1:0"))
	ctx := context.Background()
	env := sluice.WithEnviron([]string{"SEMANTIC_ANALYSIS_MODE=mock"})
	natsAddr := strings.TrimPrefix(first.NATSURL(), "nats://")
	for _, c := range []struct {
		name string
		opts []sluice.Option
		says string
	}{
		{"data folder", []sluice.Option{sluice.WithData(dir)}, "another"},
		{"http port", []sluice.Option{sluice.WithData(t.TempDir()), sluice.WithHTTP(first.HTTPAddr())}, "taken"},
		{"nats port", []sluice.Option{sluice.WithData(t.TempDir()), sluice.WithNATSListen(natsAddr)}, "taken"},
		{"nats beyond loopback", []sluice.Option{sluice.WithData(t.TempDir()), sluice.WithNATSListen("0.0.0.0:0")}, "PASSWORD"},
		{"http beyond loopback", []sluice.Option{sluice.WithData(t.TempDir()), sluice.WithHTTP("0.0.0.0:0")}, "TOKEN"},
		{"bound", []sluice.Option{sluice.WithData(t.TempDir()), sluice.WithEnviron([]string{"LLM_INGESTION_SLOTS=0"})}, "LLM_INGESTION_SLOTS"},
		{"provider", []sluice.Option{sluice.WithData(t.TempDir()), sluice.WithProviders([]string{"opnai"})}, "opnai"},
	} {
		t.Run(c.name, func(t *testing.T) {
			node, err := sluice.Start(ctx, append([]sluice.Option{env}, c.opts...)...)
			if err == nil {
				node.Close()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error %q does not say %q", err, c.says)
			}
		})
	}
	again := sluicetest.Start(t, sluice.WithData(t.TempDir()), sluice.WithHTTP("127.0.0.1:0")) // a failed start left nothing behind
	if _, err := http.Get("http://" + again.HTTPAddr() + "/health"); err != nil {
		t.Error(err)
	}
}

// TestRecordsAreValid holds the fields of the contract.
func TestRecordsAreValid(t *testing.T) {
	up := fakeopenai.New().Start(t)
	r := newRig(t, up)
	if _, err := r.client.Request(r.ctx, openAIMsg(subjects.ClassInteractive, "valid", false)); err != nil {
		t.Fatal(err)
	}
	r.usage() // waits for the database
	raw, ok, err := r.node.Store().Get("valid")
	if err != nil || !ok {
		t.Fatalf("%v %v", ok, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	for _, f := range strings.Fields("id timestamp provider model model_raw process task class tier subscription input_tokens output_tokens total_tokens cache_read_tokens cache_write_tokens reasoning_tokens tokens_estimated cost_usd saved_usd latency_ms queued_ms overhead_ms cached partial outcome chain_position attempt_trail prompt_preview") {
		if _, ok := fields[f]; !ok {
			t.Errorf("the record lacks %s", f)
		}
	}
	if fields["prompt_preview"] != "hello there" || fields["cost_usd"] != nil {
		t.Errorf("record %s", raw)
	}
}

// TestAskersLeave: a call that two ask for goes on while one of them waits, and
// ends when the last has left; whoever asks after that gets a run of his own.
func TestAskersLeave(t *testing.T) {
	for _, stream := range []bool{false, true} {
		gate := fakeopenai.NewGate()
		up := fakeopenai.New(fakeopenai.WithGate(gate)).Start(t)
		r := newRig(t, up)
		r.cancels = true
		ask := func() (context.CancelFunc, <-chan error) {
			ctx, cancel := context.WithCancel(r.ctx)
			end := make(chan error, 1)
			inFlight := r.health().InFlightRequests
			go func() {
				end <- r.node.Client().Stream(ctx, openAIMsg(subjects.ClassInteractive, "shared", stream), func(*subjects.Msg) error { return nil })
			}()
			r.until("asked", func(h *subjects.Health) bool { return h.InFlightRequests > inFlight })
			return cancel, end
		}
		leaveFirst, _ := ask()
		if err := gate.WaitHeld(r.ctx, 1); err != nil {
			t.Fatal(err)
		}
		_, second := ask()
		leaveFirst()
		gate.Open()
		if err := <-second; err != nil || up.Counts().Total != 1 {
			t.Errorf("the second asker, after the first had left: %v, %d tries", err, up.Counts().Total)
		}
		gate.Shut()
		for i := range 20 { // leave and ask again at once
			m := openAIMsg(subjects.ClassInteractive, fmt.Sprint("again-", i), stream)
			ctx, cancel := context.WithCancel(r.ctx)
			gone := make(chan error, 1)
			go func() { gone <- r.node.Client().Stream(ctx, m, func(*subjects.Msg) error { return nil }) }()
			if err := gate.WaitHeld(r.ctx, 1); err != nil {
				t.Fatal(err)
			}
			cancel()
			if i%2 == 0 {
				<-gone
			}
			end := make(chan error, 1)
			go func() { end <- r.node.Client().Stream(r.ctx, m, func(*subjects.Msg) error { return nil }) }()
			r.until("asked again", func(h *subjects.Health) bool { return h.InFlightRequests > 0 })
			gate.Open()
			if err := <-end; err != nil {
				t.Errorf("asked again after leaving: %v", err)
			}
			gate.Shut()
			r.until("done", func(h *subjects.Health) bool { return h.InFlightRequests == 0 })
		}
	}
}

// TestUsageReportedInPart: what a provider leaves out of its usage, or says that
// cannot be, is estimated and marked so; what it says is taken.
func TestUsageReportedInPart(t *testing.T) {
	body := func(usage string) fakeopenai.Behaviour {
		return fakeopenai.Behaviour{
			Header: http.Header{"Content-Type": {"application/json"}},
			Body:   `{"id":"x","object":"chat.completion","model":"gpt-test","choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat("word ", 100) + `"},"finish_reason":"stop"}]` + usage + `}`,
		}
	}
	for usage, want := range map[string]struct {
		in, out   int64
		estimated bool
	}{
		``:                                 {3, 125, true},
		`,"usage":{"prompt_tokens":12}`:    {12, 125, true},
		`,"usage":{"completion_tokens":9}`: {3, 9, true},
		`,"usage":{"prompt_tokens":"7","completion_tokens":-2}`:                    {3, 125, true},
		`,"usage":{"prompt_tokens":1e30,"completion_tokens":9}`:                    {3, 9, true},
		`,"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`:      {3, 125, true},
		`,"usage":{"prompt_tokens":12,"completion_tokens":9,"total_tokens":21}`:    {12, 9, false},
		`,"usage":{"prompt_tokens":12,"completion_tokens":9,"total_tokens":"odd"}`: {12, 9, false},
	} {
		up := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Always(body(usage)))).Start(t)
		r := newRig(t, up)
		if _, err := r.client.Request(r.ctx, openAIMsg(subjects.ClassInteractive, "", false)); err != nil {
			t.Fatal(err)
		}
		row := r.recent()[0]
		if row.InputTokens != want.in || row.OutputTokens != want.out || row.TokensEstimated != want.estimated || row.TotalTokens != want.in+want.out {
			t.Errorf("%s: %d in, %d out, estimated %v; want %+v", usage, row.InputTokens, row.OutputTokens, row.TokensEstimated, want)
		}
	}
}

// TestCancelWhileBackingOff: a refused request spent nothing, also when the call
// is cancelled while it waits to ask again.
func TestCancelWhileBackingOff(t *testing.T) {
	up := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Always(fakeopenai.RateLimited(20 * time.Second)))).Start(t)
	r := newRig(t, up)
	end := make(chan error, 1)
	go func() {
		_, err := r.client.Request(r.ctx, openAIMsg(subjects.ClassInteractive, "waits", false))
		end <- err
	}()
	if err := up.Wait(r.ctx, func(s fakeopenai.Snapshot) bool { return s.All.Failed == 1 }); err != nil {
		t.Fatal(err)
	}
	r.until("the slot is free", func(h *subjects.Health) bool { return h.Pools["openai/gpt-test"].Active == 0 })
	if err := r.client.Cancel("waits"); err != nil {
		t.Fatal(err)
	}
	if err := <-end; subjects.KindOf(err) != subjects.KindCancelled {
		t.Error(err)
	}
	if row := r.recent()[0]; row.TotalTokens != 0 || row.TokensEstimated || row.Outcome != string(subjects.KindCancelled) {
		t.Errorf("row %+v", row)
	}
}

// TestWhatTheProviderSays reaches the caller: rate limits beside an answer, code
// and field of an error, and that another provider answers than was asked for.
func TestWhatTheProviderSays(t *testing.T) {
	up := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Sequence(
		fakeopenai.Behaviour{Header: http.Header{"X-Ratelimit-Remaining-Requests": {"41"}}},
		fakeopenai.Behaviour{Status: 400, Body: `{"error":{"message":"no","type":"invalid_request_error","param":"temperature","code":"unsupported_value"}}`},
		fakeopenai.Behaviour{},
	))).Start(t)
	r := newRig(t, up)
	m, err := r.client.Request(r.ctx, openAIMsg(subjects.ClassInteractive, "", false))
	if err != nil || m.Header.Get("x-ratelimit-remaining-requests") != "41" {
		t.Errorf("%v, headers %v", err, m)
	}
	_, err = r.client.Request(r.ctx, openAIMsg(subjects.ClassInteractive, "", false))
	var e *subjects.Error
	if !errors.As(err, &e) || e.Code != "unsupported_value" || e.Param != "temperature" {
		t.Errorf("%+v", err)
	}
	req := ask("hi")
	req.Provider = "anthropic"
	res, err := subjects.Call(r.ctx, r.client, subjects.ClassInteractive, req)
	if err != nil || res.Provider != "openai" || len(res.Warnings) != 1 {
		t.Errorf("%v %+v", err, res)
	}
}

// TestSharedStreamOverNATS: two callers read one stream; the first is cancelled in
// the middle and hears so at once, the other reads to the end, from the beginning.
func TestSharedStreamOverNATS(t *testing.T) {
	t.Parallel()
	up := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Always(fakeopenai.Behaviour{Content: "one two three four five six", Chunks: 6, ChunkDelay: 150 * time.Millisecond}))).Start(t)
	r := newRig(t, up)
	read := func(id string, each func()) (string, error) {
		m := openAIMsg(subjects.ClassInteractive, id, true)
		m.Header.Set(subjects.HeaderSkipCache, "false")
		var text strings.Builder
		err := r.client.Stream(r.ctx, m, func(m *subjects.Msg) error {
			text.WriteString(gjson.GetBytes(m.Data, "choices.0.delta.content").Str)
			each()
			return nil
		})
		return text.String(), err
	}
	type end struct {
		text string
		err  error
	}
	begun, ends := make(chan struct{}, 100), [2]chan end{make(chan end, 1), make(chan end, 1)}
	go func() {
		text, err := read("first", func() { begun <- struct{}{} })
		ends[0] <- end{text, err}
	}()
	<-begun
	<-begun
	joined := make(chan struct{}, 100)
	go func() {
		text, err := read("second", func() { joined <- struct{}{} })
		ends[1] <- end{text, err}
	}()
	<-joined
	if err := r.client.Cancel("first"); err != nil {
		t.Fatal(err)
	}
	first := <-ends[0]
	if len(ends[1]) != 0 || subjects.KindOf(first.err) != subjects.KindCancelled || first.text == "" || !strings.HasPrefix("one two three four five six", first.text) {
		t.Errorf("the first: %+v", first)
	}
	if second := <-ends[1]; second.err != nil || second.text != "one two three four five six" {
		t.Errorf("the second: %+v", second)
	}
	if n := up.Counts().Total; n != 1 {
		t.Errorf("the provider was asked %d times", n)
	}
	rows := r.recent()
	if len(rows) != 2 || rows[0].Cached == rows[1].Cached {
		t.Errorf("%+v", rows)
	}
}
