package claudecode

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers/internal/httpx"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

const (
	directAnswer = `{"id":"m","type":"message","role":"assistant","model":"claude-sonnet-5-5","content":[{"type":"text","text":"direct"}],"stop_reason":"end_turn","usage":{"input_tokens":5,"output_tokens":1}}`
	directStream = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-sonnet-5-5\",\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n" +
		"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"direct\"}}\n\n"
	directEnd = "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\n" +
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
)

// directly makes a provider with the direct leg, whose API answers with status
// and body, and whose program answers "program".
func directly(t *testing.T, status int, body string) (*program, *[]*http.Request) {
	t.Helper()
	var seen []*http.Request
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(b)))
		seen = append(seen, r)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Anthropic-Ratelimit-Unified-Status", "allowed")
		if strings.HasPrefix(body, "event:") {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(api.Close)
	p := with(t, "answer:program", func(c *config.Provider) { c.Direct, c.BaseURL = true, api.URL+"/v1" })
	p.login("sk-ant-oat01-secret", time.Now().Add(time.Hour))
	return p, &seen
}

func (p *program) login(token string, until time.Time) {
	p.t.Helper()
	text := fmt.Sprintf(`{"claudeAiOauth":{"accessToken":%q,"expiresAt":%d}}`, token, until.UnixMilli())
	if err := os.WriteFile(p.cfg.CredentialsFile, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func apiError(kind, message string) string {
	return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q},"request_id":"req_1"}`, kind, message)
}

func TestDirect(t *testing.T) {
	t.Parallel()
	p, seen := directly(t, 200, directAnswer)
	resp, err := p.Complete(t.Context(), request(t, wire.Native, hi))
	if err != nil || wire.Decode(resp) != nil || resp.Text != "direct" || len(resp.Warnings) != 0 || p.started() != 0 {
		t.Fatalf("%+v, %v; the program was started %d times", resp, err, p.started())
	}
	r := (*seen)[0]
	body, _ := io.ReadAll(r.Body)
	for name, want := range map[string]string{
		"Authorization": "Bearer sk-ant-oat01-secret", "Anthropic-Version": "2023-06-01", "Anthropic-Beta": "oauth-2025-04-20",
		"User-Agent": "sluice/1.2.3", "X-Api-Key": "", "X-App": "",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if r.URL.Path != "/v1/messages" || gjson.GetBytes(body, "model").Str != "claude-sonnet-5-5" || gjson.GetBytes(body, "system").Exists() {
		t.Errorf("%s %s", r.URL, body)
	}
	if err := p.Check(t.Context()); err != nil || p.started() != 0 {
		t.Errorf("Check: %v after %d starts", err, p.started())
	}
	if caps := p.Capabilities(); caps&wire.NeedTools == 0 || caps&wire.NeedImageURLs == 0 {
		t.Errorf("capabilities %s", caps)
	}
	if caps := with(t, "answer:x").Capabilities(); caps != capabilities {
		t.Errorf("capabilities without it %s", caps)
	}
}

// What the program may do better falls to it, in the same attempt.
func TestDirectFallsToTheProgram(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status     int
		body, says string
		requests   int // for two calls: a token that was refused is held back
	}{
		{401, apiError("authentication_error", "OAuth token has expired."), "AUTH_ERROR", 1},
		{403, apiError("permission_error", "OAuth authentication is currently not allowed for this organization."), "AUTH_ERROR", 2},
		{429, apiError("rate_limit_error", "This request would exceed your account's rate limit."), "RATE_LIMITED", 2},
		{400, apiError("invalid_request_error", "This credential is only authorized for use with Claude Code and cannot be used for other API requests."), "AUTH_ERROR", 2},
		{400, apiError("invalid_request_error", "Third-party apps now draw from your extra usage, not your plan limits."), "QUOTA_EXHAUSTED", 2},
	} {
		p, seen := directly(t, c.status, c.body)
		text, resp, err := p.streamed(request(t, wire.Native, hi))
		if err != nil || text != "program" || len(resp.Warnings) != 1 || !strings.Contains(resp.Warnings[0], c.says) {
			t.Errorf("%d: %q, %+v, %v", c.status, text, resp, err)
		}
		if resp, err = p.Complete(t.Context(), request(t, wire.Native, hi)); err != nil || resp.Text != "program" {
			t.Errorf("%d: %+v, %v", c.status, resp, err)
		}
		if got := len(*seen); got != c.requests {
			t.Errorf("%d %s: %d requests", c.status, c.body, got)
		}
	}
}

// A plan's limit is no rate limit, though both come as 429: the headers tell.
func TestDirectPlanLimit(t *testing.T) {
	t.Parallel()
	const u = "Anthropic-Ratelimit-Unified-"
	for _, c := range []struct {
		status, claim string
		kind          subjects.Kind
		modelOnly     bool
	}{
		{"rejected", "five_hour", subjects.KindQuotaExhausted, false},
		{"rejected", "seven_day_opus", subjects.KindQuotaExhausted, true},
		{"rejected", "", "", false},
		{"allowed", "seven_day_opus", "", false},
	} {
		f := httpx.Failure{Status: 429, Header: http.Header{u + "Status": {c.status}, u + "Representative-Claim": {c.claim}}}
		if kind, _ := refineDirect(&f); kind != c.kind || f.ModelOnly != c.modelOnly {
			t.Errorf("%+v: %s, %v", c, kind, f.ModelOnly)
		}
	}
}

// Without the program what the API says of the account stands: a quota that is
// used up is no program that is missing.
func TestDirectWithoutProgram(t *testing.T) {
	t.Parallel()
	for status, kind := range map[int]subjects.Kind{401: subjects.KindAuth, 402: subjects.KindQuotaExhausted, 429: subjects.KindRateLimited} {
		p, seen := directly(t, status, apiError("some_error", "no"))
		p.cfg.CLICommand = p.dir + "/missing"
		_, err := p.Complete(t.Context(), request(t, wire.Native, hi))
		if subjects.KindOf(err) != kind || len(*seen) != 1 {
			t.Errorf("%d: %v after %d calls, want %s", status, err, len(*seen), kind)
		}
	}
}

// What it may not do better stands.
func TestDirectErrorStands(t *testing.T) {
	t.Parallel()
	for status, kind := range map[int]subjects.Kind{
		400: subjects.KindValidation, 500: subjects.KindProvider, 529: subjects.KindProvider,
	} {
		p, _ := directly(t, status, apiError("x_error", "no"))
		_, err := p.Complete(t.Context(), request(t, wire.Native, hi))
		failed(t, err, kind)
		if p.started() != 0 {
			t.Errorf("%d: the program was started", status)
		}
	}
	// The program has no tools to give.
	tools := `{"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","parameters":{"type":"object"}}]}`
	p, _ := directly(t, 401, apiError("authentication_error", "no"))
	_, err := p.Complete(t.Context(), request(t, wire.Native, tools))
	failed(t, err, subjects.KindAuth)
	_, err = p.Complete(t.Context(), request(t, wire.Native, tools)) // the token is known to be refused
	if e := failed(t, err, subjects.KindProviderUnavailable); e.Code != "credentials_refused" || p.started() != 0 {
		t.Errorf("%v; started %d times", e, p.started())
	}
	// Nothing is asked twice when something has reached the caller.
	p, _ = directly(t, 200, directStream+"event: error\ndata: "+apiError("authentication_error", "expired in mid-stream")+"\n\n")
	text, _, err := p.streamed(request(t, wire.Native, hi))
	if failed(t, err, subjects.KindAuth); text != "direct" || p.started() != 0 {
		t.Errorf("%q; started %d times", text, p.started())
	}
}

func TestDirectStream(t *testing.T) {
	t.Parallel()
	p, _ := directly(t, 200, directStream+directEnd)
	var text string
	resp, err := p.Stream(t.Context(), request(t, wire.Native, hi), func(ev *wire.Event) error { text += ev.Text; return nil })
	if err != nil || text != "direct" || resp.Usage.InputTokens != 5 || !resp.UsageKnown {
		t.Errorf("%q, %+v, %v", text, resp, err)
	}
}

// Without a token, or with a model's short name that it does not know, the direct
// leg asks nobody, and the caller is told.
func TestDirectCannot(t *testing.T) {
	t.Parallel()
	p, seen := directly(t, 200, directAnswer)
	job := request(t, wire.Native, hi)
	job.Model = "opusplan"
	resp, err := p.Complete(t.Context(), job)
	if err != nil || resp.Text != "program" || !strings.Contains(resp.Warnings[0], "short name") {
		t.Errorf("%+v, %v", resp, err)
	}
	p.login("sk-ant-oat01-secret", time.Now().Add(-time.Hour))
	resp, err = p.Complete(t.Context(), request(t, wire.Native, hi))
	if err != nil || resp.Text != "program" || !strings.Contains(resp.Warnings[0], "credentials_expired") {
		t.Errorf("%+v, %v", resp, err)
	}
	if len(*seen) != 0 {
		t.Errorf("%d requests", len(*seen))
	}
	if err := p.Check(t.Context()); err != nil { // the program is logged in
		t.Error(err)
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]string{
		"sonnet": "claude-sonnet-5-5", "opus": "claude-opus-5-5", "claude-haiku-4.5": "claude-haiku-4-5",
		"claude-sonnet-4-5-20250929": "claude-sonnet-4-5-20250929",
		"opusplan":                   "", "sonnet[1m]": "", "claude-opus-5-5[1m]": "", "gpt-5": "", "": "",
	} {
		if got, ok := apiModel(model); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %t", model, got, ok)
		}
	}
}
