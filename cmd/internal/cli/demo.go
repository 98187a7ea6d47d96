package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// demoCmd plays the acceptance scenario of the pools on an embedded node.
type demoCmd struct {
	Once       bool   `help:"End after the verdict. Exit status 1 when it fails."`
	HTTP       string `name:"http" placeholder:"ADDR" usual:"127.0.0.1:12435, with --once none" help:"Address of the HTTP edge."`
	NATSListen string `name:"nats-listen" placeholder:"ADDR" usual:"127.0.0.1:4222, with --once none" help:"Address of the NATS server."`
	Data       string `placeholder:"DIR" usual:"a temporary one" help:"Folder of the usage log."`
	Costs      bool   `help:"Play the cost example instead, with and without subscriptions, and end."`
	JSON       bool   `help:"Print the verdict and the usage summary as JSON."`
}

// Help implements kong.HelpProvider.
func (*demoCmd) Help() string {
	return `A node with the mock provider and nothing else: no key is read, nothing is billed. 20 ingestion calls and then 3 interactive ones arrive at once at a provider that takes 12; someone who waits must not stand behind the batch.

--costs plays 50 fast, 100 standard and 20 premium calls on two nodes, one after the other: first with a subscription (copilot), then on a metered key alone (anthropic), both of them the mock in their place. It sets what the usage log says side by side.

Examples:

    sluice demo
    sluice demo --costs
    sluice demo --once --json | jq .checks
    sluice demo --http 127.0.0.1:8080 --nats-listen 127.0.0.1:4333`
}

const (
	demoIngestion   = 20
	demoInteractive = 3
	demoCap         = 12
	demoLatency     = 400 * time.Millisecond
	// demoTimeout bounds the whole scenario, which takes about 1.3 s.
	demoTimeout = 60 * time.Second

	taskIngestion   = "write_page"
	taskInteractive = "ask_codebase"
)

// Validate implements kong's validation.
func (c *demoCmd) Validate() error {
	if c.Costs && (c.HTTP != "" || c.NATSListen != "" || c.Data != "") {
		return usagef("--costs starts two nodes inside this process, in temporary folders: it takes no --http, --nats-listen or --data")
	}
	return nil
}

// Run starts the node, plays, judges, and stays up unless --once was given.
func (c *demoCmd) Run(ctx context.Context, a *app) error {
	a.json = c.JSON
	if c.Costs {
		return c.costs(ctx, a)
	}
	o, cleanup, err := c.options(a)
	if err != nil {
		return err
	}
	defer cleanup()
	n, err := a.start(ctx, o)
	if err != nil {
		return err
	}
	v, err := c.play(ctx, a, n)
	if err != nil {
		_ = n.Close()
		return err
	}
	a.printVerdict(v)
	if !c.Once {
		if !c.JSON {
			a.printLines(nextSteps(n)...)
		}
		select {
		case <-n.Done():
			return failed(n)
		case <-ctx.Done():
		}
	}
	if err := drain(ctx, n, o.Logger); err != nil {
		return err
	}
	if !v.OK {
		return errFailed
	}
	return nil
}

func (c *demoCmd) options(a *app) (*nodeOptions, func(), error) {
	o := &nodeOptions{Data: c.Data, HTTP: c.HTTP, NATSListen: c.NATSListen, Providers: []string{"mock"}, Environ: demoEnv}
	if c.Once {
		o.HTTP, o.NATSListen = orElse(o.HTTP, none), orElse(o.NATSListen, none)
	}
	if o.HTTP = orElse(o.HTTP, "127.0.0.1:12435"); o.HTTP == none {
		o.HTTP = ""
	}
	o.NATSListen = orElse(o.NATSListen, "127.0.0.1:4222")
	o.Logger = slog.New(slog.DiscardHandler) // log lines would tear the picture
	cfg, err := demoConfig()
	if err != nil {
		return nil, nil, err
	}
	o.Config = cfg
	if o.Data != "" {
		return o, func() {}, nil
	}
	if o.Data, err = os.MkdirTemp("", "sluice-demo-"); err != nil {
		return nil, nil, err
	}
	return o, func() { _ = os.RemoveAll(o.Data) }, nil
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// demoEnv is all the environment that the demo's node sees.
var demoEnv = environ{"SEMANTIC_ANALYSIS_MODE=" + config.ModeMock}

// demoConfig is the built-in configuration with a mock that takes its time, and
// the scenario's cap.
func demoConfig() (*config.Config, error) {
	cfg, err := loadConfig("", demoEnv)
	if err != nil {
		return nil, err
	}
	mock := cfg.Providers["mock"].Mock
	if mock.Tasks == nil {
		mock.Tasks = map[string]config.MockBehaviour{}
	}
	for _, task := range []string{taskIngestion, taskInteractive} {
		b := mock.Default
		b.Latency = demoLatency
		mock.Tasks[task] = b
	}
	cfg.Pools.Caps = map[string]int{"mock": demoCap}
	return cfg, nil
}

// play runs the scenario and judges it.
func (c *demoCmd) play(ctx context.Context, a *app, n node) (*verdict, error) {
	ctx, stop := context.WithTimeout(ctx, demoTimeout)
	defer stop()
	t := subjects.NewClient(n.Conn())
	s := newScenario(t, a)
	if c.JSON {
		s.show = showNothing{}
	}
	if err := s.run(ctx, n.Conn()); err != nil {
		return nil, err
	}
	got, sum, err := s.usage(ctx)
	if err != nil {
		return nil, err
	}
	return s.judge(got, sum), nil
}

// printVerdict prints the usage table and the verdict, or both as JSON.
func (a *app) printVerdict(v *verdict) {
	if a.json {
		b, err := json.Marshal(v)
		if err != nil { // cannot happen: plain fields only
			return
		}
		a.printJSON(b)
		return
	}
	fmt.Fprintln(a.out, "\nusage of the last hour, by process")
	a.printLines(usageTable(v.Usage, "process").lines(a.out)...)
	a.printChecks(v.Checks, v.OK, v.Summary)
}

// printChecks prints what was promised and measured, and the verdict.
func (a *app) printChecks(checks []check, ok bool, summary string) {
	fmt.Fprintln(a.out)
	for _, c := range checks {
		mark := a.out.paint(green, "ok")
		if !c.OK {
			mark = a.out.paint(red, "NO")
		}
		fmt.Fprintf(a.out, "  %s  %s: %s\n", mark, c.Name, safe(c.Detail))
	}
	line := a.out.paint(green, "PASS")
	if !ok {
		line = a.out.paint(red, "FAIL")
	}
	fmt.Fprintf(a.out, "\n%s  %s\n", line, summary)
}

// nextSteps says what a person may try while the demo's node is up.
func nextSteps(n node) []string {
	body := `{"messages":[{"role":"user","content":"hello"}]}`
	lines := []string{"", "The node is up until Ctrl-C. Try, from another terminal:"}
	if u := n.NATSURL(); u != "" {
		server, flag := "", ""
		if u != defaultNATSURL {
			server, flag = "--server "+u+" ", "--nats-url "+u+" "
		}
		lines = append(lines,
			"  sluice complete "+flag+"--stream \"hello\"",
			"  sluice usage "+flag+"--recent 5",
			"  nats "+server+"request llm.complete.interactive '"+body+"'")
	}
	if addr := n.HTTPAddr(); addr != "" {
		lines = append(lines,
			"  curl -s http://"+addr+"/api/complete -H 'Content-Type: application/json' -d '"+body+"'",
			"  curl -s http://"+addr+"/health",
			"  any OpenAI client, with http://"+addr+"/v1 as its base URL")
	}
	return lines
}
