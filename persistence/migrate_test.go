package persistence

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/sluice-llm/sluice/subjects"
)

// unpack unpacks a folder of an older layout with 120 records and one that could
// not be read. testdata/layout1.tgz was written by version bef88a1 and closed in
// order; layout2.tgz was written by version e469319, which was killed, and the
// last 20 of its records are of runs and have tries that spent something, as
// another node's would have.
func unpack(t *testing.T, layout byte) (dir string) {
	t.Helper()
	dir = t.TempDir()
	f, err := os.Open(fmt.Sprintf("testdata/layout%d.tgz", layout))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(io.LimitReader(r, 8<<20))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(h.Name)), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// stored reads all records of a database.
func stored(t *testing.T, s *Store) []*subjects.UsageRecord {
	t.Helper()
	var records []*subjects.UsageRecord
	err := s.Each(func(row json.RawMessage) error {
		r := &subjects.UsageRecord{}
		records = append(records, r)
		return json.Unmarshal(row, r)
	})
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// TestOldLayout: a folder of an older layout opens, its new sums are those of its
// rows, it goes on where it stood, and is not counted again.
func TestOldLayout(t *testing.T) {
	for layout := byte(oldSchema); layout < schema; layout++ {
		t.Run(fmt.Sprint(layout), func(t *testing.T) { testOldLayout(t, layout) })
	}
}

func testOldLayout(t *testing.T, layout byte) {
	dir := unpack(t, layout)
	for range 2 {
		s, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		mustVerify(t, s)
		mustCursor(t, s, Cursor{"A", 121})
		records := stored(t, s)
		sum := checkSummary(t, s, records, subjects.UsageQuery{Hours: 24 * 8}, noon)
		if u := sum.Totals; len(records) != 120 || u.Calls != 120 || u.Unpriced == 0 || u.UnpricedTokens == 0 || u.SavedUnknown == 0 ||
			(u.RetriedTokens == 20*34) != (layout == 2) {
			t.Fatalf("%d rows, %+v", len(records), u)
		}
		checkSpends(t, s, records)
		checkStates(t, s, map[string]string{})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := openTest(t, dir)
	mustApply(t, s, "A", entries(t, 122, 200), Applied{Rows: 79})
	mustVerify(t, s)
	checkSummary(t, s, stored(t, s), subjects.UsageQuery{Hours: 24 * 8}, noon)
	checkSpends(t, s, stored(t, s))
}

// age makes a database look as an older layout left it.
func age(t *testing.T, s *Store, layout byte) {
	t.Helper()
	counted := map[byte]int{1: cUnpricedTokens, 2: cRetried}[layout]
	old, gone := map[string][]byte{}, [][]byte{}
	err := s.view(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte(rollPrefix)})
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			var c counters
			if err := it.Item().Value(c.decode); err != nil {
				return err
			}
			b := []byte{layout}
			for _, v := range c[:counted] {
				b = binary.BigEndian.AppendUint64(b, uint64(v))
			}
			old[string(it.Item().KeyCopy(nil))] = b
		}
		c, err := readCursor(txn)
		b := c.encode()
		b = append(b[:oldCursorLen], b[cursorLen:]...)
		b[0] = version
		old[cursorKey] = b
		return errors.Join(err, eachSpend(txn, []byte(spendPrefix), func(key []byte, _ *spend) bool {
			gone = append(gone, bytes.Clone(key))
			return true
		}))
	})
	if err != nil {
		t.Fatal(err)
	}
	old[schemaKey] = []byte{layout}
	w := s.db.NewWriteBatch()
	defer w.Cancel()
	for _, key := range gone {
		if err := w.Delete(key); err != nil {
			t.Fatal(err)
		}
	}
	for key, value := range old {
		if err := w.Set([]byte(key), value); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

// TestMigrationDies: wherever the process dies while the sums are counted anew,
// the next Open counts them again, and until they are whole the layout is old.
// States stay as they are.
func TestMigrationDies(t *testing.T) {
	for layout := byte(oldSchema); layout < schema; layout++ {
		t.Run(fmt.Sprint(layout), func(t *testing.T) { testMigrationDies(t, layout) })
	}
}

func testMigrationDies(t *testing.T, layout byte) {
	s, err := open(Options{InMemory: true}, tuning{freeBytes, 1 << 20}) // small, for several transactions
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for seq := uint64(1); seq <= 1500; seq++ {
		mustApply(t, s, "A", []Entry{entryOf(t, seq, rich(seq))}, Applied{Rows: 1})
	}
	mustSave(t, s, map[string][]byte{"a": []byte("1")})
	want := allTotals(t, s)
	age(t, s, layout)
	commits := 0
	for dies := 1; ; dies++ {
		commits = 0
		s.failpoint = func(bool) error {
			if commits++; commits == dies {
				return errAbort
			}
			return nil
		}
		err := s.migrate()
		if err == nil {
			break
		}
		if !errors.Is(err, errAbort) {
			t.Fatal(err)
		}
		if layoutOf(t, s) == schema {
			break // the last commit stood, and only the process died
		}
	}
	if commits < 6 {
		t.Errorf("only %d points to die at", commits)
	}
	s.failpoint = nil
	mustVerify(t, s)
	mustCursor(t, s, Cursor{"A", 1500})
	if got := allTotals(t, s); got != want || layoutOf(t, s) != schema {
		t.Fatalf("%+v\nwant %+v", got, want)
	}
	checkSpends(t, s, stored(t, s))
	checkStates(t, s, map[string]string{"a": "1"})
}

func layoutOf(t *testing.T, s *Store) (layout byte) {
	t.Helper()
	err := s.view(func(txn *badger.Txn) error {
		_, err := read(txn, []byte(schemaKey), func(b []byte) error {
			layout = b[0]
			return nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return layout
}

// A sum of the old layout that no row stands for goes.
func TestMigrationDropsSumsWithoutRows(t *testing.T) {
	s := openTest(t, t.TempDir())
	mustApply(t, s, "A", entries(t, 1, 20), Applied{Rows: 20})
	age(t, s, 2)
	key := byMinute.key(77, string(names{"x", "y", "z"}.appendSeries(nil)))
	if err := s.db.Update(func(txn *badger.Txn) error { return txn.Set(key, []byte{1, 2, 3}) }); err != nil {
		t.Fatal(err)
	}
	if err := s.migrate(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, s)
}

// A hole in an old database is found before the new sums are written over it.
func TestOldLayoutWithAHole(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	for seq := uint64(1); seq <= 50; seq++ {
		mustApply(t, s, "A", entries(t, seq, seq), Applied{Rows: 1})
	}
	age(t, s, 1)
	// A transaction without the cursor that takes a row away, and one after it.
	err := s.db.Update(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte(rowPrefix)})
		defer it.Close()
		it.Rewind()
		return txn.Delete(it.Item().KeyCopy(nil))
	})
	if err == nil {
		err = s.db.Update(func(txn *badger.Txn) error {
			c, err := readCursor(txn)
			return errors.Join(err, txn.Set([]byte(cursorKey), c.encode()))
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	crashed := copyDir(t, dir)
	for range 2 {
		mustRefuse(t, crashed, Corrupt, "differences", "move "+crashed+" away")
	}
}
