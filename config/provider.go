package config

import (
	"regexp"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/sluice-llm/sluice/subjects"
)

// providers reads the providers, entry by entry over what is there.
func (d *decoder) providers(v value) {
	if v.describing() {
		d.describeProviders(v)
		return
	}
	for _, e := range v.entries(same) {
		p, ok := d.cfg.Providers[e.key]
		if !ok {
			if p = d.added(e); p == nil {
				continue
			}
		}
		d.provider(e.value, p)
	}
	slices.Sort(d.cfg.Order[len(ProviderIDs):])
}

// describeProviders has the built-in providers, and any other as an added one.
func (d *decoder) describeProviders(v value) {
	for _, id := range ProviderIDs {
		d.provider(v.property(id, "*"), d.cfg.Providers[id])
	}
	e, own := v.freeEntry(), newProvider("x")
	own.Kind = KindOpenAI
	e.shape.free = false // its defaults are those of every added provider
	d.provider(e.value, own)
	e.need("api")
	*e.names = pattern(addedID.String(), maxAddedID)
	(*e.names)["not"] = schema{"enum": reservedIDs}
}

// addedID is what the id of an added provider may be: it stands in subjects,
// environment variables and "provider/model".
var addedID = regexp.MustCompile(providerForm + "$")

// providerForm is how each provider's id begins and goes on.
const providerForm = `^[a-z][a-z0-9]*(-[a-z0-9]+)*`

// providerShape describes the name of a provider that may be an added one.
func providerShape(known []string) schema {
	return schema{"anyOf": []schema{{"enum": known}, pattern(addedID.String(), maxAddedID)}}
}

// reservedIDs mean something else where a provider may stand.
var reservedIDs = append([]string{"auto", "sluice", AllowAll, AllowLocal}, subjects.Tiers...)

// added makes the provider that an entry adds, or says why it cannot.
func (d *decoder) added(e entry) *Provider {
	_, asked := d.hasKey(e.value, "api")
	e.pos = e.at
	switch {
	case !asked:
		e.suggest(subjects.Nearest(e.key, d.cfg.Order), "unknown provider; the providers are %s; to add one of your own, say which API it speaks with api: openai", list(d.cfg.Order))
	case !addedID.MatchString(e.key) || len(e.key) > maxAddedID:
		e.fault("a provider's id has lower-case letters, digits and single dashes, begins with a letter and has at most %d characters", maxAddedID)
	case slices.Contains(reservedIDs, e.key):
		e.fault("%s means something else where a provider may stand; choose another id", e.key)
	case len(d.cfg.Order) >= maxProviders:
		e.fault("more than %d providers", maxProviders)
	default:
		p := newProvider(e.key)
		p.Kind = KindOpenAI
		d.cfg.Providers[e.key] = p
		d.cfg.Order = append(d.cfg.Order, e.key)
		return p
	}
	return nil
}

const (
	maxAddedID   = 40
	maxProviders = 200
)

func (d *decoder) hasKey(v value, name string) (value, bool) {
	m, ok := v.node.(*ast.MappingNode)
	if !ok {
		return value{}, false
	}
	for _, kv := range m.Values {
		if keyText(kv.Key) == name {
			return v.entry(kv).value, true
		}
	}
	return value{}, false
}

func (d *decoder) provider(v value, p *Provider) {
	own := providerFields(p)
	v.objectWith(own, slices.Concat(foreignFields(own), rates, []field{
		{"apiKey", refuse("a key does not stand in this file; put it in an environment variable and that one's name in apiKeyEnvVar")},
	}))
}

// foreignFields are the keys of other kinds of provider: known, but not here.
func foreignFields(own []field) []field {
	var foreign []field
	for _, id := range []string{"claude-code", "copilot", "openai", "mock"} {
		for _, f := range providerFields(newProvider(id)) {
			if hasField(own, f.name) || hasField(foreign, f.name) {
				continue
			}
			foreign = append(foreign, field{f.name, func(v value) {
				v.fault("belongs to %s; remove it here", owners(f.name))
			}})
		}
	}
	return foreign
}

func hasField(fields []field, name string) bool {
	return slices.ContainsFunc(fields, func(f field) bool { return f.name == name })
}

// owners lists the providers that have a key.
func owners(name string) string {
	var ids []string
	for _, id := range ProviderIDs {
		if hasField(providerFields(newProvider(id)), name) {
			ids = append(ids, id)
		}
	}
	return list(ids)
}

// copilotCommand is the seed's default of a key that has no effect.
const copilotCommand = "copilot-cli"

// providerFields are the keys of one provider.
func providerFields(p *Provider) []field {
	models := modelFields(p)
	switch {
	case p.Mock != nil:
		return append(models, mockFields(p.Mock)...)
	case p.ID == "claude-code":
		return slices.Concat(models, httpFields(p), trackingFields(p.Quota), []field{
			{"cliCommand", func(v value) {
				v.standard(p.CLICommand)
				if command, ok := v.name(); ok {
					p.CLICommand = command
				}
			}},
			{"direct", boolean(&p.Direct)},
		})
	case p.ID == "copilot":
		return slices.Concat(models, httpFields(p), trackingFields(p.Quota), []field{
			{"cliCommand", func(v value) {
				if command, ok := v.name(); ok && command != copilotCommand {
					v.d.note("%s: changes nothing, copilot is called directly and no command is run", v.path)
				}
			}},
		})
	}
	own := slices.Concat(models, httpFields(p), []field{
		{"apiKeyEnvVar", func(v value) { v.keyVariable(p) }},
	})
	if p.Kind == KindOpenAI {
		own = append(own, addedFields(p)...)
	}
	return own
}

// addedFields are the keys of a provider that the file adds.
func addedFields(p *Provider) []field {
	api, local := "", false
	return []field{
		{"api", oneOf(&api, []string{"openai"})},
		{"local", func(v value) {
			boolean(&local)(v)
			if p.Account = subjects.SubscriptionAPIKey; local {
				p.Account = subjects.SubscriptionLocal
			}
		}},
	}
}

// modelFields are the models by tier, flat or under "models".
func modelFields(p *Provider) []field {
	seen := map[string]value{}
	var flat, nested []field
	for _, tier := range subjects.Tiers {
		read := func(v value) { v.model(p, tier, seen) }
		flat = append(flat, field{tier, read})
		nested = append(nested, field{tier, read})
	}
	return append(flat,
		field{"models", fields(nested...)},
		field{"availableModels", func(v value) { v.available(p) }},
	)
}

// model reads a tier's model; an empty text takes it away.
func (v value) model(p *Provider, tier string, seen map[string]value) {
	v.standard(p.Models[tier])
	if first, twice := seen[tier]; twice && !v.describing() {
		v.fault("set twice, as %s on line %d too; keep one", first.path, first.pos.line)
		return
	}
	seen[tier] = v
	if v.cleared() {
		delete(p.Models, tier)
		return
	}
	if model, ok := v.name(); ok {
		p.Models[tier] = model
	}
}

// cleared reports whether the value is a text that is empty, which takes a
// default away.
func (v value) cleared() bool {
	if v.describing() {
		v.orWord("")
		return false
	}
	raw, ok := rawText(v.node)
	if !ok {
		return false
	}
	out, problem := expand(raw, v.d.env)
	return problem == "" && out == ""
}

func (v value) available(p *Provider) {
	models, ok := v.set(func(v value) string {
		model, _ := v.name()
		return model
	})
	if ok {
		p.AvailableModels = models
	}
}

func httpFields(p *Provider) []field {
	return []field{
		{"baseUrl", func(v value) { v.baseURL(p) }},
		{"timeout", millis(&p.Timeout, 0, maxMillis)},
		{"idleTimeout", millis(&p.IdleTimeout, 1, maxMillis)},
		{"streamUsage", boolean(&p.StreamUsage)},
		{"capabilities", func(v value) { v.capabilities(p) }},
	}
}

func (v value) capabilities(p *Provider) {
	all, ok := v.items()
	names := make([]string, 0, len(all))
	for _, item := range all {
		name := ""
		oneOf(&name, subjects.Capabilities)(item)
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if ok {
		p.Capabilities = names
	}
}

// keyVariable reads the name of the variable that has the key. The text is
// not shown in a fault: people put the key itself here.
func (v value) keyVariable(p *Provider) {
	v.says(pattern(variableName.String(), subjects.MaxName))
	v.standard(p.APIKeyEnv)
	if v.cleared() {
		p.APIKeyEnv = ""
		return
	}
	name, ok := v.text()
	switch {
	case !ok:
	case !variableName.MatchString(name) || len(name) > subjects.MaxName:
		v.fault("is not the name of an environment variable (A-Z, 0-9 and _); put the key in a variable and that one's name here")
	default:
		p.APIKeyEnv = name
	}
}

func (v value) baseURL(p *Provider) {
	v.says(pattern(baseForm, maxURL))
	v.standard(p.BaseURL)
	if v.cleared() {
		p.BaseURL = ""
		return
	}
	text, ok := v.text()
	if !ok {
		return
	}
	base, problem := parseBaseURL(text)
	if problem != "" {
		v.fault("%s", problem)
		return
	}
	p.BaseURL = base
}

// mockFields are the mock's own behaviour and that by task. A task starts from
// the whole of the mock's own, wherever in the file that stands.
func mockFields(m *Mock) []field {
	return append(behaviourFields(&m.Default), field{"tasks", func(v value) {
		v.d.later = append(v.d.later, func() { v.mockTasks(m) })
	}})
}

func (v value) mockTasks(m *Mock) {
	for _, e := range v.entries(same) {
		if !e.nameKey("task name") {
			continue
		}
		b := m.Default
		e.object(behaviourFields(&b)...)
		m.Tasks[e.key] = b
	}
}

func behaviourFields(b *MockBehaviour) []field {
	const many = 100_000
	tokens := bounds{lo: 0, hi: 1_000_000_000, unit: "tokens"}
	return []field{
		{"latency_ms", millis(&b.Latency, 0, maxMillis)},
		{"chunk_delay_ms", millis(&b.ChunkDelay, 0, maxMillis)},
		{"chunks", whole(&b.Chunks, bounds{lo: 0, hi: many})},
		{"input_tokens", whole(&b.InputTokens, tokens)},
		{"output_tokens", whole(&b.OutputTokens, tokens)},
		{"content", func(v value) {
			if text, ok := v.text(); ok {
				b.Content = text
			}
		}},
		{"error", func(v value) { v.mockError(b) }},
		{"errors", whole(&b.Errors, bounds{lo: 0, hi: maxCount})},
		{"retry_after_ms", millis(&b.RetryAfter, 0, maxDay)},
		{"fail_after_chunks", whole(&b.FailAfterChunks, bounds{lo: 0, hi: many})},
	}
}

// mockError reads the kind of failure; an empty text means none.
func (v value) mockError(b *MockBehaviour) {
	if v.cleared() {
		b.Error = ""
		return
	}
	kind := ""
	oneOf(&kind, kindNames())(v)
	if kind != "" {
		b.Error = subjects.Kind(kind)
	}
}
