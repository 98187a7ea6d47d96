// Command testcount reads the output of `go test -json` and prints what a
// person wants of it: a line for each package, the whole output of each test
// that failed, the reason of each that was skipped, and the counts.
//
//	go test -json ./... | go run ./internal/repotest/testcount
//
// Its last line is "N passed, N failed, N skipped". A test with subtests counts
// as its subtests; a package that does not build, panics or runs out of time
// counts as one failed test. The exit status is 1 when something failed or no
// test ran. With -add FILE the counts are also appended to FILE, one line a run.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	add := flag.String("add", "", "append the counts to this `file`")
	flag.Parse()
	r := newReport(os.Stdout)
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testcount:", err)
		os.Exit(1)
	}
	t := r.finish()
	if *add != "" {
		if err := appendLine(*add, t.String()); err != nil {
			fmt.Fprintln(os.Stderr, "testcount:", err)
			os.Exit(1)
		}
	}
	if t.failed > 0 || t.passed == 0 {
		os.Exit(1)
	}
}

func appendLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, line); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// event is one line of `go test -json` (see `go doc test2json`).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

type counts struct{ passed, failed, skipped int }

func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, c.failed, c.skipped)
}

// result is how one test ended; output is kept until then.
type result struct {
	action string
	output []string
}

// pkg is one package's tests by name; "" is the package itself.
type pkg map[string]*result

type report struct {
	out     io.Writer
	pkgs    map[string]pkg
	builds  map[string][]string
	skips   []string
	total   counts
	summary []string // of the failed packages, said again at the end
}

func newReport(out io.Writer) *report {
	return &report{out: out, pkgs: map[string]pkg{}, builds: map[string][]string{}}
}

// read takes in a run. A line that is no event is the go command's own: it is
// passed on.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if line[0] == '{' && json.Unmarshal(line, &e) == nil {
				r.event(&e)
			} else {
				fmt.Fprintf(r.out, "%s", line)
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

func (r *report) event(e *event) {
	if e.Action == "build-output" {
		r.builds[e.ImportPath] = append(r.builds[e.ImportPath], e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := r.pkgs[e.Package]
	if p == nil {
		p = pkg{}
		r.pkgs[e.Package] = p
	}
	t := p[e.Test]
	if t == nil {
		t = &result{}
		p[e.Test] = t
	}
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
	case "pass", "fail", "skip":
		t.action = e.Action
		switch {
		case e.Test == "":
			r.endPackage(e, p)
		case e.Action == "pass":
			t.output = nil
		}
	}
}

// endPackage counts a package's tests and prints its line.
func (r *report) endPackage(e *event, p pkg) {
	var c counts
	for _, name := range slices.Sorted(maps.Keys(p)) {
		t := p[name]
		if name == "" || isParent(p, name, t) {
			continue
		}
		switch t.action {
		case "pass":
			c.passed++
		case "skip":
			c.skipped++
			r.skips = append(r.skips, e.Package+" "+name+": "+reason(t.output))
		default: // failed, or still running when the package ended
			c.failed++
			r.print(e.Package+" "+name, t.output)
		}
	}
	if e.Action == "fail" && c.failed == 0 {
		c.failed++
		r.print(e.Package, slices.Concat(r.builds[e.FailedBuild], p[""].output))
	}
	r.total.passed += c.passed
	r.total.failed += c.failed
	r.total.skipped += c.skipped
	delete(r.pkgs, e.Package)
	if e.Action == "skip" {
		return // it has no tests
	}
	verdict := "ok  "
	if c.failed > 0 {
		verdict = "FAIL"
	}
	line := fmt.Sprintf("%s %6.1fs  %s: %s", verdict, e.Elapsed, e.Package, c)
	if c.failed > 0 {
		r.summary = append(r.summary, line)
	}
	fmt.Fprintln(r.out, line)
}

// isParent reports whether a test is counted by its subtests: it has some, and
// where it failed, so did one of them.
func isParent(p pkg, name string, t *result) bool {
	children, same := false, false
	for other, o := range p {
		if strings.HasPrefix(other, name+"/") {
			children = true
			same = same || o.action == t.action
		}
	}
	return children && (same || t.action == "pass")
}

func (r *report) print(title string, output []string) {
	fmt.Fprintf(r.out, "\n--- %s\n%s\n", title, strings.Join(output, ""))
}

// reason is what a skipped test said.
func reason(output []string) string {
	var said []string
	for _, line := range output {
		if s := strings.TrimSpace(line); s != "" && !strings.HasPrefix(s, "===") && !strings.HasPrefix(s, "---") {
			said = append(said, s)
		}
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

// finish prints what must not be missed, and the counts. A package without an
// end (the run was cut off) counts as failed.
func (r *report) finish() counts {
	for _, name := range slices.Sorted(maps.Keys(r.pkgs)) {
		r.endPackage(&event{Action: "fail", Package: name}, r.pkgs[name])
	}
	for _, s := range r.skips {
		fmt.Fprintln(r.out, "skipped", s)
	}
	for _, s := range r.summary {
		fmt.Fprintln(r.out, s)
	}
	fmt.Fprintln(r.out, r.total)
	return r.total
}
