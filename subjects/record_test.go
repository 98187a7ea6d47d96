package subjects

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/quick"
	"time"
)

// TestRecordJSON: what AppendJSON writes is valid and reads back as the record,
// by encoding/json, for any record.
func TestRecordJSON(t *testing.T) {
	holds := func(s [12]string, n [6]int64, flags [3]bool, cost, saved *USD, trail []Attempt, position int) bool {
		r := UsageRecord{
			ID: s[0], Provider: s[1], Model: s[2], ModelRaw: s[3], Process: s[4], Task: s[5], Class: s[6], Tier: s[7],
			Outcome: s[8], PromptPreview: s[9], RunID: s[10], BatchID: s[11], InputTokens: n[0], OutputTokens: n[1], TotalTokens: n[2],
			CacheReadTokens: n[3], CacheWriteTokens: n[4], ReasoningTokens: n[5],
			TokensEstimated: flags[0], Cached: flags[1], Partial: flags[2],
			CostUSD: cost, SavedUSD: saved, AttemptTrail: trail, ChainPosition: position,
		}
		r.Timestamp = Time{time.UnixMilli(rand.Int64N(4e12)).UTC()}
		for _, f := range []*float64{&r.LatencyMs, &r.QueuedMs, &r.OverheadMs} {
			*f = float64(rand.Int64N(1e9)) / 1000
		}
		for _, m := range amounts(&r) {
			*m %= 1e12
		}
		b, err := json.Marshal(&r)
		if err != nil {
			t.Error(err)
			return false
		}
		var got UsageRecord
		if err := json.Unmarshal(b, &got); err != nil {
			t.Errorf("%v in %s", err, b)
			return false
		}
		if !got.Timestamp.Equal(r.Timestamp.Time) {
			t.Errorf("timestamp %v, was %v", got.Timestamp, r.Timestamp)
		}
		got.Timestamp = r.Timestamp
		if len(r.AttemptTrail) == 0 {
			got.AttemptTrail = r.AttemptTrail
		}
		return reflect.DeepEqual(got, r)
	}
	if err := quick.Check(holds, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

// amounts are those of a record that are known.
func amounts(r *UsageRecord) (all []*USD) {
	all = append(all, r.CostUSD, r.SavedUSD)
	for _, a := range r.AttemptTrail {
		if a.Spent != nil {
			all = append(all, a.Spent.CostUSD)
		}
	}
	return slices.DeleteFunc(all, func(u *USD) bool { return u == nil })
}

// mirror is a record without its methods: json.Marshal goes by its tags.
type mirror UsageRecord

// TestRecordJSONIsTheTypes: every field of the type is written, under the name
// of its tag and in its order.
func TestRecordJSONIsTheTypes(t *testing.T) {
	usd := USD(1_500_000)
	for _, r := range []UsageRecord{
		{},
		{ID: "a\"\\\n\x01\u2028é", CostUSD: &usd, LatencyMs: 1.25, RunID: "run", BatchID: "batch", AttemptTrail: []Attempt{
			{Provider: "p", Model: "m", Outcome: "TIMEOUT", Ms: 3, Spent: &Spent{}},
			{Provider: "p", Model: "m", Outcome: "TIMEOUT", Ms: 3, Spent: &Spent{
				Model: "m", Subscription: SubscriptionAPIKey, InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheWriteTokens: 4,
				ReasoningTokens: 5, Estimated: true, CostUSD: &usd,
			}},
			{Provider: "q", Outcome: OutcomeSkipped, Reason: "mode"},
		}},
	} {
		want, err := json.Marshal((*mirror)(&r))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.AppendJSON(nil); string(got) != string(want) {
			t.Errorf("\n%s\n%s", got, want)
		}
	}
}

// FuzzRecordJSON: a record read from any JSON is written as json.Marshal would
// write it, but for what is spelled another way (escapes, exponents), and what is
// written reads back as the same record.
func FuzzRecordJSON(f *testing.F) {
	usd := USD(21)
	f.Add((&UsageRecord{
		ID: "a", RunID: "r", BatchID: "b", CostUSD: &usd,
		AttemptTrail: []Attempt{{Provider: "p", Model: "m", Outcome: "TIMEOUT", Spent: &Spent{Model: "m", InputTokens: 1, Estimated: true, CostUSD: &usd}}},
	}).AppendJSON(nil))
	f.Add([]byte(`{"attempt_trail":[{"spent":{"model":"x","subscription":"local","reasoningTokens":-1,"cacheReadTokens":7,"cacheWriteTokens":8}},{"spent":null}]}`))
	f.Add([]byte(`{"id":"\u0008\ud800<&>","latency_ms":1e-9,"queued_ms":-0.5,"attempt_trail":[],"run_id":"","batch_id":"\u2029"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r UsageRecord
		if json.Unmarshal(data, &r) != nil {
			return
		}
		for _, m := range amounts(&r) {
			*m %= 1e12 // above, a float64 does not have each micro-dollar
		}
		for _, ms := range []*float64{&r.LatencyMs, &r.QueuedMs, &r.OverheadMs} {
			if *ms <= -1e15 || *ms >= 1e15 {
				*ms = 0
			}
		}
		got := r.AppendJSON(nil)
		want, err := json.Marshal((*mirror)(&r))
		if err != nil {
			t.Fatal(err)
		}
		if g, w := tokensOf(t, got), tokensOf(t, want); !slices.Equal(g, w) {
			t.Fatalf("%s\n%s", got, want)
		}
		var back UsageRecord
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatalf("%v in %s", err, got)
		}
		if again := back.AppendJSON(nil); !bytes.Equal(got, again) {
			t.Fatalf("%s\n%s", got, again)
		}
	})
}

// tokensOf are the tokens of JSON in their order.
func tokensOf(t *testing.T, data []byte) (all []json.Token) {
	t.Helper()
	for d := json.NewDecoder(bytes.NewReader(data)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		all = append(all, token)
	}
}

func FuzzAppendString(f *testing.F) {
	f.Add("plain")
	f.Add("\x00\xff\u2028")
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		if err := json.Unmarshal(AppendString(nil, s), &got); err != nil {
			t.Fatal(err)
		}
		want, _ := json.Marshal(s)
		var plain string
		_ = json.Unmarshal(want, &plain)
		if got != plain {
			t.Errorf("%q became %q", s, got)
		}
	})
}

func BenchmarkRecordJSON(b *testing.B) {
	r := UsageRecord{ID: NewCallID(), Timestamp: Time{time.Now()}, Provider: "openai", Model: "gpt-5", ModelRaw: "gpt-5-2026-01-01", Process: "wiki", Class: ClassIngestion, Tier: TierStandard, AttemptTrail: []Attempt{{Provider: "openai", Model: "gpt-5", Outcome: "ok", Ms: 10}}, PromptPreview: "Name three rivers of Europe"}
	b.ReportAllocs()
	for b.Loop() {
		r.AppendJSON(make([]byte, 0, 1024))
	}
}
