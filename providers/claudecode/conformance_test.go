package claudecode

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/internal/conformance"
	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/wire"
)

// The direct leg by itself, without the program that stands in for it, is a
// provider like the others.
func TestDirectConforms(t *testing.T) {
	const token = "sk-ant-oat01-of-the-suite"
	conformance.Run(t, conformance.Case{
		ID: "claude-code", Model: "claude-sonnet-4-5", BasePath: "/v1", Secret: token, Login: true,
		Voice:   vendors.Anthropic{Base: "/v1", OAuth: true},
		Cannot:  wire.NeedDocuments | wire.NeedAudio | wire.NeedChoices | wire.NeedLogProbs | wire.NeedOpenAIChat | wire.NeedJSONMode,
		Refuses: []string{"one stop"},
		Header:  []string{"Anthropic-Version", "Anthropic-Beta"},
		Make: func(t testing.TB, s conformance.Setup) providers.Provider {
			file, at := filepath.Join(t.TempDir(), "login.json"), time.Now().Add(-time.Hour)
			text := fmt.Sprintf(`{"claudeAiOauth":{"accessToken":%q,"expiresAt":%d}}`, token, at.Add(9*time.Hour).UnixMilli())
			err := os.WriteFile(file, []byte(text), 0o600)
			if err == nil {
				err = os.Chtimes(file, at, at)
			}
			if err != nil {
				t.Fatal(err)
			}
			cfg := &config.Provider{
				ID: "claude-code", BaseURL: s.BaseURL, IdleTimeout: s.Idle, Direct: true,
				CredentialsFile: file, CredentialsNamed: true, StreamUsage: true,
			}
			p := New(cfg, Options{Transport: s.Transport, Version: conformance.Version})
			return p.direct.(*rest.Provider) //nolint:errcheck,forcetypeassert // it is one
		},
	})
}
