package mock

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/hooks"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

type service func(*hooks.MockRequest) (string, error)

func (s service) MockResponse(_ context.Context, req *hooks.MockRequest) (string, error) {
	return s(req)
}

// TestService: what the service writes is the answer, whole and as a stream, and
// all the rest is as the mock is told.
func TestService(t *testing.T) {
	var asked hooks.MockRequest
	cfg := &config.Provider{ID: "claude-code", Mock: &config.Mock{Default: config.MockBehaviour{Content: "configured", InputTokens: 7}}}
	p := New(cfg, service(func(req *hooks.MockRequest) (string, error) {
		asked = *req
		return "for " + req.Task + " in tier " + req.Tier, nil
	}))
	j := job(t, `{"messages":[{"role":"user","content":"hi"}],"task":"insights mock:out=9","process":"p","agentId":"a","runId":"r"}`)
	j.CallID, j.Class, j.Tier = "c1", subjects.ClassIngestion, subjects.TierPremium
	const want = "for insights in tier premium"
	resp := complete(t, p, j)
	if resp.Text != want || resp.Usage.InputTokens != 7 || resp.Usage.OutputTokens != 9 {
		t.Errorf("%+v", resp)
	}
	if asked != (hooks.MockRequest{CallID: "c1", Process: "p", Task: "insights", Tier: "premium", Class: "ingestion", AgentID: "a", RunID: "r", Model: "mock-fast", Text: "hi"}) {
		t.Errorf("%+v", asked)
	}
	var streamed strings.Builder
	_, err := p.Stream(t.Context(), j, func(ev *wire.Event) error {
		streamed.WriteString(ev.Text)
		return nil
	})
	if err != nil || streamed.String() != want {
		t.Errorf("%q, %v", streamed.String(), err)
	}
	if resp := complete(t, p, job(t, `{`+hi+`,"maxTokens":1}`)); resp.Text != "for " || resp.FinishReason != subjects.FinishLength {
		t.Errorf("%+v", resp)
	}
}

// TestServiceIsNotAsked where its answer would go to nobody.
func TestServiceIsNotAsked(t *testing.T) {
	p := New(&config.Provider{ID: "mock"}, service(func(*hooks.MockRequest) (string, error) {
		t.Error("it is asked")
		return "", nil
	}))
	complete(t, p, job(t, `{`+hi+`,"tools":[{"name":"f"}],"toolChoice":"required"}`))
	if _, err := p.Complete(t.Context(), task(t, "mock:error=RATE_LIMITED")); subjects.KindOf(err) != subjects.KindRateLimited {
		t.Error(err)
	}
}

// TestServiceFails: its error is the provider's, but for the one that leaves the
// answer to the built-in mock.
func TestServiceFails(t *testing.T) {
	var failure error
	cfg := &config.Provider{ID: "demo", Mock: &config.Mock{Default: config.MockBehaviour{Content: "built in"}}}
	p := New(cfg, service(func(*hooks.MockRequest) (string, error) { return "half", failure }))
	failure = hooks.ErrBuiltIn
	if resp := complete(t, p, task(t, "")); resp.Text != "built in" {
		t.Errorf("%+v", resp)
	}
	shared := subjects.Errorf(subjects.KindProviderUnavailable, "it is dead")
	for kind, err := range map[subjects.Kind]error{subjects.KindProviderUnavailable: shared, subjects.KindProvider: errors.New("the prompt is: hi")} {
		failure = err
		_, err := p.Complete(t.Context(), task(t, ""))
		if e := subjects.AsError(err); e == nil || e.Kind != kind || e.Provider != "demo" || strings.Contains(e.Error(), "hi") {
			t.Errorf("%v", err)
		}
	}
	if shared.Provider != "" {
		t.Error("another's error was changed")
	}
}
