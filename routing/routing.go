// Package routing decides which provider and model a job resolves to, and why.
//
// It is pure: a configuration and a snapshot of provider states go in, a
// decision with its reasons comes out, and the same function answers a live
// call and the question what would happen (llm.query.route). It does no I/O and
// keeps nothing.
//
// The order of the chain (order.go): the provider that was asked for, then those
// that serve the model that was asked for, then the task's own priority list or
// else the tier's, then, in public mode, the local runners. Each provider stands
// in it once. A provider that cannot serve is left out with one reason
// (judge.go). Why nothing can serve, or nothing did, is an error (ends.go); the
// words and texts of the reasons stand in reasons.go, what callers see of a
// decision in explain.go.
//
// What decides the tier, first match: SEMANTIC_ANALYSIS_TIER, then
// SEMANTIC_ANALYSIS_COST_MODE=budget (fast), the call's tier, the call's model
// when it names a tier, the task's tier, the default tier. What decides the
// providers, first match: a call aimed at one provider, mode mock,
// SEMANTIC_ANALYSIS_PROVIDER, mode local, the order above.
//
// # Holds
//
// What an account holds back is in its State as Holds, each with the time at
// which one call may try again:
//
//	not On → stands in the chain
//	On, before Until → left out; may be tried at Until
//	On, at or past Until → stands in the chain: the account lets one call through
//	On, Trial → left out: that call is under way
//	On, Until zero, no Trial → left out; when is not known
//
// # Speed
//
// Every call is decided here, so New works out all that does not depend on the
// job or on the moment: orders with their providers, models by tier, who may see
// what. Resolve makes its result and no other garbage.
package routing

import (
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// State is what routing must know of one provider at this moment.
type State struct {
	Available bool
	// Remote says that another node hosts it.
	Remote bool
	// Reason is ReasonUnavailable or ReasonNotHosted, Detail the text for people.
	Reason string
	Detail string
	Has    wire.Need

	// Breaker holds the provider back while its circuit breaker is not closed,
	// Quota while the account has no quota left, Models does so for one model each,
	// by id. Withheld holds it back from one class each: the rest of a window is
	// kept for another.
	Breaker  Hold
	Quota    Hold
	Models   map[string]Hold
	Withheld map[string]Hold
}

// Hold says that a provider is to be passed by. The zero value says that it is
// not.
type Hold struct {
	On bool
	// Until is when one call may try it; zero = not known.
	Until time.Time
	// Trial says that this call is under way: the others still pass by.
	Trial bool
	// Detail is what more there is to say, for people: "after PROVIDER_ERROR" of a
	// breaker, "for claude-opus-5" of a quota, a sentence of a reserve. It stands
	// behind the reason and the time ("breaker open until 14:05:30 after
	// PROVIDER_ERROR"), repeats neither, and may be empty.
	Detail string
}

// active reports whether the hold keeps a call away at a moment.
func (h *Hold) active(now time.Time) bool {
	return h.On && (h.Trial || h.Until.IsZero() || now.Before(h.Until))
}

// trialWait is when to try again while another's trial call is under way.
const trialWait = time.Second

// retryAt is when it makes sense to try again; zero = not known.
func (h *Hold) retryAt(now time.Time) time.Time {
	if h.Trial {
		return now.Add(trialWait)
	}
	return h.Until
}

// Held returns what keeps a call of a class away from a model of the provider at
// a moment, with its reason; held is false when nothing does.
func (s *State) Held(model, class string, now time.Time) (reason string, hold Hold, held bool) {
	if s.Quota.active(now) {
		return ReasonQuota, s.Quota, true
	}
	if h := s.Models[model]; h.active(now) {
		return ReasonQuota, h, true
	}
	if h := s.Withheld[class]; h.active(now) {
		return ReasonReserve, h, true
	}
	if s.Breaker.active(now) {
		return ReasonBreaker, s.Breaker, true
	}
	return "", Hold{}, false
}

// Snapshot has the state of each provider. It is not changed while in use.
type Snapshot map[string]State

// Job is what is asked.
type Job struct {
	Task     string
	Tier     string
	Process  string
	Provider string
	Model    string
	Privacy  string
	Needs    wire.Need
	// ForcePaid leaves the subscriptions out.
	ForcePaid bool
	// Exact asks for Provider and no other (llm.provider.<provider>.complete).
	Exact bool
	// Class is who is waiting.
	Class string
	// Sensitivity is how the content is classified, one of config.Sensitivities;
	// "" = not classified, which is public. Only, when not nil, lists the providers
	// that a classifier allows.
	Sensitivity string
	Only        []string
	// LocalOnly leaves all but the local providers out, for the reason that
	// LocalReason names: ReasonBudget, or else ReasonSensitivity. It is the text for
	// people, "" = no such rule.
	LocalOnly, LocalReason string
	// FreeOnly leaves the metered accounts out: a budget is used up. It is the text
	// for people, "" = no such rule.
	FreeOnly string
}

// Decision is the chain and how it came about. It is the answer for one moment
// and never changes.
type Decision struct {
	Tier string
	// Asked is the provider that was asked for by name; "" = none.
	Asked   string
	Chain   []subjects.Candidate
	Skipped []subjects.Skipped
	Notes   []string
	// RetryAt is the soonest time at which one of Skipped may be tried again, a
	// second from the decision where its trial call is under way; zero = not known,
	// or nothing is held back.
	RetryAt time.Time

	// at is the moment it was made for, mode the configuration's.
	at   time.Time
	mode string
	// places has one for each of Skipped.
	places []place
	// overBudget says that a provider that could serve was left out for a budget,
	// incapable that one was left out which lacks a capability, whatever else was
	// in its way before.
	overBudget, incapable bool
}

// place is where a provider that was left out would stand: before says how many
// of the chain come before it. The time is what its RetryAt points to.
type place struct {
	before int
	retry  subjects.Time
}

// Resolve decides for the moment now. Its errors are VALIDATION_ERROR: a name
// that no provider, tier, model or sensitivity has. A chain may be empty;
// NoProvider says why.
func (r *Router) Resolve(snap Snapshot, job *Job, now time.Time) (*Decision, error) {
	q := question{r: r, job: job}
	if err := q.read(); err != nil {
		return nil, err
	}
	d := &Decision{Asked: q.provider, at: now, mode: r.cfg.Mode}
	d.pickTier(r.cfg, job, q.namedTier)
	q.tier = tierIndex(d.Tier)
	var buf [maxAsked]*seat
	order := q.order(buf[:0], d)
	var room [maxAsked]judgement
	var space [textSpace]byte
	found, texts := room[:0], space[:0]
	serve := 0
	for i, s := range order {
		st := snap[s.id]
		found = append(found, judgement{})
		if texts = q.judge(s, &st, now, &found[i], texts); found[i].reason == "" {
			serve++
		}
	}
	d.fill(order, found, string(texts), serve)
	return d, nil
}

// fill makes the decision of what was found of each provider in the order. texts
// has the details in which a time stands; serve is how many can serve.
func (d *Decision) fill(order []*seat, found []judgement, texts string, serve int) {
	if serve > 0 {
		d.Chain = make([]subjects.Candidate, 0, serve)
	}
	if skip := len(order) - serve; skip > 0 { // neither grows: Skipped points into places
		d.Skipped, d.places = make([]subjects.Skipped, 0, skip), make([]place, 0, skip)
	}
	for i := range found {
		j, id := &found[i], order[i].id
		if j.reason == "" {
			d.Chain = append(d.Chain, subjects.Candidate{Provider: id, Model: j.model})
			continue
		}
		d.places = append(d.places, place{len(d.Chain), subjects.Time{Time: j.until}})
		out := subjects.Skipped{Provider: id, Reason: j.reason, Detail: j.detail}
		if j.to > 0 {
			out.Detail = texts[j.from:j.to]
		}
		if !j.until.IsZero() {
			out.RetryAt = &d.places[len(d.places)-1].retry
		}
		if !j.again.IsZero() && (d.RetryAt.IsZero() || j.again.Before(d.RetryAt)) {
			d.RetryAt = j.again
		}
		d.overBudget = d.overBudget || j.overBudget
		d.incapable = d.incapable || j.incapable
		d.Skipped = append(d.Skipped, out)
	}
}

// pickTier notes what decided where that is not what the call says.
func (d *Decision) pickTier(cfg *config.Config, job *Job, named string) {
	switch {
	case cfg.ForcedTier != "":
		d.Tier = cfg.ForcedTier
		d.note("tier forced by SEMANTIC_ANALYSIS_TIER")
	case cfg.CostMode == config.CostBudget:
		d.Tier = subjects.TierFast
		d.note("tier forced by cost mode budget")
	case job.Tier != "":
		d.Tier = job.Tier
	case named != "":
		d.Tier = named
	case job.Task != "" && cfg.TaskTiers[job.Task] != "":
		d.Tier = cfg.TaskTiers[job.Task]
	default:
		d.Tier = cfg.DefaultTier
		if job.Task != "" {
			d.note("unknown task, default tier")
		}
	}
}

func (d *Decision) note(s string) { d.Notes = append(d.Notes, s) }
