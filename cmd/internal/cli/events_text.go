package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/subjects"
)

// told is an event for people: when it was (now, where it does not say), and one
// line. The colour is that of its subject: cyan for news, green for what is well
// again, yellow and red for what is not.
type told struct {
	at     time.Time
	text   string
	colour colour
}

// eventTexts has the events of the contract by the beginning of their subjects.
// Each says false for a payload that is not its own.
var eventTexts = []struct {
	prefix string
	tell   func(a *app, data []byte) (told, bool)
}{
	{subjects.PoolSaturated, (*app).saturatedEvent},
	{subjects.BudgetStatus, (*app).budgetEvent},
	{subjects.ConfigStatus, (*app).configEvent},
	{"llm.breaker.", (*app).breakerEvent},
	{"llm.quota.", (*app).quotaEvent},
	{"llm.hook_status.", (*app).hookEvent},
	{"llm.usage.", (*app).usageEvent},
}

// eventText writes an event for people.
func (a *app) eventText(m *nats.Msg) told {
	for _, e := range eventTexts {
		if m.Subject != e.prefix && (!strings.HasSuffix(e.prefix, ".") || !strings.HasPrefix(m.Subject, e.prefix)) {
			continue
		}
		if t, ok := e.tell(a, m.Data); ok {
			if t.at.IsZero() {
				t.at = a.now()
			}
			return t
		}
	}
	return a.anyEvent(m.Data)
}

func (a *app) saturatedEvent(data []byte) (told, bool) {
	var e subjects.PoolSaturatedEvent
	ok := json.Unmarshal(data, &e) == nil && e.Provider != ""
	return told{e.At.Time, saturatedText(&e), yellow}, ok
}

func saturatedText(e *subjects.PoolSaturatedEvent) string {
	s := fmt.Sprintf("%s/%s %s: a call has waited %s, %d of %d active, %d queued",
		e.Provider, e.Model, e.Class, durationText(time.Duration(e.WaitedMs)*time.Millisecond), e.Active, e.Cap, e.Queued)
	if e.Suppressed > 0 {
		s += fmt.Sprintf(" (and %d more)", e.Suppressed)
	}
	return s
}

func (a *app) usageEvent(data []byte) (told, bool) {
	var r subjects.UsageRecord
	ok := json.Unmarshal(data, &r) == nil && r.ID != ""
	s := fmt.Sprintf("%s/%s %s by %s: %s in, %s out, %s, cost %s, %s",
		r.Provider, r.Model, r.Class, r.Process, count(r.InputTokens), count(r.OutputTokens),
		millis(r.LatencyMs), priceText(r.CostUSD), r.Outcome)
	if r.Cached {
		s += ", cached"
	}
	return told{r.Timestamp.Time, s, cyan}, ok
}

func (a *app) breakerEvent(data []byte) (told, bool) {
	var e subjects.BreakerEvent
	ok := json.Unmarshal(data, &e) == nil && e.Provider != "" && e.State != ""
	t := told{at: e.At.Time}
	switch e.State {
	case subjects.BreakerClosed:
		t.text, t.colour = fmt.Sprintf("%s: the breaker is closed, calls go there again", e.Provider), green
	case subjects.BreakerHalfOpen:
		t.text, t.colour = fmt.Sprintf("%s: the breaker is half-open, one call tries it and the others pass by", e.Provider), yellow
	default:
		why := breakerReason(&subjects.BreakerInfo{State: e.State, Reason: e.Reason, Failures: e.Failures})
		t.text, t.colour = fmt.Sprintf("%s: the breaker is %s%s, calls pass by%s", e.Provider, e.State, inBrackets(why), a.tried(e.RetryAt)), red
	}
	return t, ok
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// tried says when one call tries again.
func (a *app) tried(at *subjects.Time) string {
	if at == nil || at.IsZero() {
		return ""
	}
	return "; one call tries again at " + a.clock(at.Time)
}

func (a *app) quotaEvent(data []byte) (told, bool) {
	var e subjects.QuotaEvent
	ok := json.Unmarshal(data, &e) == nil && e.Provider != "" && e.State != ""
	name := e.Provider
	if e.Model != "" {
		name += "/" + e.Model
	}
	t := told{at: e.At.Time}
	switch e.State {
	case subjects.QuotaOK:
		t.text, t.colour = name+": the quota is there again", green
	case subjects.QuotaSoftLimit:
		t.text, t.colour = name+": the soft limit of this hour is passed; calls go on", yellow
	default:
		t.text, t.colour = fmt.Sprintf("%s: the quota is %s, calls pass by%s", name, e.State, a.tried(e.RetryAt)), red
		if e.ResetAt != nil {
			t.text += "; its provider says that it is back at " + a.clock(e.ResetAt.Time)
		}
	}
	return t, ok
}

func (a *app) budgetEvent(data []byte) (told, bool) {
	var e subjects.BudgetEvent
	ok := json.Unmarshal(data, &e) == nil && e.Scope != "" && e.Percent > 0
	name := e.Scope
	if e.ID != "" {
		name += " " + e.ID
	}
	amount := func(n float64) string { return count(int64(n)) + " tokens" }
	if e.Unit == "usd" {
		amount = func(n float64) string { return dollars(subjects.USD(n*1e6 + 0.5)) }
	}
	t := told{e.At.Time, fmt.Sprintf("%s: %d %% of the budget is used (%s of %s)", name, e.Percent, amount(e.Spent), amount(e.Limit)), yellow}
	if e.Percent >= 100 {
		t.colour = red
	}
	return t, ok
}

func (a *app) hookEvent(data []byte) (told, bool) {
	var e subjects.HookEvent
	ok := json.Unmarshal(data, &e) == nil && e.Hook != ""
	if e.OK {
		return told{e.At.Time, e.Hook + ": its service answers again", green}, ok
	}
	s := e.Hook + ": its service fails" + inBrackets(e.Reason)
	if e.OnError != "" {
		s += "; until it answers, calls go by onError: " + e.OnError
	}
	return told{e.At.Time, s, red}, ok
}

func (a *app) configEvent(data []byte) (told, bool) {
	var e subjects.ConfigEvent
	ok := json.Unmarshal(data, &e) == nil && (e.OK || e.Error != "")
	file := orElse(e.File, "the built-in configuration")
	if e.OK {
		return told{e.At.Time, file + ": taken over; calls that run keep what they started with", green}, ok
	}
	return told{e.At.Time, file + ": not taken over, the running configuration stays: " + strings.Join(strings.Split(e.Error, "\n"), "; "), red}, ok
}
