package subjects

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/quick"
	"time"
)

// TestRecordJSON: what AppendJSON writes is valid and reads back as the record,
// by encoding/json, for any record.
func TestRecordJSON(t *testing.T) {
	holds := func(s [10]string, n [6]int64, flags [3]bool, cost, saved *USD, trail []Attempt, position int) bool {
		r := UsageRecord{
			ID: s[0], Provider: s[1], Model: s[2], ModelRaw: s[3], Process: s[4], Task: s[5], Class: s[6], Tier: s[7],
			Outcome: s[8], PromptPreview: s[9], InputTokens: n[0], OutputTokens: n[1], TotalTokens: n[2],
			CacheReadTokens: n[3], CacheWriteTokens: n[4], ReasoningTokens: n[5],
			TokensEstimated: flags[0], Cached: flags[1], Partial: flags[2],
			CostUSD: cost, SavedUSD: saved, AttemptTrail: trail, ChainPosition: position,
		}
		r.Timestamp = Time{time.UnixMilli(rand.Int64N(4e12)).UTC()}
		for _, f := range []*float64{&r.LatencyMs, &r.QueuedMs, &r.OverheadMs} {
			*f = float64(rand.Int64N(1e9)) / 1000
		}
		for _, m := range []**USD{&r.CostUSD, &r.SavedUSD} {
			if *m != nil {
				**m %= 1e12
			}
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

// TestRecordJSONIsTheTypes: every field of the type is written, under the name
// of its tag and in its order.
func TestRecordJSONIsTheTypes(t *testing.T) {
	type mirror UsageRecord // without the methods
	usd := USD(1_500_000)
	r := UsageRecord{ID: "a\"\\\n\x01\u2028é", CostUSD: &usd, LatencyMs: 1.25, AttemptTrail: []Attempt{{Provider: "p", Model: "m", Outcome: "ok", Ms: 3}, {Provider: "q", Outcome: OutcomeSkipped, Reason: "mode"}}}
	want, err := json.Marshal((*mirror)(&r))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.AppendJSON(nil); string(got) != string(want) {
		t.Errorf("\n%s\n%s", got, want)
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
