package config

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

//go:embed llm-providers.yaml
var builtIn string

// builtInFile names the built-in default in a fault.
const builtInFile = "llm-providers.yaml (built in)"

// BuiltIn returns the text of the built-in default, for a user to copy and edit.
func BuiltIn() string { return builtIn }

// Options says what Load reads.
type Options struct {
	// File is the configuration file; "" = the built-in default alone.
	File string
	// Environ holds the variables in the form of os.Environ; the last of two
	// with one name counts. nil = none: Load never looks at the process's own.
	Environ []string
	// ReadFile reads File; nil = from the disk, at most 1 MiB.
	ReadFile func(name string) ([]byte, error)
}

// Load reads the built-in default, lays the file over it key by key (a list
// replaces the default's list), and the environment over both. Every fault of
// the file and the environment is in the error, which is an *Error. The Config
// shares nothing with that of another Load.
func Load(opts Options) (*Config, error) {
	l := newLoader(opts.Environ)
	user := &decoder{loader: l, file: cmp.Or(opts.File, builtInFile), places: map[string]position{}}
	l.readBuiltIn()
	l.read(user, opts)
	l.environment()
	l.finish(user)
	if len(l.faults) > 0 {
		return nil, l.failure()
	}
	return l.cfg, nil
}

// loader is one Load.
type loader struct {
	cfg    *Config
	env    environ
	faults []Fault
	cause  error
	// named has the providers that the user's file names in a priority list.
	named map[string]bool
}

func newLoader(environ []string) *loader {
	return &loader{cfg: newConfig(), env: newEnviron(environ), named: map[string]bool{}}
}

func (l *loader) add(f Fault) { l.faults = append(l.faults, f) }

func (l *loader) note(format string, args ...any) {
	l.cfg.Notes = append(l.cfg.Notes, fmt.Sprintf(format, args...))
}

// parsedBuiltIn is the built-in default, parsed. Nobody changes a document.
var parsedBuiltIn = sync.OnceValues(func() (document, *Fault) { return parse([]byte(builtIn)) })

func (l *loader) readBuiltIn() {
	d := &decoder{loader: l, file: builtInFile, builtIn: true, places: map[string]position{}}
	d.read(parsedBuiltIn())
}

// read decodes the user's file, when there is one.
func (l *loader) read(d *decoder, opts Options) {
	if opts.File == "" {
		return
	}
	l.cfg.File = opts.File
	readFile := opts.ReadFile
	if readFile == nil {
		readFile = readBounded
	}
	data, err := readFile(opts.File)
	if err != nil {
		l.cause = err
		l.add(Fault{File: opts.File, Message: unreadable(err)})
		return
	}
	if string(data) == builtIn {
		return // a copy that nobody has edited says nothing new
	}
	d.decode(data)
}

// readBounded reads no more of a file than parse needs to refuse it.
func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name) //nolint:gosec // the operator's own choice
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFileBytes+1))
}

func unreadable(err error) string {
	why := err.Error()
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		why = pe.Err.Error()
	}
	return "cannot be read: " + why + "; give the path of a llm-providers.yaml, or none for the built-in default"
}

// newConfig has the defaults that llm-providers.yaml does not spell out.
func newConfig() *Config {
	c := &Config{
		Providers:        map[string]*Provider{},
		ProviderPriority: map[string][]string{},
		TaskTiers:        map[string]string{},
		TaskPriority:     map[string][]string{},
		ProcessClasses:   map[string]string{},
		FallbackOn:       map[subjects.Kind]bool{},
		Pools:            Pools{Caps: map[string]int{}, Classes: map[string]Class{}},
		Costs:            Costs{PerRun: map[string]subjects.USD{}},
		Quota:            Quota{Reserve: map[string]float64{}},
		Sensitivity:      Sensitivity{Allow: map[string][]string{}},
		Hooks:            map[string]Hook{},
		Prices:           Prices{of: map[priceKey]Price{}},
	}
	for _, id := range ProviderIDs {
		c.Providers[id] = newProvider(id)
	}
	c.Order = slices.Clone(ProviderIDs)
	return c
}

func newProvider(id string) *Provider {
	p := &Provider{
		ID: id, Kind: id, Account: subjects.SubscriptionAPIKey, Models: map[string]string{}, StreamUsage: true,
		Timeout: 120 * time.Second, IdleTimeout: 60 * time.Second,
	}
	switch id {
	case "claude-code":
		p.Account = subjects.SubscriptionMax
		p.Quota = &QuotaTracking{}
	case "copilot":
		p.Account = subjects.SubscriptionCopilot
		p.Quota = &QuotaTracking{}
		p.StreamUsage = false // its own clients do not ask, and get it
	case "dmr", "ollama":
		p.Account = subjects.SubscriptionLocal
	case "mock":
		p.Account = subjects.SubscriptionMock
		p.Timeout = 0
		p.Mock = &Mock{Tasks: map[string]MockBehaviour{}}
	}
	return p
}

// Local reports whether a call to the provider leaves nothing with a vendor.
func (p *Provider) Local() bool {
	return p.Account == subjects.SubscriptionLocal || p.Account == subjects.SubscriptionMock
}

// failure makes the error of what was found, with every secret that the
// environment holds struck out.
func (l *loader) failure() error {
	faults := arrange(l.faults)
	strike := strings.NewReplacer(l.env.secrets(l.cfg)...)
	for i := range faults {
		f := &faults[i]
		f.Path, f.Message, f.Suggestion = strike.Replace(f.Path), strike.Replace(f.Message), strike.Replace(f.Suggestion)
	}
	return &Error{Faults: faults, cause: l.cause}
}
