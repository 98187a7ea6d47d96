package registry

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/hooks"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func all() *config.Config {
	cfg := &config.Config{Providers: map[string]*config.Provider{}}
	for _, id := range config.ProviderIDs {
		cfg.Providers[id] = &config.Provider{ID: id, Kind: id, APIKeyEnv: strings.ToUpper(id) + "_API_KEY"}
	}
	return cfg
}

func TestEveryProviderIsThere(t *testing.T) {
	made := New(all(), Options{})
	if len(made) != len(config.ProviderIDs) {
		t.Errorf("%d of %d", len(made), len(config.ProviderIDs))
	}
	for id, p := range made {
		err := p.Check(t.Context())
		want := "?"
		switch id {
		case "mock":
			if err != nil {
				t.Error(err)
			}
			continue
		case "openai", "anthropic", "gemini", "groq", "github-models", "dmr", "ollama":
			want = "no base URL"
		case "claude-code":
			want = "the claude program was not found"
		case "copilot":
			want = "set LLM_COPILOT_AUTH_FILE"
		case "proxy":
			want = "set LLM_CLI_PROXY_URL"
		case "custom":
			want = "LLM_BASE_URL_CUSTOM or providers.custom.baseUrl"
		}
		if subjects.KindOf(err) != subjects.KindProviderUnavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", id, err)
		}
		if _, err := p.Complete(t.Context(), hi(t)); subjects.KindOf(err) != subjects.KindProviderUnavailable {
			t.Errorf("%s: %v", id, err)
		}
		if _, err := p.Stream(t.Context(), hi(t), nil); subjects.KindOf(err) != subjects.KindProviderUnavailable {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func hi(t *testing.T) *providers.Job {
	t.Helper()
	r, err := wire.Parse(wire.Native, []byte(`{"messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return &providers.Job{Request: r, Model: "m"}
}

func TestOptionsReachTheProviders(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() != "sluice/9.9" {
			t.Errorf("%q", r.UserAgent())
		}
		io.WriteString(w, `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`)
	}))
	defer s.Close()
	cfg := all()
	cfg.Providers["custom"].BaseURL = s.URL
	made := New(cfg, Options{Version: "9.9"})
	defer Close(made)
	if _, err := made["custom"].Complete(t.Context(), hi(t)); err != nil {
		t.Error(err)
	}
}

// fixed is a mock service with one answer.
type fixed string

func (f fixed) MockResponse(context.Context, *hooks.MockRequest) (string, error) {
	return string(f), nil
}

// TestMockUnderAnyName: a demo has the mock stand in for other accounts.
func TestMockUnderAnyName(t *testing.T) {
	cfg := &config.Config{Providers: map[string]*config.Provider{
		"mock": {ID: "mock", Kind: config.KindMock},
		"claude-code": {
			ID: "claude-code", Kind: config.KindMock, Account: subjects.SubscriptionMax,
			Mock: &config.Mock{Default: config.MockBehaviour{Error: subjects.KindQuotaExhausted}},
		},
	}}
	made := New(cfg, Options{Mock: fixed("by the hook")})
	if resp, err := made["mock"].Complete(t.Context(), hi(t)); err != nil || resp.Text != "by the hook" {
		t.Errorf("%+v, %v", resp, err)
	}
	_, err := made["claude-code"].Complete(t.Context(), hi(t))
	if e := subjects.AsError(err); e == nil || e.Kind != subjects.KindQuotaExhausted || e.Provider != "claude-code" {
		t.Error(err)
	}
}
