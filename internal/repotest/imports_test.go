package repotest

import (
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sluice-llm/sluice"

// layer says which packages of this module one of them may import, tests left
// out. Names are below the module; "." is its root, a name that ends in "/..."
// stands for all packages below.
type layer struct {
	pkg string
	may []string
	why string
}

// layers is the house of docs/architecture.md: imports run downwards only.
var layers = []layer{
	{"cmd/sluice", []string{"cmd/internal/cli"}, "the command is a main function and nothing else"},
	{"cmd/internal/cli", []string{".", "config", "subjects"}, "a subcommand is a client: what it needs of a node it asks for over NATS, as a client in any language can"},
	{".", []string{"actors", "config", "edge", "hooks", "persistence", "providers/registry", "routing", "subjects", "wire"}, "the root wires a node together; of the providers it knows the registry alone, because a call to a provider belongs to actors"},
	{"sluicetest", []string{"."}, "a test kit uses what its users can use"},
	{"actors", []string{"config", "hooks", "persistence", "providers", "routing", "subjects", "wire"}, "actors own state and know nothing of how they are reached"},
	{"edge", []string{"subjects", "wire"}, "the HTTP edge is a client like any other: that proves that a client in another language can do all that it does"},
	{"routing", []string{"config", "subjects", "wire"}, "routing is pure: it decides from what it is given"},
	{"providers", []string{"config", "subjects", "wire"}, "providers know no state and no policy: pools, retries and accounts are the actors'"},
	{"providers/registry", []string{"config", "hooks", "providers/...", "subjects", "wire"}, "the registry makes the providers and calls none"},
	{"providers/gemini", []string{"config", "providers", "providers/internal/...", "subjects", "wire"}, "one provider does not know another"},
	{"providers/mock", []string{"config", "hooks", "providers", "subjects", "wire"}, "one provider does not know another"},
	{"providers/ollama", []string{"config", "providers", "providers/internal/...", "subjects", "wire"}, "one provider does not know another"},
	{"providers/openai", []string{"config", "providers", "providers/internal/...", "subjects", "wire"}, "one provider does not know another"},
	{"providers/anthropic", []string{"config", "providers", "providers/internal/...", "subjects", "wire"}, "one provider does not know another"},
	{"providers/claudecode", []string{"config", "providers", "providers/anthropic", "providers/internal/...", "subjects", "wire"}, "its direct leg asks Anthropic's API, whose form stands in providers/anthropic"},
	{"providers/copilot", []string{"config", "providers", "providers/internal/...", "providers/openai", "subjects", "wire"}, "its API has OpenAI's form, which stands in providers/openai"},
	{"providers/groq", []string{"config", "providers", "providers/internal/...", "providers/openai", "subjects", "wire"}, "its API has OpenAI's form, which stands in providers/openai"},
	{"providers/githubmodels", []string{"config", "providers", "providers/internal/...", "providers/openai", "subjects", "wire"}, "its API has OpenAI's form, which stands in providers/openai"},
	{"providers/dmr", []string{"config", "providers", "providers/internal/...", "providers/openai", "subjects", "wire"}, "its API has OpenAI's form, which stands in providers/openai"},
	{"providers/internal/claudecred", []string{"config", "providers/internal/...", "subjects", "wire"}, "a reader of logins knows no provider"},
	{"providers/internal/opencode", []string{"config", "providers/internal/...", "subjects", "wire"}, "a reader of logins knows no provider"},
	{"providers/internal/formtest", []string{"providers", "subjects", "wire"}, "a table of errors knows what a provider is, and none by name"},
	{"providers/internal/loginfile", nil, "it reads a file and knows nothing of what is in it"},
	{"providers/internal/httpx", []string{"providers/internal/h1", "subjects", "wire"}, "the exchange is below the providers"},
	{"providers/internal/rest", []string{"config", "providers", "providers/internal/...", "subjects", "wire"}, "one driver for every provider that is one POST"},
	{"providers/outside", []string{"config", "providers", "providers/internal/...", "subjects", "wire"}, "one provider does not know another"},
	{"providers/proxy", []string{"config", "providers", "providers/internal/...", "subjects", "wire"}, "one provider does not know another"},
	{"providers/internal/peer", []string{"providers/internal/httpx", "subjects"}, "it reads errors and makes no calls"},
	{"providers/internal/recheck", nil, "it keeps an outcome and knows nothing of what is checked"},
	{"providers/internal/h1", nil, "the protocol knows nothing of what it carries"},
	{"persistence", []string{"config", "subjects", "wire"}, "the database is told what to store and asks nobody"},
	{"wire", []string{"subjects"}, "the dialects are pure translation"},
	{"hooks", []string{"subjects"}, "an injection point is part of the contract: who implements one links no node"},
	{"config", []string{"subjects"}, "the configuration is read before anything runs"},
	{"subjects", nil, "the contract is what all others stand on, and what a client program links"},
	{"bench", []string{"internal/fakeopenai", "subjects"}, "the bench measures a node from outside"},
	{"bench/profnode", []string{"."}, "the bench measures a node from outside"},
	{"examples", nil, "an example is what a caller writes"},
	{"examples/go", []string{"subjects"}, "an example is what a caller writes, and a caller needs nothing but subjects"},
	{"internal/fakeopenai", nil, "the fake upstream must not share the mistakes of what it tests"},
	{"internal/vendors", nil, "the fakes of the vendors' servers must not share the mistakes of what they test"},
	{"internal/conformance", []string{"internal/vendors", "providers", "subjects", "wire"}, "the suite knows what a provider is, and none by name"},
	{"internal/repotest", nil, "the rules are about the code, not made of it"},
	{"internal/repotest/testcount", nil, "it reads test output"},
}

// gate says who alone may import what, transitively or not; tests left out.
type gate struct {
	path string // a package and all below it
	by   []string
	why  string
}

var gates = []gate{
	{module + "/providers", []string{"actors", "internal/conformance", "providers/..."}, "no call may go round the pools: only actors call a provider, and the suite that tests them"},
	{module + "/internal/vendors", []string{"internal/conformance"}, "a fake server has no place in the product"},
	{module + "/internal/fakeopenai", []string{"bench"}, "a fake upstream has no place in the product"},
	{"github.com/asynkron/protoactor-go", []string{"actors"}, "the actor library has traps (docs/decisions.md), and actors/system.go is the one place that knows them"},
	{"github.com/failsafe-go/failsafe-go", []string{"actors"}, "retries are the call's, once for all providers"},
	{"github.com/dgraph-io/badger/v4", []string{"persistence"}, "a full disk or a damaged file ends the process in Badger unless it is asked with care"},
	{"github.com/nats-io/nats-server/v2", []string{"."}, "the node embeds the server; everything else must work with one that runs elsewhere"},
	{"github.com/fsnotify/fsnotify", []string{"."}, "the node alone follows its configuration file"},
	{"github.com/goccy/go-yaml", []string{"config"}, "there is one configuration file and one reader of it"},
	{"github.com/alecthomas/kong", []string{"cmd/internal/cli"}, "there is one command line"},
	{"github.com/tmaxmax/go-sse", []string{"providers/internal/httpx"}, "one reader of upstream event streams"},
}

// weights says what a package must not even link, through whomever.
var weights = []gate{
	{"github.com/nats-io/nats-server/v2", []string{"subjects", "edge", "wire", "config", "routing", "examples/go"}, "a program that calls Sluice must not carry a NATS server"},
	{"github.com/dgraph-io/badger/v4", []string{"subjects", "edge", "wire", "config", "routing", "examples/go"}, "a program that calls Sluice must not carry a database"},
	{"github.com/asynkron/protoactor-go", []string{"subjects", "edge", "wire", "config", "routing", "persistence", "providers", "examples/go"}, "state is the actors'; what is stateless needs no actor library"},
}

func name(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

func ours(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

// matches reports whether pkg is one of the names, where "x/..." is x and all below.
func matches(pkg string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		if tree, ok := strings.CutSuffix(n, "/..."); ok {
			return pkg == tree || strings.HasPrefix(pkg, tree+"/")
		}
		return pkg == n
	})
}

func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// TestLayers holds the layers: every package is in the list, and imports what
// its line allows.
func TestLayers(t *testing.T) {
	rules := map[string]layer{}
	for _, l := range layers {
		rules[l.pkg] = l
	}
	all := packages(t)
	for _, p := range all {
		pkg := name(p.ImportPath)
		rule, ok := rules[pkg]
		if !ok {
			if len(p.GoFiles) > 0 {
				t.Errorf("package %s is in no layer: say in layers what it may import, and why", pkg)
			}
			continue
		}
		for _, imp := range p.Imports {
			if ours(imp) && !matches(name(imp), rule.may) {
				t.Errorf("%s imports %s: %s", pkg, name(imp), rule.why)
			}
		}
	}
	for _, l := range layers {
		for _, n := range append([]string{l.pkg}, l.may...) {
			if !slices.ContainsFunc(all, func(p pkg) bool { return matches(name(p.ImportPath), []string{n}) }) {
				t.Errorf("the layer of %s speaks of %s, and there is no such package", l.pkg, n)
			}
		}
	}
}

// TestGates holds who alone may import what.
func TestGates(t *testing.T) {
	all := packages(t)
	for _, g := range gates {
		used := false
		for _, p := range all {
			pkg := name(p.ImportPath)
			for _, imp := range p.Imports {
				switch {
				case !within(imp, g.path):
				case matches(pkg, g.by):
					used = true
				case pkg == "." && name(imp) == "providers/registry":
					// The root makes the providers, to hand them to the actors.
				default:
					t.Errorf("%s imports %s: %s", pkg, imp, g.why)
				}
			}
		}
		if !used {
			t.Errorf("nobody imports %s any more (%s): take the rule out or correct its name", g.path, strings.Join(g.by, ", "))
		}
	}
}

// TestWeights holds what light packages link.
func TestWeights(t *testing.T) {
	deps := map[string][]string{}
	for _, p := range packages(t) {
		deps[name(p.ImportPath)] = p.Deps
	}
	for _, w := range weights {
		if !slices.ContainsFunc(deps["."], func(d string) bool { return within(d, w.path) }) {
			t.Errorf("the node does not link %s any more: take the rule out or correct its name", w.path)
		}
		for _, pkg := range w.by {
			if deps[pkg] == nil {
				t.Errorf("the rule about %s speaks of %s, and there is no such package", w.path, pkg)
			}
			for _, d := range deps[pkg] {
				if within(d, w.path) {
					t.Errorf("%s links %s: %s", pkg, d, w.why)
				}
			}
		}
	}
}

// TestProductLinksNoFake holds that the program as shipped has no test part in it.
func TestProductLinksNoFake(t *testing.T) {
	for _, p := range packages(t) {
		if name(p.ImportPath) != "cmd/sluice" {
			continue
		}
		for _, d := range p.Deps {
			if d == "testing" || ours(d) && strings.Contains(d, "/internal/fake") {
				t.Errorf("cmd/sluice links %s", d)
			}
		}
		return
	}
	t.Error("there is no cmd/sluice")
}
