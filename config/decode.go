package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// Bounds of the numbers in a file. maxCount bounds every count of calls, from
// a file or the environment.
const (
	maxCount  = 1_000_000
	maxMillis = subjects.MaxTimeoutMs
	maxBytes  = 1 << 50
)

// count bounds what is counted in calls.
var count = bounds{lo: 1, hi: maxCount}

// decoder reads one file into the Config of its loader.
type decoder struct {
	*loader
	doc     document
	file    string
	builtIn bool
	// visits and expanded count values and bytes against their bounds.
	visits, expanded int
	// places says where the file sets what, by path.
	places map[string]position
	// later is read when the rest of the file is.
	later []func()
}

func (d *decoder) add(f Fault) {
	f.File = d.file
	d.loader.add(f)
}

func (d *decoder) decode(data []byte) {
	doc, fault := parse(data)
	if fault != nil {
		d.add(*fault)
		return
	}
	d.doc = doc
	if doc.root != nil {
		root := value{d: d, node: doc.root, pos: nodeAt(doc.root)}
		root.objectWith(d.sections(), rates)
	}
	for _, read := range d.later {
		read()
	}
	if d.visits > maxVisits {
		d.add(Fault{Message: fmt.Sprintf("more than %d values with all aliases followed; use fewer aliases", maxVisits)})
	}
}

// exhausted reports whether reading on makes no sense.
func (d *decoder) exhausted() bool {
	return d.visits > maxVisits || len(d.faults) > 10*maxFaults
}

// sections are the keys of the file.
func (d *decoder) sections() []field {
	c := d.cfg
	return slices.Concat([]field{
		{"mode", oneOf(&c.Mode, modes)},
		{"default_tier", oneOf(&c.DefaultTier, subjects.Tiers)},
		{"providers", d.providers},
		{"provider_priority", d.last(d.priority)},
		{"task_tiers", d.taskTiers},
		{"process_classes", d.processClasses},
		{"pools", d.last(d.pools)},
		{"retry", d.retry},
		{"fallback_on", d.fallbackOn},
		{"usage", d.usage},
		{"prices", d.last(d.prices)},
	}, d.limitSections(), d.ruleSections())
}

// last reads a section after the others: it names providers, which the file may
// add further down.
func (d *decoder) last(read func(value)) func(value) {
	return func(v value) { d.later = append(d.later, func() { read(v) }) }
}

var modes = []string{ModeMock, ModeLocal, ModePublic}

// modelKey checks a key that is "provider/model" or, unless the model is
// needed, "provider".
func (e entry) modelKey(needModel bool) bool {
	e.pos = e.at
	provider, model, hasModel := strings.Cut(e.key, "/")
	switch {
	case !slices.Contains(e.d.cfg.Order, provider):
		e.suggest(subjects.Nearest(provider, e.d.cfg.Order), "no provider %s; the providers are %s", show(provider), list(e.d.cfg.Order))
	case needModel && !hasModel:
		e.fault("must be \"%s/<model>\"", provider)
	case hasModel && badName(model) != "":
		e.fault("the model after the / %s", badName(model))
	default:
		return true
	}
	return false
}

// priority reads the order of providers by tier.
func (d *decoder) priority(v value) {
	for _, e := range v.entries(same) {
		if !e.oneKey("tier", subjects.Tiers) {
			continue
		}
		if ids, ok := e.providerList(); ok {
			d.cfg.ProviderPriority[e.key] = ids
		}
	}
}

// oneKey checks that the key is one of a few.
func (e entry) oneKey(what string, keys []string) bool {
	if slices.Contains(keys, e.key) {
		return true
	}
	e.pos = e.at
	e.suggest(subjects.Nearest(e.key, keys), "unknown %s; the %ss are %s", what, what, list(keys))
	return false
}

func (v value) providerList() ([]string, bool) {
	all, ok := v.items()
	ids := make([]string, 0, len(all))
	for _, item := range all {
		id := ""
		oneOf(&id, v.d.cfg.Order)(item)
		switch {
		case id == "":
		case slices.Contains(ids, id):
			item.fault("%q stands in the list twice; keep one", id)
		default:
			ids = append(ids, id)
			v.d.named[id] = v.d.named[id] || !v.d.builtIn
		}
	}
	return ids, ok
}

// taskTiers reads lists of tasks by tier. A task that the user's file names
// leaves the tier that the default gave it.
func (d *decoder) taskTiers(v value) {
	seen := map[string]value{}
	for _, e := range v.entries(same) {
		if !e.oneKey("tier", subjects.Tiers) {
			continue
		}
		all, _ := e.items()
		for _, item := range all {
			d.taskTier(item, e.key, seen)
		}
	}
}

func (d *decoder) taskTier(v value, tier string, seen map[string]value) {
	task, ok := v.name()
	if !ok {
		return
	}
	if first, twice := seen[task]; twice {
		v.fault("task %s is already in %s, line %d; keep one", show(task), first.path, first.pos.line)
		return
	}
	seen[task] = v
	d.cfg.TaskTiers[task] = tier
}

// processClasses reads the class of each process.
func (d *decoder) processClasses(v value) {
	for _, e := range v.entries(same) {
		if problem := badPattern(e.key); problem != "" {
			e.pos = e.at
			e.fault("the process name %s", problem)
			continue
		}
		class := ""
		oneOf(&class, subjects.Classes)(e.value)
		if class != "" {
			d.cfg.ProcessClasses[e.key] = class
		}
	}
}

func badPattern(process string) string {
	if i := strings.IndexByte(process, '*'); i >= 0 && i < len(process)-1 {
		return "may have a * at its end only"
	}
	return badName(process)
}

func (d *decoder) pools(v value) {
	p := &d.cfg.Pools
	v.objectWith([]field{
		{"caps", d.caps},
		{"default_cap", whole(&p.DefaultCap, count)},
		{"max_queue", whole(&p.MaxQueue, count)},
		{"max_calls", whole(&p.MaxCalls, count)},
		{"max_bytes", whole(&p.MaxBytes, bounds{lo: 1, hi: maxBytes, unit: "bytes"})},
		{"saturated_after_ms", millis(&p.SaturatedAfter, 1, maxMillis)},
		{"classes", fields(
			field{subjects.ClassInteractive, d.class(subjects.ClassInteractive)},
			field{subjects.ClassIngestion, d.class(subjects.ClassIngestion)},
		)},
	}, rates)
}

func (d *decoder) caps(v value) {
	for _, e := range v.entries(same) {
		n := 0
		whole(&n, count)(e.value)
		if e.modelKey(false) && n > 0 {
			d.cfg.Pools.Caps[e.key] = n
		}
	}
}

func (d *decoder) class(name string) func(value) {
	return func(v value) {
		c := d.cfg.Pools.Classes[name]
		v.object(
			field{"slots", whole(&c.Slots, count)},
			field{"weight", whole(&c.Weight, bounds{lo: 1, hi: 1000})},
		)
		d.cfg.Pools.Classes[name] = c
	}
}

func (d *decoder) retry(v value) {
	r := &d.cfg.Retry
	v.object(
		field{"max_attempts", whole(&r.MaxAttempts, bounds{lo: 1, hi: 100})},
		field{"base_delay_ms", millis(&r.BaseDelay, 0, maxMillis)},
		field{"max_delay_ms", millis(&r.MaxDelay, 0, maxMillis)},
		field{"jitter", decimal(&r.Jitter, 1)},
		field{"call_timeout_ms", millis(&r.CallTimeout, 1, maxMillis)},
	)
}

// final are kinds that end a call; no provider is left to ask or nobody to
// answer.
var final = []subjects.Kind{subjects.KindCapabilityMissing, subjects.KindNoProvider, subjects.KindCancelled}

func (d *decoder) fallbackOn(v value) {
	all, ok := v.items()
	kinds := map[subjects.Kind]bool{}
	for _, item := range all {
		kind := ""
		oneOf(&kind, kindNames())(item)
		switch {
		case kind == "":
		case slices.Contains(final, subjects.Kind(kind)):
			item.fault("%s ends a call and cannot lead to the next provider; remove it", kind)
		case kinds[subjects.Kind(kind)]:
			item.fault("%s stands in the list twice; keep one", kind)
		default:
			kinds[subjects.Kind(kind)] = true
		}
	}
	if ok {
		d.cfg.FallbackOn = kinds
	}
}

func kindNames() []string {
	var names []string
	for _, k := range subjects.Kinds() {
		names = append(names, string(k))
	}
	return names
}

func (d *decoder) usage(v value) {
	u := &d.cfg.Usage
	v.object(
		field{"prompt_preview", boolean(&u.PromptPreview)},
		field{"stream_max_bytes", whole(&u.StreamMaxBytes, bounds{lo: 64 << 10, hi: maxBytes, unit: "bytes"})},
		field{"reserve_bytes", whole(&u.ReserveBytes, bounds{lo: 0, hi: maxBytes, unit: "bytes"})},
		field{"max_pending", whole(&u.MaxPending, count)},
	)
}
