package ollama

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
)

// cloud knows which models do not run where the server runs: their prompts go on
// to the vendor. They are named so by their tag ("gpt-oss:120b-cloud"), or the
// server's list says so (remote_host); all are where the server is the vendor's.
type cloud struct {
	vendor bool // the base URL is the vendor's own
	listed atomic.Pointer[map[string]bool]
}

func newCloud(base string) *cloud {
	u, err := url.Parse(base)
	host := ""
	if err == nil {
		host = strings.ToLower(u.Hostname())
	}
	return &cloud{vendor: host == "ollama.com" || strings.HasSuffix(host, ".ollama.com")}
}

// learn reads the server's list of models.
func (c *cloud) learn(models gjson.Result) {
	remote := map[string]bool{}
	models.ForEach(func(_, m gjson.Result) bool {
		if m.Get("remote_host").Str != "" {
			remote[untagged(m.Get("name").Str)] = true
		}
		return true
	})
	c.listed.Store(&remote)
}

// untagged leaves out the tag that the server adds where none is said.
func untagged(model string) string { return strings.TrimSuffix(model, ":latest") }

func (c *cloud) has(model string) bool {
	_, tag, _ := strings.Cut(model, ":")
	if c.vendor || tag == "cloud" || strings.HasSuffix(tag, "-cloud") {
		return true
	}
	listed := c.listed.Load()
	return listed != nil && (*listed)[untagged(model)]
}

// private refuses a call that must not leave for the vendor. Routing counts the
// provider as a local runner, which it is but for these models.
func (c *cloud) private(job *providers.Job) error {
	if job.Request.Head.Privacy != "local" || !c.has(job.Model) {
		return nil
	}
	e := subjects.Errorf(subjects.KindProviderUnavailable, "the model %s runs in Ollama's cloud, and the call asks for local providers only", strconv.Quote(job.Model))
	e.HTTPStatus = http.StatusUnprocessableEntity
	return e
}
