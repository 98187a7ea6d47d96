package config

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// text makes Options that read text as the file f.yaml.
func text(text string, environ ...string) Options {
	return Options{
		File:     "f.yaml",
		Environ:  environ,
		ReadFile: func(string) ([]byte, error) { return []byte(text), nil },
	}
}

// mustLoad loads a file's text and the environment without a fault.
func mustLoad(t *testing.T, file string, environ ...string) *Config {
	t.Helper()
	c, err := Load(text(file, environ...))
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return c
}

// loadFaults returns what Load has to say against a text and environment.
func loadFaults(t *testing.T, file string, environ ...string) []Fault {
	t.Helper()
	c, err := Load(text(file, environ...))
	var e *Error
	if !errors.As(err, &e) || c != nil {
		t.Fatalf("Load = %v, %v; want no Config and an *Error", c, err)
	}
	return e.Faults
}

const rule = "----------\n"

// TestFaults holds the error texts. Each file of testdata/faults has a
// configuration, maybe variables, and what Load must say of them.
func TestFaults(t *testing.T) {
	files, err := filepath.Glob("testdata/faults/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			parts := strings.Split(string(data), rule)
			var environ []string
			if len(parts) == 3 {
				environ = strings.Split(strings.TrimSuffix(parts[1], "\n"), "\n")
			}
			_, err = Load(text(parts[0], environ...))
			if err == nil {
				t.Fatal("Load has no fault to find")
			}
			if got := err.Error() + "\n"; *update {
				parts[len(parts)-1] = got
				if err := os.WriteFile(name, []byte(strings.Join(parts, rule)), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if want := parts[len(parts)-1]; got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret is shown:\n%v", err)
			}
		})
	}
}

// TestUnreadableText has the files that an editor would not show as they are.
func TestUnreadableText(t *testing.T) {
	deep := func(open string, n int) string { return "pools: " + strings.Repeat(open, n) }
	indented := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.Repeat(" ", i) + "a:\n")
		}
		return b.String()
	}
	for name, c := range map[string]struct{ file, want string }{
		"not UTF-8":        {"mode: mock\npools: \xff\n", `f.yaml:2:8: byte 0xff is not UTF-8`},
		"UTF-16":           {"\xff\xfem\x00o\x00", `f.yaml:1:1: byte 0xff is not UTF-8`},
		"NUL":              {"mode: m\x00ck\n", `f.yaml:1:8: control character U+0000`},
		"escape":           {"mode: \x1b[0m\n", `f.yaml:1:7: control character U+001B`},
		"lone return":      {"mode: mock\rpools: {}\n", `f.yaml:1:11: control character U+000D`},
		"too large":        {strings.Repeat("#\n", maxFileBytes/2+1), `f.yaml: the file has more than 1048576 bytes`},
		"too many words":   {"a: [" + strings.Repeat("1,", maxTokens) + "]\n", `f.yaml: the file has more than 20000 words`},
		"deep lists":       {deep("[", 5_000), `f.yaml:1:24: nested more than 16 deep`},
		"deep mappings":    {deep("{a: ", 4_000), `nested more than 16 deep`},
		"deep entries":     {strings.Repeat("- ", 9_000), `f.yaml:1:129: indented more than 128 columns`},
		"deep block":       {indented(400), `f.yaml:129:129: indented more than 128 columns`},
		"anchors in a row": {"a: " + strings.Repeat("&a ", 6_000) + "b", `one anchor after another`},
		"questions":        {strings.Repeat("? ", 9_000), `"? key" is not read`},
	} {
		t.Run(name, func(t *testing.T) {
			faults := loadFaults(t, c.file)
			if len(faults) != 1 || !strings.Contains(faults[0].String(), c.want) {
				t.Errorf("got %q, want %q", faults, c.want)
			}
		})
	}
}

// TestAliasBomb multiplies values by aliases.
func TestAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("providers:\n  groq:\n    availableModels: &many [llama-3.1-8b-instant")
	for i := range 4600 {
		fmt.Fprintf(&b, ", m%d", i)
	}
	b.WriteString("]\n")
	for _, id := range ProviderIDs {
		if id != "groq" {
			fmt.Fprintf(&b, "  %s: {availableModels: *many}\n", id)
		}
	}
	const want = "more than 50000 values with all aliases followed"
	if faults := loadFaults(t, b.String()); !strings.Contains((&Error{Faults: faults}).Error(), want) {
		t.Errorf("got %q, want %q", faults, want)
	}
}

// TestLoopingAlias has an alias inside its own anchor.
func TestLoopingAlias(t *testing.T) {
	for _, file := range []string{
		"providers: &p {openai: *p}\n",
		"providers: {openai: &m {models: *m}}\n",
		"provider_priority: {fast: &l [*l]}\n",
		"mode: &m *m\n",
	} {
		loadFaults(t, file)
	}
}

func TestUnreadableFile(t *testing.T) {
	_, err := Load(Options{File: filepath.Join(t.TempDir(), "none.yaml")})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "none.yaml: cannot be read: no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
	dir := t.TempDir()
	if _, err = Load(Options{File: dir}); err == nil || !strings.HasPrefix(err.Error(), dir+": cannot be read: ") {
		t.Errorf("a folder: %v", err)
	}
}

// TestFaultsAreBounded has more faults than anyone reads.
func TestFaultsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 500 {
		b.WriteString("key" + strings.Repeat("x", i) + ": 1\n")
	}
	faults := loadFaults(t, b.String())
	last := faults[len(faults)-1]
	if len(faults) != maxFaults+1 || last.Message != "and 400 faults more; mend these first" {
		t.Errorf("%d faults, the last %q", len(faults), last)
	}
}

// TestFaultsOfFileAndEnvironment come together, the file's first.
func TestFaultsOfFileAndEnvironment(t *testing.T) {
	faults := loadFaults(t, "mode: x\npools: 3\n", "LLM_INGESTION_SLOTS=x")
	want := []string{"f.yaml", "f.yaml", environmentFile}
	var got []string
	for _, f := range faults {
		got = append(got, f.File)
	}
	if !slices.Equal(got, want) {
		t.Errorf("faults of %q, want of %q", got, want)
	}
	if faults[2].Path != "LLM_INGESTION_SLOTS" || faults[2].Line != 0 {
		t.Errorf("the variable's fault is %+v", faults[2])
	}
}
