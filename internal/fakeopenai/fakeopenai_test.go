package fakeopenai_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/internal/fakeopenai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const plain = `{"model":"m1","user":"interactive","messages":[{"role":"user","content":"hello"}]}`

const streamed = `{"model":"m1","user":"ingestion","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hello"}]}`

// ctxFor bounds a test: whatever waits on it fails with a message in place of
// hanging.
func ctxFor(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// newClient has connections of its own, closed at the end of the test.
func newClient(t testing.TB) *http.Client {
	t.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: 256}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func post(ctx context.Context, c *http.Client, s *fakeopenai.Server, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.BaseURL()+"/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return c.Do(req)
}

// ask returns a reply whole. err covers the body as well.
func ask(ctx context.Context, c *http.Client, s *fakeopenai.Server, body string) (status int, text string, err error) {
	resp, err := post(ctx, c, s, body)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func sdk(t testing.TB, s *fakeopenai.Server) openai.Client {
	return openai.NewClient(option.WithBaseURL(s.BaseURL()), option.WithAPIKey("k"),
		option.WithHTTPClient(newClient(t)), option.WithMaxRetries(0))
}

func params() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "m1", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")}}
}

// The vendor's own client must understand the answers.

func TestSDKCompletion(t *testing.T) {
	s := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Always(fakeopenai.Behaviour{
		Content: "Grüße \"quoted\"\n",
		Usage:   &fakeopenai.Usage{Prompt: 100, Completion: 20, Cached: 64, Reasoning: 5},
		Model:   "m1-2026-01-01",
	}))).Start(t)
	c := sdk(t, s)
	got, err := c.Chat.Completions.New(ctxFor(t), params())
	if err != nil {
		t.Fatal(err)
	}
	if got.Choices[0].Message.Content != "Grüße \"quoted\"\n" || got.Choices[0].FinishReason != "stop" || got.Model != "m1-2026-01-01" {
		t.Errorf("answer: %s", got.RawJSON())
	}
	u := got.Usage
	if u.PromptTokens != 100 || u.CompletionTokens != 20 || u.TotalTokens != 120 || u.PromptTokensDetails.CachedTokens != 64 || u.CompletionTokensDetails.ReasoningTokens != 5 {
		t.Errorf("usage: %+v", u)
	}
	want := fakeopenai.Counts{Peak: 1, Total: 1, Answered: 1, PromptTokens: 100, CompletionTokens: 20, CachedTokens: 64, ReasoningTokens: 5}
	if c := s.Counts(); c != want {
		t.Errorf("counts: %+v, want %+v", c, want)
	}
}

func TestSDKStream(t *testing.T) {
	content := strings.Repeat("äöü €𝄞 ", 20)
	s := fakeopenai.New(fakeopenai.WithContent(content), fakeopenai.WithScript(fakeopenai.Always(fakeopenai.Behaviour{Chunks: 7, Comments: true}))).Start(t)
	c := sdk(t, s)
	for _, usage := range []bool{true, false} {
		p := params()
		if usage {
			p.StreamOptions.IncludeUsage = openai.Bool(true)
		}
		st := c.Chat.Completions.NewStreaming(ctxFor(t), p)
		var acc openai.ChatCompletionAccumulator
		for st.Next() {
			acc.AddChunk(st.Current())
		}
		if err := st.Err(); err != nil {
			t.Fatal(err)
		}
		if acc.Choices[0].Message.Content != content || acc.Choices[0].FinishReason != "stop" {
			t.Errorf("usage=%t: got %q %q", usage, acc.Choices[0].Message.Content, acc.Choices[0].FinishReason)
		}
		if (acc.Usage.TotalTokens > 0) != usage {
			t.Errorf("usage=%t: reported %+v", usage, acc.Usage)
		}
	}
	one := s.Counts()
	if one.Answered != 2 || one.CompletionTokens != int64(1+len(content)/4) {
		t.Errorf("tokens must be counted once, of the stream that reported them: %+v", one)
	}
}

func TestSDKToolCalls(t *testing.T) {
	calls := []fakeopenai.ToolCall{{ID: "call_1", Name: "weather", Arguments: `{"city":"Bern"}`}, {ID: "call_2", Name: "time", Arguments: `{}`}}
	s := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Always(fakeopenai.Behaviour{ToolCalls: calls}))).Start(t)
	c := sdk(t, s)
	got, err := c.Chat.Completions.New(ctxFor(t), params())
	if err != nil {
		t.Fatal(err)
	}
	st := c.Chat.Completions.NewStreaming(ctxFor(t), params())
	var acc openai.ChatCompletionAccumulator
	for st.Next() {
		acc.AddChunk(st.Current())
	}
	if st.Err() != nil {
		t.Fatal(st.Err())
	}
	for _, ch := range []openai.ChatCompletionChoice{got.Choices[0], acc.Choices[0]} {
		if ch.FinishReason != "tool_calls" || len(ch.Message.ToolCalls) != 2 {
			t.Fatalf("got %+v", ch)
		}
		for i, tc := range ch.Message.ToolCalls {
			if tc.ID != calls[i].ID || tc.Function.Name != calls[i].Name || tc.Function.Arguments != calls[i].Arguments {
				t.Errorf("call %d: %+v", i, tc)
			}
		}
	}
}

func TestSDKErrorsAndModels(t *testing.T) {
	s := fakeopenai.New(fakeopenai.WithModels("m1", "m2"), fakeopenai.WithScript(fakeopenai.Sequence(
		fakeopenai.RateLimited(1500*time.Millisecond), fakeopenai.InsufficientQuota(), fakeopenai.ContextLengthExceeded(),
		fakeopenai.InvalidAPIKey(), fakeopenai.ContentPolicy(), fakeopenai.Overloaded(), fakeopenai.ServerError(),
	))).Start(t)
	c := sdk(t, s)
	for i, want := range []struct {
		status int
		code   string
	}{{429, "rate_limit_exceeded"}, {429, "insufficient_quota"}, {400, "context_length_exceeded"}, {401, "invalid_api_key"}, {400, "invalid_prompt"}, {503, "overloaded"}, {500, ""}} {
		_, err := c.Chat.Completions.New(ctxFor(t), params())
		var e *openai.Error
		if !errors.As(err, &e) || e.StatusCode != want.status || e.Code != want.code {
			t.Errorf("%d: got %v, want %+v", i, err, want)
			continue
		}
		if h := e.Response.Header; i == 0 && (h.Get("Retry-After") != "2" || h.Get("Retry-After-Ms") != "1500") {
			t.Errorf("Retry-After %q, Retry-After-Ms %q", h.Get("Retry-After"), h.Get("Retry-After-Ms"))
		}
	}
	if n := s.Counts(); n.Failed != 7 || n.Answered != 0 {
		t.Errorf("counts: %+v", n)
	}
	list, err := c.Models.List(ctxFor(t))
	if err != nil || len(list.Data) != 2 || list.Data[1].ID != "m2" || list.Data[1].Object != "model" {
		t.Errorf("models: %+v, %v", list, err)
	}
}

// TestStreamForm holds the order of events that clients without a library rely on.
func TestStreamForm(t *testing.T) {
	s := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Always(fakeopenai.Behaviour{Chunks: 3, Content: "abc"}))).Start(t)
	status, text, err := ask(ctxFor(t), newClient(t), s, streamed)
	if err != nil || status != http.StatusOK {
		t.Fatal(status, err)
	}
	var events []string
	for _, e := range strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(e, "data: ")
		if !ok || strings.Contains(data, "\n") {
			t.Fatalf("not one data line: %q", e)
		}
		events = append(events, data)
	}
	if len(events) != 7 || events[6] != "[DONE]" {
		t.Fatalf("events: %q", events)
	}
	for i, want := range []string{`"role":"assistant"`, `{"content":"a"}`, `{"content":"b"}`, `{"content":"c"}`, `"finish_reason":"stop"`, `"choices":[],"usage":{"prompt_tokens":`} {
		if !json.Valid([]byte(events[i])) || !strings.Contains(events[i], want) {
			t.Errorf("event %d: %s lacks %s", i, events[i], want)
		}
		if i < 5 && !strings.HasSuffix(events[i], `"usage":null}`) {
			t.Errorf("event %d must have a null usage: %s", i, events[i])
		}
	}
}

func TestChoices(t *testing.T) {
	s := fakeopenai.New().Start(t)
	body := strings.Replace(plain, `"user"`, `"n":3,"user"`, 1)
	_, text, err := ask(ctxFor(t), newClient(t), s, body)
	if err != nil {
		t.Fatal(err)
	}
	if n := gjson.Get(text, "choices.#").Int(); n != 3 || gjson.Get(text, "choices.2.index").Int() != 2 {
		t.Errorf("got %s", text)
	}
}

// TestGate: five calls held, seen per model and per class, and let go one by one.
func TestGate(t *testing.T) {
	ctx, g := ctxFor(t), fakeopenai.NewGate()
	s := fakeopenai.New(fakeopenai.WithGate(g)).Start(t)
	c := newClient(t)
	done := make(chan error, 5)
	for i := range 5 {
		body := plain
		if i >= 3 {
			body = streamed
		}
		go func() {
			_, _, err := ask(ctx, c, s, body)
			done <- err
		}()
	}
	if err := s.WaitInFlight(ctx, 5); err != nil {
		t.Fatal(err)
	}
	if err := g.WaitHeld(ctx, 5); err != nil {
		t.Fatal(err)
	}
	if n := s.Class("interactive"); n.InFlight != 3 || n.Peak != 3 || n.Total != 3 {
		t.Errorf("interactive: %+v", n)
	}
	if n := s.Snapshot().Pairs[fakeopenai.Pair{Model: "m1", Class: "ingestion"}]; n.InFlight != 2 {
		t.Errorf("ingestion: %+v", n)
	}
	if !g.ReleaseMatch(func(r *fakeopenai.Request) bool { return r.Stream }) {
		t.Error("no streamed call at the gate")
	}
	for left := 4; left >= 0; left-- {
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := s.Model("m1"); n.InFlight != left || n.Answered != 5-left {
			t.Errorf("with %d left: %+v", left, n)
		}
		if n := g.Release(1); n != min(left, 1) {
			t.Errorf("released %d with %d left", n, left)
		}
	}
	if n := s.Counts(); n.Peak != 5 {
		t.Errorf("peak: %+v", n)
	}
	s.ResetPeaks()
	if n := s.Counts(); n.Peak != 0 || n.Total != 5 {
		t.Errorf("after ResetPeaks: %+v", n)
	}
}

func TestGateOpensAndShuts(t *testing.T) {
	ctx, g := ctxFor(t), fakeopenai.NewGate()
	s := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Always(fakeopenai.Behaviour{Gate: g}))).Start(t)
	c := newClient(t)
	g.Open()
	if _, _, err := ask(ctx, c, s, plain); err != nil {
		t.Fatal(err)
	}
	g.Shut()
	cctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		_, _, err := ask(cctx, c, s, plain)
		done <- err
	}()
	if err := g.WaitHeld(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if h := g.Held(); len(h) != 1 || h[0].N != 2 || h[0].Class != "interactive" {
		t.Errorf("held: %v", h)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled call: %v", err)
	}
	if err := errors.Join(g.WaitHeld(ctx, 0), s.WaitInFlight(ctx, 0)); err != nil {
		t.Fatal(err)
	}
	if n := s.Counts(); n.Aborted != 1 || n.Answered != 1 {
		t.Errorf("counts: %+v", n)
	}
}

// TestClientGoes: every place where a behaviour waits must end with the client.
func TestClientGoes(t *testing.T) {
	const long = time.Hour
	for name, tc := range map[string]struct {
		b    fakeopenai.Behaviour
		body string
		read string // what must have arrived before the client goes; "-" = not even headers
	}{
		"latency":             {fakeopenai.Behaviour{Latency: long}, plain, "-"},
		"hang":                {fakeopenai.Behaviour{Hang: true}, plain, "-"},
		"first byte":          {fakeopenai.Behaviour{FirstByteDelay: long}, plain, ""},
		"first byte, stream":  {fakeopenai.Behaviour{FirstByteDelay: long}, streamed, ""},
		"between pieces":      {fakeopenai.Behaviour{ChunkDelay: long, Content: "abcd"}, streamed, `{"content":"a"}`},
		"hang in stream":      {fakeopenai.Behaviour{HangAfterChunks: 2, Content: "abcd"}, streamed, `{"content":"b"}`},
		"hang before stream":  {fakeopenai.Behaviour{HangAfterChunks: fakeopenai.BeforeFirst}, streamed, ""},
		"error page, latency": {fakeopenai.Behaviour{Latency: long, Status: 500}, plain, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := ctxFor(t)
			s := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Always(tc.b))).Start(t)
			cctx, cancel := context.WithCancel(ctx)
			defer cancel()
			got := make(chan error, 1)
			go func() { got <- readUntil(cctx, newClient(t), s, tc.body, tc.read) }()
			if tc.read == "-" {
				if err := s.WaitInFlight(ctx, 1); err != nil {
					t.Fatal(err)
				}
				cancel()
				if err := <-got; !errors.Is(err, context.Canceled) {
					t.Errorf("client got %v", err)
				}
			} else if err := <-got; err != nil {
				t.Fatal(err)
			}
			cancel()
			if err := s.WaitInFlight(ctx, 0); err != nil {
				t.Fatal(err)
			}
			if n := s.Counts(); n.Aborted != 1 || n.Total != 1 || n.Answered+n.Failed != 0 || n.PromptTokens != 0 {
				t.Errorf("counts: %+v", n)
			}
		})
	}
}

// readUntil reads a reply up to a text and then goes away.
func readUntil(ctx context.Context, c *http.Client, s *fakeopenai.Server, body, text string) error {
	resp, err := post(ctx, c, s, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	for text != "" && sc.Scan() {
		if strings.Contains(sc.Text(), text) {
			return nil
		}
	}
	if text != "" {
		return fmt.Errorf("%q never came: %w", text, io.ErrUnexpectedEOF)
	}
	return nil
}

// TestTrouble: replies that are wrong on purpose.
func TestTrouble(t *testing.T) {
	ended := func(want error) func(t *testing.T, status int, text string, err error) {
		return func(t *testing.T, _ int, text string, err error) {
			if !errors.Is(err, want) {
				t.Errorf("got %q, %v; want %v", text, err, want)
			}
		}
	}
	has := func(status int, parts ...string) func(t *testing.T, status int, text string, err error) {
		return func(t *testing.T, got int, text string, err error) {
			if err != nil || got != status {
				t.Errorf("status %d, %v; want %d", got, err, status)
			}
			for _, p := range parts {
				if neg, ok := strings.CutPrefix(p, "!"); ok == strings.Contains(text, strings.TrimPrefix(p, "!")) {
					t.Errorf("%q: contains %q must be %t", text, neg, !ok)
				}
			}
		}
	}
	for name, tc := range map[string]struct {
		b     fakeopenai.Behaviour
		body  string
		check func(t *testing.T, status int, text string, err error)
		ok    bool
	}{
		"cut whole":         {fakeopenai.Behaviour{CutAfterChunks: 1}, plain, ended(io.ErrUnexpectedEOF), false},
		"cut before whole":  {fakeopenai.Behaviour{CutAfterChunks: fakeopenai.BeforeFirst}, plain, ended(io.EOF), false},
		"cut stream":        {fakeopenai.Behaviour{CutAfterChunks: 2}, streamed, ended(io.ErrUnexpectedEOF), false},
		"cut before stream": {fakeopenai.Behaviour{CutAfterChunks: fakeopenai.BeforeFirst}, streamed, ended(io.ErrUnexpectedEOF), false},
		"error event":       {fakeopenai.Behaviour{ErrorAfterChunks: 1, Content: "abcd"}, streamed, has(200, `{"content":"a"}`, `data: {"error":{`, "![DONE]", `!"b"`), false},
		"error event first": {fakeopenai.Behaviour{ErrorAfterChunks: fakeopenai.BeforeFirst}, streamed, has(200, `data: {"error":{`, `!"delta"`), false},
		"no done":           {fakeopenai.Behaviour{NoDone: true}, streamed, has(200, `"total_tokens"`, "![DONE]"), true},
		"no usage, stream":  {fakeopenai.Behaviour{NoUsage: true}, streamed, has(200, "!usage", "[DONE]"), true},
		"no usage":          {fakeopenai.Behaviour{NoUsage: true}, plain, has(200, "!usage"), true},
		"html":              {fakeopenai.Behaviour{HTMLError: true}, plain, has(502, "<html>"), false},
		"html with 200":     {fakeopenai.Behaviour{HTMLError: true, Status: 200}, plain, has(200, "<html>"), false},
		"broken json":       {fakeopenai.Behaviour{BrokenJSON: true}, plain, has(200, `"object":"chat.completion"`, `!system_fingerprint":"fp_fake"}`), false},
		"broken chunk":      {fakeopenai.Behaviour{BrokenJSON: true}, streamed, has(200, `{"content":"bro`), false},
		"bare status":       {fakeopenai.Behaviour{Status: 418}, plain, has(418, `"error"`), false},
		"own body":          {fakeopenai.Behaviour{Status: 402, Body: `{"x":1}`}, plain, has(402, `{"x":1}`), false},
		"own good body":     {fakeopenai.Behaviour{Body: `{"x":1}`}, plain, has(200, `{"x":1}`), true},
		"error to a stream": {fakeopenai.Behaviour{Status: 500}, streamed, has(500, `"server_error"`), false},
		"invalid request":   {fakeopenai.Behaviour{}, `{"model":`, has(400, `could not parse`), false},
		"no messages":       {fakeopenai.Behaviour{}, `{"model":"m1"}`, has(400, `could not parse`), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Always(tc.b))).Start(t)
			status, text, err := ask(ctxFor(t), newClient(t), s, tc.body)
			tc.check(t, status, text, err)
			n := s.Counts()
			if n.Total != 1 || n.InFlight != 0 || (n.Answered == 1) != tc.ok || (n.Failed == 1) == tc.ok {
				t.Errorf("counts: %+v, answered must be %t", n, tc.ok)
			}
		})
	}
}

func TestRoutesAndKey(t *testing.T) {
	s := fakeopenai.New(fakeopenai.WithAPIKey("right"), fakeopenai.WithRecord(1)).Start(t)
	c := newClient(t)
	for _, tc := range []struct {
		method, path, key string
		status            int
	}{
		{"POST", "/v1/chat/completions", "right", 200},
		{"POST", "/openai/v1/chat/completions", "right", 200},
		{"POST", "/v1/chat/completions", "wrong", 401},
		{"GET", "/v1/chat/completions", "right", 405},
		{"GET", "/v1/models", "wrong", 401},
		{"GET", "/v1/models", "right", 200},
		{"GET", "/v1/nothing", "right", 404},
	} {
		req, err := http.NewRequestWithContext(ctxFor(t), tc.method, s.URL()+tc.path, strings.NewReader(plain))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+tc.key)
		req.Header.Set(fakeopenai.ClassHeader, "from-header")
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tc.status || !json.Valid(b) {
			t.Errorf("%s %s as %s: %d %s %v", tc.method, tc.path, tc.key, resp.StatusCode, b, err)
		}
	}
	if n := s.Class("from-header"); n.Total != 3 || n.Answered != 2 || n.Failed != 1 {
		t.Errorf("the class header must win over user: %+v", s.Snapshot())
	}
	rec := s.Recorded()
	if len(rec) != 1 || string(rec[0].Body) != plain || rec[0].Header.Get("Authorization") != "Bearer right" || rec[0].Path != "/v1/chat/completions" {
		t.Errorf("recorded: %v", rec)
	}
}

// TestPeakIsNeverTooHigh: clients that start the next call on the last byte of
// an answer must never be seen as more calls than there are clients.
func TestPeakIsNeverTooHigh(t *testing.T) {
	const clients, each = 4, 300
	s := fakeopenai.New().Start(t)
	c, ctx := newClient(t), ctxFor(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var prompt, completion int64
	for i := range clients {
		wg.Go(func() {
			for j := range each {
				body := plain
				if (i+j)%2 == 0 {
					body = streamed
				}
				_, text, err := ask(ctx, c, s, body)
				if err != nil {
					t.Error(err)
					return
				}
				at := strings.LastIndex(text, `"usage":{`)
				u := gjson.Parse(text[at+len(`"usage":`):])
				mu.Lock()
				prompt += u.Get("prompt_tokens").Int()
				completion += u.Get("completion_tokens").Int()
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	n := s.Counts()
	if n.Peak > clients || n.InFlight != 0 || n.Answered != clients*each {
		t.Errorf("counts: %+v", n)
	}
	if n.PromptTokens != prompt || n.CompletionTokens != completion {
		t.Errorf("tokens: server %d/%d, clients %d/%d", n.PromptTokens, n.CompletionTokens, prompt, completion)
	}
}

// TestPeakWithCancels: a client that closes its connection and at once opens the
// next is one client, although net/http hears of the close some time later.
func TestPeakWithCancels(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("closed connections can only be looked up on Linux")
	}
	const calls = 300
	s := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Always(fakeopenai.Behaviour{Hang: true}))).Start(t)
	ctx := ctxFor(t)
	for n := 1; n <= calls; n++ {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(s.URL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(plain), plain)
		if err := s.Wait(ctx, func(sn fakeopenai.Snapshot) bool { return sn.All.Total == n }); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	if err := s.WaitInFlight(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if n := s.Counts(); n.Peak != 1 || n.Aborted != calls {
		t.Errorf("counts: %+v", n)
	}
}

func TestWaitSaysWhatItSaw(t *testing.T) {
	s := fakeopenai.New()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.WaitInFlight(ctx, 1)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "InFlight:0") {
		t.Errorf("got %v", err)
	}
	if err := fakeopenai.NewGate().WaitHeld(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestCloseEndsServe(t *testing.T) {
	s := fakeopenai.New()
	if err := s.Close(); err != nil {
		t.Errorf("closing before serving: %v", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	if _, _, err := ask(ctxFor(t), newClient(t), waitURL(t, s), plain); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// waitURL returns s once Serve, in another goroutine, has said its address.
func waitURL(t *testing.T, s *fakeopenai.Server) *fakeopenai.Server {
	t.Helper()
	for ctx := ctxFor(t); s.URL() == ""; runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatal("the server never listened")
		}
	}
	return s
}

func ExampleServer() {
	s := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Sequence(
		fakeopenai.RateLimited(time.Second),        // the first request
		fakeopenai.Behaviour{Content: "all right"}, // every later one
	)))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() { _ = s.Serve(ln) }()
	defer s.Close()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	for range 2 {
		resp, err := (&http.Client{Transport: tr}).Post("http://"+ln.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(plain))
		if err != nil {
			panic(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%d %q\n", resp.StatusCode, gjson.GetBytes(b, "choices.0.message.content").Str)
	}
	n := s.Class("interactive")
	fmt.Println(n.Total, n.Answered, n.Failed)
	// Output:
	// 429 ""
	// 200 "all right"
	// 2 1 1
}
