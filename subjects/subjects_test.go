package subjects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestToken(t *testing.T) {
	for in, want := range map[string]string{
		"claude-haiku-4.5": "claude-haiku-4_5", "GPT 4o": "gpt_4o", "": "_", "ok_1-a": "ok_1-a",
		"a.b>c*d": "a_b_c_d", "groß": "gro_", "日本": "__", "\xff\x00": "__", "A": "a",
	} {
		if got := Token(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add("claude-haiku-4.5")
	f.Fuzz(func(t *testing.T, s string) {
		got := Token(s)
		if got == "" || strings.ContainsFunc(got, func(r rune) bool { return r > 0x7f || !tokenByte(byte(r)) }) || Token(got) != got {
			t.Errorf("%q: %q", s, got)
		}
	})
}

// TestErrorOnTheWire: an error survives its NATS form, whatever it holds.
func TestErrorOnTheWire(t *testing.T) {
	for _, kind := range Kinds() {
		e := Errorf(kind, "line one\nline two \x00 %s", strings.Repeat("long ", 300))
		e.Provider, e.CallID, e.RetryAfter, e.Code = "groq", "c1", 1500*time.Millisecond, "some_code"
		e.Attempts = []Attempt{{Provider: "groq", Outcome: string(kind), Ms: 7}}
		e.RateLimit = map[string]string{"x-ratelimit-remaining-tokens": "0"}
		m := e.Msg()
		if h := m.Header.Get(HeaderError); strings.ContainsAny(h, "\r\n\x00") || len(h) > 512 {
			t.Errorf("the header is not one short line: %q", h)
		}
		if m.Header.Get(HeaderErrorCode) != fmt.Sprint(kind.Status()) {
			t.Errorf("%s: code %s", kind, m.Header.Get(HeaderErrorCode))
		}
		got := ErrorOf(m)
		a, _ := json.Marshal(e)
		b, _ := json.Marshal(got)
		if got == nil || string(a) != string(b) || !errors.Is(got, &Error{Kind: kind}) {
			t.Errorf("%s came back as %s", a, b)
		}
	}
	if ErrorOf(&Msg{Data: []byte("{}")}) != nil {
		t.Error("an answer is taken for an error")
	}
	foreign := ErrorOf(&Msg{Header: Header{"nats-service-error-code": {"429"}, "Nats-Service-Error": {"slow down"}}})
	if foreign == nil || foreign.Kind != KindRateLimited || foreign.Message != "slow down" {
		t.Errorf("a foreign service's error: %+v", foreign)
	}
}

func TestAsError(t *testing.T) {
	cause := errors.New("secret detail")
	for want, err := range map[Kind]error{
		KindTimeout: fmt.Errorf("x: %w", context.DeadlineExceeded), KindCancelled: context.Canceled,
		KindProvider: cause, KindAuth: fmt.Errorf("y: %w", Errorf(KindAuth, "no")),
	} {
		if got := KindOf(err); got != want {
			t.Errorf("%v is %s, want %s", err, got, want)
		}
	}
	e := AsError(cause)
	b, _ := json.Marshal(e)
	if strings.Contains(e.Error()+string(b), "secret") || !errors.Is(e, cause) {
		t.Errorf("the cause shows, or is lost: %s", b)
	}
	if AsError(nil) != nil || KindOf(nil) != "" {
		t.Error("nil is an error")
	}
}

func TestUSD(t *testing.T) {
	for in, want := range map[USD]string{0: "0", 1: "0.000001", 1_000_000: "1", 1_500_000: "1.5", -20: "-0.00002", 50_000_000: "50"} {
		if in.String() != want {
			t.Errorf("%d: %s, want %s", int64(in), in, want)
		}
		var back USD
		if err := json.Unmarshal([]byte(want), &back); err != nil || back != in {
			t.Errorf("%s read as %d %v", want, back, err)
		}
	}
	var u USD
	if json.Unmarshal([]byte(`"1"`), &u) == nil || json.Unmarshal([]byte(`1e300`), &u) == nil {
		t.Error("an impossible amount is taken")
	}
}

func TestEventRoundTrip(t *testing.T) {
	for _, ev := range []Event{
		{Type: EventDelta, Content: "hi"},
		{Type: EventToolCall, ToolCall: &ToolCall{ID: "1", Name: "f", Arguments: "{}"}},
		{Type: EventResult, Result: &Result{CallID: "c", Content: "all of it", Usage: Usage{TotalTokens: 3}}},
	} {
		b, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		var got Event
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		again, _ := json.Marshal(got)
		if string(again) != string(b) {
			t.Errorf("%s came back as %s", b, again)
		}
	}
}

func TestNearest(t *testing.T) {
	for in, want := range map[string]string{"opnai": "openai", "temprature": "", "GROQ": "groq", "zzzzzz": "", "": ""} {
		if got := Nearest(in, []string{"openai", "groq", "mock"}); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
