package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestSchemaIsCurrent holds that the file for editors is what the readers say.
func TestSchemaIsCurrent(t *testing.T) {
	t.Parallel()
	if *update {
		if err := os.WriteFile(SchemaFile, Schema(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(SchemaFile); err != nil || !bytes.Equal(got, Schema()) {
		t.Errorf("%s is not current: go test ./config -update writes it (%v)", SchemaFile, err)
	}
}

var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(SchemaFile, doc); err != nil {
		return nil, err
	}
	return c.Compile(SchemaFile)
})

// schemaFault is what the schema has to say against a file that is YAML.
func schemaFault(t *testing.T, file string) error {
	t.Helper()
	s, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := yaml.Unmarshal([]byte(file), &doc); err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	if doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// TestSchemaTakesExamples has every configuration of the documentation, and the
// built-in one.
func TestSchemaTakesExamples(t *testing.T) {
	t.Parallel()
	if err := schemaFault(t, BuiltIn()); err != nil {
		t.Errorf("the built-in file: %v", err)
	}
	pages, _ := filepath.Glob("../docs/*.md")
	n := 0
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, part := range strings.Split(string(text), "```yaml\n")[1:] {
			example, _, _ := strings.Cut(part, "```")
			if err := schemaFault(t, example); err != nil {
				t.Errorf("%s, example %d: %v\n%s", page, i+1, err, example)
			}
			n++
		}
	}
	if n < 10 {
		t.Errorf("%d examples; where are the others?", n)
	}
}

// TestSchemaDescribes holds that each key says what it is, and that nothing is
// described that is not there.
func TestSchemaDescribes(t *testing.T) {
	t.Parallel()
	unused := maps.Clone(aboutKeys)
	var walk func(s *shape)
	walk = func(s *shape) {
		if text := about(s.path); text == "" {
			t.Errorf("%s has no description", s.path)
		} else if !strings.HasSuffix(text, ".") {
			t.Errorf("%s: %q is no sentence", s.path, text)
		}
		delete(unused, s.path)
		for _, p := range s.props {
			walk(p.shape)
		}
		if s.others != nil {
			walk(s.others)
		}
	}
	walk(describeFile())
	for path := range unused {
		t.Errorf("%s is described, and is no key", path)
	}
}

// place is one value of the schema, and how a document goes around it.
type place struct {
	path string
	is   map[string]any
	wrap func(any) map[string]any
}

// freeKey is a valid key where the user chooses it.
func freeKey(path string) string {
	switch path {
	case "pools.caps":
		return "groq/m"
	case "prices":
		return "groq/m"
	case "providers":
		return "mine"
	}
	return "some"
}

// places lists every value that the schema describes.
func places(t *testing.T) []place {
	t.Helper()
	var all []place
	var root map[string]any
	if err := json.Unmarshal(Schema(), &root); err != nil {
		t.Fatal(err)
	}
	var walk func(p place)
	walk = func(p place) {
		all = append(all, p)
		is := p.is
		if either, ok := is["anyOf"].([]any); ok {
			is = either[0].(map[string]any)
		}
		below := func(key string, sub any) {
			wrap := func(v any) map[string]any {
				return p.wrap(withNeeds(p.path, map[string]any{key: v}))
			}
			walk(place{path: strings.TrimPrefix(p.path+"."+key, "."), is: sub.(map[string]any), wrap: wrap})
		}
		props, _ := is["properties"].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(props)) {
			if props[key].(map[string]any)["doNotSuggest"] == nil {
				below(key, props[key])
			}
		}
		if sub, ok := is["additionalProperties"].(map[string]any); ok {
			below(freeKey(p.path), sub)
		}
	}
	walk(place{is: root, wrap: func(v any) map[string]any { return v.(map[string]any) }})
	return all
}

// withNeeds adds the keys that must stand beside one.
func withNeeds(path string, m map[string]any) map[string]any {
	add := func(key string, v any) {
		if _, there := m[key]; !there {
			m[key] = v
		}
	}
	switch path {
	case "providers.mine":
		add("api", "openai")
	case "prices.groq/m.long_prompts":
		add("over_tokens", 5)
		fallthrough
	case "prices.groq/m":
		add("input", 1)
		add("output", 1)
	}
	return m
}

var (
	anything = []any{nil, true, 1, -1, 0.5, "", "x", "none", []any{}, []any{"x"}, map[string]any{}, map[string]any{"nokey": 1}}
	numbers  = []any{0, 2, 1.5, -0.5, json.Number("0.000001"), 100000000000000000, "8", "unknown"}
	words    = []any{
		" ", " x", "x ", "x y", "a\nb", strings.Repeat("x", 300), "all", "true", "groq", "Groq", "TIMEOUT", "CANCELLED", "A_KEY", "a-key", "2026-11-30", "2026-11-3",
		"llm.hook.x", "llm.usage", "llm", "my.hook", "a..b", "a.*", "$SYS", "_INBOX.x", "http://h/v1", "HTTPS://h", "h:80", "ftp://h", "http://h?x",
	}
	lists = []any{[]any{"groq"}, []any{"groq", "groq"}, []any{"TIMEOUT"}, []any{"CANCELLED"}, []any{"tools"}, []any{1}, []any{nil}, []any{[]any{}}, []any{" x"}}
)

// tries are values of every kind, and those at the bounds of a place.
func tries(is map[string]any) []any {
	all := slices.Clone(anything)
	either, ok := is["anyOf"].([]any)
	if !ok {
		either = []any{is}
	}
	m := either[0].(map[string]any)
	switch m["type"] {
	case "integer", "number":
		lo, hi := m["minimum"].(float64), m["maximum"].(float64)
		return append(append(all, numbers...), lo-1, lo, lo+1, hi-1, hi, hi+1)
	case "string":
		return append(all, words...)
	case "array":
		return append(all, lists...)
	}
	if enum, ok := m["enum"].([]any); ok {
		all = append(append(all, enum...), enum[0].(string)+"x")
	}
	return all
}

// beyond are the faults that no schema can see.
var beyond = []string{
	"is below base_delay_ms", "is below resetTimeoutMs",
	"is no number", "no provider ", "must be one of claude-code, ", "must be a day such as 2026-11-30",
}

// TestSchemaAgrees puts values of all kinds into every place: the schema refuses
// what Load refuses, but for what it cannot know, and nothing else.
func TestSchemaAgrees(t *testing.T) {
	t.Parallel()
	n := 0
	for _, p := range places(t) {
		for _, v := range tries(p.is) {
			m, isMapping := v.(map[string]any)
			if p.path == "" && !isMapping {
				continue
			}
			doc := p.wrap(v)
			if isMapping {
				doc = p.wrap(withNeeds(p.path, maps.Clone(m)))
			}
			file, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			n++
			checkAgreement(t, string(file))
		}
	}
	if n < 5000 {
		t.Errorf("%d documents tried", n)
	}
}

// readAlone is Load without the built-in default below the file, which takes most
// of its time.
func readAlone(file string) error {
	l := newLoader(nil)
	l.cfg.Retry.MaxDelay, l.cfg.Breaker.MaxPause = time.Minute, time.Minute
	d := &decoder{loader: l, file: "f.yaml", places: map[string]position{}}
	d.decode([]byte(file))
	l.finish(d)
	if len(l.faults) > 0 {
		return l.failure()
	}
	return nil
}

func checkAgreement(t *testing.T, file string) {
	t.Helper()
	err := readAlone(file)
	fault := schemaFault(t, file)
	switch {
	case err == nil && fault != nil:
		t.Errorf("Load takes what the schema refuses: %s\n%v", file, fault)
	case err != nil && fault == nil && !onlyBeyond(err):
		t.Errorf("the schema takes what Load refuses: %s\n%v", file, err)
	}
}

// onlyBeyond reports whether a schema can see none of the faults.
func onlyBeyond(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	return !slices.ContainsFunc(e.Faults, func(f Fault) bool {
		return !slices.ContainsFunc(beyond, func(text string) bool { return strings.Contains(f.Message, text) })
	})
}

// TestSchemaSpellings has each key in its other spelling, and in both.
func TestSchemaSpellings(t *testing.T) {
	t.Parallel()
	n := 0
	for _, p := range places(t) {
		key := p.path[strings.LastIndexByte(p.path, '.')+1:]
		names := fieldNames(key)
		if len(names) == 1 {
			continue
		}
		for _, v := range []any{0, 1, "x", nil, true} {
			file, err := json.Marshal(p.wrap(v))
			if err != nil {
				t.Fatal(err)
			}
			one := fmt.Sprintf("%q:", key)
			checkAgreement(t, strings.Replace(string(file), one, fmt.Sprintf("%q:", names[1]), 1))
			checkAgreement(t, strings.Replace(string(file), one, fmt.Sprintf("%q:%v,%s", names[1], v, one), 1))
		}
		n++
	}
	if n < 50 {
		t.Errorf("%d keys", n)
	}
	for _, file := range []string{"pools: {MaxQueue: 1}", "pools: {max_Queue: 1}", "batchCostLimits: {max_costPerBatchUsd: 1}"} {
		if loadFaults(t, file); schemaFault(t, file) == nil {
			t.Errorf("%s is taken", file)
		}
	}
}

// TestSchemaVariables: where a variable may stand for a value, the schema takes
// it, whatever it may come to.
func TestSchemaVariables(t *testing.T) {
	t.Parallel()
	for file, fine := range map[string]bool{
		`pools: {max_queue: "${N}"}`: true, `pools: {max_queue: "${N:-5}"}`: true, `pools: {max_queue: "$N"}`: false, `pools: {max_queue: "${}"}`: false,
		`mode: "${M:-mock}"`: true, `retry: {jitter: "0.${N}"}`: true, `usage: {prompt_preview: "${P}"}`: true, `fallback_on: ["${K}"]`: true,
		`provider_priority: {fast: ["${P}"]}`: true, `hooks: {budget: {subject: "x.${P}", onError: "${E}"}}`: true, `cost_limits: {budget_mode: "${N}"}`: true,
		`providers: {openai: {baseUrl: "${U}", fast: "${M}", apiKeyEnvVar: "${K}", models: {standard: "a ${M}"}}}`: true,
		`sensitivity: {allow: {internal: ["${P}"]}}`:                                                               true, `prices: {x: {input: "${I}", output: "1${I}", noted: "${D}"}}`: true, `pools: "${P}"`: false, `fallback_on: "${K}"`: false,
	} {
		if err := schemaFault(t, file); (err == nil) != fine {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// ExampleSchema shows what an editor knows of one key.
func ExampleSchema() {
	var doc struct {
		Properties struct {
			Cache struct{ Properties map[string]json.RawMessage }
		}
	}
	if err := json.Unmarshal(Schema(), &doc); err != nil {
		fmt.Println(err)
	}
	var b bytes.Buffer
	_ = json.Compact(&b, doc.Properties.Cache.Properties["ttlMs"])
	fmt.Println(b.String())
	// Output: {"anyOf":[{"maximum":2592000000,"minimum":1,"type":"integer"},{"$ref":"#/$defs/variable"}],"default":3600000,"description":"Life of an answer in milliseconds."}
}
