// Package copilot talks to GitHub Copilot's chat completions with the account that
// OpenCode is logged in to (WIRE.md B). The GitHub token is sent as it is: there
// is no exchange for a token of GitHub's own editors.
//
// Nothing says that the caller is another client than Sluice: no Editor-Version,
// no Copilot-Integration-Id, no intent of an editor. Where GitHub refuses a program
// or a model for that, it is an error, and never a reason to dress up. Of OpenCode's
// headers three are kept, which say what is true of a request: X-Initiator (who
// speaks in its last turn: a person's turn counts against the plan's requests, and
// so does every turn of unknown origin), Copilot-Vision-Request (there are images in
// it) and X-GitHub-Api-Version (the form that this package was written against).
//
// Usage comes in a stream's last chunk without being asked for, and by default the
// configuration does not ask. A Claude model's whole answer comes with its text and
// each tool call in a choice of its own, though one choice was asked for: they are
// put together.
package copilot

import (
	"net/http"
	"strings"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/opencode"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/providers/openai"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// apiVersion is the version of GitHub's API whose forms were recorded.
const apiVersion = "2026-06-01"

// formats are the answers that only the models of some vendors keep to.
const formats = wire.NeedJSONMode | wire.NeedJSONSchema

// capabilities are what every model of the account can do. Images go as data: an
// image by its URL is not fetched. Several choices and log-probabilities are not
// offered for most models.
const capabilities = wire.NeedTools | wire.NeedToolChoice | wire.NeedImages | wire.NeedStreaming

// New makes the provider of one configuration entry; o may bring a transport, the
// program's version and, in a test, a credential. It does no I/O.
func New(cfg *config.Provider, o rest.Options) *openai.Provider {
	if o.Credential == nil {
		o.Credential = opencode.New(opencode.Options{File: cfg.CredentialsFile, Named: cfg.CredentialsNamed})
	}
	o.Capabilities = capabilities
	if allKeepFormats(cfg) {
		o.Capabilities |= formats
	}
	o.Header = http.Header{"X-Github-Api-Version": {apiVersion}}
	o.Refine = refine
	return openai.NewDialect(cfg, o, openai.Dialect{Prepare: prepare, Mend: mend})
}

// keepsFormat reports whether a model answers in the JSON that was asked for.
// Copilot's list of models says so (structured_outputs) of OpenAI's and Google's;
// the others are sent on without the wish, and answer as they like.
func keepsFormat(model string) bool {
	for _, family := range []string{"gpt-", "o1", "o3", "o4", "gemini-"} {
		if strings.HasPrefix(model, family) {
			return true
		}
	}
	return false
}

// allKeepFormats reports whether all models of the configuration do.
func allKeepFormats(cfg *config.Provider) bool {
	for _, model := range cfg.Models {
		if !keepsFormat(model) {
			return false
		}
	}
	for _, model := range cfg.AvailableModels {
		if !keepsFormat(model) {
			return false
		}
	}
	return len(cfg.Models) > 0
}

// prepare sets the headers that depend on the request.
func prepare(job *providers.Job, ex *rest.Exchange) error {
	needs := job.Request.Head.Needs
	if needs&formats != 0 && !keepsFormat(job.Model) {
		e := subjects.Errorf(subjects.KindProviderUnavailable, "Copilot's %s does not keep to a JSON format", job.Model)
		e.HTTPStatus = http.StatusUnprocessableEntity
		return e
	}
	ex.Header = http.Header{"X-Initiator": {"user"}}
	switch wire.LastRole(ex.Body) {
	case "assistant", "tool", "function":
		ex.Header.Set("X-Initiator", "agent")
	}
	if needs&(wire.NeedImages|wire.NeedImageURLs) != 0 {
		ex.Header.Set("Copilot-Vision-Request", "true")
	}
	return nil
}
