package registry

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/conformance"
	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// canned is a transport that answers from memory: what is measured is ours.
type canned struct {
	contentType string
	body        []byte
}

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {c.contentType}},
		Body: io.NopCloser(bytes.NewReader(c.body)), ContentLength: -1,
	}, nil
}

// BenchmarkProviders has for every provider of the conformance suite a reply of
// 1.5 KB and a stream of 200 pieces, to a prompt of 1 KB, for a caller of OpenAI's
// form and one of the native wire: the request is written, the answer read and
// encoded anew. There is no network in it.
func BenchmarkProviders(b *testing.B) {
	for _, c := range cases {
		for _, name := range []wire.Name{wire.OpenAIChat, wire.Native} {
			b.Run(c.ID+"/"+c.Model+"/"+string(name)+"/reply", func(b *testing.B) { benchReply(b, &c, name) })
			b.Run(c.ID+"/"+c.Model+"/"+string(name)+"/stream", func(b *testing.B) { benchStream(b, &c, name) })
		}
	}
}

func benchReply(b *testing.B, c *conformance.Case, name wire.Name) {
	answer := &vendors.Answer{Pieces: []string{strings.Repeat("some words, ", 125)}, Usage: vendors.Usage{Fresh: 210, Output: 380}}
	p := bench(b, c, canned{c.Voice.ContentType(false), c.Voice.Whole(&vendors.Seen{Model: c.Model}, answer)})
	j := benchJob(b, c, name, false)
	b.ReportAllocs()
	for b.Loop() {
		resp, err := p.Complete(b.Context(), j)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := wire.EncodeResponse(name, resp, &subjects.Result{CallID: "c"}); err != nil {
			b.Fatal(err)
		}
	}
}

func benchStream(b *testing.B, c *conformance.Case, name wire.Name) {
	answer := &vendors.Answer{Pieces: slices.Repeat([]string{" word"}, 200), Usage: vendors.Usage{Fresh: 210, Output: 200}}
	events := c.Voice.Events(&vendors.Seen{Model: c.Model, Stream: true, StreamUsage: true}, answer)
	p := bench(b, c, canned{c.Voice.ContentType(true), bytes.Join(events, nil)})
	j := benchJob(b, c, name, true)
	emit := func([]byte) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		enc := wire.NewStreamEncoder(name, &j.Request.Head, "c", "m")
		resp, err := p.Stream(b.Context(), j, func(ev *wire.Event) error { return enc.Event(ev, emit) })
		if err != nil {
			b.Fatal(err)
		}
		if err := enc.Finish(resp, &subjects.Result{CallID: "c"}, emit); err != nil {
			b.Fatal(err)
		}
	}
}

func bench(b *testing.B, c *conformance.Case, t http.RoundTripper) providers.Provider {
	b.Helper()
	return c.Make(b, conformance.Setup{BaseURL: "http://x" + c.BasePath, Idle: time.Minute, Transport: t})
}

func benchJob(b *testing.B, c *conformance.Case, name wire.Name, stream bool) *providers.Job {
	b.Helper()
	body := `{"messages":[{"role":"user","content":"` + strings.Repeat("some words, ", 85) + `"}]`
	if stream {
		body += `,"stream":true`
	}
	r, err := wire.Parse(name, []byte(body+"}"))
	if err != nil {
		b.Fatal(err)
	}
	return &providers.Job{Request: r, Model: c.Model}
}
