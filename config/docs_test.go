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
	for _, name := range slices.Concat(everyKey(), acted, notActed, []string{
		prefixCap + "<PROVIDER>", prefixURL + "<PROVIDER>", "OLLAMA_HOST", "DMR_HOST", "DMR_PORT", "GITHUB_TOKEN", "CUSTOM_API_KEY",
	}) {
		if !slices.Contains(words, name) {
			t.Errorf("%s is not documented", name)
		}
	}
}

// everyKey collects the keys of all sections, as the schema has them.
func everyKey() []string {
	var names []string
	var walk func(s *shape)
	walk = func(s *shape) {
		for _, p := range s.props {
			names = append(names, p.name)
			walk(p.shape)
		}
		if s.others != nil {
			walk(s.others)
		}
	}
	walk(describeFile())
	return names
}
