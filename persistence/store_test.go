package persistence

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/sluice-llm/sluice/subjects"
)

func TestEmpty(t *testing.T) {
	s := openTest(t, t.TempDir())
	mustCursor(t, s, Cursor{})
	mustVerify(t, s)
	if rows, err := s.Recent(0); err != nil || rows == nil || len(rows) != 0 {
		t.Fatalf("Recent: %v, %v", rows, err)
	}
	if row, found, err := s.Get("nobody"); row != nil || found || err != nil {
		t.Fatalf("Get: %s, %v, %v", row, found, err)
	}
	sum, err := s.Summary(subjects.UsageQuery{}, noon)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(sum)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "null") || !strings.Contains(string(b), `"byProvider":[]`) || len(sum.Timeline) != 289 {
		t.Fatalf("%d buckets: %.400s", len(sum.Timeline), b)
	}
	if err := s.GC(); err != nil {
		t.Fatal(err)
	}
}

func TestOneRow(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	r := record(1)
	e := entryOf(t, 1, r)
	mustApply(t, s, "A", []Entry{e}, Applied{Rows: 1})
	check := func(s *Store) {
		t.Helper()
		mustVerify(t, s)
		mustCursor(t, s, Cursor{"A", 1})
		row, found, err := s.Get(r.ID)
		if err != nil || !found || string(row) != string(e.Data) {
			t.Fatalf("Get: %s, %v, %v", row, found, err)
		}
		rows, err := s.Recent(1)
		if err != nil || len(rows) != 1 || string(rows[0]) != string(e.Data) {
			t.Fatalf("Recent: %s, %v", rows, err)
		}
		if got := allTotals(t, s); got.Calls != 1 || got.TotalTokens != r.TotalTokens {
			t.Fatalf("totals %+v", got)
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(openTest(t, dir))
}

func TestRepeatedBatches(t *testing.T) {
	s := openTest(t, t.TempDir())
	batch := entries(t, 1, 40)
	mustApply(t, s, "A", batch[:20], Applied{Rows: 20})
	mustApply(t, s, "A", batch[:20], Applied{Duplicates: 20})
	mustApply(t, s, "A", batch[10:30], Applied{Rows: 10, Duplicates: 10})
	mustApply(t, s, "A", append(batch[30:40:40], batch[30:40]...), Applied{Rows: 10, Duplicates: 10})
	mustApply(t, s, "A", nil, Applied{})
	mustCursor(t, s, Cursor{"A", 40})
	mustVerify(t, s)
	if got := allTotals(t, s); got.Calls != 40 {
		t.Fatalf("%d calls", got.Calls)
	}
}

// A record id that comes again under a later sequence is the same call.
func TestSameIDUnderAnotherSequence(t *testing.T) {
	s := openTest(t, t.TempDir())
	again := func(seq uint64) Entry { return entryOf(t, seq, record(1)) }
	mustApply(t, s, "A", []Entry{again(1), again(2)}, Applied{Rows: 1, Duplicates: 1})
	mustApply(t, s, "A", []Entry{again(3)}, Applied{Duplicates: 1})
	mustCursor(t, s, Cursor{"A", 3})
	mustVerify(t, s)
}

// A call id that is used again later is another call, also when the stream is
// read again under another identity.
func TestIDUsedAgain(t *testing.T) {
	s := openTest(t, t.TempDir())
	later := func(seq uint64, after time.Duration) Entry {
		r := record(1)
		r.Timestamp.Time = r.Timestamp.Add(after)
		return entryOf(t, seq, r)
	}
	batch := []Entry{later(1, 0), later(2, time.Hour), later(3, 0), later(4, 2*time.Hour)}
	mustApply(t, s, "A", batch, Applied{Rows: 3, Duplicates: 1})
	mustApply(t, s, "B", batch, Applied{Duplicates: 4})
	mustVerify(t, s)
	row, ok, err := s.Get(record(1).ID)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if got, err := decode(row); err != nil || !got.Timestamp.Equal(record(1).Timestamp.Add(2*time.Hour)) {
		t.Errorf("the newest of the id's rows is of %v", got.Timestamp)
	}
}

// A batch that is not in order loses nothing.
func TestUnorderedBatch(t *testing.T) {
	s := openTest(t, t.TempDir())
	b := entries(t, 1, 5)
	mustApply(t, s, "A", []Entry{b[4], b[1], b[3], b[0], b[2]}, Applied{Rows: 5})
	mustVerify(t, s)
}

// Sequences may have gaps: messages are deleted by limits.
func TestGaps(t *testing.T) {
	s := openTest(t, t.TempDir())
	b := entries(t, 1, 9)
	mustApply(t, s, "A", []Entry{b[2], b[5], b[8]}, Applied{Rows: 3})
	mustCursor(t, s, Cursor{"A", 9})
}

func TestAnotherStream(t *testing.T) {
	s := openTest(t, t.TempDir())
	mustApply(t, s, "A", entries(t, 1, 30), Applied{Rows: 30})
	// A restored stream has some of the old records under new sequences, and new ones.
	var restored []Entry
	for i := range uint64(30) {
		restored = append(restored, entryOf(t, i+1, record(16+i)))
	}
	mustApply(t, s, "B", restored, Applied{Rows: 15, Duplicates: 15})
	mustCursor(t, s, Cursor{"B", 30})
	mustApply(t, s, "B", restored, Applied{Duplicates: 30})
	// And back again.
	mustApply(t, s, "A", entries(t, 1, 30), Applied{Duplicates: 30})
	mustCursor(t, s, Cursor{"A", 30})
	mustVerify(t, s)
	if n := rowCount(t, s); n != 45 {
		t.Fatalf("%d rows", n)
	}
}

// Two streams give out the same sequence for different calls of one millisecond.
func TestStreamsDoNotOverwriteEachOther(t *testing.T) {
	s := openTest(t, t.TempDir())
	for i, stream := range []string{"A", "B", "C"} {
		r := record(1)
		r.ID = stream
		mustApply(t, s, stream, []Entry{entryOf(t, 1, r)}, Applied{Rows: 1})
		if n := rowCount(t, s); n != i+1 {
			t.Fatalf("%d rows after %s", n, stream)
		}
	}
	mustVerify(t, s)
}

func TestStreamIdentityBounds(t *testing.T) {
	s := openTest(t, t.TempDir())
	for _, stream := range []string{"", strings.Repeat("x", maxStream+1)} {
		if _, err := s.Apply(stream, entries(t, 1, 1)); err == nil {
			t.Fatalf("an identity of %d bytes passed", len(stream))
		}
	}
	long := strings.Repeat("x", maxStream)
	mustApply(t, s, long, entries(t, 1, 1), Applied{Rows: 1})
	mustCursor(t, s, Cursor{long, 1})
}

// 100,000 entries need many transactions; a failure in the middle leaves a whole
// state, and the same batch again gives the rest.
func TestSplitTransactions(t *testing.T) {
	s := openTest(t, t.TempDir())
	const n = 100_000
	batch := make([]Entry, n)
	for i := range batch {
		batch[i] = Entry{Seq: uint64(i + 1), Data: fmt.Appendf(nil, `{"id":"%d","timestamp":"2026-03-14T%02d:00:00Z"}`, i, i%12)}
	}
	parts := 0
	stop := errors.New("stop")
	s.failpoint = func(committed bool) error {
		if committed {
			parts++
		} else if parts == 10 {
			return stop
		}
		return nil
	}
	first, err := s.Apply("A", batch)
	if !errors.Is(err, stop) || first.Rows == 0 || first.Rows == n {
		t.Fatalf("%+v, %v", first, err)
	}
	if rows := countPrefix(t, s, rowPrefix); rows != first.Rows {
		t.Fatalf("%d rows, %+v", rows, first)
	}
	mustCursor(t, s, Cursor{"A", uint64(first.Rows)})
	s.failpoint = nil
	mustApply(t, s, "A", batch, Applied{Rows: n - first.Rows, Duplicates: first.Rows})
	mustVerify(t, s)
	mustCursor(t, s, Cursor{"A", n})
	if got := allTotals(t, s); got.Calls != n {
		t.Fatalf("%d calls", got.Calls)
	}
}

// Records near the bound of size, with the longest ids and names, fit their
// transactions.
func TestLargeRecords(t *testing.T) {
	s := openTest(t, t.TempDir())
	var batch []Entry
	for i := range uint64(60) {
		r := record(i)
		r.ID = fmt.Sprintf("%s%03d", strings.Repeat("i", subjects.MaxRecordID-3), i)
		r.Provider = strings.Repeat("/", subjects.MaxName)
		r.Process = strings.Repeat("%", subjects.MaxName)
		r.Model = fmt.Sprint(i, strings.Repeat("/", 1000))
		r.PromptPreview = strings.Repeat("p", maxRecord-4000)
		batch = append(batch, entryOf(t, i+1, r))
	}
	mustApply(t, s, "A", batch, Applied{Rows: len(batch)})
	mustVerify(t, s)
	sum, err := s.Summary(subjects.UsageQuery{Hours: 24 * 30}, noon)
	if err != nil || sum.ByProvider[0].Name != strings.Repeat("/", subjects.MaxName) || len(sum.ByModel) != 60 {
		t.Fatalf("%v, %d models", err, len(sum.ByModel))
	}
}

func TestRecentOrder(t *testing.T) {
	s := openTest(t, t.TempDir())
	// A clock that jumps back, stands still, and jumps ahead.
	offsets := []time.Duration{0, time.Hour, -time.Hour, time.Hour, time.Hour, -100 * 24 * time.Hour, 1000 * 24 * time.Hour}
	var batch []Entry
	for i, d := range offsets {
		r := record(1)
		r.ID, r.Timestamp = fmt.Sprint(i), subjects.Time{Time: noon.Add(d)}
		batch = append(batch, entryOf(t, uint64(i+1), r))
	}
	mustApply(t, s, "A", batch, Applied{Rows: len(batch)})
	mustVerify(t, s)
	for limit := 1; limit <= len(offsets); limit++ {
		rows, err := s.Recent(limit)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, row := range rows {
			var r subjects.UsageRecord
			if err := json.Unmarshal(row, &r); err != nil {
				t.Fatal(err)
			}
			got += r.ID
		}
		if want := "6431025"[:limit]; got != want {
			t.Fatalf("newest first: %s, want %s", got, want)
		}
	}
	for _, limit := range []int{-1, subjects.MaxRecent + 1} {
		if _, err := s.Recent(limit); !isKind(err, subjects.KindValidation) {
			t.Fatalf("limit %d: %v", limit, err)
		}
	}
	// What is dated ahead is not in the sums of now, and is when its time has come.
	sum, err := s.Summary(subjects.UsageQuery{Hours: 24}, noon)
	if err != nil || sum.Totals.Calls != 2 {
		t.Fatalf("%+v, %v", sum.Totals, err)
	}
	sum, err = s.Summary(subjects.UsageQuery{Hours: 1}, noon.Add(1000*24*time.Hour))
	if err != nil || sum.Totals.Calls != 1 {
		t.Fatalf("%+v, %v", sum.Totals, err)
	}
}

// What cannot be read is put aside, logged and counted; the cursor goes on.
func TestUnreadable(t *testing.T) {
	good := string(entryOf(t, 1, record(1)).Data)
	bad := map[string]string{
		"empty":             "",
		"not JSON":          "hello",
		"cut":               good[:len(good)/2],
		"two values":        good + good,
		"array":             "[1]",
		"null":              "null",
		"raw NUL":           strings.Replace(good, "call-", "call-\x00", 1),
		"no id":             `{"provider":"openai"}`,
		"long id":           `{"id":"` + strings.Repeat("x", subjects.MaxRecordID+1) + `"}`,
		"tokens as text":    `{"id":"a","input_tokens":"12"}`,
		"tokens of 1e30":    `{"id":"a","input_tokens":1e30}`,
		"fractional tokens": `{"id":"a","input_tokens":1.5}`,
		"latency of 1e400":  `{"id":"a","latency_ms":1e400}`,
		"cost of 1e30":      `{"id":"a","cost_usd":1e30}`,
		"year 10000":        `{"id":"a","timestamp":"10000-01-01T00:00:00Z"}`,
		"no time":           `{"id":"a","timestamp":"yesterday"}`,
		"too large":         `{"id":"a","prompt_preview":"` + strings.Repeat("x", maxRecord) + `"}`,
		"deep":              strings.Repeat("[", 60_000),
	}
	s := openTest(t, t.TempDir())
	seq := uint64(0)
	for name, data := range bad {
		seq++
		got, err := s.Apply("A", []Entry{{Seq: seq, Data: []byte(data)}})
		if err != nil || got != (Applied{Malformed: 1}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	mustCursor(t, s, Cursor{"A", seq})
	seq++
	mustApply(t, s, "A", []Entry{entryOf(t, seq, record(1))}, Applied{Rows: 1})
	mustVerify(t, s)
	// The largest possible letters fill transactions, too.
	var letters []Entry
	for range 2000 {
		seq++
		letters = append(letters, Entry{Seq: seq, Data: []byte(strings.Repeat("x", maxRecord))})
	}
	mustApply(t, s, strings.Repeat("\x01", maxStream), letters, Applied{Malformed: 2000})
	if n := countPrefix(t, s, deadPrefix); n != len(bad)+len(letters) {
		t.Fatalf("%d dead letters", n)
	}
}

func countPrefix(t testing.TB, s *Store, prefix string) (n int) {
	t.Helper()
	err := s.view(func(txn *badger.Txn) error {
		n = int((&verifier{txn: txn}).countKeys(prefix))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// What is absurd and readable counts, clamped.
func TestAbsurd(t *testing.T) {
	for _, c := range []struct {
		name, data string
		ms         uint64
		names      names
		counts     counters
	}{
		{
			"nothing but an id", `{"id":"a"}`, 0,
			names{"unknown", "unknown", "unknown"},
			counters{cCalls: 1, cErrors: 1, cUnpriced: 1},
		},
		{
			"negative", `{"id":"a","outcome":"ok","input_tokens":-1,"output_tokens":-9223372036854775808,"total_tokens":-5,` +
				`"cache_read_tokens":-1,"cache_write_tokens":-1,"reasoning_tokens":-1,"cost_usd":-1,"saved_usd":-2,"latency_ms":-1,"queued_ms":-1e300}`,
			0,
			names{"unknown", "unknown", "unknown"},
			counters{cCalls: 1},
		},
		{
			"huge", `{"id":"a","outcome":"ok","input_tokens":9223372036854775807,"latency_ms":1e300,"queued_ms":0.0004,"cost_usd":4e12,"cached":true,"tokens_estimated":true}`,
			0,
			names{"unknown", "unknown", "unknown"},
			counters{cCalls: 1, cInput: 9223372036854775807, cLatency: 3162240000000000, cCost: 4e18, cCached: 1, cEstimated: 1},
		},
		{
			"year 1", `{"id":"a","timestamp":"0001-01-01T00:00:00Z"}`, 0,
			names{"unknown", "unknown", "unknown"},
			counters{cCalls: 1, cErrors: 1, cUnpriced: 1},
		},
		{
			"year 9999", `{"id":"a","timestamp":"9999-12-31T23:59:59.999999999-12:00"}`, maxTime,
			names{"unknown", "unknown", "unknown"},
			counters{cCalls: 1, cErrors: 1, cUnpriced: 1},
		},
		{
			"names", `{"id":"a","provider":"a\u0000b","process":"` + strings.Repeat("ü", 200) + `","model":"x` + "\xff\xfe" + `y"}`, 0,
			names{"a\x00b", strings.Repeat("ü", 128), "x\uFFFDy"},
			counters{cCalls: 1, cErrors: 1, cUnpriced: 1},
		},
		{
			"cut between runes", `{"id":"a","provider":"x` + strings.Repeat("ü", 200) + `"}`, 0,
			names{"x" + strings.Repeat("ü", 127), "unknown", "unknown"},
			counters{cCalls: 1, cErrors: 1, cUnpriced: 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := measure([]byte(c.data), nil)
			if err != nil {
				t.Fatal(err)
			}
			if m.ms != c.ms || m.names != c.names || m.counts != c.counts {
				t.Fatalf("%+v", *m)
			}
			s := openTest(t, t.TempDir())
			mustApply(t, s, "A", []Entry{{Seq: 1, Data: []byte(c.data)}}, Applied{Rows: 1})
			mustVerify(t, s)
			row, _, err := s.Get("a")
			if err != nil || !json.Valid(row) || string(row) != strings.ToValidUTF8(c.data, "\uFFFD") {
				t.Fatalf("%s, %v", row, err)
			}
		})
	}
}

// Sums stop at the largest int64.
func TestSaturation(t *testing.T) {
	s := openTest(t, t.TempDir())
	var batch []Entry
	for i := range uint64(5) {
		r := record(1)
		r.ID, r.TotalTokens = fmt.Sprint(i), 1<<62
		if i == 4 {
			r.Timestamp.Time = r.Timestamp.Add(-2 * time.Hour)
		}
		batch = append(batch, entryOf(t, i+1, r))
	}
	for i := range batch {
		mustApply(t, s, "A", batch[i:i+1], Applied{Rows: 1})
	}
	mustVerify(t, s)
	if got := allTotals(t, s); got.TotalTokens != 1<<63-1 || got.Calls != 5 {
		t.Fatalf("%+v", got)
	}
}

// Record spares the decoding and changes nothing.
func TestDecodedRecord(t *testing.T) {
	s := openTest(t, t.TempDir())
	e := entryOf(t, 1, record(1))
	e.Record = record(1)
	mustApply(t, s, "A", []Entry{e}, Applied{Rows: 1})
	mustVerify(t, s)
}

func TestClosed(t *testing.T) {
	for _, o := range []Options{{Dir: t.TempDir()}, {InMemory: true}} {
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		mustApply(t, s, "A", entries(t, 1, 3), Applied{Rows: 3})
		mustVerify(t, s)
		if err := errors.Join(s.GC(), s.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
		_, err1 := s.Cursor()
		_, err2 := s.Apply("A", entries(t, 4, 4))
		_, err3 := s.Summary(subjects.UsageQuery{}, noon)
		_, err4 := s.Recent(1)
		_, _, err5 := s.Get("x")
		for i, err := range []error{err1, err2, err3, err4, err5, s.Verify()} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%d: %v", i, err)
			}
		}
	}
}

// Close does not wait for long work: it ends early, and says why.
func TestCloseDuringWork(t *testing.T) {
	s := openTest(t, t.TempDir())
	mustApply(t, s, "A", entries(t, 1, 500), Applied{Rows: 500})
	reading, closed := make(chan struct{}), make(chan error, 1)
	go func() {
		<-reading
		closed <- s.Close()
	}()
	rows := 0
	err := s.Each(func(json.RawMessage) error {
		if rows++; rows == 1 {
			close(reading)
			<-s.closing
		}
		return nil
	})
	if !errors.Is(err, ErrClosed) || rows != 1 {
		t.Fatalf("%d rows, %v", rows, err)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
}

// Close ends an Apply between two of its transactions; the first ones stand.
func TestCloseDuringApply(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	closed := make(chan error, 1)
	s.failpoint = func(committed bool) error {
		if committed {
			go func() { closed <- s.Close() }()
			<-s.closing
		}
		return nil
	}
	got, err := s.Apply("A", entries(t, 1, 3000))
	if !errors.Is(err, ErrClosed) || got.Rows == 0 || got.Rows == 3000 {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	s = openTest(t, dir)
	mustCursor(t, s, Cursor{"A", uint64(got.Rows)})
	mustVerify(t, s)
}

// An Apply that is stuck does not keep Close.
func TestCloseWhileStuck(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	s.closeWait = time.Second
	stuck, free := make(chan struct{}), make(chan struct{})
	s.failpoint = func(committed bool) error {
		if !committed {
			close(stuck)
			<-free
		}
		return nil
	}
	applied := make(chan error, 1)
	go func() {
		_, err := s.Apply("A", []Entry{{Seq: 1, Data: []byte(`{"id":"a"}`)}})
		applied <- err
	}()
	<-stuck
	if err := s.Close(); err != nil && !strings.Contains(err.Error(), "stays locked") {
		t.Fatal(err)
	}
	close(free)
	if err := <-applied; err == nil {
		t.Fatal("it was applied to a closed database")
	}
}
