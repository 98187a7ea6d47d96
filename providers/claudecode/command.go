package claudecode

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-llm/sluice/subjects"
)

// callArgs is the command line of one call. It holds no text of a caller but the
// model's name and the effort, which the configuration or the hub form bound.
// Options with a value are written with "=": several of them take any number of
// values, and would swallow what follows.
func (p *Provider) callArgs(model string, in *input) ([]string, []string) {
	if id, ok := apiModel(model); ok && aliases[model] == "" {
		model = id // the program takes no points either
	}
	args := []string{
		"-p",
		"--input-format=stream-json", "--output-format=stream-json", "--verbose", "--include-partial-messages",
		"--tools=",                 // no tools
		"--setting-sources=",       // no settings files: no hooks, no plugins, no CLAUDE.md
		"--strict-mcp-config",      // no MCP servers
		"--no-session-persistence", // no transcript on the disk
		"--model=" + model,
	}
	env := p.environment()
	switch in.effort {
	case "":
	case "none":
		env = append(env, "CLAUDE_CODE_DISABLE_THINKING=1")
	default:
		args = append(args, "--effort="+in.effort)
	}
	return args, env
}

// passed are the variables that the program gets from Sluice's environment: what
// it needs to find its login, the network and a temporary folder. Everything else
// stays here; above all ANTHROPIC_API_KEY, which would beat the login and be
// billed, and whatever the operator keeps in the environment for other programs.
var passed = []string{
	"HOME", "PATH", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR",
	"CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN", "SECURITYSESSIONID",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "CLAUDE_CODE_CERT_STORE",
	"CLAUDE_CODE_CLIENT_CERT", "CLAUDE_CODE_CLIENT_KEY", "CLAUDE_CODE_CLIENT_KEY_PASSPHRASE",
	// Windows
	"SystemRoot", "SYSTEMROOT", "SystemDrive", "ComSpec", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "HOMEDRIVE",
	"HOMEPATH", "APPDATA", "LOCALAPPDATA", "ProgramData", "ProgramFiles", "Path", "USERNAME",
}

// passedPrefixes are passed by their beginning.
var passedPrefixes = []string{"LC_", "XDG_"}

// fixed switch off what the program would do beside answering. Each is known to
// both versions that are tested, but for those marked, which one ignores.
var fixed = []string{
	"CLAUDE_CODE_DISABLE_ATTACHMENTS=1", // "@/path" in a prompt would read that file
	"CLAUDE_CODE_DISABLE_CLAUDE_MDS=1",
	"CLAUDE_CODE_DISABLE_AUTO_MEMORY=1",
	"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1",
	"CLAUDE_CODE_DISABLE_TERMINAL_TITLE=1",
	"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
	"DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "DISABLE_AUTOUPDATER=1",
	"DISABLE_AUTO_COMPACT=1", "DISABLE_COMPACT=1", // no summary in a long conversation's place
	// Tries are the call's, once for all providers; and what was streamed cannot
	// be taken back when the program silently asks anew.
	"CLAUDE_CODE_MAX_RETRIES=0",
	"CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK=1",
	"CLAUDE_CODE_DISABLE_REFUSAL_RETRY=1",         // 2.1.332
	"CLAUDE_CODE_DISABLE_REFUSAL_FALLBACK=1",      // 2.1.332
	"CLAUDE_CODE_NO_MODEL_FALLBACK=1",             // 2.1.332: no other model in the asked one's place
	"CLAUDE_CODE_DISABLE_MODEL_ACCESS_FALLBACK=1", // 2.1.332
}

// ownHost is the API that the program asks by itself.
const ownHost = "https://api.anthropic.com"

// environment is what the program sees. The client-app name is the program's own
// way for another program to say who it is: it goes into the user agent.
func (p *Provider) environment() []string {
	var env []string
	for _, kv := range p.o.Environ() {
		name := nameOf(kv)
		if slices.Contains(passed, name) || slices.ContainsFunc(passedPrefixes, func(pre string) bool { return strings.HasPrefix(name, pre) }) {
			env = append(env, kv)
		}
	}
	if dir := p.configDir(); dir != "" {
		// The login that was named, and not another one that is in the environment.
		env = append(without(env, "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN"), "CLAUDE_CONFIG_DIR="+dir)
	}
	if base := strings.TrimSuffix(p.cfg.BaseURL, "/v1"); base != "" && base != ownHost {
		env = append(env, "ANTHROPIC_BASE_URL="+base)
	}
	env = append(env, "CLAUDE_AGENT_SDK_CLIENT_APP=sluice/"+p.o.Version)
	return append(env, fixed...)
}

// configDir is the program's folder where a credentials file is named that the
// program itself can read; "" = the program's own choice.
func (p *Provider) configDir() string {
	if p.cfg.CredentialsNamed && filepath.Base(p.cfg.CredentialsFile) == ".credentials.json" {
		if dir, err := filepath.Abs(filepath.Dir(p.cfg.CredentialsFile)); err == nil {
			return dir
		}
	}
	return ""
}

func nameOf(kv string) string {
	name, _, _ := strings.Cut(kv, "=")
	return name
}

// The codes of a program that cannot be run.
const (
	codeMissing = "program_missing"
	codeRefused = "program_not_runnable"
	codeTooOld  = "program_too_old"
)

// program finds the program, as an absolute path: it runs in another folder.
func (p *Provider) program() (string, error) {
	path, err := exec.LookPath(p.cfg.CLICommand)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", notRunnable(err)
	}
	return path, nil
}

// programMissing reports whether there is no program to fall back on.
func (p *Provider) programMissing() bool {
	_, err := p.program()
	return err != nil
}

// notRunnable says why a program could not be started.
func notRunnable(err error) error {
	const how = "set LLM_CLAUDE_CLI or providers.claude-code.cliCommand"
	var why error = err
	var path *fs.PathError
	var exe *exec.Error
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return unavailable(codeMissing, "the claude program was not found; install Claude Code, or %s", how).WithCause(err)
	case errors.As(err, &path):
		why = path.Err
	case errors.As(err, &exe):
		why = exe.Err
	}
	return unavailable(codeRefused, "the claude program cannot be run (%v); %s", why, how).WithCause(err)
}

// emptyDir is where the program runs: a temporary folder with nothing in it. The
// path goes to the API with every request, so it tells nothing; the program finds
// no project there; and version 2.1.197, which lists all files below its folder at
// every start, is done at once. It is made at the first call, and anew when a
// cleaner of old files has taken it away.
type emptyDir struct {
	mu   sync.Mutex
	path string // "" = there is none
}

func (d *emptyDir) get() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if info, err := os.Lstat(d.path); err == nil && info.IsDir() {
		return d.path, nil
	}
	path, err := os.MkdirTemp("", "sluice-")
	if err != nil {
		return "", subjects.Errorf(subjects.KindProvider, "no temporary folder for the claude program could be made").WithCause(err)
	}
	d.path = path
	return path, nil
}

func (d *emptyDir) remove() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.path != "" {
		_ = os.Remove(d.path) // not empty, or gone: then it is not ours any more
		d.path = ""
	}
}
