package wire

import (
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// assembler joins the fragments in which openai-chat streams tool calls. A
// fragment belongs to the call of its index; servers that leave the index out,
// or give all calls the same one, begin a call with a new id.
type assembler struct {
	calls []partCall
	size  int
}

type partCall struct {
	index    string
	id, name string
	args     []byte
}

// add takes the tool_calls of one piece, and a legacy function_call.
func (a *assembler) add(calls, legacy raw) error {
	for i, c := range calls.items() {
		index := string(c.get("index"))
		if index == "" && len(calls) > 0 {
			index = "+" + strconv.Itoa(i)
		}
		if err := a.fragment(strings.Clone(index), c.get("id").str(), c.get("function")); err != nil {
			return err
		}
	}
	if legacy.isObject() {
		return a.fragment("legacy", "", legacy)
	}
	return nil
}

func (a *assembler) fragment(index, id string, f raw) error {
	name, args := f.get("name").str(), f.get("arguments")
	p := a.open(index, id, name)
	if p.id == "" {
		p.id = strings.Clone(id)
	}
	if p.name == "" {
		p.name = strings.Clone(name)
	}
	text := args.str()
	if args.isObject() { // some servers send the arguments as an object
		text = string(args)
	}
	if a.size += len(text); a.size > maxAnswer {
		return tooLong()
	}
	p.args = append(p.args, text...)
	return nil
}

func (a *assembler) open(index, id, name string) *partCall {
	for i := len(a.calls) - 1; i >= 0; i-- {
		p := &a.calls[i]
		if p.index != index {
			continue
		}
		if id != "" && p.id != "" && p.id != id && name != "" {
			break
		}
		return p
	}
	a.calls = append(a.calls, partCall{index: index})
	return &a.calls[len(a.calls)-1]
}

// take returns the calls and forgets them. A call without an id gets one; empty
// arguments are the empty object.
func (a *assembler) take() []subjects.ToolCall {
	if len(a.calls) == 0 {
		return nil
	}
	out := make([]subjects.ToolCall, 0, len(a.calls))
	for i := range a.calls {
		p := &a.calls[i]
		call := subjects.ToolCall{ID: p.id, Name: p.name, Arguments: string(p.args)}
		if call.ID == "" {
			call.ID = newCallID()
		}
		if strings.TrimSpace(call.Arguments) == "" {
			call.Arguments = "{}"
		}
		out = append(out, call)
	}
	a.calls = nil
	return out
}

func tooLong() error {
	return subjects.Errorf(subjects.KindProvider, "the answer is above %d MiB; ask for less with a token limit", maxAnswer>>20)
}
