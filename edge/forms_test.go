package edge

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/subjects"
)

// TestRetryAfterInEveryForm holds that whoever is told to come back is told
// when, on the routes of each wire.
func TestRetryAfterInEveryForm(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind   subjects.Kind
		over   int // the status in place of the kind's own
		status int
		openAI string // code
		anthro string // type
	}{
		{subjects.KindBudgetExceeded, 0, 402, "budget_exceeded", "billing_error"},
		{subjects.KindCapabilityMissing, 0, 422, "capability_missing", "invalid_request_error"},
		{subjects.KindNoProvider, 0, 503, "no_provider", "api_error"},
		{subjects.KindNoProvider, 429, 429, "rate_limit_exceeded", "rate_limit_error"},
		{subjects.KindQuotaExhausted, 0, 429, "insufficient_quota", "rate_limit_error"},
	} {
		for path, word := range map[string]struct{ field, want string }{
			"/v1/chat/completions": {"error.code", tt.openAI},
			"/v1/messages":         {"error.type", tt.anthro},
			"/api/complete":        {"error.kind", string(tt.kind)},
		} {
			w, r := httptest.NewRecorder(), httptest.NewRequest("POST", path, nil)
			e := subjects.Errorf(tt.kind, "no")
			e.RetryAfter, e.HTTPStatus = 1500*time.Millisecond, tt.over
			x := &exchange{s: &Server{}, w: w, r: r, form: formOf(path)}
			x.fail(e)
			h := w.Result().Header
			if w.Code != tt.status || h.Get("Retry-After") != "2" || h.Get("Retry-After-Ms") != "1500" {
				t.Errorf("%s %s: %d, Retry-After %q, Retry-After-Ms %q", tt.kind, path, w.Code, h.Get("Retry-After"), h.Get("Retry-After-Ms"))
			}
			if got := gjson.Get(w.Body.String(), word.field).String(); got != word.want {
				t.Errorf("%s %s: %s is %q, not %q", tt.kind, path, word.field, got, word.want)
			}
		}
	}
}
