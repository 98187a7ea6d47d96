package mock

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hi = `"messages":[{"role":"user","content":"hi"}]`

func job(t testing.TB, body string) *providers.Job {
	t.Helper()
	r, err := wire.Parse(wire.Native, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return &providers.Job{Request: r, Model: "mock-fast"}
}

func task(t testing.TB, name string) *providers.Job { return job(t, `{`+hi+`,"task":"`+name+`"}`) }

func plain() *Provider { return New(&config.Provider{ID: "mock"}, nil) }

func complete(t *testing.T, p *Provider, j *providers.Job) *wire.Response {
	t.Helper()
	resp, err := p.Complete(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestSameEveryTime(t *testing.T) {
	one, two := complete(t, plain(), job(t, `{`+hi+`}`)), complete(t, plain(), job(t, `{`+hi+`}`))
	if !reflect.DeepEqual(one, two) || one.Text == "" || one.Model != "mock-fast" || one.FinishReason != "stop" || !one.UsageKnown {
		t.Errorf("%+v\n%+v", one, two)
	}
	other := complete(t, plain(), job(t, `{"messages":[{"role":"user","content":"ho"}]}`))
	if other.Text == one.Text {
		t.Errorf("another prompt, the same answer: %s", other.Text)
	}
	if one.Usage.InputTokens != 1 || one.Usage.OutputTokens != wire.EstimateTokens(one.Text) || one.Usage.TotalTokens != 1+one.Usage.OutputTokens {
		t.Errorf("%+v", one.Usage)
	}
}

func TestMaxTokens(t *testing.T) {
	resp := complete(t, plain(), job(t, `{`+hi+`,"maxTokens":2}`))
	if len(resp.Text) != 8 || resp.FinishReason != "length" || resp.Usage.OutputTokens != 2 {
		t.Errorf("%+v", resp)
	}
	resp = complete(t, plain(), job(t, `{`+hi+`,"maxTokens":2,"task":"mock:content=ääää,out=50"}`))
	if resp.Text != "ääää" || resp.FinishReason != "length" || resp.Usage.OutputTokens != 2 {
		t.Errorf("%+v", resp)
	}
	if resp = complete(t, plain(), job(t, `{`+hi+`,"maxTokens":1000}`)); resp.FinishReason != "stop" {
		t.Errorf("%+v", resp)
	}
}

func TestToolsAndJSON(t *testing.T) {
	for body, name := range map[string]string{
		`{` + hi + `,"tools":[{"name":"f"},{"name":"g"}],"toolChoice":"required"}`:   "f",
		`{` + hi + `,"tools":[{"name":"f"},{"name":"g"}],"toolChoice":{"name":"g"}}`: "g",
		`{` + hi + `,"tools":[{"name":"f"}],"toolChoice":"auto"}`:                    "",
		`{` + hi + `,"tools":[{"name":"f"}]}`:                                        "",
	} {
		resp := complete(t, plain(), job(t, body))
		if name == "" {
			if resp.Text == "" || len(resp.ToolCalls) != 0 {
				t.Errorf("%s: %+v", body, resp)
			}
			continue
		}
		if len(resp.ToolCalls) != 1 || resp.ToolCalls[0].Name != name || resp.FinishReason != "tool_calls" || !json.Valid([]byte(resp.ToolCalls[0].Arguments)) {
			t.Errorf("%s: %+v", body, resp)
		}
	}
	resp := complete(t, plain(), job(t, `{`+hi+`,"responseFormat":{"type":"json_object"}}`))
	if !json.Valid([]byte(resp.Text)) {
		t.Errorf("%q", resp.Text)
	}
}

func TestBehaviourOfTasks(t *testing.T) {
	p := New(&config.Provider{Mock: &config.Mock{
		Default: config.MockBehaviour{Content: "default", InputTokens: 5},
		Tasks:   map[string]config.MockBehaviour{"slow": {Content: "slow one", OutputTokens: 9}},
	}}, nil)
	for name, want := range map[string]string{
		"":                        "default",
		"git_history_analysis":    "default",
		"slow":                    "slow one",
		"slow mock:in=3":          "slow one",
		"mock:content=own":        "own",
		"other mock:content=a b ": "a b ",
	} {
		if resp := complete(t, p, task(t, name)); resp.Text != want {
			t.Errorf("%q: %q, want %q", name, resp.Text, want)
		}
	}
	if u := complete(t, p, task(t, "slow mock:in=3")).Usage; u.InputTokens != 3 || u.OutputTokens != 9 || u.TotalTokens != 12 {
		t.Errorf("%+v", u)
	}
}

func TestErrors(t *testing.T) {
	j := task(t, "mock:error=RATE_LIMITED,errors=2,retryAfter=1.5s")
	for j.Attempt = range 3 {
		_, err := plain().Complete(t.Context(), j)
		if j.Attempt == 2 {
			if err != nil {
				t.Error(err)
			}
			break
		}
		e := subjects.AsError(err)
		if e.Kind != subjects.KindRateLimited || e.RetryAfter != 1500*time.Millisecond || e.Provider != "mock" {
			t.Errorf("%+v", e)
		}
	}
	j = task(t, "mock:error=AUTH_ERROR")
	j.Attempt = 99
	if _, err := plain().Stream(t.Context(), j, nil); subjects.KindOf(err) != subjects.KindAuth {
		t.Error(err)
	}
}

func TestBadSettings(t *testing.T) {
	for name, want := range map[string]string{
		"mock:latency":      "has no value",
		"mock:latency=soon": "latency must be a duration",
		"mock:latency=-1s":  "latency must be a duration",
		"mock:pace=2h":      "pace must be a duration",
		"mock:in=-1":        "in must be a whole number",
		"mock:chunks=1e9":   "chunks must be a whole number from 0 to 100000",
		"mock:error=OOPS":   "error is not a kind",
		"mock:secret=1":     "a setting is not known; they are latency, pace",
		"mock:in=1,,out=2":  "has no value",
	} {
		_, err := plain().Complete(t.Context(), task(t, name))
		if subjects.KindOf(err) != subjects.KindValidation || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := plain().Complete(t.Context(), task(t, "mock:")); err != nil {
		t.Error(err)
	}
}

// stream runs a stream and notes what came, and when.
func stream(t *testing.T, ctx context.Context, j *providers.Job) (texts []string, at []time.Duration, resp *wire.Response, err error) { //nolint:revive // test helper
	start := time.Now()
	resp, err = plain().Stream(ctx, j, func(ev *wire.Event) error {
		texts = append(texts, ev.Text)
		at = append(at, time.Since(start))
		return nil
	})
	return texts, at, resp, err
}

func TestStreamPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		texts, at, resp, err := stream(t, t.Context(), task(t, "mock:content=abcdefg,chunks=3,latency=250ms,pace=20ms"))
		if err != nil || !reflect.DeepEqual(texts, []string{"ab", "cd", "efg"}) {
			t.Errorf("%q, %v", texts, err)
		}
		if !reflect.DeepEqual(at, []time.Duration{250 * time.Millisecond, 270 * time.Millisecond, 290 * time.Millisecond}) {
			t.Errorf("%v", at)
		}
		if resp.OutputBytes != 7 || !resp.UsageKnown || resp.FinishReason != "stop" {
			t.Errorf("%+v", resp)
		}
	})
}

func TestStreamIsTheWholeAnswer(t *testing.T) {
	whole := complete(t, plain(), job(t, `{`+hi+`}`)).Text
	texts, _, _, err := stream(t, t.Context(), job(t, `{`+hi+`}`))
	if err != nil || strings.Join(texts, "") != whole || len(texts) != len(strings.Fields(whole)) {
		t.Errorf("%q, %v", texts, err)
	}
	var call *subjects.ToolCall
	_, err = plain().Stream(t.Context(), job(t, `{`+hi+`,"tools":[{"name":"f"}],"toolChoice":"required"}`), func(ev *wire.Event) error {
		if ev.ToolCall != nil {
			call = ev.ToolCall
		}
		return nil
	})
	if err != nil || call == nil || call.Name != "f" {
		t.Errorf("%+v, %v", call, err)
	}
}

func TestStreamFailsMidway(t *testing.T) {
	texts, _, resp, err := stream(t, t.Context(), task(t, "mock:content=abcdef,chunks=6,failAfter=3"))
	if subjects.KindOf(err) != subjects.KindProvider || len(texts) != 3 || resp.OutputBytes != 3 || resp.UsageKnown {
		t.Errorf("%q, %+v, %v", texts, resp, err)
	}
	gone := errors.New("gone")
	resp, err = plain().Stream(t.Context(), task(t, "mock:content=abcdef,chunks=6"), func(*wire.Event) error { return gone })
	if err != gone || resp.OutputBytes != 0 { //nolint:errorlint // returned as it is
		t.Errorf("%+v, %v", resp, err)
	}
}

func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := plain().Complete(ctx, task(t, "mock:latency=10s,error=AUTH_ERROR"))
		if subjects.KindOf(err) != subjects.KindTimeout || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		_, _, resp, err := stream(t, ctx, task(t, "mock:pace=1s"))
		if subjects.KindOf(err) != subjects.KindTimeout || resp != nil {
			t.Errorf("%+v, %v", resp, err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, cancel)
		texts, _, resp, err := stream(t, ctx, task(t, "mock:pace=1s,content=abcd,chunks=4"))
		if subjects.KindOf(err) != subjects.KindCancelled || len(texts) != 2 || resp.OutputBytes != 2 {
			t.Errorf("%q, %+v, %v", texts, resp, err)
		}
	})
}

func TestCapabilities(t *testing.T) {
	p := plain()
	if err := p.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if missing := (wire.NeedAudio | wire.NeedDocuments | wire.NeedTools).Missing(p.Capabilities()); missing != wire.NeedAudio|wire.NeedDocuments {
		t.Errorf("%v", missing)
	}
}

func FuzzTask(f *testing.F) {
	for _, s := range []string{"mock:latency=1ms,chunks=3,out=5,content=x", "t mock:error=RATE_LIMITED", "mock:failAfter=2", " mock:,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := plain().behaviourFor(s)
		if err != nil && subjects.KindOf(err) != subjects.KindValidation {
			t.Fatal(err)
		}
		if b.Latency < 0 || b.Latency > maxTime || b.Chunks < 0 || b.Chunks > maxChunks || b.Error != "" && err == nil && !b.Error.Known() {
			t.Fatalf("%+v", b)
		}
	})
}
