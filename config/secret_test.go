package config

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const hidden = "hunter2-hunter2-hunter2"

// holders are the ways in which a secret may stand inside something printed.
func holders() map[string]any {
	type open struct{ S Secret }
	type closed struct{ s Secret }
	type deep struct {
		P *open
		l []closed
		m map[string]*Secret
	}
	s := NewSecret(hidden)
	c, err := Load(Options{Environ: []string{"OPENAI_API_KEY=" + hidden}})
	if err != nil {
		panic(err)
	}
	return map[string]any{
		"value":    s,
		"pointer":  &s,
		"field":    open{s},
		"unseen":   closed{s},
		"to field": &open{s},
		"nested":   deep{&open{s}, []closed{{s}}, map[string]*Secret{"k": &s}},
		"list":     []Secret{s},
		"map":      map[string]Secret{"k": s},
		"any":      []any{s, &s},
		"provider": c.Providers["openai"],
		"config":   c,
	}
}

func TestSecretInFmt(t *testing.T) {
	flags := []string{"", "+", "#", "-", " ", "0", "30", ".3", "+#"}
	for name, h := range holders() {
		for _, flag := range flags {
			for verb := 'A'; verb <= 'z'; verb++ {
				format := "%" + flag + string(verb)
				if got := fmt.Sprintf(format, h); strings.Contains(got, "hunter") {
					t.Errorf("%s in %s: %s", format, name, got)
				}
			}
		}
		for _, format := range []string{"%w", "%d %s", "no verb", "%[2]*[1]d", "%", "%!", "%[3]v"} {
			if got := fmt.Errorf(format, h, h).Error(); strings.Contains(got, "hunter") {
				t.Errorf("%s of %s: %s", format, name, got)
			}
		}
		if got := fmt.Sprint(h) + fmt.Sprintln(h, h); strings.Contains(got, "hunter") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestSecretInHex has the verbs that would show it in another writing.
func TestSecretInHex(t *testing.T) {
	for name, h := range holders() {
		for _, verb := range []string{"%x", "%X", "% x", "%q", "%+q", "%b", "%o", "%U"} {
			got := strings.ToLower(fmt.Sprintf(verb, h))
			if strings.Contains(strings.ReplaceAll(got, " ", ""), fmt.Sprintf("%x", "hunter2")) {
				t.Errorf("%s in %s: %s", verb, name, got)
			}
		}
	}
}

func TestSecretInLogs(t *testing.T) {
	var b bytes.Buffer
	loggers := []*slog.Logger{
		slog.New(slog.NewTextHandler(&b, nil)),
		slog.New(slog.NewJSONHandler(&b, nil)),
	}
	for name, h := range holders() {
		for _, l := range loggers {
			b.Reset()
			l.Info("m", "h", h, slog.Group("g", "h", h))
			l.With("h", h).Error("m")
			if strings.Contains(b.String(), "hunter") {
				t.Errorf("%s: %s", name, b.String())
			}
		}
	}
}

func TestSecretInEncodings(t *testing.T) {
	for name, h := range holders() {
		for kind, marshal := range map[string]func(any) ([]byte, error){
			"json": json.Marshal, "yaml": func(v any) ([]byte, error) { return yaml.Marshal(v) }, "xml": xml.Marshal,
		} {
			if got, _ := marshal(h); strings.Contains(string(got), "hunter") {
				t.Errorf("%s of %s: %s", kind, name, got)
			}
		}
	}
}

func TestSecret(t *testing.T) {
	s, none := NewSecret(hidden), NewSecret("")
	if s.Reveal() != hidden || !s.IsSet() || none.Reveal() != "" || none.IsSet() || none != (Secret{}) {
		t.Error("a secret does not hold its text")
	}
	for want, s := range map[string]Secret{"***": s, "": none} {
		j, err := json.Marshal(s)
		if err != nil || string(j) != `"`+want+`"` {
			t.Errorf("JSON of %q: %s, %v", want, j, err)
		}
		for _, got := range []string{s.String(), s.GoString(), fmt.Sprintf("%+v", s), fmt.Sprintf("%q", s), s.LogValue().String()} {
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
	y, err := yaml.Marshal(map[string]Secret{"k": s})
	if err != nil || strings.TrimSpace(string(y)) != `k: '***'` && strings.TrimSpace(string(y)) != `k: "***"` && strings.TrimSpace(string(y)) != `k: ***` {
		t.Errorf("YAML: %s, %v", y, err)
	}
}

// TestSecretsInFaults puts keys where they do not belong, under every variable
// whose name says that it is one.
func TestSecretsInFaults(t *testing.T) {
	environ := []string{
		"OPENAI_API_KEY=" + hidden, "MY_TOKEN=" + hidden + "x", "DB_PASSWORD=pass" + hidden,
		"LLM_INGESTION_SLOTS=" + hidden, "SEMANTIC_ANALYSIS_MODE=" + hidden,
		"LLM_BASE_URL_CUSTOM=" + hidden, "LLM_BASE_URL_OPENAI=https://" + hidden + ":x@host/",
		"GROQ_API_KEY=" + hidden + "\x00", "OLLAMA_HOST=" + hidden + "@x", "DMR_HOST=http://" + hidden,
	}
	for _, file := range []string{
		"mode: " + hidden, hidden + ": 1", "providers: {" + hidden + ": {}}", "mode: ${OPENAI_API_KEY}",
		"providers: {openai: {fast: x, apiKeyEnvVar: " + hidden + "}}", "pools: " + hidden,
		"mode: \"" + hidden, "- " + hidden + "\nx: y", hidden, "a: b: " + hidden,
		"fallback_on: [" + hidden + "]", "task_tiers: {fast: [a], premium: [a, " + hidden + ", " + hidden + "]}",
	} {
		_, err := Load(text(file, environ...))
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("%s: %v", file, err)
		}
		j, _ := json.Marshal(e)
		for _, got := range []string{err.Error(), fmt.Sprintf("%#v", e), string(j)} {
			if strings.Contains(got, "hunter") {
				t.Errorf("%s: %s", file, got)
			}
		}
	}
}
