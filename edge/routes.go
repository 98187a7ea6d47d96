package edge

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

const modelPrefix = "/v1/models/"

// route is what one path answers. Each has one method; HEAD goes with GET.
type route struct {
	method string
	handle func(*exchange)
	// about is its line in the index.
	about string
}

func (s *Server) table() map[string]route {
	get := func(about string, h func(*exchange)) route { return route{http.MethodGet, h, about} }
	post := func(about string, h func(*exchange)) route { return route{http.MethodPost, h, about} }
	return map[string]route{
		"/":             get("this page", (*exchange).index),
		"/api/complete": post("a native request; its result, or events with \"stream\":true", func(x *exchange) { x.complete(wire.Native) }),
		"/v1/chat/completions": post("OpenAI chat completions, streaming or not",
			func(x *exchange) { x.complete(wire.OpenAIChat) }),
		"/v1/models":                get("OpenAI list of models; /v1/models/{id} is one of them", (*exchange).models),
		"/health":                   get("state of providers and pools; 503 when nothing can serve", (*exchange).health),
		"/api/token-usage/summary":  get("?hours=24&bucketMinutes=", (*exchange).usageSummary),
		"/api/token-usage/recent":   get("?limit=50", (*exchange).usageRecent),
		"/api/llm/routing/resolve":  get("?task=&tier=&process=&class=&provider=&model=&tools=&needs=&…: the routing decision", (*exchange).resolve),
		"/v1/messages":              post("not built yet", (*exchange).notBuilt),
		"/v1/messages/count_tokens": post("not built yet", (*exchange).notBuilt),
		"/v1/responses":             post("not built yet", (*exchange).notBuilt),
		"/v1/embeddings":            post("not built yet", (*exchange).notBuilt),
		"/metrics":                  get("not built yet", (*exchange).notBuilt),
		"/token-usage":              get("not built yet", (*exchange).notBuilt),
	}
}

func (s *Server) lookup(path string) (route, bool) {
	if rt, ok := s.routes[path]; ok {
		return rt, true
	}
	if strings.HasPrefix(path, modelPrefix) && len(path) > len(modelPrefix) {
		return route{method: http.MethodGet, handle: (*exchange).model}, true
	}
	return route{}, false
}

func (s *Server) dispatch(x *exchange) {
	rt, ok := s.lookup(x.r.URL.Path)
	if !ok {
		x.fail(refusal(http.StatusNotFound, "no route %s %s%s", x.r.Method, clip(x.r.URL.Path), routeHint(x.r.URL.Path)))
		return
	}
	if m := x.r.Method; m != rt.method && (m != http.MethodHead || rt.method != http.MethodGet) {
		allow := rt.method
		if allow == http.MethodGet {
			allow = "GET, HEAD"
		}
		x.w.Header()["Allow"] = []string{allow}
		x.fail(refusal(http.StatusMethodNotAllowed, "%s takes %s, not %s", clip(x.r.URL.Path), allow, clip(m)))
		return
	}
	rt.handle(x)
}

// routeHint guesses what a caller meant who has the base URL wrong.
func routeHint(path string) string {
	switch path {
	case "/chat/completions", "/models", "/embeddings", "/responses":
		return "; the base URL of an OpenAI SDK must end in /v1"
	}
	if strings.HasPrefix(path, "/v1/v1/") {
		return "; the base URL of this SDK must not end in /v1"
	}
	return "; GET / lists the routes"
}

// routeName is the path for the log: of a known route only, for a caller may
// have put anything into another.
func (x *exchange) routeName() string {
	if _, ok := x.s.routes[x.r.URL.Path]; ok {
		return x.r.URL.Path
	}
	if strings.HasPrefix(x.r.URL.Path, modelPrefix) {
		return modelPrefix
	}
	return "other"
}

func (x *exchange) index() {
	paths := make([]string, 0, len(x.s.routes))
	for p := range x.s.routes {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	var b strings.Builder
	fmt.Fprintf(&b, "sluice %s: an LLM gateway on NATS\n\n", x.s.o.Version)
	for _, p := range paths {
		rt := x.s.routes[p]
		fmt.Fprintf(&b, "%-4s %-26s %s\n", rt.method, p, rt.about)
	}
	b.WriteString("\nOptional on calls: X-LLM-Process, -Task, -Tier, -Class, -Provider, -Call-Id, -Run-Id, -Batch-Id,\n" +
		"-Timeout-Ms, -Skip-Cache, -Cache-Scope.\n")
	x.send(http.StatusOK, typeText, []byte(b.String()))
}

func (x *exchange) notBuilt() {
	msg := x.r.URL.Path + ": not built yet in this version"
	if v := x.s.o.Version; v != "" {
		msg += " (" + v + ")"
	}
	if x.form == formText {
		x.send(http.StatusNotImplemented, typeText, []byte(msg+"\n"))
		return
	}
	e := subjects.Errorf(subjects.KindCapabilityMissing, "%s", msg)
	e.HTTPStatus = http.StatusNotImplemented
	x.fail(e)
}
