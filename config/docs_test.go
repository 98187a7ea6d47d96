package config

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDocumented holds that docs/configuration.md names every key and variable.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.FieldsFunc(string(page), func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-<>", r)
	})
	for _, name := range slices.Concat(everyKey(t), acted, notActed, []string{
		prefixCap + "<PROVIDER>", prefixURL + "<PROVIDER>", "OLLAMA_HOST", "DMR_HOST", "DMR_PORT", "GITHUB_TOKEN", "CUSTOM_API_KEY",
	}) {
		if !slices.Contains(words, name) {
			t.Errorf("%s is not documented", name)
		}
	}
}

// everyKey collects the keys of all sections, by reading a file that sets each.
func everyKey(t *testing.T) []string {
	t.Helper()
	l := &loader{cfg: newConfig(), env: environ{}, named: map[string]bool{}}
	d := &decoder{loader: l, file: "all", places: map[string]position{}}
	d.decode([]byte(BuiltIn()))
	if len(l.faults) != 0 {
		t.Fatal(l.faults)
	}
	var names []string
	for path := range d.places {
		names = append(names, path[strings.LastIndexByte(path, '.')+1:])
	}
	for _, id := range ProviderIDs {
		for _, f := range providerFields(newProvider(id)) {
			names = append(names, f.name)
		}
	}
	for _, f := range d.sections() {
		names = append(names, f.name)
	}
	return names
}
