package routing

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// dice makes random configurations, states and jobs.
type dice struct{ *rand.Rand }

func (r dice) one(of ...string) string { return of[r.IntN(len(of))] }

// in is true once in n times.
func (r dice) in(n int) bool { return r.IntN(n) == 0 }

// some is a part of a list in any order.
func (r dice) some(list []string) []string {
	out := slices.Clone(list)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:r.IntN(len(out)+1)]
}

var (
	testTasks  = []string{"", "basic_classification", "semantic_code_analysis", "own", "x"}
	testModels = []string{"m1", "m2", "claude-sonnet-4-5", "claude-sonnet-4.5", "gpt-5.4", "ai/llama3.2"}
)

// config is base with everything changed that routing reads.
func (r dice) config(base *config.Config) *config.Config {
	c := *base
	c.Mode = r.one("public", "public", "public", "public", "local", "mock")
	c.DefaultTier = r.one(subjects.Tiers...)
	c.ForcedTier, c.ForcedProvider = "", ""
	if r.in(6) {
		c.ForcedTier = r.one(subjects.Tiers...)
	}
	if r.in(8) {
		c.ForcedProvider = r.one(c.Order...)
	}
	c.CostMode = r.one("budget", "standard", "standard", "quality")
	c.Providers = maps.Clone(base.Providers)
	for _, id := range c.Order {
		p := *c.Providers[id]
		p.Models = map[string]string{}
		for _, tier := range subjects.Tiers {
			if !r.in(4) {
				p.Models[tier] = r.one(testModels...)
			}
		}
		if r.in(4) {
			p.AvailableModels = append(Models(&p), r.some(testModels)...)
		}
		c.Providers[id] = &p
	}
	c.ProviderPriority, c.TaskPriority, c.TaskTiers = map[string][]string{}, map[string][]string{}, map[string]string{}
	for _, tier := range subjects.Tiers {
		c.ProviderPriority[tier] = r.some(c.Order)
	}
	for _, task := range testTasks[1:4] {
		if r.in(2) {
			c.TaskTiers[task] = r.one(subjects.Tiers...)
		}
		if r.in(2) {
			c.TaskPriority[task] = r.some(c.Order)
		}
	}
	c.Sensitivity.Allow = map[string][]string{}
	for _, word := range config.Sensitivities {
		if r.in(2) {
			c.Sensitivity.Allow[word] = r.some(append([]string{"all", "local", "out-1", "out-2"}, c.Order...))
		}
	}
	return &c
}

func (r dice) outside() []*config.Provider {
	var out []*config.Provider
	for _, id := range []string{"out-1", "out-2"} {
		if r.in(2) {
			continue
		}
		p := &config.Provider{ID: id, Kind: config.KindOutside, Account: r.one("local", "api-key", "copilot-subscription"), Models: map[string]string{}, AvailableModels: r.some(testModels)}
		for _, m := range p.AvailableModels {
			p.Models[r.one(subjects.Tiers...)] = m
		}
		out = append(out, p)
	}
	return out
}

func (r dice) hold() Hold {
	if !r.in(4) {
		return Hold{}
	}
	moments := []time.Time{{}, at.Add(-time.Hour), at, at.Add(time.Nanosecond), at.Add(time.Duration(r.Int64N(int64(30 * time.Hour))))}
	return Hold{On: !r.in(4), Until: moments[r.IntN(len(moments))], Trial: r.in(4), Detail: r.one("", "after PROVIDER_ERROR")}
}

func (r dice) holds(keys ...string) map[string]Hold {
	out := map[string]Hold{}
	for _, key := range keys {
		if r.in(2) {
			out[key] = r.hold()
		}
	}
	return out
}

func (r dice) needs() wire.Need { return wire.Need(r.UintN(4096) & r.UintN(4096) & r.UintN(4096)) }

func (r dice) snapshot(ids []string) Snapshot {
	snap := Snapshot{}
	for _, id := range ids {
		if r.in(20) {
			continue // it has only just come
		}
		st := State{Available: !r.in(5), Reason: r.one("", ReasonUnavailable, ReasonNotHosted), Has: ^r.needs()}
		st.Quota, st.Breaker = r.hold(), r.hold()
		st.Models, st.Withheld = r.holds(testModels...), r.holds(subjects.Classes...)
		snap[id] = st
	}
	return snap
}

func (r dice) job(ids []string) Job {
	job := Job{
		Task: r.one(testTasks...), Tier: r.one("", "", "", "fast", "premium"), Privacy: r.one("", "", "", "any", "local"),
		ForcePaid: r.in(5), Class: r.one("", "interactive", "ingestion"), Sensitivity: r.one("", "public", "internal", "confidential"),
		LocalReason: r.one("", ReasonSensitivity, ReasonBudget),
	}
	if r.in(3) {
		job.Provider = r.one(ids...)
		job.Exact = r.in(4)
	}
	if r.in(3) {
		job.Model = r.one(append([]string{"auto", "fast", "nobody's", "groq/", "out-1/m1", r.one(ids...) + "/" + r.one(testModels...)}, testModels...)...)
	}
	if r.in(40) {
		job.Tier, job.Sensitivity = r.one("", "fats"), r.one("secret", "public")
	}
	if r.in(2) {
		job.Needs = r.needs()
	}
	if r.in(6) {
		job.Only = r.some(ids)
	}
	if r.in(6) {
		job.LocalOnly = "only local providers"
	}
	if r.in(6) {
		job.FreeOnly = "the budget is used up"
	}
	return job
}

// TestResolveProperties holds Resolve against the oracle on random
// configurations, states and jobs.
func TestResolveProperties(t *testing.T) {
	t.Parallel()
	base := load(t, "LLM_CLI_PROXY_URL=http://127.0.0.1:1", "LLM_BASE_URL_CUSTOM=http://127.0.0.1:2")
	ends := map[string]int{}
	reasons := map[string]int{}
	for seed := range uint64(250) {
		r := dice{rand.New(rand.NewPCG(seed, 4))}
		cfg, outside := r.config(base), r.outside()
		router, again := New(cfg, outside...), New(cfg, outside...)
		for range 40 {
			snap, job := r.snapshot(router.IDs()), r.job(router.IDs())
			o := &oracle{cfg: cfg, outside: outside, snap: snap, job: job, now: at}
			found := o.decide()
			d, err := router.Resolve(snap, &job, at)
			b, errB := again.Resolve(snap, &job, at)
			if !reflect.DeepEqual(d, b) || fmt.Sprint(err) != fmt.Sprint(errB) {
				t.Fatalf("seed %d: %+v gives two decisions", seed, job)
			}
			if o.refused != (err != nil) {
				t.Fatalf("seed %d: %+v: %v, want refused %v", seed, job, err, o.refused)
			}
			if err != nil {
				ends["VALIDATION_ERROR"]++
				continue
			}
			if problem := differs(o, d, found); problem != "" {
				t.Fatalf("seed %d, mode %s: %+v: %s\ngot %+v\nwant %+v", seed, cfg.Mode, job, problem, d, found)
			}
			for _, f := range found {
				reasons[f.reason]++
			}
			ends[endOfAll(d)]++
		}
	}
	t.Log(ends, reasons)
	for _, end := range []string{"answered", "VALIDATION_ERROR", "NO_PROVIDER 503", "NO_PROVIDER 429", "CAPABILITY_MISSING 422", "BUDGET_EXCEEDED 402"} {
		if ends[end] < 50 {
			t.Errorf("%s came %d times: too few to have been tried", end, ends[end])
		}
	}
	if len(reasons) != 13 {
		t.Errorf("reasons that came: %v", reasons)
	}
}

func endOfAll(d *Decision) string {
	if len(d.Chain) > 0 {
		return "answered"
	}
	e := NoProvider(d)
	return fmt.Sprint(e.Kind, " ", e.Status())
}

// differs compares a decision, what is explained of it and how it ends with the
// oracle's.
func differs(o *oracle, d *Decision, found []finding) string {
	var chain, skipped, both []string
	soonest := time.Time{}
	for _, f := range found {
		both = append(both, f.id)
		if f.reason == "" {
			chain = append(chain, f.id+"/"+f.model)
			continue
		}
		skipped = append(skipped, f.id+" "+f.reason)
		if !f.retry.IsZero() && (soonest.IsZero() || f.retry.Before(soonest)) {
			soonest = f.retry
		}
	}
	route := d.Route(&o.job, o.job.Class)
	var gotChain, gotSkipped, inOrder []string
	for i, c := range route.Chain {
		gotChain = append(gotChain, c.Provider+"/"+c.Model)
		inOrder = append(append(inOrder, providersOf(d.SkippedAt(i))...), c.Provider)
	}
	inOrder = append(inOrder, providersOf(d.SkippedAt(len(d.Chain)))...)
	for _, s := range route.Skipped {
		gotSkipped = append(gotSkipped, s.Provider+" "+s.Reason)
		if s.Detail == "" || !strings.Contains(route.Summary, s.Provider+" skipped: "+s.Detail) {
			return "it is not said why " + s.Provider + " is skipped"
		}
	}
	switch {
	case d.Tier != o.tier || route.Tier != o.tier || d.Asked != o.asked:
		return "tier or provider asked for"
	case !slices.Equal(chain, gotChain):
		return "chain"
	case !slices.Equal(skipped, gotSkipped):
		return "skipped"
	case !slices.Equal(both, inOrder):
		return "not each once, or out of order"
	case !d.RetryAt.Equal(soonest):
		return "soonest time " + d.RetryAt.String() + ", want " + soonest.String()
	case (route.RetryAt != nil) != (len(chain) == 0 && !soonest.IsZero()):
		return "soonest time of the route"
	case len(chain) > 0:
		return ""
	}
	e := NoProvider(d)
	kind, status, after := o.end(found)
	if e.Kind != kind || e.Status() != status || e.RetryAfter != after || len(e.Attempts) != len(found) {
		return fmt.Sprintf("it ends with %s %d after %s, want %s %d after %s", e.Kind, e.Status(), e.RetryAfter, kind, status, after)
	}
	return ""
}

func providersOf(trail []subjects.Attempt) []string {
	var out []string
	for _, a := range trail {
		out = append(out, a.Provider)
	}
	return out
}
