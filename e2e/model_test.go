//go:build e2e_model

// Package e2e runs Sluice in front of a real model: llama.cpp's server with a
// small Gemma, on loopback. README.md says what it needs and how to run it.
package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

const (
	// interactiveAtOnce interactive calls are in the air at a time. It is less
	// than the cap, so that they never wait for each other longer than the
	// calls that were running when they came.
	interactiveAtOnce = 3
	// ingestionAtOnce is more than the cap, so that a queue forms.
	ingestionAtOnce = 6
	// pressure ingestion calls are open all the while that interactive calls
	// are made: providerCap run, at most, and the others wait.
	pressure = 12
	// pressureTokens is the length of their answers.
	pressureTokens = 16
	// skew is how much a waiting time in the log may exceed the witness's own
	// measure of the calls it waited for: the way between node and witness.
	skew = 100 * time.Millisecond
)

// suite is a node before a real model, with the witness between them.
type suite struct {
	in      install
	witness *witness
	server  string // the model server itself
	key     string
	node    *node
	callers *callers
	nc      *nats.Conn
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	s := &suite{in: installed(t), key: "key-" + nuid.Next()}
	s.server = startModel(t, s.in, s.key)
	var upstream string
	s.witness, upstream = newWitness(t, s.server)
	s.node = startNode(t, s.in, upstream, s.key)
	s.callers = &callers{in: s.in, node: s.node}
	nc, err := nats.Connect(s.node.natsURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	s.nc = nc
	return s
}

// TestRealModel sends real prompts to a real model through a whole node, and
// holds what callers and usage log say against what the model's server said.
func TestRealModel(t *testing.T) {
	s := newSuite(t)
	interactive, ingestion := plan()

	began := time.Now()
	queue := s.underPressure(t, func() { s.all(t, interactive, interactiveAtOnce) })
	s.all(t, ingestion, ingestionAtOnce)
	mine := slices.Concat(interactive, ingestion)
	calls := slices.Concat(mine, queue)
	t.Logf("%d calls through %s and %d from Go in %s", len(mine), strings.Join(callerNames, ", "), len(queue), time.Since(began).Round(time.Millisecond))

	rows := s.rows(t, len(calls))
	t.Run("answers", func(t *testing.T) { s.checkAnswers(t, calls) })
	t.Run("usage rows", func(t *testing.T) { s.checkRows(t, calls, rows) })
	t.Run("usage summary", func(t *testing.T) { s.checkSummary(t, calls) })
	t.Run("interactive passes the queue", func(t *testing.T) { s.checkOrder(t, interactive, queue, rows) })
	t.Run("cap", s.checkCap)
	t.Run("too long a prompt", s.checkTooLong)
	t.Run("hang-up", s.checkHangUp)
	t.Run("cancel", s.checkCancel)
	t.Run("idle", s.checkIdle)
	t.Run("stop", s.checkStop)
}

// plan spreads the prompts over callers, classes, streaming or not, and
// details asked for or not.
func plan() (interactive, ingestion []*call) {
	for i, prompt := range prompts {
		caller, stream, detail := callerNames[i%5], i/5%2 == 1, i/20%2 == 1
		if i/10%2 == 1 {
			ingestion = append(ingestion, newCall(caller, "ingestion", prompt, stream, detail))
		} else {
			interactive = append(interactive, newCall(caller, "interactive", prompt, stream, detail))
		}
	}
	return interactive, ingestion
}

// all makes the calls, so many at once.
func (s *suite) all(t *testing.T, calls []*call, atOnce int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	next := make(chan *call)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for c := range next {
				s.callers.make(ctx, c)
			}
		})
	}
	for _, c := range calls {
		next <- c
	}
	close(next)
	wg.Wait()
}

// underPressure runs work while ingestion calls fill the provider and queue
// behind it, and returns those calls.
func (s *suite) underPressure(t *testing.T, work func()) []*call {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	var (
		mu    sync.Mutex
		calls []*call
		n     int
		over  atomic.Bool
		wg    sync.WaitGroup
	)
	next := func() *call {
		mu.Lock()
		defer mu.Unlock()
		c := newCall("go", "ingestion", pressurePrompt(n), n%2 == 1, false)
		n++
		calls = append(calls, c)
		return c
	}
	for range pressure {
		wg.Go(func() {
			for !over.Load() && ctx.Err() == nil {
				goCall(ctx, s.nc, next(), pressureTokens)
			}
		})
	}
	eventually(t, "the queue is full", func() string {
		if now, _ := s.witness.inFlight(); now < providerCap {
			return fmt.Sprintf("%d calls at the server", now)
		}
		return ""
	})
	work()
	over.Store(true)
	wg.Wait()
	return calls
}

// row is a row of the usage log.
type row struct {
	ID              string  `json:"id"`
	Provider        string  `json:"provider"`
	Model           string  `json:"model"`
	Process         string  `json:"process"`
	Task            string  `json:"task"`
	Class           string  `json:"class"`
	InputTokens     int64   `json:"input_tokens"`
	OutputTokens    int64   `json:"output_tokens"`
	TotalTokens     int64   `json:"total_tokens"`
	CacheReadTokens int64   `json:"cache_read_tokens"`
	TokensEstimated bool    `json:"tokens_estimated"`
	QueuedMs        float64 `json:"queued_ms"`
	Cached          bool    `json:"cached"`
	Partial         bool    `json:"partial"`
	Outcome         string  `json:"outcome"`
	ChainPosition   int     `json:"chain_position"`
	PromptPreview   string  `json:"prompt_preview"`
}

// rows waits until the log has want rows and returns them.
func (s *suite) rows(t *testing.T, want int) []row {
	t.Helper()
	var recent struct {
		Calls []row `json:"calls"`
	}
	eventually(t, fmt.Sprintf("the usage log has %d rows", want), func() string {
		s.node.get(t, "/api/token-usage/recent?limit=1000", &recent)
		if len(recent.Calls) < want {
			return fmt.Sprintf("it has %d", len(recent.Calls))
		}
		return ""
	})
	if len(recent.Calls) != want {
		t.Errorf("the usage log has %d rows for %d calls", len(recent.Calls), want)
	}
	return recent.Calls
}

// of returns the rows of one call: by its id, or, for a caller that cannot give
// one, by the beginning of its prompt.
func of(rows []row, c *call) []row {
	var out []row
	for _, r := range rows {
		if r.ID == c.id || c.id == "" && previewOf(r.PromptPreview) == previewOf(c.prompt) {
			out = append(out, r)
		}
	}
	return out
}

// previewOf is what tells two prompts apart: their first forty characters,
// white space aside.
func previewOf(s string) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	return string(r[:min(40, len(r))])
}

// witnessed returns the one exchange of a call.
func (s *suite) witnessed(t *testing.T, c *call) (exchange, bool) {
	t.Helper()
	xs := s.witness.of(c.prompt)
	if len(xs) != 1 {
		t.Errorf("%s: the server was asked %d times, want once", c, len(xs))
		return exchange{}, false
	}
	return xs[0], true
}

// checkAnswers: every call was answered with what the model said, to the letter.
func (s *suite) checkAnswers(t *testing.T, calls []*call) {
	for _, c := range calls {
		if c.err != nil {
			t.Errorf("%s: %v", c, c.err)
			continue
		}
		x, ok := s.witnessed(t, c)
		if !ok {
			continue
		}
		if strings.TrimSpace(c.answer) == "" {
			t.Errorf("%s: the answer is empty", c)
		}
		// The command line ends its output with a newline.
		if strings.TrimRight(c.answer, "\n") != strings.TrimRight(x.text, "\n") {
			t.Errorf("%s:\n got %q\nwant %q", c, c.answer, x.text)
		}
		if c.usage != nil && x.usage != nil && *c.usage != *x.usage {
			t.Errorf("%s: the caller was told %+v, the server reported %+v", c, *c.usage, *x.usage)
		}
		if c.detail && c.usage == nil && (c.caller == "cli" || c.caller == "openai") {
			t.Errorf("%s: the caller was told no usage", c)
		}
	}
}

// checkRows: one row for each call, with the server's own numbers.
func (s *suite) checkRows(t *testing.T, calls []*call, rows []row) {
	for _, c := range calls {
		found := of(rows, c)
		if len(found) != 1 {
			t.Errorf("%s: %d rows, want one", c, len(found))
			continue
		}
		x, ok := s.witnessed(t, c)
		if !ok {
			continue
		}
		if x.usage == nil {
			t.Errorf("%s: the server reported no usage (a stream must ask for it)", c)
			continue
		}
		s.checkRow(t, c, found[0], *x.usage)
	}
}

func (s *suite) checkRow(t *testing.T, c *call, r row, u tokens) {
	t.Helper()
	if r.InputTokens+r.CacheReadTokens != u.Prompt || r.CacheReadTokens != u.Details.Cached ||
		r.OutputTokens != u.Completion || r.TotalTokens != r.InputTokens+r.OutputTokens || r.TokensEstimated {
		t.Errorf("%s: the row has %d in, %d cached, %d out, %d together, estimated=%t; the server reported %+v",
			c, r.InputTokens, r.CacheReadTokens, r.OutputTokens, r.TotalTokens, r.TokensEstimated, u)
	}
	if r.Outcome != "ok" || r.Partial || r.Cached || r.ChainPosition != 0 {
		t.Errorf("%s: outcome %s, partial=%t, cached=%t, chain position %d", c, r.Outcome, r.Partial, r.Cached, r.ChainPosition)
	}
	if r.Provider != "custom" || r.Model != s.in.modelName || r.Class != c.class || r.Process != c.process || r.Task != c.task {
		t.Errorf("%s: the row says provider %s, model %s, class %s, process %s, task %s", c, r.Provider, r.Model, r.Class, r.Process, r.Task)
	}
	if begin := []rune(c.prompt)[:5]; !strings.HasPrefix(r.PromptPreview, string(begin)) {
		t.Errorf("%s: the row's preview is %q", c, r.PromptPreview)
	}
}

// totals are the sums of a usage summary.
type totals struct {
	Calls           int64 `json:"calls"`
	Errors          int64 `json:"errors"`
	InputTokens     int64 `json:"inputTokens"`
	OutputTokens    int64 `json:"outputTokens"`
	TotalTokens     int64 `json:"totalTokens"`
	CacheReadTokens int64 `json:"cacheReadTokens"`
	Estimated       int64 `json:"estimated"`
}

type summary struct {
	Totals    totals `json:"totals"`
	ByProcess []struct {
		Name string `json:"name"`
		totals
	} `json:"byProcess"`
}

// expect sums what the server reported, for all calls and by process.
func (s *suite) expect(calls []*call) (all totals, byProcess map[string]totals) {
	byProcess = map[string]totals{}
	add := func(sum *totals, u tokens) {
		sum.Calls++
		sum.InputTokens += u.Prompt - u.Details.Cached
		sum.CacheReadTokens += u.Details.Cached
		sum.OutputTokens += u.Completion
		sum.TotalTokens += u.Prompt - u.Details.Cached + u.Completion
	}
	for _, c := range calls {
		for _, x := range s.witness.of(c.prompt) {
			if x.usage == nil {
				continue
			}
			p := byProcess[c.process]
			add(&all, *x.usage)
			add(&p, *x.usage)
			byProcess[c.process] = p
		}
	}
	return all, byProcess
}

// checkSummary: the sums are those of the server, over HTTP, NATS and the command line.
func (s *suite) checkSummary(t *testing.T, calls []*call) {
	want, byProcess := s.expect(calls)
	var over summary
	s.node.get(t, "/api/token-usage/summary?hours=1", &over)
	if over.Totals != want {
		t.Errorf("GET summary:\n got %+v\nwant %+v", over.Totals, want)
	}
	for _, p := range over.ByProcess {
		if p.totals != byProcess[p.Name] {
			t.Errorf("GET summary, process %s:\n got %+v\nwant %+v", p.Name, p.totals, byProcess[p.Name])
		}
		delete(byProcess, p.Name)
	}
	if len(byProcess) > 0 {
		t.Errorf("GET summary: these processes are missing: %v", byProcess)
	}

	reply, err := s.nc.Request("llm.query.usage.summary", []byte(`{"hours":1}`), patience)
	if err != nil {
		t.Fatal(err)
	}
	s.checkTotals(t, "llm.query.usage.summary", reply.Data, want)
	out, _, err := s.callers.run(t.Context(), nil, "", s.node.bin, "usage", "--hours", "1", "--json")
	if err != nil {
		t.Fatal(err)
	}
	s.checkTotals(t, "sluice usage", []byte(out), want)
	t.Logf("tokens of %d calls: %d in, %d read from the server's cache, %d out", want.Calls, want.InputTokens, want.CacheReadTokens, want.OutputTokens)
}

func (s *suite) checkTotals(t *testing.T, where string, data []byte, want totals) {
	t.Helper()
	var got summary
	if err := json.Unmarshal(data, &got); err != nil {
		t.Errorf("%s: %v: %s", where, err, data)
	} else if got.Totals != want {
		t.Errorf("%s:\n got %+v\nwant %+v", where, got.Totals, want)
	}
}

// checkOrder: each interactive call came while ingestion calls waited, and was
// served before the slowest call that was running then had been served.
func (s *suite) checkOrder(t *testing.T, interactive, queue []*call, rows []row) {
	xs := s.witness.all()
	var longest time.Duration
	for _, c := range interactive {
		found := of(rows, c)
		x, ok := s.witnessed(t, c)
		if len(found) != 1 || !ok {
			continue
		}
		queued := time.Duration(found[0].QueuedMs * float64(time.Millisecond))
		longest = max(longest, queued)
		bound := slowestAt(xs, x.start.Add(-queued))
		if queued > bound+skew {
			t.Errorf("%s: waited %s; the slowest call that was running then took %s", c, queued, bound)
		}
		if !waiting(queue, rows, xs, x.start) {
			t.Errorf("%s: no ingestion call was waiting when it was served, so this shows nothing", c)
		}
	}
	var behind, slowest time.Duration
	for _, c := range queue {
		for _, r := range of(rows, c) {
			behind = max(behind, time.Duration(r.QueuedMs*float64(time.Millisecond)))
		}
	}
	for _, x := range xs {
		slowest = max(slowest, x.end.Sub(x.start))
	}
	t.Logf("longest wait: %s interactive, %s ingestion; slowest service %s", longest, behind, slowest)
	if behind <= longest {
		t.Errorf("no ingestion call waited longer than %s: there was no queue to pass", longest)
	}
}

// waiting reports whether one of the calls was in the node's queue at a moment:
// it reached the server later, and had begun to wait before.
func waiting(calls []*call, rows []row, xs []exchange, at time.Time) bool {
	for _, c := range calls {
		for _, r := range of(rows, c) {
			for _, x := range xs {
				queued := time.Duration(r.QueuedMs * float64(time.Millisecond))
				if x.prompt == c.prompt && x.start.After(at) && x.start.Add(-queued).Before(at) {
					return true
				}
			}
		}
	}
	return false
}

// checkCap: the cap was reached and never passed, and the node says the same.
func (s *suite) checkCap(t *testing.T) {
	if _, peak := s.witness.inFlight(); peak != providerCap {
		t.Errorf("at most %d calls were at the server at once, want %d", peak, providerCap)
	}
	if p := s.pool(t); p.Cap != providerCap || p.Peak != providerCap {
		t.Errorf("the node reports cap %d and peak %d, want %d", p.Cap, p.Peak, providerCap)
	}
}

type pool struct {
	Cap    int `json:"cap"`
	Active int `json:"active"`
	Queued int `json:"queued"`
	Peak   int `json:"peak"`
}

type health struct {
	Status   string          `json:"status"`
	InFlight int             `json:"inFlightRequests"`
	Pools    map[string]pool `json:"pools"`
	Classes  map[string]pool `json:"classes"`
}

func (s *suite) pool(t *testing.T) pool {
	t.Helper()
	var h health
	s.node.get(t, "/health", &h)
	return h.Pools["custom/"+s.in.modelName]
}

// checkIdle: all slots were given back.
func (s *suite) checkIdle(t *testing.T) {
	eventually(t, "the node is idle", func() string {
		var h health
		s.node.get(t, "/health", &h)
		busy := h.InFlight
		for _, p := range h.Pools {
			busy += p.Active + p.Queued
		}
		for _, c := range h.Classes {
			busy += c.Active + c.Queued
		}
		if busy > 0 || h.Status != "ok" {
			return fmt.Sprintf("%+v", h)
		}
		return ""
	})
}

// checkStop: SIGTERM ends the node with status 0, and its output has no key.
func (s *suite) checkStop(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.node.stop(ctx); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if strings.Contains(s.node.output(), s.key) {
		t.Error("the provider's key stands in the node's output")
	}
}
