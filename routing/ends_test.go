package routing

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// TestFallbackDiagram goes down the seed's diagram row by row: what is left out
// at each, and who is asked first then.
func TestFallbackDiagram(t *testing.T) {
	t.Parallel()
	r, snap := New(load(t)), with("copilot", "groq", "claude-code", "anthropic", "dmr")
	hold := func(id string, quota, breaker Hold) {
		st := snap[id]
		st.Quota, st.Breaker = quota, breaker
		snap[id] = st
	}
	for _, row := range []struct {
		name  string
		make  func()
		chain string
		said  string
	}{
		{"all is well", func() {}, "copilot/claude-sonnet-4.5 > groq/llama-3.3-70b-versatile > claude-code/sonnet > anthropic/claude-sonnet-4-5 > dmr/ai/llama3.2", ""},
		{"copilot's quota", func() { hold("copilot", held(5*time.Minute, ""), Hold{}) }, "groq/llama-3.3-70b-versatile > claude-code/sonnet > anthropic/claude-sonnet-4-5 > dmr/ai/llama3.2", "copilot skipped: quota until 14:05"},
		{"groq's breaker", func() { hold("groq", Hold{}, held(time.Minute, "after PROVIDER_ERROR")) }, "claude-code/sonnet > anthropic/claude-sonnet-4-5 > dmr/ai/llama3.2", "groq skipped: breaker open until 14:01:00 after PROVIDER_ERROR"},
		{"claude-code's quota", func() { hold("claude-code", held(time.Hour, ""), Hold{}) }, "anthropic/claude-sonnet-4-5 > dmr/ai/llama3.2", "claude-code skipped: quota until 15:00"},
		{"anthropic fails", func() { hold("anthropic", Hold{}, held(time.Minute, "after TIMEOUT")) }, "dmr/ai/llama3.2", "anthropic skipped: breaker open until 14:01:00 after TIMEOUT"},
		{"the breaker's time is over", func() { hold("groq", Hold{}, held(0, "after PROVIDER_ERROR")) }, "groq/llama-3.3-70b-versatile > dmr/ai/llama3.2", ""},
		{"its trial is under way", func() { hold("groq", Hold{}, trial("after PROVIDER_ERROR")) }, "dmr/ai/llama3.2", "groq skipped: breaker half-open after PROVIDER_ERROR, a trial call is under way"},
		{"copilot's quota is back", func() { hold("copilot", Hold{}, Hold{}) }, "copilot/claude-sonnet-4.5 > dmr/ai/llama3.2", ""},
	} {
		row.make()
		d, err := r.Resolve(snap, &Job{}, at)
		if err != nil || chain(d) != row.chain {
			t.Fatalf("%s: %s, %v; want %s", row.name, chain(d), err, row.chain)
		}
		if got := d.Route(&Job{}, "").Summary; !strings.Contains(got, row.said) {
			t.Errorf("%s: %s; want %q in it", row.name, got, row.said)
		}
	}
}

// can is a provider that serves, with these capabilities alone.
func can(needs wire.Need) State { return State{Available: true, Has: needs} }

func (s State) quota(until time.Duration) State {
	s.Quota = held(until, "")
	return s
}

func (s State) breaker(h Hold) State {
	s.Breaker = h
	return s
}

func (s State) reserved(until time.Duration) State {
	s.Withheld = map[string]Hold{"ingestion": held(until, "")}
	return s
}

// TestNoProviderKinds: how a call ends that nobody can serve.
func TestNoProviderKinds(t *testing.T) {
	t.Parallel()
	tools := can(wire.NeedTools)
	plain := can(0)
	needs := Job{Needs: wire.NeedTools, Class: "ingestion"}
	broke := needs
	broke.FreeOnly = "run r1 has used its 0.50 USD"
	for _, c := range []struct {
		name   string
		snap   Snapshot
		job    Job
		kind   subjects.Kind
		status int
		after  time.Duration
	}{
		{"nobody is there", Snapshot{}, needs, subjects.KindNoProvider, 503, 0},
		{"one waits for its quota", Snapshot{"copilot": tools.quota(time.Minute)}, needs, subjects.KindNoProvider, 429, time.Minute},
		{"two do, the soonest counts", Snapshot{"copilot": tools.quota(time.Hour), "claude-code": tools.quota(time.Minute)}, needs, subjects.KindNoProvider, 429, time.Minute},
		{"a part of the window is kept for others", Snapshot{"copilot": tools.reserved(time.Hour)}, needs, subjects.KindNoProvider, 429, time.Hour},
		{"rounded up to a millisecond", Snapshot{"copilot": tools.quota(time.Millisecond + 1)}, needs, subjects.KindNoProvider, 429, 2 * time.Millisecond},
		{"a breaker is no limit", Snapshot{"copilot": tools.quota(time.Hour), "groq": tools.breaker(held(time.Minute, ""))}, needs, subjects.KindNoProvider, 503, time.Minute},
		{"a trial is under way", Snapshot{"groq": tools.breaker(trial(""))}, needs, subjects.KindNoProvider, 503, time.Second},
		{"a trial beside a longer wait", Snapshot{"copilot": tools.quota(time.Hour), "groq": tools.breaker(trial(""))}, needs, subjects.KindNoProvider, 503, time.Second},

		{"nobody has the capability", Snapshot{"groq": plain, "dmr": plain}, needs, subjects.KindCapabilityMissing, 422, 0},
		{"the only capable one is out of quota", Snapshot{"copilot": tools.quota(time.Minute), "dmr": plain}, needs, subjects.KindCapabilityMissing, 422, time.Minute},
		{"the only capable one's breaker is open", Snapshot{"groq": tools.breaker(held(time.Minute, "")), "copilot": plain.quota(time.Second)}, needs, subjects.KindCapabilityMissing, 422, time.Minute},
		{"that one is not there", Snapshot{"groq": {}, "dmr": plain}, needs, subjects.KindCapabilityMissing, 422, 0},

		{"over budget", Snapshot{"groq": tools, "anthropic": tools}, broke, subjects.KindBudgetExceeded, 402, 0},
		{"over budget, the subscription waits", Snapshot{"groq": tools, "copilot": tools.quota(time.Minute)}, broke, subjects.KindBudgetExceeded, 402, time.Minute},
		{"over budget, what is free cannot do it", Snapshot{"groq": tools, "dmr": plain}, broke, subjects.KindBudgetExceeded, 402, 0},
		{"over budget, and nobody can do it", Snapshot{"groq": plain}, broke, subjects.KindCapabilityMissing, 422, 0},
		{"over budget, but a rule keeps it out", Snapshot{"groq": tools}, Job{FreeOnly: "used up", Only: []string{}}, subjects.KindNoProvider, 503, 0},
		{"over budget, but it has no model", Snapshot{"custom": tools}, Job{FreeOnly: "used up", Provider: "custom", Exact: true}, subjects.KindNoProvider, 503, 0},
		{"over the batch's tokens", Snapshot{"copilot": tools}, Job{LocalOnly: "batch b has used its tokens", LocalReason: ReasonBudget}, subjects.KindBudgetExceeded, 402, 0},
		{"a rule of sensitivity", Snapshot{"copilot": tools, "groq": tools.quota(time.Minute)}, Job{LocalOnly: "confidential"}, subjects.KindNoProvider, 503, 0},
	} {
		d, err := New(load(t)).Resolve(c.snap, &c.job, at)
		if err != nil || len(d.Chain) > 0 {
			t.Fatalf("%s: %+v, %v", c.name, d, err)
		}
		e := NoProvider(d)
		if e.Kind != c.kind || e.Status() != c.status || e.RetryAfter != c.after || len(e.Attempts) != len(d.Skipped) {
			t.Errorf("%s: %d after %s: %v; want %s %d after %s", c.name, e.Status(), e.RetryAfter, e, c.kind, c.status, c.after)
		}
	}
}

// TestCapableProviderServes: a provider with the capability is asked even when
// it is the last; one that lacks it never is.
func TestCapableProviderServes(t *testing.T) {
	t.Parallel()
	snap := Snapshot{"copilot": can(wire.NeedTools).quota(time.Minute), "groq": can(0), "anthropic": can(wire.NeedTools), "dmr": can(0)}
	d, err := New(load(t)).Resolve(snap, &Job{Needs: wire.NeedTools, Provider: "groq"}, at)
	if err != nil || chain(d) != "anthropic/claude-sonnet-4-5" {
		t.Errorf("%s, %v", chain(d), err)
	}
}

func TestNoLocalRunner(t *testing.T) {
	t.Parallel()
	r := New(load(t, "SEMANTIC_ANALYSIS_MODE=local"))
	snap := with("copilot", "groq")
	snap["dmr"] = State{Reason: ReasonUnavailable, Detail: "connection refused"}
	snap["ollama"] = State{Reason: ReasonNotHosted, Detail: "hosted on no node"}
	for _, c := range []struct {
		name   string
		change func(*Job)
		local  bool
	}{
		{"none runs", func(*Job) {}, true},
		{"another was asked for", func(j *Job) { j.Provider = "groq" }, true},
		{"one runs and cannot do it", func(j *Job) {
			snap["ollama"] = can(0)
			j.Needs = wire.NeedTools
		}, false},
	} {
		job := Job{Privacy: "local"}
		c.change(&job)
		d, err := r.Resolve(snap, &job, at)
		if err != nil {
			t.Fatal(err)
		}
		e := NoProvider(d)
		said := strings.Contains(e.Message, "Docker Model Runner") && strings.Contains(e.Message, "`ollama serve`") && strings.Contains(e.Message, "dmr: connection refused; ollama: hosted on no node")
		if said != c.local || c.local && (e.Kind != subjects.KindNoProvider || e.Status() != 503) {
			t.Errorf("%s: %v", c.name, e)
		}
	}
}

// TestForcedOutOfTheMode: where SEMANTIC_ANALYSIS_PROVIDER names one that the mode
// leaves out, no runner is missing, and none is to be started.
func TestForcedOutOfTheMode(t *testing.T) {
	t.Parallel()
	r := New(load(t, "SEMANTIC_ANALYSIS_MODE=local", "SEMANTIC_ANALYSIS_PROVIDER=openai"))
	d, err := r.Resolve(with("openai", "dmr", "ollama"), &Job{Privacy: "local"}, at)
	if err != nil {
		t.Fatal(err)
	}
	if e := NoProvider(d); strings.Contains(e.Message, "Docker") || !strings.Contains(e.Message, "openai: mode is local") {
		t.Error(e)
	}
}

// TestChainEnd: how a call ends whose candidates all failed or were passed by.
func TestChainEnd(t *testing.T) {
	t.Parallel()
	failed := func(provider string, kind subjects.Kind, after time.Duration) *subjects.Error {
		return &subjects.Error{Kind: kind, Message: "it says so", Provider: provider, RetryAfter: after}
	}
	passed := func(provider, reason string, h Hold) *subjects.Error {
		e := *HeldError(reason, h, at)
		e.Provider = provider
		return &e
	}
	const minute = time.Minute
	hosted := failed("groq", subjects.KindNoProvider, minute)
	hosted.HTTPStatus = 429
	bad, limited := failed("groq", subjects.KindProvider, 0), failed("anthropic", subjects.KindRateLimited, 20*time.Second)
	broke := failed("openai", subjects.KindBudgetExceeded, 0)
	quota := with("groq", "anthropic", "openai")
	quota["copilot"] = State{Available: true}.quota(minute)
	brk := with("groq", "anthropic", "openai")
	brk["copilot"] = State{Available: true}.breaker(held(minute, ""))
	weak := with("groq")
	weak["dmr"] = can(0)
	for _, c := range []struct {
		name   string
		snap   Snapshot
		job    Job
		errs   []*subjects.Error
		kind   subjects.Kind
		status int
		after  time.Duration
	}{
		{"the one that failed", with("groq"), Job{}, []*subjects.Error{bad}, subjects.KindProvider, 502, 0},
		{"the one that is limited", with("anthropic"), Job{}, []*subjects.Error{limited}, subjects.KindRateLimited, 429, 20 * time.Second},
		{"two failed", with("groq", "anthropic"), Job{}, []*subjects.Error{bad, limited}, subjects.KindNoProvider, 503, 20 * time.Second},
		{"two are limited", with("groq", "anthropic"), Job{}, []*subjects.Error{failed("groq", subjects.KindQuotaExhausted, minute), limited}, subjects.KindNoProvider, 429, 20 * time.Second},
		{"on another node, too", with("groq", "anthropic"), Job{}, []*subjects.Error{hosted, failed("anthropic", subjects.KindRateLimited, 2*minute)}, subjects.KindNoProvider, 429, minute},
		{"one failed, another has no quota", quota, Job{}, []*subjects.Error{bad}, subjects.KindNoProvider, 503, minute},
		{"one is limited, another has no quota", quota, Job{}, []*subjects.Error{limited}, subjects.KindNoProvider, 429, 20 * time.Second},
		{"one is limited, another's breaker is open", brk, Job{}, []*subjects.Error{limited}, subjects.KindNoProvider, 503, 20 * time.Second},
		{"passed by later", with("groq"), Job{}, []*subjects.Error{passed("groq", ReasonQuota, held(minute, ""))}, subjects.KindNoProvider, 429, minute},
		{"passed by later for a trial", quota, Job{}, []*subjects.Error{passed("groq", ReasonBreaker, trial(""))}, subjects.KindNoProvider, 503, time.Second},
		{"one failed, one passed by", with("groq", "anthropic"), Job{}, []*subjects.Error{bad, passed("anthropic", ReasonQuota, held(minute, ""))}, subjects.KindNoProvider, 503, minute},
		{"the only capable one, passed by", weak, Job{Needs: wire.NeedTools}, []*subjects.Error{passed("groq", ReasonQuota, held(minute, ""))}, subjects.KindCapabilityMissing, 422, minute},
		{"the only capable one, failed", weak, Job{Needs: wire.NeedTools}, []*subjects.Error{bad}, subjects.KindProvider, 502, 0},
		{"over budget", with("openai"), Job{}, []*subjects.Error{broke}, subjects.KindBudgetExceeded, 402, 0},
		{"one failed, the next over budget", with("groq", "openai"), Job{}, []*subjects.Error{failed("groq", subjects.KindProvider, minute), broke}, subjects.KindBudgetExceeded, 402, minute},
		{"over budget before, what is free failed", with("groq", "dmr"), Job{FreeOnly: "used up"}, []*subjects.Error{failed("dmr", subjects.KindProviderUnavailable, 0)}, subjects.KindBudgetExceeded, 402, 0},
	} {
		d, err := New(load(t)).Resolve(c.snap, &c.job, at)
		if err != nil {
			t.Fatal(err)
		}
		e := ChainEnd(d, c.errs, at)
		if e.Kind != c.kind || e.Status() != c.status || e.RetryAfter != c.after {
			t.Errorf("%s: %d after %s: %v; want %s %d after %s", c.name, e.Status(), e.RetryAfter, e, c.kind, c.status, c.after)
		}
		if len(c.errs) > 1 && !(strings.Contains(e.Message, c.errs[0].Provider) && strings.Contains(e.Message, c.errs[1].Provider)) {
			t.Errorf("%s: not everybody is named: %v", c.name, e)
		}
	}
	d, _ := New(load(t)).Resolve(quota, &Job{}, at)
	if e := ChainEnd(d, []*subjects.Error{bad}, at.Add(time.Hour)); e.RetryAfter != time.Millisecond {
		t.Errorf("its time came meanwhile: after %s", e.RetryAfter)
	}
}
