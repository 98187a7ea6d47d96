// Command bench measures what Sluice costs: it builds and runs a fake upstream,
// a bare httputil.ReverseProxy, a Sluice node and the load in separate
// processes, all on loopback, and prints them side by side.
//
//	go run ./bench                     # everything, about six minutes
//	go run ./bench -short              # the few figures that CI looks at, about 25 s
//	go run ./bench -concurrency 64 -latency 0 -modes plain -targets direct,floor,http
//	go run ./bench -json result.json   # the same figures for a program
//	go run ./bench -profile prof -concurrency 64 -latency 0   # and where the node's CPU goes: go tool pprof prof/…
//
// The targets of one row group are measured in turns, round after round, so that
// whatever else the machine does disturbs all of them alike; a figure is the
// median over the rounds. CPU time is that of the process under test alone
// (direct: the upstream; http, nats and raw: the node), background work that the
// load caused included: the reading is taken once the process has come to rest.
//
// At the end the bench compares the upstream's own count of calls and tokens
// with the load's count and with the node's usage log. It exits with status 1
// when they differ, when a call failed, or, with -aims, when an aim is missed.
//
// It needs Linux (/proc) and the go command. Nothing outlives it: children are
// ended by their process id, and end by themselves when it is killed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The targets, in the order of the table.
const (
	targetDirect = "direct" // the load calls the upstream
	targetFloor  = "floor"  // through a bare httputil.ReverseProxy
	targetHTTP   = "http"   // through Sluice's HTTP edge
	targetNATS   = "nats"   // through Sluice, asked on NATS
	targetRaw    = "raw"    // NATS request/reply with an echo, Sluice not in the way
)

var allTargets = []string{targetDirect, targetFloor, targetHTTP, targetNATS, targetRaw}

// The modes: an answer in one piece, or as a stream of streamChunks pieces.
const (
	modePlain  = "plain"
	modeStream = "stream"
)

// plan is what one run measures.
type plan struct {
	targets     []string
	latencies   []time.Duration
	concurrency []int
	modes       []string
	rounds      int
	// window is how long one target is measured in one round; warm passes before.
	window, warm time.Duration
	// maxCalls bounds one measurement; whichever is reached first ends it.
	maxCalls int
	// natsConns is how many connections the NATS load shares.
	natsConns int
	// node is a binary to measure; empty = build ./cmd/sluice.
	node string
	// profile is a folder for the node's profiles; empty = none.
	profile string
	json    string
	keep    bool
	aims    bool
}

func main() {
	// Children are tied to the life of the thread that starts them.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := dispatch(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// dispatch runs one subcommand and returns the exit status: 0 done, 1 failed,
// 2 wrong usage.
func dispatch(ctx context.Context, args []string, in io.Reader, out, errw io.Writer) int {
	var err error
	if len(args) > 0 && children[args[0]] != nil {
		err = children[args[0]](args[1:], in, out)
	} else {
		var p *plan
		if p, err = parsePlan(args, errw); err == nil {
			err = run(ctx, p, out, errw)
		}
	}
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintln(errw, "bench:", err)
		return 2
	}
	fmt.Fprintln(errw, "bench:", err)
	return 1
}

var errUsage = errors.New("wrong usage")

// children are the subcommands that the bench starts for itself. They read
// commands from standard input and end with it.
var children = map[string]func(args []string, in io.Reader, out io.Writer) error{
	"upstream": upstreamMain,
	"floor":    floorMain,
	"echo":     echoMain,
	"load":     loadMain,
}

func parsePlan(args []string, errw io.Writer) (*plan, error) {
	p := &plan{}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(errw)
	short := fs.Bool("short", false, "few rows, two short rounds: for CI (about 25 s)")
	targets := fs.String("targets", strings.Join(allTargets, ","), "what to measure")
	latency := fs.String("latency", "0,60", "upstream latencies in ms")
	conc := fs.String("concurrency", "1,64,500", "calls at once")
	modes := fs.String("modes", modePlain+","+modeStream, "answers in one piece, as a stream of 20 pieces")
	fs.IntVar(&p.rounds, "rounds", 3, "how often each target is measured; a figure is the median")
	fs.DurationVar(&p.window, "time", time.Second, "length of one measurement")
	fs.DurationVar(&p.warm, "warm", 250*time.Millisecond, "load before each measurement, not counted")
	fs.IntVar(&p.maxCalls, "max", 200_000, "bound of calls in one measurement")
	fs.IntVar(&p.natsConns, "nats-conns", 4, "connections that the NATS load shares")
	fs.StringVar(&p.node, "node", "", "measure this sluice binary in place of building one")
	fs.StringVar(&p.profile, "profile", "", "write CPU, allocation and heap profiles of the node into this folder, a set for each target and row group; it costs some CPU itself")
	fs.StringVar(&p.json, "json", "", "write the figures as JSON to this file; - = standard output, in place of the table")
	fs.BoolVar(&p.keep, "keep", false, "keep the node's folder and log, and say where they are")
	fs.BoolVar(&p.aims, "aims", false, "exit with status 1 when an aim is missed")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	if *short {
		shorten(fs, p, latency, conc)
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("%w: unknown argument %q", errUsage, fs.Arg(0))
	}
	return p, p.fill(*targets, *latency, *conc, *modes)
}

// shorten sets what -short means, except where a flag says otherwise.
func shorten(fs *flag.FlagSet, p *plan, latency, conc *string) {
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["latency"] {
		*latency = "0"
	}
	if !given["concurrency"] {
		*conc = "1,64"
	}
	if !given["rounds"] {
		p.rounds = 2
	}
	if !given["time"] {
		p.window = 250 * time.Millisecond
	}
	if !given["warm"] {
		p.warm = 100 * time.Millisecond
	}
}

func (p *plan) fill(targets, latency, conc, modes string) error {
	var errs []error
	p.targets = pick(targets, allTargets, "target", &errs)
	p.modes = pick(modes, []string{modePlain, modeStream}, "mode", &errs)
	for _, n := range numbers(latency, 0, 10_000, "latency", &errs) {
		p.latencies = append(p.latencies, time.Duration(n)*time.Millisecond)
	}
	p.concurrency = numbers(conc, 1, 5000, "concurrency", &errs)
	if p.rounds < 1 || p.rounds > 100 || p.window <= 0 || p.window > time.Minute || p.warm < 0 || p.warm > time.Minute || p.maxCalls < 1 || p.natsConns < 1 {
		errs = append(errs, errors.New("-rounds must be 1 to 100, -time and -warm at most 1m, -max and -nats-conns at least 1"))
	}
	if p.profile != "" && p.node != "" {
		errs = append(errs, errors.New("-profile builds a node of its own: leave -node out"))
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w: %w", errUsage, errors.Join(errs...))
	}
	return nil
}

func pick(list string, known []string, what string, errs *[]error) []string {
	words := strings.Split(list, ",")
	for _, w := range words {
		if !slices.Contains(known, w) {
			*errs = append(*errs, fmt.Errorf("unknown %s %q: there are %s", what, w, strings.Join(known, ", ")))
		}
	}
	return slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !slices.Contains(words, k) })
}

func numbers(list string, low, high int, what string, errs *[]error) []int {
	var out []int
	for w := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(w)
		if err != nil || n < low || n > high {
			*errs = append(*errs, fmt.Errorf("%s %q: a whole number from %d to %d is needed", what, w, low, high))
			continue
		}
		out = append(out, n)
	}
	return out
}

func (p *plan) has(target string) bool { return slices.Contains(p.targets, target) }

// needsNode reports whether a target of the plan runs on the node.
func (p *plan) needsNode() bool {
	return p.has(targetHTTP) || p.has(targetNATS) || p.has(targetRaw)
}
