// Package cli is the command line of Sluice. Each subcommand is one file; all
// but serve and demo do nothing that a NATS client in another language cannot
// do, so they work against any node.
//
// Exit status: 0 done, 1 the call or check failed, 2 wrong usage.
package cli

import (
	"context"
	"errors"
	"io"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// grammar is the whole command line, as kong reads it.
type grammar struct {
	Serve     serveCmd     `cmd:"" group:"node" help:"Run a node: the embedded NATS server, the HTTP edge and the providers."`
	Demo      demoCmd      `cmd:"" group:"node" help:"See it work: 20 ingestion and 3 interactive calls at once on a mock provider."`
	Config    configCmd    `cmd:"" group:"node" help:"Check or show the configuration without starting a node."`
	Complete  completeCmd  `cmd:"" group:"call" help:"Make one call and print the answer."`
	Explain   explainCmd   `cmd:"" group:"call" help:"Say which provider and model a job would get, and why; calls nobody."`
	Health    healthCmd    `cmd:"" group:"look" help:"Show the node's health: providers, pools, classes. Exit status 1 when degraded."`
	Providers providersCmd `cmd:"" group:"look" help:"List the providers, what they can do, and why each is (un)available."`
	Usage     usageCmd     `cmd:"" group:"look" help:"Show what was used: tokens, shares, cost."`
	Events    eventsCmd    `cmd:"" group:"look" help:"Follow the node's events, one line each."`
	Quota     quotaCmd     `cmd:"" group:"look" help:"Show what is left of the accounts' quotas, or forget that one ran out."`
	Metrics   metricsCmd   `cmd:"" group:"look" help:"Show what the node counts in memory: attempts by provider, and the cache."`
	Cache     cacheCmd     `cmd:"" group:"admin" help:"The kept answers."`
	Reload    reloadCmd    `cmd:"" group:"admin" help:"Make the node read its configuration now."`
	Top       topCmd       `cmd:"" group:"look" help:"Live view of pools and calls (not built yet)."`
	Version   versionCmd   `cmd:"" group:"look" help:"Print the version."`
}

const description = "Sluice is the one layer every LLM call goes through: fair queues, fallback between accounts, and a usage log, as actors on NATS."

// app is what every subcommand gets: the outside world, injected.
type app struct {
	in       io.Reader
	out, err stream
	env      environ
	start    starter
	loc      *time.Location
	now      func() time.Time
	// json is set by a command whose --json was given: errors then go to stdout as JSON.
	json bool
}

// Run runs one command line and returns its exit status. args is without the
// program's name; env is as os.Environ has it. The end of ctx is the user's
// first signal: calls are cancelled, a node drains.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	e := environ(env)
	a := &app{
		in:    stdin,
		out:   newStream(stdout, e),
		err:   newStream(stderr, e),
		env:   e,
		start: startNode,
		loc:   time.Local,
		now:   time.Now,
	}
	return a.run(ctx, args)
}

// helpExit ends parsing after --help has printed.
type helpExit struct{ code int }

func (a *app) run(ctx context.Context, args []string) (code int) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case helpExit:
			code = r.code
		default:
			panic(r)
		}
	}()
	parser, err := kong.New(&grammar{}, a.kongOptions()...)
	if err != nil {
		return a.report(err)
	}
	if len(args) == 0 {
		parser.Stdout = a.err
		parser.Exit = func(int) { panic(helpExit{exitUsage}) }
		args = []string{"--help"}
	}
	for _, arg := range args {
		if !utf8.ValidString(arg) { // kong would replace what it cannot read
			return a.reportUsage(usagef("an argument is not UTF-8 text"))
		}
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		return a.reportUsage(err)
	}
	kctx.BindTo(ctx, (*context.Context)(nil))
	if err := kctx.Run(a); err != nil {
		var u *usageError
		if errors.As(err, &u) {
			return a.reportUsage(&usageIn{usageError: u, ctx: kctx})
		}
		return a.report(err)
	}
	return 0
}

func (a *app) kongOptions() []kong.Option {
	return []kong.Option{
		kong.Name("sluice"),
		kong.Description(description),
		kong.Writers(a.out, a.err),
		kong.Exit(func(code int) { panic(helpExit{code}) }),
		kong.Resolvers(kong.ResolverFunc(a.env.resolve)),
		kong.ValueFormatter(helpWithEnv),
		kong.Help(printHelp),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.ExplicitGroups([]kong.Group{
			{Key: "node", Title: "Run a node:"},
			{Key: "call", Title: "Make calls:"},
			{Key: "look", Title: "Look at a node:"},
			{Key: "admin", Title: "Change a running node:"},
			{Key: "conn", Title: "The node to talk to:"},
		}),
	}
}

// printHelp prints the help of a command that stands for another, as usage
// does for usage show, as that other's.
func printHelp(o kong.HelpOptions, ctx *kong.Context) error {
	if cmd := ctx.Selected(); cmd != nil && cmd.DefaultCmd != nil {
		ctx.Path = append(ctx.Path, &kong.Path{Parent: cmd, Command: cmd.DefaultCmd, Flags: cmd.DefaultCmd.Flags})
	}
	return kong.DefaultHelpPrinter(o, ctx)
}
