package sluice_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/sluicetest"
	"github.com/sluice-llm/sluice/subjects"
)

// trap is a listener that counts who connects to it, and says what a node must be
// told for every way out of it to lead there: each provider's base URL, and a
// claude program that leaves a file behind when it is run.
func trap(t *testing.T) (dialled func() int64, env []string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	program := filepath.Join(dir, "claude")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	env = []string{"LLM_CLAUDE_CLI=" + program, "GROQ_API_KEY=k", "ANTHROPIC_API_KEY=k", "OPENAI_API_KEY=k", "GOOGLE_API_KEY=k", "GITHUB_TOKEN=k", "CUSTOM_API_KEY=k"}
	for _, id := range config.ProviderIDs {
		if id != "mock" {
			env = append(env, "LLM_BASE_URL_"+strings.ToUpper(strings.ReplaceAll(id, "-", "_"))+"=http://"+l.Addr().String()+"/v1")
		}
	}
	return func() int64 {
		if _, err := os.Stat(ran); err == nil {
			return n.Load() + 1
		}
		return n.Load()
	}, env
}

// TestMockModeDialsNothing: in mode mock nobody is dialled and no program is run,
// for no call and no check of a provider; the same trap is sprung in mode public.
func TestMockModeDialsNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"mock", "public"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dialled, env := trap(t)
			node := sluicetest.Start(t, sluice.WithEnviron(append(env, "SEMANTIC_ANALYSIS_MODE="+mode)))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for _, id := range append([]string{"", "mock"}, config.ProviderIDs...) {
				for _, stream := range []bool{false, true} {
					req := ask("hi " + id)
					req.Provider = id
					if mode == "public" {
						req.TimeoutMs = 50
					}
					var err error
					if stream {
						_, err = subjects.CallStream(ctx, node.Client(), subjects.ClassInteractive, req, func(subjects.Event) error { return nil })
					} else {
						_, err = subjects.Call(ctx, node.Client(), subjects.ClassInteractive, req)
					}
					if mode == "mock" && err != nil {
						t.Errorf("%s: %v", id, err)
					}
				}
			}
			var h subjects.Health
			if err := subjects.Query(ctx, node.Client(), subjects.QueryHealth, nil, &h); err != nil {
				t.Fatal(err)
			}
			if n := dialled(); (n > 0) != (mode == "public") {
				t.Errorf("%d connections", n)
			}
			if mode == "mock" && (h.Providers["ollama"].Available || h.Providers["ollama"].Reason != "mode is mock") {
				t.Errorf("%+v", h.Providers["ollama"])
			}
		})
	}
}

// TestLocalModeWithoutRunner: the error says what to start.
func TestLocalModeWithoutRunner(t *testing.T) {
	t.Parallel()
	node := sluicetest.Start(t, sluice.WithEnviron([]string{"SEMANTIC_ANALYSIS_MODE=local", "OPENAI_API_KEY=k", "LLM_BASE_URL_DMR=http://127.0.0.1:1/v1", "OLLAMA_HOST=127.0.0.1:1"}))
	_, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, ask("hi"))
	e := subjects.AsError(err)
	if e == nil || e.Kind != subjects.KindNoProvider || !strings.Contains(e.Message, "Ollama") || !strings.Contains(e.Message, "Docker Model Runner") {
		t.Errorf("%v", err)
	}
}
