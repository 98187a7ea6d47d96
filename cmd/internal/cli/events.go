package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/subjects"
)

// eventsCmd follows events.
type eventsCmd struct {
	Subjects []string `arg:"" optional:"" name:"subject" help:"NATS subjects to follow instead of all events; * and > are wildcards."`
	Usage    bool     `help:"Follow usage records too."`
	Count    int      `placeholder:"N" help:"End after N events."`
	JSON     bool     `help:"Print each event's JSON, one a line."`
	clientFlags
}

// eventSubjects are the events of the contract.
var eventSubjects = []string{
	subjects.PoolSaturated, "llm.breaker.*", "llm.quota.*", "llm.budget", "llm.provider_status.*", subjects.StoreStatus,
}

// eventBuffer is how many events may wait to be printed before some are lost.
const eventBuffer = 4096

// Help implements kong.HelpProvider.
func (*eventsCmd) Help() string {
	return `Ends with Ctrl-C. A lost connection is made again.

Examples:

    sluice events
    sluice events --usage
    sluice events llm.pool_saturated --count 1 --json`
}

// Validate implements kong's validation.
func (c *eventsCmd) Validate() error {
	if c.Count < 0 {
		return usagef("--count must not be negative")
	}
	for _, s := range c.Subjects {
		if s == "" || strings.ContainsAny(s, " \t\r\n") || strings.HasPrefix(s, ".") || strings.HasSuffix(s, ".") || strings.Contains(s, "..") {
			return usagef("%q is not a NATS subject", s)
		}
	}
	return nil
}

// Run prints events until ctx ends or --count is reached.
func (c *eventsCmd) Run(ctx context.Context, a *app) error {
	a.json = c.JSON
	ctx, cn, err := c.connect(ctx, a, "events", c.keepConnected(a)...)
	if err != nil {
		return err
	}
	defer cn.close()
	ch := make(chan *nats.Msg, eventBuffer)
	follow := c.Subjects
	if len(follow) == 0 {
		follow = eventSubjects
	}
	if c.Usage {
		follow = append(follow[:len(follow):len(follow)], subjects.UsageFilter)
	}
	for _, s := range follow {
		if _, err := cn.nc.ChanSubscribe(s, ch); err != nil {
			return failf(subjects.KindValidation, "cannot follow %s: %v", s, err)
		}
	}
	if err := cn.nc.FlushTimeout(dialTimeout); err != nil {
		return failf(subjects.KindProviderUnavailable, "the NATS server does not answer: %v", err)
	}
	if a.err.tty {
		fmt.Fprintln(a.err, a.err.paint(dim, "following "+strings.Join(follow, ", ")+"; Ctrl-C ends"))
	}
	for n := 0; c.Count == 0 || n < c.Count; n++ {
		select {
		case <-ctx.Done():
			return orCause(ctx, nil)
		case m := <-ch:
			a.printEvent(m)
		}
	}
	return nil
}

// keepConnected makes the connection anew when it is lost, and says so.
func (c *eventsCmd) keepConnected(a *app) []nats.Option {
	return []nats.Option{
		func(o *nats.Options) error { o.AllowReconnect = true; return nil },
		nats.MaxReconnects(-1),
		nats.ReconnectWait(time.Second),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				fmt.Fprintln(a.err, "sluice: connection lost; events are missed until it is back")
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			if nc.FlushTimeout(dialTimeout) == nil { // the server knows the subjects again
				fmt.Fprintln(a.err, "sluice: connected again")
			}
		}),
	}
}

func (a *app) printEvent(m *nats.Msg) {
	if a.json {
		if !json.Valid(m.Data) {
			b, _ := json.Marshal(string(m.Data))
			m = &nats.Msg{Data: b}
		}
		a.printJSON(m.Data)
		return
	}
	at, text := a.eventText(m)
	c := cyan
	if m.Subject == subjects.PoolSaturated {
		c = yellow
	}
	line := []string{a.out.paint(dim, at.In(a.loc).Format("15:04:05.000")), a.out.paint(c, safe(m.Subject)), safe(text)}
	fmt.Fprintln(a.out, strings.Join(line, "  "))
}

// eventText writes an event for people, with its moment (now, where it has none).
func (a *app) eventText(m *nats.Msg) (time.Time, string) {
	switch {
	case m.Subject == subjects.PoolSaturated:
		var e subjects.PoolSaturatedEvent
		if json.Unmarshal(m.Data, &e) == nil && e.Provider != "" {
			return orNow(e.At.Time, a.now), saturatedText(&e)
		}
	case strings.HasPrefix(m.Subject, "llm.usage."):
		var r subjects.UsageRecord
		if json.Unmarshal(m.Data, &r) == nil && r.ID != "" {
			return orNow(r.Timestamp.Time, a.now), fmt.Sprintf("%s/%s %s by %s: %s in, %s out, %s, cost %s, %s",
				r.Provider, r.Model, r.Class, r.Process, count(r.InputTokens), count(r.OutputTokens),
				millis(r.LatencyMs), priceText(r.CostUSD), r.Outcome)
		}
	}
	return a.anyEvent(m.Data)
}

func saturatedText(e *subjects.PoolSaturatedEvent) string {
	s := fmt.Sprintf("%s/%s %s: a call has waited %s, %d of %d active, %d queued",
		e.Provider, e.Model, e.Class, durationText(time.Duration(e.WaitedMs)*time.Millisecond), e.Active, e.Cap, e.Queued)
	if e.Suppressed > 0 {
		s += fmt.Sprintf(" (and %d more)", e.Suppressed)
	}
	return s
}

// anyEvent writes the fields of an event that this version does not know.
func (a *app) anyEvent(data []byte) (time.Time, string) {
	at := a.now()
	parsed := gjson.ParseBytes(data)
	if !json.Valid(data) || !parsed.IsObject() {
		return at, string(data)
	}
	var fields []string
	parsed.ForEach(func(k, v gjson.Result) bool {
		if k.String() == "at" {
			if t, err := time.Parse(time.RFC3339, v.String()); err == nil {
				at = t
				return true
			}
		}
		text := v.Raw
		if v.Type == gjson.String && v.Str != "" && !strings.ContainsAny(v.Str, " =\"") {
			text = v.Str
		}
		fields = append(fields, k.String()+"="+text)
		return true
	})
	return at, strings.Join(fields, " ")
}

func orNow(t time.Time, now func() time.Time) time.Time {
	if t.IsZero() {
		return now()
	}
	return t
}
