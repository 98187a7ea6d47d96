package edge_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/edge"
	"github.com/sluice-llm/sluice/subjects"
)

// queries answers the query subjects by name.
func queries(answers map[string]string) *fake {
	return &fake{request: func(_ context.Context, m *subjects.Msg) (*subjects.Msg, error) {
		a, ok := answers[m.Subject]
		if !ok {
			return nil, subjects.Errorf(subjects.KindProviderUnavailable, "nobody answers %s", m.Subject)
		}
		return &subjects.Msg{Data: []byte(a)}, nil
	}}
}

func TestQueriesArePassedOn(t *testing.T) {
	tests := []struct{ path, subject, query string }{
		{"/api/token-usage/summary", subjects.QueryUsageSummary, `{}`},
		{"/api/token-usage/summary?hours=24&bucketMinutes=2", subjects.QueryUsageSummary, `{"hours":24,"bucketMinutes":2}`},
		{"/api/token-usage/summary?hours=&_=1", subjects.QueryUsageSummary, `{}`},
		{"/api/token-usage/recent", subjects.QueryUsageRecent, `{}`},
		{"/api/token-usage/recent?limit=10000", subjects.QueryUsageRecent, `{"limit":10000}`},
		{"/api/llm/routing/resolve", subjects.QueryRoute, `{}`},
		{
			"/api/llm/routing/resolve?task=a%20b&tier=fast&process=p&provider=groq&tools=true", subjects.QueryRoute,
			`{"task":"a b","tier":"fast","process":"p","provider":"groq","tools":true}`,
		},
		{"/api/llm/routing/resolve?model=x/y&privacy=local&tools=false", subjects.QueryRoute, `{"model":"x/y","privacy":"local"}`},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			f := replying(`{"answer":1}`, nil)
			a := start(t, f, edge.Options{}).get(t, tt.path)
			if a.status != http.StatusOK || a.body != `{"answer":1}` || a.header.Get("Content-Type") != "application/json" {
				t.Fatalf("got %d %v %s", a.status, a.header, a.body)
			}
			if m := f.last(t); m.Subject != tt.subject || string(m.Data) != tt.query {
				t.Errorf("asked %s %s, want %s %s", m.Subject, m.Data, tt.subject, tt.query)
			}
		})
	}
}

// TestEveryRoutingQuestionCanBeAsked holds that each field of RouteQuery is a
// parameter of the same name.
func TestEveryRoutingQuestionCanBeAsked(t *testing.T) {
	var want subjects.RouteQuery
	params := url.Values{}
	for v, i := reflect.ValueOf(&want).Elem(), 0; i < v.NumField(); i++ {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch f := v.Field(i).Addr().Interface().(type) {
		case *string:
			*f = "any " + name
			params.Set(name, *f)
		case *bool:
			*f = true
			params.Set(name, "true")
		case *[]string:
			*f = []string{"images", "documents", "tools"}
			params[name] = []string{"images, documents,", "tools"}
		default:
			t.Fatalf("%s is of a kind that no parameter has", name)
		}
	}
	f := replying(`{}`, nil)
	if a := start(t, f, edge.Options{}).get(t, "/api/llm/routing/resolve?"+params.Encode()); a.status != http.StatusOK {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	var got subjects.RouteQuery
	if err := json.Unmarshal(f.last(t).Data, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("asked %+v (%v), want %+v", got, err, want)
	}
}

func TestBadQueriesAreRefused(t *testing.T) {
	f := replying(`{}`, nil)
	r := start(t, f, edge.Options{})
	for path, want := range map[string]string{
		"/api/token-usage/summary?hours=0":                           "hours",
		"/api/token-usage/summary?hours=-1":                          "hours",
		"/api/token-usage/summary?hours=1.5":                         "hours",
		"/api/token-usage/summary?hours=99999999999999":              "hours",
		"/api/token-usage/summary?hours=87841":                       "from 1 to 87840",
		"/api/token-usage/summary?bucketMinutes=44641":               "bucketMinutes",
		"/api/token-usage/summary?hour=2":                            `"hour" is not known here; known are hours, bucketMinutes`,
		"/api/token-usage/summary?hours=%zz":                         "not well-formed",
		"/api/token-usage/recent?limit=10001":                        "from 1 to 10000",
		"/api/token-usage/recent?limit=0":                            "limit",
		"/api/token-usage/recent?limit=x":                            "limit",
		"/api/llm/routing/resolve?forcePaid=maybe":                   "forcePaid",
		"/api/llm/routing/resolve?needs=" + strings.Repeat("x", 257): "needs: 257 bytes",
		"/api/llm/routing/resolve?need=images":                       `"need" is not known here; known are task, tier`,
		"/api/llm/routing/resolve?tools=maybe":                       "tools",
		"/api/llm/routing/resolve?task=" + strings.Repeat("x", 257):  "task: 257 bytes",
	} {
		a := r.get(t, path)
		e := a.errorOf(t)
		if msg, _ := e["message"].(string); a.status != 400 || e["kind"] != "VALIDATION_ERROR" || !strings.Contains(msg, want) {
			t.Errorf("%s: %d %s, want the words %q", path, a.status, a.body, want)
		}
	}
	if n := f.count(); n != 0 {
		t.Errorf("the node was asked %d times", n)
	}
}

func TestHealth(t *testing.T) {
	for _, tt := range []struct {
		reply  string
		status int
	}{
		{`{"status":"ok","canServe":true}`, 200},
		{`{"status":"degraded","canServe":true}`, 200},
		{`{"status":"degraded","canServe":false}`, 503},
	} {
		r := start(t, queries(map[string]string{subjects.QueryHealth: tt.reply}), edge.Options{})
		if a := r.get(t, "/health"); a.status != tt.status || a.body != tt.reply {
			t.Errorf("%s: got %d %s", tt.reply, a.status, a.body)
		}
	}
}

func TestHealthWithoutNode(t *testing.T) {
	a := start(t, queries(nil), edge.Options{Version: "1.2"}).get(t, "/health")
	var h subjects.Health
	if err := json.Unmarshal([]byte(a.body), &h); err != nil {
		t.Fatal(err)
	}
	if a.status != 503 || h.Status != "degraded" || h.CanServe || h.Version != "1.2" || len(h.Reasons) != 1 || h.Pools == nil {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

func TestModels(t *testing.T) {
	r := start(t, queries(map[string]string{subjects.QueryModels: `{"models":[{"id":"groq/openai/gpt-oss-120b","provider":"groq"},{"id":"auto","provider":"sluice"}]}`}), edge.Options{})
	const first = `{"id":"groq/openai/gpt-oss-120b","object":"model","created":0,"owned_by":"groq"}`
	if a := r.get(t, "/v1/models"); a.status != 200 ||
		a.body != `{"object":"list","data":[`+first+`,{"id":"auto","object":"model","created":0,"owned_by":"sluice"}]}` {
		t.Errorf("list: %d %s", a.status, a.body)
	}
	for _, path := range []string{"/v1/models/groq/openai/gpt-oss-120b", "/v1/models/groq%2Fopenai%2Fgpt-oss-120b"} {
		if a := r.get(t, path); a.status != 200 || a.body != first {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	a := r.get(t, "/v1/models/none")
	if e := a.errorOf(t); a.status != 404 || e["code"] != "not_found" || e["type"] != "invalid_request_error" {
		t.Errorf("unknown model: %d %s", a.status, a.body)
	}
}

func TestModelsEmptyAndBroken(t *testing.T) {
	if a := start(t, replying(`{"models":null}`, nil), edge.Options{}).get(t, "/v1/models"); a.body != `{"object":"list","data":[]}` {
		t.Errorf("no models: %s", a.body)
	}
	if a := start(t, replying(`nonsense`, nil), edge.Options{}).get(t, "/v1/models"); a.status != 502 || a.errorOf(t)["type"] != "server_error" {
		t.Errorf("broken reply: %d %s", a.status, a.body)
	}
	if a := start(t, queries(nil), edge.Options{}).get(t, "/v1/models/x"); a.status != 503 {
		t.Errorf("no node: %d %s", a.status, a.body)
	}
}

func TestIndex(t *testing.T) {
	a := start(t, &fake{}, edge.Options{Version: "9.8.7"}).get(t, "/")
	if a.status != 200 || !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") {
		t.Fatalf("got %d %v", a.status, a.header)
	}
	for _, want := range []string{"9.8.7", "/v1/chat/completions", "/api/complete", "/health", "X-LLM-Process"} {
		if !strings.Contains(a.body, want) {
			t.Errorf("no %q in the index", want)
		}
	}
}

func TestNotBuiltYet(t *testing.T) {
	r := start(t, &fake{}, edge.Options{Version: "0.1"})
	for _, tt := range []struct{ method, path, want string }{
		{"POST", "/v1/messages", `{"type":"error","error":{"type":"api_error","message":"/v1/messages: not built yet in this version (0.1)"}}`},
		{"POST", "/v1/messages/count_tokens", `{"type":"error","error":{"type":"api_error","message":"/v1/messages/count_tokens: not built yet in this version (0.1)"}}`},
		{"POST", "/v1/responses", `{"error":{"message":"/v1/responses: not built yet in this version (0.1)","type":"invalid_request_error","param":null,"code":"not_implemented","kind":"CAPABILITY_MISSING"}}`},
		{"POST", "/v1/embeddings", `{"error":{"message":"/v1/embeddings: not built yet in this version (0.1)","type":"invalid_request_error","param":null,"code":"not_implemented","kind":"CAPABILITY_MISSING"}}`},
		{"GET", "/metrics", "/metrics: not built yet in this version (0.1)\n"},
		{"GET", "/token-usage", "/token-usage: not built yet in this version (0.1)\n"},
	} {
		body := ""
		if tt.method == "POST" {
			body = `{}`
		}
		a := r.do(t, tt.method, tt.path, body)
		if a.status != 501 || a.body != tt.want {
			t.Errorf("%s: %d %s", tt.path, a.status, a.body)
		}
		if tt.method == "POST" && a.header.Get("x-should-retry") != "false" {
			t.Errorf("%s: an SDK would try again", tt.path)
		}
	}
}

func TestUnknownRoutesAndMethods(t *testing.T) {
	r := start(t, &fake{}, edge.Options{})
	for _, tt := range []struct {
		method, path string
		status       int
		allow, words string
	}{
		{"GET", "/nope", 404, "", "no route GET /nope; GET / lists the routes"},
		{"POST", "/chat/completions", 404, "", "must end in /v1"},
		{"POST", "/v1/v1/messages", 404, "", "must not end in /v1"},
		{"GET", "/v1/models/", 404, "", "no route"},
		{"GET", "//v1/models", 404, "", "no route"},
		{"GET", "/v1/chat/completions", 405, "POST", "takes POST, not GET"},
		{"POST", "/v1/models", 405, "GET, HEAD", "takes GET, HEAD, not POST"},
		{"DELETE", "/v1/models/x", 405, "GET, HEAD", "takes GET, HEAD, not DELETE"},
		{"OPTIONS", "/v1/chat/completions", 405, "POST", "OPTIONS"},
		{"PUT", "/api/complete", 405, "POST", "PUT"},
		{"GET", "/metrics/x", 404, "", "no route"},
	} {
		a := r.do(t, tt.method, tt.path, "")
		msg, _ := a.errorOf(t)["message"].(string)
		if a.status != tt.status || a.header.Get("Allow") != tt.allow || !strings.Contains(msg, tt.words) {
			t.Errorf("%s %s: %d Allow %q %s", tt.method, tt.path, a.status, a.header.Get("Allow"), a.body)
		}
		if a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s: CORS is on", tt.method, tt.path)
		}
	}
}

func TestHead(t *testing.T) {
	r := start(t, queries(map[string]string{subjects.QueryHealth: `{"canServe":true}`}), edge.Options{})
	if a := r.do(t, "HEAD", "/health", ""); a.status != 200 || a.body != "" || a.header.Get("Content-Length") != "17" {
		t.Errorf("got %d %v %q", a.status, a.header, a.body)
	}
	if a := r.do(t, "HEAD", "/v1/chat/completions", ""); a.status != 405 {
		t.Errorf("HEAD on a POST route: %d", a.status)
	}
}

// TestRefusalsInAnthropicsForm has every answer under /v1/messages in it.
func TestRefusalsInAnthropicsForm(t *testing.T) {
	r := start(t, &fake{}, edge.Options{})
	for _, tt := range []struct {
		method, path, host, typ string
		status                  int
	}{
		{"GET", "/v1/messages", "localhost", "invalid_request_error", 405},
		{"POST", "/v1/messages/nope", "localhost", "not_found_error", 404},
		{"POST", "/v1/messages", "evil.example", "permission_error", 403},
	} {
		a := r.do(t, tt.method, tt.path, "", "Host", tt.host)
		if e := a.errorOf(t); a.status != tt.status || a.json(t)["type"] != "error" || e["type"] != tt.typ || e["message"] == "" {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, a.status, a.body)
		}
	}
}
