//go:build claude_cli

package claudecode

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// The tests of this file ask the real claude programs, which install.sh has
// installed, in scratch home folders, against a fake API on loopback:
//
//	make test-claude
//
// With -record they write the lines of the scenarios to testdata instead.
var record = flag.Bool("record", false, "write testdata anew from the real programs")

// real is one version of the program, logged in to a subscription that is made up.
type real struct {
	*Provider
	t    *testing.T
	api  *api
	home string
	cfg  *config.Provider
}

const realToken = "sk-ant-oat01-made-up"

// eachVersion runs a test with every version that is installed.
func eachVersion(t *testing.T, test func(t *testing.T, version, path string)) {
	t.Helper()
	list := os.Getenv("CLAUDE_PROGRAMS")
	if list == "" {
		t.Fatal("CLAUDE_PROGRAMS is not set: run make test-claude, which installs the programs and sets it")
	}
	for _, item := range strings.Fields(list) {
		version, path, _ := strings.Cut(item, "=")
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(t, version, path)
		})
	}
}

// realProgram makes a provider of the real program. The home folder has what must
// not reach a call: instructions, a hook and an API key in the environment.
func realProgram(t *testing.T, path string, change ...func(*config.Provider)) *real {
	t.Helper()
	home := t.TempDir()
	r := &real{t: t, api: newAPI(t), home: home}
	r.cfg = &config.Provider{
		ID: "claude-code", CLICommand: path, IdleTimeout: time.Minute, BaseURL: r.api.URL + "/v1",
		CredentialsFile: filepath.Join(home, ".claude", ".credentials.json"),
	}
	for _, c := range change {
		c(r.cfg)
	}
	hook := fmt.Sprintf(`{"hooks":{"UserPromptSubmit":[{"hooks":[{"type":"command","command":"touch %s/hook-ran"}]}],"SessionStart":[{"hooks":[{"type":"command","command":"touch %s/hook-ran"}]}]},"env":{"ANTHROPIC_API_KEY":"sk-ant-from-settings"}}`, home, home)
	r.write(".claude/.credentials.json", fmt.Sprintf(`{"claudeAiOauth":{"accessToken":%q,"refreshToken":"sk-ant-ort01-made-up","expiresAt":%d,"scopes":["user:inference","user:profile"],"subscriptionType":"max","rateLimitTier":"default_claude_max_20x"}}`, realToken, time.Now().Add(8*time.Hour).UnixMilli()))
	r.write(".claude/CLAUDE.md", "INSTRUCTIONS-OF-THE-USER")
	r.write(".claude/settings.json", hook)
	r.Provider = New(r.cfg, Options{Version: "9.8.7", Environ: func() []string {
		return []string{
			"HOME=" + home, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TMPDIR=" + home,
			"ANTHROPIC_API_KEY=sk-ant-of-the-environment", "ANTHROPIC_AUTH_TOKEN=token-of-the-environment", "ANTHROPIC_MODEL=claude-of-the-environment",
			// Whoever else the program would call is this server too.
			"HTTPS_PROXY=" + r.api.URL, "HTTP_PROXY=" + r.api.URL, "NO_PROXY=127.0.0.1",
		}
	}})
	t.Cleanup(func() {
		r.Close()
		for _, who := range r.api.leaks() {
			// It asks about its account, and for a new token when the API refuses it.
			if who != "CONNECT api.anthropic.com:443" && who != "CONNECT platform.claude.com:443" {
				t.Errorf("the program called others: %s", who)
			}
		}
	})
	return r
}

func (r *real) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.home, name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// ask makes a streaming call and returns its text.
func (r *real) ask(body string) (string, *wire.Response, error) {
	r.t.Helper()
	var text strings.Builder
	resp, err := r.Stream(r.t.Context(), request(r.t, wire.Native, body), func(ev *wire.Event) error {
		text.WriteString(ev.Text)
		return nil
	})
	return text.String(), resp, err
}

// only returns the one request that was made.
func (r *real) only() call {
	r.t.Helper()
	calls := r.api.seen()
	if len(calls) != 1 {
		r.t.Fatalf("%d requests, want 1", len(calls))
	}
	return calls[0]
}

func TestRealAnswer(t *testing.T) {
	eachVersion(t, func(t *testing.T, _, path string) {
		r := realProgram(t, path)
		r.api.next(script{header: unified("allowed_warning")})
		text, resp, err := r.ask(`{"reasoningEffort":"low","temperature":0.5,"messages":[{"role":"system","content":"Be terse."},{"role":"user","content":"say hello"}]}`)
		want := subjects.Usage{InputTokens: 11, OutputTokens: 7, TotalTokens: 18, CacheReadTokens: 33, CacheWriteTokens: 22}
		if err != nil || text != "Hello, wörld ✓" || resp.Model != "claude-sonnet-5-5" || resp.Usage != want || !resp.UsageKnown || resp.FinishReason != subjects.FinishStop {
			t.Fatalf("%q, %+v, %v", text, resp, err)
		}
		if resp.RateLimit["anthropic-ratelimit-unified-representative-claim"] != "five_hour" || len(resp.Warnings) != 1 {
			t.Errorf("limits %v, warnings %q", resp.RateLimit, resp.Warnings)
		}
		c := r.only()
		if got := c.header.Get("Authorization"); got != "Bearer "+realToken || c.header.Get("X-Api-Key") != "" {
			t.Errorf("it was %q who asked", got)
		}
		if ua := c.header.Get("User-Agent"); !strings.Contains(ua, "client-app/sluice/9.8.7") {
			t.Errorf("the user agent %q", ua)
		}
		if system := c.field("system").Array(); len(system) != 3 || system[2].Get("text").Str != "Be terse." || len(c.field("tools").Array()) != 0 || c.field("output_config.effort").Str != "low" {
			t.Errorf("the request %.3000s", c.body)
		}
		for _, text := range []string{"INSTRUCTIONS-OF-THE-USER", r.home, "of-the-environment", "from-settings"} {
			if c.has(text) {
				t.Errorf("the request has %q: %.3000s", text, c.body)
			}
		}
		if _, err := os.Stat(filepath.Join(r.home, "hook-ran")); err == nil {
			t.Error("a hook was run")
		}
		if resp, err := r.Complete(t.Context(), request(t, wire.Native, hi)); err != nil || resp.Text != "Hello, wörld ✓" {
			t.Errorf("whole: %+v, %v", resp, err)
		}
		if last := r.api.seen()[1]; len(last.field("system").Array()) != 2 {
			t.Errorf("without a system message the program's own was sent: %.2000s", last.body)
		}
	})
}

// Text is text: no file is read for it, no command run, no line broken.
func TestRealTextIsText(t *testing.T) {
	eachVersion(t, func(t *testing.T, _, path string) {
		r := realProgram(t, path)
		host, _ := os.ReadFile("/etc/hostname")
		for _, prompt := range []string{
			"read @/etc/hostname and @/etc/passwd please", "/cost", "/clear", "/model opus", "! id", "# remember", "ultrathink about it",
			"one\u2028two\u2029three\r\nfour\x7f \"{}\"", strings.Repeat("long ", 100_000),
		} {
			b, _ := json.Marshal(prompt)
			text, _, err := r.ask(`{"messages":[{"role":"user","content":` + string(b) + `}]}`)
			calls := r.api.seen()
			if err != nil || text != "Hello, wörld ✓" || len(calls) == 0 {
				t.Errorf("%.40q: %q, %d requests, %v", prompt, text, len(calls), err)
				continue
			}
			c := calls[len(calls)-1]
			sent := ""
			for _, b := range userTurns(c) {
				sent += b
			}
			if strings.TrimPrefix(sent, " ") != prompt {
				t.Errorf("%.60q went out as %.60q", prompt, sent)
			}
			if name := strings.TrimSpace(string(host)); name != "" && c.has(name) || c.has("root:x:0") {
				t.Errorf("%q read a file: %s", prompt, c.body)
			}
		}
	})
}

// userTurns are the texts of the user's messages, without what the program says
// of its surroundings.
func userTurns(c call) (out []string) {
	for _, m := range c.field("messages").Array() {
		for _, b := range m.Get("content").Array() {
			if m.Get("role").Str == "user" && !strings.HasPrefix(b.Get("text").Str, "<system-reminder>") && b.Get("text").Exists() {
				out = append(out, b.Get("text").Str)
			}
		}
	}
	return out
}

// A conversation reaches the API turn by turn, each with its role.
func TestRealConversation(t *testing.T) {
	eachVersion(t, func(t *testing.T, _, path string) {
		r := realProgram(t, path)
		var messages, want []string
		for i := range 12 {
			messages = append(messages, fmt.Sprintf(`{"role":"user","content":"/u%d"},{"role":"assistant","content":"a%d"}`, i, i))
			want = append(want, fmt.Sprintf("user: /u%d", i), fmt.Sprintf("assistant:a%d", i))
		}
		messages = append(messages, `{"role":"user","content":[{"type":"image","imageUrl":"data:image/png;base64,`+pixel+`"},{"type":"text","text":"last"}]}`)
		want = append(want, "user:image", "user:last")
		text, _, err := r.ask(`{"messages":[` + strings.Join(messages, ",") + `]}`)
		if err != nil || text != "Hello, wörld ✓" {
			t.Fatalf("%q, %v", text, err)
		}
		var got []string
		for _, m := range r.only().field("messages").Array() {
			for _, b := range m.Get("content").Array() {
				switch s := b.Get("text").Str; {
				case m.Get("role").Str == "system", strings.HasPrefix(s, "<system-reminder>"):
				case b.Get("type").Str == "image":
					got = append(got, m.Get("role").Str+":image")
				default:
					got = append(got, m.Get("role").Str+":"+s)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("went out as %q", got)
		}
	})
}

func TestRealEfforts(t *testing.T) {
	eachVersion(t, func(t *testing.T, _, path string) {
		r := realProgram(t, path)
		for effort, want := range map[string]string{"none": "", "max": "max", "xhigh": "xhigh"} {
			r.api.next()
			if _, _, err := r.ask(`{"reasoningEffort":"` + effort + `","messages":[{"role":"user","content":"hi"}]}`); err != nil {
				t.Fatal(err)
			}
			c := r.only()
			if effort == "none" && c.field("thinking").Exists() || want != "" && c.field("output_config.effort").Str != want {
				t.Errorf("%s: thinking %s, effort %s", effort, c.field("thinking").Raw, c.field("output_config").Raw)
			}
		}
	})
}

// A stop sequence ends the answer and the request.
func TestRealStop(t *testing.T) {
	eachVersion(t, func(t *testing.T, _, path string) {
		r := realProgram(t, path)
		r.api.next(script{events: turnOf(textEvents(0, "one tw", "o three", " four")), hold: true})
		text, resp, err := r.ask(`{"stop":["two"],"messages":[{"role":"user","content":"count"}]}`)
		if err != nil || text != "one " || resp.FinishReason != subjects.FinishStop || resp.UsageKnown || resp.Usage.InputTokens != 11 {
			t.Errorf("%q, %+v, %v", text, resp, err)
		}
		<-r.api.gone
		r.only()
	})
}

// A long answer comes whole.
func TestRealLongAnswer(t *testing.T) {
	eachVersion(t, func(t *testing.T, _, path string) {
		r := realProgram(t, path)
		piece := strings.Repeat("0123456789abcdef", 1<<10)
		pieces := slices.Repeat([]string{piece}, 100)
		r.api.next(script{events: turnOf(textEvents(0, pieces...), endEvents("end_turn"))})
		resp, err := r.Complete(t.Context(), request(t, wire.Native, hi))
		if err != nil || resp.Text != strings.Join(pieces, "") || resp.Usage.OutputTokens != 7 || !resp.UsageKnown {
			t.Errorf("%d bytes, %+v, %v", len(resp.Text), resp.Usage, err)
		}
	})
}

// The scenarios of testdata end as the recordings say, and cost as many requests
// as they must.
func TestRealScenarios(t *testing.T) {
	eachVersion(t, func(t *testing.T, version, path string) {
		for name, s := range scenarios() {
			if *record {
				recordLines(t, version, path, name, s)
				continue
			}
			t.Run(name, func(t *testing.T) {
				r := realProgram(t, path)
				r.api.next(s.scripts...)
				wantResp, wantText, wantErr := replay(t, filepath.Join("testdata", version, name+".jsonl"), s.schema != "")
				body := map[string]any{"messages": []map[string]string{{"role": "system", "content": "S"}, {"role": "user", "content": s.prompt}}}
				if s.schema != "" {
					body["responseFormat"] = map[string]any{"type": "json_schema", "schema": json.RawMessage(s.schema)}
				}
				b, _ := json.Marshal(body)
				text, resp, err := r.ask(string(b))
				if subjects.KindOf(err) != subjects.KindOf(wantErr) || text != wantText {
					t.Fatalf("%q, %v; recorded %q, %v", text, err, wantText, wantErr)
				}
				if resp.Usage != wantResp.Usage || resp.UsageKnown != wantResp.UsageKnown || resp.FinishReason != wantResp.FinishReason {
					t.Errorf("%+v; recorded %+v", resp, wantResp)
				}
				if e := subjects.AsError(err); e != nil && (e.Status() != subjects.AsError(wantErr).Status() || e.Code != subjects.AsError(wantErr).Code || strings.Contains(e.Message, "sk-ant")) {
					t.Errorf("%#v; recorded %v", e, wantErr)
				}
				once := []string{"ok", "thinking", "max-tokens", "refusal", "mid-error", "cut", "schema", "500", "529", "429", "429-plan"}
				if n := len(r.api.seen()); slices.Contains(once, name) && n != 1 {
					t.Errorf("%d requests, want 1", n)
				}
			})
		}
	})
}

// recordLines writes the lines of one turn.
func recordLines(t *testing.T, version, path, name string, s scenario) {
	t.Helper()
	r := realProgram(t, path)
	r.api.next(s.scripts...)
	in := &input{system: []string{"S"}, turns: []turn{{"user", json.RawMessage(`[{"type":"text","text":"` + s.prompt + `"}]`)}}}
	if s.schema != "" {
		in.schema = json.RawMessage(s.schema)
	}
	proc, err := r.start(r.callArgs("sonnet", in))
	if err != nil {
		t.Fatal(err)
	}
	defer proc.stop(gently)
	talk := &talk{p: r.Provider, proc: proc, in: in, job: &providers.Job{Model: "sonnet"}}
	_ = talk.initialize()
	_ = talk.say(userLine(in.turns[0], true))
	proc.closeInput()
	var out strings.Builder
	for line := range proc.lines {
		v := gjson.ParseBytes(line)
		if v.Get("type").Str == "control_response" {
			continue
		}
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		if v.Get("subtype").Str == "init" {
			m = map[string]any{"type": "system", "subtype": "init", "tools": m["tools"], "model": m["model"], "apiKeySource": m["apiKeySource"], "claude_code_version": m["claude_code_version"]}
		}
		delete(m, "subagent_stats")
		b, _ := json.Marshal(m)
		out.Write(append(b, '\n'))
	}
	if err := os.WriteFile(filepath.Join("testdata", version, name+".jsonl"), []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A call that is cancelled in mid-stream leaves no process, and closes its
// connection to the API; while it runs nobody can read the prompt in the list of
// processes.
func TestRealCancel(t *testing.T) {
	eachVersion(t, func(t *testing.T, _, path string) {
		r := realProgram(t, path)
		r.api.next(script{events: turnOf(textEvents(0, "part")[:2]), hold: true})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		body := `{"messages":[{"role":"system","content":"SYSTEM-OF-THE-CALL"},{"role":"user","content":"PROMPT-OF-THE-CALL"}]}`
		resp, err := r.Stream(ctx, request(t, wire.Native, body), func(*wire.Event) error {
			if mine := processes(t, r.home); len(mine) == 0 {
				t.Error("no process runs in the scratch home")
			}
			for pid, line := range commandLines(t) {
				if strings.Contains(line, "OF-THE-CALL") {
					t.Errorf("process %s shows the request: %q", pid, line)
				}
			}
			cancel()
			return nil
		})
		if subjects.KindOf(err) != subjects.KindCancelled || resp.OutputBytes != 4 || resp.Usage.InputTokens != 11 {
			t.Fatalf("%+v, %v", resp, err)
		}
		if mine := processes(t, r.home); len(mine) != 0 {
			t.Errorf("still running: %q", mine)
		}
		<-r.api.gone
		t.Logf("cancelled and gone after %v", time.Since(began))
	})
}

// An API that stops in mid-answer is noticed: the program itself would wait for
// five minutes.
func TestRealStall(t *testing.T) {
	eachVersion(t, func(t *testing.T, _, path string) {
		for _, events := range [][]string{{}, turnOf(textEvents(0, "part")[:2])} {
			r := realProgram(t, path, func(c *config.Provider) { c.IdleTimeout = 4 * time.Second })
			r.api.next(script{events: events, hold: true})
			_, resp, err := r.ask(hi)
			if subjects.KindOf(err) != subjects.KindTimeout || len(events) > 0 && resp.OutputBytes != 4 {
				t.Errorf("%+v, %v", resp, err)
			}
			if mine := processes(t, r.home); len(mine) != 0 {
				t.Errorf("still running: %q", mine)
			}
		}
	})
}

// The check knows the logins apart; a call without one is refused without waiting.
func TestRealLogins(t *testing.T) {
	eachVersion(t, func(t *testing.T, _, path string) {
		r := realProgram(t, path)
		check := func(code string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			e := subjects.AsError(r.Check(ctx))
			if e == nil && code != "" || e != nil && e.Code != code {
				t.Fatalf("%v, want code %q", e, code)
			}
		}
		check("")
		if err := os.Remove(r.cfg.CredentialsFile); err != nil {
			t.Fatal(err)
		}
		check(codeLoggedOut)
		_, _, err := r.ask(hi)
		if e := subjects.AsError(err); e == nil || e.Kind != subjects.KindAuth || !strings.Contains(e.Message, "claude auth login") {
			t.Errorf("%v", err)
		}
		if n := len(r.api.seen()); n != 0 {
			t.Errorf("%d requests without a login", n)
		}
		// A login with a key of the Console, which is metered.
		r.write(".claude.json", `{"primaryApiKey":"sk-ant-console","hasCompletedOnboarding":true}`)
		r.status.mu.Lock()
		r.status.known = false
		r.status.mu.Unlock()
		check(codeAPIKey)
	})
}

// Nothing of a call stays on the disk.
func TestRealLeavesNothing(t *testing.T) {
	eachVersion(t, func(t *testing.T, _, path string) {
		r := realProgram(t, path)
		if _, _, err := r.ask(`{"messages":[{"role":"user","content":"PROMPT-OF-THE-CALL"},{"role":"assistant","content":"PROMPT-OF-THE-CALL"},{"role":"user","content":"PROMPT-OF-THE-CALL"}]}`); err != nil {
			t.Fatal(err)
		}
		err := filepath.WalkDir(r.home, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			if strings.Contains(string(b), "PROMPT-OF-THE-CALL") || strings.Contains(string(b), "wörld") {
				t.Errorf("%s holds the call", strings.TrimPrefix(path, r.home))
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// commandLines are those of all processes, by id.
func commandLines(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if b, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil {
			out[filepath.Base(dir)] = string(b)
		}
	}
	return out
}

// processes are those that have the scratch home in their environment.
func processes(t *testing.T, home string) (out []string) {
	t.Helper()
	for pid := range commandLines(t) {
		if b, err := os.ReadFile("/proc/" + pid + "/environ"); err == nil && strings.Contains(string(b), "HOME="+home) && alive(pid) {
			out = append(out, pid)
		}
	}
	return out
}
