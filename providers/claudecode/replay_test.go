package claudecode

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// The lines in testdata are what the real programs of these versions printed,
// with this package's arguments and environment, for one turn against a fake API
// on loopback (the replies to control requests left out, the init line cut). They
// are made anew by the tests of the real programs (real_test.go, -record), but for
// by-itself, which this package keeps from happening.
var versions = []string{"2.1.332", "2.1.197"}

// recorded is when the recordings with limits were made, in about.
func recorded(t *testing.T, path string) time.Time {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		if at := gjson.GetBytes(line, "rate_limit_info.resetsAt").Int(); at > 0 {
			return time.Unix(at, 0).Add(-time.Hour)
		}
	}
	return time.Unix(0, 0)
}

// replay reads the lines of a recording and returns what a caller would get.
func replay(t *testing.T, path string, schema bool) (resp *wire.Response, text string, err error) {
	t.Helper()
	b, readErr := os.ReadFile(path)
	if readErr != nil {
		t.Fatal(readErr)
	}
	now := recorded(t, path)
	in := &input{}
	if schema {
		in.schema = []byte(`{"type":"object"}`)
	}
	a := &answer{in: in, job: &providers.Job{Model: "sonnet"}, now: func() time.Time { return now }, asked: true}
	a.out = &outlet{yield: func(ev *wire.Event) error { text += ev.Text; return nil }}
	for line := range bytes.Lines(b) {
		if done, lineErr := a.line(gjson.ParseBytes(line)); done || lineErr != nil {
			return a.response(), text, lineErr
		}
	}
	t.Fatal("the recording has no end")
	return nil, "", nil
}

func TestRecordedAnswers(t *testing.T) {
	t.Parallel()
	base := subjects.Usage{InputTokens: 11, OutputTokens: 7, TotalTokens: 18, CacheReadTokens: 33, CacheWriteTokens: 22}
	twice := subjects.Usage{InputTokens: 22, OutputTokens: 14, TotalTokens: 36, CacheReadTokens: 66, CacheWriteTokens: 44}
	thought := base
	thought.OutputTokens, thought.TotalTokens, thought.ReasoningTokens = 40, 51, 31
	const hello = "Hello, wörld ✓"
	for _, c := range []struct {
		name, text, finish string
		usage              subjects.Usage
		bytes              int64
	}{
		{"ok", hello, subjects.FinishStop, base, int64(len(hello))},
		{"thinking", "done", subjects.FinishStop, thought, int64(len("hmm hmm" + "done"))},
		{"empty", "", subjects.FinishStop, subjects.Usage{InputTokens: 22, OutputTokens: 2, TotalTokens: 24, CacheReadTokens: 66, CacheWriteTokens: 44}, 0},
		{"max-tokens", hello, subjects.FinishLength, base, int64(len(hello))},
		{"refusal", hello, subjects.FinishContentFilter, base, int64(len(hello))},
		{"schema", `{"a":3}`, subjects.FinishStop, base, int64(len(schemaTool + `{"a": 3}`))},
		{"schema-at-last", `{"a":4}`, subjects.FinishStop, twice, int64(len("no" + schemaTool + `{"a": 4}`))},
	} {
		for _, v := range versions {
			resp, text, err := replay(t, filepath.Join("testdata", v, c.name+".jsonl"), strings.HasPrefix(c.name, "schema"))
			if err != nil || text != c.text || resp.FinishReason != c.finish || resp.Usage != c.usage || !resp.UsageKnown || resp.OutputBytes != c.bytes || resp.Model != "claude-sonnet-5-5" {
				t.Errorf("%s %s: %q, %+v, %v", v, c.name, text, resp, err)
			}
		}
	}
}

func TestRecordedFailures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		kind   subjects.Kind
		status int
		code   string
		says   string
		wait   time.Duration
		bytes  int64 // of a partial answer
	}{
		{name: "401", kind: subjects.KindAuth, status: 401, says: "expired"},
		{name: "403", kind: subjects.KindAuth, status: 401, says: "does not have permission"},
		{name: "403-org", kind: subjects.KindAuth, status: 401, says: "subscription"},
		{name: "404-model", kind: subjects.KindProviderUnavailable, status: 404, says: `the model "sonnet"`},
		{name: "400", kind: subjects.KindValidation, status: 400, says: "something is wrong"},
		{name: "400-long", kind: subjects.KindValidation, status: 400, code: subjects.CodeContextLength, says: "too long"},
		{name: "too-long-by-itself", kind: subjects.KindValidation, status: 400, code: subjects.CodeContextLength, says: "too long"},
		{name: "400-credit", kind: subjects.KindQuotaExhausted, status: 429, says: "Credit balance"},
		{name: "400-policy", kind: subjects.KindContentPolicy, status: 400, says: "content filtering"},
		{name: "400-extra-usage", kind: subjects.KindQuotaExhausted, status: 429, says: "extra usage"},
		{name: "402", kind: subjects.KindQuotaExhausted, status: 429, says: "billing"},
		{name: "413", kind: subjects.KindValidation, status: 400, code: subjects.CodeTooLarge, says: "too large"},
		{name: "429", kind: subjects.KindRateLimited, status: 429, says: "limiting requests"},
		{name: "429-plan", kind: subjects.KindQuotaExhausted, status: 429, says: "limit", wait: time.Hour},
		{name: "500", kind: subjects.KindProvider, status: 502, says: "500"},
		{name: "529", kind: subjects.KindProvider, status: 502, says: "Overloaded"},
		{name: "reset", kind: subjects.KindProvider, status: 502, says: "ECONNRESET"},
		{name: "mid-error", kind: subjects.KindProvider, status: 502, says: "Overloaded", bytes: 3},
		{name: "cut", kind: subjects.KindProvider, status: 502, says: "API Error", bytes: 3},
		{name: "no-end", kind: subjects.KindProvider, status: 502, says: "mid-answer", bytes: 3},
		{name: "by-itself", kind: subjects.KindProvider, status: 502, says: "by itself"},
		{name: "schema-not", kind: subjects.KindProvider, status: 502, says: "schema", bytes: 14},
		{name: "schema-refused", kind: subjects.KindProviderUnavailable, status: 422, says: "schema"},
	} {
		for _, v := range versions {
			resp, _, err := replay(t, filepath.Join("testdata", v, c.name+".jsonl"), strings.HasPrefix(c.name, "schema"))
			e := subjects.AsError(err)
			if e == nil || e.Kind != c.kind || e.Status() != c.status || e.Code != c.code || !strings.Contains(e.Message, c.says) || e.RetryAfter != c.wait {
				t.Errorf("%s %s: %#v", v, c.name, e)
				continue
			}
			cut := c.name == "mid-error" || c.name == "cut"
			switch {
			case resp.OutputBytes != c.bytes, resp.UsageKnown != (c.name == "schema-not"):
				t.Errorf("%s %s: beside it %+v", v, c.name, resp)
			case cut && (resp.Usage.InputTokens != 11 || resp.Usage.CacheReadTokens != 33 || resp.Usage.OutputTokens != 0):
				t.Errorf("%s %s: what went in is lost: %+v", v, c.name, resp.Usage)
			}
		}
	}
}

// Every recording is in one of the tables above.
func TestRecordingsAreUsed(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("replay_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, v := range versions {
		files, err := filepath.Glob(filepath.Join("testdata", v, "*.jsonl"))
		if err != nil || len(files) < 25 {
			t.Fatalf("%d recordings, %v", len(files), err)
		}
		for _, f := range files {
			all = append(all, strings.TrimSuffix(filepath.Base(f), ".jsonl"))
		}
	}
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		if !bytes.Contains(src, []byte(`"`+name+`"`)) {
			t.Errorf("testdata has %s, which no test reads", name)
		}
	}
}

// What is said of the plan's limits goes with the answer and with the error.
func TestLimits(t *testing.T) {
	t.Parallel()
	resp, _, _ := replay(t, filepath.Join("testdata", "2.1.332", "ok.jsonl"), false)
	for name, want := range map[string]string{
		"status": "allowed", "representative-claim": "five_hour", "5h-utilization": "1.01", "5h-status": "allowed_warning", "7d-utilization": "0.41",
	} {
		if got := resp.RateLimit["anthropic-ratelimit-unified-"+name]; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	_, _, err := replay(t, filepath.Join("testdata", "2.1.197", "429-plan.jsonl"), false)
	if e := subjects.AsError(err); e.RateLimit["anthropic-ratelimit-unified-status"] != "rejected" || e.RateLimit["anthropic-ratelimit-unified-reset"] == "" {
		t.Errorf("%v", e.RateLimit)
	}
	var l limits
	l.read(gjson.Parse(`{"status":"allowed","isUsingOverage":true,"resetsAt":99999999999999}`))
	a := answer{in: &input{warnings: []string{"x"}}, limit: l, job: &providers.Job{Model: "claude-opus-4-0"}, model: "claude-opus-5-5"}
	if w := a.warnings(); len(w) != 3 || !strings.Contains(w[1], "extra usage") || !strings.Contains(w[2], "claude-opus-5.5 in the place of claude-opus-4") || !l.resets.IsZero() {
		t.Errorf("%q, resets %v", w, l.resets)
	}
	far := failure{word: "rate_limit"}
	long := limits{status: "rejected", claim: "seven_day", resets: time.Unix(1<<39, 0)}
	if e := subjects.AsError(far.error(&long, time.Unix(0, 0), "m")); e.Kind != subjects.KindQuotaExhausted || e.RetryAfter != maxWait {
		t.Errorf("%v, wait %v", e, e.RetryAfter)
	}
}

// TestModelOnly: a limit of one kind of model leaves the account to the others.
func TestModelOnly(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_796_000_000, 0)
	for claim, want := range map[string]bool{
		"five_hour": false, "seven_day": false, "seven_day_opus": true, "seven_day_sonnet": true, "seven_day_overage_included": false, "overage": false, "": false,
	} {
		var l limits
		l.read(gjson.Parse(`{"status":"rejected","resetsAt":1796063565,"rateLimitType":"` + claim + `","unifiedWindows":{"seven_day_opus":{"utilization":1.01,"resetsAt":1796063565,"status":"rejected"}}}`))
		f := failure{word: "rate_limit", status: 429, text: "You've hit your limit"}
		e := subjects.AsError(f.error(&l, now, "opus"))
		if e.Kind != subjects.KindQuotaExhausted || e.ModelOnly != want || e.RateLimit["anthropic-ratelimit-unified-7d-opus-utilization"] != "1.01" {
			t.Errorf("%q: %+v", claim, e)
		}
	}
	slow := failure{word: "rate_limit", status: 429, text: "slow down"}
	if e := subjects.AsError(slow.error(&limits{status: "allowed", claim: "seven_day_opus"}, now, "opus")); e.Kind != subjects.KindRateLimited || e.ModelOnly {
		t.Errorf("%+v", e)
	}
}

// FuzzLines gives any lines as the program's output: an answer or an error of a
// known kind comes of it, and no sum is negative.
func FuzzLines(f *testing.F) {
	for _, v := range versions {
		files, _ := filepath.Glob(filepath.Join("testdata", v, "*.jsonl"))
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, strings.Contains(file, "schema"))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, schema bool) {
		in := &input{}
		if schema {
			in.schema = []byte(`{}`)
		}
		a := &answer{in: in, job: &providers.Job{Model: "claude-x"}, now: time.Now, asked: true}
		for line := range bytes.Lines(text) {
			if line = bytes.TrimSpace(line); len(line) == 0 || line[0] != '{' || !wire.ValidJSON(line) {
				continue
			}
			done, err := a.line(gjson.ParseBytes(line))
			if err != nil && !subjects.KindOf(err).Known() {
				t.Fatalf("%v", err)
			}
			if done || err != nil {
				break
			}
		}
		resp := a.response()
		if resp.OutputBytes < 0 || len(resp.Text) > len(text)*3+64 {
			t.Fatalf("%+v", resp)
		}
	})
}

// BenchmarkAnswer reads an answer of 200 pieces from a program's lines.
func BenchmarkAnswer(b *testing.B) {
	lines := [][]byte{[]byte(initLine), []byte(startLine), []byte(blockLine)}
	for range 200 {
		lines = append(lines, []byte(delta("seven b")))
	}
	lines = append(lines, []byte(endLine), []byte(stopLine), []byte(resultLine("…")))
	b.ReportAllocs()
	for b.Loop() {
		a := &answer{in: &input{}, job: &providers.Job{Model: "sonnet"}, now: time.Now, asked: true}
		for _, line := range lines {
			if _, err := a.line(gjson.ParseBytes(line)); err != nil {
				b.Fatal(err)
			}
		}
		if a.response().OutputBytes != 1400 {
			b.Fatal("not the whole answer")
		}
	}
}
