package persistence

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// BenchmarkApply is the write of a batch of a few seconds, decoding included;
// ns/record is the figure to compare.
func BenchmarkApply(b *testing.B) {
	for _, size := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := openTest(b, b.TempDir())
			var batch []Entry
			for i := range uint64(size) {
				r := record(i + 1)
				r.Timestamp.Time = noon.Add(time.Duration(i) * 20 * time.Millisecond)
				batch = append(batch, entryOf(b, i+1, r))
			}
			data := make([]string, size)
			for i := range batch {
				data[i] = string(batch[i].Data[len(`{"id":"call-00000000"`):])
			}
			seq := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				for i := range batch {
					seq++
					batch[i] = Entry{Seq: seq, Data: fmt.Appendf(batch[i].Data[:0], `{"id":"call-%08d"%s`, seq, data[i])}
				}
				if _, err := s.Apply("A", batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(seq), "ns/record")
		})
	}
}

// month is a store with 30 days of a record per minute in each of 20 series.
func month(b *testing.B) *Store {
	b.Helper()
	const series, minutes = 20, 30 * 24 * 60
	s := openTest(b, b.TempDir())
	batch := make([]Entry, 0, series)
	r := record(1)
	seq := uint64(0)
	r.AttemptTrail, r.PromptPreview = nil, ""
	for m := range minutes {
		batch = batch[:0]
		for i := range series {
			seq++
			r.ID = fmt.Sprint(seq)
			r.Timestamp.Time = noon.Add(-time.Duration(minutes-m) * time.Minute)
			r.Provider, r.Process, r.Model = fmt.Sprint("provider-", i%4), fmt.Sprint("process-", i%5), fmt.Sprint("model-", i%2)
			batch = append(batch, entryOf(b, seq, r))
		}
		if _, err := s.Apply("A", batch); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

func BenchmarkSummary(b *testing.B) {
	s := month(b)
	for _, q := range []subjects.UsageQuery{
		{Hours: 1},
		{Hours: 24},
		{Hours: 24, BucketMinutes: 2},
		{Hours: 48},
		{Hours: 168},
		{Hours: 720},
		{Hours: 720, BucketMinutes: 30},
		{Hours: 24 * 366},
	} {
		b.Run(fmt.Sprintf("%dh_%dm", q.Hours, q.BucketMinutes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Summary(q, noon); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("Recent50", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Recent(50); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, found, err := s.Get("400000"); err != nil || !found {
				b.Fatal(found, err)
			}
		}
	})
	b.Run("Verify", func(b *testing.B) {
		for b.Loop() {
			if err := s.Verify(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Reopen", func(b *testing.B) {
		for b.Loop() {
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			var err error
			if s, err = Open(Options{Dir: s.dir}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(diskBytes(b, s.dir)), "disk-bytes")
	})
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFootprint reports bytes per row on disk, the heap of an open store and
// the largest heap while it is written as fast as it can be.
func BenchmarkFootprint(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		before := heap()
		s, err := Open(Options{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		idle, peak, jsonBytes := heap()-before, uint64(0), 0
		r := newRand(1)
		for seq := uint64(1); seq <= n; seq += 256 {
			batch := make([]Entry, 256)
			for i := range batch {
				rec := record(seq + uint64(i))
				rec.ID, rec.Timestamp.Time = fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64()), noon.Add(time.Duration(seq)*time.Second/10)
				batch[i] = entryOf(b, seq+uint64(i), rec)
				jsonBytes += len(batch[i].Data)
			}
			if _, err := s.Apply("A", batch); err != nil {
				b.Fatal(err)
			}
			if seq%(16*256) == 1 {
				batch = nil
				peak = max(peak, heap()-before)
			}
		}
		after := heap() - before
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(idle)/(1<<20), "MiB-idle")
		b.ReportMetric(float64(peak)/(1<<20), "MiB-peak")
		b.ReportMetric(float64(after)/(1<<20), "MiB-after")
		b.ReportMetric(float64(jsonBytes)/n, "json-B/row")
		b.ReportMetric(float64(diskBytes(b, s.dir))/n, "disk-B/row")
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func diskBytes(b *testing.B, dir string) (n int64) {
	b.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			n += info.Size()
		}
	}
	return n
}
