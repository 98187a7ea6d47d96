package anthropic

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// answers is a transport that gives one status and body.
type answers struct {
	status int
	body   string
}

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(a.body)), ContentLength: -1}, nil
}

// Whatever an API answers, the provider ends with an answer or with an error of a
// kind, and the key is in neither.
func FuzzAnswers(f *testing.F) {
	f.Add(uint16(200), answer)
	f.Add(uint16(200), start+hello+stop+end)
	f.Add(uint16(400), `{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-01-01 at 00:00 UTC."}}`)
	f.Add(uint16(429), `{"type":"error","error":{"type":"rate_limit_error","message":"`+key+`","details":{"error_code":"ramp_limit_exceeded"}}}`)
	f.Fuzz(func(t *testing.T, status uint16, body string) {
		p := New(configFor("http://x"), rest.Options{Transport: answers{int(status%500) + 100, body}})
		whole := job(t, wire.Native, nativeHi)
		resp, err := p.Complete(t.Context(), whole)
		check := func(err error) {
			if err != nil && (!subjects.KindOf(err).Known() || strings.Contains(err.Error(), key)) {
				t.Fatal(err)
			}
		}
		check(err)
		if err == nil && wire.Decode(resp) != nil {
			t.Fatalf("an answer that cannot be decoded: %s", body)
		}
		stream := job(t, wire.Native, strings.Replace(nativeHi, "{", `{"stream":true,`, 1))
		resp, err = p.Stream(t.Context(), stream, func(*wire.Event) error { return nil })
		check(err)
		if err == nil && resp == nil {
			t.Fatal("neither an answer nor an error")
		}
	})
}
