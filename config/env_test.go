package config

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/subjects"
)

func TestOllamaHost(t *testing.T) {
	for host, want := range map[string]string{
		"h": "http://h:11434", "h:1": "http://h:1", ":1": "http://127.0.0.1:1", "http://h": "http://h:80", "https://h": "https://h:443",
		"https://h:5/x/": "https://h:5/x", "0.0.0.0": "http://127.0.0.1:11434", "0.0.0.0:5": "http://127.0.0.1:5",
		"::1": "http://[::1]:11434", "[::1]": "http://[::1]:11434", "[::]:5": "http://[::1]:5", " \"h\" ": "http://h:11434",
		"h/x": "http://h:11434/x", "10.0.0.1": "http://10.0.0.1:11434",
	} {
		if got := mustLoad(t, "", "OLLAMA_HOST="+host).Providers["ollama"].BaseURL; got != want {
			t.Errorf("%q: %s, want %s", host, got, want)
		}
	}
	for _, host := range []string{"ftp://h", "h:0", "h:70000", "h:x", "a b", "u:p@h", "http://u@h", "h?x=1", "://", "-"} {
		loadFaults(t, "", "OLLAMA_HOST="+host)
	}
}

func TestBaseURL(t *testing.T) {
	for in, want := range map[string]string{
		"http://h": "http://h", "https://h:8080/v1/": "https://h:8080/v1", "http://[::1]:1/v1": "http://[::1]:1/v1",
		"http://model-runner.docker.internal/engines/v1": "http://model-runner.docker.internal/engines/v1", "http://a_b/": "http://a_b",
		"HTTP://h/": "HTTP://h",
	} {
		if got, problem := parseBaseURL(in); got != want || problem != "" {
			t.Errorf("%q: %q, %s", in, got, problem)
		}
	}
	for _, in := range []string{
		"", "h", "h:80", "/v1", "//h/v1", "http:", "http://", "http:///v1", "http:h", "file:///etc/passwd", "http://u@h", "http://u:p@h",
		"http://h?", "http://h?a=b", "http://h#", "http://h#x", "http://h:", "http://h:0", "http://h:65536", "http://h:-1", "http://h /",
		" http://h", "http://h\n", "http://h\x00", "http://-h", "http://[::1", "http://h%zz", "javascript:alert(1)", "http://" + strings.Repeat("h", 300),
		"http://h/" + strings.Repeat("x", maxURL),
	} {
		if got, problem := parseBaseURL(in); problem == "" || got != "" {
			t.Errorf("%q is taken as %q", in, got)
		}
	}
}

func TestExpand(t *testing.T) {
	env := newEnviron([]string{"A=x", "E=", "D=$A ${A}", "LONG=" + strings.Repeat("l", maxText)})
	for in, want := range map[string]string{
		"": "", "a": "a", "$": "$", "$5": "$5", "$A": "$A", "${A}": "x", "a${A}b${A}": "axbx", "${E}": "", "${E:-d}": "d", "${N:-d}": "d", "${N:-}": "",
		"${A:-d}": "x", "$${A}": "${A}", "$$${A}": "$${A}", "${N:-a:b/c d}": "a:b/c d", "${D}": "$A ${A}", "$$": "$$", "{A}": "{A}", "${N:-$A}": "$A",
	} {
		if got, problem := expand(in, env); got != want || problem != "" {
			t.Errorf("%q: %q %s, want %q", in, got, problem, want)
		}
	}
	for _, in := range []string{"${", "${}", "${N}", "${1}", "${A", "${A-d}", "${A:+d}", "${ A}", "x${N}", "${LONG}${LONG}"} {
		if got, problem := expand(in, env); problem == "" || strings.Contains(problem, "lll") {
			t.Errorf("%q: %q %s", in, got, problem)
		}
	}
}

// TestDollarsStay: what has no ${ in it is never changed and never refused.
func TestDollarsStay(t *testing.T) {
	t.Parallel()
	env := newEnviron([]string{"HOME=/h", "A=x", "5=y"})
	for _, in := range []string{"$", "$5", "$$", "cost in $", "$HOME", "$A", "a$", "$ {A}", "$$$", "100$ {", "{$}", "$(A)", "%A%"} {
		if got, problem := expand(in, env); got != in || problem != "" {
			t.Errorf("%q: %q %s", in, got, problem)
		}
		c := mustLoad(t, "providers: {mock: {content: '"+in+"'}}", "HOME=/h", "A=x")
		if got := c.Providers["mock"].Mock.Default.Content; got != in {
			t.Errorf("%q is read as %q", in, got)
		}
	}
}

// expandSlowly is what expand should do, letter by letter. ok = no fault.
func expandSlowly(in string, env environ) (out string, ok bool) {
	for in != "" {
		switch {
		case strings.HasPrefix(in, "$${"):
			out, in = out+"${", in[3:]
		case strings.HasPrefix(in, "${"):
			inside, rest, closed := strings.Cut(in[2:], "}")
			name, def, hasDefault := strings.Cut(inside, ":-")
			val, set := env[name]
			if name == "" || !closed || strings.Trim(name, "AB5") != "" || name[0] == '5' || !set && !hasDefault {
				return "", false
			}
			if val == "" {
				val = def
			}
			out, in = out+val, rest
		default:
			out, in = out+in[:1], in[1:]
		}
	}
	return out, true
}

// TestExpandRandomly compares with expandSlowly, on texts made of what matters.
func TestExpandRandomly(t *testing.T) {
	t.Parallel()
	env := newEnviron([]string{"A=x", "AB=${A}$", "B="})
	rng := rand.New(rand.NewPCG(5, 6))
	pieces := []string{"$", "{", "}", "${", "A", "B", "5", ":-", ":", "-", " ", "${A}", "${B:-A}", "$$", "AB"}
	fine := 0
	for range 20_000 {
		in := ""
		for range rng.IntN(8) {
			in += pieces[rng.IntN(len(pieces))]
		}
		got, problem := expand(in, env)
		want, ok := expandSlowly(in, env)
		if got != want || (problem == "") != ok {
			t.Fatalf("%q: %q %q, want %q %t", in, got, problem, want, ok)
		}
		if !strings.Contains(in, "${") && got != in {
			t.Fatalf("%q is changed to %q", in, got)
		}
		if ok {
			fine++
		}
	}
	if fine < 5_000 || fine > 19_000 {
		t.Errorf("%d of 20000 are fine", fine)
	}
}

// TestOddVariables: a key in the place of a variable's name is not shown.
func TestOddVariables(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ghp_hunter2hunter2", strings.Repeat("LONG_", 30) + "hunter2"} {
		faults := loadFaults(t, "mode: ${"+name+"}")
		if got := faults[0].Message; strings.Contains(got, "hunter2") || !strings.HasPrefix(got, "uses a variable that is not set") {
			t.Errorf("%s", got)
		}
	}
}

// TestExpansionIsBounded has values that are small in the file and large in
// the environment.
func TestExpansionIsBounded(t *testing.T) {
	file := "providers: {mock: {tasks: {"
	for i := range 40 {
		file += fmt.Sprintf("t%d: {content: \"${BIG}\"}, ", i)
	}
	faults := loadFaults(t, file+"}}}", "BIG="+strings.Repeat("b", 60_000))
	if want := "are longer than 1048576 bytes with their variables"; !strings.Contains(faults[0].Message, want) || len(faults[0].Message) > 200 {
		t.Errorf("%q", faults[0])
	}
	faults = loadFaults(t, "mode: \"${BAD}\"", "BAD=\xff")
	if want := "the variable's value is not UTF-8"; faults[0].Message != want {
		t.Errorf("%q", faults[0])
	}
}

// TestRandomBounds tries numbers and near-numbers as bounds: in plain digits
// from 1 to a million they count, else they are refused by name and value.
func TestRandomBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	vars := []string{"LLM_INGESTION_SLOTS", "LLM_INTERACTIVE_SLOTS", "LLM_MAX_RPM_OPENAI", "LLM_MAX_RPM_CLAUDE_CODE"}
	read := func(c *Config) []int {
		return []int{c.Pools.Classes["ingestion"].Slots, c.Pools.Classes["interactive"].Slots, c.Pools.Cap("openai", ""), c.Pools.Cap("claude-code", "")}
	}
	for range 300 {
		i := rng.IntN(len(vars))
		val := randomBound(rng)
		c, err := Load(Options{Environ: []string{vars[i] + "=" + val}})
		n, notInt := strconv.Atoi(val)
		switch good := notInt == nil && strconv.Itoa(n) == val && n >= 1 && n <= maxCount; {
		case good && (err != nil || read(c)[i] != n):
			t.Errorf("%s=%q: %v", vars[i], val, err)
		case !good && err == nil:
			t.Errorf("%s=%q is taken", vars[i], val)
		case !good && (!strings.Contains(err.Error(), vars[i]+": found ") || !strings.Contains(err.Error(), "must be a whole number from 1 to 1000000")):
			t.Errorf("%s=%q: %v", vars[i], val, err)
		}
	}
}

func randomBound(rng *rand.Rand) string {
	if rng.IntN(2) == 0 {
		return strconv.Itoa(rng.IntN(2_000_000) - 500_000)
	}
	const letters = "0123456789-+. eE_x,\t٣"
	r := []rune(letters)
	out := make([]rune, 1+rng.IntN(8))
	for i := range out {
		out[i] = r[rng.IntN(len(r))]
	}
	return string(out)
}

// TestForcedAndModes tries what the file and the environment say of modes, tier
// and provider together: the environment wins where it says anything, then the
// file, then the default, each for itself (docs/configuration.md).
func TestForcedAndModes(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	pick := func(words []string) string { return append([]string{"", ""}, words...)[rng.IntN(len(words)+2)] }
	for range 300 {
		mode, costs := pick(modes), pick(costModes)
		file := ""
		if mode != "" {
			file += "mode: " + mode + "\n"
		}
		if costs != "" {
			file += "cost_mode: " + costs + "\n"
		}
		envMode, envCosts, tier, provider := pick(modes), pick(costModes), pick(subjects.Tiers), pick(ProviderIDs)
		environ := []string{
			"SEMANTIC_ANALYSIS_MODE=" + envMode, "SEMANTIC_ANALYSIS_COST_MODE=" + envCosts,
			"SEMANTIC_ANALYSIS_TIER=" + tier, "SEMANTIC_ANALYSIS_PROVIDER=" + provider,
		}
		c := mustLoad(t, file, environ...)
		if c.Mode != cmp.Or(envMode, mode, ModePublic) || c.CostMode != cmp.Or(envCosts, costs, CostStandard) || c.ForcedTier != tier || c.ForcedProvider != provider {
			t.Errorf("%q, %q: mode %s, cost mode %s, tier %s, provider %s", file, environ, c.Mode, c.CostMode, c.ForcedTier, c.ForcedProvider)
		}
	}
}
