package loginfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// write makes a file that was last changed an hour ago.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	age(t, path, time.Hour)
}

func age(t *testing.T, path string, by time.Duration) {
	t.Helper()
	at := time.Now().Add(-by)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "auth.json")
	write(t, path, "text")
	text, state, err := Read(path)
	if err != nil || string(text) != "text" || !state.Same(path) {
		t.Errorf("%q, %v, %v", text, state, err)
	}
	write(t, path, strings.Repeat("x", Max))
	if text, _, err = Read(path); err != nil || len(text) != Max {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// TestProblems: each has its own name, and none shows where the file is.
func TestProblems(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("large"), strings.Repeat("x", Max+1))
	write(t, at("file"), "x")
	for path, want := range map[string]Problem{
		at("none"):        Missing,
		at("none/file"):   Missing,
		at("large"):       TooLarge,
		dir:               NotPlain,
		at("file") + "/x": Unreadable,
		"":                Missing,
	} {
		text, state, err := Read(path)
		var e *Error
		if !errors.As(err, &e) || e.Problem != want || text != nil || state.Same(path) {
			t.Errorf("%s: %v, want %d", path, err, want)
			continue
		}
		if e.Error() == "" || strings.Contains(e.Error(), dir) {
			t.Errorf("%q", e)
		}
		if e.Why != nil && (!errors.Is(e, e.Why) || strings.Contains(e.Why.Error(), dir)) {
			t.Errorf("%q", e.Why)
		}
	}
}

// TestSame: every change is noticed, and a file that has just been written is
// read again, since the next change may leave no trace.
func TestSame(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "auth.json")
	fresh := func() State {
		write(t, path, "text")
		_, state, err := Read(path)
		if err != nil || !state.Same(path) {
			t.Fatalf("%v, %v", state, err)
		}
		return state
	}
	for name, change := range map[string]func(){
		"time": func() { age(t, path, time.Minute) },
		"size": func() { write(t, path, "texts") },
		"gone": func() { os.Remove(path) },
		"another file of the same size and time": func() {
			info, _ := os.Stat(path)
			os.Rename(path, path+".old")
			write(t, path, "tex2")
			os.Chtimes(path, info.ModTime(), info.ModTime())
		},
	} {
		state := fresh()
		if change(); state.Same(path) {
			t.Errorf("%s: the same", name)
		}
	}
	write(t, path, "text")
	age(t, path, time.Second)
	if _, state, err := Read(path); err != nil || state.Same(path) {
		t.Errorf("a young file: %v, %v", state, err)
	}
	if (State{}).Same(path) {
		t.Error("no file is the same as one")
	}
}
