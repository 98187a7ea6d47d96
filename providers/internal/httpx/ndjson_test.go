package httpx

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// lined collects the lines of a text that arrives in reads of size bytes, at its
// end as Stream reads it.
func lined(text string, size int) (out []string, err error) {
	err = lines(&idleReader{r: slow{strings.NewReader(text), size}}, func(_ string, d []byte) error {
		out = append(out, string(d))
		return nil
	})
	return out, err
}

func TestLineForms(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("日x", 1<<18)
	for name, tc := range map[string]struct{ in, want string }{
		"LF":                {"{\"a\":1}\n{\"b\":2}\n", `{"a":1}|{"b":2}`},
		"CRLF":              {"a\r\nb\r\n", "a|b"},
		"mixed":             {"a\r\nb\nc\n\r\nd", "a|b|c|d"},
		"a mark":            {"\xef\xbb\xbfa\nb\n", "a|b"},
		"only a mark":       {"\xef\xbb\xbf", ""},
		"half a mark":       {"\xef\xbb", "\xef\xbb"},
		"a mark within":     {"a\n\xef\xbb\xbfb\n", "a|\xef\xbb\xbfb"},
		"blank lines":       {"\n\n \t\na\n\r\n\n\nb\n\n", "a|b"},
		"space around":      {"  a \n\tb\t\r\n", "a|b"},
		"no end":            {"a\nb", "a|b"},
		"no end, CR":        {"a\nb\r", "a|b"},
		"one byte":          {"a", "a"},
		"characters":        {"é日😀\n日\n", "é日😀|日"},
		"a CR inside stays": {"a\rb\n", "a\rb"},
		"empty":             {"", ""},
		"huge":              {"a\n" + huge + "\nb\n", "a|" + huge + "|b"},
		"huge, CRLF":        {huge + "\r\nb\r\n", huge + "|b"},
	} {
		for _, size := range []int{1, 2, 3, 7, 100_000} {
			if size < 100 && len(tc.in) > 1<<19 {
				continue
			}
			got, err := lined(tc.in, size)
			if err != nil || strings.Join(got, "|") != tc.want {
				t.Errorf("%s in reads of %d: %.200q, %v", name, size, got, err)
			}
		}
	}
}

// TestLinesInFew: readers of every habit say the same.
func TestLinesInFew(t *testing.T) {
	t.Parallel()
	const text = "{\"a\":\"日\"}\r\n\n{\"b\":2}"
	for name, r := range map[string]io.Reader{
		"the end beside the data": iotest.DataErrReader(strings.NewReader(text)),
		"halves":                  iotest.HalfReader(strings.NewReader(text)),
		"one at a time":           iotest.OneByteReader(strings.NewReader(text)),
	} {
		var out []string
		err := lines(r, func(_ string, d []byte) error { out = append(out, string(d)); return nil })
		if got := strings.Join(out, "|"); err != nil || got != `{"a":"日"}|{"b":2}` {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	// What came before a fault is handed on.
	n := 0
	err := lines(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("\n\n\n"))), nil)
	if !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("%v", err)
	}
	cut := io.MultiReader(strings.NewReader("a\nb\nc"), iotest.ErrReader(io.ErrUnexpectedEOF))
	err = lines(cut, func(string, []byte) error { n++; return nil })
	if !errors.Is(err, io.ErrUnexpectedEOF) || n != 2 {
		t.Errorf("%d lines, %v", n, err)
	}
	if err := lines(nothing{}, nil); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("%v", err)
	}
	mine := errors.New("mine")
	if err := lines(strings.NewReader("a\nb\n"), func(string, []byte) error { return mine }); err != mine { //nolint:errorlint // returned as it is
		t.Errorf("%v", err)
	}
	if err := lines(strings.NewReader("a"), func(string, []byte) error { return mine }); err != mine { //nolint:errorlint // returned as it is
		t.Errorf("%v", err)
	}
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

func TestLineIsBounded(t *testing.T) {
	t.Parallel()
	x := bytes.Repeat([]byte("x"), MaxEvent+1)
	for name, tc := range map[string]struct {
		body io.Reader
		long bool
	}{
		"as long as may be":      {io.MultiReader(bytes.NewReader(x[1:]), strings.NewReader("\n")), false},
		"as long, without end":   {bytes.NewReader(x[1:]), false},
		"one byte more":          {io.MultiReader(bytes.NewReader(x), strings.NewReader("\n")), true},
		"one more, without end":  {bytes.NewReader(x), true},
		"endless":                {endless{}, true},
		"endless after an event": {io.MultiReader(strings.NewReader("{}\n"), endless{}), true},
	} {
		c := New(Options{Format: NDJSON, Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(tc.body)}, nil
		})})
		_, err := c.Stream(t.Context(), request("http://x"), 0, func(string, []byte) error { return nil })
		if long := err != nil && strings.Contains(err.Error(), "above 16 MiB"); long != tc.long || long == (subjects.KindOf(err) != broken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzLines holds that the size of the reads does not matter, and that the lines
// are those that a plain split finds.
func FuzzLines(f *testing.F) {
	for _, s := range []string{"a\n", "\xef\xbb\xbfx\r\n\r\ny", "{}\n\n{}\r\n", "\xef\xbb", "\r", " \n a \n"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, size int) {
		var want []string
		for part := range strings.SplitSeq(strings.TrimPrefix(s, "\xef\xbb\xbf"), "\n") {
			if b := bytes.TrimSpace([]byte(part)); len(b) > 0 {
				want = append(want, string(b))
			}
		}
		got, err := lined(s, 1+int(uint(size)%64))
		if err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatalf("%q, want %q, %v", got, want, err)
		}
	})
}

func TestStreamOfLines(t *testing.T) {
	s, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != ndjson || r.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("%v", r.Header)
		}
		if r.URL.Path == "/page" {
			io.WriteString(w, "<html>")
			return
		}
		io.WriteString(w, "{\"a\":1}\n{\"b\":2}")
	})
	c := New(Options{Format: NDJSON})
	t.Cleanup(c.CloseIdle)
	var got []string
	reply, err := c.Stream(t.Context(), request(s.URL), time.Minute, func(name string, d []byte) error {
		got = append(got, name+string(d))
		return nil
	})
	if err != nil || strings.Join(got, "|") != `{"a":1}|{"b":2}` || reply.Whole != nil {
		t.Errorf("%q, %+v, %v", got, reply, err)
	}
	if _, err := c.Stream(t.Context(), request(s.URL+"/page"), 0, func(string, []byte) error { return nil }); subjects.KindOf(err) != broken {
		t.Errorf("a page: %v", err)
	}
}

// TestLinesGoSilent: the idle timeout is that of the event streams.
func TestLinesGoSilent(t *testing.T) {
	for name, tc := range map[string]struct {
		pauses []time.Duration
		events int
		kind   subjects.Kind
	}{
		"steady":          {[]time.Duration{time.Second, 9 * time.Second, 9 * time.Second}, 3, ""},
		"slow first line": {[]time.Duration{time.Minute, time.Second}, 2, ""},
		"silent":          {[]time.Duration{time.Second, 11 * time.Second}, 1, subjects.KindTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(Options{Format: NDJSON, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 200, Header: http.Header{}, Body: &script{r.Context(), tc.pauses, "{}\n"}}, nil
				})})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				n := 0
				_, err := c.Stream(ctx, request("http://x"), 10*time.Second, func(string, []byte) error { n++; return nil })
				if subjects.KindOf(err) != tc.kind || n != tc.events {
					t.Errorf("%d events, %v", n, err)
				}
			})
		})
	}
}

func BenchmarkLines(b *testing.B) {
	text := strings.Repeat(`{"model":"m","message":{"role":"assistant","content":" token"},"done":false}`+"\n", 200)
	r := strings.NewReader(text)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		r.Reset(text)
		if err := lines(r, func(string, []byte) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLongLine is one line of 4 MiB in small reads: its MB/s are those of
// short lines as long as no byte is looked at twice.
func BenchmarkLongLine(b *testing.B) {
	text := strings.Repeat("x", 4<<20) + "\n"
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if err := lines(slow{strings.NewReader(text), 512}, func(string, []byte) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
