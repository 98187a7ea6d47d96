package conformance

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// ready: the check of a provider whose server is there finds nothing, and costs
// no call.
func ready(t *testing.T, c *Case) {
	r := open(t, c)
	if err := r.p.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	if calls := r.Calls(); len(calls) > 0 {
		t.Errorf("the check made a call: %s %s", calls[0].Method, calls[0].Path)
	}
}

// reported is the id that answers name: with a slash in it, as some have.
const reported = "maker/reported-model-20990101"

// answerCases are the answers that every provider must read. Each comes whole and
// as a stream.
func answerCases() map[string]*vendors.Answer {
	usage := vendors.Usage{Fresh: 21, Output: 9}
	weather := vendors.Call{ID: "call_a1", Name: "get_weather", Arguments: `{"city":"Zürich","units":["°C","°F"],"n":1.50,"deep":{"a":[1,{"b":null}]}}`}
	clock := vendors.Call{ID: "call_b2", Name: "get_time", Arguments: `{"zone":"Europe/Zurich"}`}
	return map[string]*vendors.Answer{
		"text":                   {Pieces: []string{"Hel", "lo, ", "wörld ", "🚀 ", "\"quoted\"\\\n\ttabbed", " </data>\u2028"}, Usage: usage},
		"one piece":              {Pieces: []string{"x"}, Usage: usage},
		"many pieces":            {Pieces: slices.Repeat([]string{"word "}, 200), Usage: usage},
		"no text":                {Usage: vendors.Usage{Fresh: 21}},
		"cut at the limit":       {Pieces: []string{"Once upon", " a ti"}, Finish: vendors.FinishLength, Usage: usage},
		"cut by a filter":        {Pieces: []string{"How to"}, Finish: vendors.FinishFilter, Usage: usage},
		"one tool call":          {Calls: []vendors.Call{weather}, Usage: usage},
		"parallel tool calls":    {Calls: []vendors.Call{weather, clock, {ID: "call_c3", Name: "get_weather", Arguments: `{"city":"Bern"}`}}, Usage: usage},
		"empty arguments":        {Calls: []vendors.Call{{ID: "call_d4", Name: "get_time"}}, Usage: usage},
		"empty, then arguments":  {Calls: []vendors.Call{{ID: "call_d4", Name: "get_time"}, weather}, Usage: usage},
		"text before calls":      {Pieces: []string{"Let me ", "look."}, Calls: []vendors.Call{weather, clock}, Usage: usage},
		"thoughts":               {Reasoning: "The user says hello; so should I.", Pieces: []string{"Hello."}, Usage: vendors.Usage{Fresh: 21, Output: 40, Reasoning: 31}},
		"thoughts before a call": {Reasoning: "I need the weather.", Calls: []vendors.Call{weather}, Usage: vendors.Usage{Fresh: 21, Output: 40, Reasoning: 31}},
		"cache read":             {Pieces: []string{"Hello."}, Usage: vendors.Usage{Fresh: 21, CacheRead: 1024, Output: 9}},
		"cache read and write":   {Pieces: []string{"Hello."}, Usage: vendors.Usage{Fresh: 21, CacheRead: 1024, CacheWrite: 512, Output: 9}},
		"all usage":              {Reasoning: "Hm.", Pieces: []string{"Hello."}, Usage: vendors.Usage{Fresh: 3, CacheRead: 4096, CacheWrite: 77, Output: 60, Reasoning: 55}},
		"prompt all cached":      {Pieces: []string{"Hello."}, Usage: vendors.Usage{CacheRead: 4096, Output: 9}},
		"no usage":               {Pieces: []string{"Hello, ", "wörld."}, NoUsage: true},
		"calls, no usage":        {Calls: []vendors.Call{weather}, NoUsage: true},
	}
}

// withTools is what is asked where the answer may have tool calls.
func withTools() *vendors.Seen {
	s := hello()
	s.Tools = tools()
	return s
}

func answers(t *testing.T, c *Case) {
	r := open(t, c)
	for name, a := range answerCases() {
		if len(a.Calls) > 0 && !c.can(needTools) || !c.finishes(a.End()) {
			continue
		}
		a.Model = reported
		t.Run(name, func(t *testing.T) {
			r.t = t
			for _, f := range forms {
				ask := hello()
				if len(a.Calls) > 0 {
					ask = withTools()
				}
				r.Next(vendors.Script{Answer: a})
				r.holdAgainst(f, a, r.ask(f, ask))
			}
		})
	}
}

// holdAgainst compares what a caller got with what the fake said.
func (r *room) holdAgainst(f form, a *vendors.Answer, g *got) {
	r.t.Helper()
	if g.text != a.Text() {
		r.t.Errorf("%s: text %.200q, want %.200q", f, g.text, a.Text())
	}
	if g.finish != a.End() {
		r.t.Errorf("%s: finish reason %q, want %q", f, g.finish, a.End())
	}
	r.sameCalls(f, a.Calls, g.calls)
	r.sameUsage(f, a, g)
	if a.Model != "" && g.resp.Model != a.Model {
		r.t.Errorf("%s: model %q, want %q", f, g.resp.Model, a.Model)
	}
	if least := wrote(a); g.resp.OutputBytes < least {
		r.t.Errorf("%s: %d bytes of output, want %d at least", f, g.resp.OutputBytes, least)
	}
	for name := range r.c.Voice.Traits().Header {
		if lower := strings.ToLower(name); strings.Contains(lower, "ratelimit") && g.resp.RateLimit[lower] == "" {
			r.t.Errorf("%s: the header %s is not reported: %v", f, name, g.resp.RateLimit)
		}
	}
	if len(g.resp.Warnings) > 0 {
		r.t.Errorf("%s: warnings %q, and nothing was left out", f, g.resp.Warnings)
	}
}

// wrote is how many bytes the model wrote at least.
func wrote(a *vendors.Answer) int64 {
	n := len(a.Text())
	for _, c := range a.Calls {
		n += len(compact(c.Arguments))
	}
	return int64(n)
}

func compact(s string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(s)) != nil {
		return s
	}
	return b.String()
}

// sameCalls compares the calls in their order: ids where the API has them,
// arguments as JSON.
func (r *room) sameCalls(f form, want, have []vendors.Call) {
	r.t.Helper()
	if len(want) != len(have) {
		r.t.Errorf("%s: tool calls %+v, want %+v", f, have, want)
		return
	}
	ids := map[string]bool{}
	for i, c := range have {
		// An answer of the caller's own wire goes through as it is, also an empty text.
		asItIs := f.wire == wire.OpenAIChat && c.Arguments == "" && want[i].Arguments == ""
		if c.Name != want[i].Name || !asItIs && !sameJSON(c.Arguments, want[i].Arguments) {
			r.t.Errorf("%s: tool call %+v, want %+v", f, c, want[i])
		}
		if c.ID == "" || ids[c.ID] || r.c.Voice.Traits().CallIDs && c.ID != want[i].ID {
			r.t.Errorf("%s: tool call id %q, want %q", f, c.ID, want[i].ID)
		}
		ids[c.ID] = true
	}
}

// sameJSON compares two JSON texts; none at all is the empty object, in what was
// said and not in what was got.
func sameJSON(have, want string) bool {
	if want == "" {
		want = "{}"
	}
	var a, b any
	for text, to := range map[string]*any{have: &a, want: &b} {
		dec := json.NewDecoder(bytes.NewReader([]byte(text)))
		dec.UseNumber()
		if dec.Decode(to) != nil {
			return false
		}
	}
	if have == want {
		return true
	}
	return reflect.DeepEqual(a, b)
}

// expected is the usage by the contract, without what the API cannot say.
func (c *Case) expected(u vendors.Usage) subjects.Usage {
	has := c.Voice.Traits()
	if !has.CacheRead { // then they are part of the prompt, or not counted
		u.CacheRead = 0
	}
	if !has.CacheWrite {
		u.CacheWrite = 0
	}
	if !has.Reasoning {
		u.Reasoning = 0
	}
	return subjects.Usage{
		InputTokens: u.Fresh, OutputTokens: u.Output, TotalTokens: u.Fresh + u.Output,
		CacheReadTokens: u.CacheRead, CacheWriteTokens: u.CacheWrite, ReasoningTokens: u.Reasoning,
	}
}

func (r *room) sameUsage(f form, a *vendors.Answer, g *got) {
	r.t.Helper()
	if a.NoUsage {
		if g.resp.UsageKnown {
			r.t.Errorf("%s: usage %+v is said to be known, and the server gave none", f, g.resp.Usage)
		}
		return
	}
	want := r.c.expected(a.Usage)
	if !g.resp.UsageKnown || g.resp.Usage != want {
		r.t.Errorf("%s: usage %+v (known: %t), want %+v", f, g.resp.Usage, g.resp.UsageKnown, want)
	}
	if g.usage != want {
		r.t.Errorf("%s: the caller reads the usage %+v, want %+v", f, g.usage, want)
	}
}
