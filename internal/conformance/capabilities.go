package conformance

import (
	"bytes"
	"testing"

	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/wire"
)

// exercise is a request that needs one capability, and how to see in what the
// server heard that it was not left out.
type exercise struct {
	need wire.Need
	// also is what it needs beside.
	also    wire.Need
	form    form
	ask     func(*vendors.Seen)
	more    object
	carried func(*vendors.Seen) bool
}

func chatParts(part object) object {
	return object{"messages": []any{object{"role": "user", "content": []any{object{"type": "text", "text": "Read this."}, part}}}}
}

func exercises() []exercise {
	native, chat := form{wire.Native, false}, form{wire.OpenAIChat, false}
	withImage := func(img vendors.Image) func(*vendors.Seen) {
		return func(s *vendors.Seen) { s.Messages[0].Images = []vendors.Image{img} }
	}
	hasImage := func(h *vendors.Seen) bool { return len(h.Messages) == 1 && len(h.Messages[0].Images) == 1 }
	return []exercise{
		{wire.NeedTools, 0, native, func(s *vendors.Seen) { s.Tools = tools() }, nil, func(h *vendors.Seen) bool { return len(h.Tools) == 2 }},
		{wire.NeedToolChoice, needTools, native, func(s *vendors.Seen) { s.Tools, s.ToolChoice = tools(), "required" }, nil, func(h *vendors.Seen) bool { return h.ToolChoice == "required" }},
		{wire.NeedImages, 0, native, withImage(vendors.Image{MediaType: "image/png", Base64: dot}), nil, hasImage},
		{wire.NeedImageURLs, wire.NeedImages, native, withImage(vendors.Image{URL: "https://example.com/cat.png"}), nil, hasImage},
		{wire.NeedJSONMode, 0, native, func(s *vendors.Seen) { s.Messages[0].Text, s.Format = "As JSON.", "json_object" }, nil, func(h *vendors.Seen) bool { return h.Format == "json_object" }},
		{wire.NeedJSONSchema, 0, native, func(s *vendors.Seen) { s.Format, s.Schema = "json_schema", schema }, nil, func(h *vendors.Seen) bool { return h.Format == "json_schema" }},
		{wire.NeedStreaming, 0, form{wire.Native, true}, func(*vendors.Seen) {}, nil, func(h *vendors.Seen) bool { return h.Stream }},
		{wire.NeedDocuments, 0, chat, nil, chatParts(object{"type": "file", "file": object{"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjQK"}}), inBody("JVBERi0xLjQK")},
		{wire.NeedAudio, 0, chat, nil, chatParts(object{"type": "input_audio", "input_audio": object{"data": "UklGRiQAAABXQVZF", "format": "wav"}}), inBody("UklGRiQAAABXQVZF")},
		{wire.NeedChoices, 0, chat, nil, object{"n": 2}, inBody(`"n":2`)},
		{wire.NeedLogProbs, 0, chat, nil, object{"logprobs": true, "top_logprobs": 2}, inBody(`"top_logprobs":2`)},
		{wire.NeedOpenAIChat, needTools, chat, nil, object{"tools": []any{object{"type": "custom", "custom": object{"name": "raw_text"}}}}, inBody(`"raw_text"`)},
	}
}

// capabilities: each is declared and works, or is not declared, and then a
// request that needs it does not go out without it.
func capabilities(t *testing.T, c *Case) {
	r := open(t, c)
	if err := r.p.Check(t.Context()); err != nil { // what some can do is known when their server was looked at
		t.Errorf("Check: %v", err)
	}
	if have := r.p.Capabilities(); have != every&^c.Cannot {
		t.Errorf("declared: %s; missing: %s; too many: %s", have, (every &^ c.Cannot).Missing(have), have.Missing(every&^c.Cannot))
	}
	r.MayRefuse()
	tested := wire.Need(0)
	for _, ex := range exercises() {
		tested |= ex.need
		t.Run(ex.need.String(), func(t *testing.T) {
			r.t = t
			ask := hello()
			if ex.ask != nil {
				ex.ask(ask)
			}
			body := ex.form.body(ask, ex.more)
			if req, err := wire.Parse(ex.form.wire, body); err != nil || req.Head.Needs != ex.need|ex.also {
				t.Fatalf("the suite's own request needs %s, want %s: %v", req.Head.Needs, ex.need|ex.also, err)
			}
			g := r.call(t.Context(), ex.form, body, nil)
			var carried bool
			if g.err == nil {
				carried = ex.carried(r.heard()) || bytes.Contains(r.heard().Body, body)
			}
			switch {
			case c.can(ex.need|ex.also) && !carried:
				t.Errorf("declared, and not carried: %v", g.err)
			case !c.can(ex.need|ex.also) && g.err == nil && !carried:
				t.Errorf("not declared, and the request went out without it:\n%.600s", r.heard().Body)
			}
		})
	}
	if tested != every {
		t.Errorf("no exercise for %s", every.Missing(tested))
	}
}
