package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// finish fills in what depends on more than one key, and checks it.
func (l *loader) finish(user *decoder) {
	l.appendOwn()
	l.insertProxy()
	for _, id := range l.cfg.Order {
		user.checkModels(l.cfg.Providers[id])
	}
	if r := l.cfg.Retry; r.MaxDelay < r.BaseDelay {
		user.faultNear([]string{"retry.max_delay_ms", "retry.base_delay_ms"},
			"max_delay_ms (%s) is below base_delay_ms (%s); raise the one or lower the other", ms(r.MaxDelay), ms(r.BaseDelay))
	}
	if b := l.cfg.Breaker; b.MaxPause < b.ResetTimeout {
		user.faultNear([]string{"circuit_breaker.maxResetTimeoutMs", "circuit_breaker.resetTimeoutMs"},
			"maxResetTimeoutMs (%s) is below resetTimeoutMs (%s); raise the one or lower the other", ms(b.MaxPause), ms(b.ResetTimeout))
	}
}

func ms(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }

// appendOwn puts custom, and the providers that the file adds, at the end of
// every tier's order, when they have a base URL and the user's file leaves their
// place open. Local ones are asked after all of them anyway.
func (l *loader) appendOwn() {
	for _, id := range l.cfg.Order {
		p := l.cfg.Providers[id]
		if id != "custom" && p.Kind != KindOpenAI || l.named[id] || p.BaseURL == "" || p.Local() {
			continue
		}
		for _, tier := range subjects.Tiers {
			l.cfg.ProviderPriority[tier] = append(l.cfg.ProviderPriority[tier], id)
		}
	}
}

// insertProxy puts proxy into every tier's order, when it has a base URL and the
// user's file leaves its place open: behind the subscriptions of this node that
// come first, since it may cost nothing, and before the first metered key.
func (l *loader) insertProxy() {
	const id = "proxy"
	if l.named[id] || l.cfg.Providers[id].BaseURL == "" {
		return
	}
	for _, tier := range subjects.Tiers {
		list := l.cfg.ProviderPriority[tier]
		at := slices.IndexFunc(list, func(id string) bool {
			return l.cfg.Providers[id].Account == subjects.SubscriptionAPIKey
		})
		if at < 0 {
			at = len(list)
		}
		l.cfg.ProviderPriority[tier] = slices.Insert(slices.Clone(list), at, id)
	}
}

// checkModels refuses a tier with a model that the provider does not serve.
func (d *decoder) checkModels(p *Provider) {
	if len(p.AvailableModels) == 0 {
		return
	}
	for _, tier := range subjects.Tiers {
		model, ok := p.Models[tier]
		if !ok || slices.Contains(p.AvailableModels, model) {
			continue
		}
		base := "providers." + p.ID + "."
		d.suggestNear(subjects.Nearest(model, p.AvailableModels),
			[]string{base + "models." + tier, base + tier, base + "availableModels"},
			"tier %s names %s, which availableModels has not; add it there or name another model in models.%s",
			tier, show(model), tier)
	}
}

// faultNear notes a fault at the first of the paths that the file sets.
func (d *decoder) faultNear(paths []string, format string, args ...any) {
	d.suggestNear("", paths, format, args...)
}

func (d *decoder) suggestNear(name string, paths []string, format string, args ...any) {
	f := Fault{Path: paths[0], Message: fmt.Sprintf(format, args...), Suggestion: name}
	for _, path := range paths {
		if p, ok := d.places[path]; ok {
			f.Path, f.Line, f.Column = path, p.line, p.column
			break
		}
	}
	d.add(f)
}
