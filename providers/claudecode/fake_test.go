package claudecode

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/wire"
)

// The test binary is the claude program where this variable names a fake. It
// begins with XDG_, so that the provider's own environment lets it through.
const (
	fakeEnv = "XDG_SLUICE_FAKE"
	dirEnv  = "XDG_SLUICE_FAKE_DIR"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(fakeEnv); name != "" {
		f := &fake{in: bufio.NewReader(os.Stdin), dir: os.Getenv(dirEnv)}
		f.run(name)
		exit(0)
	}
	// What a killed node leaves of temporary folders goes with the tests.
	dir, err := os.MkdirTemp("", "sluice-claudecode-")
	if err == nil {
		err = os.Setenv("TMPDIR", dir)
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		os.RemoveAll(dir)
		os.Exit(status)
	}))
}

// fake is a claude program. It notes what it was given in its folder: args (a
// line each), env, pid, heard (the lines of its input).
type fake struct {
	in  *bufio.Reader
	dir string
}

func (f *fake) note(name, text string) {
	file, err := os.OpenFile(filepath.Join(f.dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.WriteString(text + "\n")
	}
	if err != nil {
		panic(err)
	}
	file.Close()
}

func (f *fake) run(name string) {
	f.note("args", strings.Join(os.Args[1:], "\n"))
	f.note("env", strings.Join(os.Environ(), "\n"))
	f.note("cwd", func() string { d, _ := os.Getwd(); return d }())
	f.note("pid", fmt.Sprint(os.Getpid()))
	if len(os.Args) > 1 && slices.Contains(os.Args, "auth") {
		f.auth(name)
		return
	}
	name, arg, _ := strings.Cut(name, ":")
	fakes[name](f, arg)
}

// auth plays `claude auth status`.
func (f *fake) auth(name string) {
	say, ok := statuses[name]
	if !ok {
		say = statuses["good"]
	}
	if say == "hang" {
		forever()
	}
	fmt.Print(say)
	if !strings.Contains(say, `"loggedIn": true`) {
		exit(1)
	}
}

var statuses = map[string]string{
	"good":        "{\n  \"loggedIn\": true,\n  \"authMethod\": \"claude.ai\",\n  \"apiProvider\": \"firstParty\",\n  \"subscriptionType\": \"max\"\n}\n",
	"setup-token": `{"loggedIn": true,"authMethod":"oauth_token","apiProvider":"firstParty"}`,
	"logged-out":  `{"loggedIn":false,"authMethod":"none","apiProvider":"firstParty"}`,
	"api-key":     `{"loggedIn": true,"authMethod":"api_key","apiProvider":"firstParty","apiKeySource":"/login managed key"}`,
	"api-key-old": `{"loggedIn": true,"authMethod":"claude.ai","apiProvider":"firstParty","apiKeySource":"/login managed key","subscriptionType":null}`,
	"bedrock":     `{"loggedIn": true,"authMethod":"third_party","apiProvider":"bedrock"}`,
	"gibberish":   "error: unknown command 'auth'",
	"flood":       strings.Repeat("{", maxStatus) + "\n{",
	"hang-status": "hang",
}

// exit ends a fake at once: os.Exit waits a second where the race detector is on.
func exit(status int) { syscall.Exit(status) }

func forever() { <-time.After(time.Hour) }

func say(lines ...string) {
	for _, l := range lines {
		fmt.Println(l)
	}
}

// hear reads the program's protocol until the turn to answer, as the real one
// does: it replies to control requests and gives each earlier user turn its empty
// result. It returns that turn; the zero value at the end of the input.
func (f *fake) hear() gjson.Result {
	for {
		line, err := f.in.ReadBytes('\n')
		if err != nil {
			return gjson.Result{}
		}
		f.note("heard", string(bytes.TrimSpace(line)))
		v := gjson.ParseBytes(line)
		switch {
		case v.Get("type").Str == "control_request":
			say(`{"type":"control_response","response":{"subtype":"success","request_id":"` + v.Get("request_id").Str + `","response":{}}}`)
		case v.Get("type").Str == "user" && v.Get("shouldQuery").Type == gjson.False:
			say(initLine, `{"type":"result","subtype":"success","is_error":false,"num_turns":0,"result":"","usage":{"input_tokens":0,"output_tokens":0}}`)
		case v.Get("type").Str == "user":
			return v
		}
	}
}

const (
	initLine  = `{"type":"system","subtype":"init","tools":[],"model":"claude-sonnet-5-5","claude_code_version":"0.0.0"}`
	startLine = `{"type":"stream_event","event":{"type":"message_start","message":{"id":"m","model":"claude-sonnet-5-5","usage":{"input_tokens":11,"cache_creation_input_tokens":22,"cache_read_input_tokens":33,"output_tokens":1}}}}`
	blockLine = `{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}}`
	endLine   = `{"type":"stream_event","event":{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}}`
	stopLine  = `{"type":"stream_event","event":{"type":"message_stop"}}`
)

func delta(text string) string {
	b, _ := json.Marshal(text)
	return `{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":` + string(b) + `}}}`
}

func resultLine(text string) string {
	b, _ := json.Marshal(text)
	return `{"type":"result","subtype":"success","is_error":false,"num_turns":1,"stop_reason":"end_turn","result":` + string(b) + `,"usage":{"input_tokens":11,"cache_creation_input_tokens":22,"cache_read_input_tokens":33,"output_tokens":7,"output_tokens_details":{"thinking_tokens":0}}}`
}

func answerWith(text string) {
	say(initLine, startLine, blockLine, delta(text), endLine, stopLine, resultLine(text))
}

// leave waits for the end of the input, as the real program does.
func (f *fake) leave() { _, _ = io.Copy(io.Discard, f.in) }

// fakes are the behaviours, by name; the part of the name after a colon is their
// argument.
var fakes = map[string]func(f *fake, arg string){
	"answer": func(f *fake, text string) { f.hear(); answerWith(text); f.leave() },
	// replay prints the lines of a recorded turn.
	"replay": func(f *fake, path string) {
		f.hear()
		text, err := os.ReadFile(path)
		if err != nil {
			panic(err)
		}
		os.Stdout.Write(text)
		f.leave()
	},
	// hasty leaves at the end of its input, whatever it is at.
	"hasty": func(f *fake, _ string) {
		f.hear()
		go func() { f.leave(); exit(0) }()
		<-time.After(200 * time.Millisecond)
		answerWith("hello")
		forever()
	},
	"banner": func(f *fake, _ string) {
		say("Welcome to the wrapper!", "", "  "+initLine)
		f.hear()
		answerWith("hello")
	},
	"stderr": func(f *fake, _ string) {
		f.hear()
		for range 2000 {
			fmt.Fprintln(os.Stderr, strings.Repeat("noise ", 200))
		}
		answerWith("hello")
		f.leave()
	},
	"dies": func(f *fake, _ string) {
		f.hear()
		fmt.Fprintln(os.Stderr, "boom: sk-ant-secret-key-of-somebody")
		exit(3)
	},
	"dies-late":  func(f *fake, _ string) { f.hear(); say(initLine, startLine, blockLine, delta("part")); exit(3) },
	"dies-first": func(*fake, string) { exit(0) },
	"old-option": func(*fake, string) {
		fmt.Fprintln(os.Stderr, "error: unknown option '--strict-mcp-config'")
		exit(1)
	},
	"old-turns": func(f *fake, _ string) {
		_, _ = f.in.ReadBytes('\n')
		_, _ = f.in.ReadBytes('\n')
		answerWith("answer to a turn of the past")
		f.leave()
	},
	"no-init": func(f *fake, _ string) {
		say(`{"type":"control_response","response":{"subtype":"error","request_id":"init","error":"Unsupported"}}`)
		f.leave()
	},
	"past-fails": func(f *fake, _ string) {
		say(`{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["no room"]}`)
		f.leave()
	},
	"broken": func(f *fake, _ string) {
		f.hear()
		say(initLine, startLine, `{"type":"stream_event","event":{"ty`)
		f.leave()
	},
	"garbage": func(f *fake, _ string) { f.hear(); fmt.Print(strings.Repeat("\x00\xffgarbage\n", 1000)) },
	"big":     func(f *fake, _ string) { f.hear(); answerWith(strings.Repeat("0123456789abcdef", 1<<18)); f.leave() },
	"endless": func(f *fake, _ string) { f.hear(); fmt.Print("{", strings.Repeat("x", maxLine+1)); forever() },
	"closes":  func(f *fake, _ string) { f.hear(); say(initLine); os.Stdout.Close(); forever() },
	"silent":  func(f *fake, _ string) { f.hear(); say(initLine, startLine, blockLine, delta("part")); forever() },
	"deaf":    func(*fake, string) { forever() },
	"slow":    func(f *fake, _ string) { f.hear(); f.awaitFile("go"); answerWith("late"); f.leave() },
	// a message with a character cut between two writes
	"split": func(f *fake, _ string) {
		f.hear()
		text := strings.Join([]string{initLine, startLine, blockLine, delta("häßlich ✓"), endLine, stopLine, resultLine("häßlich ✓")}, "\r\n")
		for len(text) > 0 {
			n := min(7, len(text))
			os.Stdout.WriteString(text[:n])
			text = text[n:]
		}
		// the last line has no end
	},
	"many": func(f *fake, _ string) {
		f.hear()
		say(initLine, startLine, blockLine)
		for i := range 5000 {
			say(delta(fmt.Sprintf("%04d ", i)))
		}
		say(endLine, stopLine, resultLine("…"))
	},
}

// awaitFile waits until the test has made a file.
func (f *fake) awaitFile(name string) {
	for range time.Tick(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(f.dir, name)); err == nil {
			return
		}
	}
}

// program is a provider whose program is a fake.
type program struct {
	*Provider
	t   *testing.T
	dir string
	cfg *config.Provider
}

// with makes a provider whose program plays the fake of that name.
func with(t *testing.T, name string, change ...func(*config.Provider)) *program {
	t.Helper()
	dir := t.TempDir()
	cfg := &config.Provider{
		ID: "claude-code", CLICommand: os.Args[0], IdleTimeout: time.Minute,
		CredentialsFile: filepath.Join(dir, ".credentials.json"),
	}
	for _, c := range change {
		c(cfg)
	}
	p := New(cfg, Options{Version: "1.2.3", Environ: func() []string {
		return []string{
			fakeEnv + "=" + name, dirEnv + "=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH"),
			"ANTHROPIC_API_KEY=secret-key", "ANTHROPIC_AUTH_TOKEN=secret-token", "ANTHROPIC_BASE_URL=http://elsewhere",
			"AWS_SECRET_ACCESS_KEY=secret-aws", "CLAUDE_CODE_USE_BEDROCK=1", "CLAUDECODE=1", "GROQ_API_KEY=secret-groq",
			"https_proxy=http://proxy:1", "LC_ALL=C.UTF-8", "NODE_OPTIONS=--inspect",
		}
	}})
	t.Cleanup(p.Close)
	return &program{Provider: p, t: t, dir: dir, cfg: cfg}
}

// noted returns what the fake noted; "" = nothing.
func (p *program) noted(name string) string {
	b, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func request(t testing.TB, name wire.Name, body string) *providers.Job {
	t.Helper()
	r, err := wire.Parse(name, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return &providers.Job{Request: r, Model: "sonnet"}
}

const hi = `{"messages":[{"role":"user","content":"hi"}]}`

// streamed makes a streaming call and returns its text.
func (p *program) streamed(job *providers.Job) (string, *wire.Response, error) {
	var text strings.Builder
	resp, err := p.Stream(p.t.Context(), job, func(ev *wire.Event) error {
		text.WriteString(ev.Text)
		if p.direct == nil && ev.Raw != nil || ev.ToolCall != nil {
			p.t.Errorf("an event that is not text: %+v", ev)
		}
		return nil
	})
	return text.String(), resp, err
}
