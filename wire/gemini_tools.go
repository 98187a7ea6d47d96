package wire

import "github.com/sluice-llm/sluice/subjects"

// tools writes the function declarations and how they may be used. Their
// parameters go as JSON Schema (parametersJsonSchema), which takes what the
// older field parameters, a subset of OpenAPI's, refuses ($ref, const, a list of
// types).
func (g *geminiWriter) tools() *subjects.Error {
	c := g.chat
	if len(c.Tools) == 0 {
		return nil
	}
	g.dst = append(appendKey(g.dst, "tools"), `[{"functionDeclarations":[`...)
	for i := range c.Tools {
		t := &c.Tools[i]
		g.dst = appendText(append(comma(g.dst, i), '{'), "name", t.Name)
		if t.Description != "" {
			g.dst = appendText(g.dst, "description", t.Description)
		}
		if !isNull(t.Parameters) && !takesNothing(view(t.Parameters)) {
			g.dst = append(appendKey(g.dst, "parametersJsonSchema"), t.Parameters...)
		}
		g.dst = append(g.dst, '}')
		if t.Strict != nil && *t.Strict {
			g.without("a tool's strict", "gemini")
		}
	}
	g.dst = append(g.dst, "]}]"...)
	g.choice(c.ToolChoice)
	return nil
}

func (g *geminiWriter) choice(c *subjects.ToolChoice) {
	mode := ""
	switch {
	case c == nil:
	case c.Name != "" || c.Mode == "required":
		mode = "ANY"
	case c.Mode == "none":
		mode = "NONE"
	case c.Mode == "auto":
		mode = "AUTO"
	}
	if mode == "" {
		return
	}
	g.dst = append(appendKey(g.dst, "toolConfig"), `{"functionCallingConfig":{`...)
	g.dst = appendText(g.dst, "mode", mode)
	if c.Name != "" {
		g.dst = append(appendKey(g.dst, "allowedFunctionNames"), '[')
		g.dst = append(appendString(g.dst, c.Name), ']')
	}
	g.dst = append(g.dst, "}}"...)
}

// takesNothing reports whether a schema is that of a function without
// parameters, which the API wants declared without a schema: an object that
// names no property and allows none.
func takesNothing(v raw) bool {
	for f := range v.fields() {
		switch f.Key {
		case "type", "$schema", "title", "description":
		case "properties", "required":
			if f.Value.hasFields() || f.Value.count() > 0 {
				return false
			}
		case "additionalProperties":
			if f.Value != "false" {
				return false
			}
		default:
			return false
		}
	}
	return v.isObject()
}
