// Package dmr talks to Docker Model Runner, on a machine of one's own and without
// a key: a scheduler whose errors are plain text, before back ends (llama.cpp,
// vLLM) that speak OpenAI's form (WIRE.md D).
//
// llama.cpp takes a tool choice that names a tool for "auto", with status 200
// (llama.cpp#26535): such a request goes out with that one tool and "required",
// which says the same. An image by its URL is not offered: the back end would
// fetch it from within the operator's network.
package dmr

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/httpx"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/providers/openai"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

const capabilities = wire.NeedTools | wire.NeedToolChoice | wire.NeedImages | wire.NeedJSONMode | wire.NeedJSONSchema |
	wire.NeedLogProbs | wire.NeedStreaming

// New makes the provider of one configuration entry; o may bring a transport and
// the program's version. It does no I/O.
func New(cfg *config.Provider, o rest.Options) *openai.Provider {
	o.Capabilities = capabilities
	o.KeyOptional = true
	o.Refine = refine
	o.Probe = "/models"
	o.ProbeHint = "start it with `docker model start-runner`, or in Docker Desktop with `docker desktop enable model-runner --tcp 12434`, or set DMR_HOST and DMR_PORT to where it runs"
	o.ProbeRead = func(body []byte) error { return pulled(cfg, body) }
	o.BaseURLHint = "set DMR_HOST or providers." + cfg.ID + ".baseUrl"
	return openai.NewDialect(cfg, o, openai.Dialect{Prepare: prepare})
}

// pulled finds out whether the runner has any model.
func pulled(cfg *config.Provider, list []byte) error {
	models := gjson.GetBytes(list, "data")
	if !models.IsArray() || models.Get("#").Int() > 0 {
		return nil
	}
	return subjects.Errorf(subjects.KindProviderUnavailable, "no model is there; fetch one with `docker model pull %s`", rest.SomeModel(cfg))
}

const logs = "`docker model logs` says more"

func refine(f *httpx.Failure) (subjects.Kind, bool) {
	switch {
	case f.Status == http.StatusNotFound && f.Reads([]string{"backend"}):
		f.Remedy = "correct the back end in the base URL, or leave it out (…/engines/v1)"
		return subjects.KindProviderUnavailable, true
	case f.Status == http.StatusNotFound && f.Reads([]string{"model"}) && f.Model != "":
		f.Remedy = "fetch it with `docker model pull " + f.Model + "`"
	case f.Status == http.StatusPreconditionFailed:
		f.Remedy = "install the back end with `docker model install-runner`"
		return subjects.KindProviderUnavailable, true
	case f.Status == http.StatusInternalServerError && f.Reads([]string{"deadline exceeded"}): // a slow load, which may be faster again
		f.Remedy = logs
		return subjects.KindProvider, true
	case f.Status == http.StatusInternalServerError && f.Reads([]string{"unable to load runner"}):
		// The model does not fit, or its back end does not start: trying again does
		// not change that.
		f.Remedy, f.ShowStatus = logs, http.StatusNotFound
		return subjects.KindProviderUnavailable, true
	case f.Says([]string{"exceed_context_size_error"}):
		f.Remedy = "send less, or give the model more room with `docker model configure --context-size`"
	default:
		return openai.Refine(f)
	}
	return "", false
}

// prepare says a tool choice that names a tool in the way that llama.cpp heeds.
func prepare(job *providers.Job, ex *rest.Exchange) error {
	if job.Request.Head.Needs&wire.NeedToolChoice == 0 {
		return nil
	}
	name := gjson.GetBytes(ex.Body, "tool_choice.function.name")
	if !name.Exists() {
		return nil
	}
	var body map[string]json.RawMessage
	var tools []json.RawMessage
	if json.Unmarshal(ex.Body, &body) != nil || json.Unmarshal(body["tools"], &tools) != nil {
		return missing(name.Str)
	}
	for _, tool := range tools {
		if gjson.GetBytes(tool, "function.name").Str != name.Str {
			continue
		}
		body["tools"], _ = json.Marshal([]json.RawMessage{tool}) // was JSON
		body["tool_choice"] = json.RawMessage(`"required"`)
		var err error
		ex.Body, err = json.Marshal(body)
		return err
	}
	return missing(name.Str)
}

func missing(name string) error {
	e := subjects.Errorf(subjects.KindValidation, "tool_choice: names %q, which is not among the tools", strings.ToValidUTF8(name, "\uFFFD"))
	e.Param = "tool_choice"
	return e
}
