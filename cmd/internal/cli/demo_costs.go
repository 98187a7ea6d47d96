package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// This file plays the cost example: the calls of one batch analysis, on a
// subscription first and then on a metered key alone. Each run has a node and a
// database of its own; the sums are those of llm.query.usage.summary.

// costTier is one part of the batch: how many calls, and the tokens that make a
// call cost its amount at the metered account's price.
type costTier struct {
	tier, task    string
	calls         int
	model         string // canonical, as in the usage log
	input, output int64
	// each is what a call costs by the example, in micro-dollars.
	each subjects.USD
}

var costTiers = []costTier{
	{subjects.TierFast, "git_file_extraction", 50, "claude-haiku-4.5", 500, 100, 1_000},
	{subjects.TierStandard, "semantic_code_analysis", 100, "claude-sonnet-4.5", 2_000, 267, 10_000},
	{subjects.TierPremium, "insight_generation", 20, "claude-opus-5", 5_000, 1_000, 50_000},
}

const (
	costsTitle = "50 fast, 100 standard and 20 premium calls; copilot (a subscription) and anthropic (a metered key) are the mock in their place"
	// costLatency is the mock's time for a call.
	costLatency = 20 * time.Millisecond
	// costMaxTokens bounds each answer: what the node reserves for a call before
	// it knows better goes by it.
	costMaxTokens = 1_024
	// costTolerance is how far a sum may be from the example's round amounts.
	costTolerance = 0.01
)

// costRuns are the two runs: which providers the node hosts, and which of them
// has to serve everything.
var costRuns = []struct {
	name      string
	providers []string
	serves    string
}{
	{"with subscriptions", []string{"copilot", "anthropic"}, "copilot"},
	{"metered only", []string{"anthropic"}, "anthropic"},
}

// costRun is what one run came to.
type costRun struct {
	Name     string       `json:"name"`
	Serves   string       `json:"provider"`
	Calls    int          `json:"calls"`
	CostUSD  subjects.USD `json:"costUsd"`
	SavedUSD subjects.USD `json:"savedUsd"`
	// TookMs is the time from the first request to the last answer.
	TookMs   int64                  `json:"tookMs"`
	Failures []string               `json:"failures,omitempty"`
	Usage    *subjects.UsageSummary `json:"usage"`

	counted check
}

// costVerdict is the outcome of both.
type costVerdict struct {
	OK      bool       `json:"ok"`
	Summary string     `json:"summary"`
	Checks  []check    `json:"checks"`
	Runs    []*costRun `json:"runs"`
}

// costs plays both runs, judges, and ends.
func (c *demoCmd) costs(ctx context.Context, a *app) error {
	if !c.JSON {
		fmt.Fprintln(a.out, costsTitle)
	}
	v := &costVerdict{}
	for i := range costRuns {
		r, err := a.costRun(ctx, i)
		if err != nil {
			return err
		}
		v.Runs = append(v.Runs, r)
		if !c.JSON {
			fmt.Fprintf(a.out, "\n%s\n", a.out.paint(bold, r.Name))
			a.printLines(usageTable(r.Usage, "model").lines(a.out)...)
		}
	}
	v.judge()
	if c.JSON {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		a.printJSON(b)
	} else {
		a.printChecks(v.Checks, v.OK, v.Summary)
	}
	if !v.OK {
		return errFailed
	}
	return nil
}

// costRun starts a node, makes the calls and reads the sums.
func (a *app) costRun(ctx context.Context, i int) (*costRun, error) {
	cfg, err := costsConfig()
	if err != nil {
		return nil, err
	}
	o := &nodeOptions{
		Config: cfg, NATSListen: none, Providers: costRuns[i].providers, Environ: costsEnv,
		Logger: slog.New(slog.DiscardHandler),
	}
	if o.Data, err = os.MkdirTemp("", "sluice-demo-"); err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(o.Data) }()
	n, err := a.start(ctx, o)
	if err != nil {
		return nil, err
	}
	r, err := playCosts(ctx, n, i)
	if err != nil {
		_ = n.Close()
		return nil, err
	}
	return r, drain(ctx, n, o.Logger)
}

// costsEnv is all the environment that the nodes see: no key, no login.
var costsEnv = environ{"SEMANTIC_ANALYSIS_MODE=" + config.ModePublic}

// costsConfig is the built-in configuration, prices included, with the mock in
// the place of both accounts.
func costsConfig() (*config.Config, error) {
	cfg, err := loadConfig("", costsEnv)
	if err != nil {
		return nil, err
	}
	tasks := map[string]config.MockBehaviour{}
	for _, t := range costTiers {
		tasks[t.task] = config.MockBehaviour{Latency: costLatency, InputTokens: t.input, OutputTokens: t.output}
	}
	for _, id := range costRuns[0].providers {
		p := cfg.Providers[id]
		p.Kind, p.Mock = config.KindMock, &config.Mock{Tasks: tasks}
	}
	return cfg, nil
}

// playCosts sends all calls at once, as a batch does, and waits for their
// records.
func playCosts(ctx context.Context, n node, i int) (*costRun, error) {
	ctx, stop := context.WithTimeout(ctx, demoTimeout)
	defer stop()
	s := &scenario{t: subjects.NewClient(n.Conn()), show: showNothing{}, start: time.Now(), done: map[string]int{}}
	answers := make(chan answer)
	sent := 0
	for _, t := range costTiers {
		for k := range t.calls {
			go s.call(ctx, answers, subjects.ClassIngestion, t.request(k))
			sent++
		}
	}
	for range sent {
		s.answered(<-answers)
	}
	r := &costRun{Name: costRuns[i].name, Serves: costRuns[i].serves, TookMs: time.Since(s.start).Milliseconds(), Failures: s.failures}
	got, sum, err := s.usage(ctx)
	if err != nil {
		return nil, err
	}
	r.Usage, r.counted = sum, s.counted(got)
	r.Calls, r.CostUSD, r.SavedUSD = len(s.results), sum.Totals.CostUSD, sum.Totals.SavedUSD
	return r, nil
}

// request is one call. No two are the same: the cache has no part in it.
func (t *costTier) request(k int) *subjects.Request {
	r := &subjects.Request{Task: t.task, Process: "batch_analysis"}
	r.Messages = []subjects.Message{{Role: "user", Content: subjects.Text(fmt.Sprintf("%s %d: analyse this part of the repository.", t.task, k+1))}}
	limit := int64(costMaxTokens)
	r.MaxTokens = &limit
	return r
}

// judge compares the sums with the example.
func (v *costVerdict) judge() {
	with, without := v.Runs[0], v.Runs[1]
	var total subjects.USD
	for _, t := range costTiers {
		total += t.each * subjects.USD(t.calls)
	}
	for _, r := range v.Runs {
		v.Checks = append(v.Checks, r.answered(), r.counted.of(r.Name))
	}
	for _, t := range costTiers {
		v.Checks = append(v.Checks, t.costs(without))
	}
	v.Checks = append(
		v.Checks,
		check{"metered only costs about " + dollars(total), near(without.CostUSD, total), dollars(without.CostUSD)},
		check{"with subscriptions nothing is billed", with.CostUSD == 0 && with.Usage.Totals.Unpriced == 0, cost(&with.Usage.Totals)},
		check{
			"the subscription saves what the metered key costs", with.SavedUSD == without.CostUSD && with.Usage.Totals.SavedUnknown == 0,
			fmt.Sprintf("%s saved, %s billed", saved(&with.Usage.Totals), cost(&without.Usage.Totals)),
		},
	)
	v.OK = allOK(v.Checks)
	v.Summary = fmt.Sprintf("with subscriptions %s and %s saved; metered only %s", dollars(with.CostUSD), dollars(with.SavedUSD), dollars(without.CostUSD))
}

// of names a check by its run.
func (c check) of(run string) check {
	c.Name = run + ": " + c.Name
	return c
}

// answered holds that every call was answered, all by the one provider.
func (r *costRun) answered() check {
	all := 0
	for _, t := range costTiers {
		all += t.calls
	}
	var by []string
	served := int64(0)
	for i := range r.Usage.ByProvider {
		p := &r.Usage.ByProvider[i]
		by = append(by, p.Name+" "+count(p.Calls))
		if p.Name == r.Serves {
			served = p.Calls
		}
	}
	c := check{
		Name: "all answered by " + r.Serves, OK: r.Calls == all && served == int64(all) && len(by) == 1,
		Detail: fmt.Sprintf("%d of %d; %s", r.Calls, all, orElse(strings.Join(by, ", "), "no record")),
	}
	if len(r.Failures) > 0 {
		c.Detail += "; the first failure: " + r.Failures[0]
	}
	return c.of(r.Name)
}

// costs holds what the calls of a tier cost on the metered key.
func (t *costTier) costs(r *costRun) check {
	want := t.each * subjects.USD(t.calls)
	var got subjects.USD
	for i := range r.Usage.ByModel {
		if m := &r.Usage.ByModel[i]; m.Name == t.model {
			got = m.CostUSD
		}
	}
	return check{
		fmt.Sprintf("%d %s calls cost about %s", t.calls, t.tier, dollars(want)), near(got, want),
		fmt.Sprintf("%s on %s, %s each", dollars(got), t.model, dollars(got/subjects.USD(t.calls))),
	}
}

// near reports whether an amount is within the tolerance of what is expected.
func near(got, want subjects.USD) bool {
	return math.Abs(float64(got-want)) <= costTolerance*float64(want)
}
