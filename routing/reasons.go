package routing

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// Reasons why a provider is left out of a chain, in the order in which they are
// looked for: a provider has the first that applies. One word each: they stand in
// attempt trails, which hold no messages. docs/concepts.md says what each means.
const (
	ReasonMode         = "mode"
	ReasonNotHosted    = "not_hosted"
	ReasonUnavailable  = "unavailable"
	ReasonPrivacy      = "privacy"
	ReasonSensitivity  = "sensitivity"
	ReasonSubscription = "subscription"
	ReasonBudget       = "budget"
	ReasonCapability   = "capability"
	ReasonNoModel      = "no_model"
	ReasonQuota        = "quota"
	ReasonReserve      = "quota_reserve"
	ReasonBreaker      = "breaker"
)

// appendHeld says what a hold is, until when, and why: "quota until 14:05",
// "breaker open until 14:05:30 after PROVIDER_ERROR".
func appendHeld(b []byte, reason string, h *Hold, now time.Time) []byte {
	timed := !h.Trial && !h.Until.IsZero()
	switch {
	case reason == ReasonReserve:
		b = append(b, "quota reserve"...)
	case reason == ReasonBreaker && h.Trial:
		b = append(b, "breaker half-open"...)
	case reason == ReasonBreaker:
		b = append(b, "breaker open"...)
	case timed:
		b = append(b, "quota"...)
	default:
		b = append(b, "quota used up"...)
	}
	if timed {
		b = append(b, " until "...)
		b = appendUntil(b, h.Until, now, reason == ReasonBreaker)
	}
	if h.Detail != "" {
		if reason == ReasonReserve {
			b = append(b, ':')
		}
		b = append(b, ' ')
		b = append(b, h.Detail...)
	}
	if h.Trial {
		b = append(b, ", a trial call is under way"...)
	}
	return b
}

// appendUntil writes a moment in UTC: the time of day when it is less than a day
// away, else with its date. It is rounded up to a minute, or to a second, so that
// it is over when it is over.
func appendUntil(b []byte, until, now time.Time, seconds bool) []byte {
	const minute, hour, day = 60, 60 * 60, 24 * 60 * 60
	sec := until.Unix()
	if until.Nanosecond() > 0 {
		sec++
	}
	if !seconds {
		sec = (sec + minute - 1) / minute * minute
	}
	if sec-now.Unix() >= day {
		b = append(time.Unix(sec, 0).UTC().AppendFormat(b, time.DateOnly), ' ')
	}
	b = appendTwo(b, sec%day/hour)
	b = appendTwo(append(b, ':'), sec%hour/minute)
	if seconds {
		b = appendTwo(append(b, ':'), sec%minute)
	}
	return b
}

func appendTwo(b []byte, n int64) []byte { return append(b, byte('0'+n/10), byte('0'+n%10)) }

// allowedText is what the rules say of content of one sensitivity.
func allowedText(cfg *config.Config, sensitivity string) string {
	allow := cfg.Sensitivity.Allow[sensitivity]
	who := strings.Join(allow, ", ") + " only"
	switch {
	case len(allow) == 0:
		who = "nobody"
	case slices.Equal(allow, []string{config.AllowLocal}):
		who = "local providers only"
	}
	return sensitivity + " content may go to " + who + " (sensitivity.allow)"
}

func unknownTier(tier string) error {
	return subjects.Errorf(subjects.KindValidation, "tier: %q is not a tier%s; the tiers are %s", clip(tier), didYouMean(tier, subjects.Tiers), strings.Join(subjects.Tiers, ", "))
}

func unknownSensitivity(word string) error {
	return subjects.Errorf(subjects.KindValidation, "sensitivity: %q is not known%s; content is %s", clip(word), didYouMean(word, config.Sensitivities), strings.Join(config.Sensitivities, ", "))
}

func (r *Router) unknownProvider(field, id string) error {
	return subjects.Errorf(subjects.KindValidation, "%s: no provider is called %q%s; the providers are %s", field, clip(id), didYouMean(id, r.ids), strings.Join(r.ids, ", "))
}

func (r *Router) unknownModel(model string) error {
	var all []string
	for _, id := range r.ids {
		for _, m := range r.seats[id].names {
			all = append(all, m.id, id+"/"+m.id)
		}
	}
	return subjects.Errorf(subjects.KindValidation, "model: no configured provider serves %q%s; write provider/model, a tier (fast, standard, premium) or auto", clip(model), didYouMean(model, all))
}

func didYouMean(word string, known []string) string {
	if near := subjects.Nearest(word, known); near != "" {
		return " (did you mean " + near + "?)"
	}
	return ""
}

func clip(s string) string {
	const limit = 80
	if len(s) > limit {
		return s[:limit] + "…"
	}
	return s
}
