package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// healthCmd shows a node's health.
type healthCmd struct {
	JSON bool `help:"Print the node's answer as JSON."`
	clientFlags
}

// Help implements kong.HelpProvider.
func (*healthCmd) Help() string {
	return `Exit status 1 when the node is degraded or cannot serve.

Examples:

    sluice health
    sluice health --json | jq .pools`
}

// Run asks and prints.
func (c *healthCmd) Run(ctx context.Context, a *app) error {
	a.json = c.JSON
	var h subjects.Health
	if err := c.ask(ctx, a, "health", subjects.QueryHealth, nil, &h); err != nil {
		return err
	}
	if !c.JSON {
		a.printHealth(&h)
	}
	if h.Status != "ok" || !h.CanServe {
		return errFailed
	}
	return nil
}

func (a *app) printHealth(h *subjects.Health) {
	state := a.out.paint(green, safe(h.Status))
	if h.Status != "ok" || !h.CanServe {
		state = a.out.paint(red, safe(h.Status))
	}
	up := durationText(max(time.Duration(h.UptimeSeconds), 1) * time.Second)
	fmt.Fprintf(a.out, "%s · mode %s · up %s · %d in flight · version %s\n",
		state, safe(h.Mode), up, h.InFlightRequests, safe(h.Version))
	for _, r := range h.Reasons {
		fmt.Fprintf(a.out, "  %s %s\n", a.out.paint(yellow, "!"), safe(r))
	}
	if !h.CanServe {
		fmt.Fprintf(a.out, "  %s nothing can be served now\n", a.out.paint(red, "!"))
	}
	for _, t := range []*table{a.providerHealth(h), classHealth(h), poolHealth(h)} {
		if len(t.rows) > 0 {
			fmt.Fprintln(a.out)
			a.printLines(t.lines(a.out)...)
		}
	}
	fmt.Fprintf(a.out, "\nusage log: %s\n", usageHealth(&h.Usage))
}

func (a *app) providerHealth(h *subjects.Health) *table {
	t := &table{columns: []column{
		{title: "PROVIDER"},
		{title: "STATE", fixed: true},
		{title: "MODE", drop: 1},
		{title: "BREAKER", fixed: true},
		{title: "QUOTA", fixed: true},
		{title: "TRIED AGAIN", fixed: true, drop: 2},
		{title: "REASON"},
	}}
	for _, id := range slices.Sorted(maps.Keys(h.Providers)) {
		p := h.Providers[id]
		t.add(cell{text: id}, availability(p.Available), cell{text: p.Mode},
			breakerState(p.Breaker), quotaState(p.Quota), cell{text: a.when(p.RetryAt)}, cell{text: p.Reason})
	}
	return t
}

func availability(ok bool) cell {
	if ok {
		return cell{"available", green}
	}
	return cell{"unavailable", red}
}

func classHealth(h *subjects.Health) *table {
	t := &table{columns: loadColumns("CLASS", "SLOTS")}
	for _, name := range classNames(h.Classes) {
		c := h.Classes[name]
		t.add(load(name, c.Slots, c.Active, c.Queued, c.Peak, c.Granted)...)
	}
	return t
}

// classNames lists the classes in the contract's order, others after them.
func classNames(classes map[string]subjects.ClassHealth) []string {
	var names []string
	for _, name := range subjects.Classes {
		if _, ok := classes[name]; ok {
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		if !subjects.ValidClass(name) {
			names = append(names, name)
		}
	}
	return names
}

func poolHealth(h *subjects.Health) *table {
	t := &table{columns: loadColumns("POOL", "CAP")}
	for _, name := range slices.Sorted(maps.Keys(h.Pools)) {
		p := h.Pools[name]
		t.add(load(name, p.Cap, p.Active, p.Queued, p.Peak, p.Granted)...)
	}
	return t
}

func loadColumns(name, limit string) []column {
	return []column{
		{title: name},
		{title: limit, right: true},
		{title: "ACTIVE", right: true},
		{title: "QUEUED", right: true},
		{title: "PEAK", right: true},
		{title: "GRANTED", right: true, drop: 1},
	}
}

func load(name string, limit, active, queued, peak int, granted int64) []cell {
	q := plain
	if queued > 0 {
		q = yellow
	}
	return []cell{
		{text: name},
		{text: strconv.Itoa(limit)},
		{text: strconv.Itoa(active)},
		{strconv.Itoa(queued), q},
		{text: strconv.Itoa(peak)},
		{text: count(granted)},
	}
}

func usageHealth(u *subjects.UsageHealth) string {
	s := fmt.Sprintf("%d waiting to be written, %d behind", u.Pending, max(int64(u.LastSeq)-int64(u.AppliedSeq), 0))
	if u.Error != "" {
		s += "; " + safe(u.Error)
	}
	return s
}
