package edge_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/edge"
	"github.com/sluice-llm/sluice/subjects"
)

func TestStreams(t *testing.T) {
	for _, tt := range []struct {
		name, path, body string
		payloads         []string
		want             string
	}{
		{"chat", "/v1/chat/completions", chatStream, []string{`{"n":1}`, `{"n":2}`}, "data: {\"n\":1}\n\ndata: {\"n\":2}\n\ndata: [DONE]\n\n"},
		{
			"native", "/api/complete", `{"stream":true}`,
			[]string{`{"type":"delta","content":"a"}`, `{"type":"result","usage":{}}`},
			"data: {\"type\":\"delta\",\"content\":\"a\"}\n\ndata: {\"type\":\"result\",\"usage\":{}}\n\ndata: [DONE]\n\n",
		},
		{"line ends", "/v1/chat/completions", chatStream, []string{"{\r\n\"n\":\n1}\n"}, "data: {  \"n\": 1} \n\ndata: [DONE]\n\n"},
		{"big", "/v1/chat/completions", chatStream, []string{strings.Repeat("x", 200_000), "y"}, "data: " + strings.Repeat("x", 200_000) + "\n\ndata: y\n\ndata: [DONE]\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := streaming(nil, subjects.Header{"Llm-Provider": {"mock"}}, tt.payloads...)
			a := start(t, f, edge.Options{}).post(t, tt.path, tt.body)
			if a.status != 200 || a.body != tt.want {
				t.Errorf("got %d %.300q", a.status, a.body)
			}
			for name, want := range map[string]string{
				"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no",
				"X-LLM-Provider": "mock", "X-LLM-Cached": "false", "Content-Length": "",
			} {
				if got := a.header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestStreamWithoutEvents(t *testing.T) {
	a := start(t, streaming(nil, nil), edge.Options{}).post(t, "/v1/chat/completions", chatStream)
	if a.status != 502 || a.errorOf(t)["kind"] != "PROVIDER_ERROR" {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

// TestEventsComeAtOnce has each event read before the next is given out.
func TestEventsComeAtOnce(t *testing.T) {
	next := make(chan string)
	f := &fake{stream: func(ctx context.Context, _ *subjects.Msg, yield func(*subjects.Msg) error) error {
		for p := range next {
			if err := yield(&subjects.Msg{Data: []byte(p)}); err != nil {
				return err
			}
		}
		return nil
	}}
	r := start(t, f, edge.Options{})
	got := make(chan *http.Response, 1)
	go func() {
		resp, err := r.client.Post(r.url+"/v1/chat/completions", "application/json", strings.NewReader(chatStream))
		if err != nil {
			t.Error(err)
		}
		got <- resp
	}()
	next <- `{"n":0}`
	resp := within(t, got, "the status, with the first event")
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for i := range 20 {
		want := fmt.Sprintf(`data: {"n":%d}`, i)
		if !lines.Scan() || lines.Text() != want || !lines.Scan() || lines.Text() != "" {
			t.Fatalf("event %d: %q", i, lines.Text())
		}
		if i < 19 {
			next <- fmt.Sprintf(`{"n":%d}`, i+1)
		}
	}
	close(next)
	if !lines.Scan() || lines.Text() != "data: [DONE]" {
		t.Errorf("end: %q", lines.Text())
	}
}

// TestWhatCountsAsStream has the edge agree with encoding/json on the flag.
func TestWhatCountsAsStream(t *testing.T) {
	for body, want := range map[string]bool{
		`{"stream":true}`: true, ` { "stream" : true } `: true, `{"stream":false,"stream":true}`: true,
		`{"str\u0065am":true}`: true, `{"messages":[{"content":"{\"stream\":true}"}],"stream":true}`: true,
		`{"stream":false}`: false, `{"stream":true,"stream":false}`: false, `{"a":{"stream":true}}`: false,
		`{"messages":[{"content":"\"stream\":true"}]}`: false, `{"stream":"true"}`: false, `{"stream":1}`: false,
		`[{"stream":true}]`: false, `nonsense`: false, `"stream"`: false, `{`: false, "\x00": false,
	} {
		streams := false
		f := replying(nativeDone, nil)
		f.stream = func(_ context.Context, _ *subjects.Msg, yield func(*subjects.Msg) error) error {
			streams = true
			return yield(&subjects.Msg{Data: []byte(`{}`)})
		}
		a := start(t, f, edge.Options{}).post(t, "/api/complete", body)
		if streams != want || a.status != 200 {
			t.Errorf("%s: streams %v, want %v (%d)", body, streams, want, a.status)
		}
		if string(f.last(t).Data) != body {
			t.Errorf("%q was changed to %q", body, f.last(t).Data)
		}
	}
}
