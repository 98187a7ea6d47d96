package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/internal/fakeopenai"
	"github.com/sluice-llm/sluice/subjects"
)

// TestMain lets the test binary be its own children, as the bench is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && children[os.Args[1]] != nil {
		os.Exit(dispatch(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func needsProc(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the figures of another process can only be read on Linux")
	}
}

// TestRun measures the two targets that need no node, with real processes.
func TestRun(t *testing.T) {
	needsProc(t)
	file := filepath.Join(t.TempDir(), "result.json")
	var out, errw bytes.Buffer
	code := dispatch(t.Context(), []string{
		"-targets", "direct,floor", "-latency", "0,5", "-concurrency", "1,8", "-rounds", "1",
		"-time", "40ms", "-warm", "10ms", "-json", file,
	}, nil, &out, &errw)
	if code != 0 {
		t.Fatalf("status %d\n%s", code, errw.String())
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 2*2*2*2 || len(r.Faults) != 0 {
		t.Fatalf("%d rows, faults %v", len(r.Rows), r.Faults)
	}
	for _, w := range r.Rows {
		if w.Calls == 0 || w.FailedCalls != 0 || w.CPU <= 0 || w.P50 <= 0 || w.P99 < w.P50 || w.RSS == 0 || w.PeakRSS < w.RSS {
			t.Errorf("%v %s: %+v", w.cell, w.Target, w)
		}
		if w.Latency > 0 && w.P50 < micros(w.Latency) {
			t.Errorf("%v %s: p50 %.0f µs is below the upstream's latency", w.cell, w.Target, w.P50)
		}
		if isFloor := w.Target == targetFloor; (w.AddedP50 != nil) != isFloor || isFloor && *w.FloorRatio != 1 {
			t.Errorf("%v %s: added %v, ratio %v", w.cell, w.Target, w.AddedP50, w.FloorRatio)
		}
	}
	for _, want := range []string{"| direct |", "| floor |", "upstream 5ms, 8 at once, stream", "not measured", "Witness:"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}

// TestChildrenEnd: no child is left, whether the run fails or is interrupted.
func TestChildrenEnd(t *testing.T) {
	needsProc(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := &bench{
		p:    &plan{targets: []string{targetDirect, targetFloor}, latencies: []time.Duration{0}, concurrency: []int{1}, modes: []string{modePlain}, rounds: 1},
		errw: io.Discard, samples: map[cell]map[string][]sample{}, sent: map[string]int64{},
	}
	if err := b.start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.measure(ctx); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("got %v", err)
	}
	b.stop()
	for _, c := range []*child{b.upstream, b.floor, b.load} {
		if err := syscall.Kill(c.pid(), 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s (%d) is still there: %v", c.name, c.pid(), err)
		}
	}
	if _, err := os.Stat(b.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestNodeThatDoesNotStart(t *testing.T) {
	needsProc(t)
	var out, errw bytes.Buffer
	code := dispatch(t.Context(), []string{"-targets", "nats", "-node", "/bin/false", "-rounds", "1"}, nil, &out, &errw)
	if code != 1 || !strings.Contains(errw.String(), "the node did not start") {
		t.Errorf("status %d: %s", code, errw.String())
	}
}

func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-h"}, 0, "-concurrency"},
		{[]string{"-nonsense"}, 2, "nonsense"},
		{[]string{"-targets", "direct,flor"}, 2, `unknown target "flor"`},
		{[]string{"-modes", "fast"}, 2, `unknown mode "fast"`},
		{[]string{"-latency", "-1"}, 2, "from 0 to 10000"},
		{[]string{"-concurrency", "64,many"}, 2, `"many"`},
		{[]string{"-rounds", "0"}, 2, "-rounds"},
		{[]string{"-profile", "x", "-node", "y"}, 2, "leave -node out"},
		{[]string{"extra"}, 2, `unknown argument "extra"`},
	} {
		var errw bytes.Buffer
		if code := dispatch(t.Context(), tc.args, nil, io.Discard, &errw); code != tc.code || !strings.Contains(errw.String(), tc.says) {
			t.Errorf("%v: status %d, %s", tc.args, code, errw.String())
		}
	}
}

func TestShortLeavesGivenFlags(t *testing.T) {
	p, err := parsePlan([]string{"-short", "-concurrency", "8", "-targets", "nats,direct"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.concurrency, []int{8}) || len(p.latencies) != 1 || p.rounds != 2 || !slices.Equal(p.targets, []string{targetDirect, targetNATS}) {
		t.Errorf("%+v", p)
	}
}

// TestBodies: every request is valid, of the stated size, and like no other.
func TestBodies(t *testing.T) {
	for _, target := range allTargets {
		for _, mode := range []string{modePlain, modeStream} {
			y := requestBody(target, mode)
			b := slices.Concat([]byte("head"), y.text)
			y.number(b, 4, 0xabc)
			first := string(b[4:])
			y.number(b, 4, 1)
			if second := string(b[4:]); first == second || !strings.Contains(first, "Call 0000000000000abc: ") || !strings.Contains(second, "Call 0000000000000001: ") {
				t.Errorf("%s", b)
			}
			if !gjson.Valid(first) || len(first) < 1000 || len(first) > 1300 || gjson.Get(first, "stream").Bool() != (mode == modeStream) {
				t.Errorf("%s, %s: %d bytes: %s", target, mode, len(first), first)
			}
		}
	}
}

// TestAnswerSize: a whole answer of the fake upstream is about 1.5 KB.
func TestAnswerSize(t *testing.T) {
	s := fakeopenai.New(fakeopenai.WithContent(answerText)).Start(t)
	c, err := dialHTTP(strings.TrimPrefix(s.URL(), "http://"), requestBody(targetDirect, modePlain), false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := c.call(1); err != nil {
		t.Fatal(err)
	}
	if n := len(c.buf); n < 1400 || n > 1700 {
		t.Errorf("%d bytes", n)
	}
}

// TestHTTPCallerNotices: a caller must not take a bad answer for a good one.
func TestHTTPCallerNotices(t *testing.T) {
	for name, tc := range map[string]struct {
		b      fakeopenai.Behaviour
		stream bool
		says   string
	}{
		"error status": {fakeopenai.Overloaded(), false, "status 503"},
		"no usage":     {fakeopenai.Behaviour{Content: answerText, NoUsage: true}, false, "no whole answer"},
		"too short":    {fakeopenai.Behaviour{Content: "x"}, false, "no whole answer"},
		"cut":          {fakeopenai.Behaviour{CutAfterChunks: 1}, false, "EOF"},
		"cut stream":   {fakeopenai.Behaviour{Chunks: 20, CutAfterChunks: 5, Content: answerText}, true, "EOF"},
		"no done":      {fakeopenai.Behaviour{Chunks: 20, NoDone: true, Content: answerText}, true, "events"},
		"few chunks":   {fakeopenai.Behaviour{Chunks: 3, Content: answerText}, true, "events"},
		"stream error": {fakeopenai.Behaviour{Chunks: 20, ErrorAfterChunks: 5, Content: answerText}, true, "events"},
	} {
		t.Run(name, func(t *testing.T) {
			s := fakeopenai.New(fakeopenai.WithScript(fakeopenai.Sequence(tc.b, fakeopenai.Behaviour{Chunks: 20, Content: answerText}))).Start(t)
			mode := modePlain
			if tc.stream {
				mode = modeStream
			}
			l := &loader{}
			defer l.close()
			if err := l.open(loadCommand{Target: targetDirect, Addr: strings.TrimPrefix(s.URL(), "http://"), Mode: mode, Concurrency: 1}); err != nil {
				t.Fatal(err)
			}
			a, err := l.run(time.Minute, 2)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
			if a.Calls != 2 || a.OK != 1 || a.Failed != 1 {
				t.Errorf("the caller must go on after a bad answer: %+v", a)
			}
		})
	}
}

// TestNATSLoad runs the echo and the load against a real server.
func TestNATSLoad(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	l := &loader{}
	defer l.close()
	for _, mode := range []string{modePlain, modeStream} {
		cmd := loadCommand{Target: targetRaw, Addr: s.ClientURL(), Mode: mode, Concurrency: 3, Conns: 2}
		if err := l.open(cmd); err != nil {
			t.Fatal(err)
		}
		if _, err := l.run(time.Minute, 1); err == nil {
			t.Errorf("%s: nobody answers, and no error", mode)
		}
		in, stop := io.Pipe()
		out, hello := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- echoMain([]string{"-nats", s.ClientURL()}, in, hello) }()
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if err := l.open(cmd); err != nil {
			t.Fatal(err)
		}
		if a, err := l.run(time.Minute, 50); err != nil || a.OK != 50 {
			t.Errorf("%s: %+v, %v", mode, a, err)
		}
		_ = stop.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestReadResponse(t *testing.T) {
	for name, tc := range map[string]struct {
		in, body string
		keep, ok bool
	}{
		"length":       {"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcrest", "abc", true, true},
		"chunks":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\nrest", "abc0123456789", true, true},
		"until close":  {"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc", "abc", false, true},
		"empty":        {"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", "", true, true},
		"cut":          {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "", true, false},
		"cut chunk":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", "", true, false},
		"bad chunk":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nabc", "", true, false},
		"bad length":   {"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc", "", true, false},
		"not http":     {"hello\r\n\r\n", "", true, false},
		"cut in head":  {"HTTP/1.1 200 OK\r\nContent-", "", true, false},
		"empty stream": {"", "", true, false},
	} {
		br := bufio.NewReader(strings.NewReader(tc.in))
		h, err := readHead(br)
		var b []byte
		if err == nil {
			b, err = readBody(br, h, nil)
		}
		if (err == nil) != tc.ok || tc.ok && (string(b) != tc.body || h.keep != tc.keep) {
			t.Errorf("%s: %q, %+v, %v", name, b, h, err)
		}
	}
}

func FuzzReadResponse(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if regexp.MustCompile(`[0-9a-fA-F]{6,}`).Match(in) {
			t.Skip("a length that would only test the machine's memory")
		}
		br := bufio.NewReader(bytes.NewReader(in))
		h, err := readHead(br)
		if err != nil {
			return
		}
		if b, err := readBody(br, h, nil); err == nil && len(b) > len(in) {
			t.Errorf("%d bytes out of %d", len(b), len(in))
		}
	})
}

func TestFloorServes(t *testing.T) {
	s := fakeopenai.New(fakeopenai.WithContent(answerText), fakeopenai.WithScript(fakeopenai.Always(fakeopenai.Behaviour{Chunks: streamChunks}))).Start(t)
	in, stop := io.Pipe()
	out, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- floorMain([]string{"-upstream", strings.TrimPrefix(s.URL(), "http://")}, in, w)
	}()
	var h hello
	if err := json.NewDecoder(out).Decode(&h); err != nil {
		t.Fatal(err)
	}
	// Streams enough to meet the race that wholeBody is there for.
	for mode, n := range map[string]int{modePlain: 100, modeStream: 500} {
		l := &loader{}
		if err := l.open(loadCommand{Target: targetFloor, Addr: h.Addr, Mode: mode, Concurrency: 2}); err != nil {
			t.Fatal(err)
		}
		if a, err := l.run(time.Minute, n); err != nil || a.OK != int64(n) {
			t.Errorf("%s: %+v, %v", mode, a, err)
		}
		l.close()
	}
	_ = stop.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := s.Class(targetFloor); n.Answered != 600 || n.Peak > 2 {
		t.Errorf("upstream: %+v", n)
	}
}

func TestFigures(t *testing.T) {
	if m := median([]int{5, 1, 9}); m != 5 {
		t.Errorf("median %d", m)
	}
	if m := median([]int{4, 1}); m != 1 {
		t.Errorf("median of two: %d", m)
	}
	c := cell{0, aimCPUAt, modePlain}
	us := time.Microsecond
	all := map[string][]sample{
		targetDirect: {{p50: 10 * us, p99: 20 * us}, {p50: 30 * us, p99: 50 * us}, {p50: 10 * us, p99: 20 * us}},
		targetFloor:  {{cpu: 50 * us, p50: 60 * us}, {cpu: 100 * us, p50: 90 * us}, {cpu: 60 * us, p50: 70 * us}},
		targetHTTP: {
			{cpu: 60 * us, p50: 110 * us, p99: 120 * us, calls: 1, memory: memory{Peak: 7}},
			{cpu: 110 * us, p50: 230 * us, p99: 150 * us, calls: 2, failed: 1},
			{cpu: 78 * us, p50: 110 * us, p99: 120 * us, calls: 3},
		},
	}
	w := newRow(c, targetHTTP, all)
	if w.CPU != 78 || w.CPULow != 60 || w.CPUHigh != 110 || *w.FloorRatio != 1.2 || *w.AddedP50 != 100 || *w.AddedP99 != 100 || w.Calls != 6 || w.FailedCalls != 1 || w.PeakRSS != 7 {
		t.Errorf("%+v ratio %v added %v %v", w, *w.FloorRatio, *w.AddedP50, *w.AddedP99)
	}
	r := report{Rows: []row{newRow(c, targetFloor, all), w}}
	r.aims()
	if a := r.Aims[0]; a.State != "met" || a.Got != 1.2 {
		t.Errorf("%+v", a)
	}
	if r.Aims[2].State != "not measured" || r.missed() {
		t.Errorf("%+v", r.Aims)
	}
}

func TestAimsMissed(t *testing.T) {
	ratio, added, floor := 1.26, 200.1, 100.0
	r := report{Rows: []row{
		{cell: cell{0, aimCPUAt, modePlain}, Target: targetHTTP, FloorRatio: &ratio},
		{cell: cell{0, 1, modePlain}, Target: targetHTTP, AddedP50: &added},
		{cell: cell{0, 1, modePlain}, Target: targetFloor, AddedP50: &floor},
		{cell: cell{0, aimMemoryAt, modePlain}, Target: targetNATS, PeakRSS: 100e6},
		{cell: cell{0, aimMemoryAt, modePlain}, Target: targetRaw, PeakRSS: 1e9},
	}}
	r.aims()
	missed := 0
	for _, a := range r.Aims {
		if a.State == "missed" {
			missed++
		}
	}
	if missed != 3 || !r.missed() {
		t.Errorf("%+v", r.Aims)
	}
}

func TestParseUsage(t *testing.T) {
	got, err := parseUsage([]byte(`{"byProcess":[{"name":"bench-http","calls":3,"inputTokens":10,"outputTokens":4,"cacheReadTokens":2}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if !same(got["bench-http"], fakeopenai.Counts{Answered: 3, PromptTokens: 12, CompletionTokens: 4}) {
		t.Errorf("%+v", got)
	}
	if same(subjects.UsageTotals{Calls: 3}, fakeopenai.Counts{Answered: 3, PromptTokens: 1}) {
		t.Error("tokens that are missing must be noticed")
	}
	if _, err := parseUsage([]byte("<html>")); err == nil {
		t.Error("no error")
	}
}

func TestProcessFigures(t *testing.T) {
	needsProc(t)
	pid := os.Getpid()
	before, err := cpuTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	for x, end := 1.0, time.Now().Add(30*time.Second); ; x *= 1.0001 { // until the clock moves; a busy loop moves it soon
		now, err := cpuTime(pid)
		if err != nil || time.Now().After(end) {
			t.Fatal("the CPU time stands still", err)
		}
		if now > before+time.Millisecond {
			break
		}
	}
	if ticks, err := cpuTicks(pid); err != nil || ticks < 0 || ticks > time.Hour {
		t.Errorf("%v, %v", ticks, err)
	}
	resetPeak(pid)
	m, err := memoryOf(pid)
	if err != nil || m.RSS <= 0 || m.Anon <= 0 || m.Peak <= 0 || m.Anon > m.RSS {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := memoryOf(-1); err == nil {
		t.Error("no error for a process that is not there")
	}
}

// TestChildTrouble: a child that ends, is silent or talks nonsense is an error
// at once, or after its limit.
func TestChildTrouble(t *testing.T) {
	needsProc(t)
	c, err := startChild("upstream", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	if err := c.ask("nonsense", &upstreamAnswer{}, time.Minute); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Errorf("got %v", err)
	}
	if _, err := startChild("floor", io.Discard, "-nonsense"); err == nil {
		t.Error("no error for a child that does not start")
	}
	l, err := startChild("load", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer l.stop()
	var a loadAnswer
	if err := l.ask(loadCommand{Op: "dance"}, &a, time.Minute); err != nil || !strings.Contains(a.Error, "dance") {
		t.Errorf("%+v, %v", a, err)
	}
	if err := l.ask(loadCommand{Op: "open", Target: targetDirect, Addr: closedPort(t), Concurrency: 1}, &a, time.Minute); err != nil || a.Error == "" {
		t.Errorf("%+v, %v", a, err)
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func TestFreePorts(t *testing.T) {
	p, err := freePorts(3)
	if err != nil || len(p) != 3 || p[0] == p[1] || p[1] == p[2] {
		t.Errorf("%v, %v", p, err)
	}
}

func TestGetRefusesBadStatus(t *testing.T) {
	s := fakeopenai.New().Start(t)
	if _, err := get(t.Context(), s.URL()+"/v1/nothing"); err == nil || !strings.Contains(err.Error(), strconv.Itoa(http.StatusNotFound)) {
		t.Errorf("got %v", err)
	}
}
