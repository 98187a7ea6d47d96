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

func (d *decoder) decode(data []byte) { d.read(parse(data)) }

// read reads a document, or says why there is none.
func (d *decoder) read(doc document, fault *Fault) {
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

// modelKey checks a key that is "provider/model" or "provider".
func (e entry) modelKey() bool {
	if e.describing() {
		*e.names = schema{"pattern": providerForm + `(/\S(.*\S)?)?$`}
		return true
	}
	e.pos = e.at
	provider, model, hasModel := strings.Cut(e.key, "/")
	switch {
	case !slices.Contains(e.d.cfg.Order, provider):
		e.suggest(subjects.Nearest(provider, e.d.cfg.Order), "no provider %s; the providers are %s", show(provider), list(e.d.cfg.Order))
	case hasModel && badName(model) != "":
		e.fault("the model after the / %s", badName(model))
	default:
		return true
	}
	return false
}

// priority reads the order of providers by tier.
func (d *decoder) priority(v value) {
	v.choice("tier", subjects.Tiers, func(tier string, v value) {
		v.standard(d.cfg.ProviderPriority[tier])
		if ids, ok := v.providerList(); ok {
			d.cfg.ProviderPriority[tier] = ids
		}
	})
}

// providerList reads an order of providers, and notes that the user's file has
// given those their place.
func (v value) providerList() ([]string, bool) {
	ids, ok := v.set(value.provider)
	if !v.d.builtIn {
		for _, id := range ids {
			v.d.named[id] = true
		}
	}
	return ids, ok
}

// provider reads a provider's id.
func (v value) provider() (id string) {
	if v.describing() {
		v.says(providerShape(ProviderIDs))
		v.orVariable()
		return ""
	}
	oneOf(&id, v.d.cfg.Order)(v)
	return id
}

// taskTiers reads lists of tasks by tier. A task that the user's file names
// leaves the tier that the default gave it.
func (d *decoder) taskTiers(v value) {
	seen := map[string]value{}
	v.choice("tier", subjects.Tiers, func(tier string, v value) {
		all, _ := v.items()
		for _, item := range all {
			d.taskTier(item, tier, seen)
		}
		v.unique()
	})
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
		if !e.processKey() {
			continue
		}
		class := ""
		oneOf(&class, subjects.Classes)(e.value)
		if class != "" {
			d.cfg.ProcessClasses[e.key] = class
		}
	}
}

// processKey checks that the key is a process's name, which may end in *.
func (e entry) processKey() bool {
	if i := strings.IndexByte(e.key, '*'); i >= 0 && i < len(e.key)-1 {
		e.pos = e.at
		e.fault("the process name may have a * at its end only")
		return false
	}
	if !e.nameKey("process name") {
		return false
	}
	if e.describing() {
		(*e.names)["pattern"] = `^(\*|[^\s*]([^*]*[^\s*])?\*?)$`
	}
	return true
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
		if e.modelKey() && n > 0 {
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
	v.standard(slices.DeleteFunc(kindNames(), func(kind string) bool { return !d.cfg.FallbackOn[subjects.Kind(kind)] }))
	names, ok := v.set(func(item value) (kind string) {
		if item.describing() {
			item.words(slices.DeleteFunc(kindNames(), isFinal), "")
			return ""
		}
		if oneOf(&kind, kindNames())(item); isFinal(kind) {
			item.fault("%s ends a call and cannot lead to the next provider; remove it", kind)
			return ""
		}
		return kind
	})
	if !ok {
		return
	}
	d.cfg.FallbackOn = map[subjects.Kind]bool{}
	for _, name := range names {
		d.cfg.FallbackOn[subjects.Kind(name)] = true
	}
}

func isFinal(kind string) bool { return slices.Contains(final, subjects.Kind(kind)) }

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
