package wire

import (
	"bytes"
	"cmp"
	"slices"
)

// edit replaces body[from:to] by text.
type edit struct {
	from, to int
	text     []byte
}

// PatchOpenAIChat sets the model and the streaming of a body that Parse accepted and
// leaves every other byte as it is. When stream is true, wantUsage sets
// stream_options.include_usage; without wantUsage stream_options is taken out,
// for servers that refuse it. A body that asked for a stream and is not to get
// one loses both. When nothing changes the body itself is returned.
func PatchOpenAIChat(body []byte, model string, stream, wantUsage bool) ([]byte, error) {
	p := patch{model: model, stream: stream, usage: stream && wantUsage}
	v := view(body)
	if !v.isObject() {
		return nil, invalid("request", "must be a JSON object, not %s", v.what())
	}
	for f := range v.fields() {
		switch f.Key {
		case "model":
			p.modelAt = f
		case "stream":
			p.streamAt = f
		case "stream_options":
			p.optionsAt = f
		}
	}
	p.plan(v)
	if len(p.edits) == 0 {
		return body, nil
	}
	return p.apply(string(v)), nil
}

type patch struct {
	model         string
	stream, usage bool

	modelAt, streamAt, optionsAt field // Key is empty where there is none
	edits                        []edit
	added                        []byte
}

// plan decides on the edits. New members go in front, after the brace.
func (p *patch) plan(v raw) {
	if p.modelAt.Key == "" {
		p.added = appendText(p.added, "model", p.model)
	} else if p.modelAt.Value.str() != p.model {
		p.set(p.modelAt, appendString(nil, p.model))
	}
	asked := p.streamAt.Value.kind() == 't'
	switch {
	case p.stream && p.streamAt.Key == "":
		p.added = append(p.added, `,"stream":true`...)
	case p.stream && !asked:
		p.set(p.streamAt, []byte("true"))
	case !p.stream && asked:
		p.set(p.streamAt, []byte("false"))
	}
	p.planOptions(v, asked)
	if len(p.added) == 0 {
		return
	}
	p.added = bytes.TrimPrefix(p.added, []byte(","))
	if v.hasFields() {
		p.added = append(p.added, ',')
	}
	p.edits = append(p.edits, edit{from: 1, to: 1, text: p.added})
}

func (p *patch) planOptions(v raw, asked bool) {
	f := p.optionsAt
	switch {
	case f.Key == "":
		if p.usage {
			p.added = append(p.added, `,"stream_options":`+includeUsage...)
		}
	case p.usage:
		p.wantUsage(f)
	case p.stream || asked:
		from, to := f.At, f.To
		if next := skipSpace(string(v), to); next < len(v) && v[next] == ',' {
			to = skipSpace(string(v), next+1)
		} else {
			for from > 1 && (isSpace(v[from-1]) || v[from-1] == ',') {
				from--
			}
		}
		p.edits = append(p.edits, edit{from: from, to: to})
	}
}

// wantUsage sets include_usage within the stream options that are there.
func (p *patch) wantUsage(f field) {
	if !f.Value.isObject() {
		p.set(f, []byte(includeUsage))
		return
	}
	var last field
	for m := range f.Value.fields() {
		if m.Key == "include_usage" {
			last = m
		}
	}
	switch {
	case last.Key == "" && f.Value.hasFields():
		p.edits = append(p.edits, edit{f.From + 1, f.From + 1, []byte(`"include_usage":true,`)})
	case last.Key == "":
		p.set(f, []byte(includeUsage))
	case last.Value.kind() != 't':
		p.edits = append(p.edits, edit{f.From + last.From, f.From + last.To, []byte("true")})
	}
}

func (v raw) hasFields() bool {
	for range v.fields() {
		return true
	}
	return false
}

func (p *patch) set(f field, text []byte) {
	p.edits = append(p.edits, edit{f.From, f.To, text})
}

func (p *patch) apply(body string) []byte {
	slices.SortFunc(p.edits, func(a, b edit) int { return cmp.Or(a.from-b.from, a.to-b.to) })
	size := len(body)
	for _, e := range p.edits {
		size += len(e.text)
	}
	out := make([]byte, 0, size)
	done := 0
	for _, e := range p.edits {
		out = append(append(out, body[done:e.from]...), e.text...)
		done = e.to
	}
	return append(out, body[done:]...)
}
