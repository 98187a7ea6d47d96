package persistence

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/subjects"
)

var kills = flag.Int("kills", 20, "how often TestKill kills the writer")

// childEnv makes the test binary a writer that is to be killed: its value is the folder.
const childEnv = "SLUICE_PERSISTENCE_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		fmt.Println("stopped:", writeForever(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeForever applies batches of all sizes from the cursor on, saves states
// beside it, and says before and after each commit how far it is.
func writeForever(dir string) error {
	s, err := open(Options{Dir: dir}, tuning{freeBytes, 1 << 20}) // small, so that tables are soon written
	if err != nil {
		return err
	}
	s.failpoint = func(committed bool) error {
		fmt.Println("commit", committed)
		return nil
	}
	failed := make(chan error, 1)
	go func() { failed <- saveForever(s) }()
	r := newRand(uint64(os.Getpid()))
	for len(failed) == 0 {
		c, err := s.Cursor()
		if err != nil {
			return err
		}
		n := uint64(1 + r.IntN(20))
		if r.IntN(3) == 0 {
			n = 60 // two transactions
		}
		batch := make([]Entry, n)
		for i := range batch {
			batch[i] = Entry{Seq: c.Seq + uint64(i) + 1, Data: fatRecord(c.Seq + uint64(i) + 1)}
		}
		if _, err := s.Apply("A", batch); err != nil {
			return err
		}
		fmt.Println("applied", c.Seq+n)
	}
	return <-failed
}

// saveForever saves two states that are always the same and tells their number.
// Some are as large as they may be.
func saveForever(s *Store) error {
	for {
		states, err := s.States()
		if err != nil {
			return err
		}
		number := numberOf(states["a"]) + 1
		value := fmt.Append(nil, number, " ")
		if number%20 == 0 {
			value = append(value, noise(MaxState-len(value), number)...)
		}
		if err := s.SaveStates(map[string][]byte{"a": value, "b": value}); err != nil {
			return err
		}
		fmt.Println("saved", number)
	}
}

// numberOf is the number at the beginning of a state; 0 = there is no state.
func numberOf(state []byte) (n uint64) {
	_, _ = fmt.Sscanf(string(state), "%d ", &n)
	return n
}

// fatRecord is a record that does not pack, so that tables fill soon.
func fatRecord(seq uint64) []byte {
	rec, r := record(seq), newRand(seq)
	return fmt.Appendf(nil, `{"id":"%016x","timestamp":%q,"provider":%q,"process":%q,"model":%q,"input_tokens":%d,"total_tokens":%d,"outcome":"ok",`+
		`"attempt_trail":[{"provider":"groq","outcome":"TIMEOUT","spent":{"model":"m","inputTokens":%d,"costUsd":null}}],"run_id":"%d","prompt_preview":%q}`,
		r.Uint64(), rec.Timestamp.Format(subjects.TimeFormat), rec.Provider, rec.Process, rec.Model, rec.InputTokens, rec.TotalTokens,
		seq, seq%5, base64.StdEncoding.EncodeToString(noise(3000, seq)))
}

// killed runs a writer in dir and kills it when enough says so, which is asked
// after every line of its output. It returns the last sequence that the writer
// knew to be applied, and the last number that it knew to be saved.
func killed(t *testing.T, dir string, enough func() bool) (applied, saved uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	scan, stop := bufio.NewScanner(out), false
	for !stop && scan.Scan() {
		if strings.HasPrefix(scan.Text(), "stopped:") {
			t.Fatal(scan.Text())
		}
		_, _ = fmt.Sscanf(scan.Text(), "applied %d", &applied)
		_, _ = fmt.Sscanf(scan.Text(), "saved %d", &saved)
		stop = enough()
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if !stop {
		t.Fatal("the writer ended by itself")
	}
	return applied, saved
}

// The process is killed at any moment, again and again: each time the database is
// whole, its cursor counts its rows, and of the states the last are there.
func TestKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "usage")
	r := newRand(uint64(os.Getpid()))
	last, number := uint64(0), uint64(0)
	for kill := range *kills {
		lines := 1 + r.IntN(80)
		applied, saved := killed(t, dir, func() bool { lines--; return lines == 0 })
		last, number = max(last, applied), max(number, saved)
		s, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatalf("after kill %d: %v", kill, err)
		}
		mustVerify(t, s)
		c, err := s.Cursor()
		if err != nil {
			t.Fatal(err)
		}
		if rows := countPrefix(t, s, rowPrefix); uint64(rows) != c.Seq || c.Seq < last {
			t.Fatalf("after kill %d: %d rows, cursor %+v, before it %d", kill, rows, c, last)
		}
		last = c.Seq
		states, err := s.States()
		if err != nil {
			t.Fatal(err)
		}
		if n := numberOf(states["a"]); n < number || !bytes.Equal(states["a"], states["b"]) {
			t.Fatalf("after kill %d: state %d was saved, and there are %d and %d", kill, number, n, numberOf(states["b"]))
		}
		number = numberOf(states["a"])
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d rows and %d savings of states survived %d kills", last, number, *kills)
}
