package gemini

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/wire"
)

// canned is a transport that answers from memory: what is measured is ours.
type canned string

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(c))), ContentLength: -1}, nil
}

func cannedProvider(body string) *rest.Provider {
	return New(&config.Provider{
		ID: "gemini", BaseURL: "https://example.test/v1beta", APIKey: config.NewSecret(key), IdleTimeout: time.Minute,
	}, rest.Options{Transport: canned(body)})
}

// cpu reports the process's CPU time per iteration.
func cpu(b *testing.B) {
	spent := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := spent()
	b.Cleanup(func() { b.ReportMetric(float64(spent()-before)/float64(b.N), "cpu-ns/op") })
}

func words(n int) string { return strings.Repeat("some words, ", n/12) }

func BenchmarkComplete1500(b *testing.B) {
	p := cannedProvider(strings.Replace(answer, "hello", words(1500), 1))
	j := job(b, "gemini-2.5-flash", `{"messages":[{"role":"user","content":"`+words(1024)+`"}]}`)
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if _, err := p.Complete(b.Context(), j); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStream200(b *testing.B) {
	var s strings.Builder
	for i := range 199 {
		s.WriteString(chunk(text(" word "+strconv.Itoa(i)), ""))
	}
	s.WriteString(chunk(text("."), stopped))
	p := cannedProvider(s.String())
	j := job(b, "gemini-2.5-flash", `{"messages":[{"role":"user","content":"`+words(1024)+`"}],"stream":true}`)
	events := 0
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		events = 0
		if _, err := p.Stream(b.Context(), j, func(*wire.Event) error { events++; return nil }); err != nil {
			b.Fatal(err)
		}
	}
	if events != 200 {
		b.Fatal(events)
	}
}
