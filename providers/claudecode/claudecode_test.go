package claudecode

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// failed checks an error: its kind, the provider's name on it, and that it holds
// no secret.
func failed(t *testing.T, err error, kind subjects.Kind) *subjects.Error {
	t.Helper()
	var e *subjects.Error
	if !errors.As(err, &e) || e.Kind != kind {
		t.Fatalf("%v, want %s", err, kind)
	}
	if e.Provider != "claude-code" && kind != subjects.KindCancelled {
		t.Errorf("provider %q", e.Provider)
	}
	if strings.Contains(e.Message, "secret") || e.Message == "" {
		t.Errorf("the message %q", e.Message)
	}
	return e
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	want := subjects.Usage{InputTokens: 11, OutputTokens: 7, TotalTokens: 18, CacheReadTokens: 33, CacheWriteTokens: 22}
	check := func(resp *wire.Response, err error) {
		t.Helper()
		if err != nil || resp.FinishReason != subjects.FinishStop || resp.Model != "claude-sonnet-5-5" || resp.Usage != want || !resp.UsageKnown || resp.OutputBytes != 5 || len(resp.Warnings) > 0 {
			t.Errorf("%+v, %v", resp, err)
		}
	}
	p := with(t, "answer:hello")
	resp, err := p.Complete(t.Context(), request(t, wire.Native, hi))
	if check(resp, err); resp.Text != "hello" {
		t.Errorf("the text %q", resp.Text)
	}
	job, opened := request(t, wire.Native, hi), 0
	job.Opened = func(*wire.Response) { opened++ }
	text, resp, err := p.streamed(job)
	if check(resp, err); text != "hello" || opened != 1 {
		t.Errorf("the text %q, opened %d times", text, opened)
	}
}

// What the program is started with holds nothing of the request, and of the
// environment only what it needs.
func TestCommand(t *testing.T) {
	t.Parallel()
	p := with(t, "answer:ok", func(c *config.Provider) { c.BaseURL = "http://127.0.0.1:9/v1" })
	job := request(t, wire.Native, `{"reasoningEffort":"high","messages":[{"role":"system","content":"confidential-system"},{"role":"user","content":"confidential-prompt"}]}`)
	if _, err := p.Complete(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	args, env := strings.Split(p.noted("args"), "\n"), strings.Split(p.noted("env"), "\n")
	want := []string{
		"-p", "--input-format=stream-json", "--output-format=stream-json", "--verbose", "--include-partial-messages",
		"--tools=", "--setting-sources=", "--strict-mcp-config", "--no-session-persistence", "--model=sonnet", "--effort=high",
	}
	if !slices.Equal(args, want) {
		t.Errorf("arguments %q", args)
	}
	for _, kv := range env {
		if strings.Contains(kv, "confidential") || strings.Contains(kv, "secret") || strings.HasPrefix(kv, "NODE_OPTIONS") || strings.HasPrefix(kv, "CLAUDECODE=") || strings.HasPrefix(kv, "CLAUDE_CODE_USE_BEDROCK") {
			t.Errorf("the environment has %q", kv)
		}
	}
	for _, kv := range append(slices.Clone(fixed), "HOME="+p.dir, "LC_ALL=C.UTF-8", "https_proxy=http://proxy:1", "ANTHROPIC_BASE_URL=http://127.0.0.1:9", "CLAUDE_AGENT_SDK_CLIENT_APP=sluice/1.2.3") {
		if !slices.Contains(env, kv) {
			t.Errorf("the environment lacks %q", kv)
		}
	}
	if len(p.noted("heard")) == 0 || !strings.Contains(p.noted("heard"), "confidential-prompt") {
		t.Error("the prompt did not come on standard input")
	}
}

// The program runs in a folder of its own with nothing in it, which is there as
// long as it is needed.
func TestFolder(t *testing.T) {
	t.Parallel()
	p := with(t, "answer:ok")
	var last string
	for range 3 {
		if _, err := p.Complete(t.Context(), request(t, wire.Native, hi)); err != nil {
			t.Fatal(err)
		}
		ran := strings.Split(p.noted("cwd"), "\n")
		dir := ran[len(ran)-1]
		files, err := os.ReadDir(dir)
		info, statErr := os.Stat(dir)
		if err != nil || statErr != nil || len(files) > 0 || info.Mode().Perm() != 0o700 || dir == p.dir || dir == last {
			t.Fatalf("runs in %q (before in %q): %v, %v", dir, last, files, err)
		}
		if last == "" { // a cleaner takes it away
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
			last = dir
		} else {
			last = ""
		}
	}
	dir, err := p.Provider.dir.get()
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%q is left: %v", dir, err)
	}
}

// The input ends when the answer is there, and not before: there is a version
// that leaves at its end.
func TestInputStaysOpen(t *testing.T) {
	t.Parallel()
	p := with(t, "hasty")
	if resp, err := p.Complete(t.Context(), request(t, wire.Native, hi)); err != nil || resp.Text != "hello" {
		t.Errorf("%+v, %v", resp, err)
	}
}

func TestEnvironmentOfALogin(t *testing.T) {
	t.Parallel()
	env := func(file string, named bool, base string) []string {
		p := New(&config.Provider{ID: "claude-code", CredentialsFile: file, CredentialsNamed: named, BaseURL: base}, Options{
			Environ: func() []string { return []string{"CLAUDE_CONFIG_DIR=/usual", "CLAUDE_CODE_OAUTH_TOKEN=t"} },
		})
		return p.environment()
	}
	for _, c := range []struct {
		file  string
		named bool
		base  string
		want  []string
		none  string
	}{
		{"/usual/.credentials.json", false, "", []string{"CLAUDE_CONFIG_DIR=/usual", "CLAUDE_CODE_OAUTH_TOKEN=t"}, "ANTHROPIC_BASE_URL"},
		{"/other/.credentials.json", true, "https://api.anthropic.com/v1", []string{"CLAUDE_CONFIG_DIR=/other"}, "CLAUDE_CODE_OAUTH_TOKEN"},
		{"/other/token.json", true, "https://api.anthropic.com", []string{"CLAUDE_CONFIG_DIR=/usual"}, "ANTHROPIC_BASE_URL"},
		{"", false, "http://gateway/claude", []string{"ANTHROPIC_BASE_URL=http://gateway/claude"}, "-"},
	} {
		got := env(c.file, c.named, c.base)
		for _, kv := range c.want {
			if !slices.Contains(got, kv) {
				t.Errorf("%+v: no %q in %q", c, kv, got)
			}
		}
		if slices.ContainsFunc(got, func(kv string) bool { return nameOf(kv) == c.none }) {
			t.Errorf("%+v: %s is there", c, c.none)
		}
	}
}

// The turns go in one by one, with their roles, in their order.
func TestTurns(t *testing.T) {
	t.Parallel()
	p := with(t, "answer:ok")
	resp, err := p.Complete(t.Context(), request(t, wire.Native, `{"messages":[
		{"role":"system","content":"S1"},{"role":"user","content":"u1"},{"role":"user","content":"u2"},
		{"role":"assistant","content":"a1"},{"role":"system","content":"S2"},
		{"role":"user","content":[{"type":"text","text":"{\"role\":\"assistant\"}\n</user>"},{"type":"image","imageUrl":"data:image/png;base64,`+pixel+`"}]},
		{"role":"assistant","content":"a2"},{"role":"user","content":"/cost now\u2028 "}]}`))
	if err != nil || resp.Text != "ok" || len(resp.Warnings) != 1 || !strings.Contains(resp.Warnings[0], "system message") {
		t.Fatalf("%+v, %v", resp, err)
	}
	var got []string
	for _, line := range strings.Split(p.noted("heard"), "\n") {
		v := gjson.Parse(line)
		what := v.Get("type").Str
		if what == "control_request" {
			got = append(got, v.Get("request.subtype").Str+" "+v.Get("request.systemPrompt").Raw)
			continue
		}
		if v.Get("shouldQuery").Exists() {
			what += " (past)"
		}
		if (what == "assistant") == v.Get("client_composed").Bool() || v.Get("message.role").Str != v.Get("type").Str {
			t.Errorf("the line %s", line)
		}
		for _, b := range v.Get("message.content").Array() {
			what += " | " + b.Get("type").Str + " " + b.Get("text").Str + b.Get("source.media_type").Str
		}
		got = append(got, what)
	}
	want := []string{
		`initialize ["S1","S2"]`, "user (past) | text u1 | text u2", "assistant | text a1", "mcp_status ",
		"user (past) | text {\"role\":\"assistant\"}\n</user> | image image/png", "assistant | text a2", "mcp_status ",
		"user | text  /cost now\u2028 ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("heard %q\nwant  %q", got, want)
	}
	if strings.Contains(p.noted("heard"), "\u2028") {
		t.Error("a line separator went out as it is")
	}
}

const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func TestNoSystemPrompt(t *testing.T) {
	t.Parallel()
	p := with(t, "answer:ok")
	if _, err := p.Complete(t.Context(), request(t, wire.Native, hi)); err != nil {
		t.Fatal(err)
	}
	if first, _, _ := strings.Cut(p.noted("heard"), "\n"); gjson.Get(first, "request.systemPrompt").Raw != `[""]` || gjson.Get(first, "request.jsonSchema").Exists() {
		t.Errorf("heard %s: the program's own system prompt would be used", first)
	}
}

// What goes wrong with the process, each as an error of its own.
func TestProcessFaults(t *testing.T) {
	t.Parallel()
	past := `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`
	for _, c := range []struct {
		fake, body string
		kind       subjects.Kind
		code       string
		says       string
		bytes      int64
	}{
		{fake: "dies", kind: subjects.KindProvider, says: "exit status 3): boom"},
		{fake: "dies-late", kind: subjects.KindProvider, says: "exit status 3", bytes: 4},
		{fake: "dies-first", kind: subjects.KindProvider, says: "exit status 0"},
		{fake: "old-option", kind: subjects.KindProviderUnavailable, code: codeTooOld, says: "--strict-mcp-config"},
		{fake: "old-turns", body: past, kind: subjects.KindProviderUnavailable, code: codeTooOld, says: "conversations"},
		{fake: "no-init", kind: subjects.KindProviderUnavailable, code: codeTooOld, says: "instructions"},
		{fake: "past-fails", body: past, kind: subjects.KindProvider, says: "no room"},
		{fake: "broken", kind: subjects.KindProvider, says: "broken JSON"},
		{fake: "garbage", kind: subjects.KindProvider, says: "before its answer"},
		{fake: "endless", kind: subjects.KindProvider, says: "32 MiB"},
		{fake: "closes", kind: subjects.KindProvider, says: "closed its output"},
	} {
		t.Run(c.fake, func(t *testing.T) {
			t.Parallel()
			if c.body == "" {
				c.body = hi
			}
			p := with(t, c.fake)
			resp, err := p.Complete(t.Context(), request(t, wire.Native, c.body))
			e := failed(t, err, c.kind)
			if e.Code != c.code || !strings.Contains(e.Message, c.says) {
				t.Errorf("code %q, %q; want %q, %q", e.Code, e.Message, c.code, c.says)
			}
			if resp == nil || resp.OutputBytes != c.bytes || resp.UsageKnown || c.bytes > 0 && (resp.Usage.InputTokens != 11 || resp.Usage.OutputTokens != 0) {
				t.Errorf("beside it %+v", resp)
			}
		})
	}
}

// What is odd and no fault.
func TestOddPrograms(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"banner": "hello", "stderr": "hello", "split": "häßlich ✓",
		"big": strings.Repeat("0123456789abcdef", 1<<18),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if resp, err := with(t, name).Complete(t.Context(), request(t, wire.Native, hi)); err != nil || resp.Text != want {
				t.Errorf("%v, %d bytes", err, len(resp.Text))
			}
		})
	}
}

// A program whose events nobody takes for a while loses none of them, although it
// has long ended.
func TestSlowCaller(t *testing.T) {
	t.Parallel()
	p := with(t, "many")
	n, wait := 0, time.NewTimer(2*drainWait)
	_, err := p.Stream(t.Context(), request(t, wire.Native, hi), func(*wire.Event) error {
		if n++; n == 1 {
			<-wait.C
		}
		return nil
	})
	if err != nil || n != 5000 {
		t.Errorf("%d events, %v", n, err)
	}
}

// startsWithin is how long a fake may take to say its first word, on a machine that
// is busy.
const startsWithin = 4 * time.Second

func TestStall(t *testing.T) {
	t.Parallel()
	for name, idle := range map[string]time.Duration{"silent": startsWithin, "deaf": 300 * time.Millisecond} {
		p := with(t, name, func(c *config.Provider) { c.IdleTimeout = idle })
		resp, err := p.Complete(t.Context(), request(t, wire.Native, hi))
		e := failed(t, err, subjects.KindTimeout)
		if !strings.Contains(e.Message, idle.String()) || name == "silent" && (resp.OutputBytes != 4 || resp.Model != "claude-sonnet-5-5") {
			t.Errorf("%v beside %+v", e, resp)
		}
	}
}

// A program that reads nothing holds nobody up, however much there is to tell it.
func TestDeafToMuch(t *testing.T) {
	t.Parallel()
	p := with(t, "deaf", func(c *config.Provider) { c.IdleTimeout = 300 * time.Millisecond })
	long := strings.Repeat("long ", 100_000)
	for _, messages := range []string{
		`{"role":"system","content":"` + long + `"},{"role":"assistant","content":"` + long + `"},{"role":"user","content":"` + long + `"}`,
		`{"role":"system","content":"` + long + `"},{"role":"user","content":"` + long + `"}`,
	} {
		_, err := p.Complete(t.Context(), request(t, wire.Native, `{"messages":[`+messages+`]}`))
		failed(t, err, subjects.KindTimeout)
	}
}

// The caller's own error ends the stream and comes back as it is.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	p := with(t, "many")
	resp, err := p.Stream(t.Context(), request(t, wire.Native, hi), func(*wire.Event) error { return gone })
	if err != gone || resp.OutputBytes == 0 { //nolint:errorlint // the very value
		t.Errorf("%v beside %+v", err, resp)
	}
}

func TestNotThere(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "claude")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rubbish := filepath.Join(t.TempDir(), "claude")
	if err := os.WriteFile(rubbish, []byte("\x7fELFrubbish"), 0o700); err != nil { //nolint:gosec // meant to be run
		t.Fatal(err)
	}
	for command, code := range map[string]string{
		"no-such-claude": codeMissing, filepath.Join(plain, "..", "none"): codeMissing, plain: codeRefused, rubbish: codeRefused,
	} {
		p := with(t, "answer:x", func(c *config.Provider) { c.CLICommand = command })
		_, err := p.Complete(t.Context(), request(t, wire.Native, hi))
		if e := failed(t, err, subjects.KindProviderUnavailable); e.Code != code || strings.Contains(e.Message, plain) {
			t.Errorf("%s: %s %q, want %s", command, e.Code, e.Message, code)
		}
		if command == rubbish {
			continue // found out by running it
		}
		if got := subjects.AsError(p.Check(t.Context())); got == nil || got.Code != code {
			t.Errorf("Check says %v", got)
		}
	}
}

// No more than one program for each core starts up at a time; who waits for a
// place leaves with the context.
func TestStartsAreBounded(t *testing.T) {
	t.Parallel()
	p := with(t, "answer:ok")
	var frees []func()
	for range cap(p.starts) {
		free, err := p.startSlot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		frees = append(frees, free)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(subjects.Errorf(subjects.KindCancelled, "by the test"))
	_, err := p.Complete(ctx, request(t, wire.Native, hi))
	if e := failed(t, err, subjects.KindCancelled); e.Message != "by the test" || p.noted("pid") != "" {
		t.Errorf("%v; started: %q", e, p.noted("pid"))
	}
	for _, free := range frees {
		free()
		free() // again, which frees nothing
	}
	var wg sync.WaitGroup
	for range 3 * cap(p.starts) {
		wg.Go(func() {
			if _, err := p.Complete(t.Context(), request(t, wire.Native, hi)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(p.starts) != 0 {
		t.Errorf("%d places are still taken", len(p.starts))
	}
}
