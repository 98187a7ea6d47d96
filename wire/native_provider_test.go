package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/subjects"
)

// everyField is a native body with every field of the prompt and of routing.
const everyField = `{"messages":[{"role":"system","content":"Be \u00fcber brief. }}"},{"role":"user","content":[{"type":"text","text":"hi"},
	{"type":"image","imageUrl":"https://x/y.png","detail":"low"}]},{"role":"assistant","toolCalls":[{"id":"c1","name":"f","arguments":"{}"}]},
	{"role":"tool","toolCallId":"c1","content":"42"}],
	"tools":[{"name":"f","parameters":{"type":"object"}}],"toolChoice":{"name":"f"},"temperature":0.50,"topP":1,"maxTokens":10,
	"stop":["\n"],"responseFormat":{"type":"json_schema","schema":{}},"seed":7,"reasoningEffort":"low","parallelToolCalls":false,
	"stream":true,"tier":"fast","task":"t","process":"p","provider":"proxy","model":"m","agentId":"a","privacy":"any",
	"skipCache":true,"forcePaid":false,"timeoutMs":1000,"callId":"id","runId":"r","batchId":"b","cacheScope":"s"}`

func parsed(t testing.TB, name Name, body string) *Request {
	t.Helper()
	r, err := Parse(name, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestNativeRequest(t *testing.T) {
	t.Parallel()
	ask := &NativeAsk{Model: `a/"b"`, Tier: "premium", Task: "t2", Process: "p2", SkipCache: true, ForcePaid: true, Stream: true}
	body, warnings, err := parsed(t, Native, everyField).Native(ask, "proxy")
	if err != nil || warnings != nil {
		t.Fatal(err, warnings)
	}
	sent, was := parsed(t, Native, string(body)), parsed(t, Native, everyField)
	h := sent.Head
	if h.Model != `a/"b"` || h.Tier != "premium" || h.Task != "t2" || h.Process != "p2" || !h.SkipCache || !h.ForcePaid || !h.Stream || h.Needs != was.Head.Needs {
		t.Errorf("%+v", h)
	}
	if h.CallID+h.Provider+h.AgentID+h.RunID+h.BatchID+h.CacheScope+h.Privacy != "" || h.Timeout != 0 {
		t.Errorf("routing of the caller's went along: %+v", h)
	}
	a, b := hubOf(t, sent), hubOf(t, was)
	if !reflect.DeepEqual(a.Prompt, b.Prompt) {
		t.Errorf("%+v\nis not\n%+v", a.Prompt, b.Prompt)
	}
	if !strings.Contains(string(body), `"content":"Be \u00fcber brief. }}"`) || !strings.Contains(string(body), `"temperature":0.50`) {
		t.Errorf("encoded anew: %s", body)
	}
}

func TestNativeRequestSaysNoMore(t *testing.T) {
	t.Parallel()
	body, _, err := parsed(t, Native, `{"messages":[{"role":"user","content":"hi"}],"stream":true,"maxTokens":null,"callId":"x"}`).Native(&NativeAsk{}, "x")
	if want := `{"messages":[{"role":"user","content":"hi"}]}`; err != nil || string(body) != want {
		t.Errorf("%s, not %s (%v)", body, want, err)
	}
}

func hubOf(t testing.TB, r *Request) *Chat {
	t.Helper()
	c, err := r.Chat()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNativeFromOpenAI: what the other wire can say arrives, and what the native
// one cannot is named.
func TestNativeFromOpenAI(t *testing.T) {
	t.Parallel()
	r := parsed(t, OpenAIChat, `{"model":"x","messages":[{"role":"developer","content":"<b>"},{"role":"user","content":"hi"},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c","content":"42"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"a":{"b":{}}}}}],
		"frequency_penalty":1,"presence_penalty":-1,"user":"u","logit_bias":{"1":2},"seed":3,"stream":true}`)
	body, warnings, err := r.Native(&NativeAsk{Model: "m"}, "reverse")
	if err != nil {
		t.Fatal(err)
	}
	got := hubOf(t, parsed(t, Native, string(body))).Prompt
	want := hubOf(t, r).Prompt
	want.Stream = false
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nis not\n%+v", got, want)
	}
	for _, field := range []string{"frequencyPenalty", "presencePenalty", "user", "logit_bias"} {
		if !strings.Contains(strings.Join(warnings, "\n"), field+" is not supported by reverse and was left out") {
			t.Errorf("no warning of %s in %q", field, warnings)
		}
	}
}

func TestReadNative(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body     string
		want     Response
		provider string
		err      string
	}{
		"sluice": {
			body: `{"callId":"c","content":"a\nb","toolCalls":[{"id":"t","name":"f","arguments":"{\"x\":1}"}],"finishReason":"tool_calls",
			"provider":"groq","model":"m","modelRaw":"m-2026","usage":{"inputTokens":3,"outputTokens":5,"totalTokens":99,"cacheReadTokens":7,
			"cacheWriteTokens":1,"reasoningTokens":9,"estimated":true},"warnings":["seed is out"],"tokens":{"input":1,"output":1}}`,
			provider: "groq",
			want: Response{
				Text: "a\nb", ToolCalls: []subjects.ToolCall{{ID: "t", Name: "f", Arguments: `{"x":1}`}}, FinishReason: "tool_calls", Model: "m-2026",
				Usage:      subjects.Usage{InputTokens: 3, OutputTokens: 5, TotalTokens: 8, CacheReadTokens: 7, CacheWriteTokens: 1, ReasoningTokens: 5, Estimated: true},
				UsageKnown: true, OutputBytes: 11, Warnings: []string{"seed is out"},
			},
		},
		"bridge": {
			body:     `{"content":"ok","provider":"copilot","model":"m","tokens":{"input":9,"output":4,"total":13},"latencyMs":3}`,
			provider: "copilot",
			want:     Response{Text: "ok", Model: "m", Usage: subjects.Usage{InputTokens: 9, OutputTokens: 4, TotalTokens: 13}, UsageKnown: true, OutputBytes: 2},
		},
		"bare":             {body: `{"content":""}`, want: Response{}},
		"empty usage":      {body: `{"content":"x","usage":{"totalTokens":9},"tokens":{}}`, want: Response{Text: "x", OutputBytes: 1}},
		"absurd usage":     {body: `{"content":"x","usage":{"inputTokens":-4,"outputTokens":1e300}}`, want: Response{Text: "x", OutputBytes: 1, UsageKnown: true, Usage: subjects.Usage{OutputTokens: maxTokens, TotalTokens: maxTokens}}},
		"arguments object": {body: `{"content":null,"toolCalls":[{"name":"f","arguments":{"x":[1]}},{"name":"g"}],"finishReason":"stop"}`, want: Response{FinishReason: "tool_calls", OutputBytes: 13, ToolCalls: []subjects.ToolCall{{ID: made, Name: "f", Arguments: `{"x":[1]}`}, {ID: made, Name: "g", Arguments: "{}"}}}},
		"own reason":       {body: `{"content":"x","finishReason":"end_turn"}`, want: Response{Text: "x", OutputBytes: 1, FinishReason: "stop"}},
		"nameless call":    {body: `{"toolCalls":[{"id":"x"}]}`, err: "without a name"},
		"no result":        {body: `{"text":"x"}`, err: "not a native result"},
		"an event":         {body: `{"type":"delta","content":"x"}`, err: "not a native result"},
		"no object":        {body: `[]`, err: "not a native result"},
		"cut":              {body: `{"content":"x"`, err: "not a native result"},
		"too long":         {body: `{"content":"` + strings.Repeat("x", maxAnswer+1) + `"}`, err: "above 16 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, provider, err := ReadNative([]byte(tc.body))
			if tc.err != "" {
				if subjects.KindOf(err) != subjects.KindProvider || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%v", err)
				}
				return
			}
			unmake(got.ToolCalls)
			if err != nil || provider != tc.provider || !reflect.DeepEqual(*got, tc.want) {
				t.Errorf("%+v %q, %v", got, provider, err)
			}
		})
	}
}

// collect reads a stream and returns what was yielded.
func collect(r *NativeReader, events ...string) (text string, calls []subjects.ToolCall, err error) {
	for _, data := range events {
		err = r.Event([]byte(data), func(ev *Event) error {
			text += ev.Text
			if ev.ToolCall != nil {
				calls = append(calls, *ev.ToolCall)
			}
			return nil
		})
		if err != nil {
			break
		}
	}
	return text, calls, err
}

const endResult = `{"type":"result","content":"ab","toolCalls":[{"id":"t","name":"f","arguments":"{}"}],"provider":"p","modelRaw":"m","finishReason":"tool_calls","usage":{"inputTokens":1,"outputTokens":2}}`

func TestNativeProviderStream(t *testing.T) {
	t.Parallel()
	want := []subjects.ToolCall{{ID: "t", Name: "f", Arguments: "{}"}}
	for name, events := range map[string][]string{
		"streamed":  {`{"type":"delta","content":"a"}`, `{"type":"ping"}`, `{"type":"delta","content":"b"}`, `{"type":"tool_call","toolCall":{"id":"t","name":"f","arguments":"{}"}}`, endResult},
		"result":    {endResult},
		"no type":   {strings.Replace(endResult, `"type":"result",`, "", 1)},
		"late call": {`{"type":"delta","content":"ab"}`, endResult},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &NativeReader{Strict: true}
			text, calls, err := collect(r, events...)
			if err != nil || text != "ab" || !reflect.DeepEqual(calls, want) || !r.Whole() || r.Provider() != "p" {
				t.Errorf("%q %v %v", text, calls, err)
			}
			sum := *r.Sum()
			if sum.OutputBytes != 5 || sum.Model != "m" || sum.FinishReason != "tool_calls" || !sum.UsageKnown || sum.Usage.TotalTokens != 3 || sum.Text != "" {
				t.Errorf("%+v", sum)
			}
		})
	}
}

func TestNativeProviderStreamFaults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		events []string
		kind   subjects.Kind
		text   string
	}{
		"error":         {[]string{`{"type":"delta","content":"a"}`, `{"error":{"kind":"RATE_LIMITED","message":"slow","retryAfterMs":9}}`}, subjects.KindRateLimited, "slow"},
		"foreign error": {[]string{`{"error":"boom"}`}, subjects.KindProvider, "not of Sluice's form"},
		"unknown kind":  {[]string{`{"error":{"kind":"ODD"}}`}, subjects.KindProvider, "not of Sluice's form"},
		"broken":        {[]string{`{"type":"delta"`}, subjects.KindProvider, "not a JSON object"},
		"after the end": {[]string{endResult, endResult}, subjects.KindProvider, "after its result"},
		"typo":          {[]string{`{"type":"deltas","content":"a"}`}, subjects.KindProvider, `"deltas"`},
		"nameless call": {[]string{`{"type":"tool_call","toolCall":{}}`}, subjects.KindProvider, "without a name"},
	} {
		_, _, err := collect(&NativeReader{Strict: true}, tc.events...)
		if e := subjects.AsError(err); e == nil || e.Kind != tc.kind || !strings.Contains(e.Message, tc.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := collect(&NativeReader{}, `{"type":"thought","content":"a"}`, endResult); err != nil {
		t.Errorf("an event of a newer version: %v", err)
	}
}

// FuzzNativeRequest: what is written for another party is a request that it takes.
func FuzzNativeRequest(f *testing.F) {
	f.Add("native", everyField)
	f.Add("openai-chat", `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"stop":"x"}`)
	f.Fuzz(func(t *testing.T, name, body string) {
		r, err := Parse(Name(name), []byte(body))
		if err != nil {
			return
		}
		out, _, err := r.Native(&NativeAsk{Model: "m", Stream: true}, "x")
		if err != nil {
			return
		}
		sent, err := Parse(Native, out)
		if err != nil && r.Wire == Native {
			t.Fatalf("%s\nbecame\n%s\n%v", body, out, err)
		}
		if err == nil && r.Wire == Native && sent.Head.Needs != r.Head.Needs|NeedStreaming {
			t.Fatalf("needs %v became %v", r.Head.Needs, sent.Head.Needs)
		}
		if !json.Valid(out) {
			t.Fatalf("not JSON: %s", out)
		}
	})
}

// FuzzNativeStream: no event makes the reader panic, or say more than was sent.
func FuzzNativeStream(f *testing.F) {
	f.Add(endResult, `{"type":"delta","content":"\ud800x"}`)
	f.Add(`{"type":"tool_call","toolCall":{"name":"f","arguments":{}}}`, `{"error":{"kind":"TIMEOUT"}}`)
	f.Add(`{"content":"x","usage":{"inputTokens":1e99}}`, `{}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		r := &NativeReader{}
		text, calls, err := collect(r, a, b)
		if err != nil {
			_ = subjects.AsError(err)
		}
		if n := int64(len(text)) + callBytes(calls); n != r.Sum().OutputBytes {
			t.Fatalf("%d bytes were yielded, %d counted", n, r.Sum().OutputBytes)
		}
		if u := r.Sum().Usage; u.InputTokens < 0 || u.OutputTokens < 0 || u.TotalTokens != u.InputTokens+u.OutputTokens {
			t.Fatalf("%+v", u)
		}
	})
}
