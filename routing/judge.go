package routing

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// question is a job with the names in it looked up.
type question struct {
	r   *Router
	job *Job
	// namedTier is the tier that the job's model names.
	namedTier string
	// provider was asked for, by the job's provider or before the slash of its
	// model; asked is its seat.
	provider string
	asked    *seat
	// model was asked for: of provider, or, when none was named, of servers.
	model   string
	servers []*seat
	// tier and level are places in subjects.Tiers and config.Sensitivities.
	tier, level int
}

// judgement is the model that a provider would serve, or why it is left out.
type judgement struct {
	model string
	// reason is "" when it serves. The text for people is detail, or, when to is not
	// 0, what stands from there to there in the texts with a time.
	reason, detail string
	from, to       int
	// until is when it may be tried again; zero = not known. again is the same, or a
	// little later than now where a trial call is under way.
	until, again time.Time
	// overBudget: but for a budget it could serve. incapable: a capability is missing.
	overBudget, incapable bool
}

// read looks the job's names up.
func (q *question) read() error {
	job := q.job
	if job.Tier != "" && !subjects.ValidTier(job.Tier) {
		return unknownTier(job.Tier)
	}
	if job.Sensitivity != "" {
		if q.level = slices.Index(config.Sensitivities, job.Sensitivity); q.level < 0 {
			return unknownSensitivity(job.Sensitivity)
		}
	}
	if job.Provider != "" {
		if q.provider, q.asked = job.Provider, q.r.seats[job.Provider]; q.asked == nil {
			return q.r.unknownProvider("provider", job.Provider)
		}
	}
	switch model := job.Model; {
	case model == "" || model == "auto":
		return nil
	case subjects.ValidTier(model):
		q.namedTier = model
		return nil
	default:
		return q.readModel(model)
	}
}

// readModel reads provider/model, or a model that some provider serves.
func (q *question) readModel(model string) error {
	prefix, rest, slash := strings.Cut(model, "/")
	if s := q.r.seats[prefix]; slash && s != nil && (q.asked == nil || q.asked == s) {
		if rest == "" {
			return subjects.Errorf(subjects.KindValidation, "model: %q names no model after the slash; write %s/<model>, or leave the slash out and set provider", model, prefix)
		}
		q.provider, q.asked, q.model = prefix, s, rest
		return nil
	}
	q.model = model
	if q.asked != nil || q.r.cfg.Mode == config.ModeMock {
		return nil
	}
	if q.servers = q.r.serving[model]; q.servers == nil {
		q.servers = q.r.serving[wire.CanonicalModel(model)]
	}
	if q.servers == nil {
		return q.r.unknownModel(model)
	}
	return nil
}

// judge finds the first obstacle in the order of the reasons, or the model. It
// returns texts with what it adds to them.
func (q *question) judge(s *seat, st *State, now time.Time, j *judgement, texts []byte) []byte {
	if j.reason, j.detail = q.forbidden(s, st); j.reason != "" {
		return texts
	}
	missing := q.job.Needs.Missing(st.Has)
	j.model = q.pickModel(s)
	if detail := q.unaffordable(s); detail != "" {
		j.reason, j.detail = ReasonBudget, detail
		j.incapable, j.overBudget = missing != 0, missing == 0 && j.model != ""
		return texts
	}
	if missing != 0 {
		j.reason, j.detail, j.incapable = ReasonCapability, "cannot do "+missing.String(), true
		return texts
	}
	if j.model == "" {
		j.reason, j.detail = ReasonNoModel, q.noModelText(s)
		return texts
	}
	reason, hold, held := st.Held(j.model, q.job.Class, now)
	if !held {
		return texts
	}
	j.reason, j.again, j.from = reason, hold.retryAt(now), len(texts)
	if !hold.Trial {
		j.until = hold.Until
	}
	texts = appendHeld(texts, reason, &hold, now)
	j.to = len(texts)
	return texts
}

// forbidden finds what keeps a provider out whatever it could do and cost; a
// reason of "" = nothing does.
func (q *question) forbidden(s *seat, st *State) (reason, detail string) {
	job := q.job
	switch {
	case s.barred != "":
		return ReasonMode, s.barred
	case !st.Available:
		return cmp.Or(st.Reason, ReasonUnavailable), cmp.Or(st.Detail, "it has only just come")
	case job.Privacy == "local" && !s.local:
		return ReasonPrivacy, "the call asks for local providers only"
	case !s.allowed[q.level]:
		return ReasonSensitivity, q.r.allowed[q.level]
	case job.Only != nil && !slices.Contains(job.Only, s.id):
		return ReasonSensitivity, "the classifier does not allow it to see this content"
	case job.LocalOnly != "" && job.LocalReason != ReasonBudget && !s.local:
		return ReasonSensitivity, job.LocalOnly
	case job.ForcePaid && s.subscription:
		return ReasonSubscription, "the call asks for paid providers only"
	}
	return "", ""
}

// unaffordable says which budget is in a provider's way; "" = none is.
func (q *question) unaffordable(s *seat) string {
	job := q.job
	switch {
	case job.LocalOnly != "" && job.LocalReason == ReasonBudget && !s.local:
		return job.LocalOnly
	case job.FreeOnly != "" && s.metered:
		return job.FreeOnly
	}
	return ""
}

// pickModel is the model that a provider would serve: the one that was asked of
// it, else that of the tier in its own table. "" = it has none.
func (q *question) pickModel(s *seat) string {
	if q.model != "" {
		switch {
		case q.asked == s, q.r.cfg.Mode == config.ModeMock && s.id == mock:
			if m := s.served(q.model); m != "" {
				return m
			}
			if q.asked == s && len(s.cfg.AvailableModels) > 0 {
				return "" // it is said what it serves
			}
			return q.model
		case slices.Contains(q.servers, s):
			return s.served(q.model)
		}
	}
	return s.models[q.tier]
}

func (q *question) noModelText(s *seat) string {
	if s.cfg.Kind == config.KindOutside || q.model != "" && q.asked == s {
		return "its models are " + strings.Join(s.cfg.AvailableModels, ", ")
	}
	tier := subjects.Tiers[q.tier]
	return "no model for tier " + tier + "; set providers." + s.id + ".models." + tier + " or ask for " + s.id + "/<model>"
}
