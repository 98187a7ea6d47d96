package routing

import (
	"cmp"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// What comes up after the decision, while a call goes along its chain.

// active reports whether the hold keeps a call away at a moment.
func (h *Hold) active(now time.Time) bool {
	return h.On && (h.Trial || h.Until.IsZero() || now.Before(h.Until))
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

// HeldError is the error of a candidate that is passed by because of a hold.
func HeldError(reason string, hold Hold, now time.Time) *subjects.Error {
	kind := subjects.KindQuotaExhausted
	if reason == ReasonBreaker {
		kind = subjects.KindProviderUnavailable
	}
	e := subjects.Errorf(kind, "%s", cmp.Or(hold.Detail, reason))
	e.RetryAfter = hold.wait(now)
	return e
}

// trialWait is when to try again while another's trial call is under way.
const trialWait = time.Second

// wait is how long until it makes sense to try again; 0 = not known.
func (h *Hold) wait(now time.Time) time.Duration {
	switch {
	case h.Trial:
		return trialWait
	case h.Until.After(now):
		return h.Until.Sub(now)
	}
	return 0
}

// ChainEnd is the error of a chain that came to its end: the one candidate's own
// error, BUDGET_EXCEEDED where a budget stood in the way, else NO_PROVIDER with
// the soonest time at which trying again makes sense. errs has the error of each
// candidate of the chain, those that were passed by included.
func ChainEnd(d *Decision, errs []*subjects.Error, now time.Time) *subjects.Error {
	waiting := 0
	var soonest time.Duration
	sooner := func(after time.Duration) {
		if after > 0 && (soonest == 0 || after < soonest) {
			soonest = after
		}
	}
	for _, s := range d.Skipped {
		if s.RetryAt != nil {
			sooner(s.RetryAt.Sub(now))
		}
		if s.Reason == ReasonQuota || s.Reason == ReasonReserve || s.Reason == ReasonBreaker {
			waiting++
		}
	}
	if len(errs) == 1 && waiting == 0 {
		return errs[0]
	}
	limits := true
	var texts []string
	var budget *subjects.Error
	for _, e := range errs {
		texts = append(texts, e.Provider+": "+string(e.Kind))
		limits = limits && (e.Kind == subjects.KindRateLimited || e.Kind == subjects.KindQuotaExhausted)
		sooner(e.RetryAfter)
		if e.Kind == subjects.KindBudgetExceeded && budget == nil {
			budget = e
		}
	}
	for _, s := range d.Skipped {
		if s.Reason == ReasonQuota || s.Reason == ReasonReserve || s.Reason == ReasonBreaker || s.Reason == ReasonBudget {
			texts = append(texts, s.Provider+": "+s.Detail)
		}
		limits = limits && s.Reason != ReasonBreaker && s.Reason != ReasonBudget
	}
	if budget != nil {
		return subjects.Errorf(subjects.KindBudgetExceeded, "%s; and no other provider could serve: %s", budget.Message, strings.Join(texts, ", "))
	}
	out := subjects.Errorf(subjects.KindNoProvider, "every provider of the chain failed: %s", strings.Join(texts, ", "))
	out.RetryAfter = soonest
	if limits {
		out.HTTPStatus = 429
	}
	return out
}
