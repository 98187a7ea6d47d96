package config

import (
	"bytes"
	"encoding/json"
)

// SchemaFile is the name of the schema beside the configuration it is for.
const SchemaFile = "llm-providers.schema.json"

// Schema returns the JSON Schema (draft 2020-12) of the configuration file, for
// editors that check and complete while one types. It is what the readers of the
// file say of themselves, and uses no keyword that draft 7 has not but $defs: the
// YAML servers of editors know little beyond.
//
// A schema sees one value at a time and no environment. What it takes may still
// be refused by Load: a provider that is not there, a model that availableModels
// does not list, a number in other than plain digits. What Load takes, it takes.
func Schema() []byte {
	doc := describeFile().schema("")
	doc["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	doc["title"] = "The configuration of Sluice, llm-providers.yaml"
	doc["$defs"] = schema{"variable": schema{
		"type": "string", "pattern": `\$` + referenceForm,
		"description": "A text with ${NAME} or ${NAME:-default} in it, taken from the environment.",
	}}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(doc); err != nil {
		panic("config: the schema is no JSON: " + err.Error()) // maps of texts and numbers alone
	}
	return b.Bytes()
}

// describeFile runs the readers of the whole file on no file, over the built-in
// default.
func describeFile() *shape {
	l := newLoader(nil)
	l.readBuiltIn()
	d := &decoder{loader: l, file: builtInFile, builtIn: true, places: map[string]position{}}
	root := value{d: d, shape: &shape{}}
	root.object(d.sections()...)
	for _, read := range d.later {
		read()
	}
	return root.shape
}
