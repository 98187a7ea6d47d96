package edge_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/sluice-llm/sluice/edge"
	"github.com/sluice-llm/sluice/subjects"
)

// sdk is OpenAI's own client on the edge.
func sdk(t testing.TB, f *fake, opts ...option.RequestOption) openai.Client {
	t.Helper()
	r := start(t, f, edge.Options{})
	return openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(r.url + "/v1"), option.WithAPIKey("sk-any"), option.WithHTTPClient(r.client), option.WithMaxRetries(0),
	}, opts...)...)
}

var params = openai.ChatCompletionNewParams{Model: "auto", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}}

func TestSDKCompletion(t *testing.T) {
	f := replying(chatReply, nil)
	c := sdk(t, f, option.WithHeader("X-LLM-Process", "sdk"))
	got, err := c.Chat.Completions.New(context.Background(), params)
	if err != nil {
		t.Fatal(err)
	}
	if got.Choices[0].Message.Content != "hello" || got.Usage.TotalTokens != 3 {
		t.Errorf("got %s", got.RawJSON())
	}
	m := f.last(t)
	if m.Header.Get("Llm-Process") != "sdk" || m.Header.Get("Llm-Wire") != "openai-chat" {
		t.Errorf("headers %v", m.Header)
	}
	for name := range m.Header {
		if strings.Contains(strings.ToLower(name), "authorization") {
			t.Error("the key was sent on")
		}
	}
}

func TestSDKStream(t *testing.T) {
	chunk := func(s string) string {
		return `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"` + s + `"}}]}`
	}
	c := sdk(t, streaming(nil, nil, chunk("he"), chunk("llo"), `{"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"total_tokens":3}}`))
	s := c.Chat.Completions.NewStreaming(context.Background(), params)
	defer s.Close()
	text, total := "", int64(0)
	for s.Next() {
		ch := s.Current()
		total += ch.Usage.TotalTokens
		if len(ch.Choices) > 0 {
			text += ch.Choices[0].Delta.Content
		}
	}
	if s.Err() != nil || text != "hello" || total != 3 {
		t.Errorf("got %q, %d tokens, %v", text, total, s.Err())
	}
}

func TestSDKStreamBreaks(t *testing.T) {
	c := sdk(t, streaming(callError(subjects.KindProvider, "the upstream broke off"), nil, `{"id":"c","choices":[]}`))
	s := c.Chat.Completions.NewStreaming(context.Background(), params)
	defer s.Close()
	n := 0
	for s.Next() {
		n++
	}
	if n != 1 || s.Err() == nil || !strings.Contains(s.Err().Error(), "the upstream broke off") {
		t.Errorf("%d chunks, then %v", n, s.Err())
	}
}

func TestSDKModels(t *testing.T) {
	c := sdk(t, queries(map[string]string{subjects.QueryModels: `{"models":[{"id":"groq/openai/gpt-oss-120b","provider":"groq"}]}`}))
	page, err := c.Models.List(context.Background())
	if err != nil || len(page.Data) != 1 || page.Data[0].OwnedBy != "groq" {
		t.Fatalf("list: %v %v", page, err)
	}
	m, err := c.Models.Get(context.Background(), "groq/openai/gpt-oss-120b")
	if err != nil || m.ID != "groq/openai/gpt-oss-120b" {
		t.Errorf("get: %v %v", m, err)
	}
	var e *openai.Error
	if _, err = c.Models.Get(context.Background(), "none"); !errors.As(err, &e) || e.StatusCode != 404 || e.Code != "not_found" {
		t.Errorf("unknown model: %v", err)
	}
}

func TestSDKErrors(t *testing.T) {
	for _, tt := range errorCases() {
		t.Run(tt.name, func(t *testing.T) {
			f := failing(tt.err)
			c := sdk(t, f)
			_, err := c.Chat.Completions.New(context.Background(), params)
			checkSDKError(t, tt, err)
			s := c.Chat.Completions.NewStreaming(context.Background(), params)
			for s.Next() {
				t.Error("an event from a failed call")
			}
			checkSDKError(t, tt, s.Err())
			if f.count() != 2 {
				t.Errorf("the node was asked %d times", f.count())
			}
		})
	}
}

func checkSDKError(t *testing.T, tt errorCase, err error) {
	t.Helper()
	var e *openai.Error
	if !errors.As(err, &e) {
		t.Fatalf("no API error: %v", err)
	}
	if e.StatusCode != tt.status || e.Type != tt.typ || e.Code != tt.code || e.Message == "" {
		t.Errorf("got %d %q %q %q", e.StatusCode, e.Type, e.Code, e.Message)
	}
	if !strings.Contains(e.RawJSON(), `"kind":"`+tt.kind+`"`) {
		t.Errorf("no kind: %s", e.RawJSON())
	}
}

// TestSDKRetries has the SDK's own retries go where they can help, and nowhere else.
func TestSDKRetries(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   *subjects.Error
		tries int
	}{
		{"rate limit that is soon over", withRetry(callError(subjects.KindRateLimited, "x"), time.Millisecond), 3},
		{"quota that soon comes back", withRetry(callError(subjects.KindQuotaExhausted, "x"), time.Millisecond), 3},
		{"quota", callError(subjects.KindQuotaExhausted, "x"), 1},
		{"quota for an hour", withRetry(callError(subjects.KindQuotaExhausted, "x"), time.Hour), 1},
		{"rate limit for an hour", withRetry(callError(subjects.KindRateLimited, "x"), time.Hour), 1},
		{"auth", callError(subjects.KindAuth, "x"), 1},
		{"validation", callError(subjects.KindValidation, "x"), 1},
		{"not built", withStatus(callError(subjects.KindCapabilityMissing, "x"), 501), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := failing(tt.err)
			c := sdk(t, f, option.WithMaxRetries(2))
			if _, err := c.Chat.Completions.New(context.Background(), params); err == nil {
				t.Error("no error")
			}
			if f.count() != tt.tries {
				t.Errorf("%d tries, want %d", f.count(), tt.tries)
			}
		})
	}
}
