package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// serveCmd runs a node.
type serveCmd struct {
	ConfigFile string   `name:"config" envar:"SLUICE_CONFIG" placeholder:"FILE" usual:"config/llm-providers.yaml if it is there, else built in" help:"Configuration file."`
	Data       string   `envar:"SLUICE_DATA" default:".data" placeholder:"DIR" help:"Folder of the usage log; one node at a time."`
	HTTP       string   `name:"http" envar:"SLUICE_HTTP" default:"127.0.0.1:12435" placeholder:"ADDR" help:"Address of the HTTP edge; none = no HTTP."`
	NATSListen string   `name:"nats-listen" envar:"SLUICE_NATS_LISTEN" usual:"127.0.0.1:4222" placeholder:"ADDR" help:"Address of the embedded NATS server; none = in this process only."`
	NATSConfig string   `name:"nats-config" envar:"SLUICE_NATS_CONFIG" usual:"built in" placeholder:"FILE" help:"Settings of the embedded NATS server."`
	NATSURL    string   `name:"nats-url" envar:"SLUICE_NATS_URL" placeholder:"URL" help:"Join this NATS server instead of embedding one."`
	Creds      string   `envar:"SLUICE_CREDS" placeholder:"FILE" help:"NATS credentials file for --nats-url."`
	Providers  []string `envar:"SLUICE_PROVIDERS" placeholder:"ID" usual:"all" help:"Host only these providers."`
	LogLevel   string   `envar:"SLUICE_LOG_LEVEL" enum:"debug,info,warn,error" default:"info" placeholder:"LEVEL" help:"Least level of log lines: debug, info, warn or error."`
}

// drainTime is how long running calls may take to finish after a signal.
const drainTime = 30 * time.Second

// none switches an address off.
const none = "none"

// Help implements kong.HelpProvider.
func (*serveCmd) Help() string {
	return `One line with the URLs goes to stdout when the node is ready, the log to stderr (JSON where that is no terminal). SIGTERM or Ctrl-C drains: no new calls, running ones finish within 30 s, usage is written. A second signal ends at once.

Addresses beyond loopback need $SLUICE_HTTP_TOKEN for HTTP and $SLUICE_CALLER_PASSWORD for NATS.

Examples:

    sluice serve
    OPENAI_API_KEY=... sluice serve --providers openai,mock --http 127.0.0.1:8080
    sluice serve --nats-url nats://nats.internal:4222 --creds node.creds --http none`
}

// Validate implements kong's validation.
func (c *serveCmd) Validate() error {
	if c.NATSURL != "" && (c.NATSListen != "" || c.NATSConfig != "") {
		return usagef("--nats-url joins a NATS server, --nats-listen and --nats-config are about the embedded one: give one or the other (also as SLUICE_... variables)")
	}
	return nil
}

// Run serves until ctx ends or the node fails.
func (c *serveCmd) Run(ctx context.Context, a *app) error {
	if c.NATSURL != "" {
		if _, err := redactURLs(c.NATSURL); err != nil {
			return err
		}
	}
	log, flush := a.logger(c.LogLevel)
	defer flush()
	if c.Creds != "" && c.NATSURL == "" {
		log.Warn("--creds does nothing without --nats-url: the embedded server knows its own node")
	}
	n, err := a.start(ctx, c.options(a, log))
	if err != nil {
		if ctx.Err() != nil {
			return failf("", "interrupted while starting")
		}
		return err
	}
	fmt.Fprintln(a.out, "sluice ready: "+strings.Join(urls(n), ", "))
	select {
	case <-n.Done():
		return failed(n)
	case <-ctx.Done():
		return drain(ctx, n, log)
	}
}

func (c *serveCmd) options(a *app, log *slog.Logger) *nodeOptions {
	o := &nodeOptions{
		ConfigFile: a.configFile(c.ConfigFile), Data: c.Data, HTTP: c.HTTP, NATSListen: c.NATSListen, NATSConfig: c.NATSConfig,
		NATSURL: c.NATSURL, Creds: c.Creds, Providers: c.Providers, Logger: log, Environ: a.env,
	}
	if o.HTTP == none {
		o.HTTP = ""
	}
	if o.NATSListen == "" && o.NATSURL == "" {
		o.NATSListen = "127.0.0.1:4222"
	}
	return o
}

// urls lists where the node is reached.
func urls(n node) []string {
	list := []string{"NATS in this process only"}
	if u := n.NATSURL(); u != "" {
		list[0] = "NATS " + u
	}
	if addr := n.HTTPAddr(); addr != "" {
		list = append(list, "HTTP http://"+addr)
	}
	return list
}

// failed closes a node that has ended by itself.
func failed(n node) error {
	err := n.Err()
	if err == nil {
		err = errors.New("the node ended by itself")
	}
	return errors.Join(err, n.Close())
}

// drain lets running calls finish and closes the node. That some had to be cut
// off is logged and no failure.
func drain(ctx context.Context, n node, log *slog.Logger) error {
	log.Info("draining: no new calls, running ones have up to " + durationText(drainTime) + "; another signal ends at once")
	dctx, stop := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer stop()
	err := n.Drain(dctx)
	if errors.Is(err, context.DeadlineExceeded) {
		log.Warn("some calls did not finish in time and were cut off")
		err = nil
	}
	return errors.Join(err, n.Close())
}
