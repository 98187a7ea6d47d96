package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

const needTools = wire.NeedTools

func tools() []vendors.Tool {
	return []vendors.Tool{
		{
			Name: "get_weather", Description: "The weather of a city.",
			Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string","description":"A city's name"},"units":{"type":"array","items":{"type":"string"}}},"required":["city"]}`),
		},
		{Name: "get_time", Description: "The time now.", Schema: json.RawMessage(`{"type":"object","properties":{"zone":{"type":"string"}}}`)},
	}
}

// dot is a PNG of one pixel.
const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

var schema = json.RawMessage(`{"type":"object","properties":{"title":{"type":"string"},"year":{"type":"integer"}},"required":["title","year"],"additionalProperties":false}`)

func user(text string) vendors.Turn { return vendors.Turn{Role: "user", Text: text} }

func model(text string) vendors.Turn { return vendors.Turn{Role: "assistant", Text: text} }

// requestCase is one thing to ask, and what a provider must be able to do for it.
type requestCase struct {
	ask   vendors.Seen
	needs wire.Need
}

// copied is what is asked, to be added to.
func (rc requestCase) copied() *vendors.Seen {
	ask := rc.ask
	return &ask
}

func requestCases() map[string]requestCase {
	calls := []vendors.Call{
		{ID: "call_a1", Name: "get_weather", Arguments: `{"city":"Zürich"}`},
		{ID: "call_b2", Name: "get_time", Arguments: `{}`},
	}
	asked := vendors.Turn{Role: "assistant", Calls: calls}
	spoken := vendors.Turn{Role: "assistant", Text: "Let me look.", Calls: calls[:1]}
	results := []vendors.Turn{
		{Role: "tool", ResultOf: "call_a1", Text: `{"temperature":21.5,"sky":"clear"}`},
		{Role: "tool", ResultOf: "call_b2", Text: "12:00, \"noon\""},
	}
	picture := vendors.Turn{Role: "user", Text: "What is this?", Images: []vendors.Image{{MediaType: "image/png", Base64: dot}}}
	pictures := vendors.Turn{Role: "user", Text: "And these?", Images: []vendors.Image{{MediaType: "image/png", Base64: dot}, {MediaType: "image/jpeg", Base64: "/9j/4AAQSkZJRg=="}}}
	link := vendors.Turn{Role: "user", Text: "What is this?", Images: []vendors.Image{{URL: "https://example.com/cat.png"}}}
	turns := func(all ...vendors.Turn) []vendors.Turn { return all }
	return map[string]requestCase{
		"plain":               {vendors.Seen{Messages: turns(user("Say \"hello\"\\ to wörld\n🚀"))}, 0},
		"system":              {vendors.Seen{System: "You are terse.\nVery.", Messages: turns(user("Hi"))}, 0},
		"many turns":          {vendors.Seen{System: "Be kind.", Messages: turns(user("Hi"), model("Hello"), user("How are you?"), model("Well."), user("Good."))}, 0},
		"long":                {vendors.Seen{Messages: turns(user(strings.Repeat("All work and no play. ", 20_000)))}, 0},
		"tools":               {vendors.Seen{Messages: turns(user("Weather?")), Tools: tools()}, needTools},
		"tools, auto":         {vendors.Seen{Messages: turns(user("Weather?")), Tools: tools(), ToolChoice: "auto"}, needTools},
		"tools, none":         {vendors.Seen{Messages: turns(user("Weather?")), Tools: tools(), ToolChoice: "none"}, needTools},
		"tools, any":          {vendors.Seen{Messages: turns(user("Weather?")), Tools: tools(), ToolChoice: "required"}, needTools | wire.NeedToolChoice},
		"tools, one":          {vendors.Seen{Messages: turns(user("Weather?")), Tools: tools(), ToolChoice: "name:get_time"}, needTools | wire.NeedToolChoice},
		"tool without schema": {vendors.Seen{Messages: turns(user("Time?")), Tools: []vendors.Tool{{Name: "now", Description: "The time."}}}, needTools},
		"tool results":        {vendors.Seen{Messages: append(turns(user("Weather and time?"), asked), results...), Tools: tools()}, needTools},
		"after tool results":  {vendors.Seen{Messages: append(append(turns(user("Weather and time?"), asked), results...), model("Fine."), user("Thanks!")), Tools: tools()}, needTools},
		"results, then any":   {vendors.Seen{System: "Be kind.", Messages: append(turns(user("Weather and time?"), asked), results...), Tools: tools(), ToolChoice: "required", Stop: []string{"END"}}, needTools | wire.NeedToolChoice},
		"results, then one":   {vendors.Seen{Messages: append(turns(user("Weather and time?"), asked), results...), Tools: tools(), ToolChoice: "name:get_time"}, needTools | wire.NeedToolChoice},
		"results, then none":  {vendors.Seen{Messages: append(turns(user("Weather and time?"), asked), results...), Tools: tools(), ToolChoice: "none"}, needTools},
		"image, JSON schema":  {vendors.Seen{System: "Be kind.", Messages: turns(picture), Format: "json_schema", Schema: schema, Stop: []string{"END", "4,"}}, wire.NeedImages | wire.NeedJSONSchema},
		"text with a call":    {vendors.Seen{Messages: turns(user("Weather?"), spoken, results[0]), Tools: tools()}, needTools},
		"image":               {vendors.Seen{Messages: turns(picture)}, wire.NeedImages},
		"images":              {vendors.Seen{Messages: turns(picture, model("A dot."), pictures)}, wire.NeedImages},
		"image by URL":        {vendors.Seen{Messages: turns(link)}, wire.NeedImages | wire.NeedImageURLs},
		"JSON":                {vendors.Seen{Messages: turns(user("Answer in JSON.")), Format: "json_object"}, wire.NeedJSONMode},
		"JSON schema":         {vendors.Seen{Messages: turns(user("A film, as JSON.")), Format: "json_schema", Schema: schema}, wire.NeedJSONSchema},
		"schema and tools":    {vendors.Seen{Messages: turns(user("A film, as JSON.")), Format: "json_schema", Schema: schema, Tools: tools()}, wire.NeedJSONSchema | needTools},
		"plain text":          {vendors.Seen{Messages: turns(user("Hi")), Format: "text"}, 0},
		"one stop":            {vendors.Seen{Messages: turns(user("Count.")), Stop: []string{"\n\n"}}, 0},
		"stops":               {vendors.Seen{Messages: turns(user("Count.")), Stop: []string{"END", "4,"}}, 0},
	}
}

// requests: what is asked is what the server hears.
func requests(t *testing.T, c *Case) {
	r := open(t, c)
	for name, rc := range requestCases() {
		if !c.can(rc.needs) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r.t = t
			for _, f := range forms {
				if slices.Contains(c.Refuses, name) {
					r.refused(f, &rc.ask)
					continue
				}
				g := r.ask(f, &rc.ask)
				r.holdHeard(f, &rc.ask)
				if len(g.resp.Warnings) > 0 {
					t.Errorf("%s: warnings %q", f, g.resp.Warnings)
				}
			}
		})
	}
}

// refused holds that a request which the model is known to refuse is not sent.
func (r *room) refused(f form, s *vendors.Seen) {
	r.t.Helper()
	before := r.Requests()
	g := r.call(r.t.Context(), f, f.body(s, nil), nil)
	if e := r.failed(f, g, subjects.KindProviderUnavailable); e != nil && e.Status() != http.StatusUnprocessableEntity {
		r.t.Errorf("%s: status %d, want 422", f, e.Status())
	}
	if n := r.Requests() - before; n != 0 {
		r.t.Errorf("%s: asked %d times", f, n)
	}
}

// holdHeard compares what the fake heard with what was asked.
func (r *room) holdHeard(f form, want *vendors.Seen) {
	r.t.Helper()
	h := r.heard()
	if want.ToolChoice == "none" && !r.c.can(wire.NeedToolChoice) { // an API without a choice says it by leaving them out
		without := *want
		without.Tools, without.ToolChoice = nil, ""
		want = &without
	}
	if name, ok := strings.CutPrefix(want.ToolChoice, "name:"); ok && r.c.NarrowsChoice {
		narrow := *want
		narrow.ToolChoice = "required"
		narrow.Tools = slices.DeleteFunc(slices.Clone(want.Tools), func(t vendors.Tool) bool { return t.Name != name })
		want = &narrow
	}
	check := func(what string, have, want any) {
		r.t.Helper()
		if fmt.Sprintf("%q", have) != fmt.Sprintf("%q", want) {
			r.t.Errorf("%s: the server heard the %s %.500q, want %.500q", f, what, have, want)
		}
	}
	check("model", h.Model, r.c.Model)
	check("system", h.System, want.System)
	check("stream", fmt.Sprint(h.Stream), fmt.Sprint(f.stream))
	check("stop", h.Stop, want.Stop)
	check("tool choice", orAuto(h.ToolChoice), orAuto(want.ToolChoice))
	check("format", orText(h.Format), orText(want.Format))
	if !sameSchema(h.Schema, want.Schema) {
		check("schema", string(h.Schema), string(want.Schema))
	}
	if f.stream && !h.StreamUsage {
		r.t.Errorf("%s: the usage of the stream was not asked for", f)
	}
	r.heardTools(f, h.Tools, want.Tools)
	if len(h.Messages) != len(want.Messages) {
		r.t.Errorf("%s: the server heard %d messages, want %d: %.1000q", f, len(h.Messages), len(want.Messages), fmt.Sprint(h.Messages))
		return
	}
	for i := range h.Messages {
		r.heardTurn(f, want, i, &h.Messages[i])
	}
}

func orAuto(s string) string {
	if s == "" {
		return "auto"
	}
	return s
}

func orText(s string) string {
	if s == "" {
		return "text"
	}
	return s
}

// sameSchema compares two schemas; none is that of any object.
func sameSchema(have, want json.RawMessage) bool {
	if len(want) == 0 {
		return len(have) == 0 || sameJSON(string(have), `{"type":"object"}`) || sameJSON(string(have), `{"type":"object","properties":{}}`)
	}
	return sameJSON(string(have), string(want))
}

func (r *room) heardTools(f form, have, want []vendors.Tool) {
	r.t.Helper()
	if len(have) != len(want) {
		r.t.Errorf("%s: the server heard %d tools, want %d", f, len(have), len(want))
		return
	}
	for i, h := range have {
		if h.Name != want[i].Name || h.Description != want[i].Description || !sameSchema(h.Schema, want[i].Schema) {
			r.t.Errorf("%s: the server heard the tool %s %q %s, want %s %q %s", f, h.Name, h.Description, h.Schema, want[i].Name, want[i].Description, want[i].Schema)
		}
	}
}

func (r *room) heardTurn(f form, want *vendors.Seen, i int, h *vendors.Turn) {
	r.t.Helper()
	w := &want.Messages[i]
	if h.Role != w.Role || !sameText(h.Text, w.Text, w.Role) {
		r.t.Errorf("%s: the server heard message %d as %s %.300q, want %s %.300q", f, i, h.Role, h.Text, w.Role, w.Text)
	}
	if fmt.Sprint(h.Images) != fmt.Sprint(w.Images) {
		r.t.Errorf("%s: the server heard the images %v in message %d, want %v", f, h.Images, i, w.Images)
	}
	if ref := r.reference(want, w.ResultOf); h.ResultOf != ref {
		r.t.Errorf("%s: the server heard message %d as the result of %q, want %q", f, i, h.ResultOf, ref)
	}
	if len(h.Calls) != len(w.Calls) {
		r.t.Errorf("%s: the server heard the calls %+v in message %d, want %+v", f, h.Calls, i, w.Calls)
		return
	}
	for j, c := range h.Calls {
		id := w.Calls[j].ID
		if !r.c.Voice.Traits().CallIDs {
			id = c.ID
		}
		if c.ID != id || c.Name != w.Calls[j].Name || !sameJSON(c.Arguments, w.Calls[j].Arguments) {
			r.t.Errorf("%s: the server heard the call %+v, want %+v", f, c, w.Calls[j])
		}
	}
}

// reference is how the API names the call of an id: by it, or by the tool's name.
func (r *room) reference(want *vendors.Seen, id string) string {
	if r.c.Voice.Traits().CallIDs {
		return id
	}
	for _, m := range want.Messages {
		for _, c := range m.Calls {
			if c.ID == id {
				return c.Name
			}
		}
	}
	return id
}

// sameText compares texts; a tool's result may stand in JSON that holds it.
func sameText(have, want, role string) bool {
	if have == want || role != "tool" {
		return have == want
	}
	var wrapped map[string]any
	if json.Unmarshal([]byte(have), &wrapped) != nil {
		return false
	}
	if sameJSON(have, want) {
		return true
	}
	for _, v := range wrapped {
		if s, ok := v.(string); ok && len(wrapped) == 1 {
			return s == want
		}
	}
	return false
}
