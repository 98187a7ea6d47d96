package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/subjects"
)

// costNode answers every call at once, and has in its log what the run at this
// place should have come to, or what wrong makes of it.
func costNode(t *testing.T, run int, wrong func(*subjects.UsageSummary)) *fakeNode {
	t.Helper()
	n := demoNode(t, demoHealth, demoResult)
	sum := &subjects.UsageSummary{Hours: 1}
	for i := range costTiers {
		tier := &costTiers[i]
		u := subjects.UsageTotals{Calls: int64(tier.calls), InputTokens: tier.input, OutputTokens: tier.output, TotalTokens: tier.input + tier.output}
		amount := &u.SavedUSD
		if run == 1 {
			amount = &u.CostUSD
		}
		*amount = tier.each * subjects.USD(tier.calls)
		sum.ByModel = append(sum.ByModel, subjects.UsageShare{Name: tier.model, UsageTotals: u, Share: 0.33})
		sum.Totals.Calls += u.Calls
		sum.Totals.CostUSD += u.CostUSD
		sum.Totals.SavedUSD += u.SavedUSD
	}
	sum.ByProvider = []subjects.UsageShare{{Name: costRuns[run].serves, UsageTotals: sum.Totals}}
	if wrong != nil {
		wrong(sum)
	}
	b, err := json.Marshal(sum)
	if err != nil {
		t.Fatal(err)
	}
	n.summary.Store(string(b))
	return n
}

func TestDemoCosts(t *testing.T) {
	for name, tc := range map[string]struct {
		wrong [2]func(*subjects.UsageSummary)
		code  int
	}{
		"costs": {},
		"costs-billed": {code: exitFailed, wrong: [2]func(*subjects.UsageSummary){func(s *subjects.UsageSummary) {
			s.Totals.CostUSD, s.ByModel[0].CostUSD = 1000, 1000
			s.ByProvider = append(s.ByProvider, subjects.UsageShare{Name: "anthropic", UsageTotals: subjects.UsageTotals{Calls: 1}})
		}, nil}},
		"costs-unknown": {code: exitFailed, wrong: [2]func(*subjects.UsageSummary){nil, func(s *subjects.UsageSummary) {
			s.Totals.CostUSD, s.Totals.Unpriced, s.ByModel = 50_000, 100, s.ByModel[:1]
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			ses := newSession("", terminal{})
			var nodes []*fakeNode
			ses.app.start = func(_ context.Context, o *nodeOptions) (node, error) {
				i := len(nodes)
				if o.HTTP != "" || o.NATSListen != none || !slices.Equal(o.Providers, costRuns[i].providers) {
					t.Errorf("started with %+v", o)
				}
				nodes = append(nodes, costNode(t, i, tc.wrong[i]))
				return nodes[i], nil
			}
			args := []string{"demo", "--costs"}
			code := exited(t, ses.start(t.Context(), args...))
			if code != tc.code || len(nodes) != 2 {
				t.Errorf("exit status %d with %d nodes", code, len(nodes))
			}
			for _, n := range nodes {
				if !slices.Equal(n.calls, []string{"drain", "close"}) {
					t.Errorf("the node was asked to %v", n.calls)
				}
			}
			golden(t, "demo-"+name, transcript(args, code, ses.out.String(), ses.err.String()))
		})
	}
}

// TestDemoCostsFail has a node that does not start, and one that leaves.
func TestDemoCostsFail(t *testing.T) {
	ses := newSession("", terminal{})
	var data string
	ses.app.start = func(_ context.Context, o *nodeOptions) (node, error) {
		data = o.Data
		return nil, errors.New("no space left")
	}
	if code := ses.app.run(t.Context(), []string{"demo", "--costs"}); code != exitFailed || !strings.Contains(ses.err.String(), "no space left") {
		t.Errorf("exit status %d: %q", code, ses.err.String())
	}
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary folder is left: %v", err)
	}
	ses = newSession("", terminal{})
	n := costNode(t, 0, nil)
	n.nc.Close()
	n.starts(ses)
	if code := exited(t, ses.start(t.Context(), "demo", "--costs")); code != exitFailed || !slices.Equal(n.calls, []string{"close"}) {
		t.Errorf("exit status %d, the node was asked to %v", code, n.calls)
	}
}

// TestRealDemoCosts plays the example on real nodes: prices, tokens and sums are
// the built-in ones.
func TestRealDemoCosts(t *testing.T) {
	ses := newSession("", terminal{})
	ses.app.start = startNode
	code := exited(t, ses.start(t.Context(), "demo", "--costs", "--json"))
	var v costVerdict
	if err := json.Unmarshal([]byte(ses.out.String()), &v); err != nil || code != 0 || !v.OK {
		t.Fatalf("exit status %d (%v): %s%s", code, err, ses.out.String(), ses.err.String())
	}
	with, without := v.Runs[0], v.Runs[1]
	const all = 2_050_500
	if with.CostUSD != 0 || with.SavedUSD != all || without.CostUSD != all || without.SavedUSD != 0 || with.Calls != 170 || without.Calls != 170 {
		t.Errorf("%s", ses.out.String())
	}
	if want := regexp.MustCompile(`^with subscriptions \$0 and \$2\.05\d* saved; metered only \$2\.05\d*$`); !want.MatchString(v.Summary) {
		t.Errorf("%q", v.Summary)
	}
}

// TestCostTiersAreTheExample holds the numbers of the seed: 50, 100 and 20 calls
// at a tenth of a cent, a cent and five cents.
func TestCostTiersAreTheExample(t *testing.T) {
	t.Parallel()
	var got []string
	for _, tier := range costTiers {
		got = append(got, fmt.Sprintf("%d %s %s", tier.calls, tier.tier, tier.each))
	}
	if want := []string{"50 fast 0.001", "100 standard 0.01", "20 premium 0.05"}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}
