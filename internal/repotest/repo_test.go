package repotest

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// root is the repository's root, seen from this package.
const root = "../.."

// pkg is what `go list` says of a package.
type pkg struct {
	ImportPath   string
	GoFiles      []string
	Imports      []string
	Deps         []string
	TestGoFiles  []string
	XTestGoFiles []string
	Dir          string
}

var listed = sync.OnceValues(func() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,GoFiles,Imports,Deps,TestGoFiles,XTestGoFiles,Dir", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, withStderr(err)
	}
	var all []pkg
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
})

func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return errors.Join(err, errors.New(string(exit.Stderr)))
	}
	return err
}

func packages(t *testing.T) []pkg {
	t.Helper()
	all, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("go list found no package")
	}
	return all
}

var tracked = sync.OnceValues(func() ([]string, error) { return git("ls-files", "-z") })

func git(args ...string) ([]string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, withStderr(err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
}

// files returns the repository's tracked files that are on the disk.
func files(t *testing.T) []string {
	t.Helper()
	all, err := tracked()
	if err != nil {
		t.Fatalf("the rules are about what git tracks: %v", err)
	}
	var there []string
	for _, f := range all {
		if _, err := os.Stat(filepath.Join(root, f)); err == nil {
			there = append(there, f)
		}
	}
	return there
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// goFiles parses every tracked Go file.
func goFiles(t *testing.T, visit func(file string, f *ast.File, set *token.FileSet)) {
	t.Helper()
	for _, file := range files(t) {
		if !strings.HasSuffix(file, ".go") {
			continue
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, read(t, file), parser.ParseComments)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		visit(file, f, set)
	}
}

// TestPackageComments holds that each package is explained once.
func TestPackageComments(t *testing.T) {
	comments := map[string][]string{}
	dirs := map[string]bool{}
	goFiles(t, func(file string, f *ast.File, _ *token.FileSet) {
		dir := filepath.Dir(file)
		dirs[dir] = true
		if f.Doc != nil && !strings.HasSuffix(f.Name.Name, "_test") && !onlyDirectives(f.Doc) {
			comments[dir] = append(comments[dir], filepath.Base(file))
		}
	})
	for dir := range dirs {
		if strings.Contains(dir, "testdata") {
			continue
		}
		if n := len(comments[dir]); n != 1 {
			t.Errorf("package %s has %d package comments, not 1: %s", dir, n, strings.Join(comments[dir], ", "))
		}
	}
}

func onlyDirectives(doc *ast.CommentGroup) bool { return strings.TrimSpace(doc.Text()) == "" }

// maxLines is the longest that a function may be.
const maxLines = 80

// TestFunctionLength holds that a function can be read at a glance.
func TestFunctionLength(t *testing.T) {
	goFiles(t, func(file string, f *ast.File, set *token.FileSet) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if n := set.Position(fn.End()).Line - set.Position(fn.Pos()).Line + 1; n > maxLines {
				t.Errorf("%s: %s has %d lines; a function has %d at most", set.Position(fn.Pos()), fn.Name.Name, n, maxLines)
			}
		}
	})
}

// TestNoSleep holds that no test waits for time to pass to be right.
func TestNoSleep(t *testing.T) {
	goFiles(t, func(file string, f *ast.File, set *token.FileSet) {
		if !strings.HasSuffix(file, "_test.go") {
			return
		}
		bubbles := calls(f, "synctest", "Test")
		for _, call := range calls(f, "time", "Sleep") {
			if !inside(call, bubbles) {
				t.Errorf("%s: time.Sleep in a test: wait for the event, or run under testing/synctest", set.Position(call.Pos()))
			}
		}
	})
}

// calls finds the calls of pkg.fn.
func calls(f *ast.File, pkg, fn string) (found []*ast.CallExpr) {
	ast.Inspect(f, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			if s, ok := c.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == fn {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == pkg {
					found = append(found, c)
				}
			}
		}
		return true
	})
	return found
}

// inside reports whether n stands in the arguments of one of the calls: time is
// fake inside synctest.Test, and a sleep there takes none.
func inside(n ast.Node, outer []*ast.CallExpr) bool {
	for _, c := range outer {
		if n.Pos() >= c.Pos() && n.End() <= c.End() {
			return true
		}
	}
	return false
}

// TestNoSkip holds that a test is skipped for a reason that is said. A fuzz
// target may pass over an input.
func TestNoSkip(t *testing.T) {
	goFiles(t, func(_ string, f *ast.File, set *token.FileSet) {
		targets := calls(f, "f", "Fuzz")
		for _, recv := range []string{"t", "b", "f", "tb"} {
			for _, c := range append(calls(f, recv, "SkipNow"), calls(f, recv, "Skip")...) {
				if len(c.Args) == 0 && !inside(c, targets) {
					t.Errorf("%s: a skip without a reason; use Skip and say why", set.Position(c.Pos()))
				}
			}
		}
	})
}

// forbidden is what no tracked text may hold.
var forbidden = []struct {
	what *regexp.Regexp
	why  string
}{
	// The words are put together here so that this file does not hold them.
	{regexp.MustCompile(`(^|[\s"'` + "`" + `(=:])/` + `(home|root|work|Users)/[\w.-]+`), "a path of one machine"},
	{regexp.MustCompile(`(registry\.npm` + `js|pypi\.` + `org|pythonhosted\.` + `org|proxy\.golang\.` + `org|sum\.golang\.` + `org)`), "a package registry's host: use its client as it is set up"},
	{regexp.MustCompile(`[A-Z]:\\Users\\`), "a path of one machine"},
	{regexp.MustCompile(`(?m)^(<{7}|>{7}) `), "a conflict that was not resolved"},
	{regexp.MustCompile(`sk-(proj|ant|live)-[A-Za-z0-9]{16,}|gsk_[A-Za-z0-9]{20,}|ghp_[A-Za-z0-9]{20,}`), "what looks like a key"},
}

// TestForbiddenText looks through every tracked text file.
func TestForbiddenText(t *testing.T) {
	for _, file := range files(t) {
		b := read(t, file)
		if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
			continue
		}
		for _, rule := range forbidden {
			if m := rule.what.FindIndex(b); m != nil {
				line := 1 + bytes.Count(b[:m[0]], []byte("\n"))
				t.Errorf("%s:%d: %q: %s", file, line, b[m[0]:m[1]], rule.why)
			}
		}
	}
}

// TestTextFiles holds line ends and final newlines.
func TestTextFiles(t *testing.T) {
	for _, file := range files(t) {
		if strings.Contains(file, "testdata/") {
			continue // inputs of tests are as they are
		}
		b := read(t, file)
		switch {
		case !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 || len(b) == 0:
		case bytes.Contains(b, []byte("\r\n")):
			t.Errorf("%s: has CRLF line ends", file)
		case b[len(b)-1] != '\n':
			t.Errorf("%s: does not end in a newline", file)
		}
	}
}

// TestNothingIgnoredIsTracked compares git's index with .gitignore.
func TestNothingIgnoredIsTracked(t *testing.T) {
	both, err := git("ls-files", "-z", "--cached", "--ignored", "--exclude-standard")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range both {
		t.Errorf("%s is tracked, and .gitignore ignores it", f)
	}
}

// TestExamplesAreShort holds that an example can be read at a glance.
func TestExamplesAreShort(t *testing.T) {
	const limit = 40
	found := 0
	for _, file := range files(t) {
		if !regexp.MustCompile(`^examples/(go|python|node|shell)/.*\.(go|py|mjs|sh)$`).MatchString(file) {
			continue
		}
		found++
		if n := bytes.Count(read(t, file), []byte("\n")); n >= limit {
			t.Errorf("%s has %d lines; an example has fewer than %d", file, n, limit)
		}
	}
	if found < 8 {
		t.Errorf("only %d examples were found", found)
	}
}

// TestNodeLocks holds that the lock files pin by hash and name no host.
func TestNodeLocks(t *testing.T) {
	all := 0
	for _, f := range files(t) {
		if filepath.Base(f) == "package-lock.json" {
			all++
			t.Run(f, func(t *testing.T) { nodeLock(t, f) })
		}
	}
	if all < 3 {
		t.Errorf("only %d lock files", all)
	}
}

func nodeLock(t *testing.T, file string) {
	var lock struct {
		Packages map[string]struct{ Version, Resolved, Integrity string }
	}
	if err := json.Unmarshal(read(t, file), &lock); err != nil {
		t.Fatal(err)
	}
	for name, p := range lock.Packages {
		if name == "" {
			continue
		}
		if p.Resolved != "" {
			t.Errorf("%s: has an address (npm install --omit-lockfile-registry-resolved)", name)
		}
		if !strings.HasPrefix(p.Integrity, "sha512-") {
			t.Errorf("%s: has no hash", name)
		}
	}
	if len(lock.Packages) < 3 {
		t.Errorf("only %d packages in the lock file", len(lock.Packages))
	}
}

// TestDirectDependencies holds docs/dependencies.md against go.mod, and that of
// the module of judges.
func TestDirectDependencies(t *testing.T) {
	doc := string(read(t, "docs/dependencies.md"))
	direct := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:\t|require )(\S+) v\S+( // indirect)?$`).FindAllStringSubmatch(string(read(t, "go.mod"))+string(read(t, "judge/go.mod")), -1) {
		if m[2] == "" && m[1] != module {
			direct[m[1]] = true
		}
	}
	if len(direct) < 5 {
		t.Errorf("only %d direct dependencies in go.mod; is it tidy?", len(direct))
	}
	for path := range direct {
		if !strings.Contains(doc, "`"+path+"`") {
			t.Errorf("docs/dependencies.md does not say why %s is needed", path)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(doc, -1) {
		if strings.Contains(m[1], ".") && strings.Contains(m[1], "/") && !direct[m[1]] {
			t.Errorf("docs/dependencies.md speaks of %s, which go.mod does not need directly", m[1])
		}
	}
}
