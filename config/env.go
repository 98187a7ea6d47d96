package config

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// environ is the environment by name. An empty value is as good as none,
// except to ${NAME}.
type environ map[string]string

func newEnviron(list []string) environ {
	e := environ{}
	for _, kv := range list {
		if name, val, ok := strings.Cut(kv, "="); ok && name != "" {
			e[name] = val
		}
	}
	return e
}

// names lists the variables that are set to something, sorted.
func (e environ) names() []string {
	names := slices.Sorted(maps.Keys(e))
	return slices.DeleteFunc(names, func(n string) bool { return e[n] == "" })
}

// secrets lists what to strike out of messages, in pairs for a Replacer: the
// values of variables that are keys by their name or their use.
func (e environ) secrets(c *Config) []string {
	var vals []string
	for name, val := range e {
		if len(val) >= 8 && (secretName(name) || usedAsKey(c, name)) {
			vals = append(vals, val)
		}
	}
	slices.SortFunc(vals, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	pairs := make([]string, 0, 2*len(vals))
	for _, val := range vals {
		pairs = append(pairs, val, masked)
	}
	return pairs
}

func secretName(name string) bool {
	for _, part := range []string{"KEY", "TOKEN", "SECRET", "PASS"} {
		if strings.Contains(strings.ToUpper(name), part) {
			return true
		}
	}
	return false
}

func usedAsKey(c *Config, name string) bool {
	for _, p := range c.Providers {
		if p.APIKeyEnv == name {
			return true
		}
	}
	return false
}

// environment lays the variables over what the files said.
func (l *loader) environment() {
	l.switches()
	l.slots()
	l.localHosts()
	l.perProvider()
	l.logins()
	l.keys()
	l.unread()
}

func (l *loader) envFault(name, suggestion, message string) {
	l.add(Fault{File: environmentFile, Path: join("", name), Message: message, Suggestion: suggestion})
}

func (l *loader) switches() {
	c := l.cfg
	l.choose("SEMANTIC_ANALYSIS_MODE", modes, &c.Mode)
	l.choose("SEMANTIC_ANALYSIS_TIER", subjects.Tiers, &c.ForcedTier)
	l.choose("SEMANTIC_ANALYSIS_PROVIDER", c.Order, &c.ForcedProvider)
	l.choose("SEMANTIC_ANALYSIS_COST_MODE", costModes, &c.CostMode)
	l.noteForced()
}

// noteForced remarks on a provider that the mode leaves nothing to do.
func (l *loader) noteForced() {
	const name = "SEMANTIC_ANALYSIS_PROVIDER"
	p := l.cfg.Providers[l.cfg.ForcedProvider]
	switch {
	case p == nil:
	case l.cfg.Mode == ModeMock && p.Mock == nil:
		l.note("%s: changes nothing, in mode mock the mock serves", name)
	case l.cfg.Mode == ModeLocal && !p.Local():
		l.note("%s: %s is not local and the mode is: no call can be served", name, p.ID)
	}
}

// choose reads a variable that has one of a few words.
func (l *loader) choose(name string, words []string, to *string) {
	val := l.env[name]
	switch {
	case val == "":
	case slices.Contains(words, val):
		*to = val
	default:
		l.envFault(name, subjects.Nearest(val, words), "found "+show(val)+"; "+mustBe(words)+", or not set")
	}
}

func (l *loader) slots() {
	l.classSlots("LLM_INTERACTIVE_SLOTS", subjects.ClassInteractive)
	l.classSlots("LLM_INGESTION_SLOTS", subjects.ClassIngestion)
}

func (l *loader) classSlots(name, class string) {
	if n, ok := l.bound(name); ok {
		c := l.cfg.Pools.Classes[class]
		c.Slots = n
		l.cfg.Pools.Classes[class] = c
	}
}

// bound reads a variable that is a count of calls.
func (l *loader) bound(name string) (int, bool) {
	val := l.env[name]
	if val == "" {
		return 0, false
	}
	n, ok := parseWhole(val, count)
	if !ok {
		l.envFault(name, "", "found "+show(val)+"; "+count.must()+" in plain digits; set one, or unset it for the default")
	}
	return int(n), ok
}

// Prefixes of variables that end in a provider.
const (
	prefixCap = "LLM_MAX_RPM_"
	prefixURL = "LLM_BASE_URL_"
)

// variable is how a provider is written in a variable's name.
func variable(id string) string {
	return strings.ToUpper(strings.ReplaceAll(id, "-", "_"))
}

func (l *loader) perProvider() {
	for _, name := range l.env.names() {
		if id, ok := l.providerOf(name, prefixCap); ok {
			if n, ok := l.bound(name); ok {
				l.cfg.Pools.Caps[id] = n
			}
		}
		if id, ok := l.providerOf(name, prefixURL); ok {
			l.baseURL(name, id)
		}
	}
}

// providerOf returns the provider that stands in a variable's name after prefix.
func (l *loader) providerOf(name, prefix string) (string, bool) {
	token, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return "", false
	}
	var valid []string
	for _, id := range l.cfg.Order {
		if variable(id) == token {
			return id, true
		}
		valid = append(valid, prefix+variable(id))
	}
	l.envFault(name, subjects.Nearest(name, valid), "names no provider; the providers are "+list(l.cfg.Order)+", upper-case and with _ for -")
	return "", false
}

// baseURL sets a provider's base URL from LLM_BASE_URL_<PROVIDER>.
func (l *loader) baseURL(name, id string) {
	p := l.cfg.Providers[id]
	if p.Mock != nil {
		l.note("%s: changes nothing, the mock provider has no network", name)
		return
	}
	l.setURL(name, p, parseBaseURL)
}

// setURL sets a base URL from a variable that read understands.
func (l *loader) setURL(name string, p *Provider, read func(string) (string, string)) {
	val := l.env[name]
	if val == "" {
		return
	}
	base, problem := read(val)
	if problem != "" {
		l.envFault(name, "", problem)
		return
	}
	p.BaseURL = base
}

// localHosts reads the variables that the local runners and the proxy have of
// old. LLM_BASE_URL_<PROVIDER>, read after them, wins.
func (l *loader) localHosts() {
	l.setURL("OLLAMA_HOST", l.cfg.Providers["ollama"], ollamaURL)
	l.setURL("LLM_CLI_PROXY_URL", l.cfg.Providers["proxy"], parseBaseURL)
	host, port := l.env["DMR_HOST"], l.env["DMR_PORT"]
	if host != "" || port != "" {
		l.dmr(cmp.Or(host, "localhost"), cmp.Or(port, "12434"))
	}
	for _, v := range []struct{ over, under string }{
		{"LLM_BASE_URL_OLLAMA", "OLLAMA_HOST"},
		{"LLM_BASE_URL_PROXY", "LLM_CLI_PROXY_URL"},
		{"LLM_BASE_URL_DMR", "DMR_HOST"},
		{"LLM_BASE_URL_DMR", "DMR_PORT"},
	} {
		if l.env[v.over] != "" && l.env[v.under] != "" {
			l.note("%s: changes nothing, %s is set and wins", v.under, v.over)
		}
	}
}

func (l *loader) dmr(host, port string) {
	base, bad, problem := dmrURL(host, port)
	if problem != "" {
		l.envFault(bad, "", "found "+show(l.env[bad])+"; "+problem)
		return
	}
	l.cfg.Providers["dmr"].BaseURL = base
}

// keys reads each provider's key from the variable that the configuration
// names for it. Space around a key, as a file read into a variable leaves it,
// is cut.
func (l *loader) keys() {
	said := map[string]bool{}
	for _, id := range l.cfg.Order {
		p := l.cfg.Providers[id]
		if p.APIKeyEnv == "" {
			continue
		}
		key := strings.TrimSpace(l.env[p.APIKeyEnv])
		if !strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			p.APIKey = NewSecret(key)
		} else if !said[p.APIKeyEnv] {
			said[p.APIKeyEnv] = true
			l.envFault(p.APIKeyEnv, "", "the key has a space, a line break or another character in it that no key has; set it again")
		}
	}
}

// logins says where the programs that hold a subscription's login keep it.
func (l *loader) logins() {
	copilot, claude := l.cfg.Providers["copilot"], l.cfg.Providers["claude-code"]
	l.login(copilot, "LLM_COPILOT_AUTH_FILE",
		below(l.env["XDG_DATA_HOME"], "opencode/auth.json"), below(l.env["HOME"], ".local/share/opencode/auth.json"))
	l.login(claude, "LLM_CLAUDE_CREDENTIALS_FILE",
		below(l.env["CLAUDE_CONFIG_DIR"], ".credentials.json"), below(l.env["HOME"], ".claude/.credentials.json"))
	claude.CLICommand = cmp.Or(l.env["LLM_CLAUDE_CLI"], claude.CLICommand, "claude")
	const off = "LLM_PROXY_DISABLE_CLAUDE_DIRECT"
	switch val := l.env[off]; val {
	case "", "0":
	case "1":
		claude.Direct = false
	default:
		l.envFault(off, "", "found "+show(val)+"; must be 1, or 0, or not set")
	}
}

// login takes the file that the variable name gives, else the first of the
// program's own places that is known.
func (l *loader) login(p *Provider, name string, places ...string) {
	if val := l.env[name]; val != "" {
		p.CredentialsFile, p.CredentialsNamed = val, true
		return
	}
	p.CredentialsFile = cmp.Or(places...)
}

func below(folder, name string) string {
	if folder == "" {
		return ""
	}
	return filepath.Join(folder, filepath.FromSlash(name))
}

// notActed are variables of the contract that this version does not read.
var notActed = []string{
	"LLM_PROXY_DISABLE_WORKER_POOL",
	"LLM_PROXY_WORKER_IDLE_MS", "LLM_PROXY_WORKER_CRASH_THRESHOLD",
	"LLM_PROXY_WORKER_CRASH_WINDOW_MS", "LLM_PROXY_WORKER_MAX_REQUESTS",
	"LLM_PROXY_WORKER_MAX_INPUT_TOKENS", "LLM_PROXY_WORKER_PROMPT_CAP",
}

var acted = []string{
	"SEMANTIC_ANALYSIS_MODE", "SEMANTIC_ANALYSIS_TIER", "SEMANTIC_ANALYSIS_PROVIDER",
	"SEMANTIC_ANALYSIS_COST_MODE", "LLM_CLI_PROXY_URL", "LLM_INGESTION_SLOTS", "LLM_INTERACTIVE_SLOTS",
	"LLM_PROXY_DISABLE_CLAUDE_DIRECT", "LLM_COPILOT_AUTH_FILE", "LLM_CLAUDE_CREDENTIALS_FILE", "LLM_CLAUDE_CLI",
}

// unread notes variables that change nothing: those of providers that are not
// built yet, and those that look like a slip of the pen.
func (l *loader) unread() {
	for _, name := range l.env.names() {
		switch {
		case slices.Contains(notActed, name):
			l.note("%s: changes nothing, the warm pool of claude workers is not built yet", name)
		case !strings.HasPrefix(name, "LLM_") && !strings.HasPrefix(name, "SEMANTIC_ANALYSIS_"),
			strings.HasPrefix(name, prefixCap), strings.HasPrefix(name, prefixURL), usedAsKey(l.cfg, name):
		default:
			if near := subjects.Nearest(name, acted); near != "" && near != name {
				l.note("%s: changes nothing, Sluice does not know it; did you mean %s?", join("", name), near)
			}
		}
	}
}
