package httpx

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// TestLongWaits: a 429 that asks for a long wait is a volume that is used up,
// whatever it calls itself, unless the API's own knowledge says otherwise.
func TestLongWaits(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status int
		header string
		value  string
		own    subjects.Kind
		kind   subjects.Kind
		wait   time.Duration
	}{
		{429, "Retry-After", "20", "", rate, 20 * time.Second},
		{429, "Retry-After", "599", "", rate, 599 * time.Second},
		{429, "Retry-After", "600", "", quota, 10 * time.Minute},
		{429, "Retry-After", "208800", "", quota, 24 * time.Hour},
		{429, "Retry-After", "208800", rate, rate, 24 * time.Hour},
		{429, "X-Ratelimit-User-Retry-After", "2733", "", quota, 2733 * time.Second},
		{429, "X-RateLimit-TimeRemaining", "4", "", rate, 4 * time.Second},
		{503, "Retry-After", "3600", "", broken, time.Hour},
	} {
		c := New(Options{Refine: func(*Failure) (subjects.Kind, bool) { return tc.own, tc.own != "" }})
		h := http.Header{}
		h.Set(tc.header, tc.value)
		e := c.classify(request("http://x"), &http.Response{StatusCode: tc.status, Header: h}, []byte(`{"error":{"code":"rate_limit_exceeded"}}`))
		if e.Kind != tc.kind || e.RetryAfter != tc.wait {
			t.Errorf("%+v: %s, %v", tc, e.Kind, e.RetryAfter)
		}
	}
}

// TestRefineCorrectsTheWait: what the API asks for is known to Refine, and what
// it makes of it counts.
func TestRefineCorrectsTheWait(t *testing.T) {
	t.Parallel()
	c := New(Options{Refine: func(f *Failure) (subjects.Kind, bool) {
		f.Wait += time.Minute
		return rate, true
	}})
	h := http.Header{"Retry-After": {"2"}}
	e := c.classify(request("http://x"), &http.Response{StatusCode: 413, Header: h}, nil)
	if e.RetryAfter != 62*time.Second {
		t.Errorf("%v", e.RetryAfter)
	}
	if e = c.ErrorOf(request("http://x"), []byte(`{"error":{}}`)); e.RetryAfter != time.Minute {
		t.Errorf("%v", e.RetryAfter)
	}
}

func TestStatusOf(t *testing.T) {
	t.Parallel()
	c := New(Options{})
	for _, status := range []int{308, 401, 403, 404, 429, 500} {
		e := c.classify(request("http://x"), &http.Response{StatusCode: status, Header: http.Header{}}, nil)
		if got := StatusOf(fmt.Errorf("x: %w", e)); got != status {
			t.Errorf("%d, want %d", got, status)
		}
	}
	for _, err := range []error{nil, errors.New("x"), c.ErrorOf(request("http://x"), []byte(`{"error":{"code":401}}`))} {
		if got := StatusOf(err); got != 0 {
			t.Errorf("%v: %d", err, got)
		}
	}
}

func TestErrorsBesideTheUsualForms(t *testing.T) {
	t.Parallel()
	c := New(Options{})
	e := c.ErrorOf(request("http://x"), []byte(`{"id":"1","x_groq":{"error":"over capacity"}}`))
	if e.Kind != broken || e.Message != "over capacity" {
		t.Errorf("%v", e)
	}
	e = c.classify(request("http://x"), &http.Response{StatusCode: 422, Header: http.Header{}}, []byte(`{"detail":[{"loc":["body","seed"],"msg":"Extra inputs are not permitted","type":"extra_forbidden"}]}`))
	if e.Kind != valid || e.Param != "seed" {
		t.Errorf("%v %q", e, e.Param)
	}
}

func TestQuotaSnapshotsAreReported(t *testing.T) {
	t.Parallel()
	h := http.Header{"X-Quota": {"1"}, "X-Request-Id": {"r"}}
	h.Set("x-quota-snapshot-premium_interactions", "ent=300&ov=0.0&ovPerm=false&rem=35.5&rst=2026-04-01T00%3A00%3A00Z")
	h.Set("x-usage-ratelimit-weekly", "rem=40")
	got := rateLimit(h, "")
	if len(got) != 2 || got["x-quota-snapshot-premium_interactions"] == "" || got["x-usage-ratelimit-weekly"] != "rem=40" {
		t.Errorf("%v", got)
	}
}
