package persistence

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
)

func checkStates(t *testing.T, s *Store, want map[string]string) {
	t.Helper()
	got, err := s.States()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for key, value := range got {
		have[key] = string(value)
	}
	if got == nil || !maps.Equal(have, want) {
		t.Fatalf("states %.300q, want %.300q", have, want)
	}
}

func mustSave(t *testing.T, s *Store, states map[string][]byte) {
	t.Helper()
	if err := s.SaveStates(states); err != nil {
		t.Fatal(err)
	}
}

// States are stored, replaced and deleted, outlast the process and change nothing
// of the records.
func TestStates(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	checkStates(t, s, map[string]string{})
	mustSave(t, s, nil)
	mustSave(t, s, map[string][]byte{"breaker/openai": []byte("open"), "quota/openai": {}, "x\x00/": {0, 1}})
	mustApply(t, s, "A", entries(t, 1, 30), Applied{Rows: 30})
	mustSave(t, s, map[string][]byte{"breaker/openai": []byte("closed"), "x\x00/": nil, "never": nil})
	want := map[string]string{"breaker/openai": "closed", "quota/openai": ""}
	for range 2 {
		checkStates(t, s, want)
		mustVerify(t, s)
		mustCursor(t, s, Cursor{"A", 30})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openTest(t, dir)
	}
	s = openTest(t, copyDir(t, dir))
	checkStates(t, s, want)
	mustVerify(t, s)
}

func TestStatesBounds(t *testing.T) {
	s := openTest(t, t.TempDir())
	mustSave(t, s, map[string][]byte{strings.Repeat("k", MaxStateKey): make([]byte, MaxState)})
	most := map[string][]byte{}
	for i := range MaxStates / MaxState {
		most[fmt.Sprint(i)] = make([]byte, MaxState-1)
	}
	mustSave(t, s, most)
	for name, states := range map[string]map[string][]byte{
		"no key":     {"": {1}, "good": {1}},
		"long key":   {strings.Repeat("k", MaxStateKey+1): {1}, "good": {1}},
		"long value": {"x": make([]byte, MaxState+1), "good": {1}},
		"too much":   {"0": make([]byte, MaxState), "1": make([]byte, MaxState), "2": make([]byte, MaxState), "3": make([]byte, MaxState), "good": {1}},
	} {
		if err := s.SaveStates(states); err == nil {
			t.Errorf("%s: stored", name)
		}
	}
	if got, err := s.States(); err != nil || got["good"] != nil || len(got) != 1+len(most) {
		t.Errorf("%d states, %v", len(got), err)
	}
}

// A full disk is an error that passes; a closed database is one that does not.
func TestStatesRefused(t *testing.T) {
	free := uint64(0)
	s, err := open(Options{Dir: t.TempDir()}, tuning{func(string) (uint64, bool) { return free + MinFreeBytes, true }, memTableSize})
	if err != nil {
		t.Fatal(err)
	}
	s.freeBytes = func(string) (uint64, bool) { return free, true }
	one := map[string][]byte{"a": {'1'}}
	if err := s.SaveStates(one); !errors.Is(err, ErrNoSpace) {
		t.Errorf("on a full disk: %v", err)
	}
	checkStates(t, s, map[string]string{})
	free = MinFreeBytes
	mustSave(t, s, one)
	checkStates(t, s, map[string]string{"a": "1"})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = s.States()
	_, spent := s.Spent("run", "x")
	for _, err := range []error{err, spent, s.SaveStates(one)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// States may be saved by others while one applies and others read.
func TestStatesBesideApply(t *testing.T) {
	s := openTest(t, t.TempDir())
	const n = 60
	var wg sync.WaitGroup
	want := map[string]string{}
	for i := range 3 {
		key := fmt.Sprint(i)
		want[key] = fmt.Sprint(n - 1)
		wg.Go(func() {
			for v := range n {
				if err := s.SaveStates(map[string][]byte{key: fmt.Append(nil, v), key + "/double": fmt.Append(nil, 2*v)}); err != nil {
					t.Error(err)
				}
				got, err := s.States()
				if err != nil || string(got[key]) != fmt.Sprint(v) || string(got[key+"/double"]) != fmt.Sprint(2*v) {
					t.Errorf("saved %d, stored %q, %v", v, got[key], err)
				}
			}
		})
	}
	for seq := uint64(1); seq <= n; seq++ {
		mustApply(t, s, "A", entries(t, seq, seq), Applied{Rows: 1})
	}
	wg.Wait()
	for i := range 3 {
		want[fmt.Sprint(i, "/double")] = fmt.Sprint(2 * (n - 1))
	}
	checkStates(t, s, want)
	mustVerify(t, s)
}
