//go:build e2e_model

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// The programs that make the calls: the project's examples, and one that asks
// the OpenAI SDK for what the example does not show.
const (
	examplePython = "../examples/python/complete.py"
	exampleStream = "../examples/python/stream.py"
	exampleOpenAI = "../examples/python/openai_sdk.py"
	exampleNode   = "../examples/node/complete.mjs"
	exampleNodeAI = "../examples/node/openai_sdk.mjs"
	strictOpenAI  = "callers/openai_sdk.py"
)

// call is one call, and what its caller got.
type call struct {
	// id and task are empty where the caller cannot give them.
	id, task               string
	prompt, class, process string
	provider               string // for the Go caller; "" = custom
	stream                 bool
	// detail asks the caller for what it can tell beside the answer: the
	// result as JSON from the command line, the usage from the OpenAI SDK.
	detail bool

	caller string
	answer string
	usage  *tokens // what the caller was told, when it was asked for details
	err    error
}

func (c *call) String() string {
	return fmt.Sprintf("%s %s stream=%t detail=%t %q", c.caller, c.class, c.stream, c.detail, c.prompt)
}

// callers are the ways to reach the node, each in its own process per call.
type callers struct {
	in   install
	node *node
}

var callerNames = []string{"python", "node", "cli", "openai", "openai-node"}

// newCall makes a call to be made by a caller.
func newCall(caller, class, prompt string, stream, detail bool) *call {
	c := &call{caller: caller, class: class, prompt: prompt, stream: stream, detail: detail, process: "e2e-" + caller}
	if caller == "cli" || caller == "go" || c.strict() {
		c.id, c.task = newID(), "e2e"
	}
	return c
}

// strict reports whether c is made by strictOpenAI.
func (c *call) strict() bool { return c.caller == "openai" && c.detail }

// make makes the call c and fills in what came back.
func (cs *callers) make(ctx context.Context, c *call) {
	switch {
	case c.caller == "cli":
		cs.cli(ctx, c)
	case c.strict():
		cs.openai(ctx, c)
	case c.caller == "python" && c.stream:
		cs.example(ctx, c, cs.in.python, exampleStream)
	case c.caller == "python":
		cs.example(ctx, c, cs.in.python, examplePython)
	case c.caller == "openai":
		cs.example(ctx, c, cs.in.python, exampleOpenAI)
	case c.caller == "node":
		cs.example(ctx, c, "node", exampleNode)
	case c.caller == "openai-node":
		cs.example(ctx, c, "node", exampleNodeAI)
	default:
		c.err = fmt.Errorf("no caller %q", c.caller)
	}
}

// example runs an example, which is told what to do by its environment.
func (cs *callers) example(ctx context.Context, c *call, program, script string) {
	env := []string{"CLASS=" + c.class, "PROCESS=" + c.process, "PROVIDER=custom", "MODEL=custom/" + cs.in.modelName}
	if c.stream {
		env = append(env, "STREAM=1")
	}
	c.answer, _, c.err = cs.run(ctx, env, "", program, script, c.prompt)
}

func (cs *callers) openai(ctx context.Context, c *call) {
	argv := []string{cs.in.python, strictOpenAI, "--class", c.class, "--process", c.process, "--call-id", c.id}
	if c.stream {
		argv = append(argv, "--stream")
	}
	var errs string
	c.answer, errs, c.err = cs.run(ctx, []string{"MODEL=custom/" + cs.in.modelName}, "", append(argv, c.prompt)...)
	if c.err != nil {
		return
	}
	_, usage, ok := strings.Cut(errs, "usage ")
	if !ok {
		c.err = fmt.Errorf("no usage on stderr: %s", errs)
		return
	}
	c.err = json.Unmarshal([]byte(usage), &c.usage)
}

// cli runs `sluice complete`. A prompt of several lines goes in by stdin.
func (cs *callers) cli(ctx context.Context, c *call) {
	argv := []string{
		cs.node.bin, "complete", "--class", c.class, "--process", c.process, "--task", c.task,
		"--call-id", c.id, "--provider", "custom",
	}
	if c.stream {
		argv = append(argv, "--stream")
	}
	if c.detail {
		argv = append(argv, "--json")
	}
	stdin, prompt := "", c.prompt
	if strings.Contains(prompt, "\n") {
		stdin, prompt = prompt, "-"
	}
	var out string
	out, _, c.err = cs.run(ctx, nil, stdin, append(argv, prompt)...)
	if c.err != nil || !c.detail {
		c.answer = out
		return
	}
	c.err = c.readEvents(strings.NewReader(out))
}

// nativeEvent is a result, or one event of a stream.
type nativeEvent struct {
	Type    string `json:"type"`
	Content string `json:"content"`
	Usage   *struct {
		InputTokens     int64 `json:"inputTokens"`
		OutputTokens    int64 `json:"outputTokens"`
		CacheReadTokens int64 `json:"cacheReadTokens"`
	} `json:"usage"`
}

// readEvents reads a native result or stream: the JSON values of r. The deltas
// of a stream must add up to the content of its result.
func (c *call) readEvents(r *strings.Reader) error {
	deltas := ""
	for d := json.NewDecoder(r); d.More(); {
		var e nativeEvent
		if err := d.Decode(&e); err != nil {
			return err
		}
		c.take(&e, &deltas)
	}
	return c.whole(deltas)
}

func (c *call) take(e *nativeEvent, deltas *string) {
	if e.Type == "delta" {
		*deltas += e.Content
		return
	}
	c.answer = e.Content
	if e.Usage != nil {
		c.usage = &tokens{Prompt: e.Usage.InputTokens + e.Usage.CacheReadTokens, Completion: e.Usage.OutputTokens}
		c.usage.Details.Cached = e.Usage.CacheReadTokens
	}
}

func (c *call) whole(deltas string) error {
	switch {
	case c.usage == nil:
		return fmt.Errorf("no result with a usage")
	case c.stream && deltas != c.answer:
		return fmt.Errorf("the deltas are %q and the result's content %q", deltas, c.answer)
	}
	return nil
}

// run runs a program against the node, with more in its environment.
func (cs *callers) run(ctx context.Context, more []string, stdin string, argv ...string) (out, errs string, err error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = []string{
		"HOME=" + os.TempDir(), "PATH=" + os.Getenv("PATH"), "PYTHONUTF8=1", "PYTHONDONTWRITEBYTECODE=1",
		"NATS_URL=" + cs.node.natsURL, "SLUICE_NATS_URL=" + cs.node.natsURL,
		"SLUICE_URL=" + cs.node.http + "/v1",
	}
	cmd.Env = append(cmd.Env, more...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = time.Second
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil {
		return o.String(), e.String(), fmt.Errorf("%s: %w: %s", filepath.Base(argv[0]), err, strings.TrimSpace(e.String()))
	}
	return o.String(), e.String(), nil
}

// request is the native request of the Go caller.
func (c *call) request(maxTokens int) []byte {
	b, err := json.Marshal(map[string]any{
		"messages": []map[string]string{{"role": "user", "content": c.prompt}},
		"provider": cmp.Or(c.provider, "custom"), "process": c.process, "task": c.task, "callId": c.id,
		"stream": c.stream, "maxTokens": maxTokens,
	})
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

// goCall makes a call over nc, with nothing but NATS.
func goCall(ctx context.Context, nc *nats.Conn, c *call, maxTokens int) {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		c.err = err
		return
	}
	defer sub.Unsubscribe()
	if c.err = nc.PublishRequest("llm.complete."+c.class, inbox, c.request(maxTokens)); c.err != nil {
		return
	}
	deltas := ""
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			c.err = err
			return
		}
		if code := msg.Header.Get("Nats-Service-Error-Code"); code != "" {
			c.err = fmt.Errorf("%s %s: %s", code, msg.Header.Get("Nats-Service-Error"), msg.Data)
			return
		}
		if len(msg.Data) == 0 { // the end of a stream
			c.err = c.whole(deltas)
			return
		}
		var e nativeEvent
		if c.err = json.Unmarshal(msg.Data, &e); c.err != nil {
			return
		}
		c.take(&e, &deltas)
		if !c.stream {
			c.err = c.whole(deltas)
			return
		}
	}
}

func newID() string { return "e2e-" + nuid.Next() }
