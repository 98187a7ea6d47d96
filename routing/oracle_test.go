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

// oracle is the specification of routing, written to be read and not to be fast:
// each provider has a rank, or is not considered, and a list of all that speaks
// against it.
type oracle struct {
	cfg     *config.Config
	outside []*config.Provider
	snap    Snapshot
	job     Job
	now     time.Time

	refused bool
	asked   string
	model   string
	servers []string
	tier    string
}

// finding is what the oracle says of one provider.
type finding struct {
	id      string
	model   string
	reason  string // the first of against; "" = it serves
	against []string
	retry   time.Time
}

func (o *oracle) provider(id string) *config.Provider {
	for _, p := range o.outside {
		if p.ID == id {
			return p
		}
	}
	return o.cfg.Providers[id]
}

func (o *oracle) ids() []string {
	ids := slices.Clone(o.cfg.Order)
	for _, p := range o.outside {
		ids = append(ids, p.ID)
	}
	return ids
}

// priority is the tier's list with the outside providers behind it.
func (o *oracle) priority(tier string) []string {
	list := slices.Clone(o.cfg.ProviderPriority[tier])
	for _, p := range o.outside {
		if p.Account != subjects.SubscriptionLocal {
			list = append(list, p.ID)
		}
	}
	return list
}

func (o *oracle) names(id, model string) bool {
	return slices.ContainsFunc(Models(o.provider(id)), func(m string) bool { return m == model || wire.CanonicalModel(m) == model })
}

func (o *oracle) readModel() {
	job := &o.job
	o.asked = job.Provider
	if job.Model == "" || job.Model == "auto" || subjects.ValidTier(job.Model) {
		return
	}
	if at := strings.IndexByte(job.Model, '/'); at >= 0 {
		prefix := job.Model[:at]
		if o.provider(prefix) != nil && (job.Provider == "" || job.Provider == prefix) {
			o.asked, o.model = prefix, job.Model[at+1:]
			o.refused = o.refused || o.model == ""
			return
		}
	}
	o.model = job.Model
	if job.Provider != "" || o.cfg.Mode == "mock" {
		return
	}
	for _, spelling := range []string{job.Model, wire.CanonicalModel(job.Model)} {
		for _, id := range o.ids() {
			if id != "mock" && o.names(id, spelling) {
				o.servers = append(o.servers, id)
			}
		}
		if o.servers != nil {
			return
		}
	}
	o.refused = true
}

func (o *oracle) pickTier() string {
	switch job, cfg := o.job, o.cfg; {
	case cfg.ForcedTier != "":
		return cfg.ForcedTier
	case cfg.CostMode == "budget":
		return "fast"
	case job.Tier != "":
		return job.Tier
	case subjects.ValidTier(job.Model):
		return job.Model
	default:
		return cmp.Or(cfg.TaskTiers[job.Task], cfg.DefaultTier)
	}
}

// rank orders the providers: the lower goes first. -1 = it is not considered.
func (o *oracle) rank(id string) int {
	cfg, p := o.cfg, o.provider(id)
	only := func(yes bool) int {
		if yes {
			return 1
		}
		return -1
	}
	switch {
	case o.job.Exact:
		return only(id == o.job.Provider)
	case cfg.Mode == "mock" && id == "mock":
		return 0
	case cfg.Mode == "mock":
		return only(id == o.asked)
	case cfg.ForcedProvider != "":
		return only(id == cfg.ForcedProvider)
	case id == o.asked:
		return 0
	case slices.Contains(o.servers, id):
		list := append(o.priority(cfg.DefaultTier), o.ids()...)
		return 1000 + slices.Index(list, id)
	}
	if cfg.Mode == "public" {
		list, own := cfg.TaskPriority[o.job.Task]
		if !own {
			list = o.priority(o.tier)
		}
		if at := slices.Index(list, id); at >= 0 {
			return 2000 + at
		}
	}
	addressless := p.Kind == "openai-compatible" && p.BaseURL == ""
	if p.Account == "local" && p.Mock == nil && !addressless {
		return 3000 + slices.Index(o.ids(), id)
	}
	return -1
}

// serves is the model by which a provider would answer; "" = none.
func (o *oracle) serves(id string) string {
	p := o.provider(id)
	spelled := func() string {
		for _, same := range []func(string) bool{
			func(m string) bool { return m == o.model },
			func(m string) bool { return wire.CanonicalModel(m) == wire.CanonicalModel(o.model) },
		} {
			if i := slices.IndexFunc(Models(p), same); i >= 0 {
				return Models(p)[i]
			}
		}
		return ""
	}
	switch {
	case o.model != "" && id == o.asked && len(p.AvailableModels) > 0:
		return spelled()
	case o.model != "" && (id == o.asked || id == "mock" && o.cfg.Mode == "mock"):
		return cmp.Or(spelled(), o.model)
	case o.model != "" && slices.Contains(o.servers, id):
		return spelled()
	}
	fallback := map[string]string{"mock": "mock-" + o.tier, "proxy": o.tier}
	return cmp.Or(p.Models[o.tier], fallback[id])
}

func (o *oracle) maySee(id string) bool {
	allow, ruled := o.cfg.Sensitivity.Allow[cmp.Or(o.job.Sensitivity, "public")]
	if !ruled {
		return true
	}
	return slices.ContainsFunc(allow, func(word string) bool {
		return word == "all" || word == id || word == "local" && o.isLocal(id)
	})
}

func (o *oracle) isLocal(id string) bool {
	a := o.provider(id).Account
	return a == "local" || a == "mock"
}

// stops says whether a hold keeps a call away, and until when.
func (o *oracle) stops(h Hold) (bool, time.Time) {
	over := !h.Until.IsZero() && !h.Until.After(o.now)
	switch {
	case !h.On || over && !h.Trial:
		return false, time.Time{}
	case h.Trial:
		return true, o.now.Add(time.Second)
	}
	return true, h.Until
}

// find says all that speaks against a provider.
func (o *oracle) find(id string) finding {
	st, job, local, account := o.snap[id], o.job, o.isLocal(id), o.provider(id).Account
	f := finding{id: id, model: o.serves(id)}
	holds := map[string]Hold{"account": st.Quota, "model": st.Models[f.model], ReasonReserve: st.Withheld[job.Class], ReasonBreaker: st.Breaker}
	held := func(which string) bool {
		stops, until := o.stops(holds[which])
		if stops && f.retry.IsZero() && f.reason == "" {
			f.retry = until
		}
		return stops
	}
	budgetLocal := job.LocalOnly != "" && job.LocalReason == ReasonBudget
	for _, rule := range []struct {
		reason string
		holds  func() bool
	}{
		{ReasonMode, func() bool { return o.cfg.Mode == "mock" && id != "mock" || o.cfg.Mode == "local" && !local }},
		{cmp.Or(st.Reason, ReasonUnavailable), func() bool { return !st.Available }},
		{ReasonPrivacy, func() bool { return job.Privacy == "local" && !local }},
		{ReasonSensitivity, func() bool {
			return !o.maySee(id) || job.Only != nil && !slices.Contains(job.Only, id) || job.LocalOnly != "" && !budgetLocal && !local
		}},
		{ReasonSubscription, func() bool {
			return job.ForcePaid && (account == "copilot-subscription" || account == "max-subscription")
		}},
		{ReasonBudget, func() bool { return budgetLocal && !local || job.FreeOnly != "" && account == "api-key" }},
		{ReasonCapability, func() bool { return job.Needs&^st.Has != 0 }},
		{ReasonNoModel, func() bool { return f.model == "" }},
		{ReasonQuota, func() bool { return held("account") || held("model") }},
		{ReasonReserve, func() bool { return held(ReasonReserve) }},
		{ReasonBreaker, func() bool { return held(ReasonBreaker) }},
	} {
		if rule.holds() {
			f.against = append(f.against, rule.reason)
			f.reason = f.against[0]
		}
	}
	return f
}

// decide returns what it finds of each provider that is considered, in order.
func (o *oracle) decide() []finding {
	job := &o.job
	o.refused = job.Tier != "" && !subjects.ValidTier(job.Tier) || job.Provider != "" && o.provider(job.Provider) == nil ||
		job.Sensitivity != "" && !slices.Contains([]string{"public", "internal", "confidential"}, job.Sensitivity)
	o.readModel()
	if o.refused {
		return nil
	}
	o.tier = o.pickTier()
	var considered []string
	for _, id := range o.ids() {
		if o.rank(id) >= 0 {
			considered = append(considered, id)
		}
	}
	slices.SortFunc(considered, func(a, b string) int { return cmp.Compare(o.rank(a), o.rank(b)) })
	out := make([]finding, 0, len(considered))
	for _, id := range considered {
		out = append(out, o.find(id))
	}
	return out
}

// end says how a call that nobody can serve ends: its kind, status and when to
// try again.
func (o *oracle) end(found []finding) (subjects.Kind, int, time.Duration) {
	var soonest time.Duration
	has := map[string]bool{}
	for _, f := range found {
		has[f.reason] = true
		if wait := f.retry.Sub(o.now); !f.retry.IsZero() && (soonest == 0 || wait < soonest) {
			soonest = wait
		}
		if f.reason != ReasonBudget {
			continue
		}
		lacks := slices.Contains(f.against, ReasonCapability)
		has["incapable and over budget"] = has["incapable and over budget"] || lacks
		has["over budget"] = has["over budget"] || !lacks && f.model != ""
	}
	soonest = (soonest + time.Millisecond - 1) / time.Millisecond * time.Millisecond
	switch {
	case has["over budget"]:
		return subjects.KindBudgetExceeded, 402, soonest
	case has[ReasonCapability] || has["incapable and over budget"]:
		return subjects.KindCapabilityMissing, 422, soonest
	case (has[ReasonQuota] || has[ReasonReserve]) && !has[ReasonBreaker]:
		return subjects.KindNoProvider, 429, soonest
	}
	return subjects.KindNoProvider, 503, soonest
}
