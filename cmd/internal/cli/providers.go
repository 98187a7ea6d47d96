package cli

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// providersCmd lists the providers.
type providersCmd struct {
	JSON bool `help:"Print the node's answer as JSON."`
	clientFlags
}

// Help implements kong.HelpProvider.
func (*providersCmd) Help() string {
	return `Examples:

    sluice providers
    sluice providers --json | jq '.providers[] | select(.available)'`
}

// Run asks and prints.
func (c *providersCmd) Run(ctx context.Context, a *app) error {
	a.json = c.JSON
	var r subjects.ProvidersReply
	if err := c.ask(ctx, a, "providers", subjects.QueryProviders, nil, &r); err != nil || c.JSON {
		return err
	}
	t := &table{columns: []column{
		{title: "PROVIDER"},
		{title: "STATE", fixed: true},
		{title: "ACCOUNT", drop: 3},
		{title: "MODELS"},
		{title: "CAN DO", drop: 2},
		{title: "BREAKER", fixed: true},
		{title: "QUOTA", fixed: true},
		{title: "TRIED AGAIN", fixed: true, drop: 1},
		{title: "REASON"},
	}}
	for _, p := range r.Providers {
		breaker, quota := cmp.Or(p.Breaker, &subjects.BreakerInfo{}), cmp.Or(p.Quota, &subjects.QuotaInfo{})
		t.add(cell{text: p.Provider}, availability(p.Available), cell{text: p.Account},
			cell{text: modelsText(p.Models)}, cell{text: strings.Join(p.Capabilities, " ")},
			breakerState(breaker.State), quotaState(quota.State), cell{text: a.when(triedAgain(breaker, quota))}, cell{text: p.Reason})
	}
	a.printLines(t.lines(a.out)...)
	return nil
}

// triedAgain is when a provider that is held back as a whole is tried again: the
// later of what its breaker says and its quota; nil = it is not held back.
func triedAgain(b *subjects.BreakerInfo, q *subjects.QuotaInfo) *subjects.Time {
	at := b.RetryAt
	for i := range q.Exhausted {
		if h := &q.Exhausted[i]; h.Model == "" && (at == nil || h.RetryAt.After(at.Time)) {
			at = &h.RetryAt
		}
	}
	return at
}

// modelsText writes a tier table, tiers first and those of one model together:
// "fast,standard=gpt-5-mini premium=gpt-5".
func modelsText(models map[string]string) string {
	var order []string
	tiers := map[string][]string{}
	add := func(tier string) {
		m := models[tier]
		if len(tiers[m]) == 0 {
			order = append(order, m)
		}
		tiers[m] = append(tiers[m], tier)
	}
	for _, tier := range subjects.Tiers {
		if _, ok := models[tier]; ok {
			add(tier)
		}
	}
	for _, tier := range slices.Sorted(maps.Keys(models)) {
		if !subjects.ValidTier(tier) {
			add(tier)
		}
	}
	for i, m := range order {
		order[i] = strings.Join(tiers[m], ",") + "=" + m
	}
	return strings.Join(order, " ")
}
