package peer

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

func TestKindsStay(t *testing.T) {
	t.Parallel()
	others := map[subjects.Kind]subjects.Kind{
		subjects.KindNoProvider:        subjects.KindProviderUnavailable,
		subjects.KindCapabilityMissing: subjects.KindProviderUnavailable,
		subjects.KindCancelled:         subjects.KindProvider,
	}
	for _, kind := range subjects.Kinds() {
		want := kind
		if k, ok := others[kind]; ok {
			want = k
		}
		if got := Error(subjects.Errorf(kind, "x"), ""); got.Kind != want || got.Message != "x" {
			t.Errorf("%s became %s (%s)", kind, got.Kind, got.Message)
		}
	}
}

func TestMeaning(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		e      subjects.Error
		kind   subjects.Kind
		status int
	}{
		"all wait for a limit":  {subjects.Error{Kind: subjects.KindNoProvider, HTTPStatus: 429}, subjects.KindRateLimited, 429},
		"its own key":           {subjects.Error{Kind: subjects.KindAuth, Provider: "groq"}, subjects.KindProviderUnavailable, 503},
		"our token":             {subjects.Error{Kind: subjects.KindAuth}, subjects.KindAuth, 401},
		"no capability":         {subjects.Error{Kind: subjects.KindCapabilityMissing}, subjects.KindProviderUnavailable, 422},
		"no route":              {subjects.Error{Kind: subjects.KindValidation, HTTPStatus: 404}, subjects.KindProviderUnavailable, 503},
		"too large":             {subjects.Error{Kind: subjects.KindValidation, HTTPStatus: 413}, subjects.KindValidation, 413},
		"a kind nobody knows":   {subjects.Error{Kind: "ODD"}, subjects.KindProvider, 502},
		"a status that is none": {subjects.Error{Kind: subjects.KindTimeout, HTTPStatus: 7}, subjects.KindTimeout, 504},
	} {
		if got := Error(&tc.e, ""); got.Kind != tc.kind || got.Status() != tc.status {
			t.Errorf("%s: %s %d", name, got.Kind, got.Status())
		}
	}
}

func TestNothingSlipsThrough(t *testing.T) {
	t.Parallel()
	got := Error(&subjects.Error{
		Kind: subjects.KindValidation, Message: "with S3CR3T\nand sk-abcdefgh", Code: "S3CR3T", Param: "messages[0].x", Provider: "theirs",
		CallID: "theirs", Attempts: []subjects.Attempt{{}}, RateLimit: map[string]string{"a": "b"}, RetryAfter: 1000 * time.Hour,
	}, "S3CR3T")
	if got.Message != "with *** and ***" || got.Code != "" || got.Param != "messages[0].x" || got.RetryAfter != maxWait {
		t.Errorf("%+v", got)
	}
	if got.Provider != "" || got.CallID != "" || got.Attempts != nil || got.RateLimit != nil {
		t.Errorf("what is the other side's came along: %+v", got)
	}
	got = Error(&subjects.Error{Kind: subjects.KindValidation, Code: strings.Repeat("x", 65), Param: "a b", RetryAfter: -1}, "")
	if got.Code != "" || got.Param != "" || got.RetryAfter != 0 || got.Message == "" {
		t.Errorf("%+v", got)
	}
}
