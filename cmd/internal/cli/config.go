package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// configCmd is about the configuration.
type configCmd struct {
	Check  configCheckCmd  `cmd:"" help:"Check a configuration file and the environment. Exit status 1 when there are faults."`
	Show   configShowCmd   `cmd:"" help:"Print the built-in configuration, to copy and edit."`
	Schema configSchemaCmd `cmd:"" help:"Print the JSON Schema of the configuration file, for editors."`
}

// configSchemaCmd prints the schema.
type configSchemaCmd struct{}

// Help implements kong.HelpProvider.
func (*configSchemaCmd) Help() string {
	return `An editor with a YAML language server checks and completes with it while one types. The file names it in its first line:

    # yaml-language-server: $schema=llm-providers.schema.json

Example:

    sluice config schema > config/llm-providers.schema.json`
}

// Run prints.
func (*configSchemaCmd) Run(a *app) error {
	_, err := a.out.Write(config.Schema())
	return err
}

// configShowCmd prints the built-in configuration.
type configShowCmd struct{}

// Help implements kong.HelpProvider.
func (*configShowCmd) Help() string {
	return `Example:

    sluice config show > config/llm-providers.yaml`
}

// Run prints.
func (*configShowCmd) Run(a *app) error {
	_, err := io.WriteString(a.out, config.BuiltIn())
	return err
}

// configCheckCmd checks a configuration.
type configCheckCmd struct {
	File string `arg:"" optional:"" help:"The file; the one that serve would take otherwise."`
	JSON bool   `help:"Print the findings as JSON."`
}

// Help implements kong.HelpProvider.
func (*configCheckCmd) Help() string {
	return `Without FILE: $SLUICE_CONFIG, config/llm-providers.yaml, or the built-in default. No key is ever printed.

Examples:

    sluice config check
    sluice config check config/llm-providers.yaml --json | jq .faults`
}

// checked is what config check finds.
type checked struct {
	Valid     bool              `json:"valid"`
	File      string            `json:"file"`
	Mode      string            `json:"mode,omitempty"`
	Providers []checkedProvider `json:"providers,omitempty"`
	Prices    *checkedPrices    `json:"prices,omitempty"`
	Notes     []string          `json:"notes,omitempty"`
	Faults    []config.Fault    `json:"faults,omitempty"`
}

type checkedProvider struct {
	Provider string `json:"provider"`
	// KeyEnv names the variable of its key; empty = it has none (a login, or a
	// runner on this machine).
	KeyEnv  string            `json:"keyEnv,omitempty"`
	KeySet  bool              `json:"keySet"`
	BaseURL string            `json:"baseUrl,omitempty"`
	Models  map[string]string `json:"models,omitempty"`
}

// checkedPrices says how many prices there are, when they were noted, and which
// of the models that are billed by token have none.
type checkedPrices struct {
	Count   int      `json:"count"`
	Oldest  string   `json:"oldest,omitempty"`
	Newest  string   `json:"newest,omitempty"`
	Missing []string `json:"missing,omitempty"`
}

// Run checks and prints.
func (c *configCheckCmd) Run(_ context.Context, a *app) error {
	a.json = c.JSON
	found := c.check(a)
	if c.JSON {
		b, err := json.Marshal(found)
		if err != nil {
			return err
		}
		a.printJSON(b)
	} else {
		a.printChecked(found)
	}
	if !found.Valid {
		return errFailed
	}
	return nil
}

func (c *configCheckCmd) check(a *app) *checked {
	file := a.configFile(orElse(c.File, a.env.get("SLUICE_CONFIG")))
	cfg, err := loadConfig(file, a.env)
	if err != nil {
		return &checked{File: file, Faults: faults(file, err)}
	}
	found := &checked{Valid: true, File: cfg.File, Mode: cfg.Mode, Prices: checkPrices(cfg), Notes: cfg.Notes}
	for _, id := range cfg.Order {
		p := cfg.Providers[id]
		if p == nil {
			continue
		}
		found.Providers = append(found.Providers, checkedProvider{
			Provider: id, KeyEnv: p.APIKeyEnv, KeySet: p.APIKeyEnv != "" && a.env.get(p.APIKeyEnv) != "",
			BaseURL: p.BaseURL, Models: p.Models,
		})
	}
	return found
}

func checkPrices(cfg *config.Config) *checkedPrices {
	found := &checkedPrices{}
	found.Count, found.Oldest, found.Newest = cfg.Prices.Noted()
	for _, id := range cfg.Order {
		p := cfg.Providers[id]
		if p == nil || p.Account != subjects.SubscriptionAPIKey {
			continue
		}
		for _, tier := range subjects.Tiers {
			name := id + "/" + p.Models[tier]
			_, known := cfg.Prices.Price(id, subjects.CanonicalModel(p.Models[tier]))
			if p.Models[tier] != "" && !known && !slices.Contains(found.Missing, name) {
				found.Missing = append(found.Missing, name)
			}
		}
	}
	return found
}

// defaultConfig is the configuration file that is taken where none is named.
const defaultConfig = "config/llm-providers.yaml"

// configFile is the named file, else defaultConfig where it exists, else ""
// for the built-in configuration.
func (a *app) configFile(named string) string {
	if named != "" {
		return named
	}
	if _, err := os.Stat(defaultConfig); err == nil {
		return defaultConfig
	}
	return ""
}

// faults takes an error of config.Load apart.
func faults(file string, err error) []config.Fault {
	var e *config.Error
	if errors.As(err, &e) {
		return e.Faults
	}
	return []config.Fault{{File: file, Message: err.Error()}}
}

func (a *app) printChecked(f *checked) {
	if !f.Valid {
		for _, fault := range f.Faults {
			fmt.Fprintln(a.out, safe(fault.String()))
		}
		return
	}
	name := f.File
	if name == "" {
		name = "the built-in configuration"
	}
	fmt.Fprintf(a.out, "%s is %s · mode %s\n\n", safe(name), a.out.paint(green, "valid"), safe(f.Mode))
	t := &table{columns: []column{{title: "PROVIDER"}, {title: "KEY"}, {title: "BASE URL"}, {title: "MODELS"}}}
	for _, p := range f.Providers {
		t.add(cell{text: p.Provider}, keyText(&p), cell{text: p.BaseURL}, cell{text: modelsText(p.Models)})
	}
	a.printLines(t.lines(a.out)...)
	fmt.Fprintf(a.out, "\n%s\n", safe(pricesText(f.Prices)))
	a.notes(f.Notes)
}

func pricesText(p *checkedPrices) string {
	text := fmt.Sprintf("%s prices", count(int64(p.Count)))
	if p.Oldest != "" {
		text += ", noted from " + p.Oldest + " to " + p.Newest
	}
	if len(p.Missing) > 0 {
		text += "; none for " + strings.Join(p.Missing, ", ") + ": their cost will be unknown"
	}
	return text
}

func keyText(p *checkedProvider) cell {
	switch {
	case p.KeyEnv == "":
		return cell{"no key", dim}
	case p.KeySet:
		return cell{p.KeyEnv + " set", green}
	}
	return cell{p.KeyEnv + " not set", yellow}
}
