package gemini

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// said is a transport that answers with a status and a body.
type said struct {
	status int
	body   string
}

func (s said) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: s.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(s.body)), ContentLength: -1}, nil
}

// Whatever the API answers, whole or as a stream: an error has a kind and does
// not show the key, and a success has its finish reason or its text.
func FuzzAnswers(f *testing.F) {
	for _, s := range []said{
		{200, answer},
		{200, chunk(text("he"), "") + chunk(text("llo"), stopped)},
		{200, `data: [` + rpc(503, "UNAVAILABLE", key) + "]\n\n"},
		{429, rpc(429, "RESOURCE_EXHAUSTED", exceeded+fmt.Sprintf(ofMetric, "0"), quota("GenerateRequestsPerDay"), retry37)},
		{400, rpc(400, "INVALID_ARGUMENT", "Penalty is not enabled for models/x "+key)},
		{400, rpc(400, "FAILED_PRECONDITION", "location")},
		{403, "[" + rpc(403, "PERMISSION_DENIED", "Consumer 'api_key:"+key+"'", reason("CONSUMER_SUSPENDED")) + "]"},
		{500, "<html>"},
		{404, ""},
	} {
		f.Add(s.status, s.body)
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 200 || status > 599 {
			return
		}
		p := New(&config.Provider{
			ID: "gemini", BaseURL: "https://example.test/v1beta", APIKeyEnv: "K", APIKey: config.NewSecret(key), IdleTimeout: time.Minute,
		}, rest.Options{Transport: said{status, body}})
		j := job(t, "gemini-2.5-flash", hi)
		resp, err := p.Complete(t.Context(), j)
		sound(t, resp, err)
		resp, err = p.Stream(t.Context(), j, func(*wire.Event) error { return nil })
		sound(t, resp, err)
		if err == nil && resp.FinishReason == "" && resp.OutputBytes == 0 {
			t.Fatalf("a stream without an end: %+v", resp)
		}
	})
}

func sound(t *testing.T, resp *wire.Response, err error) {
	t.Helper()
	if err == nil {
		if resp == nil || resp.Usage.TotalTokens != resp.Usage.InputTokens+resp.Usage.OutputTokens {
			t.Fatalf("%+v", resp)
		}
		return
	}
	e := subjects.AsError(err)
	if !e.Kind.Known() || e.Message == "" || e.Provider != "gemini" || e.RetryAfter < 0 {
		t.Fatalf("%+v", e)
	}
	if strings.Contains(fmt.Sprintf("%v %+v %s", err, *e, e.Msg().Data), key) {
		t.Fatalf("the key is shown: %v", err)
	}
}
