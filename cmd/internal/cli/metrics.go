package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// metricsCmd shows what a node has counted in memory.
type metricsCmd struct {
	JSON bool `help:"Print the node's answer as JSON."`
	clientFlags
}

// Help implements kong.HelpProvider.
func (*metricsCmd) Help() string {
	return `Counted in the node's memory since its start, by attempt: a call that was tried three times is three. sluice usage has the calls, from the database.

Examples:

    sluice metrics
    sluice metrics --json | jq .cache`
}

// Run asks and prints.
func (c *metricsCmd) Run(ctx context.Context, a *app) error {
	a.json = c.JSON
	var m subjects.Metrics
	if err := c.ask(ctx, a, "metrics", subjects.QueryMetrics, nil, &m); err != nil || c.JSON {
		return err
	}
	fmt.Fprintf(a.out, "since %s, by attempt\n\n", m.Since.In(a.loc).Format("2006-01-02 15:04:05 MST"))
	if t := metricsTable(&m); len(t.rows) > 0 {
		a.printLines(t.lines(a.out)...)
	} else {
		fmt.Fprintln(a.out, "no attempts yet")
	}
	a.printLines("", "cache: "+cacheText(&m.Cache))
	if t := budgetTable(m.Budgets); len(t.rows) > 0 {
		a.printLines("")
		a.printLines(t.lines(a.out)...)
	}
	return nil
}

func budgetTable(budgets []subjects.BudgetState) *table {
	t := &table{columns: []column{
		{title: "BUDGET"},
		{title: "SPENT", right: true},
		{title: "RESERVED", right: true, drop: 3},
		{title: "LIMIT", right: true},
		{title: "USED", right: true},
		{title: "WAITING", right: true, none: "0", drop: 1},
	}}
	for _, b := range budgets {
		amount := func(n float64) string {
			if b.Unit == "usd" {
				return dollars(subjects.USD(math.Round(n * 1e6)))
			}
			return count(int64(n)) + " tokens"
		}
		used := "–"
		if b.Limit > 0 {
			used = percent(b.Spent / b.Limit)
		}
		t.add(texts(b.Scope+" "+b.ID, amount(b.Spent), amount(b.Reserved), amount(b.Limit), used, count(int64(b.Waiting)))...)
	}
	return t
}

func metricsTable(m *subjects.Metrics) *table {
	t := &table{columns: []column{
		{title: "PROVIDER"},
		{title: "TRIES", right: true},
		{title: "OK", right: true},
		{title: "CANCELLED", right: true, none: "0", drop: 7},
		{title: "P50", right: true, drop: 4},
		{title: "P95", right: true, drop: 3},
		{title: "MAX", right: true, drop: 6},
		{title: "TRIES/MIN", right: true, drop: 1},
		{title: "TOKENS/MIN", right: true, drop: 2},
		{title: "TOKENS", right: true},
		{title: "COST", right: true},
		{title: "SAVED", right: true, none: "$0", drop: 5},
		{title: "FAILURES"},
	}}
	for _, id := range slices.Sorted(maps.Keys(m.Providers)) {
		p := m.Providers[id]
		if p.Calls == 0 {
			continue
		}
		ok := "–"
		if p.Successes+p.Failures > 0 {
			ok = percent(p.SuccessRate)
		}
		row := texts(id, count(p.Calls), ok, count(p.Cancelled), millis(p.P50LatencyMs), millis(p.P95LatencyMs), millis(p.MaxLatencyMs),
			rate(p.CallsPerMinute), rate(p.TokensPerMinute), count(p.TotalTokens),
			partly(p.EstimatedCostUSD, p.Unpriced, p.Calls), dollars(p.SavedUSD))
		t.add(append(row, cell{tally(p.Errors), red})...)
	}
	return t
}

// rate writes a number a minute.
func rate(n float64) string {
	if n >= 100 {
		return count(int64(n + 0.5))
	}
	return fmt.Sprintf("%.1f", n)
}

// tally writes counts by name, the largest first: "TIMEOUT 3, RATE_LIMITED 1".
func tally(counts map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = name + " " + count(counts[name])
	}
	return strings.Join(names, ", ")
}

func cacheText(c *subjects.CacheMetrics) string {
	asked := c.Hits + c.Shared + c.Misses
	s := fmt.Sprintf("%s of %s answers kept, %s of %s",
		count(int64(c.Entries)), count(int64(c.MaxEntries)), bytesText(c.Bytes), bytesText(c.MaxBytes))
	if c.Evicted > 0 {
		s += fmt.Sprintf(", %s put out for others", count(c.Evicted))
	}
	if asked == 0 {
		return s + "; not asked yet"
	}
	return s + fmt.Sprintf("; asked %s times: %s hits, %s shared an attempt, %s misses (%s answered without an attempt of their own)",
		count(asked), count(c.Hits), count(c.Shared), count(c.Misses), percent(c.HitRatio))
}

// bytesText writes a size for people.
func bytesText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// cacheCmd is about the kept answers.
type cacheCmd struct {
	Clear cacheClearCmd `cmd:"" help:"Forget the answers that the node keeps."`
}

// cacheClearCmd empties the cache.
type cacheClearCmd struct {
	JSON bool `help:"Print the node's answer as JSON."`
	clientFlags
}

// Help implements kong.HelpProvider.
func (*cacheClearCmd) Help() string {
	return `Calls in flight go on. Needs a NATS user that may publish on llm.admin.> (admin, or anyone where no password is set). sluice metrics has the cache's numbers.

Example:

    sluice cache clear`
}

// Run asks and prints.
func (c *cacheClearCmd) Run(ctx context.Context, a *app) error {
	a.json = c.JSON
	var r subjects.CacheClearReply
	if err := c.ask(ctx, a, "cache clear", subjects.AdminCacheClear, nil, &r); err != nil || c.JSON {
		return err
	}
	fmt.Fprintf(a.out, "%s forgotten\n", plural(r.Entries, "answer"))
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "one " + what
	}
	return count(int64(n)) + " " + what + "s"
}

// reloadCmd makes a node read its configuration now.
type reloadCmd struct {
	JSON bool `help:"Print the node's answer as JSON."`
	clientFlags
}

// Help implements kong.HelpProvider.
func (*reloadCmd) Help() string {
	return `A node notices an edit by itself; this does not wait for it, and says what is wrong with a broken one: then the running configuration stays. Needs a NATS user that may publish on llm.admin.> (admin, or anyone where no password is set).

Example:

    sluice config check my-providers.yaml && sluice reload`
}

// Run asks and prints.
func (c *reloadCmd) Run(ctx context.Context, a *app) error {
	a.json = c.JSON
	var r subjects.ReloadReply
	if err := c.ask(ctx, a, "reload", subjects.AdminReload, nil, &r); err != nil || c.JSON {
		return err
	}
	what := "is taken over; calls that run keep what they started with"
	if !r.Changed {
		what = "has not changed"
	}
	fmt.Fprintf(a.out, "%s %s\n", safe(orElse(r.File, "the built-in configuration")), what)
	a.notes(r.Notes)
	return nil
}

// notes prints remarks.
func (a *app) notes(notes []string) {
	for _, n := range notes {
		fmt.Fprintf(a.out, "%s %s\n", a.out.paint(yellow, "note:"), safe(n))
	}
}
