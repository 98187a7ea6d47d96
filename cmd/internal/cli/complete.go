package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/subjects"
)

// completeCmd makes one call.
type completeCmd struct {
	Prompt     string        `arg:"" help:"What to ask; - reads it from stdin."`
	Class      string        `enum:"interactive,ingestion" default:"interactive" placeholder:"CLASS" help:"Who is waiting: interactive (a person) or ingestion (a batch)."`
	Tier       string        `placeholder:"TIER" help:"How hard it is: fast, standard or premium."`
	Task       string        `placeholder:"NAME" help:"Name of the task; it decides the tier where --tier does not."`
	Process    string        `placeholder:"NAME" envar:"SLUICE_PROCESS" help:"Who is calling, for the usage log."`
	Provider   string        `placeholder:"ID" help:"Account to try first."`
	Model      string        `placeholder:"MODEL" help:"Model: provider/model, a tier, auto, or a known id."`
	System     string        `placeholder:"TEXT" help:"System prompt."`
	Timeout    time.Duration `placeholder:"DURATION" usual:"the node's" help:"Deadline of the whole call, such as 90s."`
	SkipCache  bool          `help:"Neither take the answer from the cache nor keep it there."`
	CacheScope string        `placeholder:"NAME" help:"Share the answer only with those who name the same scope."`
	RunID      string        `name:"run" placeholder:"ID" help:"Run whose cost limit applies."`
	BatchID    string        `name:"batch" placeholder:"ID" help:"Batch whose limits apply."`
	CallID     string        `name:"call-id" placeholder:"ID" help:"Id of the call; the same id within two minutes is the same call."`
	Stream     bool          `help:"Print the answer as it comes."`
	JSON       bool          `help:"Print the result as JSON; with --stream one event a line."`
	clientFlags
}

// Help implements kong.HelpProvider.
func (*completeCmd) Help() string {
	return `The answer goes to stdout, one line of facts to stderr when that is a terminal. Ctrl-C cancels the call.

Examples:

    sluice complete "Say hello in one word"
    git diff | sluice complete --system "Review this diff" --tier premium --stream -
    sluice complete --class ingestion --process nightly --json "Summarise: ..." | jq .usage`
}

// maxStdin bounds a prompt from stdin: the largest NATS message there can be.
const maxStdin = 64 << 20

// callGrace is how much longer than the call's deadline its answer is waited
// for: the node's own TIMEOUT says more than ours.
const callGrace = 3 * time.Second

// Validate implements kong's validation.
func (c *completeCmd) Validate() error {
	if err := oneOf("--tier", c.Tier, subjects.Tiers); err != nil {
		return err
	}
	if c.Timeout < 0 || c.Timeout > 0 && c.Timeout < time.Millisecond || c.Timeout.Milliseconds() > subjects.MaxTimeoutMs {
		return usagef("--timeout must be between 1ms and 1h, not %s", c.Timeout)
	}
	return nil
}

// Run makes the call.
func (c *completeCmd) Run(ctx context.Context, a *app) error {
	a.json = c.JSON
	prompt, err := c.prompt(a)
	if err != nil {
		return err
	}
	m, err := c.message(prompt)
	if err != nil {
		return err
	}
	ctx, cn, err := c.connect(ctx, a, "complete")
	if err != nil {
		return err
	}
	defer cn.close()
	limit := c.Timeout
	if limit == 0 {
		limit = subjects.MaxTimeoutMs * time.Millisecond
	}
	callCtx, stop := context.WithTimeout(ctx, limit+callGrace)
	defer stop()
	if c.Stream {
		err = c.stream(callCtx, a, cn, m)
	} else {
		err = c.once(callCtx, a, cn, m)
	}
	return c.named(orCause(ctx, err), m)
}

// named gives an error the call's id where it has none.
func (c *completeCmd) named(err error, m *subjects.Msg) error {
	var e *subjects.Error
	if errors.As(err, &e) && e.CallID == "" {
		e.CallID = m.Header.Get(subjects.HeaderCallID)
	}
	return err
}

func (c *completeCmd) prompt(a *app) (string, error) {
	prompt := c.Prompt
	if prompt == "-" {
		b, err := io.ReadAll(io.LimitReader(a.in, maxStdin+1))
		if err != nil {
			return "", failf(subjects.KindValidation, "stdin: %v", err)
		}
		if len(b) > maxStdin {
			return "", failf(subjects.KindValidation, "stdin: more than %d bytes, which no NATS server carries", maxStdin)
		}
		prompt = string(b)
	}
	switch {
	case strings.TrimSpace(prompt) == "":
		return "", usagef("the prompt is empty")
	case !utf8.ValidString(prompt), !utf8.ValidString(c.System):
		return "", usagef("the prompt is not UTF-8 text")
	}
	return prompt, nil
}

func (c *completeCmd) message(prompt string) (*subjects.Msg, error) {
	req := subjects.Request{
		Tier: c.Tier, Task: c.Task, Process: c.Process, Provider: c.Provider, Model: c.Model,
		TimeoutMs: c.Timeout.Milliseconds(), CallID: c.CallID,
		SkipCache: c.SkipCache, CacheScope: c.CacheScope, RunID: c.RunID, BatchID: c.BatchID,
	}
	req.Stream = c.Stream
	if c.System != "" {
		req.Messages = append(req.Messages, subjects.Message{Role: "system", Content: subjects.Text(c.System)})
	}
	req.Messages = append(req.Messages, subjects.Message{Role: "user", Content: subjects.Text(prompt)})
	if req.CallID == "" {
		req.CallID = subjects.NewCallID()
	}
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	m := &subjects.Msg{Subject: subjects.Complete(c.Class), Header: subjects.Header{}, Data: body}
	m.Header.Set(subjects.HeaderCallID, req.CallID)
	return m, nil
}

func (c *completeCmd) once(ctx context.Context, a *app, t subjects.Transport, m *subjects.Msg) error {
	stop := a.spin("waiting for the answer")
	reply, err := t.Request(ctx, m)
	stop()
	if err != nil {
		return err
	}
	var res subjects.Result
	if err := json.Unmarshal(reply.Data, &res); err != nil {
		return failf(subjects.KindProvider, "the answer is not a result that this version of sluice knows")
	}
	if c.JSON {
		a.printJSON(reply.Data)
		return nil
	}
	a.printAnswer(res.Content)
	if !strings.HasSuffix(res.Content, "\n") {
		fmt.Fprintln(a.out)
	}
	a.facts(&res)
	return nil
}

func (c *completeCmd) stream(ctx context.Context, a *app, t subjects.Transport, m *subjects.Msg) error {
	stop := a.spin("waiting for the answer")
	defer stop()
	var res *subjects.Result
	last := ""
	err := t.Stream(ctx, m, func(m *subjects.Msg) error {
		stop()
		var ev subjects.Event
		if err := json.Unmarshal(m.Data, &ev); err != nil {
			return failf(subjects.KindProvider, "a stream message is not an event that this version of sluice knows")
		}
		if ev.Type == subjects.EventResult {
			res = ev.Result
		}
		if c.JSON {
			a.printJSON(m.Data)
			return nil
		}
		if ev.Type == subjects.EventDelta && ev.Content != "" {
			a.printAnswer(ev.Content)
			last = ev.Content
		}
		return nil
	})
	if !c.JSON && last != "" && !strings.HasSuffix(last, "\n") {
		fmt.Fprintln(a.out)
	}
	switch {
	case err != nil:
		return err
	case res == nil:
		return subjects.Errorf(subjects.KindProvider, "the stream ended without its result")
	case !c.JSON:
		a.facts(res)
	}
	return nil
}

// printAnswer prints a model's text: byte for byte into a file or pipe, without
// control characters on a terminal.
func (a *app) printAnswer(text string) {
	if a.out.tty {
		text = safeText(text)
	}
	fmt.Fprint(a.out, text)
}

// facts says on stderr what the call was: warnings always, the rest to a
// person only.
func (a *app) facts(r *subjects.Result) {
	for _, w := range r.Warnings {
		fmt.Fprintf(a.err, "%s %s\n", a.err.paint(yellow, "warning:"), safe(w))
	}
	if !a.err.tty {
		return
	}
	tokens := fmt.Sprintf("%s in, %s out", count(r.Usage.InputTokens), count(r.Usage.OutputTokens))
	if r.Usage.Estimated {
		tokens += " (estimated)"
	}
	facts := []string{r.Provider + "/" + r.Model, tokens, millis(r.LatencyMs)}
	if r.QueuedMs >= 1 {
		facts = append(facts, "waited "+millis(r.QueuedMs))
	}
	if r.Cached {
		facts = append(facts, "cached")
	}
	if r.FinishReason == subjects.FinishLength {
		facts = append(facts, "cut at the token limit")
	}
	if r.CostUSD != nil {
		facts = append(facts, dollars(*r.CostUSD))
	} else {
		facts = append(facts, "cost unknown")
	}
	facts = append(facts, "call "+r.CallID)
	fmt.Fprintln(a.err, a.err.paint(dim, safe(strings.Join(facts, " · "))))
}
