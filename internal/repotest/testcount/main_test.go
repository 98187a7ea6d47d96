package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReport runs each testdata/*.json through a report and compares it with
// the .golden file beside it.
func TestReport(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			in, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			var out strings.Builder
			r := newReport(&out)
			if err := r.read(in); err != nil {
				t.Fatal(err)
			}
			r.finish()
			want, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".golden")
			if err != nil {
				t.Fatal(err)
			}
			if out.String() != string(want) {
				t.Errorf("got\n%s\nwant\n%s", out.String(), want)
			}
		})
	}
}

func TestAppendLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counts")
	for range 2 {
		if err := appendLine(file, counts{1, 2, 3}.String()); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("1 passed, 2 failed, 3 skipped\n", 2); string(b) != want {
		t.Errorf("got %q, want %q", b, want)
	}
}
