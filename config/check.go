package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// finish fills in what depends on more than one key, and checks it.
func (l *loader) finish(user *decoder) {
	l.appendCustom()
	for _, id := range ProviderIDs {
		user.checkModels(l.cfg.Providers[id])
	}
	if r := l.cfg.Retry; r.MaxDelay < r.BaseDelay {
		user.faultNear([]string{"retry.max_delay_ms", "retry.base_delay_ms"},
			"max_delay_ms (%s) is below base_delay_ms (%s); raise the one or lower the other", ms(r.MaxDelay), ms(r.BaseDelay))
	}
}

func ms(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }

// appendCustom puts custom at the end of every tier's order, when it has a
// base URL and the user's file leaves its place open.
func (l *loader) appendCustom() {
	if l.named["custom"] || l.cfg.Providers["custom"].BaseURL == "" {
		return
	}
	for _, tier := range subjects.Tiers {
		l.cfg.ProviderPriority[tier] = append(l.cfg.ProviderPriority[tier], "custom")
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
