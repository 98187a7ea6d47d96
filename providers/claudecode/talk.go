package claudecode

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// talk is one call's conversation with its process.
//
// Lines in: initialize (the system prompt, the schema), then the turns. The
// program queues user lines and takes assistant lines at once, so the order is
// kept by waiting: after an earlier user turn for the empty result that it
// gets, after an assistant turn for the reply to a control request. The input
// stays open until the result is there: version 2.1.197 leaves at its end, and
// takes along what it has not yet written of a long answer.
//
// Lines out are read by answer. Silence for the idle timeout, on whatever the
// call waits, is TIMEOUT: the program itself waits for ever on an API that has
// stopped in mid-answer.
type talk struct {
	p    *Provider
	proc *process
	in   *input
	job  *providers.Job
	out  *outlet
	// booted is called when the program has started up.
	booted func()

	answer answer
	idle   *time.Timer
	ending ending
}

// end ends the process, however the call ended.
func (t *talk) end() { t.proc.stop(t.ending) }

func (t *talk) run(ctx context.Context) (*wire.Response, error) {
	t.answer = answer{in: t.in, job: t.job, out: t.out, now: t.p.o.Now, cut: cutter{stops: t.in.stops}}
	t.idle = time.NewTimer(time.Hour)
	defer t.idle.Stop()
	err := t.converse(ctx)
	return t.answer.response(), err
}

func (t *talk) converse(ctx context.Context) error {
	if err := t.initialize(); err != nil {
		return err
	}
	last := len(t.in.turns) - 1
	for i, turn := range t.in.turns[:last] {
		if err := t.earlier(ctx, i, turn); err != nil {
			return err
		}
	}
	if err := t.say(userLine(t.in.turns[last], true)); err != nil {
		return err
	}
	t.answer.asked = true
	return t.listen(ctx)
}

// The ids of the control requests.
const (
	initID    = "init"
	barrierID = "turn"
)

func (t *talk) initialize() error {
	system := t.in.system
	if len(system) == 0 {
		system = []string{""} // else the program's own system prompt would be used
	}
	type request struct {
		Subtype string          `json:"subtype"`
		System  []string        `json:"systemPrompt"`
		Schema  json.RawMessage `json:"jsonSchema,omitempty"`
	}
	return t.say(controlLine(initID, request{"initialize", system, t.in.schema}))
}

// earlier feeds one turn of the past and waits until it is in its place.
func (t *talk) earlier(ctx context.Context, i int, turn turn) error {
	if turn.role == "user" {
		if err := t.say(userLine(turn, false)); err != nil {
			return err
		}
		return t.await(ctx, func(line gjson.Result) bool { return line.Get("type").Str == "result" })
	}
	id := barrierID + strconv.Itoa(i)
	err := t.say(struct {
		Type    string  `json:"type"`
		Message message `json:"message"`
		Parent  *string `json:"parent_tool_use_id"`
	}{"assistant", message{"assistant", turn.content}, nil})
	if err == nil {
		err = t.say(controlLine(id, map[string]string{"subtype": "mcp_status"}))
	}
	if err != nil {
		return err
	}
	return t.await(ctx, func(line gjson.Result) bool { return line.Get("response.request_id").Str == id })
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

func controlLine(id string, request any) any {
	return struct {
		Type    string `json:"type"`
		ID      string `json:"request_id"`
		Request any    `json:"request"`
	}{"control_request", id, request}
}

// userLine is a user's message. client_composed says that its text is no command
// and names no files; the newer version heeds it.
func userLine(turn turn, ask bool) any {
	line := struct {
		Type     string  `json:"type"`
		Message  message `json:"message"`
		Parent   *string `json:"parent_tool_use_id"`
		Composed bool    `json:"client_composed"`
		Ask      *bool   `json:"shouldQuery,omitempty"`
	}{Type: "user", Message: message{"user", turn.content}, Composed: true}
	if !ask {
		line.Ask = new(bool)
	}
	return line
}

// say queues one line for the program.
func (t *talk) say(line any) error {
	// Marshal escapes U+2028 and U+2029, which some readers take for line ends.
	b, err := json.Marshal(line)
	if err != nil {
		return subjects.Errorf(subjects.KindValidation, "the request cannot be written for claude-code").WithCause(err)
	}
	t.proc.send(append(b, '\n'))
	return nil
}

// await reads lines until one is what it waits for. The program must not ask the
// API meanwhile: a version that did would answer a turn of the past.
func (t *talk) await(ctx context.Context, found func(gjson.Result) bool) error {
	for {
		line, err := t.next(ctx)
		if err != nil {
			return err
		}
		switch line.Get("type").Str {
		case "stream_event":
			return unavailable(codeTooOld, "the claude program is too old for conversations of several messages; update it (2.1.197 is not)")
		case "result":
			if _, err := t.answer.line(line); err != nil {
				return err
			}
		}
		if found(line) {
			return nil
		}
	}
}

// listen reads the answer.
func (t *talk) listen(ctx context.Context) error {
	for {
		line, err := t.next(ctx)
		if err != nil {
			return err
		}
		done, err := t.answer.line(line)
		switch {
		case t.answer.reported:
			t.ending = gently
		case done:
			t.ending = atOnce
		}
		if done || err != nil {
			return err
		}
	}
}

// next waits for a line, and passes over what is none of the protocol's (a
// wrapper's banner). Only broken JSON is an error: something may be lost in it.
func (t *talk) next(ctx context.Context) (gjson.Result, error) {
	for {
		line, err := t.wait(ctx)
		if err != nil {
			return gjson.Result{}, err
		}
		t.booted()
		if line[0] != '{' {
			continue
		}
		if !wire.ValidJSON(line) {
			return gjson.Result{}, subjects.Errorf(subjects.KindProvider, "the claude program printed a line of broken JSON")
		}
		v := gjson.ParseBytes(line)
		if v.Get("type").Str == "control_response" && v.Get("response.request_id").Str == initID && v.Get("response.subtype").Str == "error" {
			return v, unavailable(codeTooOld, "the claude program does not take its instructions; update it")
		}
		return v, nil
	}
}

func (t *talk) wait(ctx context.Context) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	limit := t.p.cfg.IdleTimeout
	var silence <-chan time.Time
	if limit > 0 {
		t.idle.Reset(limit)
		silence = t.idle.C
	}
	select {
	case line, ok := <-t.proc.lines:
		if !ok {
			return nil, t.proc.why()
		}
		return line, nil
	case <-ctx.Done():
		return nil, ended(ctx)
	case <-silence:
		return nil, subjects.Errorf(subjects.KindTimeout, "nothing came from the claude program for %s", limit)
	}
}
