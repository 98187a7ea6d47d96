package httpx

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tidwall/gjson"
)

const (
	// maxRetryAfter bounds what a provider may ask us to wait.
	maxRetryAfter = 24 * time.Hour
	// maxMessage bounds the text of an error, in characters.
	maxMessage = 500

	maxRateHeaders = 32
	maxRateValue   = 256
)

// waitSeconds are headers of one API each: Copilot's and GitHub Models'.
var waitSeconds = []string{"X-Ratelimit-User-Retry-After", "X-Ratelimit-Timeremaining"}

// retryAfter reads retry-after-ms, Retry-After (seconds, a duration or a date)
// and Gemini's RetryInfo; without any, the reset of a limit that is used up. now
// is for dates.
func retryAfter(h http.Header, body []byte, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(strings.TrimSpace(h.Get("Retry-After-Ms")), 64); err == nil {
		return boundWait(ms * float64(time.Millisecond))
	}
	if v := strings.TrimSpace(h.Get("Retry-After")); v != "" {
		if s, err := strconv.ParseFloat(v, 64); err == nil {
			return boundWait(s * float64(time.Second))
		}
		if d, err := time.ParseDuration(v); err == nil {
			return boundWait(float64(d))
		}
		if at, err := http.ParseTime(v); err == nil {
			return boundWait(float64(at.Sub(now)))
		}
	}
	for _, name := range waitSeconds {
		if s, err := strconv.ParseFloat(strings.TrimSpace(h.Get(name)), 64); err == nil {
			return boundWait(s * float64(time.Second))
		}
	}
	for _, path := range []string{"error.details.#.retryDelay|0", "0.error.details.#.retryDelay|0"} {
		if d, err := time.ParseDuration(gjson.GetBytes(body, path).Str); err == nil {
			return boundWait(float64(d))
		}
	}
	return resetOfUsedUp(h, now)
}

// resetOfUsedUp is the latest reset among the limits that have nothing left:
// OpenAI's, with durations, and Anthropic's, with dates (RFC 3339).
func resetOfUsedUp(h http.Header, now time.Time) time.Duration {
	var latest time.Duration
	usedUp := func(header string) bool { return strings.TrimSpace(h.Get(header)) == "0" }
	for _, what := range []string{"Requests", "Tokens"} {
		if !usedUp("X-Ratelimit-Remaining-" + what) {
			continue
		}
		if d, err := time.ParseDuration(strings.TrimSpace(h.Get("X-Ratelimit-Reset-" + what))); err == nil {
			latest = max(latest, boundWait(float64(d)))
		}
	}
	for _, what := range []string{"Requests", "Tokens", "Input-Tokens", "Output-Tokens"} {
		if !usedUp("Anthropic-Ratelimit-" + what + "-Remaining") {
			continue
		}
		if at, err := time.Parse(time.RFC3339, strings.TrimSpace(h.Get("Anthropic-Ratelimit-"+what+"-Reset"))); err == nil {
			latest = max(latest, boundWait(float64(at.Sub(now))))
		}
	}
	return latest
}

func boundWait(nanos float64) time.Duration {
	if math.IsNaN(nanos) || nanos <= 0 {
		return 0
	}
	if nanos >= float64(maxRetryAfter) {
		return maxRetryAfter
	}
	return time.Duration(nanos)
}

// rateLimit collects the provider's rate-limit headers, lower-case names. A server
// that names the key in one, by which it limits, does not hand it to callers.
func rateLimit(h http.Header, secret string) map[string]string {
	var out map[string]string
	for k, v := range h {
		if len(v) == 0 || !isRateHeader(k) {
			continue
		}
		if len(out) == maxRateHeaders {
			break
		}
		if out == nil {
			out = map[string]string{}
		}
		value := Clean(v[0], secret) // before it is cut: half a key is not found
		out[strings.ToLower(k)] = strings.ToValidUTF8(value[:min(len(value), maxRateValue)], "")
	}
	return out
}

// ratePrefixes are how the headers begin that report limits and what is left of
// them; the last two are Copilot's (X-Quota-Snapshot-Chat, X-Usage-Ratelimit-Weekly).
var ratePrefixes = []string{"X-Ratelimit-", "Anthropic-Ratelimit-", "X-Quota-Snapshot-", "X-Usage-Ratelimit-"}

func isRateHeader(name string) bool {
	for _, prefix := range ratePrefixes {
		if len(name) > len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
			return true
		}
	}
	return false
}

// secrets are the forms of keys and tokens that an error's text may have.
var secrets = regexp.MustCompile(`(?i)\b(?:sk|pk|gsk|ghp|gho|ghu|ghs|ghr|xai|hf|tgp|nvapi|csk|r8|pplx|sess)[-_][a-z0-9*_.-]{4,}|\bgithub_pat_[a-z0-9_]{4,}|\bAIza[a-z0-9_-]{6,}|\bBearer\s+[a-z0-9*._~+/=-]{6,}|\beyJ[a-z0-9_-]{4,}\.[a-z0-9_.-]+`)

// Clean makes a provider's text fit for a caller: one line, at most 500
// characters, without anything that looks like a key, nor secret itself.
func Clean(s, secret string) string {
	if len(s) > 16*maxMessage {
		s = s[:16*maxMessage]
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(secret) >= 4 {
		s = strings.ReplaceAll(s, secret, "***")
	}
	s = secrets.ReplaceAllString(s, "***")
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	n := 0
	for i := range s {
		if n++; n > maxMessage {
			return s[:i] + "…"
		}
	}
	return s
}
