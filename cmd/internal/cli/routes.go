package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// This file sets what is declared beside what happened: for each task and tier
// of the usage log's newest records, the chain that the node would go down now
// (llm.query.route) and who has answered, from which place of the chain, and why
// those before were passed by (chain_position, attempt_trail).

const (
	// maxRouteGroups bounds the groups that are shown, and so the questions asked:
	// tasks are names that callers choose.
	maxRouteGroups = 50
	// leastRows is the number of rows below which no less is asked for.
	leastRows = 50
	// defaultHours is the window of --routes, as that of the sums.
	defaultHours = 24
)

// routesReport is what usage --routes says.
type routesReport struct {
	Hours int            `json:"hours"`
	From  *subjects.Time `json:"from"`
	To    *subjects.Time `json:"to"`
	// Calls counts the records that were looked at. Complete says that those are
	// all of the window; else they are the newest, from From on.
	Calls    int           `json:"calls"`
	Complete bool          `json:"complete"`
	Groups   []*routeGroup `json:"groups"`
	// OtherCalls are those of the groups beyond the bound.
	OtherCalls int `json:"otherCalls"`
}

// routeGroup is one task and tier.
type routeGroup struct {
	Task   string `json:"task"`
	Tier   string `json:"tier"`
	Calls  int    `json:"calls"`
	Failed int    `json:"failed"`
	Cached int    `json:"cached"`
	// CachedShare is the part of the calls that the cache answered, 0 to 1.
	CachedShare float64 `json:"cachedShare"`
	// Declared is the decision for this task and tier as of now; Error says why
	// there is none.
	Declared *subjects.Route `json:"declared"`
	Error    string          `json:"error,omitempty"`
	// Answered has who served, the most calls first; Positions, from which place of
	// the chain; PassedBy, why candidates before the one that ended a call did not.
	// Calls that the cache answered are in none of them.
	Answered  []*routeServed  `json:"answered"`
	Positions []routePosition `json:"positions"`
	PassedBy  []*routePassed  `json:"passedBy"`
	// Failures counts the calls that failed, by kind.
	Failures map[string]int64 `json:"failures"`

	positions map[int]int
}

// routeServed is one model of one provider that answered calls.
type routeServed struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	Calls    int    `json:"calls"`
	// Share is its part of the group's calls, 0 to 1.
	Share float64 `json:"share"`
}

type routePosition struct {
	Position int `json:"position"`
	Calls    int `json:"calls"`
}

// routePassed counts the calls that a provider did not serve, for a reason of the
// decision (quota, breaker, …) or a kind of failure.
type routePassed struct {
	Provider string `json:"provider"`
	Why      string `json:"why"`
	Calls    int    `json:"calls"`
}

// routes asks and prints.
func (c *usageShowCmd) routes(ctx context.Context, a *app) error {
	stop := a.spin("waiting for the node")
	defer stop()
	ctx, cn, err := c.connect(ctx, a, "usage")
	if err != nil {
		return err
	}
	defer cn.close()
	hours := defaultHours
	if c.Hours != nil {
		hours = *c.Hours
	}
	rows, all, err := cn.newest(ctx)
	if err != nil {
		return err
	}
	r, err := routesOf(rows, all, hours, a.now())
	if err != nil {
		return err
	}
	for _, g := range r.Groups {
		if err := g.declare(ctx, cn); err != nil {
			return err
		}
	}
	stop()
	if c.JSON {
		b, err := json.Marshal(r)
		if err != nil {
			return err
		}
		a.printJSON(b)
		return nil
	}
	a.printRoutes(r)
	return nil
}

// newest reads the newest records, as many as one message carries; all says that
// there are no others.
func (c *conn) newest(ctx context.Context) (rows []json.RawMessage, all bool, err error) {
	for limit := subjects.MaxRecent; ; limit /= 2 {
		data, err := c.query(ctx, subjects.QueryUsageRecent, &subjects.RecentQuery{Limit: limit})
		var e *subjects.Error
		if errors.As(err, &e) && e.Code == subjects.CodeReplyTooLarge && limit > leastRows {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		var r subjects.RecentUsage
		if err := read(subjects.QueryUsageRecent, data, &r); err != nil {
			return nil, false, err
		}
		return r.Calls, len(r.Calls) < limit, nil
	}
}

// routesOf counts the records of the window, which come newest first.
func routesOf(rows []json.RawMessage, all bool, hours int, now time.Time) (*routesReport, error) {
	r := &routesReport{Hours: hours, Complete: all, Groups: []*routeGroup{}}
	from := now.Add(-time.Duration(hours) * time.Hour)
	groups := map[[2]string]*routeGroup{}
	for _, raw := range rows {
		var rec subjects.UsageRecord
		if err := json.Unmarshal(raw, &rec); err != nil {
			return nil, errUnknownRecord
		}
		if rec.Timestamp.Before(from) { // an older one may stand before a newer: ends are logged as they come
			r.Complete = true
			continue
		}
		key := [2]string{rec.Task, rec.Tier}
		g := groups[key]
		if g == nil {
			g = &routeGroup{
				Task: rec.Task, Tier: rec.Tier, Failures: map[string]int64{}, positions: map[int]int{},
				Answered: []*routeServed{}, PassedBy: []*routePassed{}, Positions: []routePosition{},
			}
			groups[key] = g
			r.Groups = append(r.Groups, g)
		}
		g.count(&rec)
		r.count(&rec)
	}
	slices.SortFunc(r.Groups, func(a, b *routeGroup) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Tier, b.Tier))
	})
	if len(r.Groups) > maxRouteGroups {
		for _, g := range r.Groups[maxRouteGroups:] {
			r.OtherCalls += g.Calls
		}
		r.Groups = r.Groups[:maxRouteGroups]
	}
	for _, g := range r.Groups {
		g.finish()
	}
	return r, nil
}

func (r *routesReport) count(rec *subjects.UsageRecord) {
	r.Calls++
	if t := rec.Timestamp; r.From == nil || t.Before(r.From.Time) {
		r.From = &t
	}
	if t := rec.Timestamp; r.To == nil || t.After(r.To.Time) {
		r.To = &t
	}
}

func (g *routeGroup) count(rec *subjects.UsageRecord) {
	g.Calls++
	if rec.Cached {
		g.Cached++
		return
	}
	g.passedBy(rec)
	if rec.Outcome != subjects.OutcomeOK {
		g.Failed++
		g.Failures[rec.Outcome]++
		return
	}
	g.positions[rec.ChainPosition]++
	for _, s := range g.Answered {
		if s.Provider == rec.Provider && s.Model == rec.Model {
			s.Calls++
			return
		}
	}
	g.Answered = append(g.Answered, &routeServed{Provider: rec.Provider, Model: rec.Model, Calls: 1})
}

// passedBy counts the providers of a trail that did not serve, each with each
// reason once a call: three tries of one provider are one call that it lost. The
// provider whose failure is the call's outcome was not passed by: it is counted
// among the failures.
func (g *routeGroup) passedBy(rec *subjects.UsageRecord) {
	seen := [][2]string{endedBy(rec)}
	for _, t := range rec.AttemptTrail {
		why := t.Outcome
		if why == subjects.OutcomeSkipped {
			why = orElse(t.Reason, why)
		}
		key := [2]string{t.Provider, why}
		if why == subjects.OutcomeOK || slices.Contains(seen, key) {
			continue
		}
		seen = append(seen, key)
		i := slices.IndexFunc(g.PassedBy, func(p *routePassed) bool { return p.Provider == t.Provider && p.Why == why })
		if i < 0 {
			g.PassedBy = append(g.PassedBy, &routePassed{Provider: t.Provider, Why: why})
			i = len(g.PassedBy) - 1
		}
		g.PassedBy[i].Calls++
	}
}

// endedBy is the provider, and the kind of its failure, that a failed call ended
// with.
func endedBy(rec *subjects.UsageRecord) [2]string {
	for _, t := range slices.Backward(rec.AttemptTrail) {
		if t.Outcome != subjects.OutcomeSkipped {
			if t.Outcome == rec.Outcome {
				return [2]string{t.Provider, t.Outcome}
			}
			break
		}
	}
	return [2]string{}
}

// finish sorts, and works the shares out.
func (g *routeGroup) finish() {
	g.CachedShare = float64(g.Cached) / float64(g.Calls)
	for _, s := range g.Answered {
		s.Share = float64(s.Calls) / float64(g.Calls)
	}
	slices.SortFunc(g.Answered, func(a, b *routeServed) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Model, b.Model))
	})
	slices.SortFunc(g.PassedBy, func(a, b *routePassed) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Why, b.Why))
	})
	for _, at := range slices.Sorted(maps.Keys(g.positions)) {
		g.Positions = append(g.Positions, routePosition{at, g.positions[at]})
	}
}

// declare asks for the decision of the group's task and tier. That the node
// refuses the question (a tier of another time) is part of the answer.
func (g *routeGroup) declare(ctx context.Context, c *conn) error {
	data, err := c.query(ctx, subjects.QueryRoute, &subjects.RouteQuery{Task: g.Task, Tier: g.Tier})
	var e *subjects.Error
	if errors.As(err, &e) && e.Kind == subjects.KindValidation {
		g.Error = e.Message
		return nil
	}
	if err != nil {
		return err
	}
	g.Declared = &subjects.Route{}
	return read(subjects.QueryRoute, data, g.Declared)
}

func (a *app) printRoutes(r *routesReport) {
	window := windowText(r.Hours)
	if r.Calls == 0 {
		fmt.Fprintf(a.out, "no calls in the last %s\n", window)
		return
	}
	if r.Complete {
		fmt.Fprintf(a.out, "last %s, %s\n", window, plural(r.Calls, "call"))
	} else {
		fmt.Fprintf(a.out, "the newest %s of the last %s, since %s\n", plural(r.Calls, "call"), window, a.clock(r.From.Time))
	}
	for _, g := range r.Groups {
		fmt.Fprintf(a.out, "\n%s\n", a.out.paint(bold, safe(g.title())))
		switch {
		case g.Error != "":
			fmt.Fprintf(a.out, "%s %s\n", a.out.paint(yellow, "nothing is declared:"), safe(g.Error))
		case len(g.Declared.Chain) == 0:
			fmt.Fprintf(a.out, "%s %s\n", a.out.paint(yellow, "nobody can serve it now:"), safe(g.Declared.Summary))
		}
		if t := g.table(); len(t.rows) > 0 {
			a.printLines(t.lines(a.out)...)
		}
	}
	if r.OtherCalls > 0 {
		fmt.Fprintf(a.out, "\n%s of other tasks are not shown\n", plural(r.OtherCalls, "call"))
	}
}

// title says how the group's calls went: "semantic_code_analysis (standard): 120
// calls, 12 from the cache (10.0 %), 4 failed (TIMEOUT 4); served by place 1: 96, 2: 8".
func (g *routeGroup) title() string {
	s := fmt.Sprintf("%s (%s): %s", orElse(g.Task, "no task"), orElse(g.Tier, "no tier"), plural(g.Calls, "call"))
	if g.Cached > 0 {
		s += fmt.Sprintf(", %s from the cache (%s)", count(int64(g.Cached)), percent(g.CachedShare))
	}
	if g.Failed > 0 {
		s += fmt.Sprintf(", %s failed (%s)", count(int64(g.Failed)), tally(g.Failures))
	}
	for i, p := range g.Positions {
		if i == 0 {
			s += "; served by place "
		} else {
			s += ", "
		}
		s += fmt.Sprintf("%d: %s", p.Position+1, count(int64(p.Calls)))
	}
	return s
}

// table has a line for each candidate of the declared chain, then for what is
// left out of it now, then for what the records name beside.
func (g *routeGroup) table() *table {
	t := &table{columns: []column{
		{title: "DECLARED NOW"},
		{title: "ANSWERED"},
		{title: "CALLS", right: true},
		{title: "SHARE", right: true},
		{title: "PASSED BY", drop: 1},
	}}
	var told []string // the providers that have a line
	line := func(declared, provider string) {
		if slices.Contains(told, provider) {
			return
		}
		told = append(told, provider)
		passed, first := g.passed(provider), true
		for _, s := range g.Answered {
			if s.Provider == provider {
				t.add(texts(declared, s.Provider+"/"+s.Model, count(int64(s.Calls)), percent(s.Share), passed)...)
				declared, passed, first = "", "", false
			}
		}
		if first {
			t.add(texts(declared, "", "0", percent(0), passed)...)
		}
	}
	if g.Declared != nil {
		for i, k := range g.Declared.Chain {
			line(fmt.Sprintf("%d %s/%s", i+1, k.Provider, k.Model), k.Provider)
		}
		for _, s := range g.Declared.Skipped {
			switch {
			case g.absent(&s):
				told = append(told, s.Provider)
			case g.answered(s.Provider) || g.passed(s.Provider) != "":
				line("– "+s.Provider+", left out: "+s.Reason, s.Provider)
			}
		}
	}
	for _, s := range g.Answered {
		line("– "+s.Provider+", not in the chain", s.Provider)
	}
	for _, p := range g.PassedBy {
		line("– "+p.Provider+", not in the chain", p.Provider)
	}
	return t
}

// absent says that a provider is left out now for the one reason that it was left
// out for in every record: it was never there. It has no line.
func (g *routeGroup) absent(s *subjects.Skipped) bool {
	only := slices.Contains([]string{"unavailable", "not_hosted", "mode"}, s.Reason) && !g.answered(s.Provider)
	for _, p := range g.PassedBy {
		if p.Provider == s.Provider && p.Why != s.Reason {
			return false
		}
	}
	return only
}

func (g *routeGroup) answered(provider string) bool {
	return slices.ContainsFunc(g.Answered, func(s *routeServed) bool { return s.Provider == provider })
}

// passed says why a provider did not serve: "quota 12, RATE_LIMITED 2".
func (g *routeGroup) passed(provider string) string {
	var why []string
	for _, p := range g.PassedBy {
		if p.Provider == provider {
			why = append(why, p.Why+" "+count(int64(p.Calls)))
		}
	}
	return strings.Join(why, ", ")
}
