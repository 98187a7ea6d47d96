package httpx

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
)

func streamOf(events int) []byte {
	var b bytes.Buffer
	for i := range events {
		fmt.Fprintf(&b, "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1764500000,\"model\":\"gpt-4o-mini-2024-07-18\",\"system_fingerprint\":\"fp_1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word%d\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n", i)
	}
	b.WriteString("data: [DONE]\n\n")
	return b.Bytes()
}

type slowReader struct {
	r io.Reader
	n int
}

func (s slowReader) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.n)]) }

func BenchmarkEvents200(b *testing.B) {
	in := streamOf(200)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if err := events(bytes.NewReader(in), func([]byte) error { n++; return nil }); err != nil || n != 201 {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkEvents200EventAtATime(b *testing.B) {
	in := streamOf(200)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if err := events(slowReader{bytes.NewReader(in), 280}, func([]byte) error { n++; return nil }); err != nil || n != 201 {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkEventOf8MiB(b *testing.B) {
	in := "data: " + strings.Repeat("x", 8<<20) + "\n\n"
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if err := events(slowReader{strings.NewReader(in), 16 << 10}, func(d []byte) error { n = len(d); return nil }); err != nil || n != 8<<20 {
			b.Fatal(n, err)
		}
	}
}
