package routing

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

func held(until time.Duration, detail string) Hold {
	return Hold{On: true, Until: at.Add(until), Detail: detail}
}

func trial(detail string) Hold {
	return Hold{On: true, Until: at.Add(-time.Minute), Trial: true, Detail: detail}
}

// TestReasons takes away from copilot, one by one and from the last to the first,
// all that a provider needs: the reason is the latest each time, and what is said
// of it is for people.
func TestReasons(t *testing.T) {
	t.Parallel()
	cfg := load(t)
	job := Job{Class: "ingestion", Needs: wire.NeedTools, Provider: "copilot"}
	st := State{Available: true, Has: ^wire.Need(0)}
	for _, c := range []struct {
		reason, detail string
		retry          time.Duration
		make           func()
	}{
		{"", "", 0, func() {}},
		{ReasonBreaker, "breaker open until 14:05:30 after PROVIDER_ERROR", 5*time.Minute + 30*time.Second, func() {
			st.Breaker = held(5*time.Minute+30*time.Second, "after PROVIDER_ERROR")
		}},
		{ReasonReserve, "quota reserve until 2026-03-03 14:00: 20 % of the week are kept for interactive", 48 * time.Hour, func() {
			st.Withheld = map[string]Hold{"ingestion": held(48*time.Hour, "20 % of the week are kept for interactive")}
		}},
		{ReasonQuota, "quota until 14:15 for claude-sonnet-4.5", 15 * time.Minute, func() {
			st.Models = map[string]Hold{"claude-sonnet-4.5": held(15*time.Minute, "for claude-sonnet-4.5")}
		}},
		{ReasonQuota, "quota until 14:05", 5 * time.Minute, func() { st.Quota = held(5*time.Minute, "") }},
		{ReasonNoModel, "no model for tier standard; set providers.copilot.models.standard or ask for copilot/<model>", 0, func() {
			delete(cfg.Providers["copilot"].Models, "standard")
		}},
		{ReasonCapability, "cannot do tools", 0, func() { st.Has = wire.NeedStreaming }},
		{ReasonBudget, "run r1 has used its 0.50 USD", 0, func() { job.LocalOnly, job.LocalReason = "run r1 has used its 0.50 USD", ReasonBudget }},
		{ReasonSubscription, "the call asks for paid providers only", 0, func() { job.ForcePaid = true }},
		{ReasonSensitivity, "the classifier did not answer", 0, func() { job.LocalOnly, job.LocalReason = "the classifier did not answer", ReasonSensitivity }},
		{ReasonSensitivity, "the classifier does not allow it to see this content", 0, func() { job.Only = []string{"groq"} }},
		{ReasonSensitivity, "confidential content may go to local providers only (sensitivity.allow)", 0, func() { job.Sensitivity = config.Confidential }},
		{ReasonPrivacy, "the call asks for local providers only", 0, func() { job.Privacy = "local" }},
		{ReasonUnavailable, "no login", 0, func() { st = State{Reason: ReasonUnavailable, Detail: "no login"} }},
		{ReasonNotHosted, "hosted on no node", 0, func() { st = State{Reason: ReasonNotHosted, Detail: "hosted on no node"} }},
		{ReasonUnavailable, "it has only just come", 0, func() { st = State{} }},
		{ReasonMode, "mode is local", 0, func() { cfg.Mode = config.ModeLocal }},
		{ReasonMode, "mode is mock", 0, func() { cfg.Mode = config.ModeMock }},
	} {
		c.make()
		d, err := New(cfg).Resolve(Snapshot{"copilot": st}, &job, at)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(d.Skipped, func(s subjects.Skipped) bool { return s.Provider == "copilot" })
		if c.reason == "" {
			if i >= 0 || chain(d) != "copilot/claude-sonnet-4.5" {
				t.Errorf("with nothing in its way: %+v", d)
			}
			continue
		}
		if i < 0 {
			t.Fatalf("%s: copilot is not left out", c.detail)
		}
		got := d.Skipped[i]
		if got.Reason != c.reason || got.Detail != c.detail {
			t.Errorf("%s: %q, want %s: %q", got.Reason, got.Detail, c.reason, c.detail)
		}
		if (got.RetryAt != nil) != (c.retry != 0) || got.RetryAt != nil && !got.RetryAt.Equal(at.Add(c.retry)) {
			t.Errorf("%s: may be tried at %v, want %s from now", c.reason, got.RetryAt, c.retry)
		}
	}
}

// TestHolds: what a hold does by its time and trial, and what is said of it.
func TestHolds(t *testing.T) {
	t.Parallel()
	detail := "after TIMEOUT"
	for _, c := range []struct {
		name   string
		reason string
		hold   Hold
		text   string // "" = it stands in the chain
		retry  time.Duration
		wait   time.Duration
	}{
		{"none", ReasonBreaker, Hold{}, "", 0, 0},
		{"not on", ReasonBreaker, Hold{Until: at.Add(time.Hour), Trial: true}, "", 0, 0},
		{"over", ReasonBreaker, held(-time.Second, detail), "", 0, 0},
		{"over this moment", ReasonQuota, held(0, ""), "", 0, 0},
		{"a moment", ReasonBreaker, held(time.Nanosecond, detail), "breaker open until 14:00:01 after TIMEOUT", time.Nanosecond, time.Millisecond},
		{"seconds", ReasonBreaker, held(59*time.Second, ""), "breaker open until 14:00:59", 59 * time.Second, 59 * time.Second},
		{"rounded up", ReasonQuota, held(5*time.Minute+time.Second, ""), "quota until 14:06", 5*time.Minute + time.Second, 5*time.Minute + time.Second},
		{"tomorrow, less than a day", ReasonQuota, held(23*time.Hour, ""), "quota until 13:00", 23 * time.Hour, 23 * time.Hour},
		{"a day", ReasonQuota, held(24*time.Hour, ""), "quota until 2026-03-02 14:00", 24 * time.Hour, 24 * time.Hour},
		{"trial, time over", ReasonBreaker, trial(detail), "breaker half-open after TIMEOUT, a trial call is under way", 0, time.Second},
		{"trial, before its time", ReasonQuota, Hold{On: true, Until: at.Add(time.Hour), Trial: true}, "quota used up, a trial call is under way", 0, time.Second},
		{"no time", ReasonBreaker, Hold{On: true, Detail: detail}, "breaker open after TIMEOUT", 0, 0},
		{"no time, quota", ReasonQuota, Hold{On: true, Detail: "for m"}, "quota used up for m", 0, 0},
		{"no time, reserve", ReasonReserve, Hold{On: true, Detail: "kept for interactive"}, "quota reserve: kept for interactive", 0, 0},
	} {
		st := State{Available: true}
		switch c.reason {
		case ReasonBreaker:
			st.Breaker = c.hold
		case ReasonQuota:
			st.Quota = c.hold
		default:
			st.Withheld = map[string]Hold{"ingestion": c.hold}
		}
		job := Job{Provider: "groq", Exact: true, Class: "ingestion"}
		d, err := New(load(t)).Resolve(Snapshot{"groq": st}, &job, at)
		if err != nil {
			t.Fatal(err)
		}
		if (c.text == "") != (len(d.Chain) == 1) {
			t.Errorf("%s: chain %s", c.name, chain(d))
		}
		if c.text == "" {
			continue
		}
		s := d.Skipped[0]
		if s.Reason != c.reason || s.Detail != c.text || (s.RetryAt != nil) != (c.retry > 0) || s.RetryAt != nil && !s.RetryAt.Equal(at.Add(c.retry)) {
			t.Errorf("%s: %+v, want %q", c.name, s, c.text)
		}
		live, end := HeldError(c.reason, c.hold, at), NoProvider(d)
		if live.Message != c.text || live.RetryAfter != c.wait || end.RetryAfter != c.wait || !strings.Contains(end.Message, c.text) {
			t.Errorf("%s: %v after %s; %v after %s, want after %s", c.name, live, live.RetryAfter, end, end.RetryAfter, c.wait)
		}
		if again := ChainEnd(&Decision{Tier: d.Tier}, []*subjects.Error{live}, at); again.Kind != end.Kind || again.Status() != end.Status() || again.RetryAfter != end.RetryAfter {
			t.Errorf("%s: found later it ends with %v, at once with %v", c.name, again, end)
		}
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	snap := with("copilot", "groq", "anthropic")
	snap["copilot"] = State{Available: true, Quota: held(5*time.Minute, "")}
	for _, id := range []string{"claude-code", "openai", "gemini", "github-models", "proxy", "dmr", "ollama", "custom"} {
		delete(snap, id)
	}
	job := Job{Task: "semantic_code_analysis", Sensitivity: "internal"}
	cfg := load(t)
	cfg.ProviderPriority["standard"] = []string{"copilot", "groq", "anthropic"}
	d, err := New(cfg).Resolve(snap, &job, at)
	if err != nil {
		t.Fatal(err)
	}
	got := d.Route(&job, "interactive")
	want := "semantic_code_analysis (tier standard) -> groq/llama-3.3-70b-versatile > anthropic/claude-sonnet-4-5 [copilot skipped: quota until 14:05; dmr skipped: it has only just come; ollama skipped: it has only just come]"
	if got.Summary != want || got.Sensitivity != "internal" || got.RetryAt != nil || got.Class != "interactive" {
		t.Errorf("%+v\nwant %s", got, want)
	}
	snap = Snapshot{"copilot": snap["copilot"], "groq": {Available: true, Breaker: held(time.Minute, "")}}
	d, _ = New(cfg).Resolve(snap, &Job{}, at)
	if got := d.Route(&Job{Task: "a\n\x1b[2Jtask ü"}, "").Summary; !strings.HasPrefix(got, "a··[2Jtask ü (tier standard)") {
		t.Errorf("a summary of more than one line: %q", got)
	}
	if got = d.Route(&Job{}, ""); got.RetryAt == nil || !got.RetryAt.Equal(at.Add(time.Minute)) || !strings.HasPrefix(got.Summary, "call (tier standard) -> no provider [") {
		t.Errorf("%+v", got)
	}
}

func TestSensitivityRules(t *testing.T) {
	t.Parallel()
	cfg := load(t)
	lab := &config.Provider{ID: "lab", Kind: config.KindOutside, Account: subjects.SubscriptionLocal, Models: map[string]string{"standard": "lab-1"}}
	cfg.Sensitivity.Allow = map[string][]string{"public": {"all"}, "internal": {"local", "anthropic", "lab"}, "confidential": {}}
	snap := with("groq", "anthropic", "ollama", "lab")
	r := New(cfg, lab)
	all := "groq/llama-3.3-70b-versatile > anthropic/claude-sonnet-4-5 > ollama/llama3.2 > lab/lab-1"
	for _, c := range []struct {
		job        Job
		chain, why string
	}{
		{Job{}, all, ""},
		{Job{Sensitivity: "public"}, all, ""},
		{Job{Sensitivity: "internal"}, "anthropic/claude-sonnet-4-5 > ollama/llama3.2 > lab/lab-1", "internal content may go to local, anthropic, lab only (sensitivity.allow)"},
		{Job{Sensitivity: "internal", Provider: "groq"}, "anthropic/claude-sonnet-4-5 > ollama/llama3.2 > lab/lab-1", "internal content may go to local, anthropic, lab only (sensitivity.allow)"},
		{Job{Sensitivity: "internal", Only: []string{"groq", "ollama"}}, "ollama/llama3.2", "internal content may go to local, anthropic, lab only (sensitivity.allow)"},
		{Job{Sensitivity: "confidential"}, "", "confidential content may go to nobody (sensitivity.allow)"},
		{Job{Only: []string{}}, "", "the classifier does not allow it to see this content"},
		{Job{LocalOnly: "no word from the classifier"}, "ollama/llama3.2 > lab/lab-1", "no word from the classifier"},
	} {
		d, err := r.Resolve(snap, &c.job, at)
		if err != nil {
			t.Fatal(err)
		}
		why := ""
		for _, s := range d.Skipped {
			if s.Provider == "groq" {
				why = s.Detail
			}
		}
		if chain(d) != c.chain || why != c.why {
			t.Errorf("%+v: %s, %q\nwant %s, %q", c.job, chain(d), why, c.chain, c.why)
		}
	}
	if _, err := r.Resolve(snap, &Job{Sensitivity: "confidental"}, at); subjects.KindOf(err) != subjects.KindValidation || !strings.Contains(err.Error(), "did you mean confidential") {
		t.Errorf("a word that is none: %v", err)
	}
}
