package actors

import (
	"context"
	"slices"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// explain answers where a job would go. It decides as a call does, with the same
// function and the same state; only the hooks are not asked, since there is no
// content: RouteQuery.Sensitivity stands for the classifier's word.
func (e *Engine) explain(ctx context.Context, body []byte) (any, error) {
	var q subjects.RouteQuery
	if err := readQuery(body, &q); err != nil {
		return nil, err
	}
	now := e.setup()
	job, err := jobOf(&q)
	if err != nil {
		return nil, err
	}
	if job.Class == "" {
		job.Class = routing.Class(now.cfg, q.Process)
	}
	if now.cfg.Mode == config.ModeLocal {
		job.Privacy = "local"
	}
	var used usedUp
	if !e.hooks.asks(config.HookBudget) {
		used.freeOnly, used.localOnly, used.err = e.ledger.over(ctx, bill{runID: q.RunID, batchID: q.BatchID})
	}
	d, err := now.resolve(*e.snapshot.Load(), job, used)
	if err != nil {
		return nil, err
	}
	return d.Route(job, job.Class), nil
}

// jobOf reads the question.
func jobOf(q *subjects.RouteQuery) (*routing.Job, error) {
	needs := wire.Needs(q.Needs)
	for _, name := range q.Needs {
		if !slices.Contains(subjects.Capabilities, name) {
			return nil, unknownWord("needs", name, subjects.Capabilities)
		}
	}
	if q.Tools {
		needs |= wire.NeedTools
	}
	if q.Class != "" && !subjects.ValidClass(q.Class) {
		return nil, unknownWord("class", q.Class, subjects.Classes)
	}
	if q.Sensitivity != "" && !slices.Contains(config.Sensitivities, q.Sensitivity) {
		return nil, unknownWord("sensitivity", q.Sensitivity, config.Sensitivities)
	}
	if words := []string{"any", "local"}; q.Privacy != "" && !slices.Contains(words, q.Privacy) {
		return nil, unknownWord("privacy", q.Privacy, words)
	}
	return &routing.Job{
		Task: q.Task, Tier: q.Tier, Process: q.Process, Provider: q.Provider, Model: q.Model, Privacy: q.Privacy,
		Needs: needs, ForcePaid: q.ForcePaid, Class: q.Class, Sensitivity: q.Sensitivity,
	}, nil
}

func unknownWord(field, word string, words []string) error {
	hint := ""
	if near := subjects.Nearest(word, words); near != "" {
		hint = ", did you mean " + near + "?"
	}
	return subjects.Errorf(subjects.KindValidation, "%s: %q is none of %v%s", field, clipName(word), words, hint)
}
