// Package ollama talks to Ollama by its own API (POST /api/chat), on a machine
// of one's own or in its cloud: where the endpoint of OpenAI's form would cut a
// long prompt, lose an error in mid-stream or not say why a model stopped, this
// one says so. What a request says in it stands in package wire; here is what
// the server's failures mean (facts: the server's source, v0.17.4).
//
// Much of what the server refuses is about one model or one request, while the
// next provider could serve it: a model that is not pulled, that has no tools,
// does not see or does not fit in memory; a schema that it cannot constrain to.
// Those are PROVIDER_UNAVAILABLE, which moves on without a retry, with the status
// 404 (the model alone) or 422 (the request alone).
package ollama

import (
	"net/http"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers/internal/httpx"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// capabilities are what the API can say; what one model of it lacks is its
// server's answer. It knows no forced tool call, fetches no images, and gives
// one choice; its log-probabilities are not carried.
const capabilities = wire.NeedTools | wire.NeedImages | wire.NeedJSONMode | wire.NeedJSONSchema | wire.NeedStreaming

// New makes the provider of one configuration entry; o may bring a transport and
// the program's version. It does no I/O.
func New(cfg *config.Provider, o rest.Options) *rest.Provider {
	remote := newCloud(cfg.BaseURL)
	o.Form = form{remote}
	o.Capabilities = capabilities
	o.KeyOptional = true
	o.Format = httpx.NDJSON
	o.Refine = refine
	o.Probe = "/api/tags"
	o.ProbeHint = "start it with `ollama serve`, or set OLLAMA_HOST to where it runs"
	o.ProbeRead = func(body []byte) error {
		models := gjson.GetBytes(body, "models")
		remote.learn(models)
		return pulled(cfg, models)
	}
	o.BaseURLHint = "set OLLAMA_HOST or providers." + cfg.ID + ".baseUrl"
	return rest.New(cfg, o)
}

// pulled finds out whether the server has any model. One that lacks some tier's
// model, or all of them, can still serve calls that name another: those that do
// not are answered 404 and go on to the next provider, so it stays available.
// With a key, models run in the cloud and need not be listed.
func pulled(cfg *config.Provider, models gjson.Result) error {
	if cfg.APIKey.IsSet() || !models.Exists() || len(models.Array()) > 0 {
		return nil
	}
	return subjects.Errorf(subjects.KindProviderUnavailable, "no model is there; fetch one with `ollama pull %s`", rest.SomeModel(cfg))
}

// What the server says, lower-case: it has no codes.
var (
	// notForModel is what one model cannot do.
	notForModel = []string{
		"does not support", "is not supported for this model", "missing data required for image input",
		"only supports one image",
	}
	// notForServer is what the server cannot make of a schema: one for the answer,
	// or one of a tool, which it reads into a type of its own.
	notForServer = []string{"invalid json schema", "cannot unmarshal"}
	// notHere is a model that this server cannot run.
	notHere = []string{"cannot run this remote model", "remote inference is unavailable", "requires more system memory", "unable to load model"}
	busy    = []string{"maximum pending requests", "server busy"}
	usedUp  = []string{"usage limit"}
	tooLong = []string{"context length"}
	noModel = []string{"model"}
)

func refine(f *httpx.Failure) (subjects.Kind, bool) {
	switch {
	case f.Status == http.StatusServiceUnavailable && f.Reads(busy):
		return subjects.KindRateLimited, true
	case f.Status == http.StatusTooManyRequests && f.Reads(usedUp):
		return subjects.KindQuotaExhausted, true
	case f.Reads(notForModel), f.Reads(notForServer):
		f.ShowStatus = http.StatusUnprocessableEntity
		return subjects.KindProviderUnavailable, true
	case f.Reads(notHere):
		f.ShowStatus = http.StatusNotFound
		return subjects.KindProviderUnavailable, true
	case f.Status == http.StatusUnauthorized:
		f.Remedy = "sign in with `ollama signin` where the server runs, or set the key"
	case f.Status == http.StatusNotFound && f.Reads(noModel) && f.Model != "":
		f.Remedy = "fetch it with `ollama pull " + f.Model + "`"
	case f.Reads(tooLong):
		f.Remedy = "send less, or give the server more room with OLLAMA_CONTEXT_LENGTH"
	}
	return "", false
}
