package config

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/sluice-llm/sluice/subjects"
)

// maxVisits bounds the values read from one file, so that aliases of aliases
// cannot multiply them.
const maxVisits = 50_000

// value is one value of the file and where it stands; with a shape it is a place
// that is described (shape.go) and has no node.
type value struct {
	d    *decoder
	node ast.Node
	path string
	pos  position
	// lost marks a value that is not there and has its fault already.
	lost  bool
	shape *shape
}

// entry is one key of a mapping with its value.
type entry struct {
	key string
	at  position
	// names is where a described mapping notes what its keys are like.
	names *schema
	value
}

// field is one key that a mapping may have, in its documented spelling.
type field struct {
	name string
	read func(value)
}

// empty reports whether nothing stands there.
func (v value) empty() bool { return v.node.Type() == ast.NullType }

// fault notes that something is wrong with the value.
func (v value) fault(format string, args ...any) { v.suggest("", format, args...) }

func (v value) suggest(name, format string, args ...any) {
	if v.lost || v.describing() {
		return
	}
	v.d.add(Fault{
		Line: v.pos.line, Column: v.pos.column, Path: v.path,
		Message: fmt.Sprintf(format, args...), Suggestion: name,
	})
}

// child makes the value of a node below v. Anchors and aliases are followed.
func (v value) child(n ast.Node, path string) value {
	c := value{d: v.d, node: n, path: path, pos: nodeAt(n)}
	v.d.visits++
	if c.node = v.d.doc.follow(n); c.node == nil {
		c.fault("the alias names no anchor, or itself; write &name before the value that it stands for")
		c.node, c.lost = ast.Null(n.GetToken()), true
	}
	return c
}

func join(path, key string) string {
	if looksSecret(key) {
		key = "(" + show(key) + ")"
	} else if len(key) > 80 || strings.TrimSpace(key) != key || key == "" || !utf8.ValidString(key) || strings.ContainsFunc(key, notPrint) {
		key = show(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func notPrint(r rune) bool { return !unicode.IsPrint(r) }

// entries reads a mapping; an empty value is an empty mapping. alike says
// which keys are one and the same; the second of two is a fault.
func (v value) entries(alike func(string) string) []entry {
	if v.describing() {
		return []entry{v.freeEntry()}
	}
	m, ok := v.node.(*ast.MappingNode)
	if !ok {
		if !v.empty() {
			v.fault("found %s; must be keys with values", describe(v.node))
		}
		return nil
	}
	var all []entry
	seen := map[string]entry{}
	for _, kv := range m.Values {
		if v.d.exhausted() {
			break
		}
		e := v.entry(kv)
		if first, twice := seen[alike(e.key)]; twice {
			e.twice(first)
			continue
		}
		seen[alike(e.key)] = e
		all = append(all, e)
	}
	return all
}

func (v value) entry(kv *ast.MappingValueNode) entry {
	key := keyText(kv.Key)
	return entry{key: key, at: at(kv.Key.GetToken()), value: v.child(kv.Value, join(v.path, key))}
}

func keyText(k ast.MapKeyNode) string {
	if s, ok := k.(*ast.StringNode); ok {
		return s.Value
	}
	return k.GetToken().Value
}

func (e entry) twice(first entry) {
	e.pos = e.at
	if e.key == first.key {
		e.fault("set twice, first on line %d; keep one", first.at.line)
		return
	}
	e.fault("another spelling of %s, which is set on line %d; keep one", first.key, first.at.line)
}

func same(key string) string { return key }

// nameKey checks that the key is a name: what says of what.
func (e entry) nameKey(what string) bool {
	if e.describing() {
		*e.names = nameShape()
		return true
	}
	if problem := badName(e.key); problem != "" {
		e.pos = e.at
		e.fault("the %s %s", what, problem)
		return false
	}
	return true
}

// oneKey checks that the key is one of a few.
func (e entry) oneKey(what string, keys []string) bool {
	if slices.Contains(keys, e.key) {
		return true
	}
	e.pos = e.at
	e.suggest(subjects.Nearest(e.key, keys), "unknown %s; %s", what, mustBe(keys))
	return false
}

// choice reads a mapping whose keys are a few names, each in one spelling.
func (v value) choice(what string, keys []string, read func(string, value)) {
	if v.describing() {
		for _, key := range keys {
			read(key, v.property(key, key))
		}
		return
	}
	for _, e := range v.entries(same) {
		if e.oneKey(what, keys) {
			read(e.key, e.value)
		}
	}
}

// snake and camel write a key in the two spellings that mean the same.
func snake(key string) string {
	if !strings.ContainsFunc(key, unicode.IsUpper) {
		return key
	}
	var b strings.Builder
	for i, r := range key {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func camel(key string) string {
	if !strings.Contains(key, "_") {
		return key
	}
	var b strings.Builder
	up := false
	for i, r := range key {
		switch {
		case r == '_' && i > 0:
			up = true
		case up:
			b.WriteRune(unicode.ToUpper(r))
			up = false
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// object reads a mapping with a fixed set of keys, in either spelling.
func (v value) object(own ...field) { v.objectWith(own, nil) }

// objectWith is object with keys aside: known only to say why they are not read.
func (v value) objectWith(own, aside []field) {
	if v.describing() {
		for _, f := range own {
			f.read(v.property(f.name, f.name))
		}
		return
	}
	for _, e := range v.entries(snake) {
		alike := func(f field) bool { return f.spells(e.key) }
		i := slices.IndexFunc(own, alike)
		j := slices.IndexFunc(aside, alike)
		switch {
		case i >= 0:
			e.path = join(v.path, own[i].name)
			v.d.places[e.path] = e.pos
			own[i].read(e.value)
		case j >= 0:
			e.pos = e.at
			aside[j].read(e.value)
		default:
			e.unknown(own)
		}
	}
}

// fields reads a mapping with these keys.
func fields(fs ...field) func(value) {
	return func(v value) { v.object(fs...) }
}

// unknown refuses a key, with the nearest valid one or all of them.
func (e entry) unknown(own []field) {
	e.pos = e.at
	names := make([]string, len(own))
	for i, f := range own {
		names[i] = f.name
	}
	if near := subjects.Nearest(e.key, names); near != "" {
		e.suggest(near, "unknown key")
		return
	}
	e.fault("unknown key; the keys here are %s", list(names))
}

// items reads a list.
func (v value) items() ([]value, bool) {
	if v.describing() {
		return []value{v.list()}, false
	}
	s, ok := v.node.(*ast.SequenceNode)
	if !ok {
		v.fault("found %s; must be a list such as [a, b], or [] for none", describe(v.node))
		return nil, false
	}
	all := make([]value, 0, len(s.Values))
	for i, n := range s.Values {
		if v.d.exhausted() {
			break
		}
		all = append(all, v.child(n, fmt.Sprintf("%s[%d]", v.path, i)))
	}
	return all, true
}

// set reads a list of texts, none of them twice. read returns "" for what it
// refuses. The list is nil when it is empty; ok says that there is one.
func (v value) set(read func(value) string) (texts []string, ok bool) {
	all, ok := v.items()
	for _, item := range all {
		text := read(item)
		switch {
		case text == "":
		case slices.Contains(texts, text):
			item.fault("%s stands in the list twice; keep one", show(text))
		default:
			texts = append(texts, text)
		}
	}
	v.unique()
	return texts, ok
}

// text reads a text, with its variables put in.
func (v value) text() (string, bool) {
	if v.describing() {
		if v.shape.is != nil {
			v.orVariable()
		}
		v.says(schema{"type": "string"})
		return "", false
	}
	raw, ok := rawText(v.node)
	if !ok {
		v.fault("found %s; must be a text%s", describe(v.node), quoteHint(v.node))
		return "", false
	}
	return v.expanded(raw)
}

func rawText(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

func quoteHint(n ast.Node) string {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return "; put it in quotes"
	}
	return ""
}

func (v value) expanded(raw string) (string, bool) {
	if len(raw) > maxText {
		v.fault("has %d bytes; at most %d", len(raw), maxText)
		return "", false
	}
	if !hasReference(raw) {
		return raw, true
	}
	out, problem := expand(raw, v.d.env)
	if problem == "" {
		v.d.expanded += len(out)
		problem = v.unfit(out)
	}
	if problem != "" {
		v.fault("%s", problem)
		return "", false
	}
	return out, true
}

func (v value) unfit(out string) string {
	switch {
	case v.d.expanded > maxExpanded:
		return fmt.Sprintf("the file's values are longer than %d bytes with their variables", maxExpanded)
	case !utf8.ValidString(out):
		return "the variable's value is not UTF-8"
	}
	return ""
}

// plain reads a scalar that is no text: what stands there without quotes, or
// what variables made of it. must says what is wanted.
func (v value) plain(must string) (string, bool) {
	switch n := v.node.(type) {
	case *ast.StringNode:
		if hasReference(n.Value) {
			return v.expanded(n.Value)
		}
		if n.Token.Type == token.StringType {
			return n.Value, true
		}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	v.wrong(must)
	return "", false
}

// wrong says what was found where something else must stand.
func (v value) wrong(must string) {
	found := describe(v.node)
	s, ok := v.node.(*ast.StringNode)
	switch {
	case !ok:
	case hasReference(s.Value):
		found += ", which comes to something else"
	case s.Token.Type != token.StringType:
		found = "the quoted text " + found
	}
	v.fault("found %s; %s", found, must)
}
