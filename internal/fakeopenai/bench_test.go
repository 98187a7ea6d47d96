package fakeopenai_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/fakeopenai"
)

// BenchmarkServer is one call and its answer at no latency, client included: the
// client writes and reads raw bytes, so the server is what is measured.
func BenchmarkServer(b *testing.B) {
	s := fakeopenai.New(fakeopenai.WithContent(strings.Repeat("answer ", 150))).Start(b)
	body := fmt.Sprintf(`{"model":"m","user":"u","messages":[{"role":"user","content":%q}]}`, strings.Repeat("x", 900))
	req := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		br := bufio.NewReader(c)
		for pb.Next() {
			if _, err := io.WriteString(c, req); err != nil {
				b.Error(err)
				return
			}
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
		}
	})
}
