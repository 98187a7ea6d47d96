package registry

import (
	"reflect"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
)

// Set has the providers of a configuration by their ids.
type Set = map[string]providers.Provider

// Renew makes the providers of another configuration. Those whose entry says the
// same as before are kept, with their connections and what they have learned.
func Renew(old Set, was, is *config.Config, opts Options) Set {
	all := New(is, opts)
	for id, p := range old {
		if now := is.Providers[id]; now != nil && reflect.DeepEqual(was.Providers[id], now) {
			Close(Set{id: all[id]})
			all[id] = p
		}
	}
	return all
}

// CloseDropped closes those of old that are not in kept. Calls that run go on.
func CloseDropped(old, kept Set) {
	for id, p := range old {
		if kept[id] != p {
			Close(Set{id: p})
		}
	}
}
