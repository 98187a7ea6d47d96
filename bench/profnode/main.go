// Command profnode is a Sluice node for bench -profile: it takes the flags of
// `sluice serve` that bench uses, serves the same node, and beside it
// /debug/pprof on a loopback port. It is not part of the product.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	_ "net/http/pprof" // serves /debug/pprof on the default mux
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sluice-llm/sluice"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "profnode:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 || args[0] != "serve" {
		return fmt.Errorf("usage: profnode serve --config FILE --data DIR --http ADDR --nats-listen ADDR")
	}
	fs := flag.NewFlagSet("profnode", flag.ContinueOnError)
	config := fs.String("config", "", "configuration file")
	data := fs.String("data", "", "data folder")
	httpAddr := fs.String("http", "", "address of the HTTP edge")
	natsListen := fs.String("nats-listen", "none", "address of the NATS server")
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	node, err := sluice.Start(ctx, sluice.WithConfigFile(*config), sluice.WithData(*data), sluice.WithHTTP(*httpAddr),
		sluice.WithNATSListen(*natsListen), sluice.WithLogger(slog.New(slog.NewJSONHandler(os.Stderr, nil))))
	if err != nil {
		return err
	}
	go func() {
		fmt.Fprintln(os.Stderr, "profnode: pprof:", http.ListenAndServe(os.Getenv("BENCH_PPROF"), nil))
	}()
	fmt.Println("profnode ready")
	<-ctx.Done()
	drain, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	return node.Drain(drain)
}
