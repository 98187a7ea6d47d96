package sluice_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/sluice-llm/sluice/internal/fakeopenai"
	"github.com/sluice-llm/sluice/subjects"
)

// TestCosts runs calls with a price, without one, on an account that is not
// billed by token, and one that is refused, and holds what their results, their
// records and the sums say they cost: what is not known is null in the one and
// counted apart in the other.
func TestCosts(t *testing.T) {
	up := fakeopenai.New(fakeopenai.WithScript(func(_ int, r *fakeopenai.Request) fakeopenai.Behaviour {
		b := fakeopenai.Behaviour{Model: r.Model, Usage: &fakeopenai.Usage{Prompt: 3000, Completion: 500, Cached: 2000, Reasoning: 100}}
		switch r.Model {
		case "gpt-5.4":
			b.Model = "gpt-5.4-2026-03-05"
		case "gpt-refused":
			b = fakeopenai.Behaviour{Status: 401}
		}
		return b
	})).Start(t)
	r := newRig(t, up)
	r.cancels = true // the mock's slots are no calls of the upstream
	const unknown = -1
	calls := []struct {
		model string
		micro int64 // of the result; unknown = null
		fails bool
	}{
		{"openai/gpt-5.4", 1000*5/2 + 500*15 + 2000/4, false},
		{"openai/gpt-5.4", 10_500, false},
		{"openai/gpt-nobody-priced", unknown, false},
		{"mock/mock-fast", 0, false},
		{"openai/gpt-refused", 0, true},
	}
	for i, c := range calls {
		body := fmt.Sprintf(`{"model":%q,"skipCache":true,"messages":[{"role":"user","content":"hello"}]}`, c.model)
		subject := subjects.Complete(subjects.ClassInteractive)
		if c.fails {
			subject = subjects.Provider("openai")
		}
		msg, err := r.client.Request(r.ctx, &subjects.Msg{Subject: subject, Data: []byte(body)})
		if (err != nil) != c.fails {
			t.Fatalf("call %d: %v", i, err)
		}
		if c.fails {
			continue
		}
		var res subjects.Result
		if err := json.Unmarshal(msg.Data, &res); err != nil {
			t.Fatal(err)
		}
		if got := microOf(res.CostUSD, unknown); got != c.micro {
			t.Errorf("call %d, %s: cost %d in %s", i, c.model, got, msg.Data)
		}
	}
	var want subjects.UsageTotals
	totals := r.usage()
	for _, row := range r.recent() {
		want.Calls++
		if row.CostUSD == nil {
			want.Unpriced++
			want.UnpricedTokens += row.TotalTokens
		} else {
			want.CostUSD += *row.CostUSD
		}
	}
	if totals.Calls != want.Calls || totals.CostUSD != want.CostUSD || totals.Unpriced != want.Unpriced ||
		totals.UnpricedTokens != want.UnpricedTokens || totals.SavedUSD != 0 || totals.SavedUnknown != 0 {
		t.Errorf("totals %+v, rows %+v", totals, want)
	}
	if want.Calls != 5 || want.CostUSD != 21_000 || want.Unpriced != 1 || want.UnpricedTokens != 1500 {
		t.Errorf("rows %+v", want)
	}
}

func microOf(usd *subjects.USD, null int64) int64 {
	if usd == nil {
		return null
	}
	return int64(*usd)
}
