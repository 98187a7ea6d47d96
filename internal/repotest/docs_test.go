package repotest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/hooks"
	"github.com/sluice-llm/sluice/sluicetest"
	"github.com/sluice-llm/sluice/subjects"
)

// The examples in the documents are run as they are written. The words after
// the opening fence say how:
//
//	text                 prose or a picture: not checked
//	text output          what the block before it prints; … stands for anything
//	sh run               run by bash; sh fails: it must fail
//	sh serve             starts a node, which must become ready and end well
//	sh make              the targets are in the Makefile
//	sh parse             read by bash, not run: it needs another machine
//	python|js|go run     run as a program; go check: compiled
//	json request SUBJECT [KIND]   sent to the subject; answered, or refused with KIND
//	json shape NAME      has exactly the fields of that message (see shapes)
//	yaml, yaml refused   a configuration file, checked
//
// 127.0.0.1:4222 and 127.0.0.1:12435 stand for the addresses of the test's node.

// block is one fenced example.
type block struct {
	file string
	line int
	info []string
	text string
	// output is the expected output, from the block after it.
	output    string
	hasOutput bool
}

func (b *block) verb() string {
	if len(b.info) < 2 {
		return ""
	}
	return b.info[1]
}

func (b *block) name() string {
	return fmt.Sprintf("line %d %s", b.line, strings.Join(b.info, " "))
}

var fence = regexp.MustCompile("^( *)(`{3,})(.*)$")

// blocksOf takes the fenced blocks out of a document.
func blocksOf(t *testing.T, file string) []*block {
	t.Helper()
	var out []*block
	var open *block
	var indent, mark string
	for i, line := range strings.Split(string(read(t, file)), "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case open == nil && m != nil:
			open, indent, mark = &block{file: file, line: i + 1, info: strings.Fields(m[3])}, m[1], m[2]
		case open != nil && m != nil && m[2] == mark && strings.TrimSpace(m[3]) == "":
			if len(out) > 0 && slices.Equal(open.info, []string{"text", "output"}) {
				out[len(out)-1].output, out[len(out)-1].hasOutput = open.text, true
			} else {
				out = append(out, open)
			}
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	if open != nil {
		t.Errorf("%s:%d: the block does not end", file, open.line)
	}
	return out
}

func documents(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, f := range files(t) {
		if strings.HasSuffix(f, ".md") && !strings.Contains(f, "testdata/") {
			out = append(out, f)
		}
	}
	if len(out) == 0 {
		t.Fatal("there is no document")
	}
	return out
}

// scratch is the folder of what is built for the tests; "" = none was needed.
var scratch string

// kit is what runs the examples: the built program and the installed packages.
var kit = sync.OnceValues(func() (bin string, err error) {
	install := exec.Command("examples/install.sh")
	install.Dir = root
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	if bin, err = os.MkdirTemp("", "sluice-docs-"); err != nil {
		return "", err
	}
	scratch = bin
	build := exec.Command("go", "build", "-o", filepath.Join(bin, "sluice"), "./cmd/sluice")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return bin, fmt.Errorf("%w\n%s", err, out)
	}
	return bin, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if scratch != "" {
		_ = os.RemoveAll(scratch)
	}
	os.Exit(code)
}

// bench is one document's workplace: a node, and a folder that looks like the
// repository to what is run in it.
type bench struct {
	node *sluice.Node
	bin  string
	root string
	dir  string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	bin, err := kit()
	if err != nil {
		t.Fatal(err)
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{bin: bin, root: abs, dir: t.TempDir()}
	for _, name := range []string{"examples", "config", "nats.conf"} {
		if err := os.Symlink(filepath.Join(abs, name), filepath.Join(b.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	b.node = sluicetest.Start(t, sluice.WithNATSListen("127.0.0.1:0"), sluice.WithHTTP("127.0.0.1:0"))
	return b
}

// here puts the test node's addresses into an example.
func (b *bench) here(text string) string {
	nats := strings.TrimPrefix(b.node.NATSURL(), "nats://")
	return strings.NewReplacer("127.0.0.1:4222", nats, "127.0.0.1:12435", b.node.HTTPAddr()).Replace(text)
}

func (b *bench) command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = b.dir
	cmd.Env = []string{
		"PATH=" + b.bin + ":" + filepath.Join(b.root, ".examples/venv/bin") + ":" + os.Getenv("PATH"),
		"HOME=" + os.Getenv("HOME"), "PYTHONDONTWRITEBYTECODE=1", "TMPDIR=" + b.dir,
		"NATS_URL=" + b.node.NATSURL(), "SLUICE_NATS_URL=" + b.node.NATSURL(), "SLUICE_URL=http://" + b.node.HTTPAddr() + "/v1",
	}
	return cmd
}

// TestDocuments runs every example of every document.
func TestDocuments(t *testing.T) {
	for _, file := range documents(t) {
		t.Run(file, func(t *testing.T) {
			blocks := blocksOf(t, file)
			if len(blocks) == 0 {
				return
			}
			b := newBench(t)
			for _, ex := range blocks {
				t.Run(ex.name(), func(t *testing.T) { b.check(t, ex) })
			}
		})
	}
}

func (b *bench) check(t *testing.T, ex *block) {
	t.Helper()
	if len(ex.info) == 0 {
		t.Fatalf("%s:%d: say after the fence what the block is and how it is checked (see docs_test.go)", ex.file, ex.line)
	}
	switch how := ex.info[0] + " " + ex.verb(); how {
	case "text ":
	case "sh run", "python run", "js run", "go run":
		b.run(t, ex, false)
	case "sh fails":
		b.run(t, ex, true)
	case "sh parse":
		b.must(t, exec.CommandContext(t.Context(), "bash", "-n", "-c", ex.text))
	case "sh serve":
		b.serve(t, ex)
	case "sh make":
		b.targets(t, ex)
	case "go check":
		b.must(t, b.goProgram(t, ex, "vet"))
	case "json request":
		b.request(t, ex)
	case "json shape":
		shape(t, ex)
	case "yaml ", "yaml refused":
		yaml(t, ex)
	default:
		t.Fatalf("%s:%d: %q is no way to check a block (see docs_test.go)", ex.file, ex.line, how)
	}
}

func (b *bench) must(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func (b *bench) run(t *testing.T, ex *block, fails bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var cmd *exec.Cmd
	switch ex.info[0] {
	case "sh":
		cmd = b.command(ctx, "bash", "-euo", "pipefail", "-c", b.here(ex.text))
	case "python":
		cmd = b.command(ctx, filepath.Join(b.root, ".examples/venv/bin/python"), "-c", b.here(ex.text))
	case "js":
		// Node looks for packages beside the program: here, the examples.
		cmd = b.command(ctx, "node", "--input-type=module", "-e", b.here(ex.text))
		cmd.Dir = filepath.Join(b.root, "examples/node")
	case "go":
		cmd = b.goProgram(t, ex, "run")
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); (err != nil) != fails {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	if ex.hasOutput && !pattern(b.here(ex.output)).MatchString(out.String()) {
		t.Errorf("it prints\n%s\nand the document says\n%s", out.String(), ex.output)
	}
}

// pattern matches an expected output, in which … stands for anything.
func pattern(want string) *regexp.Regexp {
	parts := strings.Split(strings.TrimSpace(want), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`(?s)^\s*` + strings.Join(parts, `.*?`) + `\s*$`)
}

func (b *bench) goProgram(t *testing.T, ex *block, do string) *exec.Cmd {
	t.Helper()
	name := "main.go"
	if strings.Contains(ex.text, "testing.T") {
		name = "main_test.go"
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(b.here(ex.text)), 0o600); err != nil {
		t.Fatal(err)
	}
	if do == "run" && name == "main_test.go" {
		do = "test"
	}
	cmd := b.command(t.Context(), "go", do, file)
	cmd.Env = append(os.Environ(), cmd.Env...)
	cmd.Dir = b.root
	return cmd
}

// serve starts what the block says, on free ports and in a fresh folder.
func (b *bench) serve(t *testing.T, ex *block) {
	t.Helper()
	text := strings.NewReplacer("127.0.0.1:4222", "127.0.0.1:0", "127.0.0.1:12435", "127.0.0.1:0").Replace(ex.text)
	text = regexp.MustCompile(`(?m)^((?:[A-Z_]+=\S+ )*)sluice `).ReplaceAllString(text, "${1}exec sluice ")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := b.command(ctx, "bash", "-euo", "pipefail", "-c", text)
	cmd.Dir = t.TempDir()
	for _, name := range []string{"config", "nats.conf"} {
		if err := os.Symlink(filepath.Join(b.root, name), filepath.Join(cmd.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Env = slices.DeleteFunc(cmd.Env, func(kv string) bool { return strings.HasPrefix(kv, "SLUICE_NATS_URL=") })
	cmd.Env = append(cmd.Env, "SLUICE_HTTP=127.0.0.1:0", "SLUICE_NATS_LISTEN=127.0.0.1:0")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 256)
	n, _ := out.Read(line)
	ready := strings.HasPrefix(string(line[:n]), "sluice ready: ")
	if !ready {
		cancel()
	}
	err = errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait())
	if !ready || err != nil {
		t.Errorf("it said %q and ended with %v\n%s", line[:n], err, errs.String())
	}
}

// targets looks for each `make TARGET` in the Makefile.
func (b *bench) targets(t *testing.T, ex *block) {
	t.Helper()
	for line := range strings.Lines(ex.text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] != "make" || len(words) < 2:
			t.Errorf("%q is no make command", line)
		default:
			cmd := exec.CommandContext(t.Context(), "make", append([]string{"-n"}, words[1:]...)...)
			cmd.Dir = b.root
			b.must(t, cmd)
		}
	}
}

// request sends the block to its subject. A stream is read to its end.
func (b *bench) request(t *testing.T, ex *block) {
	t.Helper()
	if len(ex.info) < 3 {
		t.Fatal("json request needs a subject")
	}
	nc, err := nats.Connect(b.node.NATSURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	msg := &subjects.Msg{Subject: ex.info[2], Data: []byte(ex.text)}
	var head struct {
		Stream bool `json:"stream"`
	}
	if err := json.Unmarshal(msg.Data, &head); err != nil {
		t.Fatal(err)
	}
	client := subjects.NewClient(nc)
	if head.Stream {
		err = client.Stream(ctx, msg, func(*subjects.Msg) error { return nil })
	} else {
		_, err = client.Request(ctx, msg)
	}
	want := subjects.Kind("")
	if len(ex.info) > 3 {
		want = subjects.Kind(ex.info[3])
	}
	if got := subjects.KindOf(err); got != want {
		t.Errorf("answered with %q (%v), not %q", got, err, want)
	}
}

// shapes are the messages of the contract by the names that documents use.
var shapes = map[string]func() any{
	"request":   func() any { return new(subjects.Request) },
	"result":    func() any { return new(subjects.Result) },
	"event":     func() any { return new(subjects.Event) },
	"usage":     func() any { return new(subjects.UsageRecord) },
	"summary":   func() any { return new(subjects.UsageSummary) },
	"recent":    func() any { return new(subjects.RecentUsage) },
	"health":    func() any { return new(subjects.Health) },
	"providers": func() any { return new(subjects.ProvidersReply) },
	"route":     func() any { return new(subjects.Route) },
	"saturated": func() any { return new(subjects.PoolSaturatedEvent) },
	"cancel":    func() any { return new(subjects.CancelRequest) },
	"metrics":   func() any { return new(subjects.Metrics) },

	"quotaReset": func() any { return new(subjects.QuotaResetReply) },
	"cacheClear": func() any { return new(subjects.CacheClearReply) },
	"reload":     func() any { return new(subjects.ReloadReply) },
	"breaker":    func() any { return new(subjects.BreakerEvent) },
	"quota":      func() any { return new(subjects.QuotaEvent) },
	"budget":     func() any { return new(subjects.BudgetEvent) },
	"hookStatus": func() any { return new(subjects.HookEvent) },
	"config":     func() any { return new(subjects.ConfigEvent) },

	"hook.mock":        func() any { return new(hooks.MockRequest) },
	"hook.sensitivity": func() any { return new(hooks.Content) },
	"hook.over_budget": func() any {
		return new(struct {
			Question string `json:"question"`
			hooks.BudgetQuestion
		})
	},
	"hook.track_cost": func() any {
		return new(struct {
			Question string `json:"question"`
			hooks.BudgetCost
		})
	},
	"hook.sensitivity.reply": func() any { return new(hooks.Classification) },
	"hook.over_budget.reply": func() any { return new(hooks.BudgetAnswer) },
}

// shape reads the block as a message of the contract. What it writes back must
// be the same: no field is missing, none is unknown.
func shape(t *testing.T, ex *block) {
	t.Helper()
	if len(ex.info) < 3 {
		t.Fatal("json shape needs a name")
	}
	var given any
	if err := json.Unmarshal([]byte(ex.text), &given); err != nil {
		t.Fatal(err)
	}
	if ex.info[2] == "error" {
		e := &subjects.Error{}
		compare(t, ex, given, e)
		return
	}
	make, ok := shapes[ex.info[2]]
	if !ok {
		t.Fatalf("there is no shape %q", ex.info[2])
	}
	compare(t, ex, given, make())
}

func compare(t *testing.T, ex *block, given, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(ex.text), into); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(into)
	if err != nil {
		t.Fatal(err)
	}
	var back any
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	want, _ := json.MarshalIndent(back, "", "  ")
	got, _ := json.MarshalIndent(given, "", "  ")
	if !bytes.Equal(got, want) {
		t.Errorf("the message is\n%s\nand the document has\n%s", want, got)
	}
}

// yaml reads the block as a configuration file.
func yaml(t *testing.T, ex *block) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "llm-providers.yaml")
	if err := os.WriteFile(file, []byte(ex.text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := config.Load(config.Options{File: file})
	if refused := ex.verb() == "refused"; (err != nil) != refused {
		t.Errorf("%v", err)
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinks follows the links between documents.
func TestLinks(t *testing.T) {
	for _, file := range documents(t) {
		text := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(string(read(t, file)), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path := file
			if target != "" {
				path = filepath.Join(filepath.Dir(file), target)
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", file, m[1])
			} else if anchor != "" && !slices.Contains(anchors(t, path), anchor) {
				t.Errorf("%s: %s has no heading for the link %s", file, path, m[1])
			}
		}
	}
}

// anchors are a document's headings as links name them.
func anchors(t *testing.T, file string) (out []string) {
	t.Helper()
	notAnchor := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for line := range strings.Lines(string(read(t, file))) {
		if rest := strings.TrimLeft(line, "#"); rest != line && strings.HasPrefix(rest, " ") {
			s := notAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(rest)), "")
			out = append(out, strings.ReplaceAll(s, " ", "-"))
		}
	}
	return out
}

// TestEveryDocumentIsListed holds docs/README.md as the index of the folder.
func TestEveryDocumentIsListed(t *testing.T) {
	index := string(read(t, "docs/README.md"))
	for _, file := range documents(t) {
		if dir, name := filepath.Split(file); dir == "docs/" && name != "README.md" && !strings.Contains(index, "("+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
}
