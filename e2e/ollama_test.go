//go:build e2e_model

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Names of the models that Ollama makes of the one file. Whether a model has
// tools is for Ollama to see from its template.
const (
	ollamaPlain = "gemma-plain"
	ollamaTools = "gemma-tools"
)

// startOllama builds Ollama's server where that can be done, starts it with the
// models, and returns its URL; "" where it cannot be built.
func (r *runners) startOllama(t *testing.T, in install) (server string) {
	t.Helper()
	var facts map[string]string
	t.Run("build ollama", func(t *testing.T) { facts = script(t, "./ollama.sh") })
	if facts == nil {
		return ""
	}
	addr, dir := freeAddr(t), t.TempDir()
	env := append(os.Environ(), "OLLAMA_HOST="+addr, "OLLAMA_MODELS="+facts["OLLAMA_MODELS"], "HOME="+dir,
		fmt.Sprintf("OLLAMA_CONTEXT_LENGTH=%d", contextTokens), "OLLAMA_NUM_PARALLEL=1")
	cmd := exec.Command(facts["OLLAMA_SERVER"], "serve")
	cmd.Env = env
	r.ollama = start(t, "ollama", cmd)
	r.ollama.answers(t, "http://"+addr+"/api/version")
	for _, model := range []string{ollamaPlain, ollamaTools} {
		file, err := os.ReadFile(filepath.Join("testdata", model+".modelfile"))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, model)
		if err := os.WriteFile(path, []byte("FROM "+in.model+"\n"+string(file)), 0o600); err != nil {
			t.Fatal(err)
		}
		create := exec.CommandContext(t.Context(), facts["OLLAMA_SERVER"], "create", model, "-f", path)
		create.Env = env
		if out, err := create.CombinedOutput(); err != nil {
			t.Fatalf("ollama create: %v\n%s", err, out)
		}
	}
	return "http://" + addr
}

// ollamaBusy reads the server's log: a line for each chat that is over.
func (r *runners) ollamaBusy(w *witness) func(*testing.T) string {
	return func(*testing.T) string {
		asked, over := len(w.all()), strings.Count(r.ollama.output(), `"/api/chat"`)
		if over < asked {
			return fmt.Sprintf("%d of %d chats are over", over, asked)
		}
		return ""
	}
}

// fallsThrough: a request that ollama cannot serve is served by the next one,
// after ollama was asked once.
func (r *runners) fallsThrough(t *testing.T, model, prompt string, more map[string]any) {
	t.Helper()
	one := r.all[len(r.all)-1]
	a := r.ask(t, newID(), one.request(model, prompt, more))
	if a.status != http.StatusOK || a.provider != "custom" {
		t.Errorf("%d from %q: %s", a.status, a.provider, a.body)
	}
	if xs := one.witness.of(prompt); len(xs) != 1 {
		t.Errorf("ollama was asked %d times, want once", len(xs))
	}
}

func (r *runners) checkNoModel(t *testing.T) {
	e := r.direct(t, "ollama", "no-such-model", "hi")
	if e.Kind != "PROVIDER_UNAVAILABLE" || !strings.Contains(e.Message, "`ollama pull no-such-model`") {
		t.Errorf("%+v", e)
	}
	r.fallsThrough(t, "no-such-model", "No such model: what is the capital of Spain?", nil)
}

func (r *runners) checkNoTools(t *testing.T) {
	prompt := "No tools: what is the weather in Paris?"
	r.fallsThrough(t, ollamaPlain, prompt, weather(prompt))
}

// onePixel is the smallest PNG.
const onePixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func (r *runners) checkNoSight(t *testing.T) {
	e := r.direct(t, "ollama", ollamaPlain, []any{
		map[string]any{"type": "text", "text": "What is this?"}, map[string]any{"type": "image", "imageUrl": onePixel},
	})
	if e.Kind != "PROVIDER_UNAVAILABLE" {
		t.Errorf("%+v", e)
	}
}

// checkNotRunning ends Ollama: calls go on to the next provider, and the node
// says how to start it.
func (r *runners) checkNotRunning(t *testing.T) {
	r.ollama.kill()
	r.all[len(r.all)-1].witness.close()
	eventually(t, "the node says that Ollama does not run", func() string {
		var h struct {
			Providers map[string]struct {
				Available bool   `json:"available"`
				Reason    string `json:"reason"`
			} `json:"providers"`
		}
		r.node.get(t, "/health", &h)
		if p := h.Providers["ollama"]; p.Available || !strings.Contains(p.Reason, "`ollama serve`") {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	a := r.ask(t, newID(), r.all[len(r.all)-1].request(ollamaPlain, "Not running: what is the capital of Spain?", nil))
	if a.status != http.StatusOK || a.provider != "custom" {
		t.Errorf("%d from %q: %s", a.status, a.provider, a.body)
	}
}
