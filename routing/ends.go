package routing

import (
	"errors"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// How a chain ends without an answer. What the caller sees is the first that
// applies:
//
//	one candidate failed, no other is held back, no budget stood in the way → its own error
//	a budget kept out what could serve → BUDGET_EXCEEDED
//	none failed, and a capability is missing somewhere → CAPABILITY_MISSING
//	all that could serve but for time, or failed, wait for a limit → NO_PROVIDER with 429
//	anything else → NO_PROVIDER
//
// All but the first say when the soonest of those that are held back may be tried
// again. So CAPABILITY_MISSING says when the one provider that has the capability
// may serve, and BUDGET_EXCEEDED when a subscription may. A provider that is not
// there, or that a rule keeps out, is no candidate and changes nothing.

// NoProvider is the error of a decision whose chain is empty, with the trail of
// what was left out.
func NoProvider(d *Decision) *subjects.Error {
	e := endOf(d, d.at).err(d)
	e.Attempts = d.SkippedAt(0)
	return e
}

// ChainEnd is the error of a chain in which no candidate answered. errs has the
// error of each, with its provider, in order: what the provider said, HeldError
// or BUDGET_EXCEEDED of those that were passed by. There is at least one. The
// trail is the call's to give.
func ChainEnd(d *Decision, errs []*subjects.Error, now time.Time) *subjects.Error {
	end := endOf(d, now)
	for _, e := range errs {
		end.add(e)
	}
	if len(end.failed) == 1 && !end.held && !end.overBudget && !end.collapsed() {
		return end.failed[0]
	}
	return end.err(d)
}

// HeldError is the error of a candidate that is passed by because something
// holds it back by now. It says to ChainEnd that nobody was asked.
func HeldError(reason string, hold Hold, now time.Time) *subjects.Error {
	kind := subjects.KindQuotaExhausted
	if reason == ReasonBreaker {
		kind = subjects.KindProviderUnavailable
	}
	e := subjects.Errorf(kind, "%s", appendHeld(nil, reason, &hold, now))
	if at := hold.retryAt(now); !at.IsZero() {
		e.RetryAfter = after(at, now)
	}
	return e.WithCause(heldBack(reason))
}

// heldBack is the cause of a HeldError: the reason.
type heldBack string

// Error implements error.
func (h heldBack) Error() string { return "held back: " + string(h) }

// after is how long to wait until a moment, in whole milliseconds, rounded up; a
// millisecond when it has come.
func after(at, now time.Time) time.Duration {
	wait := at.Sub(now) + time.Millisecond - 1
	return max(wait.Truncate(time.Millisecond), time.Millisecond)
}

// ending is what stood in the way.
type ending struct {
	// failed are the errors of those that were asked, texts what was in the way of
	// the others; late has those of texts that a call may hope for another time.
	failed      []*subjects.Error
	texts, late []string
	// held: one or more wait for time. limits: nothing but limits is waited for.
	held, limits bool
	overBudget   bool
	incapable    bool
	// absent: nobody was left out for anything but the mode and not being there;
	// missing: one was for not being there.
	absent  bool
	missing bool
	soonest time.Duration // 0 = not known
}

func endOf(d *Decision, now time.Time) *ending {
	end := &ending{limits: true, overBudget: d.overBudget, incapable: d.incapable, absent: true}
	for i := range d.Skipped {
		s := &d.Skipped[i]
		missing := s.Reason == ReasonUnavailable || s.Reason == ReasonNotHosted
		end.absent = end.absent && (s.Reason == ReasonMode || missing)
		end.missing = end.missing || missing
		end.passedBy(s.Provider, s.Reason, s.Detail)
	}
	if !d.RetryAt.IsZero() {
		end.sooner(after(d.RetryAt, now))
	}
	return end
}

// passedBy takes a provider that was not asked.
func (end *ending) passedBy(provider, reason, detail string) {
	text := provider + ": " + detail
	end.texts = append(end.texts, text)
	switch reason {
	case ReasonQuota, ReasonReserve:
		end.held = true
	case ReasonBreaker:
		end.held, end.limits = true, false
	case ReasonBudget:
	default:
		return
	}
	end.late = append(end.late, text)
}

func (end *ending) sooner(wait time.Duration) {
	if wait > 0 && (end.soonest == 0 || wait < end.soonest) {
		end.soonest = wait
	}
}

// add takes the error of a candidate.
func (end *ending) add(e *subjects.Error) {
	end.absent = false
	end.sooner(e.RetryAfter)
	var reason heldBack
	switch {
	case errors.As(e, &reason):
		end.passedBy(e.Provider, string(reason), e.Message)
	case e.Kind == subjects.KindBudgetExceeded:
		end.overBudget = true
		end.passedBy(e.Provider, ReasonBudget, e.Message)
	default:
		end.failed = append(end.failed, e)
		end.limits = end.limits && limit(e)
	}
}

// limit reports whether an error goes by itself as a limit does. A node that
// hosts a provider says NO_PROVIDER of one that is held back there.
func limit(e *subjects.Error) bool {
	switch e.Kind {
	case subjects.KindQuotaExhausted, subjects.KindRateLimited:
		return true
	case subjects.KindNoProvider:
		return e.HTTPStatus == 429
	}
	return false
}

// collapsed reports whether those that have what the call needs are out of quota,
// and the others lack it: from the next call on they are passed by for that.
func (end *ending) collapsed() bool {
	for _, e := range end.failed {
		if e.Kind != subjects.KindQuotaExhausted {
			return false
		}
	}
	return end.incapable && len(end.failed) > 0
}

func (end *ending) err(d *Decision) *subjects.Error {
	kind := subjects.KindNoProvider
	switch {
	case end.overBudget:
		kind = subjects.KindBudgetExceeded
	case end.incapable && len(end.failed) == 0, end.collapsed():
		kind = subjects.KindCapabilityMissing
	}
	e := subjects.Errorf(kind, "%s", end.message(d))
	e.RetryAfter = end.soonest
	if kind == subjects.KindNoProvider && end.limits && (end.held || len(end.failed) > 0) {
		e.HTTPStatus = 429
	}
	return e
}

// localRemedy says how to start what mode local needs.
const localRemedy = "start Docker Model Runner (`docker desktop enable model-runner --tcp 12434`, or `docker model start-runner`) or Ollama (`ollama serve`)"

func (end *ending) message(d *Decision) string {
	if len(end.failed) > 0 {
		said := make([]string, len(end.failed), len(end.failed)+len(end.late))
		for i, e := range end.failed {
			said[i] = e.Provider + ": " + string(e.Kind)
		}
		return "every provider of the chain failed: " + strings.Join(append(said, end.late...), ", ")
	}
	why := strings.Join(end.texts, "; ")
	switch {
	case why == "":
		return "no provider can serve this call (tier " + d.Tier + "): none stands in its provider_priority"
	case d.mode == config.ModeLocal && end.absent && end.missing:
		return "mode is local and no local runner answers: " + localRemedy + ". " + why
	}
	return "no provider can serve this call (tier " + d.Tier + "): " + why
}
