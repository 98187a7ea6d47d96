//go:build e2e_model

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// tokens is the usage block of an OpenAI-style answer.
type tokens struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Details    struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// exchange is one completion that passed through the witness.
type exchange struct {
	prompt string // content of the last message
	stream bool
	// start is when the request had been read, end when the last byte of the
	// answer had come from the server and not yet been passed on. end is zero
	// while it runs, and for good when the node hung up before the end.
	start, end time.Time
	done       bool
	status     int
	usage      *tokens // nil: the server reported none
	text       string
	finish     string
}

// hungUp reports whether the node left before the answer's end.
func (x *exchange) hungUp() bool { return x.done && x.end.IsZero() }

// witness is a reverse proxy before the model server. It changes nothing, and
// keeps what the server itself said of each completion, and how many were in
// flight. It counts a completion as over before the node can know that it is,
// so a node that keeps its cap can never be seen above it.
type witness struct {
	proxy *httputil.ReverseProxy
	close func() // ends it before the test's end

	mu        sync.Mutex
	exchanges []*exchange
	active    int
	peak      int
}

type exchangeKey struct{}

// serverIdle is how long llama.cpp's server, and so the witness, keeps a
// connection that nobody uses.
const serverIdle = 5 * time.Second

// newWitness starts a witness before the server at target.
func newWitness(t *testing.T, target string) (*witness, string) {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{}
	w.proxy = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: w.tap,
		FlushInterval:  -1,
		// llama.cpp's server closes idle connections after five seconds. A proxy
		// cannot send a POST again when one closes under it; the node can.
		Transport: &http.Transport{DisableKeepAlives: true},
		ErrorLog:  log.New(io.Discard, "", 0), // hang-ups are part of the test
	}
	srv := httptest.NewUnstartedServer(w)
	srv.Config.IdleTimeout = serverIdle
	srv.Start()
	w.close = srv.Close
	t.Cleanup(srv.Close)
	return w, srv.URL
}

func (w *witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/chat/completions") && r.URL.Path != "/api/chat" {
		w.proxy.ServeHTTP(rw, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	x := w.begin(body)
	defer w.over(x, false)
	r.Body = io.NopCloser(bytes.NewReader(body))
	w.proxy.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
}

func (w *witness) begin(body []byte) *exchange {
	var req struct {
		Stream   bool `json:"stream"`
		Messages []struct {
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	_ = json.Unmarshal(body, &req) // what is not JSON is the server's to refuse
	x := &exchange{stream: req.Stream, start: time.Now()}
	if n := len(req.Messages); n > 0 {
		x.prompt = contentText(req.Messages[n-1].Content)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exchanges = append(w.exchanges, x)
	w.active++
	w.peak = max(w.peak, w.active)
	return x
}

// contentText reads a message's content: a string, or an array of parts.
func contentText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(raw, &parts)
	for _, p := range parts {
		s += p.Text
	}
	return s
}

// over ends x once; whole says that the answer came to its end.
func (w *witness) over(x *exchange, whole bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.done {
		return
	}
	x.done = true
	w.active--
	if whole {
		x.end = time.Now()
	}
}

func (w *witness) tap(resp *http.Response) error {
	x, ok := resp.Request.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil
	}
	w.mu.Lock()
	x.status = resp.StatusCode
	w.mu.Unlock()
	switch kind := resp.Header.Get("Content-Type"); {
	case strings.HasPrefix(kind, "text/event-stream"):
		resp.Body = &streamTap{ReadCloser: resp.Body, w: w, x: x, prefix: []byte("data: ")}
		return nil
	case strings.HasPrefix(kind, "application/x-ndjson"):
		resp.Body = &streamTap{ReadCloser: resp.Body, w: w, x: x}
		return nil
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	w.note(x, body)
	w.over(x, true)
	return nil
}

// note adds one answer, or one chunk of a streamed answer, to x; done says that
// it is the last of Ollama's lines.
func (w *witness) note(x *exchange, data []byte) (done bool) {
	type message struct {
		Content string `json:"content"`
	}
	var reply struct {
		// Ollama's own form has these at the top.
		Message    message `json:"message"`
		Done       bool    `json:"done"`
		DoneReason string  `json:"done_reason"`
		Prompt     int64   `json:"prompt_eval_count"`
		Completion int64   `json:"eval_count"`

		Choices []struct {
			Message      message `json:"message"`
			Delta        message `json:"delta"`
			FinishReason string  `json:"finish_reason"`
		} `json:"choices"`
		Usage *tokens `json:"usage"`
	}
	if json.Unmarshal(data, &reply) != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	x.text += reply.Message.Content
	if reply.Done {
		x.finish, x.usage = reply.DoneReason, &tokens{Prompt: reply.Prompt, Completion: reply.Completion}
	}
	for _, c := range reply.Choices {
		x.text += c.Message.Content + c.Delta.Content
		if c.FinishReason != "" {
			x.finish = c.FinishReason
		}
	}
	if reply.Usage != nil {
		x.usage = reply.Usage
	}
	return reply.Done
}

// streamTap reads the events of a stream as they pass: what stands after prefix
// in its lines.
type streamTap struct {
	io.ReadCloser
	w      *witness
	x      *exchange
	prefix []byte
	line   []byte
}

func (s *streamTap) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.line = append(s.line, p[:n]...)
	for {
		line, rest, ok := bytes.Cut(s.line, []byte("\n"))
		if !ok {
			return n, err
		}
		s.line = rest
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), s.prefix)
		switch {
		case !ok:
		case string(data) == "[DONE]", s.w.note(s.x, data):
			s.w.over(s.x, true)
		}
	}
}

// all returns a copy of what was seen so far.
func (w *witness) all() []exchange {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]exchange, len(w.exchanges))
	for i, x := range w.exchanges {
		out[i] = *x
	}
	return out
}

// of returns the exchanges of one prompt.
func (w *witness) of(prompt string) []exchange {
	var out []exchange
	for _, x := range w.all() {
		if x.prompt == prompt {
			out = append(out, x)
		}
	}
	return out
}

// inFlight returns the completions in flight now, and the most there ever were.
func (w *witness) inFlight() (now, peak int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.active, w.peak
}

// slowestAt returns the whole service time of the slowest completion that was
// running at a moment; 0 when none was.
func slowestAt(xs []exchange, at time.Time) time.Duration {
	var slowest time.Duration
	for _, x := range xs {
		if !x.start.After(at) && x.end.After(at) {
			slowest = max(slowest, x.end.Sub(x.start))
		}
	}
	return slowest
}

const (
	witnessWhole  = `{"choices":[{"finish_reason":"length","index":0,"message":{"role":"assistant","content":" Paris"}}],"usage":{"completion_tokens":40,"prompt_tokens":13,"total_tokens":53,"prompt_tokens_details":{"cached_tokens":3}}}`
	witnessChunks = `data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}]}

data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":" Пари"}}]}

data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"ж"}}]}

data: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}]}

data: {"choices":[],"usage":{"completion_tokens":2,"prompt_tokens":30,"total_tokens":32,"prompt_tokens_details":{"cached_tokens":25}}}

data: [DONE]

`
)

// scripted is a model server of three answers: whole, a stream cut anywhere, and
// one that never ends; hold is closed once that one's caller has gone.
func scripted(hold chan<- struct{}) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case bytes.Contains(body, []byte("hang")):
			rw.Header().Set("Content-Type", "text/event-stream")
			rw.WriteHeader(http.StatusOK)
			http.NewResponseController(rw).Flush()
			<-r.Context().Done()
			close(hold)
		case bytes.Contains(body, []byte(`"stream":true`)):
			rw.Header().Set("Content-Type", "text/event-stream")
			for i := 0; i < len(witnessChunks); i += 7 { // cut anywhere
				io.WriteString(rw, witnessChunks[i:min(i+7, len(witnessChunks))])
				http.NewResponseController(rw).Flush()
			}
		default:
			rw.Header().Set("Content-Type", "application/json; charset=utf-8")
			io.WriteString(rw, witnessWhole)
		}
	})
}

// TestWitness holds the witness itself against the recorded answers of a server.
func TestWitness(t *testing.T) {
	hold := make(chan struct{})
	server := httptest.NewServer(scripted(hold))
	t.Cleanup(server.Close)
	w, at := newWitness(t, server.URL)

	post := func(ctx context.Context, body string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	read := func(body string) string {
		t.Helper()
		resp := post(t.Context(), body)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := read(`{"messages":[{"role":"user","content":"one"}]}`); got != witnessWhole {
		t.Errorf("the answer was changed: %s", got)
	}
	if got := read(`{"messages":[{"role":"user","content":[{"type":"text","text":"two"}]}],"stream":true}`); got != witnessChunks {
		t.Errorf("the stream was changed: %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	resp := post(ctx, `{"messages":[{"role":"user","content":"hang"}],"stream":true}`)
	cancel()
	resp.Body.Close()
	<-hold

	one, two := w.of("one"), w.of("two")
	if len(one) != 1 || one[0].usage == nil || one[0].usage.Prompt != 13 || one[0].usage.Completion != 40 ||
		one[0].usage.Details.Cached != 3 || one[0].text != " Paris" || one[0].finish != "length" || one[0].hungUp() {
		t.Errorf("answer seen as %+v", one)
	}
	if len(two) != 1 || two[0].usage == nil || two[0].usage.Prompt != 30 || two[0].usage.Completion != 2 ||
		two[0].text != " Париж" || two[0].finish != "stop" || !two[0].stream || two[0].hungUp() {
		t.Errorf("stream seen as %+v", two)
	}
	eventually(t, "the hang-up is seen", func() string {
		if xs := w.of("hang"); len(xs) == 1 && xs[0].hungUp() {
			return ""
		}
		return "it is not"
	})
	if now, peak := w.inFlight(); now != 0 || peak != 1 {
		t.Errorf("%d in flight at the end and %d at most, want 0 and 1", now, peak)
	}
}
