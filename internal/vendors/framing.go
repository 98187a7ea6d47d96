package vendors

import (
	"bytes"
	"encoding/json"
	"slices"
)

// frame rewrites the events of a stream, which end their lines with LF, in
// another framing.
func frame(events [][]byte, f Framing, lines bool) [][]byte {
	out := make([][]byte, len(events))
	for i, ev := range events {
		if lines {
			out[i] = frameLine(ev, f)
		} else {
			out[i] = frameEvent(ev, f)
		}
	}
	if len(out) == 0 {
		return out
	}
	if f == BOM {
		out[0] = append([]byte("\xef\xbb\xbf"), out[0]...)
	}
	if last := len(out) - 1; f == NoLastBlank {
		out[last] = bytes.TrimRight(out[last], "\n")
	}
	return out
}

func frameLine(ev []byte, f Framing) []byte {
	switch f {
	case CRLF:
		return bytes.ReplaceAll(ev, []byte("\n"), []byte("\r\n"))
	case BlankLines:
		return slices.Concat([]byte("\n"), ev, []byte("\n \n"))
	}
	return ev
}

func frameEvent(ev []byte, f Framing) []byte {
	switch f {
	case CRLF:
		return bytes.ReplaceAll(ev, []byte("\n"), []byte("\r\n"))
	case CR:
		return bytes.ReplaceAll(ev, []byte("\n"), []byte("\r"))
	case NoSpace:
		return eachField(ev, func(name, value []byte) []byte { return slices.Concat(name, []byte(":"), value, []byte("\n")) })
	case Comments:
		ev = eachField(ev, func(name, value []byte) []byte {
			return slices.Concat([]byte(": a comment, {\"not\":\"data\"}\n"), name, []byte(": "), value, []byte("\nunknown: field\nnocolon\n"))
		})
		return slices.Concat([]byte(":\n\n"), ev, []byte(": ping\n\n"))
	case IDsAndRetry:
		return slices.Concat([]byte("id: 7\nretry: 3000\n"), ev)
	case BlankLines:
		return slices.Concat([]byte("\n\n"), ev, []byte("\n"))
	case DataLines:
		return eachField(ev, func(name, value []byte) []byte {
			if string(name) != "data" {
				return slices.Concat(name, []byte(": "), value, []byte("\n"))
			}
			return dataLines(value)
		})
	}
	return ev
}

// eachField rewrites the fields of one event and keeps its blank line.
func eachField(ev []byte, write func(name, value []byte) []byte) []byte {
	var out []byte
	for line := range bytes.Lines(ev) {
		name, value, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(":"))
		if !ok || len(name) == 0 {
			out = append(out, line...)
			continue
		}
		out = append(out, write(name, bytes.TrimPrefix(value, []byte(" ")))...)
	}
	return out
}

// dataLines writes JSON over several data lines, which a reader joins with LF.
// What is not JSON stays on one.
func dataLines(value []byte) []byte {
	var wide bytes.Buffer
	if json.Indent(&wide, value, "", " ") != nil {
		wide.Reset()
		wide.Write(value)
	}
	var out []byte
	for line := range bytes.Lines(wide.Bytes()) {
		out = append(append(append(out, "data: "...), bytes.TrimRight(line, "\n")...), '\n')
	}
	return out
}
