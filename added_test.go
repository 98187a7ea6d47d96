package sluice_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/sluicetest"
	"github.com/sluice-llm/sluice/subjects"
)

// TestThirteenthProvider: a server of OpenAI's form joins by configuration
// alone, with pools, health, usage and streams like the built-in ones.
func TestThirteenthProvider(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Authorization") != "Bearer k-123456" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("X-Ratelimit-Remaining-Requests", "41")
		if strings.Contains(string(body), `"stream":true`) {
			_, _ = io.WriteString(w, "data: {\"model\":\"llama-8b\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\n"+
				"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n")
			return
		}
		_, _ = io.WriteString(w, `{"model":"llama-8b","choices":[{"message":{"content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":1}}`)
	}))
	t.Cleanup(up.Close)
	file := filepath.Join(t.TempDir(), "p.yaml")
	yaml := "providers:\n  team-llama:\n    api: openai\n    baseUrl: " + up.URL + "/v1\n    apiKeyEnvVar: TEAM_KEY\n    models: {fast: llama-8b, standard: llama-8b}\n    capabilities: [streaming]\n"
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	start := func(key string) *sluice.Node {
		return sluicetest.Start(t, sluice.WithConfigFile(file), sluice.WithEnviron([]string{"TEAM_KEY=" + key}))
	}
	client := start("k-123456").Client()
	req := &subjects.Request{Prompt: subjects.Prompt{Messages: []subjects.Message{{Role: "user", Content: subjects.Text("hi")}}}, Tier: "fast"}
	for _, stream := range []bool{false, true} {
		req.Stream = stream
		body := `{"tier":"fast","messages":[{"role":"user","content":"hi"}]}`
		if stream {
			body = `{"stream":true,` + body[1:]
		}
		var first *subjects.Msg
		err := client.Stream(ctx, &subjects.Msg{Subject: subjects.Complete("interactive"), Data: []byte(body)}, func(m *subjects.Msg) error {
			if first == nil {
				first = m
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if h := first.Header; h.Get(subjects.HeaderProvider) != "team-llama" || h.Get("x-ratelimit-remaining-requests") != "41" {
			t.Errorf("stream=%t: %v", stream, h)
		}
	}
	row := recentRows(ctx, t, client)[0]
	if row.Provider != "team-llama" || row.InputTokens != 7 || row.Subscription != subjects.SubscriptionAPIKey {
		t.Errorf("%+v", row)
	}
	var h subjects.Health
	if err := subjects.Query(ctx, client, subjects.QueryHealth, nil, &h); err != nil {
		t.Fatal(err)
	}
	if !h.Providers["team-llama"].Available || h.Pools["team-llama/llama-8b"].Granted != 2 {
		t.Errorf("%+v, %+v", h.Providers["team-llama"], h.Pools)
	}
	req.Tools = []subjects.Tool{{Name: "f"}}
	if _, err := subjects.Call(ctx, client, "interactive", req); subjects.KindOf(err) != subjects.KindCapabilityMissing {
		t.Errorf("tools: %v", err)
	}
	// Without its key it is there, and says why it cannot serve.
	client = start("").Client()
	if err := subjects.Query(ctx, client, subjects.QueryHealth, nil, &h); err != nil {
		t.Fatal(err)
	}
	if p := h.Providers["team-llama"]; p.Available || p.Reason != "TEAM_KEY is not set" || p.Account != subjects.SubscriptionAPIKey ||
		p.Models["fast"] != "llama-8b" || !slices.Equal(p.Capabilities, []string{"streaming"}) {
		t.Errorf("%+v", p)
	}
}

// TestRefusedCredentialsAreSaid: falling through because an account's
// credentials fail is an event, so that it is never quiet.
func TestRefusedCredentialsAreSaid(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(up.Close)
	node := sluicetest.Start(t, sluice.WithNATSListen("127.0.0.1:0"), sluice.WithEnviron([]string{
		"OPENAI_API_KEY=bad-key-1", "LLM_BASE_URL_OPENAI=" + up.URL,
	}))
	nc, err := nats.Connect(node.NATSURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	sub, err := nc.SubscribeSync(subjects.ProviderStatus("openai"))
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	_, err = subjects.Call(t.Context(), node.Client(), "interactive", &subjects.Request{
		Prompt: subjects.Prompt{Messages: []subjects.Message{{Role: "user", Content: subjects.Text("hi")}}}, Provider: "openai",
	})
	if subjects.KindOf(err) != subjects.KindAuth {
		t.Fatal(err)
	}
	m, err := sub.NextMsg(10 * time.Second)
	if err != nil || !strings.Contains(string(m.Data), "OPENAI_API_KEY was refused") || strings.Contains(string(m.Data), "bad-key") {
		t.Errorf("%v, %v", m, err)
	}
}
