// Package gemini talks to Google's Gemini API (generateContent), the developer
// API with a key from AI Studio; Vertex AI is another.
//
// The wire itself is package wire's (EncodeGemini, ReadGemini, GeminiStream).
// What stands here is where a request goes and what the API's errors mean:
// requests per minute that come back by themselves, a day's quota that does not,
// and a 400 that says no more than that one model cannot do what is asked.
package gemini

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// capabilities are what the form carries. Images by URL are not among them: the
// API takes no URL but of files that were uploaded to it.
const capabilities = wire.NeedTools | wire.NeedToolChoice | wire.NeedImages |
	wire.NeedJSONMode | wire.NeedJSONSchema | wire.NeedStreaming

// New makes the provider of one configuration entry. What o leaves open is the
// API's own. It does no I/O.
func New(cfg *config.Provider, o rest.Options) *rest.Provider {
	o.Form = form{}
	o.Capabilities = capabilities
	o.Authorize = authorize
	o.Refine = refine
	return rest.New(cfg, o)
}

// authorize puts the key in a header, and never in the query as the API also
// allows: queries end up in logs.
func authorize(h http.Header, key string) { h.Set("X-Goog-Api-Key", key) }

// form is the API's form.
type form struct{}

var _ rest.Form = form{}

// Write implements rest.Form.
func (form) Write(job *providers.Job, stream bool) (*rest.Exchange, error) {
	model, err := modelName(job.Model)
	if err != nil {
		return nil, err
	}
	chat, err := job.Request.Chat()
	if err != nil {
		return nil, err
	}
	body, warnings, err := wire.EncodeGemini(chat, model)
	if err != nil {
		return nil, err
	}
	ex := &rest.Exchange{Path: "/models/" + url.PathEscape(model) + ":generateContent", Body: body, Warnings: warnings}
	if stream {
		ex.Path, ex.Query = "/models/"+url.PathEscape(model)+":streamGenerateContent", "alt=sse"
	}
	return ex, nil
}

// modelName is a model's id without "models/", which the API's own list of
// models has in front. The id becomes a part of the path, so that one which could
// be more than a name is refused: with the kind and status of a model that is not
// there, for another provider may have it.
func modelName(id string) (string, error) {
	name := strings.TrimPrefix(id, "models/")
	odd := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.')
	}
	if strings.Trim(name, ".") == "" || strings.ContainsFunc(name, odd) {
		e := subjects.Errorf(subjects.KindProviderUnavailable, "the model %q is not there: gemini's models have names of letters, digits, dots and dashes, such as gemini-2.5-flash", id)
		e.HTTPStatus = http.StatusNotFound
		return "", e
	}
	return name, nil
}

// Read implements rest.Form.
func (form) Read(_ *providers.Job, body []byte) (*wire.Response, error) {
	return wire.ReadGemini(body)
}

// Reader implements rest.Form. A stream has no last event of its own: it is whole
// once the model has said why it ended.
func (form) Reader(*providers.Job) rest.Reader { return &reader{} }

type reader struct{ wire.GeminiStream }

// Event implements rest.Reader. [DONE] is not the API's; a gateway before it that
// speaks OpenAI's form, too, ends every stream so.
func (r *reader) Event(_ string, data []byte, yield func(*wire.Event) error) error {
	if string(data) == "[DONE]" {
		return rest.ErrDone
	}
	failure, err := r.Chunk(data, yield)
	if failure {
		return rest.ErrorIn(data)
	}
	return err
}
