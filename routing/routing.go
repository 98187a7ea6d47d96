// Package routing decides which provider and model a job resolves to, and why.
//
// It is pure: a configuration and a snapshot of provider states go in, a
// decision with its reasons comes out, and the same function answers a live
// call and the question what would happen (llm.query.route). It does no I/O and
// keeps nothing.
//
// The order of the chain: the provider or model that was asked for, then the
// tier's priority list, then, in public mode, the local runners. Each provider
// stands in it once. A provider that cannot serve is left out with one reason.
//
// What decides the tier, first match: SEMANTIC_ANALYSIS_TIER, then
// SEMANTIC_ANALYSIS_COST_MODE=budget (fast), the call's tier, the call's model
// when it names a tier, the task's tier, the default tier.
package routing

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// Reasons why a provider is left out of a chain. One word each: they stand in
// attempt trails, which hold no messages.
const (
	ReasonMode         = "mode"
	ReasonUnavailable  = "unavailable"
	ReasonNotHosted    = "not_hosted"
	ReasonCapability   = "capability"
	ReasonPrivacy      = "privacy"
	ReasonSubscription = "subscription"
	ReasonNoModel      = "no_model"
	ReasonBreaker      = "breaker"
	ReasonQuota        = "quota"
	ReasonReserve      = "quota_reserve"
	ReasonBudget       = "budget"
	ReasonSensitivity  = "sensitivity"
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
	// Detail is the text for people, without the time.
	Detail string
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
	// Sensitivity is how the content is classified; "" = not classified, which is
	// public. Only, when not nil, lists the providers that a classifier allows.
	Sensitivity string
	Only        []string
	// LocalOnly leaves all but the local providers out, for the reason that
	// LocalReason names (ReasonSensitivity or ReasonBudget); it is the text for
	// people, "" = no such rule.
	LocalOnly, LocalReason string
	// FreeOnly leaves the metered accounts out: a budget is used up. It is the text
	// for people, "" = no such rule.
	FreeOnly string
}

// Decision is the chain and how it came about.
type Decision struct {
	Tier string
	// Asked is the provider that was asked for by name; "" = none.
	Asked   string
	Chain   []subjects.Candidate
	Skipped []subjects.Skipped
	Notes   []string

	// before has, for each of Skipped, how many of Chain come before it.
	before []int
}

// Router resolves jobs by one configuration and the outside providers of one
// moment. It holds what can be worked out ahead of the jobs, never changes, and
// is safe for concurrent use.
type Router struct {
	cfg *config.Config
	// providers has the configured and the outside ones; ids is their order.
	providers map[string]*config.Provider
	ids       []string
	// priority is the order by tier, outside providers at the end; local has the
	// runners that are asked after all others.
	priority map[string][]string
	local    []string
	// models has each provider's model ids and their canonical names.
	models map[string][]modelName
	// serving has the providers of a model, by id and by canonical name, in the
	// order of the default tier's priority.
	serving map[string][]string
}

type modelName struct{ id, canonical string }

// New prepares a configuration, and the providers that were announced from
// outside, for Resolve.
func New(cfg *config.Config, outside ...*config.Provider) *Router {
	r := &Router{
		cfg: cfg, providers: maps.Clone(cfg.Providers), ids: slices.Clone(cfg.Order), priority: maps.Clone(cfg.ProviderPriority),
		models: map[string][]modelName{}, serving: map[string][]string{},
	}
	for _, p := range outside {
		r.providers[p.ID] = p
		r.ids = append(r.ids, p.ID)
		for _, tier := range subjects.Tiers {
			if !p.Local() {
				r.priority[tier] = appendNew(slices.Clone(r.priority[tier]), p.ID)
			}
		}
	}
	for _, id := range r.ids {
		if p := r.providers[id]; p != nil && p.Local() && p.Mock == nil && !(p.Kind == config.KindOpenAI && p.BaseURL == "") {
			r.local = append(r.local, id)
		}
	}
	for _, id := range appendNew(slices.Clone(r.priority[cfg.DefaultTier]), r.ids...) {
		for _, m := range Models(r.providers[id]) {
			name := modelName{m, wire.CanonicalModel(m)}
			r.models[id] = append(r.models[id], name)
			if id == "mock" {
				continue // answers for no model of another provider
			}
			r.serving[m] = appendNew(r.serving[m], id)
			r.serving[name.canonical] = appendNew(r.serving[name.canonical], id)
		}
	}
	return r
}

// IDs lists the providers, configured and outside.
func (r *Router) IDs() []string { return r.ids }

// Provider returns a provider's configuration, or what an outside one announced;
// nil = there is no such provider.
func (r *Router) Provider(id string) *config.Provider { return r.providers[id] }

// Account returns the kind of account that a provider bills.
func (r *Router) Account(id string) string {
	if p := r.providers[id]; p != nil {
		return p.Account
	}
	return subjects.SubscriptionAPIKey
}

// Local reports whether a provider runs on this side of the network's edge:
// a call to it leaves nothing with a vendor.
func (r *Router) Local(id string) bool {
	p := r.providers[id]
	return p != nil && p.Local()
}

// Resolve decides for the moment now. Its errors are VALIDATION_ERROR: a name
// that no provider, tier or model has. A chain may be empty; NoProvider says why.
func (r *Router) Resolve(snap Snapshot, job *Job, _ time.Time) (*Decision, error) {
	d := &Decision{}
	ask, err := r.readAsk(job)
	if err != nil {
		return nil, err
	}
	d.Asked = ask.provider
	if err := d.pickTier(r.cfg, job, ask.tier); err != nil {
		return nil, err
	}
	for _, id := range r.order(job, ask, d.Tier) {
		model, reason, detail := r.judge(snap, job, ask, d.Tier, id)
		if reason != "" {
			d.Skipped = append(d.Skipped, subjects.Skipped{Provider: id, Reason: reason, Detail: detail})
			d.before = append(d.before, len(d.Chain))
			continue
		}
		d.Chain = append(d.Chain, subjects.Candidate{Provider: id, Model: model})
	}
	return d, nil
}

// ask is what the caller named: a tier, a provider with or without a model, or
// a model that some providers serve.
type ask struct {
	tier     string
	provider string
	model    string
	// servers are the providers that serve model, when no provider was named.
	servers []string
}

func (r *Router) readAsk(job *Job) (ask, error) {
	a := ask{provider: job.Provider}
	if a.provider != "" && !r.known(a.provider) {
		return a, r.unknownProvider("provider", a.provider)
	}
	model := job.Model
	switch {
	case model == "" || model == "auto":
		return a, nil
	case subjects.ValidTier(model):
		a.tier = model
		return a, nil
	}
	prefix, rest, slash := strings.Cut(model, "/")
	if slash && r.known(prefix) && (a.provider == "" || a.provider == prefix) {
		if rest == "" {
			return a, subjects.Errorf(subjects.KindValidation, "model: %q names no model after the slash; write %s/<model>, or leave the slash out and set provider", model, prefix)
		}
		a.provider, a.model = prefix, rest
		return a, nil
	}
	a.model = model
	if a.provider != "" || r.cfg.Mode == config.ModeMock {
		return a, nil
	}
	if a.servers = r.serving[model]; a.servers == nil {
		a.servers = r.serving[wire.CanonicalModel(model)]
	}
	if a.servers == nil {
		return a, r.unknownModel(model)
	}
	return a, nil
}

func (r *Router) known(id string) bool { return r.providers[id] != nil }

func (r *Router) unknownProvider(field, id string) error {
	hint := ""
	if near := subjects.Nearest(id, r.ids); near != "" {
		hint = " (did you mean " + near + "?)"
	}
	return subjects.Errorf(subjects.KindValidation, "%s: no provider is called %q%s; the providers are %s", field, clip(id), hint, strings.Join(r.ids, ", "))
}

func (r *Router) unknownModel(model string) error {
	var all []string
	for _, id := range r.ids {
		for _, m := range r.models[id] {
			all = append(all, m.id, id+"/"+m.id)
		}
	}
	hint := ""
	if near := subjects.Nearest(model, all); near != "" {
		hint = " (did you mean " + near + "?)"
	}
	return subjects.Errorf(subjects.KindValidation, "model: no configured provider serves %q%s; write provider/model, a tier (fast, standard, premium) or auto", clip(model), hint)
}

func clip(s string) string {
	const limit = 80
	if len(s) > limit {
		return s[:limit] + "…"
	}
	return s
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
func (r *Router) served(id, model string) string {
	for _, m := range r.models[id] {
		if m.id == model {
			return m.id
		}
	}
	if len(r.models[id]) == 0 {
		return ""
	}
	canonical := wire.CanonicalModel(model)
	for _, m := range r.models[id] {
		if m.canonical == canonical {
			return m.id
		}
	}
	return ""
}

func appendNew(list []string, ids ...string) []string {
	for _, id := range ids {
		if !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	return list
}

func (d *Decision) pickTier(cfg *config.Config, job *Job, asked string) error {
	if job.Tier != "" && !subjects.ValidTier(job.Tier) {
		hint := ""
		if near := subjects.Nearest(job.Tier, subjects.Tiers); near != "" {
			hint = " (did you mean " + near + "?)"
		}
		return subjects.Errorf(subjects.KindValidation, "tier: %q is not a tier%s; the tiers are fast, standard, premium", clip(job.Tier), hint)
	}
	switch {
	case cfg.ForcedTier != "":
		d.Tier = cfg.ForcedTier
		d.note("tier forced by SEMANTIC_ANALYSIS_TIER")
	case cfg.CostMode == "budget":
		d.Tier = subjects.TierFast
		d.note("tier forced by SEMANTIC_ANALYSIS_COST_MODE")
	case job.Tier != "":
		d.Tier = job.Tier
	case asked != "":
		d.Tier = asked
	case job.Task != "" && cfg.TaskTiers[job.Task] != "":
		d.Tier = cfg.TaskTiers[job.Task]
	default:
		d.Tier = cfg.DefaultTier
		if job.Task != "" {
			d.note("unknown task, default tier")
		}
	}
	return nil
}

func (d *Decision) note(s string) { d.Notes = append(d.Notes, s) }

// order lists the providers to consider, each once.
func (r *Router) order(job *Job, a ask, tier string) []string {
	cfg := r.cfg
	switch {
	case job.Exact:
		return []string{job.Provider}
	case cfg.Mode == config.ModeMock:
		return appendNew([]string{"mock"}, optional(a.provider)...)
	case cfg.ForcedProvider != "":
		return []string{cfg.ForcedProvider}
	}
	list := appendNew(optional(a.provider), a.servers...)
	if cfg.Mode == config.ModePublic {
		list = appendNew(list, r.priority[tier]...)
	}
	return appendNew(list, r.local...)
}

func optional(id string) []string {
	if id == "" {
		return nil
	}
	return []string{id}
}

// judge returns the model that a provider would serve, or why it is left out.
func (r *Router) judge(snap Snapshot, job *Job, a ask, tier, id string) (model, reason, detail string) {
	cfg, st := r.cfg, snap[id]
	switch {
	case cfg.Mode == config.ModeMock && id != "mock":
		return "", ReasonMode, "mode is mock"
	case cfg.Mode == config.ModeLocal && !r.Local(id):
		return "", ReasonMode, "mode is local"
	case !st.Available:
		return "", cmp.Or(st.Reason, ReasonUnavailable), cmp.Or(st.Detail, "it has only just come")
	case job.Privacy == "local" && !r.Local(id):
		return "", ReasonPrivacy, "the call asks for local providers only"
	case job.ForcePaid && strings.HasSuffix(r.Account(id), "-subscription"):
		return "", ReasonSubscription, "the call asks for paid providers only"
	}
	if missing := job.Needs.Missing(st.Has); missing != 0 {
		return "", ReasonCapability, "cannot do " + missing.String()
	}
	if model = r.pickModel(a, tier, id); model == "" {
		if p := r.providers[id]; p != nil && (p.Kind == config.KindOutside || a.model != "" && a.provider == id) {
			return "", ReasonNoModel, "its models are " + strings.Join(p.AvailableModels, ", ")
		}
		return "", ReasonNoModel, "no model for tier " + tier + "; set providers." + id + ".models." + tier + " or ask for " + id + "/<model>"
	}
	return model, "", ""
}

func (r *Router) pickModel(a ask, tier, id string) string {
	switch {
	case a.model != "" && (a.provider == id || r.cfg.Mode == config.ModeMock && id == "mock"):
		if m := r.served(id, a.model); m != "" {
			return m
		}
		if p := r.providers[id]; p != nil && a.provider == id && len(p.AvailableModels) > 0 {
			return "" // it is said what it serves
		}
		return a.model
	case a.model != "" && slices.Contains(a.servers, id):
		return r.served(id, a.model)
	}
	if p := r.providers[id]; p != nil && p.Models[tier] != "" {
		return p.Models[tier]
	}
	switch id {
	case "mock":
		return "mock-" + tier
	case "proxy": // the other side chooses
		return tier
	}
	return ""
}

// NoProvider is the error for a decision whose chain is empty, with the trail
// of what was left out. When a provider was left out for want of a capability it
// is CAPABILITY_MISSING.
func NoProvider(d *Decision) *subjects.Error {
	kind := subjects.KindNoProvider
	var why []string
	for _, s := range d.Skipped {
		why = append(why, s.Provider+": "+s.Detail)
		if s.Reason == ReasonCapability {
			kind = subjects.KindCapabilityMissing
		}
	}
	e := subjects.Errorf(kind, "no provider can serve this call (tier %s): %s", d.Tier, strings.Join(why, "; "))
	e.Attempts = d.SkippedAt(0)
	return e
}

// SkippedAt lists, for a trail, the providers that were left out between the
// candidate before position i of the chain and the one at i; len(Chain) gives
// those after the last. Providers behind the one that answers are not part of
// what happened.
func (d *Decision) SkippedAt(i int) []subjects.Attempt {
	var out []subjects.Attempt
	for k, s := range d.Skipped {
		if d.before[k] == i {
			out = append(out, subjects.Attempt{Provider: s.Provider, Outcome: subjects.OutcomeSkipped, Reason: s.Reason})
		}
	}
	return out
}

// Route is the decision as callers see it.
func (d *Decision) Route(job *Job, class string) *subjects.Route {
	r := &subjects.Route{
		Tier: d.Tier, Task: job.Task, Class: class,
		Chain: d.Chain, Skipped: d.Skipped, Notes: d.Notes,
	}
	if r.Chain == nil {
		r.Chain = []subjects.Candidate{}
	}
	if r.Skipped == nil {
		r.Skipped = []subjects.Skipped{}
	}
	r.Summary = d.summary(job)
	return r
}

func (d *Decision) summary(job *Job) string {
	var b strings.Builder
	if job.Task != "" {
		b.WriteString(job.Task)
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

// Class returns the workload class of a call whose subject has none, by the
// configuration's process_classes; interactive when nothing matches.
func Class(cfg *config.Config, process string) string {
	if class := cfg.ClassOf(process); class != "" {
		return class
	}
	return subjects.ClassInteractive
}
