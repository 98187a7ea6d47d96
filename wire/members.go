package wire

// EditMembers changes the top-level members of a JSON object and leaves every
// other byte as it is. edit gets each member's name and JSON value, which share
// the body's memory, and returns the name that the member shall have: the same
// one, another, or "" to take the member out. When nothing changes the body
// itself is returned.
func EditMembers(body []byte, edit func(name, value string) string) []byte {
	v := view(body)
	var out []byte
	done, kept, changed := 0, false, false
	for f := range v.fields() {
		to := edit(f.Key, string(f.Value))
		if to == f.Key && !changed {
			kept = true
			continue
		}
		if !changed { // all before f is as it was
			changed = true
			out = trimComma(append(make([]byte, 0, len(v)+16), v[:f.At]...))
		}
		if done = f.To; to == "" {
			continue
		}
		if kept {
			out = append(out, ',')
		}
		kept = true
		if to == f.Key {
			out = append(out, v[f.At:f.To]...)
			continue
		}
		out = append(append(appendString(out, to), ':'), f.Value...)
	}
	if !changed {
		return body
	}
	return append(out, v[done:]...)
}

// trimComma cuts the comma and the space that the text ends with.
func trimComma(b []byte) []byte {
	for len(b) > 0 && (isSpace(b[len(b)-1]) || b[len(b)-1] == ',') {
		b = b[:len(b)-1]
	}
	return b
}

// LastRole is the role of the last message of an openai-chat body, which Parse
// accepted or an encoder wrote; "" when it has none.
func LastRole(body []byte) string {
	var last raw
	for _, m := range view(body).get("messages").items() {
		last = m
	}
	return last.get("role").str()
}
