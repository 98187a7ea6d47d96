package persistence

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
)

// mustRefuse opens dir and wants a refusal for reason whose text has every part.
func mustRefuse(t *testing.T, dir string, reason Reason, parts ...string) {
	t.Helper()
	s, err := Open(Options{Dir: dir})
	if err == nil {
		_ = s.Close()
		t.Fatal("opened")
	}
	wantRefusal(t, err, dir, reason, parts...)
}

func wantRefusal(t *testing.T, err error, dir string, reason Reason, parts ...string) {
	t.Helper()
	var e *OpenError
	if !errors.As(err, &e) || e.Reason != reason || e.Dir != dir {
		t.Fatalf("%#v", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Fatalf("%q does not say %q", err, p)
		}
	}
}

func TestLocked(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	mustApply(t, s, "A", entries(t, 1, 5), Applied{Rows: 5})
	mustRefuse(t, dir, Locked, "another sluice", dir, fmt.Sprint("process ", os.Getpid()), "--data")
	mustApply(t, s, "A", entries(t, 6, 9), Applied{Rows: 4})
	mustVerify(t, s)
	// What Badger says when someone takes the lock after our look.
	_, err := badger.Open(badgerOptions(Options{Dir: dir}, s.log, memTableSize))
	wantRefusal(t, openErrorOf(dir, err), dir, Locked, "another sluice")
}

func TestNoSpace(t *testing.T) {
	dir := t.TempDir()
	free := uint64(MinFreeBytes)
	disk := func(string) (uint64, bool) { return free, true }
	free--
	_, err := open(Options{Dir: dir}, tuning{disk, memTableSize})
	wantRefusal(t, err, dir, NoSpace, "63 MiB", "64 MiB", "--data")
	free++
	s, err := open(Options{Dir: dir}, tuning{disk, memTableSize})
	if err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, "A", entries(t, 1, 5), Applied{Rows: 5})
	free--
	if got, err := s.Apply("A", entries(t, 6, 9)); !errors.Is(err, ErrNoSpace) || got != (Applied{}) {
		t.Fatalf("%+v, %v", got, err)
	}
	mustVerify(t, s)
	mustCursor(t, s, Cursor{"A", 5})
	free++
	mustApply(t, s, "A", entries(t, 6, 9), Applied{Rows: 4})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestNotAFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, file, Other, file)
	mustRefuse(t, filepath.Join(file, "usage"), Other, file)
	mustRefuse(t, "", Other, "no folder")
	mustRefuse(t, filepath.Join(t.TempDir(), strings.Repeat("x", 300)), Other)
}

func TestNewerLayout(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	err := s.db.Update(func(txn *badger.Txn) error { return txn.Set([]byte(schemaKey), []byte{schema + 1}) })
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, dir, Other, fmt.Sprint("layout ", schema+1), fmt.Sprint("layout ", schema))
}

// The folder of someone else's Badger database is not taken for ours.
func TestForeignDatabase(t *testing.T) {
	dir := t.TempDir()
	db, err := badger.Open(badger.DefaultOptions(dir).WithLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(txn *badger.Txn) error { return txn.Set([]byte("hello"), []byte("world")) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, dir, Corrupt, "move "+dir+" away")
}

// When the memory table cannot be renewed Badger's next write would end the
// process; the store stops before that.
func TestBroken(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "usage")
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	s.closeWait = 0 // it will not
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); err == nil; seq++ {
		_, err = s.Apply("A", []Entry{{Seq: seq, Data: fatRecord(seq)}})
	}
	if !errors.Is(err, ErrBroken) {
		t.Fatal(err)
	}
	if _, err := s.Cursor(); !errors.Is(err, ErrBroken) {
		t.Fatal(err)
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "stays locked") {
		t.Fatal(err)
	}
}

// crashed is a folder whose writer was killed, with tables and a log in it, and
// how far that writer came.
func crashed(t *testing.T) (dir string, rows uint64) {
	t.Helper()
	dir = t.TempDir()
	killed(t, dir, func() bool { return len(glob(t, dir, "*.sst")) > 1 })
	s := openTest(t, copyDir(t, dir))
	c, err := s.Cursor()
	if err != nil {
		t.Fatal(err)
	}
	return dir, c.Seq
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// damages are ways to spoil a file; seed varies the place.
var damages = map[string]func(b []byte, seed uint64) []byte{
	"empty":   func([]byte, uint64) []byte { return nil },
	"1 byte":  func(b []byte, _ uint64) []byte { return b[:1] },
	"19 byte": func(b []byte, _ uint64) []byte { return b[:min(len(b), 19)] },
	"half":    func(b []byte, _ uint64) []byte { return b[:len(b)/2] },
	"1 less":  func(b []byte, _ uint64) []byte { return b[:len(b)-1] },
	"longer":  func(b []byte, _ uint64) []byte { return append(b, "garbage at the end"...) },
	"zeros":   func(b []byte, _ uint64) []byte { return make([]byte, len(b)) },
	"noise":   func(b []byte, seed uint64) []byte { return noise(len(b), seed) },
	"a bit": func(b []byte, seed uint64) []byte {
		used := len(bytes.TrimRight(b, "\x00"))
		b[newRand(seed).IntN(max(used, 1))] ^= 1 << (seed % 8)
		return b
	},
	"a block": func(b []byte, seed uint64) []byte {
		used := len(bytes.TrimRight(b, "\x00"))
		at := newRand(seed).IntN(max(used, 1))
		copy(b[at:], noise(min(4096, len(b)-at), seed))
		return b
	},
	"the start": func(b []byte, seed uint64) []byte { copy(b, noise(min(64, len(b)), seed)); return b },
	"the end":   func(b []byte, seed uint64) []byte { copy(b[max(0, len(b)-64):], noise(64, seed)); return b },
}

func noise(n int, seed uint64) []byte {
	b, r := make([]byte, 0, n+8), newRand(seed)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n]
}

// A damaged folder is refused as Corrupt or opens in an older whole state that
// the stream completes; it never ends the process, which is this one.
func TestDamage(t *testing.T) {
	dir, rows := crashed(t)
	whole := openTest(t, copyDir(t, dir))
	want := allTotals(t, whole)
	files := slices.Concat(glob(t, dir, "*.sst")[:1], glob(t, dir, "*.mem"), glob(t, dir, "*.vlog")[:1])
	for _, name := range []string{badger.ManifestFilename, badger.KeyRegistryFileName, discardFile} {
		files = append(files, filepath.Join(dir, name))
	}
	outcomes := map[string]int{}
	for i, path := range files {
		name := filepath.Base(path)
		for _, kind := range slices.Sorted(maps.Keys(damages)) {
			t.Run(name+" "+kind, func(t *testing.T) {
				hurt := copyDir(t, dir)
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(hurt, name), damages[kind](b, uint64(i)), 0o600); err != nil {
					t.Fatal(err)
				}
				outcomes[strings.TrimLeft(name, "0123456789")+" "+kind+": "+afterDamage(t, hurt, rows, func(s *Store) {
					if got := allTotals(t, s); got != want {
						t.Fatalf("%+v\nwant %+v", got, want)
					}
				})]++
			})
		}
		t.Run(name+" missing", func(t *testing.T) {
			hurt := copyDir(t, dir)
			if err := os.Remove(filepath.Join(hurt, name)); err != nil {
				t.Fatal(err)
			}
			outcomes[strings.TrimLeft(name, "0123456789")+" missing: "+afterDamage(t, hurt, rows, func(*Store) {})]++
		})
	}
	for _, o := range slices.Sorted(maps.Keys(outcomes)) {
		t.Log(o)
	}
}

// afterDamage opens a damaged folder and, when it opens, lets the stream complete
// it. It says what happened.
func afterDamage(t *testing.T, dir string, rows uint64, complete func(*Store)) string {
	t.Helper()
	s, err := Open(Options{Dir: dir})
	if err != nil {
		wantRefusal(t, err, dir, Corrupt, "move "+dir+" away")
		return "refused"
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	mustVerify(t, s)
	c, err := s.Cursor()
	if err != nil || c.Seq > rows {
		t.Fatalf("%+v, %v", c, err)
	}
	var rest []Entry
	for seq := c.Seq + 1; seq <= rows; seq++ {
		rest = append(rest, Entry{Seq: seq, Data: fatRecord(seq)})
	}
	mustApply(t, s, "A", rest, Applied{Rows: len(rest)})
	mustVerify(t, s)
	complete(s)
	if len(rest) == 0 {
		return "as before"
	}
	return "older"
}

// A folder or a strange name in the place of a file.
func TestStrangeFiles(t *testing.T) {
	for _, name := range []string{"-1.sst", "x.mem", "1e9.vlog", "00000000000000000007.sst"} {
		dir := t.TempDir()
		if err := openTest(t, dir).Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		mustRefuse(t, dir, Corrupt, name)
	}
	for _, name := range []string{discardFile, badger.ManifestFilename, "000077.sst"} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		mustRefuse(t, dir, Corrupt, name)
	}
	// What Badger does not read is not our concern.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "README"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	openTest(t, dir)
}

// A kill between making a log and growing it leaves one of no bytes.
func TestEmptyLogs(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	mustApply(t, s, "A", entries(t, 1, 5), Applied{Rows: 5})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"00009.mem", "000009.vlog"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = openTest(t, dir)
	mustVerify(t, s)
	mustCursor(t, s, Cursor{"A", 5})
}

// A power cut can take the end of an older log and leave a newer one.
func TestHole(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	for seq := uint64(1); seq <= 200; seq++ {
		mustApply(t, s, "A", entries(t, seq, seq), Applied{Rows: 1})
	}
	older := copyDir(t, dir) // the first log has 1 to 200
	reopened := copyDir(t, older)
	s = openTest(t, reopened)
	for seq := uint64(201); seq <= 300; seq++ {
		mustApply(t, s, "A", entries(t, seq, seq), Applied{Rows: 1})
	}
	logs := glob(t, reopened, "*.mem")
	newest, err := os.ReadFile(logs[len(logs)-1])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(older, "00005.mem"), newest, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, copyDir(t, older))
	mustCursor(t, s, Cursor{"A", 300})
	mustVerify(t, s)
	first := glob(t, older, "*.mem")[0]
	b, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	b[len(bytes.TrimRight(b, "\x00"))*3/4]++
	if err := os.WriteFile(first, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // closing it after the first refusal must not hide the hole
		mustRefuse(t, older, Corrupt, "differences", "move "+older+" away")
	}
}
