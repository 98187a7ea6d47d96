//go:build e2e_model

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// checkTooLong: what the model cannot take is the caller's error at once, not
// the provider's after three tries.
func (s *suite) checkTooLong(t *testing.T) {
	c := newCall("cli", "interactive", "Too long: "+strings.Repeat("word ", contextTokens+500), false, false)
	s.callers.make(t.Context(), c)
	if c.err == nil || !strings.Contains(c.err.Error(), "exit status 1") || !strings.Contains(c.err.Error(), "VALIDATION_ERROR") {
		t.Errorf("sluice complete: %v; want exit status 1 and VALIDATION_ERROR", c.err)
	}
	s.witnessed(t, c)

	for _, stream := range []bool{false, true} {
		prompt := fmt.Sprintf("Too long, stream=%t: %s", stream, c.prompt)
		resp := s.chat(t, t.Context(), map[string]any{"stream": stream}, prompt, newID())
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "context") {
			t.Errorf("stream=%t: %s: %s; want 400 and a word about the context", stream, resp.Status, body)
		}
		s.witnessed(t, &call{prompt: prompt, stream: stream, caller: "http"})
	}
}

// chat posts an OpenAI-style request to the node.
func (s *suite) chat(t *testing.T, ctx context.Context, more map[string]any, prompt, id string) *http.Response {
	t.Helper()
	more["model"] = "custom/" + s.in.modelName
	more["messages"] = []map[string]string{{"role": "user", "content": prompt}}
	body, err := json.Marshal(more)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.node.http+"/v1/chat/completions", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-LLM-Call-Id", id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// checkHangUp: a client that leaves in mid-stream stops the model.
func (s *suite) checkHangUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &call{id: newID(), prompt: "Hang up: tell a very long story about a dragon."}
	resp := s.chat(t, ctx, map[string]any{"stream": true, "max_tokens": contextTokens - 100}, c.prompt, c.id)
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), `"content":"`) {
			break
		}
	}
	cancel()
	s.checkStopped(t, c)
}

// checkCancel: so does llm.cancel.
func (s *suite) checkCancel(t *testing.T) {
	c := newCall("go", "interactive", "Cancel: tell a very long story about a dragon.", true, false)
	inbox := s.nc.NewInbox()
	sub, err := s.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.nc.PublishRequest("llm.complete.interactive", inbox, c.request(contextTokens-100)); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.NextMsg(patience); err != nil {
		t.Fatal(err)
	}
	if err := s.nc.Publish("llm.cancel", fmt.Appendf(nil, `{"callId":%q}`, c.id)); err != nil {
		t.Fatal(err)
	}
	code := ""
	for {
		msg, err := sub.NextMsg(patience)
		if err != nil {
			t.Fatalf("the stream has no end: %v", err)
		}
		if h := msg.Header.Get("Nats-Service-Error-Code"); h != "" {
			code = h
		} else if len(msg.Data) == 0 {
			break
		}
	}
	if code != "499" {
		t.Errorf("the stream ended with error code %q, want 499", code)
	}
	s.checkStopped(t, c)
}

// checkStopped: the upstream request of c was aborted, the server does not work
// on it any more, and the log has its tokens, as part of an answer.
func (s *suite) checkStopped(t *testing.T, c *call) {
	t.Helper()
	eventually(t, "the upstream request is aborted", func() string {
		xs := s.witness.of(c.prompt)
		if len(xs) == 1 && xs[0].hungUp() {
			return ""
		}
		return fmt.Sprintf("%+v", xs)
	})
	eventually(t, "the model is idle", func() string {
		if n := s.busySlots(t); n > 0 {
			return fmt.Sprintf("%d slots are busy", n)
		}
		return ""
	})
	var r row
	eventually(t, "the call is in the log", func() string {
		var recent struct {
			Calls []row `json:"calls"`
		}
		s.node.get(t, "/api/token-usage/recent?limit=10", &recent)
		found := of(recent.Calls, c)
		if len(found) != 1 {
			return fmt.Sprintf("%d rows", len(found))
		}
		r = found[0]
		return ""
	})
	if r.Outcome != "CANCELLED" || !r.Partial || r.OutputTokens == 0 || r.OutputTokens > contextTokens/2 || !r.TokensEstimated {
		t.Errorf("the row has outcome %s, partial=%t, %d tokens out, estimated=%t; want CANCELLED, partial, some tokens, estimated",
			r.Outcome, r.Partial, r.OutputTokens, r.TokensEstimated)
	}
}

// busySlots asks the model's server itself.
func (s *suite) busySlots(t *testing.T) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server+"/slots", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var slots []struct {
		Processing bool `json:"is_processing"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&slots); err != nil || len(slots) != providerCap {
		t.Fatalf("GET /slots: %s, %d slots: %v", resp.Status, len(slots), err)
	}
	n := 0
	for _, slot := range slots {
		if slot.Processing {
			n++
		}
	}
	return n
}
