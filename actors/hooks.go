package actors

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/hooks"
	"github.com/sluice-llm/sluice/subjects"
)

// A hookDesk asks the injection points (package hooks) for the calls. Whatever a
// hook does, a call waits no longer for it than the hook's own timeout, and one
// that fails is answered by the hook's onError (hookask.go):
//
//	asked → answered → what it says
//	      → late, hung, panicked, an error, nonsense → onError: allow | local | deny
//	      → the call ended meanwhile → the call's own error
//
// A Go implementation that the embedder gives wins over the subject that the
// configuration names for the same hook; the configuration's timeout and onError
// hold for it, too. Costs are told beside the calls (hookcosts.go). That a hook
// fails or answers again is an event (hookwatch.go). Neither prompts nor what
// hooks write stand in a log line or an event. Safe for concurrent use.
type hookDesk struct {
	o     hookOptions
	sys   *system
	watch *actor.PID
	rules atomic.Pointer[hookRules]

	mocks, budgets, costs, classes *hookPoint
	teller                         *costTeller
}

// hookOptions is what a hookDesk is made of; a hook that the embedder does not
// implement is nil.
type hookOptions struct {
	Mock        hooks.MockService
	Budget      hooks.BudgetTracker
	Sensitivity hooks.SensitivityClassifier
	// Transport carries the questions to the subjects of the configuration.
	Transport subjects.Transport
	Log       *slog.Logger
	// Emit publishes an event; it must not block.
	Emit func(subject string, event any)
}

// verdict is what a hook has to say of one call. The zero value lets it go on
// as if there were no hook.
type verdict struct {
	// sensitivity is one of config.Sensitivities; "" = not classified. only, when
	// not nil, lists the providers that the classifier allows.
	sensitivity string
	only        []string
	// unclassified says that there is a classifier and its word is not known: the
	// content is then to be kept out of previews, whatever onError is.
	unclassified bool
	// localOnly lets the call go to local providers only, freeOnly to those that
	// cost nothing; each is the text for people, "" = no such rule.
	localOnly, freeOnly string
	// err ends the call.
	err *subjects.Error
}

// hookRule says how one hook is asked.
type hookRule[T any] struct {
	set     bool
	hook    T
	remote  bool   // its errors are package hooks' own words
	by      string // who answers, for people
	timeout time.Duration
	onError string
}

// hookRules is what a configuration makes of the hooks. It never changes.
type hookRules struct {
	mock        hookRule[hooks.MockService]
	budget      hookRule[hooks.BudgetTracker]
	sensitivity hookRule[hooks.SensitivityClassifier]
	fallback    bool // over budget: what costs nothing, in place of an error
}

// newHookDesk starts a desk. close ends it.
func newHookDesk(sys *system, cfg *config.Config, o hookOptions) *hookDesk {
	d := &hookDesk{o: o, sys: sys}
	d.watch = sys.spawn(&hookWatch{log: o.Log, emit: o.Emit, again: sys.after, now: time.Now, hooks: map[string]*hookState{}})
	d.mocks = newHookPoint(config.HookMock, "")
	d.budgets = newHookPoint(config.HookBudget, hooks.QuestionOverBudget)
	d.costs = newHookPoint(config.HookBudget, hooks.QuestionTrackCost)
	d.classes = newHookPoint(config.HookSensitivity, "")
	d.teller = newCostTeller(d)
	d.reconfigure(cfg)
	return d
}

// close tells the budget tracker of the costs that are left, a second at most,
// and ends the desk.
func (d *hookDesk) close() { d.teller.close() }

// reconfigure takes over another configuration. Questions under way end by the
// old one.
func (d *hookDesk) reconfigure(cfg *config.Config) {
	r := &hookRules{
		mock:        ruleFor(d, cfg, config.HookMock, d.o.Mock),
		budget:      ruleFor(d, cfg, config.HookBudget, d.o.Budget),
		sensitivity: ruleFor(d, cfg, config.HookSensitivity, d.o.Sensitivity),
		fallback:    cfg.Costs.Fallback,
	}
	old := d.rules.Swap(r)
	if old == nil {
		old = &hookRules{}
	}
	sayRule(d.o.Log, config.HookMock, &old.mock, &r.mock)
	sayRule(d.o.Log, config.HookBudget, &old.budget, &r.budget)
	sayRule(d.o.Log, config.HookSensitivity, &old.sensitivity, &r.sensitivity)
}

// embedded names a hook that the embedder implements.
const embedded = "the program that embeds this node"

// defaultHookTimeout bounds a question to a hook that the embedder implements and
// the configuration does not name.
const defaultHookTimeout = 250 * time.Millisecond

// ruleFor makes the rule of one hook. own is the embedder's implementation, or nil.
func ruleFor[T comparable](d *hookDesk, cfg *config.Config, name string, own T) hookRule[T] {
	var none T
	h, named := cfg.Hooks[name]
	r := hookRule[T]{hook: own, by: embedded, timeout: h.Timeout, onError: h.OnError}
	switch {
	case own != none:
		r.set = true
	case named:
		r.set, r.remote, r.by = true, true, h.Subject
		r.hook = any(hooks.OverNATS(d.o.Transport, h.Subject)).(T)
	}
	if r.timeout <= 0 {
		r.timeout = defaultHookTimeout
	}
	whenDead := config.OnErrorAllow
	if name == config.HookSensitivity {
		whenDead = config.OnErrorLocal
	}
	r.onError = cmp.Or(r.onError, whenDead)
	return r
}

func sayRule[T any](log *slog.Logger, name string, old, r *hookRule[T]) {
	switch {
	case old.set == r.set && old.by == r.by && old.timeout == r.timeout && old.onError == r.onError:
	case r.set:
		log.Info("a hook is asked", "hook", name, "of", r.by, "timeout", r.timeout, "onError", r.onError)
	case old.set:
		log.Info("a hook is not asked any more", "hook", name)
	}
}

// asks reports whether there is a hook of that name (config.HookMock, …).
func (d *hookDesk) asks(name string) bool {
	r := d.rules.Load()
	switch name {
	case config.HookMock:
		return r.mock.set
	case config.HookBudget:
		return r.budget.set
	}
	return r.sensitivity.set
}

// sensitivity asks the classifier. content is not changed after.
func (d *hookDesk) sensitivity(ctx context.Context, content *hooks.Content) verdict {
	r := &d.rules.Load().sensitivity
	if !r.set {
		return verdict{}
	}
	got, why := consult(ctx, d, d.classes, r, func(ctx context.Context) (hooks.Classification, error) {
		c, err := r.hook.Classify(ctx, content)
		switch {
		case err != nil:
			return hooks.Classification{}, err
		case c == nil || !hooks.KnownSensitivity(c.Sensitivity):
			return hooks.Classification{}, hookFault("its answer is none of public, internal and confidential")
		}
		return hooks.Classification{Sensitivity: c.Sensitivity, AllowedProviders: slices.Clone(c.AllowedProviders)}, nil
	})
	switch {
	case why == "":
		return verdict{sensitivity: got.Sensitivity, only: got.AllowedProviders}
	case ctx.Err() != nil:
		return verdict{unclassified: true, err: subjects.AsError(context.Cause(ctx))}
	}
	v := verdict{unclassified: true}
	switch r.onError {
	case config.OnErrorLocal:
		v.localOnly = "the sensitivity classifier does not answer"
	case config.OnErrorDeny:
		v.err = subjects.Errorf(subjects.KindNoProvider, "the sensitivity classifier does not answer (%s), and hooks.sensitivity.onError is deny: no provider may see the content; try again once it answers", why)
	}
	return v
}

// budget asks the tracker whether a call may cost money. Without a tracker the
// ledger's own limits decide, and with one they do not.
func (d *hookDesk) budget(ctx context.Context, q *hooks.BudgetQuestion) verdict {
	rules := d.rules.Load()
	r := &rules.budget
	if !r.set {
		return verdict{}
	}
	got, why := consult(ctx, d, d.budgets, r, func(ctx context.Context) (hooks.BudgetAnswer, error) {
		a, err := r.hook.OverBudget(ctx, q)
		switch {
		case err != nil:
			return hooks.BudgetAnswer{}, err
		case a == nil:
			return hooks.BudgetAnswer{}, hookFault("it gave no answer")
		}
		return *a, nil
	})
	switch {
	case why == "" && !got.OverBudget:
		return verdict{}
	case why == "":
		return overBudget(&got, rules.fallback)
	case ctx.Err() != nil:
		return verdict{err: subjects.AsError(context.Cause(ctx))}
	}
	switch r.onError {
	case config.OnErrorLocal:
		return verdict{localOnly: "the budget tracker does not answer"}
	case config.OnErrorDeny:
		return verdict{err: subjects.Errorf(subjects.KindBudgetExceeded, "the budget tracker does not answer (%s), and hooks.budget.onError is deny: nothing may be spent; try again once it answers", why)}
	}
	return verdict{}
}

// overBudget is what becomes of a call for which the tracker has no money.
func overBudget(a *hooks.BudgetAnswer, fallback bool) verdict {
	text := "the budget tracker says that the budget is used up"
	if a.RemainingUSD != nil {
		text += ", " + a.RemainingUSD.String() + " USD remain"
	}
	if why := oneLine(a.Reason, maxHookReason); why != "" {
		text += ": " + why
	}
	if fallback {
		return verdict{freeOnly: text}
	}
	return verdict{err: subjects.Errorf(subjects.KindBudgetExceeded, "%s", text)}
}

// mock is the mock service for the mock provider: the hook's, asked with the same
// care. Its error is hooks.ErrBuiltIn where the built-in answer is to serve.
func (d *hookDesk) mock() hooks.MockService { return guardedMock{d} }

type guardedMock struct{ d *hookDesk }

// MockResponse implements hooks.MockService.
func (g guardedMock) MockResponse(ctx context.Context, req *hooks.MockRequest) (string, error) {
	r := &g.d.rules.Load().mock
	if !r.set {
		return "", hooks.ErrBuiltIn
	}
	type answer struct {
		text    string
		builtIn bool
	}
	got, why := consult(ctx, g.d, g.d.mocks, r, func(ctx context.Context) (answer, error) {
		text, err := r.hook.MockResponse(ctx, req)
		if errors.Is(err, hooks.ErrBuiltIn) {
			return answer{builtIn: true}, nil
		}
		return answer{text: text}, err
	})
	switch {
	case why == "" && !got.builtIn:
		return got.text, nil
	case why == "":
		return "", hooks.ErrBuiltIn
	case ctx.Err() != nil:
		return "", subjects.AsError(context.Cause(ctx))
	case r.onError == config.OnErrorDeny:
		return "", subjects.Errorf(subjects.KindProviderUnavailable, "the mock service does not answer (%s), and hooks.mock.onError is deny", why)
	}
	return "", hooks.ErrBuiltIn
}

// track tells the budget tracker what a call has cost, beside the call: it never
// waits. A cost that finds the queue full is lost and counted.
func (d *hookDesk) track(c *hooks.BudgetCost) {
	if d.rules.Load().budget.set {
		d.teller.take(c)
	}
}
