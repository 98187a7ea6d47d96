package edge_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/edge"
)

func pack(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestBodies(t *testing.T) {
	const limit = 100_000
	full := `{"pad":"` + strings.Repeat("x", limit-10) + `"}`
	bomb := pack(t, strings.Repeat("0", 4<<20))
	broken := []byte(pack(t, nativeBody))
	broken[len(broken)-6] ^= 0xff
	for _, tt := range []struct {
		name, body string
		headers    []string
		status     int
		words      string
	}{
		{"plain", nativeBody, nil, 200, ""},
		{"json", nativeBody, []string{"Content-Type", "application/json"}, 200, ""},
		{"json with charset", nativeBody, []string{"Content-Type", "Application/JSON; charset=utf-8"}, 200, ""},
		{"text", nativeBody, []string{"Content-Type", "text/plain"}, 200, ""},
		{"multipart", nativeBody, []string{"Content-Type", "multipart/form-data; boundary=x"}, 415, "application/json"},
		{"what curl -d says", nativeBody, []string{"Content-Type", "application/x-www-form-urlencoded"}, 200, ""},
		{"form", nativeBody, []string{"Content-Type", "multipart/form-data; boundary=x"}, 415, "application/json"},
		{"empty", "", nil, 400, "body: empty"},
		{"to the limit", full, nil, 200, ""},
		{"above", full + "x", nil, 400, "100001 bytes, above the 100000 bytes of body that are allowed here; shorten"},
		{"gzip", pack(t, nativeBody), []string{"Content-Encoding", "gzip"}, 200, ""},
		{"x-gzip", pack(t, nativeBody), []string{"Content-Encoding", "X-GZIP"}, 200, ""},
		{"gzip to the limit", pack(t, full), []string{"Content-Encoding", "gzip"}, 200, ""},
		{"gzip above", pack(t, full+"x"), []string{"Content-Encoding", "gzip"}, 400, "more than the 100000 bytes of body"},
		{"gzip bomb", bomb, []string{"Content-Encoding", "gzip"}, 400, "more than the 100000 bytes of body"},
		{"gzip of nothing", pack(t, ""), []string{"Content-Encoding", "gzip"}, 400, "body: empty"},
		{"no gzip", nativeBody, []string{"Content-Encoding", "gzip"}, 400, "not the gzip"},
		{"gzip cut", pack(t, nativeBody)[:20], []string{"Content-Encoding", "gzip"}, 400, "not the gzip"},
		{"gzip broken", string(broken), []string{"Content-Encoding", "gzip"}, 400, "not the gzip"},
		{"identity", nativeBody, []string{"Content-Encoding", "identity"}, 200, ""},
		{"zstd", nativeBody, []string{"Content-Encoding", "zstd"}, 415, "send the body plain or with gzip"},
		{"twice", nativeBody, []string{"Content-Encoding", "gzip, gzip"}, 415, "send the body plain"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := replying(nativeDone, nil)
			r := start(t, f, edge.Options{MaxBody: limit})
			a := r.post(t, "/api/complete", tt.body, tt.headers...)
			if a.status != tt.status || !strings.Contains(a.body, tt.words) {
				t.Fatalf("got %d %.300s", a.status, a.body)
			}
			if tt.status != 200 {
				if f.count() != 0 || a.errorOf(t)["kind"] != "VALIDATION_ERROR" {
					t.Errorf("sent on %d times, %s", f.count(), a.body)
				}
				return
			}
			want := nativeBody
			if strings.Contains(tt.name, "limit") {
				want = full
			}
			if got := string(f.last(t).Data); got != want {
				t.Errorf("the node got %.300q", got)
			}
		})
	}
}

func TestTooLargeOnOpenAI(t *testing.T) {
	a := start(t, &fake{}, edge.Options{MaxBody: 10}).post(t, "/v1/chat/completions", chatBody)
	if e := a.errorOf(t); a.status != 400 || e["code"] != "request_too_large" || e["type"] != "invalid_request_error" {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

// counter is a body of so many bytes that counts what is taken of it.
type counter struct{ left, taken int }

func (c *counter) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), c.left)
	for i := range p[:n] {
		p[i] = 'x'
	}
	c.left -= n
	c.taken += n
	return n, nil
}

func (c *counter) Close() error { return nil }

// TestTooLargeIsReadOn: what a client goes on sending is read and thrown away, in
// bounds, so that it comes to read the answer; one that waits for 100-continue is
// not asked for it.
func TestTooLargeIsReadOn(t *testing.T) {
	s := edge.New(&fake{}, edge.Options{MaxBody: 10_000})
	for _, tt := range []struct {
		size           int64
		expect         string
		sends, atLeast int
		atMost         int
	}{
		{-1, "", 20_000, 20_000, 20_000},
		{20_000, "", 20_000, 20_000, 20_000},
		{20_000, "100-continue", 20_000, 0, 0},
		{-1, "", 200 << 20, 64 << 20, 65 << 20},
	} {
		body := &counter{left: tt.sends}
		req, err := http.NewRequestWithContext(context.Background(), "POST", "http://localhost/api/complete", body)
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = tt.size
		if tt.expect != "" {
			req.Header.Set("Expect", tt.expect)
		}
		w := newRecorder()
		s.Handler().ServeHTTP(w, req)
		if w.Code != 400 || body.taken < tt.atLeast || body.taken > tt.atMost {
			t.Errorf("%+v: %d bytes read, %d", tt, body.taken, w.Code)
		}
	}
}

func TestChunkedBodies(t *testing.T) {
	f := replying(nativeDone, nil)
	r := start(t, f, edge.Options{MaxBody: 300_000})
	for _, n := range []int{1, 4095, 4096, 4097, 65536, 299_999, 300_000, 300_001} {
		body := strings.Repeat("x", n)
		req, err := http.NewRequestWithContext(context.Background(), "POST", r.url+"/api/complete", io.NopCloser(strings.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if n > 300_000 {
			if resp.StatusCode != 400 {
				t.Errorf("%d bytes: %d", n, resp.StatusCode)
			}
			continue
		}
		if resp.StatusCode != 200 || string(f.last(t).Data) != body {
			t.Errorf("%d bytes: %d, the node got %d", n, resp.StatusCode, len(f.last(t).Data))
		}
	}
}
