package routing

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// Router resolves jobs by one configuration and the outside providers of one
// moment. It holds what can be worked out ahead of the jobs, never changes, and
// is safe for concurrent use.
type Router struct {
	cfg *config.Config
	// seats has the configured and the outside providers; ids is their order.
	seats map[string]*seat
	ids   []string
	// tiers has the whole order for a job that asks for no provider, by tier, tasks
	// that of the tasks which have their own.
	tiers [tiers][]*seat
	tasks map[string][]*seat
	// serving has the providers of a model, by id and by canonical name, in the
	// order of the default tier's priority.
	serving map[string][]*seat
	// allowed is what the rules say of content by its sensitivity, for people.
	allowed [sensitivities]string
}

const (
	tiers         = 3 // as many as subjects.Tiers
	sensitivities = 3 // as many as config.Sensitivities
	// maxAsked is how long an order may be until it needs memory of its own.
	maxAsked = 16
	// textSpace is how many bytes of texts with a time need none.
	textSpace = 512
)

// seat is what is known of one provider ahead of the jobs.
type seat struct {
	id  string
	cfg *config.Provider
	// local: a call leaves nothing with a vendor. metered: it costs money by the
	// token. subscription: it costs a quota.
	local, metered, subscription bool
	// barred says why the mode leaves it out; "" = it does not.
	barred string
	// allowed says by sensitivity whether it may see content.
	allowed [sensitivities]bool
	// models has its model by tier; "" = none.
	models [tiers]string
	// names has the model ids of its configuration and their canonical names.
	names []modelName
}

type modelName struct{ id, canonical string }

// New prepares a configuration, and the providers that were announced from
// outside, for Resolve.
func New(cfg *config.Config, outside ...*config.Provider) *Router {
	r := &Router{cfg: cfg, seats: map[string]*seat{}, tasks: map[string][]*seat{}, serving: map[string][]*seat{}}
	for _, id := range cfg.Order {
		r.add(id, cfg.Providers[id])
	}
	priority := maps.Clone(cfg.ProviderPriority)
	for _, p := range outside {
		r.add(p.ID, p)
		for _, tier := range subjects.Tiers {
			if !p.Local() {
				priority[tier] = appendNew(slices.Clone(priority[tier]), p.ID)
			}
		}
	}
	for i, tier := range subjects.Tiers {
		r.tiers[i] = r.plan(priority[tier])
	}
	for task, ids := range cfg.TaskPriority {
		r.tasks[task] = r.plan(ids)
	}
	for i, word := range config.Sensitivities {
		r.allowed[i] = allowedText(cfg, word)
	}
	r.index(priority[cfg.DefaultTier])
	return r
}

// add makes the seat of a provider.
func (r *Router) add(id string, p *config.Provider) {
	if p == nil {
		return
	}
	s := &seat{
		id: id, cfg: p, local: p.Local(), metered: p.Account == subjects.SubscriptionAPIKey,
		subscription: strings.HasSuffix(p.Account, "-subscription"),
	}
	switch {
	case r.cfg.Mode == config.ModeMock && id != mock:
		s.barred = "mode is mock"
	case r.cfg.Mode == config.ModeLocal && !s.local:
		s.barred = "mode is local"
	}
	for i, word := range config.Sensitivities {
		allow, ruled := r.cfg.Sensitivity.Allow[word]
		s.allowed[i] = !ruled || slices.Contains(allow, config.AllowAll) || slices.Contains(allow, id) || s.local && slices.Contains(allow, config.AllowLocal)
	}
	for i, tier := range subjects.Tiers {
		s.models[i] = tierModel(p, id, tier)
	}
	for _, m := range Models(p) {
		s.names = append(s.names, modelName{m, wire.CanonicalModel(m)})
	}
	r.seats[id] = s
	r.ids = appendNew(r.ids, id)
}

// The providers that have a model for every tier without a table.
const (
	mock  = "mock"
	proxy = "proxy" // the other side chooses
)

func tierModel(p *config.Provider, id, tier string) string {
	switch {
	case p.Models[tier] != "":
		return p.Models[tier]
	case id == mock:
		return "mock-" + tier
	case id == proxy:
		return tier
	}
	return ""
}

// plan is the order for a priority list, the local runners included.
func (r *Router) plan(priority []string) []*seat {
	var ids []string
	switch {
	case r.cfg.Mode == config.ModeMock:
		ids = []string{mock}
	case r.cfg.ForcedProvider != "":
		ids = []string{r.cfg.ForcedProvider}
	case r.cfg.Mode == config.ModeLocal:
		ids = r.runners()
	default:
		ids = appendNew(slices.Clone(priority), r.runners()...)
	}
	out := make([]*seat, 0, len(ids))
	for _, id := range ids {
		if s := r.seats[id]; s != nil {
			out = append(out, s)
		}
	}
	return out
}

// runners lists the local providers that are asked after all others: not the
// mock, and no added one whose address is not set.
func (r *Router) runners() []string {
	var out []string
	for _, id := range r.ids {
		if p := r.seats[id].cfg; p.Local() && p.Mock == nil && (p.Kind != config.KindOpenAI || p.BaseURL != "") {
			out = append(out, id)
		}
	}
	return out
}

// index fills serving. The mock answers for no model of another provider.
func (r *Router) index(priority []string) {
	for _, id := range appendNew(slices.Clone(priority), r.ids...) {
		s := r.seats[id]
		if s == nil || id == mock {
			continue
		}
		for _, name := range s.names {
			r.serving[name.id] = appendNew(r.serving[name.id], s)
			r.serving[name.canonical] = appendNew(r.serving[name.canonical], s)
		}
	}
}

// order lists the providers to consider, each once. It may write to buf and may
// return what is the router's: the caller only reads it.
func (q *question) order(buf []*seat, d *Decision) []*seat {
	r := q.r
	if q.job.Exact {
		if s := r.seats[q.job.Provider]; s != nil {
			return append(buf, s)
		}
		return nil
	}
	plan := r.tiers[q.tier]
	switch {
	case r.cfg.Mode == config.ModeMock:
		if q.asked == nil {
			return plan
		}
		return appendNew(append(buf, plan...), q.asked)
	case r.cfg.ForcedProvider != "":
		d.note("provider forced by SEMANTIC_ANALYSIS_PROVIDER")
		return plan
	case r.cfg.Mode == config.ModePublic && q.job.Task != "":
		if own := r.tasks[q.job.Task]; own != nil {
			plan = own
			d.note("order by task_priority")
		}
	}
	if q.asked == nil && q.servers == nil {
		return plan
	}
	if q.asked != nil {
		buf = append(buf, q.asked)
	}
	return appendNew(appendNew(buf, q.servers...), plan...)
}

func appendNew[T comparable](list []T, more ...T) []T {
	for _, x := range more {
		if !slices.Contains(list, x) {
			list = append(list, x)
		}
	}
	return list
}

// tierIndex is a tier's place in subjects.Tiers; it must be one.
func tierIndex(tier string) int {
	switch tier {
	case subjects.TierFast:
		return 0
	case subjects.TierStandard:
		return 1
	}
	return 2
}

// IDs lists the providers, configured and outside.
func (r *Router) IDs() []string { return r.ids }

// Provider returns a provider's configuration, or what an outside one announced;
// nil = there is no such provider.
func (r *Router) Provider(id string) *config.Provider {
	if s := r.seats[id]; s != nil {
		return s.cfg
	}
	return nil
}

// Account returns the kind of account that a provider bills.
func (r *Router) Account(id string) string {
	if s := r.seats[id]; s != nil {
		return s.cfg.Account
	}
	return subjects.SubscriptionAPIKey
}

// Local reports whether a provider runs on this side of the network's edge:
// a call to it leaves nothing with a vendor.
func (r *Router) Local(id string) bool {
	s := r.seats[id]
	return s != nil && s.local
}

// Models lists the model ids that a provider's configuration names, each once.
func Models(p *config.Provider) []string {
	if p == nil {
		return nil
	}
	var out []string
	add := func(m string) {
		if m != "" && !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	for _, t := range subjects.Tiers {
		add(p.Models[t])
	}
	for _, m := range p.AvailableModels {
		add(m)
	}
	return out
}

// served returns the id by which a provider serves a model that is asked for by
// id or by another spelling of its name; "" = its configuration names no such.
func (s *seat) served(model string) string {
	for _, m := range s.names {
		if m.id == model {
			return m.id
		}
	}
	if len(s.names) == 0 {
		return ""
	}
	canonical := wire.CanonicalModel(model)
	for _, m := range s.names {
		if m.canonical == canonical {
			return m.id
		}
	}
	return ""
}

// Class returns the workload class of a call whose subject has none, by the
// configuration's process_classes; interactive when nothing matches.
func Class(cfg *config.Config, process string) string {
	if class := cfg.ClassOf(process); class != "" {
		return class
	}
	return subjects.ClassInteractive
}
