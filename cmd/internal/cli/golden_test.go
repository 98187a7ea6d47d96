package cli

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/subjects"
)

const (
	healthJSON = `{"status":"ok","version":"v0.1.0","mode":"public","uptimeSeconds":3725,"inFlightRequests":11,
"providers":{"openai":{"available":true,"mode":"api","breaker":"closed"},"groq":{"available":false,"mode":"api","reason":"GROQ_API_KEY is not set"},"copilot":{"available":true,"mode":"subscription","breaker":"closed","quota":"exhausted","retryAt":"2026-03-01T13:05:00.000Z"},"gemini":{"available":true,"mode":"api","breaker":"open","quota":"ok","retryAt":"2026-03-01T12:00:45.000Z"}},
"pools":{"openai/gpt-5-mini":{"cap":12,"active":11,"queued":4,"peak":12,"granted":12345}},
"classes":{"ingestion":{"slots":8,"active":8,"queued":4,"peak":8,"granted":12000},"interactive":{"slots":6,"active":3,"queued":0,"peak":5,"granted":345}},
"usage":{"pending":0,"lastSeq":12345,"appliedSeq":12340},"canServe":true}`
	degradedJSON  = `{"status":"degraded","reasons":["the disk is full","no provider is configured"],"version":"dev","mode":"mock","uptimeSeconds":5,"inFlightRequests":0,"providers":{},"pools":{},"classes":{},"usage":{"pending":3,"lastSeq":3,"appliedSeq":0,"error":"no space left on device"},"canServe":false}`
	providersJSON = `{"providers":[{"provider":"openai","available":true,"account":"api-key","models":{"fast":"gpt-5-mini","standard":"gpt-5-mini","premium":"gpt-5"},"capabilities":["tools","images","streaming"],"breaker":{"state":"half-open","failures":5,"opened":2,"reason":"TIMEOUT"},"quota":{"state":"ok","tracked":false,"completions":12,"tokens":30400,"softLimit":0}},
{"provider":"copilot","available":true,"account":"copilot-subscription","models":{"standard":"claude-sonnet-4.5"},"capabilities":["tools"],"breaker":{"state":"closed","failures":1,"opened":0},"quota":{"state":"exhausted","tracked":true,"completions":112,"tokens":251000,"softLimit":100,
"exhausted":[{"since":"2026-03-01T11:55:00.000Z","retryAt":"2026-03-01T12:10:00.000Z","times":2},{"model":"claude-opus-5","since":"2026-02-28T11:55:00.000Z","retryAt":"2026-03-01T12:10:00.000Z","resetAt":"2026-03-02T00:00:00.000Z","times":1}],
"windows":[{"name":"premium_interactions","used":1.02,"resetAt":"2026-04-01T00:00:00.000Z","seenAt":"2026-03-01T11:59:48.000Z"}]}},
{"provider":"claude-code","available":true,"account":"max-subscription","models":{"fast":"sonnet"},"capabilities":["tools"],"breaker":{"state":"open","failures":1,"opened":1,"retryAt":"2026-03-01T12:00:45.000Z","reason":"AUTH_ERROR"},"quota":{"state":"soft_limit","tracked":true,"completions":100,"tokens":180000,"softLimit":100,
"windows":[{"name":"5h","used":0.82,"status":"allowed_warning","resetAt":"2026-03-01T14:00:00.000Z","seenAt":"2026-03-01T11:59:48.000Z","heldFor":"interactive"},{"name":"7d","used":0.31,"status":"allowed","seenAt":"2026-03-01T11:30:00.000Z"}]},"new":1},
{"provider":"groq","available":false,"reason":"GROQ_API_KEY is not set","account":"api-key","models":{},"capabilities":[]},
{"provider":"evil\u001b[2J","available":true,"account":"local","models":{"standard":"m"},"capabilities":["streaming"]}]}`
	routeJSON   = `{"tier":"premium","task":"insight_generation","class":"interactive","chain":[{"provider":"copilot","model":"claude-opus-5"},{"provider":"groq","model":"openai/gpt-oss-120b"}],"skipped":[{"provider":"anthropic","reason":"unavailable","detail":"ANTHROPIC_API_KEY is not set"},{"provider":"claude-code","reason":"quota","detail":"the quota is used up","retryAt":"2026-03-01T12:10:00.000Z"}],"notes":["unknown task, default tier"],"sensitivity":"internal","summary":"insight_generation is premium: copilot/claude-opus-5, then groq/openai/gpt-oss-120b"}`
	noRouteJSON = `{"tier":"fast","class":"interactive","chain":[],"skipped":[],"summary":"nobody"}`
	waitingJSON = `{"tier":"fast","class":"ingestion","chain":[],"skipped":[{"provider":"groq","reason":"breaker","detail":"the breaker is open","retryAt":"2026-03-01T12:00:45.000Z"}],"summary":"call (tier fast) -> no provider [groq skipped: the breaker is open until 12:00]","retryAt":"2026-03-01T12:00:45.000Z"}`
	metricsJSON = `{"since":"2026-03-01T09:00:00.000Z","providers":{"groq":{"calls":1300,"successes":1200,"failures":90,"cancelled":10,"errors":{"TIMEOUT":30,"RATE_LIMITED":60},"successRate":0.9302,"failureRate":0.0698,"avgLatencyMs":420.5,"p50LatencyMs":400,"p95LatencyMs":1250,"maxLatencyMs":8000,"callsPerMinute":12.4,"tokensPerMinute":15400.4,"inputTokens":1000000,"outputTokens":200000,"totalTokens":1200000,"estimatedCostUsd":0.62,"savedUsd":0,"unpriced":3},
"copilot":{"calls":4,"successes":0,"failures":0,"cancelled":4,"errors":{},"successRate":0,"failureRate":0},"dmr":{"calls":0}},
"cache":{"hits":120,"misses":50,"shared":30,"hitRatio":0.75,"entries":48,"maxEntries":1000,"bytes":1258291,"maxBytes":67108864,"evicted":3}}`
	noMetricsJSON = `{"since":"2026-03-01T09:00:00.000Z","providers":{},"cache":{"maxEntries":1000,"maxBytes":67108864,"bytes":512}}`
	totals        = `"calls":23,"errors":1,"cached":2,"inputTokens":12345,"outputTokens":678,"totalTokens":13023,"cacheReadTokens":0,"cacheWriteTokens":0,"reasoningTokens":0,"estimated":1,"costUsd":0.1234,"savedUsd":1.5,"unpriced":3,"unpricedTokens":423,"savedUnknown":2,"avgLatencyMs":401.4,"avgQueuedMs":250.2`
	writerShare   = `"calls":20,"errors":1,"cached":2,"inputTokens":12000,"outputTokens":600,"totalTokens":12600,"estimated":1,"costUsd":0.1234,"savedUsd":1.5,"unpriced":0,"avgLatencyMs":401,"avgQueuedMs":290`
	askShare      = `"calls":3,"errors":0,"cached":0,"inputTokens":345,"outputTokens":78,"totalTokens":423,"costUsd":0,"savedUsd":0,"unpriced":3,"unpricedTokens":423,"savedUnknown":2,"avgLatencyMs":402,"avgQueuedMs":0`
	summaryJSON   = `{"from":"2026-02-28T12:00:00.000Z","to":"2026-03-01T12:00:00.000Z","hours":24,"bucketMinutes":3,"totals":{` + totals + `},"byProvider":[{"name":"openai",` + writerShare + `,"share":0.9675}],"byProcess":[{"name":"writer",` + writerShare + `,"share":0.9675},{"name":"ask_service",` + askShare + `,"share":0.0325}],"byModel":[{"name":"gpt-5-mini",` + writerShare + `,"share":0.9675},{"name":"gpt-x",` + askShare + `,"share":0.0325}],"timeline":[]}`
	emptySummary  = `{"from":"2026-03-01T11:00:00.000Z","to":"2026-03-01T12:00:00.000Z","hours":1,"bucketMinutes":1,"totals":{},"byProvider":[],"byProcess":[],"byModel":[],"timeline":[]}`
	recentJSON    = `{"calls":[{"id":"c2","timestamp":"2026-03-01T11:59:58.250Z","provider":"openai","model":"gpt-5-mini","process":"writer","class":"ingestion","input_tokens":1200,"output_tokens":34,"tokens_estimated":true,"cost_usd":null,"latency_ms":1400.4,"queued_ms":0.2,"outcome":"TIMEOUT","partial":true,"prompt_preview":"Write the\npage"},
{"id":"c1","timestamp":"2026-03-01T11:59:50.000Z","provider":"mock","model":"mock-fast","process":"unknown","class":"interactive","input_tokens":3,"output_tokens":5,"cost_usd":0,"latency_ms":0,"queued_ms":0,"cached":true,"outcome":"ok","prompt_preview":"hello"}]}`
	resultJSON = `{"callId":"c1","content":"Hello there.","finishReason":"stop","provider":"mock","model":"mock-standard","modelRaw":"mock-standard","tier":"standard","class":"interactive","process":"unknown","subscription":"mock","usage":{"inputTokens":1234,"outputTokens":5,"totalTokens":1239},"costUsd":0.0012,"warnings":["temperature was left out"],"latencyMs":402.3,"queuedMs":650,"overheadMs":0.2,"attempts":[],"somethingNew":1}`
)

// answers is a node that always says the same.
func answers(t *testing.T, r *responder) {
	t.Helper()
	r.says(subjects.QueryHealth, healthJSON)
	r.says(subjects.QueryProviders, providersJSON)
	r.says(subjects.QueryRoute, routeJSON)
	r.says(subjects.QueryMetrics, metricsJSON)
	r.says(subjects.AdminQuotaReset, `{"provider":"copilot","lifted":2}`)
	r.says(subjects.AdminCacheClear, `{"entries":1234}`)
	r.says(subjects.AdminReload, `{"changed":true,"file":"my.yaml","notes":["pools.classes needs a restart"]}`)
	r.on(subjects.QueryUsageSummary, func(m *nats.Msg) {
		if strings.Contains(string(m.Data), `"hours":1}`) {
			_ = m.Respond([]byte(emptySummary))
			return
		}
		_ = m.Respond([]byte(summaryJSON))
	})
	r.says(subjects.QueryUsageRecent, recentJSON)
	r.on(subjects.Complete(subjects.ClassInteractive), answerCall)
	r.on(subjects.Complete(subjects.ClassIngestion), refuseCall)
}

func answerCall(m *nats.Msg) {
	if !strings.Contains(string(m.Data), `"stream":true`) {
		_ = m.Respond([]byte(resultJSON))
		return
	}
	_ = m.Respond([]byte(`{"type":"delta","content":"Hello "}`))
	_ = m.Respond([]byte(`{"type":"delta","content":"there.\u001b[31m"}`))
	if strings.Contains(string(m.Data), "break") {
		respondError(m, &subjects.Error{Kind: subjects.KindProvider, Message: "the stream broke off", Provider: "mock", CallID: "c1"})
		_ = m.Respond(nil)
		return
	}
	_ = m.Respond([]byte(`{"type":"result",` + resultJSON[1:]))
	_ = m.Respond(nil)
}

func refuseCall(m *nats.Msg) {
	respondError(m, &subjects.Error{
		Kind: subjects.KindNoProvider, Message: "every provider waits for a limit", RetryAfter: 12e9, CallID: "c1", HTTPStatus: 429,
		Attempts: []subjects.Attempt{{Provider: "groq", Model: "llama", Outcome: "RATE_LIMITED", Ms: 40}, {Provider: "openai", Outcome: "skipped", Reason: "breaker"}},
	})
}

func respondError(m *nats.Msg, e *subjects.Error) {
	out := e.Msg()
	_ = m.RespondMsg(&nats.Msg{Header: nats.Header(out.Header), Data: out.Data})
}

func TestOutputs(t *testing.T) {
	s := natsServer(t)
	answers(t, newResponder(t, s))
	term, narrow := terminal{tty: true, colour: true, width: 120}, terminal{tty: true, width: 50}
	for _, tc := range []struct {
		name  string
		args  []string
		stdin string
		term  terminal
	}{
		{name: "health", args: []string{"health"}},
		{name: "health-terminal", args: []string{"health"}, term: term},
		{name: "health-json", args: []string{"health", "--json"}},
		{name: "providers", args: []string{"providers"}},
		{name: "providers-narrow", args: []string{"providers"}, term: narrow},
		{name: "explain", args: []string{"explain", "--task", "insight_generation"}},
		{name: "explain-json", args: []string{"explain", "--json"}},
		{name: "quota", args: []string{"quota"}},
		{name: "quota-terminal", args: []string{"quota"}, term: term},
		{name: "quota-narrow", args: []string{"quota"}, term: narrow},
		{name: "quota-one", args: []string{"quota", "openai"}},
		{name: "quota-json", args: []string{"quota", "show", "claude-code", "--json"}},
		{name: "quota-unknown", args: []string{"quota", "copilt"}},
		{name: "quota-reset", args: []string{"quota", "reset", "copilot"}},
		{name: "quota-reset-json", args: []string{"quota", "reset", "copilot", "--json"}},
		{name: "metrics", args: []string{"metrics"}},
		{name: "metrics-narrow", args: []string{"metrics"}, term: narrow},
		{name: "metrics-json", args: []string{"metrics", "--json"}},
		{name: "cache-clear", args: []string{"cache", "clear"}},
		{name: "cache-clear-json", args: []string{"cache", "clear", "--json"}},
		{name: "reload", args: []string{"reload"}},
		{name: "reload-json", args: []string{"reload", "--json"}},
		{name: "usage", args: []string{"usage"}},
		{name: "usage-terminal", args: []string{"usage", "--by", "model"}, term: term},
		{name: "usage-narrow", args: []string{"usage", "--hours", "24"}, term: narrow},
		{name: "usage-empty", args: []string{"usage", "--hours", "1"}},
		{name: "usage-json", args: []string{"usage", "show", "--json"}},
		{name: "usage-recent", args: []string{"usage", "--recent", "2"}},
		{name: "usage-recent-narrow", args: []string{"usage", "--recent", "2"}, term: narrow},
		{name: "usage-recent-json", args: []string{"usage", "--recent", "2", "--json"}},
		{name: "complete", args: []string{"complete", "hello"}},
		{name: "complete-terminal", args: []string{"complete", "hello"}, term: term},
		{name: "complete-stdin", args: []string{"complete", "--system", "be brief", "-"}, stdin: "hello\n"},
		{name: "complete-json", args: []string{"complete", "--json", "hello"}},
		{name: "complete-stream", args: []string{"complete", "--stream", "hello"}},
		{name: "complete-stream-terminal", args: []string{"complete", "--stream", "hello"}, term: term},
		{name: "complete-stream-json", args: []string{"complete", "--stream", "--json", "hello"}},
		{name: "complete-stream-broken", args: []string{"complete", "--stream", "break"}},
		{name: "complete-stream-broken-json", args: []string{"complete", "--stream", "--json", "break"}},
		{name: "complete-refused", args: []string{"complete", "--class", "ingestion", "hello"}},
		{name: "complete-refused-json", args: []string{"complete", "--class", "ingestion", "--json", "hello"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ses := newSession(tc.stdin, tc.term, "SLUICE_NATS_URL="+s.ClientURL())
			code := ses.app.run(t.Context(), tc.args)
			golden(t, tc.name, transcript(tc.args, code, ses.out.String(), ses.err.String()))
		})
	}
}

// TestAnswersNobodyExpects has nodes that are sick, old or new.
func TestAnswersNobodyExpects(t *testing.T) {
	for name, tc := range map[string]struct {
		args    []string
		subject string
		answer  string
	}{
		"degraded":        {[]string{"health"}, subjects.QueryHealth, degradedJSON},
		"degraded-json":   {[]string{"health", "--json"}, subjects.QueryHealth, degradedJSON},
		"no-route":        {[]string{"explain"}, subjects.QueryRoute, noRouteJSON},
		"no-route-yet":    {[]string{"explain"}, subjects.QueryRoute, waitingJSON},
		"no-quota":        {[]string{"quota"}, subjects.QueryProviders, `{"providers":[{"provider":"mock","quota":{"state":"ok"}},{"provider":"dmr"}]}`},
		"no-providers":    {[]string{"quota"}, subjects.QueryProviders, `{"providers":[7]}`},
		"no-holds":        {[]string{"quota", "reset", "groq"}, subjects.AdminQuotaReset, `{"provider":"groq","lifted":0}`},
		"no-metrics":      {[]string{"metrics"}, subjects.QueryMetrics, noMetricsJSON},
		"no-change":       {[]string{"reload"}, subjects.AdminReload, `{"changed":false}`},
		"no-routes":       {[]string{"usage", "--routes", "--hours", "1"}, subjects.QueryUsageRecent, `{"calls":[]}`},
		"no-calls":        {[]string{"usage", "--recent", "5"}, subjects.QueryUsageRecent, `{"calls":[]}`},
		"not-json":        {[]string{"health"}, subjects.QueryHealth, "hello"},
		"not-a-result":    {[]string{"complete", "hi"}, subjects.Complete("interactive"), "[]"},
		"not-an-event":    {[]string{"complete", "--stream", "hi"}, subjects.Complete("interactive"), "[]"},
		"no-result":       {[]string{"complete", "--stream", "--call-id", "c9", "hi"}, subjects.Complete("interactive"), ""},
		"not-a-record":    {[]string{"usage", "--recent", "5"}, subjects.QueryUsageRecent, `{"calls":[7]}`},
		"no-answer":       {[]string{"providers"}, "", ""},
		"no-answer-json":  {[]string{"providers", "--json"}, "", ""},
		"no-answer-calls": {[]string{"complete", "--call-id", "c9", "hi"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := natsServer(t)
			if tc.subject != "" {
				newResponder(t, s).says(tc.subject, tc.answer)
			}
			ses := newSession("", terminal{}, "SLUICE_NATS_URL="+s.ClientURL())
			code := ses.app.run(t.Context(), tc.args)
			golden(t, name, transcript(tc.args, code, ses.out.String(), ses.err.String()))
		})
	}
}

func TestWrongUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"none":          {},
		"command":       {"helth"},
		"flag":          {"complete", "--tear", "fast", "hi"},
		"prompt":        {"complete"},
		"words":         {"complete", "two", "words"},
		"dash":          {"complete", "- an item"},
		"empty-prompt":  {"complete", "  "},
		"empty-stdin":   {"complete", "-"},
		"utf8":          {"complete", "\xff"},
		"class":         {"complete", "--class", "batch", "hi"},
		"tier":          {"complete", "--tier", "huge", "hi"},
		"timeout":       {"complete", "--timeout", "2h", "hi"},
		"timeout-unit":  {"complete", "--timeout", "5", "hi"},
		"by":            {"usage", "--by", "day"},
		"hours":         {"usage", "--hours", "0"},
		"recent":        {"usage", "--recent", "100000"},
		"recent-hours":  {"usage", "--recent", "5", "--hours", "5"},
		"routes":        {"usage", "--routes", "--recent", "5"},
		"needs":         {"explain", "--needs", "images,document"},
		"sensitivity":   {"explain", "--sensitivity", "confidental"},
		"quota-reset":   {"quota", "reset"},
		"demo-costs":    {"demo", "--costs", "--data", "d"},
		"subject":       {"events", "a..b"},
		"url":           {"health", "--nats-url", "nats://me:secret@host:port"},
		"password":      {"health", "--password", "x"},
		"subcommand":    {"config"},
		"serve-joins":   {"serve", "--nats-url", "nats://a:4222", "--nats-listen", "none"},
		"serve-joinurl": {"serve", "--nats-url", "nats://me:secret@host:port"},
		"log-level":     {"serve", "--log-level", "loud"},
	} {
		t.Run(name, func(t *testing.T) {
			ses := newSession("", terminal{})
			code := ses.app.run(t.Context(), args)
			shown := append([]string{}, args...)
			for i := range shown {
				shown[i] = strings.ToValidUTF8(shown[i], "?")
			}
			if code != exitUsage || ses.out.String() != "" {
				t.Errorf("exit status %d, stdout %q", code, ses.out.String())
			}
			if strings.Contains(ses.err.String(), "secret") {
				t.Error("a password is shown")
			}
			golden(t, "wrong-"+name, transcript(shown, code, ses.out.String(), ses.err.String()))
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{
		{"--help"},
		{"serve", "--help"},
		{"demo", "--help"},
		{"complete", "--help"},
		{"usage", "--help"},
		{"usage", "export", "--help"},
		{"health", "--help"},
		{"providers", "--help"},
		{"explain", "--help"},
		{"events", "--help"},
		{"quota", "--help"},
		{"quota", "reset", "--help"},
		{"metrics", "--help"},
		{"cache", "clear", "--help"},
		{"reload", "--help"},
		{"config", "--help"},
		{"config", "check", "--help"},
		{"config", "schema", "--help"},
		{"version", "--help"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			ses := newSession("", terminal{})
			code := ses.app.run(t.Context(), args)
			golden(t, "help-"+strings.ReplaceAll(strings.Join(args[:len(args)-1], "-"), " ", "-"),
				transcript(args, code, ses.out.String(), ses.err.String()))
		})
	}
}

func TestNotBuilt(t *testing.T) {
	for _, args := range [][]string{{"top"}, {"usage", "export", "--format", "csv"}} {
		ses := newSession("", terminal{})
		if code := ses.app.run(t.Context(), args); code != exitFailed || !strings.Contains(ses.err.String(), "not built yet") {
			t.Errorf("%v: exit status %d, %q", args, code, ses.err.String())
		}
	}
}
