package cli

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/subjects"
)

// routeRecords are calls of the last hour, newest first, in four groups.
func routeRecords() []subjects.UsageRecord {
	var rows []subjects.UsageRecord
	at := time.Date(2026, 3, 1, 11, 59, 0, 0, time.UTC)
	add := func(n int, rec subjects.UsageRecord, trail ...subjects.Attempt) {
		for range n {
			at = at.Add(-time.Second)
			rec.Timestamp, rec.AttemptTrail = subjects.Time{Time: at}, trail
			rows = append(rows, rec)
		}
	}
	ok := func(provider string) subjects.Attempt {
		return subjects.Attempt{Provider: provider, Outcome: subjects.OutcomeOK, Ms: 5}
	}
	skipped := func(provider, reason string) subjects.Attempt {
		return subjects.Attempt{Provider: provider, Outcome: subjects.OutcomeSkipped, Reason: reason}
	}
	failed := func(provider, kind string) subjects.Attempt {
		return subjects.Attempt{Provider: provider, Outcome: kind, Ms: 7}
	}
	rec := subjects.UsageRecord{Task: "semantic_code_analysis", Tier: "standard", Outcome: "ok", Provider: "copilot", Model: "claude-sonnet-4.5"}
	add(90, rec, ok("copilot"))
	rec.Cached = true
	add(20, rec, ok("copilot"))
	rec.Cached, rec.Provider, rec.Model = false, "groq", "llama-3.3-70b-versatile"
	add(12, rec, skipped("copilot", "quota"), ok("groq"))
	rec.ChainPosition = 1
	add(3, rec, failed("copilot", "RATE_LIMITED"), failed("copilot", "RATE_LIMITED"), failed("copilot", "RATE_LIMITED"), ok("groq"))
	rec.ChainPosition, rec.Provider, rec.Model = 2, "openai", "gpt-5.4"
	add(2, rec, skipped("claude-code", "breaker"), failed("copilot", "TIMEOUT"), failed("groq", "PROVIDER_ERROR"), ok("openai"))
	rec.Outcome = "TIMEOUT"
	add(1, rec, failed("copilot", "QUOTA_EXHAUSTED"), skipped("dmr", "unavailable"), skipped("gemini", "breaker"),
		failed("openai", "TIMEOUT"), failed("openai", "TIMEOUT"), skipped("anthropic", "unavailable"))
	rec = subjects.UsageRecord{Task: "ask", Tier: "premium", Outcome: "ok", Provider: "team-llama", Model: "llama-70b"}
	add(2, rec, skipped("old-llama", "unavailable"), ok("team-llama"))
	rec = subjects.UsageRecord{Tier: "huge", Outcome: "CANCELLED", Provider: "mock", Model: "m"}
	add(1, rec, failed("mock", "CANCELLED"))
	at = at.Add(-2 * time.Hour)
	add(5, subjects.UsageRecord{Task: "yesterday", Tier: "fast", Outcome: "ok", Provider: "groq", Model: "m"}, ok("groq"))
	return rows
}

const routesChain = `{"tier":"standard","task":"semantic_code_analysis","class":"interactive","chain":[{"provider":"copilot","model":"claude-sonnet-4.5"},{"provider":"groq","model":"llama-3.3-70b-versatile"},{"provider":"anthropic","model":"claude-sonnet-4-5"}],"skipped":[{"provider":"claude-code","reason":"breaker","detail":"open"},{"provider":"dmr","reason":"unavailable","detail":"not there"},{"provider":"gemini","reason":"unavailable","detail":"no key"}],"summary":"…"}`

// routesNode answers with the newest rows, most of them too many for one message.
func routesNode(t *testing.T, most int) *session {
	t.Helper()
	s := natsServer(t)
	r := newResponder(t, s)
	rows := routeRecords()
	r.on(subjects.QueryUsageRecent, func(m *nats.Msg) {
		var q subjects.RecentQuery
		_ = json.Unmarshal(m.Data, &q)
		if q.Limit > most {
			e := subjects.Errorf(subjects.KindValidation, "the answer does not fit")
			e.Code = subjects.CodeReplyTooLarge
			respondError(m, e)
			return
		}
		b, _ := json.Marshal(map[string]any{"calls": rows[:min(q.Limit, len(rows))]})
		_ = m.Respond(b)
	})
	r.on(subjects.QueryRoute, func(m *nats.Msg) {
		switch {
		case strings.Contains(string(m.Data), "semantic"):
			_ = m.Respond([]byte(routesChain))
		case strings.Contains(string(m.Data), "huge"):
			respondError(m, subjects.Errorf(subjects.KindValidation, `tier: "huge" is not a tier`))
		default:
			_ = m.Respond([]byte(noRouteJSON))
		}
	})
	return newSession("", terminal{}, "SLUICE_NATS_URL="+s.ClientURL())
}

func TestRoutes(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		most int
		term terminal
	}{
		"routes":        {args: []string{"usage", "--routes", "--hours", "1"}, most: 10_000},
		"routes-fewer":  {args: []string{"usage", "--routes", "--hours", "1"}, most: 100},
		"routes-narrow": {args: []string{"usage", "--routes"}, most: 10_000, term: terminal{width: 60}},
		"routes-json":   {args: []string{"usage", "--routes", "--hours", "1", "--json"}, most: 5_000},
		"routes-none":   {args: []string{"usage", "--routes"}, most: 10},
	} {
		t.Run(name, func(t *testing.T) {
			ses := routesNode(t, tc.most)
			ses.app.out.width = func() int { return tc.term.width }
			code := ses.app.run(t.Context(), tc.args)
			golden(t, name, transcript(tc.args, code, ses.out.String(), ses.err.String()))
		})
	}
}

// TestRoutesAddUp holds, for any records, that each call is counted once in its
// group and once in what became of it.
func TestRoutesAddUp(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(4, 2))
	pick := func(names ...string) string { return names[r.IntN(len(names))] }
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for range 200 {
		var rows []json.RawMessage
		want := map[string]int{}
		for range r.IntN(200) {
			rec := subjects.UsageRecord{
				Task: fmt.Sprint("t", r.IntN(70)), Tier: pick("fast", "premium"), Provider: pick("a", "b"), Model: pick("m", "n"),
				Cached: r.IntN(4) == 0, Outcome: pick("ok", "ok", "TIMEOUT"), ChainPosition: r.IntN(3),
				Timestamp: subjects.Time{Time: now.Add(-time.Duration(r.IntN(90)) * time.Minute)},
			}
			for range r.IntN(4) {
				rec.AttemptTrail = append(rec.AttemptTrail, subjects.Attempt{Provider: pick("a", "b"), Outcome: pick("ok", "skipped", "TIMEOUT"), Reason: pick("", "quota")})
			}
			if !rec.Timestamp.Before(now.Add(-time.Hour)) {
				want[rec.Task+" "+rec.Tier]++
			}
			b, err := json.Marshal(&rec)
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, b)
		}
		got, err := routesOf(rows, true, 1, now)
		if err != nil {
			t.Fatal(err)
		}
		calls := got.OtherCalls
		for _, g := range got.Groups {
			calls += g.Calls
			if g.Calls != want[g.Task+" "+g.Tier] {
				t.Errorf("%s %s: %d calls, not %d", g.Task, g.Tier, g.Calls, want[g.Task+" "+g.Tier])
			}
			served, places, lost := 0, 0, int64(0)
			for _, s := range g.Answered {
				served += s.Calls
			}
			for _, p := range g.Positions {
				places += p.Calls
			}
			for _, n := range g.Failures {
				lost += n
			}
			if served != places || int(lost) != g.Failed || served+g.Failed+g.Cached != g.Calls {
				t.Errorf("%d served, %d by place, %d failed, %d cached: not %d calls", served, places, lost, g.Cached, g.Calls)
			}
			if slices.ContainsFunc(g.PassedBy, func(p *routePassed) bool { return p.Calls > g.Calls-g.Cached || p.Why == "ok" }) {
				t.Errorf("%s: passed by more often than asked", g.Task)
			}
		}
		if calls != got.Calls || len(got.Groups) > maxRouteGroups || len(got.Groups) != min(len(want), maxRouteGroups) {
			t.Errorf("%d calls in %d groups, not %d in %d", calls, len(got.Groups), got.Calls, len(want))
		}
	}
}
