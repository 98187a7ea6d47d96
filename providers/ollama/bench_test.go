package ollama

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

func stream200() string {
	var b strings.Builder
	for i := range 200 {
		b.WriteString(line(`"content":" word` + strconv.Itoa(i) + `"`))
	}
	return b.String() + last
}

const benchBody = `{"messages":[{"role":"system","content":"You are terse."},{"role":"user","content":"`

func BenchmarkReply1500ToNative(b *testing.B) {
	p := New(configFor("http://x"), rest.Options{Transport: canned(strings.Replace(answer, "hello", words(1500), 1))})
	j := job(b, wire.Native, benchBody+words(1024)+`"}]}`)
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		resp, err := p.Complete(b.Context(), j)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := wire.EncodeResponse(wire.Native, resp, &subjects.Result{CallID: "c"}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStream200ToNative(b *testing.B) {
	p := New(configFor("http://x"), rest.Options{Transport: canned(stream200())})
	j := job(b, wire.Native, benchBody+words(1024)+`"}]}`)
	emit := func([]byte) error { return nil }
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		enc := wire.NewStreamEncoder(wire.Native, &j.Request.Head, "c", "llama3.2")
		resp, err := p.Stream(b.Context(), j, func(ev *wire.Event) error { return enc.Event(ev, emit) })
		if err != nil {
			b.Fatal(err)
		}
		if err := enc.Finish(resp, &subjects.Result{}, emit); err != nil {
			b.Fatal(err)
		}
	}
}
