package openai

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-llm/sluice/providers"
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

func reply() string {
	return `{"id":"chatcmpl-1","object":"chat.completion","created":1764500000,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"` + words(1500) + `"},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":210,"completion_tokens":380,"total_tokens":590}}`
}

func stream200() string {
	var b strings.Builder
	for i := range 200 {
		b.WriteString(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764500000,"model":"gpt-4o-mini","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":" word` + strconv.Itoa(i) + `"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n")
	}
	return b.String() + chunk(`{}`, `"stop"`) + usageLine + doneLine
}

func benchJob(b *testing.B, name wire.Name) *providers.Job {
	field := `"model":"auto",`
	if name == wire.Native {
		field = ""
	}
	return job(b, name, `{`+field+`"messages":[{"role":"user","content":"`+words(1024)+`"}]}`)
}

func benchComplete(b *testing.B, name wire.Name) {
	p := New(configFor("http://x"), rest.Options{Transport: canned(reply())})
	j := benchJob(b, name)
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

func BenchmarkReply1500SameWire(b *testing.B) { benchComplete(b, wire.OpenAIChat) }
func BenchmarkReply1500ToNative(b *testing.B) { benchComplete(b, wire.Native) }

func benchStream(b *testing.B, name wire.Name) {
	p := New(configFor("http://x"), rest.Options{Transport: canned(stream200())})
	j := benchJob(b, name)
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

func BenchmarkStream200SameWire(b *testing.B) { benchStream(b, wire.OpenAIChat) }
func BenchmarkStream200ToNative(b *testing.B) { benchStream(b, wire.Native) }

// BenchmarkReply1500OverTCP has the real transport and a bare server in it.
func BenchmarkReply1500OverTCP(b *testing.B) {
	text := reply()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				r := bufio.NewReader(c)
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(text))+"\r\n\r\n"+text)
				}
			}()
		}
	}()
	p := New(configFor("http://"+l.Addr().String()), rest.Options{})
	defer p.Close()
	j := benchJob(b, wire.OpenAIChat)
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		if _, err := p.Complete(b.Context(), j); err != nil {
			b.Fatal(err)
		}
	}
}
