package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/subjects"
)

// Exit statuses of the contract.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a command line that kong accepts and the command does not.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// usageIn is a usageError with the command it is about.
type usageIn struct {
	*usageError
	ctx *kong.Context
}

// errFailed is a failure that has been shown already.
var errFailed = errors.New("failed")

// plainError is a failure whose message says everything. kind is what --json shows.
type plainError struct {
	kind subjects.Kind
	msg  string
}

func (e *plainError) Error() string { return e.msg }

func failf(kind subjects.Kind, format string, args ...any) error {
	return &plainError{kind, fmt.Sprintf(format, args...)}
}

// reportUsage prints what is wrong with a command line, then how it is meant.
func (a *app) reportUsage(err error) int {
	var kctx *kong.Context
	var pe *kong.ParseError
	var in *usageIn
	switch {
	case errors.As(err, &pe):
		kctx = pe.Context
	case errors.As(err, &in):
		kctx = in.ctx
	}
	msg := safe(err.Error())
	var u *usageError
	if errors.As(err, &u) { // without kong's path in front
		msg = safe(u.msg)
	}
	fmt.Fprintf(a.err, "%s %s\n", a.err.paint(red, "sluice:"), msg)
	if kctx == nil || kctx.Model == nil {
		return exitUsage
	}
	path, summary := "sluice", "sluice <command> [flags]"
	if cmd := kctx.Selected(); cmd != nil {
		path, summary = cmd.FullPath(), "sluice "+cmd.Summary()
		if cmd.Name == "complete" {
			fmt.Fprint(a.err, promptHint(msg, kctx.Args))
		}
	}
	fmt.Fprintf(a.err, "Usage: %s\nRun \"%s --help\" for more.\n", summary, path)
	return exitUsage
}

// promptHint says how a prompt is written that was taken for something else.
func promptHint(msg string, args []string) string {
	if strings.HasPrefix(msg, "unexpected argument") {
		return "Put a prompt of several words in quotes.\n"
	}
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") && strings.ContainsAny(arg, " \n") {
			return "A prompt that begins with - goes after --.\n"
		}
	}
	return ""
}

// report prints why a command failed: on stderr for people, with --json as the
// contract's error body on stdout.
func (a *app) report(err error) int {
	if errors.Is(err, errFailed) {
		return exitFailed
	}
	var p *plainError
	isPlain := errors.As(err, &p)
	var e *subjects.Error
	isCall := !isPlain && errors.As(err, &e)
	if a.json {
		switch {
		case isPlain:
			e = &subjects.Error{Kind: p.kind, Message: p.msg}
		case !isCall:
			e = &subjects.Error{Kind: subjects.KindProvider, Message: err.Error()}
		}
		a.printError(e)
		return exitFailed
	}
	prefix := a.err.paint(red, "sluice:")
	if !isCall {
		fmt.Fprintf(a.err, "%s %s\n", prefix, safeText(err.Error()))
		return exitFailed
	}
	fmt.Fprintf(a.err, "%s %s\n", prefix, safe(e.Error()))
	for _, line := range details(e) {
		fmt.Fprintf(a.err, "  %s\n", safe(line))
	}
	return exitFailed
}

func (a *app) printError(e *subjects.Error) {
	b, err := json.Marshal(e)
	if err != nil { // cannot happen: plain fields only
		b = []byte(`{"error":{"kind":"` + string(e.Kind) + `"}}`)
	}
	fmt.Fprintf(a.out, "%s\n", b)
}

// details says what was tried, what to do, and which call it was.
func details(e *subjects.Error) []string {
	var lines []string
	if len(e.Attempts) > 0 {
		tried := make([]string, len(e.Attempts))
		for i, t := range e.Attempts {
			tried[i] = attemptText(t)
		}
		lines = append(lines, "tried: "+strings.Join(tried, ", "))
	}
	if h := hint(e); h != "" {
		lines = append(lines, "what to do: "+h)
	}
	if e.CallID != "" {
		lines = append(lines, "call id: "+e.CallID)
	}
	return lines
}

func attemptText(t subjects.Attempt) string {
	name := t.Provider
	if t.Model != "" {
		name += "/" + t.Model
	}
	switch {
	case t.Outcome == subjects.OutcomeSkipped && t.Reason != "":
		return name + " skipped (" + t.Reason + ")"
	case t.Outcome == subjects.OutcomeSkipped:
		return name + " skipped"
	}
	return fmt.Sprintf("%s %s after %d ms", name, t.Outcome, t.Ms)
}

var hints = map[subjects.Kind]string{
	subjects.KindContentPolicy:     "change the prompt; the provider refuses this content",
	subjects.KindAuth:              "check the provider's key or login; `sluice providers` shows which are set",
	subjects.KindQuotaExhausted:    "wait for the quota to come back, or add another provider",
	subjects.KindRateLimited:       "wait a little and try again",
	subjects.KindPoolFull:          "try again later; the queue is at its bound (pools.maxQueue)",
	subjects.KindBudgetExceeded:    "raise the budget, or ask for a local provider",
	subjects.KindProvider:          "try again; `sluice health` shows the provider's state",
	subjects.KindTimeout:           "give it more time with --timeout, or see `sluice health` for queues",
	subjects.KindCapabilityMissing: "configure a provider that can do this; `sluice providers` lists capabilities",
	subjects.KindNoProvider:        "`sluice explain` says why each provider was left out",
}

// hint says what the caller can do about e; "" when its message says it.
func hint(e *subjects.Error) string {
	if e.RetryAfter > 0 {
		return "try again in " + durationText(e.RetryAfter)
	}
	if e.Kind == subjects.KindProviderUnavailable && errors.Is(e, nats.ErrNoResponders) {
		return "start a node with `sluice serve`, or name its NATS server with --nats-url"
	}
	return hints[e.Kind]
}

// durationText writes a duration for people: 350 ms, 1.4 s, 12 s, 3 min 5 s, 2 h 5 min.
func durationText(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	case d < 10*time.Second && d%time.Second != 0:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()+0.5))
	case d < time.Hour:
		return twoUnits(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 48*time.Hour:
		return twoUnits(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	}
	return twoUnits(int(d.Hours())/24, "days", int(d.Hours())%24, "h")
}

func twoUnits(n int, unit string, m int, small string) string {
	if m == 0 {
		return fmt.Sprintf("%d %s", n, unit)
	}
	return fmt.Sprintf("%d %s %d %s", n, unit, m, small)
}
