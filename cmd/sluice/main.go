// Command sluice is the whole of Sluice in one binary: it serves a node
// (`sluice serve`), and every other subcommand is a thin client of one.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/sluice-llm/sluice/cmd/internal/cli"
)

func main() {
	// The first signal ends ctx: a node drains, a call is cancelled. Then the
	// default handling is back, so that a second signal ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		stop()
	}()
	os.Exit(cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
