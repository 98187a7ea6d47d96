package outside

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program is a transport with a program behind it: what it does with a request.
// It may wait for ctx, and says whether it was told to stop.
type program struct {
	do      func(ctx context.Context, m *subjects.Msg, say func(string) error) error
	got     *subjects.Msg
	stopped bool
}

func (p *program) Request(ctx context.Context, m *subjects.Msg) (*subjects.Msg, error) {
	var first *subjects.Msg
	err := p.Stream(ctx, m, func(r *subjects.Msg) error {
		if first == nil {
			first = &subjects.Msg{Data: append([]byte(nil), r.Data...)}
		}
		return nil
	})
	if first == nil && err == nil {
		first = &subjects.Msg{}
	}
	return first, err
}

func (p *program) Stream(ctx context.Context, m *subjects.Msg, yield func(*subjects.Msg) error) error {
	p.got = m
	err := p.do(ctx, m, func(data string) error { return yield(&subjects.Msg{Data: []byte(data)}) })
	if ctx.Err() != nil {
		p.stopped = true
		return subjects.AsError(ctx.Err())
	}
	return err
}

// says answers with these messages.
func says(all ...string) *program {
	return &program{do: func(_ context.Context, _ *subjects.Msg, say func(string) error) error {
		for _, data := range all {
			if err := say(data); err != nil {
				return err
			}
		}
		return nil
	}}
}

func made(t subjects.Transport, capabilities ...string) *Provider {
	return New(&config.Provider{ID: "reverse", Capabilities: capabilities, IdleTimeout: time.Minute}, Options{Transport: t})
}

func job(t *testing.T, body string) *providers.Job {
	t.Helper()
	r, err := wire.Parse(wire.Native, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Head.Process, r.Head.Task = "p", "t"
	return &providers.Job{Request: r, Model: "rev-1", CallID: "call", Attempt: 1, Class: "ingestion", Tier: "fast"}
}

const (
	plain    = `{"messages":[{"role":"user","content":"hi"}],"tier":"premium","callId":"x"}`
	answer   = `{"content":"ih","model":"rev-1b","usage":{"inputTokens":1,"outputTokens":2}}`
	finished = `{"type":"result","content":"ih","model":"rev-1b","usage":{"inputTokens":1,"outputTokens":2}}`
)

func TestComplete(t *testing.T) {
	t.Parallel()
	p := says(answer)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp, err := made(p).Complete(ctx, job(t, plain))
	if err != nil || resp.Text != "ih" || resp.Model != "rev-1b" || resp.Usage.TotalTokens != 3 || !resp.UsageKnown {
		t.Errorf("%+v, %v", resp, err)
	}
	if p.got.Subject != "llm.provider.reverse.complete" || string(p.got.Data) != `{"messages":[{"role":"user","content":"hi"}],"model":"rev-1"}` {
		t.Errorf("%s %s", p.got.Subject, p.got.Data)
	}
	h := p.got.Header
	if !strings.HasPrefix(h.Get(subjects.HeaderCallID), "call~1~") || h.Get(subjects.HeaderProcess) != "p" || h.Get(subjects.HeaderTask) != "t" ||
		h.Get(subjects.HeaderTier) != "fast" || h.Get(subjects.HeaderClass) != "ingestion" || h.Get(subjects.HeaderWire) != "native" || h.Get(subjects.HeaderTimeoutMs) == "" {
		t.Errorf("%v", h)
	}
}

func TestStream(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		p      *program
		events int
	}{
		"streams":       {says(`{"type":"delta","content":"i"}`, `{"type":"ping"}`, `{"type":"delta","content":"h"}`, finished), 2},
		"result alone":  {says(finished), 1},
		"does not heed": {says(answer), 1},
		"cannot":        {says(answer), 1},
		"forgets to end": {&program{do: func(ctx context.Context, _ *subjects.Msg, say func(string) error) error {
			_ = say(finished)
			<-ctx.Done()
			return nil
		}}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			has := []string{"streaming"}
			if name == "cannot" {
				has = nil
			}
			text, events := "", 0
			var opened *wire.Response
			j := job(t, plain)
			j.Opened = func(r *wire.Response) { opened = r }
			resp, err := made(tc.p, has...).Stream(t.Context(), j, func(ev *wire.Event) error {
				if opened == nil {
					t.Error("not opened before the first event")
				}
				text += ev.Text
				events++
				return nil
			})
			if err != nil || text != "ih" || events != tc.events || resp.Usage.TotalTokens != 3 || resp.Model != "rev-1b" {
				t.Errorf("%s: %q in %d, %+v, %v", name, text, events, resp, err)
			}
			if asked := strings.Contains(string(tc.p.got.Data), `"stream":true`); asked != (name != "cannot") {
				t.Errorf("%s: %s", name, tc.p.got.Data)
			}
		})
	}
}

// TestErrors: the program's own error keeps its kind; what is no answer is
// PROVIDER_ERROR.
func TestErrors(t *testing.T) {
	t.Parallel()
	fails := func(err error) *program {
		return &program{do: func(context.Context, *subjects.Msg, func(string) error) error { return err }}
	}
	for name, tc := range map[string]struct {
		p    *program
		kind subjects.Kind
		text string
	}{
		"own":        {fails(&subjects.Error{Kind: subjects.KindRateLimited, Message: "slow, sk-abcdefghijkl", RetryAfter: time.Second}), subjects.KindRateLimited, "slow, ***"},
		"no chain":   {fails(subjects.Errorf(subjects.KindNoProvider, "x")), subjects.KindProviderUnavailable, "x"},
		"cancelled":  {fails(subjects.Errorf(subjects.KindCancelled, "x")), subjects.KindProvider, "x"},
		"nobody":     {fails(subjects.Errorf(subjects.KindProviderUnavailable, "x").WithCause(nats.ErrNoResponders)), subjects.KindProviderUnavailable, "nobody listens on llm.provider.reverse.complete"},
		"connection": {fails(subjects.Errorf(subjects.KindProviderUnavailable, "the NATS connection failed").WithCause(nats.ErrConnectionClosed)), subjects.KindProviderUnavailable, "connection failed"},
		"nothing":    {says(), subjects.KindProvider, ""},
		"no JSON":    {says("hello"), subjects.KindProvider, "not a "},
		"not one":    {says(`{"type":"thought"}`), subjects.KindProvider, ""},
		"half":       {says(`{"type":"delta","content":"i"}`), subjects.KindProvider, ""},
		"in payload": {says(`{"error":{"kind":"CONTENT_POLICY","message":"no"}}`), subjects.KindContentPolicy, ""},
	} {
		_, err := made(tc.p, "streaming").Stream(t.Context(), job(t, plain), func(*wire.Event) error { return nil })
		e := subjects.AsError(err)
		if e == nil || e.Kind != tc.kind || !strings.Contains(e.Message, tc.text) || e.Provider != "reverse" || e.Kind == subjects.KindRateLimited && e.RetryAfter != time.Second {
			t.Errorf("%s: stream: %+v", name, e)
		}
		if name == "in payload" {
			continue // of a stream alone; a whole error has headers
		}
		_, err = made(tc.p).Complete(t.Context(), job(t, plain))
		if e := subjects.AsError(err); e == nil || e.Kind != tc.kind || !strings.Contains(e.Message, tc.text) {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// TestDeath: a program that falls silent ends its calls before their deadline,
// and is told to stop.
func TestDeath(t *testing.T) {
	t.Parallel()
	for _, streams := range []bool{false, true} {
		for name, first := range map[string]string{"before an answer": "", "in the middle": `{"type":"delta","content":"i"}`} {
			synctest.Test(t, func(t *testing.T) {
				p := &program{do: func(ctx context.Context, _ *subjects.Msg, say func(string) error) error {
					if first != "" {
						_ = say(first)
					}
					<-ctx.Done()
					return nil
				}}
				var dead atomic.Bool
				time.AfterFunc(5*time.Second, func() { dead.Store(true) })
				prov := made(p, "streaming")
				prov.o.Alive = func() error {
					if dead.Load() {
						return subjects.Errorf(subjects.KindProviderUnavailable, "silent")
					}
					return nil
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				var err error
				if streams {
					_, err = prov.Stream(ctx, job(t, plain), func(*wire.Event) error { return nil })
				} else {
					_, err = prov.Complete(ctx, job(t, plain))
				}
				if subjects.KindOf(err) != subjects.KindProvider || !strings.Contains(err.Error(), "fell silent") || !p.stopped || ctx.Err() != nil {
					t.Errorf("stream %t, %s: %v", streams, name, err)
				}
			})
		}
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &program{do: func(ctx context.Context, _ *subjects.Msg, say func(string) error) error {
			for range 3 { // signs of life keep it going
				time.Sleep(50 * time.Second)
				_ = say(`{"type":"ping"}`)
			}
			<-ctx.Done()
			return nil
		}}
		start := time.Now()
		_, err := made(p, "streaming").Stream(t.Context(), job(t, plain), func(*wire.Event) error { return nil })
		if subjects.KindOf(err) != subjects.KindProvider || !strings.Contains(err.Error(), "sent nothing for 1m0s") || time.Since(start) != 210*time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

// TestCallerLeaves: the caller's own end is the caller's, and reaches the program.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	p := &program{}
	ctx, cancel := context.WithCancel(t.Context())
	p.do = func(ctx context.Context, _ *subjects.Msg, say func(string) error) error {
		cancel()
		<-ctx.Done()
		return nil
	}
	if _, err := made(p).Complete(ctx, job(t, plain)); subjects.KindOf(err) != subjects.KindCancelled || !p.stopped {
		t.Errorf("%v", err)
	}
	gone := subjects.Errorf(subjects.KindCancelled, "gone")
	_, err := made(says(`{"type":"delta","content":"i"}`, finished), "streaming").Stream(t.Context(), job(t, plain), func(*wire.Event) error { return gone })
	if err != error(gone) {
		t.Errorf("%v", err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	p := made(says())
	if err := p.Check(t.Context()); err != nil {
		t.Error(err)
	}
	p.o.Present = func(subject string) bool { return subject != "llm.provider.reverse.complete" }
	if err := p.Check(t.Context()); subjects.KindOf(err) != subjects.KindProviderUnavailable {
		t.Error(err)
	}
	silent := subjects.Errorf(subjects.KindProviderUnavailable, "silent")
	p.o.Alive = func() error { return silent }
	if err := p.Check(t.Context()); err != error(silent) {
		t.Error(err)
	}
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	if got := made(nil, "tools", "audio").Capabilities(); got != wire.NeedTools|wire.NeedStreaming {
		t.Errorf("%v", got)
	}
}

// TestOpenAICaller: what the native wire has no field for is named.
func TestOpenAICaller(t *testing.T) {
	t.Parallel()
	r, err := wire.Parse(wire.OpenAIChat, []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}],"presence_penalty":1}`))
	if err != nil {
		t.Fatal(err)
	}
	p := says(answer)
	resp, err := made(p).Complete(t.Context(), &providers.Job{Request: r, Model: "rev-1"})
	if err != nil || len(resp.Warnings) != 1 || !strings.HasPrefix(resp.Warnings[0], "presencePenalty is not supported by reverse") || !json.Valid(p.got.Data) {
		t.Errorf("%+v, %v, %s", resp, err, p.got.Data)
	}
}
