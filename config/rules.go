package config

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// maxHookWait bounds how long a hook may hold a call up, in milliseconds.
const maxHookWait = 60_000

var hookNames = []string{HookMock, HookBudget, HookSensitivity}

// ruleSections are the keys of who may see what, and of who is asked about it.
func (d *decoder) ruleSections() []field {
	return []field{
		{"task_priority", d.last(d.taskPriority)},
		{"sensitivity", d.last(d.sensitivity)},
		{"hooks", d.hooks},
	}
}

// taskPriority reads the order of providers by task.
func (d *decoder) taskPriority(v value) {
	for _, e := range v.entries(same) {
		if !e.nameKey("task name") {
			continue
		}
		if ids, ok := e.providerList(); ok {
			d.cfg.TaskPriority[e.key] = ids
		}
	}
}

// sensitivity reads which providers may see content of each sensitivity.
func (d *decoder) sensitivity(v value) {
	v.object(field{"allow", func(v value) {
		v.choice("sensitivity", Sensitivities, func(name string, v value) {
			v.standard(d.cfg.Sensitivity.Allow[name])
			if ids, ok := v.set(value.allowed); ok {
				d.cfg.Sensitivity.Allow[name] = append([]string{}, ids...)
			}
		})
	}})
}

// allowWords may stand where a provider is allowed to see content.
var allowWords = []string{AllowAll, AllowLocal}

// outsideName is what a provider may be called that announces itself (docs/subjects.md).
var outsideName = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

// allowed reads all, local or a provider. A provider that is not in the file may
// yet announce itself: its name is remarked on, not refused.
func (v value) allowed() string {
	if v.describing() {
		v.says(schema{"anyOf": []schema{{"enum": append(slices.Clone(allowWords), ProviderIDs...)}, {"type": "string", "pattern": outsideName.String()}}})
	}
	id, ok := v.text()
	switch {
	case !ok:
		return ""
	case !outsideName.MatchString(id):
		v.suggest(subjects.Nearest(id, v.allowable()), "found %s; must be %s, or a provider's name", describe(v.node), list(allowWords))
		return ""
	}
	v.noteStranger(id)
	return id
}

// allowable lists what is known to stand in a list of those who are allowed.
func (v value) allowable() []string { return append(slices.Clone(allowWords), v.d.cfg.Order...) }

// noteStranger remarks on the name of a provider that is not there.
func (v value) noteStranger(id string) {
	if slices.Contains(v.allowable(), id) {
		return
	}
	if near := subjects.Nearest(id, v.allowable()); near != "" {
		v.d.note("%s: there is no provider %s here; did you mean %s?", v.path, describe(v.node), near)
		return
	}
	v.d.note("%s: there is no provider %s here; it counts once one announces itself by that name", v.path, describe(v.node))
}

func (d *decoder) hooks(v value) {
	var all []field
	for _, name := range hookNames {
		all = append(all, field{name, func(v value) { d.hook(v, name) }})
	}
	v.object(all...)
}

// hook reads one injection point. Naming it is enough: its service is asked.
func (d *decoder) hook(v value, name string) {
	h, there := d.cfg.Hooks[name]
	if !there {
		h = newHook(name)
	}
	answers := []string{OnErrorAllow, OnErrorLocal, OnErrorDeny}
	if name == HookMock { // its answer comes from no provider
		answers = []string{OnErrorAllow, OnErrorDeny}
	}
	v.object(
		field{"subject", func(v value) { v.hookSubject(&h.Subject) }},
		field{"timeoutMs", millis(&h.Timeout, 1, maxHookWait)},
		field{"onError", oneOf(&h.OnError, answers)},
	)
	d.cfg.Hooks[name] = h
}

func newHook(name string) Hook {
	h := Hook{Subject: "llm.hook." + name, Timeout: 250 * time.Millisecond, OnError: OnErrorAllow}
	if name == HookSensitivity {
		h.OnError = OnErrorLocal
	}
	return h
}

// hookName is a subject to publish to: no wildcard, no empty token, nothing that
// the protocol reads as something else.
var hookName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

func hookShape() schema {
	is := pattern(hookName.String(), subjects.MaxName)
	is["anyOf"] = []schema{{"pattern": `^llm\.hook\.`}, {"not": schema{"pattern": `^(llm(\.|$)|_)`}}}
	return is
}

// hookSubject reads a hook's subject. Sluice's own subjects and the server's are
// refused: Sluice would ask itself.
func (v value) hookSubject(to *string) {
	v.says(hookShape())
	v.standard(*to)
	text, ok := v.text()
	switch {
	case !ok:
	case !hookName.MatchString(text) || len(text) > subjects.MaxName:
		v.fault("found %s; must be a NATS subject such as llm.hook.budget: letters, digits, - and _ with dots between, at most %d bytes",
			describe(v.node), subjects.MaxName)
	case strings.HasPrefix(text, "llm.") && !strings.HasPrefix(text, "llm.hook."), text == "llm":
		v.fault("%s is among Sluice's own subjects; begin it with llm.hook. or with a name of yours", text)
	case strings.HasPrefix(text, "_"):
		v.fault("%s begins as inboxes do; begin it with llm.hook. or with a name of yours", text)
	default:
		*to = text
	}
}
