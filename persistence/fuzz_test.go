package persistence

import (
	"bytes"
	"encoding/json"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/subjects"
)

// Keys round-trip and sort by time.
func FuzzRollupKey(f *testing.F) {
	f.Add(int64(0), "claude-code", "a/b", "100%/x", int64(29556720))
	f.Add(int64(59), "", "%2F", "%252F", int64(1))
	f.Add(int64(1<<62), "\x00", "\xff/", "ü", int64(1<<62-1))
	f.Fuzz(func(t *testing.T, minute int64, provider, process, model string, other int64) {
		minute &= 1<<63 - 1
		other &= 1<<63 - 1
		n := names{provider, process, model}
		for _, r := range resolutions {
			key := r.key(minute, string(n.appendSeries(nil)))
			if !bytes.HasPrefix(key, r.prefix()) {
				t.Fatalf("%x", key)
			}
			gotMinute, series, err := splitRollup(key)
			if err != nil || gotMinute != minute {
				t.Fatalf("%d, %v", gotMinute, err)
			}
			if got, err := parseSeries(series); err != nil || got != n {
				t.Fatalf("%+v, %v", got, err)
			}
			if other != minute && (bytes.Compare(key, r.key(other, "")) < 0) != (minute < other) {
				t.Fatalf("%d and %d sort by something else", minute, other)
			}
		}
	})
}

func FuzzRowKey(f *testing.F) {
	f.Add(uint64(0), uint32(1), uint64(1))
	f.Add(uint64(maxTime), uint32(1<<31), uint64(1<<63))
	f.Fuzz(func(t *testing.T, ms uint64, gen uint32, seq uint64) {
		ref := rowRef{ms, gen, seq}
		got, err := parseRowRef(ref.key()[len(rowPrefix):])
		if err != nil || got != ref {
			t.Fatalf("%+v, %v", got, err)
		}
		if got, err = parseIndex(ref.append([]byte{version})); err != nil || got != ref {
			t.Fatalf("%+v, %v", got, err)
		}
	})
}

// Whatever comes as a record is refused or stored as JSON that measures the same.
func FuzzRecord(f *testing.F) {
	good, err := json.Marshal(record(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"id":"a","timestamp":"0001-01-01T00:00:00Z","latency_ms":-1e308,"model":"` + "\xff\xfe" + `"}`))
	f.Add([]byte(`{"id":"a","ID":"b","input_tokens":9223372036854775807,"cost_usd":-0.5}`))
	f.Add([]byte(`{"id":"a","run_id":"` + "\xff" + `","attempt_trail":[{"provider":"p","spent":{"model":"m","inputTokens":9223372036854775807,"outputTokens":1,"costUsd":-1}}]}`))
	f.Add([]byte("[]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := measure(data, nil)
		if err != nil {
			return
		}
		row, err := unpackRow(new(packer).pack(m.data))
		if err != nil || !json.Valid(row) || !utf8.Valid(row) || utf8.Valid(data) && !bytes.Equal(row, data) {
			t.Fatalf("%q, %v", row, err)
		}
		again, err := measure(row, nil)
		if err != nil || again.id != m.id || again.ms != m.ms || again.names != m.names || again.counts != m.counts ||
			!slices.Equal(again.tries, m.tries) || again.spend != m.spend || again.run != m.run || again.batch != m.batch {
			t.Fatalf("%+v, then %+v, %v", m, again, err)
		}
		for i, c := range m.counts {
			if c < 0 {
				t.Fatalf("counter %d is %d", i, c)
			}
		}
		all := []string{m.names.provider, m.names.process, m.names.model}
		for _, try := range m.tries {
			all = append(all, try.names.provider, try.names.model)
		}
		for _, n := range all {
			if n == "" || len(n) > subjects.MaxName || !utf8.ValidString(n) {
				t.Fatalf("name %q", n)
			}
		}
		if m.ms > maxTime {
			t.Fatalf("%d ms", m.ms)
		}
	})
}

// Values from a damaged disk are refused or read, never a panic.
func FuzzValues(f *testing.F) {
	f.Add(new(packer).pack([]byte(strings.Repeat("x", 40))))
	f.Add((&counters{1, 2, 3}).encode())
	f.Add(cursor{1, 2, 3, 4, spend{5, 6, 7, 8}, "A"}.encode())
	f.Add((&spend{1, 2, 3, 4}).encode())
	f.Add(rowRef{1, 2, 3}.append([]byte{version}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if row, err := unpackRow(b); err == nil && len(row) > maxRecord {
			t.Fatalf("%d bytes", len(row))
		}
		var c counters
		if c.decode(b) == nil && !bytes.Equal(c.encode(), b) {
			t.Fatal("counters")
		}
		var cur cursor
		if cur.decode(b) == nil && b[0] == cursorVersion && !bytes.Equal(cur.encode(), b) {
			t.Fatal("cursor")
		}
		var sum spend
		if sum.decode(b) == nil && !bytes.Equal(sum.encode(), b) {
			t.Fatal("sum of spending")
		}
		_, _ = parseIndex(b)
		if _, series, err := splitRollup(b); err == nil {
			_, _ = parseSeries(series)
		}
	})
}

// The dictionary is part of the format: rows on disk cannot be read with another.
func TestRowDictionaryIsFixed(t *testing.T) {
	if sum := crc32.ChecksumIEEE([]byte(rowDictText)); sum != 0xb857e51a {
		t.Fatalf("rowDictText has changed (%#08x): make another row format instead", sum)
	}
}
