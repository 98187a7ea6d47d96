package persistence

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/subjects"
)

// FuzzDecode: decode and encoding/json agree on every record, but for the preview
// and for a trail in which no try spent anything, which the database does not read.
func FuzzDecode(f *testing.F) {
	usd := subjects.USD(12)
	full := &subjects.UsageRecord{
		ID: "a\"é\\", Timestamp: subjects.Time{Time: time.UnixMilli(1_796_063_565_123)}, Provider: "p", Process: "q",
		InputTokens: 1, CostUSD: &usd, LatencyMs: 1.25, Cached: true, AttemptTrail: []subjects.Attempt{{Provider: "p", Outcome: "ok"}}, PromptPreview: "x",
	}
	f.Add(full.AppendJSON(nil))
	for _, s := range []string{
		`{}`, `[]`, `null`, `{"id":1}`, `{"ID":"x"}`, `{"id":"a","id":"b"}`, `{"input_tokens":1.5}`, `{"input_tokens":1e3}`, `{"input_tokens":"1"}`,
		`{"timestamp":"2026-11-30T19:00:00+01:00"}`, `{"timestamp":"yesterday"}`, `{"cost_usd":null}`, `{"cost_usd":"1"}`, `{"cached":null}`, `{"attempt_trail":{}}`,
		`{"run_id":"r","batch_id":"b"}`, `{"run_id":null}`, `{"run_id":1}`, `{"attempt_trail":null,"run_id":"r"}`,
		`{"attempt_trail":[{"provider":"p","spent":{"model":"m","subscription":"api-key","inputTokens":3,"outputTokens":4,"costUsd":0.5}}]}`,
		`{"attempt_trail":[{"provider":"p"},{"sp\u0065nt":{"inputTokens":3}}]}`, `{"attempt_trail":[{"SPENT":{"inputTokens":3}}]}`,
		`{"attempt_trail":[{"ſpent":{"inputTokens":3}}]}`, `{"attempt_trail":[{"spent":{"inputTokens":3}}],"attempt_trail":[]}`,
		`{"attempt_trail":[{"provider":"p"}],"attempt_trail":[{"spent":{"inputTokens":3}}]}`, `{"attempt_trail":[{"spent":{"inputTokens":3}}],"attempt_trail":null}`,
		`{"attempt_trail":[{"spent":{"inputTokens":3.5}}]}`, `{"attempt_trail":[{"spent":null}]}`, `{"attempt_trail":[1,"spent"]}`, `{"attempt_trail":[{"outcome":"spent"}]}`,
		`{"latency_ms":null}`, `{"provider":null}`, `{"id":"\ud800"}`, `{"unknown":1}`, ` {"id":"x"} `, `{"id":"x"}}`, `{"i\u0064":"x"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !utf8.Valid(data) {
			return // measure has replaced such bytes
		}
		var want subjects.UsageRecord
		wantErr := json.Unmarshal(data, &want)
		got, err := decode(data)
		if (err == nil) != (wantErr == nil) {
			if wantErr != nil && err == nil { // a fault in the two fields that are not read
				return
			}
			t.Fatalf("%q: %v, encoding/json says %v", data, err, wantErr)
		}
		if err != nil {
			return
		}
		if !got.Timestamp.Equal(want.Timestamp.Time) {
			t.Fatalf("%q: %v, want %v", data, got.Timestamp, want.Timestamp)
		}
		got.Timestamp = want.Timestamp
		got.PromptPreview = want.PromptPreview
		if !slices.ContainsFunc(want.AttemptTrail, func(a subjects.Attempt) bool { return a.Spent != nil }) {
			got.AttemptTrail, want.AttemptTrail = nil, nil
		}
		if !reflect.DeepEqual(*got, want) {
			t.Fatalf("%q:\n%+v\n%+v", data, *got, want)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	usd := subjects.USD(0)
	r := &subjects.UsageRecord{
		ID: subjects.NewCallID(), Timestamp: subjects.Time{Time: time.Now()}, Provider: "openai", Model: "gpt-5", ModelRaw: "gpt-5", Process: "wiki",
		CostUSD: &usd, AttemptTrail: []subjects.Attempt{{Provider: "openai", Outcome: "ok"}}, PromptPreview: "Name three rivers",
	}
	data := r.AppendJSON(nil)
	r.RunID = "run-1"
	r.AttemptTrail = append([]subjects.Attempt{{Provider: "groq", Outcome: "TIMEOUT", Spent: &subjects.Spent{Model: "m", InputTokens: 9, CostUSD: &usd}}}, r.AttemptTrail...)
	spent := r.AppendJSON(nil)
	b.Run("plain", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decode(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("spent", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decode(spent); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var r subjects.UsageRecord
			if err := json.Unmarshal(data, &r); err != nil {
				b.Fatal(err)
			}
		}
	})
}
