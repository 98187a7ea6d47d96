package routing

import (
	"strings"
	"unicode"

	"github.com/sluice-llm/sluice/subjects"
)

// SkippedAt lists, for a trail, the providers that were left out between the
// candidate before position i of the chain and the one at i; len(Chain) gives
// those after the last. Providers behind the one that answers are not part of
// what happened.
func (d *Decision) SkippedAt(i int) []subjects.Attempt {
	var out []subjects.Attempt
	for k, s := range d.Skipped {
		if d.places[k].before == i {
			out = append(out, subjects.Attempt{Provider: s.Provider, Outcome: subjects.OutcomeSkipped, Reason: s.Reason})
		}
	}
	return out
}

// Route is the decision as callers see it.
func (d *Decision) Route(job *Job, class string) *subjects.Route {
	r := &subjects.Route{
		Tier: d.Tier, Task: job.Task, Class: class, Sensitivity: job.Sensitivity,
		Chain: d.Chain, Skipped: d.Skipped, Notes: d.Notes,
	}
	if r.Chain == nil {
		r.Chain = []subjects.Candidate{}
	}
	if r.Skipped == nil {
		r.Skipped = []subjects.Skipped{}
	}
	if len(d.Chain) == 0 && !d.RetryAt.IsZero() {
		r.RetryAt = &subjects.Time{Time: d.RetryAt}
	}
	r.Summary = d.summary(job)
	return r
}

func (d *Decision) summary(job *Job) string {
	var b strings.Builder
	if job.Task != "" {
		b.WriteString(oneLine(job.Task))
	} else {
		b.WriteString("call")
	}
	b.WriteString(" (tier " + d.Tier + ") -> ")
	for i, c := range d.Chain {
		if i > 0 {
			b.WriteString(" > ")
		}
		b.WriteString(c.Provider + "/" + c.Model)
	}
	if len(d.Chain) == 0 {
		b.WriteString("no provider")
	}
	for i, s := range d.Skipped {
		if i == 0 {
			b.WriteString(" [")
		} else {
			b.WriteString("; ")
		}
		b.WriteString(s.Provider + " skipped: " + s.Detail)
		if i == len(d.Skipped)-1 {
			b.WriteString("]")
		}
	}
	return b.String()
}

// oneLine is a caller's word without what would end the line or steer a terminal.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '·'
	}, s)
}
