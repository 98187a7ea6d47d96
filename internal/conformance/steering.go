package conformance

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/wire"
)

func ptr[T any](v T) *T { return &v }

// steer is one thing that steers.
type steer struct {
	// names are the field's, on the native wire and in openai-chat: a warning says
	// one of them.
	names []string
	// ask asks for it; carried says whether the server heard it.
	ask     func(s *vendors.Seen)
	carried func(h *vendors.Seen) bool
	// more is for what only openai-chat can say.
	more object
}

func steers() []steer {
	return []steer{
		{[]string{"temperature"}, func(s *vendors.Seen) { s.Temperature = ptr(0.25) }, func(h *vendors.Seen) bool { return same(h.Temperature, 0.25) }, nil},
		{[]string{"topP", "top_p"}, func(s *vendors.Seen) { s.TopP = ptr(0.875) }, func(h *vendors.Seen) bool { return same(h.TopP, 0.875) }, nil},
		{[]string{"maxTokens", "max_tokens", "max_completion_tokens"}, func(s *vendors.Seen) { s.MaxTokens = ptr(int64(1234)) }, func(h *vendors.Seen) bool { return same(h.MaxTokens, 1234) }, nil},
		{[]string{"seed"}, func(s *vendors.Seen) { s.Seed = ptr(int64(4711)) }, func(h *vendors.Seen) bool { return same(h.Seed, 4711) }, nil},
		{[]string{"reasoningEffort", "reasoning_effort"}, func(s *vendors.Seen) { s.Effort = "low" }, func(h *vendors.Seen) bool { return h.Effort != "" }, nil},
		{[]string{"parallelToolCalls", "parallel_tool_calls"}, func(s *vendors.Seen) { s.Tools, s.Parallel = tools(), ptr(false) }, func(h *vendors.Seen) bool { return same(h.Parallel, false) }, nil},
		{[]string{"frequency_penalty", "frequencyPenalty"}, nil, inBody("0.4375"), object{"frequency_penalty": 0.4375}},
		{[]string{"presence_penalty", "presencePenalty"}, nil, inBody("0.5625"), object{"presence_penalty": 0.5625}},
		{[]string{"user"}, nil, inBody("user-9917"), object{"user": "user-9917"}},
		{[]string{"metadata"}, nil, inBody("meta-9917"), object{"metadata": object{"k": "meta-9917"}}},
	}
}

func inBody(text string) func(*vendors.Seen) bool {
	return func(h *vendors.Seen) bool { return bytes.Contains(h.Body, []byte(text)) }
}

func same[T comparable](have *T, want T) bool { return have != nil && *have == want }

// steering: what steers reaches the server or stands in the warnings, and never
// neither, nor both.
func steering(t *testing.T, c *Case) {
	r := open(t, c)
	for _, st := range steers() {
		t.Run(st.names[0], func(t *testing.T) {
			r.t = t
			for _, f := range forms {
				if st.more != nil && f.wire != wire.OpenAIChat {
					continue
				}
				r.steer(f, &st, hello())
				if c.can(needTools) { // which no wire can take over as it is
					r.steer(f, &st, requestCases()["tool results"].copied())
				}
			}
		})
	}
	t.Run("all at once", func(t *testing.T) {
		r.t = t
		all := hello()
		more := object{}
		for _, st := range steers() {
			if st.ask != nil {
				st.ask(all)
			}
			for k, v := range st.more {
				more[k] = v
			}
		}
		for _, f := range forms {
			if f.wire != wire.OpenAIChat {
				more = nil
			}
			if g := r.call(t.Context(), f, f.body(all, more), nil); g.err != nil {
				t.Errorf("%s: %v", f, g.err)
			}
			more = steers()[6].more
		}
	})
}

// steer asks for one thing beside ask.
func (r *room) steer(f form, st *steer, ask *vendors.Seen) {
	r.t.Helper()
	if st.ask != nil {
		st.ask(ask)
	}
	if ask.Tools != nil && !r.c.can(needTools) {
		return
	}
	g := r.call(r.t.Context(), f, f.body(ask, st.more), nil)
	if g.err != nil {
		r.t.Errorf("%s: %v", f, g.err)
		return
	}
	r.carriedOrWarned(f, st, g.resp)
}

func (r *room) carriedOrWarned(f form, st *steer, resp *wire.Response) {
	r.t.Helper()
	carried := st.carried(r.heard())
	warned := 0
	for _, w := range resp.Warnings {
		for _, n := range st.names {
			if strings.HasPrefix(w, n+" ") {
				warned++
				break
			}
		}
	}
	if warned != len(resp.Warnings) {
		r.t.Errorf("%s: warnings of something else: %q", f, resp.Warnings)
	}
	if carried && warned == 0 || !carried && warned == 1 {
		return
	}
	r.t.Errorf("%s: %s: the server heard it: %t; warnings: %q; want one of the two\n%s", f, st.names[0], carried, resp.Warnings, fmt.Sprintf("%.600s", r.heard().Body))
}
