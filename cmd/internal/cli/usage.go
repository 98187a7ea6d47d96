package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// usageCmd reads the usage log.
type usageCmd struct {
	Show   usageShowCmd   `cmd:"" default:"withargs" help:"Sums of a time window, or the newest calls (the default)."`
	Export usageExportCmd `cmd:"" help:"Write the records to a file (not built yet)."`
}

// usageShowCmd shows sums, or the newest rows.
type usageShowCmd struct {
	Hours  *int   `placeholder:"N" usual:"24" help:"The window, back from now."`
	By     string `enum:"process,provider,model" default:"process" placeholder:"WHAT" help:"What each row is: process, provider or model."`
	Recent *int   `placeholder:"N" help:"Show the newest N calls instead of sums."`
	Routes bool   `help:"Set the declared chain of each task beside who has answered, and why others did not."`
	JSON   bool   `help:"Print the node's answer as JSON; with --routes the comparison."`
	clientFlags
}

// maxHours is the longest window that a node answers for.
const maxHours = 24 * 3660

// Help implements kong.HelpProvider.
func (*usageShowCmd) Help() string {
	return `A cost that is not known is shown as unknown, never as 0; ~ marks estimated tokens. --routes looks at the newest records of the window, up to 10,000. "show" may be left out; "usage export" is the other subcommand.

Examples:

    sluice usage
    sluice usage --hours 168 --by model
    sluice usage --routes --hours 1
    sluice usage --recent 20 --json | jq '.calls[].latency_ms'`
}

// Validate implements kong's validation.
func (c *usageShowCmd) Validate() error {
	if c.Hours != nil && (*c.Hours < 1 || *c.Hours > maxHours) {
		return usagef("--hours must be between 1 and %d, not %d", maxHours, *c.Hours)
	}
	if c.Recent != nil && (*c.Recent < 1 || *c.Recent > subjects.MaxRecent) {
		return usagef("--recent must be between 1 and %d, not %d", subjects.MaxRecent, *c.Recent)
	}
	if c.Recent != nil && c.Hours != nil {
		return usagef("--recent shows the newest calls, --hours sums a window: give one of them")
	}
	if c.Routes && c.Recent != nil {
		return usagef("--routes looks at a window of --hours, --recent shows the newest calls: give one of them")
	}
	return nil
}

// Run asks and prints.
func (c *usageShowCmd) Run(ctx context.Context, a *app) error {
	a.json = c.JSON
	switch {
	case c.Recent != nil:
		return c.recent(ctx, a)
	case c.Routes:
		return c.routes(ctx, a)
	}
	q := subjects.UsageQuery{}
	if c.Hours != nil {
		q.Hours = *c.Hours
	}
	var sum subjects.UsageSummary
	if err := c.ask(ctx, a, "usage", subjects.QueryUsageSummary, &q, &sum); err != nil || c.JSON {
		return err
	}
	a.printUsage(&sum, c.By)
	return nil
}

func (c *usageShowCmd) recent(ctx context.Context, a *app) error {
	var r subjects.RecentUsage
	if err := c.ask(ctx, a, "usage", subjects.QueryUsageRecent, &subjects.RecentQuery{Limit: *c.Recent}, &r); err != nil || c.JSON {
		return err
	}
	if len(r.Calls) == 0 {
		fmt.Fprintln(a.out, "no calls yet")
		return nil
	}
	t := &table{columns: []column{
		{title: "TIME", fixed: true},
		{title: "PROCESS"},
		{title: "CLASS", drop: 3},
		{title: "PROVIDER/MODEL"},
		{title: "INPUT", right: true},
		{title: "OUTPUT", right: true},
		{title: "TOOK", right: true, drop: 1},
		{title: "WAITED", right: true, drop: 4, none: "0 ms"},
		{title: "COST", right: true},
		{title: "OUTCOME", fixed: true},
		{title: "PROMPT", drop: 2},
	}}
	for _, raw := range r.Calls {
		var rec subjects.UsageRecord
		if err := json.Unmarshal(raw, &rec); err != nil {
			return errUnknownRecord
		}
		t.add(a.recentRow(&rec)...)
	}
	a.printLines(t.lines(a.out)...)
	return nil
}

var errUnknownRecord = failf(subjects.KindProvider, "a usage record is not what this version of sluice knows")

func (a *app) recentRow(r *subjects.UsageRecord) []cell {
	outcome := cell{r.Outcome, green}
	if r.Outcome != subjects.OutcomeOK {
		outcome.colour = red
	}
	var marks []string
	if r.Cached {
		marks = append(marks, "cached")
	}
	if r.Partial {
		marks = append(marks, "partial")
	}
	if len(marks) > 0 {
		outcome.text += " (" + strings.Join(marks, ", ") + ")"
	}
	estimated := int64(0)
	if r.TokensEstimated {
		estimated = 1
	}
	preview := strings.Join(strings.Fields(r.PromptPreview), " ")
	row := texts(r.Timestamp.In(a.loc).Format("01-02 15:04:05"), r.Process, r.Class, r.Provider+"/"+r.Model,
		tokens(r.InputTokens, estimated), tokens(r.OutputTokens, estimated), millis(r.LatencyMs), millis(r.QueuedMs), priceText(r.CostUSD))
	return append(row, outcome, cell{preview, dim})
}

func priceText(usd *subjects.USD) string {
	if usd == nil {
		return "unknown"
	}
	return dollars(*usd)
}

// tokens writes a count, marked when some of it is an estimate.
func tokens(n, estimated int64) string {
	if estimated > 0 {
		return "~" + count(n)
	}
	return count(n)
}

// printUsage prints a summary by process, provider or model.
func (a *app) printUsage(s *subjects.UsageSummary, by string) {
	window := windowText(s.Hours)
	if s.Totals.Calls == 0 {
		fmt.Fprintf(a.out, "no calls in the last %s\n", window)
		return
	}
	until := s.To.Time // the end of its last bucket, which may be yet to come
	if now := a.now(); until.After(now) {
		until = now
	}
	fmt.Fprintf(a.out, "last %s, until %s\n\n", window, until.In(a.loc).Format("2006-01-02 15:04 MST"))
	a.printLines(usageTable(s, by).lines(a.out)...)
	if line := unpriced(s); line != "" {
		fmt.Fprintf(a.out, "\n%s\n", safe(line))
	}
}

func windowText(hours int) string {
	if hours == 1 {
		return "hour"
	}
	return fmt.Sprintf("%d hours", hours)
}

func usageTable(s *subjects.UsageSummary, by string) *table {
	rows := map[string][]subjects.UsageShare{"process": s.ByProcess, "provider": s.ByProvider, "model": s.ByModel}[by]
	t := &table{totals: true, columns: []column{
		{title: strings.ToUpper(by)},
		{title: "CALLS", right: true},
		{title: "ERRORS", right: true, none: "0", drop: 3},
		{title: "CACHED", right: true, none: "0", drop: 4},
		{title: "INPUT", right: true, drop: 1},
		{title: "OUTPUT", right: true, drop: 1},
		{title: "TOTAL", right: true},
		{title: "SHARE", right: true},
		{title: "COST", right: true},
		{title: "SAVED", right: true, none: "$0", drop: 5},
		{title: "TOOK", right: true, drop: 2},
		{title: "WAITED", right: true, none: "0 ms", drop: 6},
	}}
	for i := range rows {
		t.add(usageRow(rows[i].Name, &rows[i].UsageTotals, rows[i].Share)...)
	}
	t.add(usageRow("total", &s.Totals, 1)...)
	return t
}

func usageRow(name string, u *subjects.UsageTotals, share float64) []cell {
	errs := plain
	if u.Errors > 0 {
		errs = red
	}
	return []cell{
		{text: name},
		{text: count(u.Calls)},
		{count(u.Errors), errs},
		{text: count(u.Cached)},
		{text: tokens(u.InputTokens, u.Estimated)},
		{text: tokens(u.OutputTokens, u.Estimated)},
		{text: tokens(u.TotalTokens, u.Estimated)},
		{text: percent(share)},
		{text: cost(u)},
		{text: saved(u)},
		{text: millis(u.AvgLatencyMs)},
		{text: millis(u.AvgQueuedMs)},
	}
}

// cost is what the calls cost, as far as it is known.
func cost(u *subjects.UsageTotals) string { return partly(u.CostUSD, u.Unpriced, u.Calls) }

// saved is what the calls on a subscription saved, as far as it is known. How
// many those were is not in the sums: where nothing is known to be saved, all of
// them may be unknown.
func saved(u *subjects.UsageTotals) string {
	calls := u.Calls
	if u.SavedUSD == 0 {
		calls = u.SavedUnknown
	}
	return partly(u.SavedUSD, u.SavedUnknown, calls)
}

// partly writes a sum of which some calls' part is not known.
func partly(usd subjects.USD, unknown, calls int64) string {
	switch {
	case unknown == 0:
		return dollars(usd)
	case unknown >= calls && usd == 0: // not so when the unknown are failed tries
		return "unknown"
	}
	return dollars(usd) + " + unknown"
}

// maxUnpriced bounds the models that are named for want of a price.
const maxUnpriced = 5

// unpriced says how much of the cost is not known, and of which models; "" when
// all of it is.
func unpriced(s *subjects.UsageSummary) string {
	u := &s.Totals
	if u.Unpriced == 0 {
		return ""
	}
	var models []string
	for i := range s.ByModel {
		if m := &s.ByModel[i]; m.Unpriced > 0 {
			models = append(models, m.Name)
		}
	}
	slices.Sort(models)
	if more := len(models) - maxUnpriced; more > 0 {
		models = append(models[:maxUnpriced], fmt.Sprintf("%d models more", more))
	}
	calls := count(u.Unpriced) + " calls"
	if u.Unpriced == 1 {
		calls = "one call"
	}
	return fmt.Sprintf("The cost of %s (%s tokens) is not known. Of %s no price was noted, or none for cached tokens: see prices in the configuration.",
		calls, count(u.UnpricedTokens), strings.Join(models, ", "))
}

// usageExportCmd will write records to a file.
type usageExportCmd struct {
	Format string `placeholder:"FORMAT" help:"jsonl or csv."`
}

// Run says that it is not built.
func (*usageExportCmd) Run() error {
	return notBuilt("usage export", "`sluice usage --recent 10000 --json` has the newest records")
}
