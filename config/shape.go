package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// A reader can be run in two ways. On a value of a file it reads; on a value that
// has a shape and no node it says what it would read, and the shape is the JSON
// Schema of that (schema.go). So that there is one table of keys and no second one
// that could differ, the readers that all others are made of (whole, oneOf, name,
// entries, items, …) know both ways.

// schema is a JSON Schema, or a part of one.
type schema = map[string]any

// shape collects what is read in one place.
type shape struct {
	// path names the place in the texts of about: keys that are free are a *.
	path string
	// is takes the value itself; or has what else may stand in its place.
	is schema
	or []schema
	// byDefault is what counts where the file says nothing; nil = not known.
	byDefault any
	// free marks a place below a free key: what its reader would change is no
	// default of anything.
	free bool
	// props are the keys of a mapping in the order of reading, others takes every
	// other key, and names the keys of others.
	props  []property
	others *shape
	names  schema
	// needed are the keys that must be there.
	needed []string
	// item takes each value of a list.
	item *shape
}

type property struct {
	name  string
	shape *shape
}

// describing reports whether the reader is asked what it reads.
func (v value) describing() bool { return v.shape != nil }

// aside makes the value of a place below v that is described. key is "*" for a
// free one.
func (v value) aside(key string, free bool) value {
	s := &shape{path: strings.TrimPrefix(v.shape.path+"."+key, "."), free: free || v.shape.free}
	return value{d: v.d, path: s.path, shape: s}
}

// property describes one key; the key's value is below the path as names it.
func (v value) property(key, as string) value {
	v.mapping()
	child := v.aside(as, false)
	v.shape.props = append(v.shape.props, property{key, child.shape})
	return child
}

// freeEntry describes the keys that a mapping leaves to the user.
func (v value) freeEntry() entry {
	v.mapping()
	child := v.aside("*", true)
	v.shape.others = child.shape
	return entry{key: "x", names: &v.shape.names, value: child}
}

// mapping says that keys with values stand here, or nothing.
func (v value) mapping() {
	if v.shape.is == nil {
		v.shape.is = schema{"type": []string{"object", "null"}}
	}
}

// need says which keys must be there.
func (v value) need(keys ...string) {
	if v.describing() {
		v.shape.needed = keys
		v.shape.is["type"] = "object"
	}
}

// list describes a list by its values.
func (v value) list() value {
	child := v.aside("*", true)
	v.shape.is, v.shape.item = schema{"type": "array"}, child.shape
	return child
}

// unique says that no two values of a list are the same.
func (v value) unique() {
	if v.describing() {
		v.shape.is["uniqueItems"] = true
	}
}

// says notes what takes the value, unless that is noted already.
func (v value) says(is schema) {
	if v.describing() && v.shape.is == nil {
		v.shape.is = is
	}
}

// orWord says that a word may stand in the value's place.
func (v value) orWord(word string) {
	if v.describing() {
		v.shape.or = append(v.shape.or, schema{"const": word})
	}
}

// orVariable says that a text with ${NAME} in it may stand in the value's place.
func (v value) orVariable() {
	v.shape.or = append(v.shape.or, schema{"$ref": "#/$defs/variable"})
}

// standard notes the default.
func (v value) standard(def any) {
	if v.describing() && !v.shape.free && def != "" {
		v.shape.byDefault = def
	}
}

// number describes a number within bounds that variables may make.
func (v value) number(kind string, lo, hi any) {
	v.says(schema{"type": kind, "minimum": lo, "maximum": hi})
	v.orVariable()
}

// words describes one of a few texts.
func (v value) words(words []string, def string) {
	v.says(schema{"enum": slices.Clone(words)})
	v.orVariable()
	v.standard(def)
}

// pattern describes a text of a form, at most so many characters long.
func pattern(form string, longest int) schema {
	return schema{"type": "string", "pattern": form, "maxLength": longest}
}

// nameForm is that of badName, but for characters that no editor shows.
const nameForm = `^\S(.*\S)?$`

func nameShape() schema { return pattern(nameForm, subjects.MaxName) }

// fieldNames are the spellings of a key, the documented one first.
func fieldNames(name string) []string {
	other := snake(name)
	if other == name {
		other = camel(name)
	}
	if other == name {
		return []string{name}
	}
	return []string{name, other}
}

// spells reports whether key is a spelling of the field's name.
func (f field) spells(key string) bool { return key == snake(f.name) || key == camel(f.name) }

// schema writes the shape down; at is where, as a JSON pointer.
func (s *shape) schema(at string) schema {
	is := maps.Clone(s.is)
	if len(s.or) > 0 {
		at += "/anyOf/0"
	}
	s.keys(is, at)
	if s.item != nil {
		is["items"] = s.item.schema(at + "/items")
	}
	if len(s.or) > 0 {
		is = schema{"anyOf": append([]schema{is}, s.or...)}
	}
	if text := about(s.path); text != "" {
		is["description"] = text
	}
	if s.byDefault != nil {
		is["default"] = s.byDefault
	}
	return is
}

// keys writes the keys of a mapping down.
func (s *shape) keys(is schema, at string) {
	if s.props == nil && s.others == nil {
		return
	}
	props := schema{}
	var twice []schema
	for _, p := range s.props {
		names := fieldNames(p.name)
		here := at + "/properties/" + p.name
		props[p.name] = p.shape.schema(here)
		if len(names) > 1 {
			// Editors that know doNotSuggest do not propose both; the YAML server
			// forgets what stands beside a $ref, hence the allOf.
			props[names[1]] = schema{"allOf": []schema{{"$ref": "#" + here}}, "doNotSuggest": true}
			twice = append(twice, schema{"required": names})
		}
	}
	if len(props) > 0 {
		is["properties"] = props
	}
	if is["additionalProperties"] = false; s.others != nil {
		is["additionalProperties"] = s.others.schema(at + "/additionalProperties")
	}
	if s.names != nil {
		is["propertyNames"] = s.names
	}
	if twice != nil {
		is["not"] = schema{"type": "object", "anyOf": twice}
	}
	s.required(is)
}

func (s *shape) required(is schema) {
	var all []schema
	for _, key := range s.needed {
		var either []schema
		for _, name := range fieldNames(key) {
			either = append(either, schema{"required": []string{name}})
		}
		if len(either) == 1 {
			all = append(all, either[0])
			continue
		}
		all = append(all, schema{"anyOf": either})
	}
	if all != nil {
		is["allOf"] = all
	}
}
