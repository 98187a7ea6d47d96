package edge

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// echo answers a call with what was asked, its headers back as reply headers.
type echo struct{}

func (echo) Request(_ context.Context, m *subjects.Msg) (*subjects.Msg, error) {
	return &subjects.Msg{Header: subjects.Header{
		subjects.HeaderCallID: m.Header[subjects.HeaderCallID], subjects.HeaderModel: {m.Header.Get(subjects.HeaderTask)},
		subjects.HeaderWarnings: {m.Header.Get(subjects.HeaderProcess)},
	}, Data: []byte(`{"usage":{}}`)}, nil
}

func (e echo) Stream(ctx context.Context, m *subjects.Msg, yield func(*subjects.Msg) error) error {
	r, err := e.Request(ctx, m)
	if err != nil {
		return err
	}
	return yield(r)
}

func FuzzHeaderSafe(f *testing.F) {
	for _, s := range []string{"", "plain", "100%", "a\r\nb: c", "\x00", "é", "\xff", strings.Repeat("é", 2000)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := headerSafe(s)
		if !validHeader(got) || len(got) > 1024 {
			t.Fatalf("%q became %q", s, got)
		}
		back, err := url.PathUnescape(got)
		if err != nil || !strings.HasPrefix(s, back) || len(s) <= 300 && back != s {
			t.Fatalf("%q became %q and back %q (%v)", s, got, back, err)
		}
	})
}

func validHeader(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// FuzzMetadata sends any header values: no panic, no second header, a status
// that says what happened, and values that reach the node as they were.
func FuzzMetadata(f *testing.F) {
	f.Add("p", "t", "interactive", "id", "100", "localhost", `{"stream":true}`)
	f.Add("\xff", "a\r\nb", "x", strings.Repeat("i", 200), "-1", "evil", `{"callId":"a\nb","process":7}`)
	h := New(echo{}, Options{ProcessClass: func(string) string { return subjects.ClassIngestion }}).Handler()
	f.Fuzz(func(t *testing.T, process, task, class, id, timeout, host, body string) {
		r := httptest.NewRequest(http.MethodPost, "/api/complete", strings.NewReader(body))
		r.Host = host
		for name, v := range map[string]string{"Process": process, "Task": task, "Class": class, "Call-Id": id, "Timeout-Ms": timeout} {
			r.Header.Set("X-LLM-"+name, v)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 200 && w.Code != 400 && w.Code != 403 {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
		for name, vs := range w.Header() {
			for _, v := range vs {
				if !validHeader(v) {
					t.Fatalf("%s: %q", name, v)
				}
			}
		}
		if w.Code != 200 && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("not JSON: %s", w.Body)
		}
		if w.Code == 200 && !utf8.ValidString(process+task) {
			t.Fatal("invalid UTF-8 was sent on")
		}
	})
}

// FuzzQuery parses any query string: it gives numbers within bounds or an error.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{"", "hours=24&bucketMinutes=2", "hours=-1", "hours=%zz", "a;b", "hours=1&hours=2", "_=1&hours=", "tools=true", "hours=9999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q := params(raw, "hours", "bucketMinutes", "tools", "task")
		n, task := q.number("hours", 100), q.text("task")
		_ = q.flag("tools")
		if q.err != nil {
			if q.err.Status() != 400 || q.err.Message == "" {
				t.Fatalf("%q: %v", raw, q.err)
			}
			return
		}
		if n < 0 || n > 100 || len(task) > subjects.MaxName {
			t.Fatalf("%q: %d %q", raw, n, task)
		}
	})
}

// FuzzPeek compares the one pass with encoding/json on every valid body.
func FuzzPeek(f *testing.F) {
	for _, s := range []string{`{}`, `{"stream":true,"callId":"a","process":"b","timeoutMs":5}`, `{"stream":[true]}`, `{"a":"\"stream\":true"}`, `{"stream":true`, `[`, "\xff", `{"stream":false,"stream":true}`, `{"callId":"a\u0000b"}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		p := peek([]byte(body), wire.Native)
		var want map[string]any
		if json.Unmarshal([]byte(body), &want) != nil || !utf8.ValidString(body) {
			return
		}
		if b, _ := want["stream"].(bool); b != p.stream {
			t.Fatalf("stream %v in %q", p.stream, body)
		}
		if s, _ := want["callId"].(string); s != p.callID {
			t.Fatalf("callId %q in %q", p.callID, body)
		}
		if s, _ := want["process"].(string); s != p.process {
			t.Fatalf("process %q in %q", p.process, body)
		}
	})
}
