// Package providers says what one provider is to the rest of Sluice: how to
// talk to it, and nothing else. Pools, breakers, retries and quotas are the
// provider actor's, once, for all; a provider keeps no state between calls but
// its connections and what it has learnt of its API (a login, the outcome of a
// check, a field that a model refuses), which it could learn anew at any time.
// Only package actors may call a provider (a test holds it).
package providers

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// Job is one attempt.
type Job struct {
	Request *wire.Request
	// Model is the provider's own id for the model.
	Model string
	// Attempt counts this call's tries at this provider, from 0.
	Attempt int
	// CallID names the call, Class says who waits for it, and Tier is the one that
	// it was resolved to.
	CallID string
	Class  string
	Tier   string
	// Hops names the Sluices that the call came through, this one last, as
	// subjects.HeaderHops has them.
	Hops string
	// Deadline is when the attempt ends at the latest; zero = not known.
	Deadline time.Time
	// Opened, when set, is told before a stream's first event what is known of the
	// answer by then: warnings and rate-limit headers, which go to the caller in
	// front of it.
	Opened func(*wire.Response)
	// Begun, when set, is told that the model has begun to answer a stream, also
	// where that is no output yet (it thinks). The provider's own bound on an
	// attempt holds until then.
	Begun func()
}

// AttemptID makes a call id for the party that serves the attempt: no other
// attempt has it, and it begins with the call's own. Under the call's own id an
// attempt that is told to stop would take the whole call, or the next one, with
// it, and a Sluice that the call came through would take it for one of its own.
func (j *Job) AttemptID() string {
	return fmt.Sprintf("%.80s~%d~%s", j.CallID, j.Attempt, subjects.NewCallID())
}

// Begin tells Begun.
func (j *Job) Begin() {
	if j.Begun != nil {
		j.Begun()
	}
}

// Open tells Opened.
func (j *Job) Open(resp *wire.Response) {
	if j.Opened != nil {
		j.Opened(resp)
	}
}

// AsStream gives a whole answer, in the hub form, as a stream: its text as one
// event, and each tool call. An error is yield's.
func (j *Job) AsStream(resp *wire.Response, yield func(*wire.Event) error) error {
	j.Open(resp)
	if resp.Text != "" {
		if err := yield(&wire.Event{Text: resp.Text}); err != nil {
			return err
		}
	}
	for i := range resp.ToolCalls {
		if err := yield(&wire.Event{ToolCall: &resp.ToolCalls[i]}); err != nil {
			return err
		}
	}
	return nil
}

// Provider talks to one account. All methods may be called concurrently and
// return soon after ctx ends. Errors are *subjects.Error with a kind; one that
// is not is taken for PROVIDER_ERROR. A Response that comes beside an error
// holds what is known of the attempt (usage, partial text) and is accounted for.
type Provider interface {
	// Complete makes one call and waits for the whole answer.
	Complete(ctx context.Context, job *Job) (*wire.Response, error)
	// Stream makes one streaming call. yield gets the events in order, from one
	// goroutine; its error ends the stream and is returned. The Response holds
	// the sums: usage, finish reason, model; Text may be empty. A stream that
	// ends without its proper end is PROVIDER_ERROR.
	Stream(ctx context.Context, job *Job, yield func(*wire.Event) error) (*wire.Response, error)
	// Capabilities says what requests may need of this provider.
	Capabilities() wire.Need
	// Check says why the provider cannot serve now, or nil. It spends no tokens.
	// It is asked every few seconds, and keeps the outcome of what is costly (a
	// request to a local runner, a program's own check); ctx bounds it.
	Check(ctx context.Context) error
}
