package claudecred

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/wire"
)

// credentials is the claude program's own form, as it writes it to the keychain
// and to the file (WIRE.md C, seen with 2.1.332 and 2.1.197). There are sibling
// keys, which are not ours to read.
type credentials struct {
	OAuth *struct {
		AccessToken string  `json:"accessToken"`
		ExpiresAt   float64 `json:"expiresAt"` // ms since 1970; 0 = it does not say
	} `json:"claudeAiOauth"`
}

// maxToken bounds a token, in bytes; a real one has about 110.
const maxToken = 8 << 10

// parse reads a token and when it expires. source is what errors call the store.
func (r *Reader) parse(blob []byte, source string) (kept, error) {
	var c credentials
	if !wire.ValidJSON(blob) || json.Unmarshal(blob, &c) != nil {
		return kept{}, unavailable(CodeMalformed, "%s does not hold Claude's credentials as JSON; %s", source, login)
	}
	token := ""
	if c.OAuth != nil {
		token = c.OAuth.AccessToken
	}
	if token == "" {
		return kept{}, unavailable(CodeLoggedOut, "%s has no token: claude is logged out; %s", source, login)
	}
	if !sendable(token) {
		return kept{}, unavailable(CodeMalformed, "the token in %s cannot be one: it does not fit a header; %s", source, login)
	}
	k := kept{token: token, source: source, till: moment(c.OAuth.ExpiresAt)}
	if !k.till.IsZero() && !r.o.Now().Before(k.till) {
		return kept{}, unavailable(CodeExpired, "the token in %s expired at %s; %s", source, k.till.UTC().Format(time.RFC3339), renew)
	}
	return k, nil
}

// sendable reports whether a token can stand in a header: printable ASCII.
func sendable(token string) bool {
	return len(token) <= maxToken && !strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' })
}

// moment reads milliseconds since 1970. What is no such time is as good as none.
func moment(ms float64) time.Time {
	if !(ms > 0) || ms > math.MaxInt64/2 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}
