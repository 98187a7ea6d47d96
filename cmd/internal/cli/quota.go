package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// quotaCmd is about the quotas of accounts.
type quotaCmd struct {
	Show  quotaShowCmd  `cmd:"" default:"withargs" help:"What is left of each account's quota, and what its circuit breaker says (the default)."`
	Reset quotaResetCmd `cmd:"" help:"Forget that a provider's quota ran out: it is tried again at once."`
}

// quotaShowCmd shows quotas.
type quotaShowCmd struct {
	Providers []string `arg:"" optional:"" name:"provider" help:"Only these; all that count or report a quota otherwise."`
	JSON      bool     `help:"Print the node's rows of these providers as JSON."`
	clientFlags
}

// Help implements kong.HelpProvider.
func (*quotaShowCmd) Help() string {
	return `Completions and tokens are those of the last hour. The soft limit is a mark and stops nobody. An account is out of quota once it has said so itself; it is tried again at the time shown. Windows are what the provider reports; the rest of one may be held for a class (quota.reserve).

Examples:

    sluice quota
    sluice quota copilot --json | jq '.providers[0].quota.exhausted'
    sluice quota reset copilot`
}

// Run asks and prints.
func (c *quotaShowCmd) Run(ctx context.Context, a *app) error {
	a.json = c.JSON
	data, err := c.query(ctx, a, "quota", subjects.QueryProviders, nil)
	if err != nil {
		return err
	}
	rows, raw, err := c.rows(data)
	if err != nil {
		return err
	}
	if c.JSON {
		b, err := json.Marshal(map[string][]json.RawMessage{"providers": raw})
		if err != nil {
			return err
		}
		a.printJSON(b)
		return nil
	}
	if len(rows) == 0 {
		fmt.Fprintln(a.out, "no provider counts or reports a quota; name one to see it all the same")
		return nil
	}
	for i, t := range []*table{a.quotaTable(rows), a.holdTable(rows), a.windowTable(rows)} {
		if len(t.rows) == 0 {
			continue
		}
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		a.printLines(t.lines(a.out)...)
	}
	return nil
}

// rows are the providers to show, read and as the node wrote them.
func (c *quotaShowCmd) rows(data []byte) (rows []subjects.ProviderInfo, raw []json.RawMessage, err error) {
	var reply struct {
		Providers []json.RawMessage `json:"providers"`
	}
	if err := read(subjects.QueryProviders, data, &reply); err != nil {
		return nil, nil, err
	}
	wanted := map[string]bool{}
	for _, id := range c.Providers {
		wanted[id] = true
	}
	raw = []json.RawMessage{}
	var ids []string
	for _, b := range reply.Providers {
		var p subjects.ProviderInfo
		if err := read(subjects.QueryProviders, b, &p); err != nil {
			return nil, nil, err
		}
		ids = append(ids, p.Provider)
		if wanted[p.Provider] || len(c.Providers) == 0 && hasQuota(&p) {
			rows, raw = append(rows, p), append(raw, b)
			delete(wanted, p.Provider)
		}
	}
	for _, id := range c.Providers {
		if wanted[id] {
			return nil, nil, unknownProvider(id, ids)
		}
	}
	return rows, raw, nil
}

func unknownProvider(id string, ids []string) error {
	hint := ""
	if near := subjects.Nearest(id, ids); near != "" {
		hint = " (did you mean " + near + "?)"
	}
	return failf(subjects.KindValidation, "no provider is called %q%s; the providers are %s", id, hint, strings.Join(ids, ", "))
}

// hasQuota says whether there is anything to tell of a provider's quota.
func hasQuota(p *subjects.ProviderInfo) bool {
	q := p.Quota
	return q != nil && (q.Tracked || len(q.Exhausted) > 0 || len(q.Windows) > 0 || q.State != "" && q.State != subjects.QuotaOK)
}

func (a *app) quotaTable(rows []subjects.ProviderInfo) *table {
	t := &table{columns: []column{
		{title: "PROVIDER"},
		{title: "QUOTA", fixed: true},
		{title: "LAST HOUR", right: true},
		{title: "TOKENS", right: true, drop: 1},
		{title: "BREAKER", fixed: true},
		{title: "TRIED AGAIN", fixed: true},
		{title: "REASON", drop: 2},
	}}
	for i := range rows {
		p := &rows[i]
		q := cmp.Or(p.Quota, &subjects.QuotaInfo{})
		b := cmp.Or(p.Breaker, &subjects.BreakerInfo{})
		t.add(cell{text: p.Provider}, quotaState(q.State), cell{text: lastHour(q)}, cell{text: count(q.Tokens)},
			breakerState(b.State), cell{text: a.when(b.RetryAt)}, cell{text: breakerReason(b)})
	}
	return t
}

// lastHour sets the completions beside the soft limit.
func lastHour(q *subjects.QuotaInfo) string {
	if q.SoftLimit > 0 {
		return count(q.Completions) + " of " + count(q.SoftLimit)
	}
	return count(q.Completions)
}

func quotaState(s string) cell {
	switch s {
	case subjects.QuotaOK:
		return cell{s, green}
	case subjects.QuotaSoftLimit:
		return cell{"over the soft limit", yellow}
	case "":
		return cell{}
	}
	return cell{s, red}
}

func breakerState(s string) cell {
	switch s {
	case subjects.BreakerClosed:
		return cell{s, green}
	case subjects.BreakerHalfOpen:
		return cell{s, yellow}
	case "":
		return cell{}
	}
	return cell{s, red}
}

// breakerReason says why a breaker is not closed, or how near it is.
func breakerReason(b *subjects.BreakerInfo) string {
	switch {
	case b.State == subjects.BreakerClosed && b.Failures > 0:
		return failures(b.Failures)
	case b.State == subjects.BreakerClosed || b.State == "":
		return ""
	}
	s := b.Reason
	if b.Failures > 0 {
		s = strings.TrimPrefix(s+", "+failures(b.Failures), ", ")
	}
	if b.Opened > 1 {
		s = strings.TrimPrefix(fmt.Sprintf("%s, opened %d times", s, b.Opened), ", ")
	}
	return s
}

func failures(n int) string {
	if n == 1 {
		return "one failure"
	}
	return fmt.Sprintf("%d failures in a row", n)
}

func (a *app) holdTable(rows []subjects.ProviderInfo) *table {
	t := &table{columns: []column{
		{title: "OUT OF QUOTA"},
		{title: "SINCE", fixed: true, drop: 1},
		{title: "TIMES", right: true, drop: 2},
		{title: "TRIED AGAIN", fixed: true},
		{title: "ITS PROVIDER SAYS", fixed: true},
	}}
	for i := range rows {
		if rows[i].Quota == nil {
			continue
		}
		for _, h := range rows[i].Quota.Exhausted {
			name, says := rows[i].Provider, ""
			if h.Model != "" {
				name += "/" + h.Model
			}
			if h.ResetAt != nil {
				says = "back " + a.when(h.ResetAt)
			}
			t.add(cell{name, red}, cell{text: a.clock(h.Since.Time)}, cell{text: count(int64(h.Times))},
				cell{text: a.when(&h.RetryAt)}, cell{text: says})
		}
	}
	return t
}

// windowMarks is the width of a window's bar.
const windowMarks = 20

func (a *app) windowTable(rows []subjects.ProviderInfo) *table {
	t := &table{columns: []column{
		{title: "WINDOW"},
		{fixed: true, drop: 3},
		{title: "USED", right: true},
		{title: "STATUS", drop: 2},
		{title: "RESETS", fixed: true},
		{title: "SEEN", fixed: true, drop: 1},
		{title: "REST HELD FOR"},
	}}
	for i := range rows {
		if rows[i].Quota == nil {
			continue
		}
		for _, w := range rows[i].Quota.Windows {
			c := usedColour(w.Used)
			t.add(cell{text: rows[i].Provider + " " + w.Name}, cell{bar(int(w.Used*windowMarks+0.5), windowMarks), c},
				cell{percent(w.Used), c}, cell{text: w.Status}, cell{text: a.when(w.ResetAt)},
				cell{text: a.ago(w.SeenAt.Time)}, cell{w.HeldFor, yellow})
		}
	}
	return t
}

func usedColour(used float64) colour {
	switch {
	case used >= 0.95:
		return red
	case used >= 0.8:
		return yellow
	}
	return green
}

// ago says how old something is.
func (a *app) ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return durationText(max(a.now().Sub(t), 0).Round(time.Second)) + " ago"
}

// quotaResetCmd lifts a provider's holds.
type quotaResetCmd struct {
	Provider string `arg:"" help:"Account whose quota is taken for there again, with all of its models."`
	JSON     bool   `help:"Print the node's answer as JSON."`
	clientFlags
}

// Help implements kong.HelpProvider.
func (*quotaResetCmd) Help() string {
	return `Needs a NATS user that may publish on llm.admin.> (admin, or anyone where no password is set). An account that has none left says so again at its next call.

Example:

    sluice quota reset copilot`
}

// Run asks and prints.
func (c *quotaResetCmd) Run(ctx context.Context, a *app) error {
	a.json = c.JSON
	var r subjects.QuotaResetReply
	if err := c.ask(ctx, a, "quota reset", subjects.AdminQuotaReset, &subjects.QuotaResetRequest{Provider: c.Provider}, &r); err != nil || c.JSON {
		return err
	}
	lifted := plural(r.Lifted, "hold") + " lifted"
	if r.Lifted == 0 {
		lifted = "its quota had not run out; nothing was changed"
	}
	fmt.Fprintf(a.out, "%s: %s\n", safe(r.Provider), lifted)
	return nil
}
