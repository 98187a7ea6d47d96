package vendors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// post sends a body to a server as a client of OpenAI's would.
func post(t *testing.T, s *Server, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer k-1234")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return resp, string(b)
}

const (
	whole  = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	stream = `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}`
)

// hosts are all voices of the form.
func hosts() []OpenAI {
	var all []OpenAI
	for h := HostOpenAI; h <= HostLlama; h++ {
		all = append(all, OpenAI{Host: h, Base: "/v1"})
	}
	return all
}

// textOf joins the text of a stream's chunks, in whatever framing.
func textOf(t *testing.T, body string) string {
	t.Helper()
	body = strings.TrimPrefix(body, "\xef\xbb\xbf")
	body = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(body)
	text := ""
	for _, event := range strings.Split(body, "\n\n") {
		var data []string
		for _, line := range strings.Split(event, "\n") {
			if value, ok := strings.CutPrefix(line, "data:"); ok {
				data = append(data, strings.TrimPrefix(value, " "))
			}
		}
		joined := strings.Join(data, "\n")
		if joined == "" || joined == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(joined), &chunk); err != nil {
			t.Fatalf("%v: %s", err, joined)
		}
		for _, c := range chunk.Choices {
			text += c.Delta.Content
		}
	}
	return text
}

func TestEveryFramingSaysTheSame(t *testing.T) {
	t.Parallel()
	for _, v := range hosts() {
		s := New(t, v)
		for _, f := range Framings(false) {
			s.Next(Script{Framing: f}, Script{Framing: f, Split: 5})
			for range 2 {
				if _, body := post(t, s, stream); textOf(t, body) != Hello.Text() {
					t.Errorf("%v, %s: %q", v.Host, f, body)
				}
			}
		}
	}
}

// TestFramingsDiffer holds that a framing is what its name says.
func TestFramingsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]Framing{}
	events := OpenAI{}.Events(&Seen{Model: "m", Stream: true}, Hello)
	for _, f := range Framings(false) {
		all := string(bytes.Join(frame(events, f, false), nil))
		if g, twice := seen[all]; twice {
			t.Errorf("%s and %s are the same", f, g)
		}
		seen[all] = f
	}
	lines := [][]byte{[]byte("{\"a\":1}\n"), []byte("{\"b\":2}\n")}
	for _, f := range Framings(true) {
		all := strings.Fields(strings.TrimPrefix(string(bytes.Join(frame(lines, f, true), nil)), "\xef\xbb\xbf"))
		if len(all) != 2 || all[0] != `{"a":1}` || all[1] != `{"b":2}` {
			t.Errorf("%s: %q", f, all)
		}
	}
}

func TestScripts(t *testing.T) {
	t.Parallel()
	s := New(t, OpenAI{Base: "/v1"})
	for name, tc := range map[string]struct {
		script Script
		body   string
		want   string
		not    string
	}{
		"hello":              {Script{}, whole, Hello.Text(), ""},
		"another answer":     {Script{Answer: &Answer{Pieces: []string{"a", "b"}}}, whole, `"ab"`, ""},
		"echo":               {Script{Echo: true}, whole, `"hi"`, ""},
		"as it is":           {Script{Body: []byte("x")}, whole, "x", "{"},
		"cut after one":      {Script{Break: BreakCut, After: 1}, stream, `"role"`, "Hel"},
		"ended after two":    {Script{Break: BreakEnd, After: 2}, stream, "Hel", "DONE"},
		"half":               {Script{Break: BreakEnd, After: 1}, whole, `{"`, "finish_reason\":\"stop\"},"},
		"an error after two": {Script{Break: BreakError, Fault: Overloaded, After: 2}, stream, "server_error", "DONE"},
		"whole for a stream": {Script{WholeForStream: true}, stream, `"message"`, "data:"},
		"no usage":           {Script{Answer: &Answer{Pieces: []string{"a"}, NoUsage: true}}, stream, "DONE", "prompt_tokens"},
	} {
		s.Next(tc.script)
		_, body := post(t, s, tc.body)
		if !strings.Contains(body, tc.want) || tc.not != "" && strings.Contains(body, tc.not) {
			t.Errorf("%s: %q", name, body)
		}
	}
}

func TestHoldAndGate(t *testing.T) {
	t.Parallel()
	s := New(t, OpenAI{Base: "/v1"})
	gate := make(chan struct{})
	s.Next(Script{Gate: gate}, Script{Break: BreakHold})
	go func() {
		<-s.Heard()
		close(gate)
	}()
	if _, body := post(t, s, whole); !strings.Contains(body, Hello.Text()) {
		t.Errorf("%q", body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/chat/completions", strings.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer k")
	go func() {
		<-s.Heard()
		cancel()
	}()
	resp, err := (&http.Transport{}).RoundTrip(req)
	if err == nil {
		resp.Body.Close()
		t.Error("the hold did not hold")
	}
	<-s.Gone()
	if calls := s.Calls(); len(calls) != 2 || s.Requests() != 2 || calls[0].Secret != "k-1234" || calls[0].Path != "/v1/chat/completions" {
		t.Errorf("%+v", calls)
	}
}

// TestFaults holds that every fault of every host is what an HTTP client would
// call an error, and that the key is put where it stands for one.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, v := range hosts() {
		s := New(t, v)
		for _, f := range Faults() {
			if _, _, _, ok := v.Fault(&Seen{Model: "m"}, f); !ok && f < HTMLPage {
				continue
			}
			s.Next(Script{Fault: f})
			resp, body := post(t, s, whole)
			if resp.StatusCode < 300 || body == "" || strings.Contains(body, KeyMark) {
				t.Errorf("%v, %s: %d %q", v.Host, f, resp.StatusCode, body)
			}
			if v.Host == HostOpenAI && f == Unauthorized && !strings.Contains(body, "k-1234") {
				t.Errorf("the key is not shown: %q", body)
			}
		}
	}
}

func TestAnswersAreJSON(t *testing.T) {
	t.Parallel()
	a := &Answer{
		Pieces: []string{"a\u2028\"\n", "b"}, Reasoning: "hm", Usage: Usage{1, 2, 3, 4, 2},
		Calls: []Call{{"1", "f", `{"x":"ü"}`}, {"2", "g", ""}},
	}
	for _, v := range append([]Voice{Sluice{}}, voices(hosts())...) {
		seen := &Seen{Model: "a/b", Stream: true, StreamUsage: true}
		if b := v.Whole(seen, a); !json.Valid(b) {
			t.Errorf("%T: %s", v, b)
		}
		for _, ev := range v.Events(seen, a) {
			data := strings.TrimSuffix(strings.TrimPrefix(string(ev), "data: "), "\n\n")
			if data != "[DONE]" && !json.Valid([]byte(data)) {
				t.Errorf("%T: %q", v, ev)
			}
		}
	}
}

func voices(in []OpenAI) []Voice {
	var out []Voice
	for _, v := range in {
		out = append(out, v)
	}
	return out
}

// refusals are requests that the API would not take, beside the member of which
// they say so.
var refusals = map[string]string{
	`{"messages":[{"role":"user","content":"x"}]}`: "model",
	`{"model":"m"}`:               "messages",
	`{"model":"m","messages":[]}`: "messages",
	`{"model":"m","messages":[{"role":"bot","content":"x"}]}`:                                                                              "role",
	`{"model":"m","messages":[{"role":"user"}]}`:                                                                                           "content",
	`{"model":"m","messages":[{"role":"user","content":7}]}`:                                                                               "content",
	`{"model":"m","messages":[{"role":"user","content":[]}]}`:                                                                              "content",
	`{"model":"m","messages":[{"role":"user","content":[{"type":"image"}]}]}`:                                                              "type",
	`{"model":"m","messages":[{"role":"system","content":[{"type":"image_url","image_url":{"url":"https://x"}}]}]}`:                        "type",
	`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"ftp://x"}}]}]}`:                            "url",
	`{"model":"m","messages":[{"role":"user","content":"x"}],"temprature":1}`:                                                              "unknown field",
	`{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":"1"}`:                                                           "temperature",
	`{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":3}`:                                                             "temperature",
	`{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":0}`:                                                              "max_tokens",
	`{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":1,"max_completion_tokens":1}`:                                    "max_tokens",
	`{"model":"m","messages":[{"role":"user","content":"x"}],"stream_options":{"include_usage":true}}`:                                     "stream_options",
	`{"model":"m","messages":[{"role":"user","content":"x"}],"stop":["1","2","3","4","5"]}`:                                                "stop",
	`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[]}`:                                                                  "tools",
	`{"model":"m","messages":[{"role":"user","content":"x"}],"tool_choice":"auto"}`:                                                        "tool_choice",
	`{"model":"m","messages":[{"role":"user","content":"x"}],"parallel_tool_calls":false}`:                                                 "parallel_tool_calls",
	`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"name":"f"}]}`:                                                      "unknown field",
	`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f g"}}]}`:                     "name",
	`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"any"}`:   "tool_choice",
	`{"model":"m","messages":[{"role":"tool","content":"x","tool_call_id":"1"}]}`:                                                          "waits",
	`{"model":"m","messages":[{"role":"user","content":"x"},{"role":"tool","content":"x"}]}`:                                               "tool_call_id",
	`{"model":"m","messages":[{"role":"assistant","content":null}]}`:                                                                       "content",
	`{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_object"}}`:                                    "json",
	`{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"schema":{}}}}`:        "name",
	`{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":{"type":"xml"}}`:                                            "response_format",
	`{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}]}`: "no result",
	`{"model":"m","messages":[{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f"}}]}]}`:     "tool_calls",
	`{"model":"m","messages":[{"role":"user","content":"x"}]} {}`:                                                                          "more than one",
	`{"model":"m","messages":[{"role":"user","content":"x","tool_calls":[]}]}`:                                                             "tool_calls",
	`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/tiff;base64,AAAA"}}]}]}`:        "url",
	`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,not base64"}}]}]}`:   "url",
	`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]}]}`:               "unknown field",
	`[]`:    "",
	`hello`: "",
}

func TestOpenAIRefuses(t *testing.T) {
	t.Parallel()
	v := OpenAI{Base: "/v1"}
	request := func(path, body string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer k")
		return r
	}
	for body, says := range refusals {
		if _, err := v.Hear(request("/v1/chat/completions", body), []byte(body)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want a word of %q", body, err, says)
		}
	}
	for name, r := range map[string]*http.Request{
		"path": request("/chat/completions", whole), "query": request("/v1/chat/completions?x=1", whole),
	} {
		if _, err := v.Hear(r, []byte(whole)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	for key, value := range map[string]string{"Authorization": "k", "Content-Type": "text/plain"} {
		r := request("/v1/chat/completions", whole)
		r.Header.Set(key, value)
		if _, err := v.Hear(r, []byte(whole)); err == nil {
			t.Errorf("%s %q: taken", key, value)
		}
	}
	if _, err := (OpenAI{Base: "/v1", Host: HostGroq}).Hear(request("/v1/chat/completions", ""), []byte(`{"model":"m","messages":[{"role":"user","name":"n","content":"x"}]}`)); err == nil {
		t.Error("groq takes the name of a message")
	}
}
