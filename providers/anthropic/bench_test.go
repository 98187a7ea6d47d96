package anthropic

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// canned is a transport that answers from memory: what is measured is ours.
type canned string

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(c))), ContentLength: -1}, nil
}

// cpu reports the process's CPU time per iteration.
func cpu(b *testing.B) {
	used := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := used()
	b.Cleanup(func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") })
}

func words(n int) string { return strings.Repeat("some words, ", n/12) }

func reply() string { return strings.Replace(answer, "hello", words(1500), 1) }

func stream200() string {
	var b strings.Builder
	b.WriteString(start)
	b.WriteString(event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`))
	for i := range 200 {
		b.WriteString(event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" word`+strconv.Itoa(i)+`"}}`))
	}
	b.WriteString(event("content_block_stop", `{"type":"content_block_stop","index":0}`))
	return b.String() + stop + end
}

func benchComplete(b *testing.B, name wire.Name) {
	p := New(configFor("http://x"), rest.Options{Transport: canned(reply())})
	j := job(b, name, `{"messages":[{"role":"user","content":"`+words(1024)+`"}]}`)
	b.ReportAllocs()
	cpu(b)
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

func BenchmarkReply1500ToNative(b *testing.B) { benchComplete(b, wire.Native) }
func BenchmarkReply1500ToOpenAI(b *testing.B) { benchComplete(b, wire.OpenAIChat) }

func benchStream(b *testing.B, name wire.Name) {
	p := New(configFor("http://x"), rest.Options{Transport: canned(stream200())})
	j := job(b, name, `{"stream":true,"messages":[{"role":"user","content":"`+words(1024)+`"}]}`)
	emit := func([]byte) error { return nil }
	b.ReportAllocs()
	cpu(b)
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

func BenchmarkStream200ToNative(b *testing.B) { benchStream(b, wire.Native) }
func BenchmarkStream200ToOpenAI(b *testing.B) { benchStream(b, wire.OpenAIChat) }
