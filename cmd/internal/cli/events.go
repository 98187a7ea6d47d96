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
	subjects.PoolSaturated, "llm.breaker.*", "llm.quota.*", subjects.BudgetStatus, "llm.provider_status.*",
	"llm.hook_status.*", subjects.ConfigStatus, subjects.StoreStatus,
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
	e := a.eventText(m)
	line := []string{a.out.paint(dim, e.at.In(a.loc).Format("15:04:05.000")), a.out.paint(e.colour, safe(m.Subject)), safe(e.text)}
	fmt.Fprintln(a.out, strings.Join(line, "  "))
}

// anyEvent writes the fields of an event that this version does not know.
func (a *app) anyEvent(data []byte) told {
	at := a.now()
	parsed := gjson.ParseBytes(data)
	if !json.Valid(data) || !parsed.IsObject() {
		return told{at, string(data), cyan}
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
	return told{at, strings.Join(fields, " "), cyan}
}
