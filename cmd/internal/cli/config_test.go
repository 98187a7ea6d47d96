package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

func TestConfigCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"good.yaml": "provider_priority:\n  fast: [openai, mock]\n",
		"bad.yaml":  "provider_priorty:\n  fast: [openai]\npools:\n  caps: {openai: -1}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		args []string
		env  []string
		code int
		want []string // what stdout says, without --json
	}{
		"good":        {args: []string{"good.yaml"}, want: []string{"good.yaml is valid · mode public", "OPENAI_API_KEY set", "GROQ_API_KEY not set", "mock "}},
		"built in":    {want: []string{"the built-in configuration is valid", " prices, noted from 2026-", "none for github-models/openai/o4-mini: their cost will be unknown"}},
		"mode":        {env: []string{"SEMANTIC_ANALYSIS_MODE=mock"}, want: []string{"mode mock"}},
		"bad":         {args: []string{"bad.yaml"}, code: exitFailed, want: []string{"bad.yaml:1:1: provider_priorty", "bad.yaml:4:"}},
		"variable":    {env: []string{"SLUICE_CONFIG=bad.yaml"}, code: exitFailed, want: []string{"bad.yaml:1:1: provider_priorty"}},
		"environment": {env: []string{"LLM_INGESTION_SLOTS=0"}, code: exitFailed, want: []string{"LLM_INGESTION_SLOTS"}},
		"missing":     {args: []string{"nowhere.yaml"}, code: exitFailed, want: []string{"nowhere.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, asJSON := range []bool{false, true} {
				args := append([]string{"config", "check"}, tc.args...)
				if asJSON {
					args = append(args, "--json")
				}
				ses := newSession("", terminal{}, append([]string{"OPENAI_API_KEY=sk-very-secret"}, tc.env...)...)
				code := ses.app.run(t.Context(), args)
				said := ses.out.String()
				if code != tc.code || strings.Contains(said, "very-secret") || ses.err.String() != "" {
					t.Errorf("%v: exit status %d: %s%s", args, code, said, ses.err.String())
				}
				if asJSON {
					isChecked(t, said, tc.code == 0)
					continue
				}
				for _, want := range tc.want {
					if !strings.Contains(said, want) {
						t.Errorf("%v does not say %q: %s", args, want, said)
					}
				}
			}
		})
	}
}

func isChecked(t *testing.T, text string, valid bool) {
	t.Helper()
	var c checked
	if err := json.Unmarshal([]byte(text), &c); err != nil || strings.Count(text, "\n") != 1 {
		t.Fatalf("not one line of JSON (%v): %s", err, text)
	}
	if c.Valid != valid || valid == (len(c.Faults) > 0) || valid != (len(c.Providers) > 0) {
		t.Errorf("%s", text)
	}
}

func TestPrintChecked(t *testing.T) {
	ses := newSession("", terminal{})
	ses.app.printChecked(&checked{
		Valid: true, File: "llm.yaml", Mode: "local", Notes: []string{"cache: not built yet"},
		Prices: &checkedPrices{Count: 1234, Oldest: "2026-06-04", Newest: "2026-11-30", Missing: []string{"groq/a", "groq/b"}},
		Providers: []checkedProvider{
			{Provider: "openai", KeyEnv: "OPENAI_API_KEY", KeySet: true, BaseURL: "https://api.openai.com/v1", Models: map[string]string{"fast": "a", "standard": "b", "premium": "b", "huge": "c"}},
			{Provider: "groq", KeyEnv: "GROQ_API_KEY"},
			{Provider: "ollama", BaseURL: "http://127.0.0.1:11434"},
		},
	})
	golden(t, "config-check", ses.out.String())
}

// TestConfigShow holds that what is shown is a valid configuration file.
func TestConfigShow(t *testing.T) {
	t.Chdir(t.TempDir())
	ses := newSession("", terminal{})
	if code := ses.app.run(t.Context(), []string{"config", "show"}); code != 0 {
		t.Fatalf("exit status %d: %s", code, ses.err.String())
	}
	if err := os.WriteFile("copy.yaml", []byte(ses.out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if code := ses.app.run(t.Context(), []string{"config", "check", "copy.yaml"}); code != 0 {
		t.Errorf("exit status %d: %s", code, ses.out.String())
	}
}

// TestConfigSchema holds that the schema is one JSON document that knows the
// sections of the file.
func TestConfigSchema(t *testing.T) {
	ses := newSession("", terminal{})
	if code := ses.app.run(t.Context(), []string{"config", "schema"}); code != 0 {
		t.Fatalf("exit status %d: %s", code, ses.err.String())
	}
	var doc struct {
		Properties map[string]any `json:"properties"`
	}
	if err := json.Unmarshal([]byte(ses.out.String()), &doc); err != nil || doc.Properties["providers"] == nil || doc.Properties["circuit_breaker"] == nil {
		t.Errorf("%v: %.200s", err, ses.out.String())
	}
}
