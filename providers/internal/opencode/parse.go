package opencode

import (
	"regexp"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/wire"
)

// providers are the entries that hold a Copilot login, in the order in which they
// are looked at. The second one is the old plug-in's for an enterprise.
var providers = []string{"github-copilot", "github-copilot-enterprise"}

const (
	personalAPI = "https://api.githubcopilot.com"
	// enterpriseAPI stands before an enterprise's host.
	enterpriseAPI = "https://copilot-api."

	// maxToken bounds a token, in bytes; a real one has 40 to 100.
	maxToken = 8 << 10
	maxHost  = 253 - len("copilot-api.")
)

// entry is one Copilot login.
type entry struct {
	token string
	host  string // the enterprise's; "" = a personal account
}

func (e entry) baseURL() string {
	if e.host == "" {
		return personalAPI
	}
	return enterpriseAPI + e.host
}

// fault is what is wrong with a file, in the words that stand after its name.
type fault struct{ code, text string }

func (f *fault) Error() string { return f.text }

// parse finds the login in the text of an auth.json. Where several entries could
// hold one, the first that does is taken; where none does, the error is the first
// one's that is there. What else stands in an entry is not looked at.
func parse(text []byte) (entry, error) {
	text = []byte(strings.TrimPrefix(string(text), "\ufeff"))
	if !wire.ValidJSON(text) {
		return entry{}, &fault{CodeMalformed, "is not JSON"}
	}
	root := gjson.ParseBytes(text)
	if !root.IsObject() {
		return entry{}, &fault{CodeMalformed, "is JSON, but no object of logins"}
	}
	var first error
	for _, name := range providers {
		v := root.Get(name)
		if !v.Exists() || v.Type == gjson.Null {
			continue
		}
		e, err := read(name, v)
		if err == nil {
			return e, nil
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		first = &fault{CodeLoggedOut, "has no login for github-copilot"}
	}
	return entry{}, first
}

// read reads one entry.
func read(name string, v gjson.Result) (entry, error) {
	if !v.IsObject() {
		return entry{}, &fault{CodeMalformed, "has something under " + name + " that is no login"}
	}
	switch kind := v.Get("type"); {
	case kind.Str == "api" || kind.Str == "wellknown":
		return entry{}, &fault{CodeType, "has a login of type " + kind.Str + " for " + name + ", not the OAuth login that Copilot needs"}
	case kind.Str != "oauth":
		return entry{}, &fault{CodeType, "has a login of an unknown type for " + name + ", not the OAuth login that Copilot needs"}
	}
	e := entry{token: strings.TrimSpace(v.Get("refresh").Str)}
	switch {
	case e.token == "":
		return entry{}, &fault{CodeLoggedOut, "has a login for " + name + " without a token (refresh)"}
	case !sendable(e.token):
		return entry{}, &fault{CodeMalformed, "has a token for " + name + " that cannot be one: it does not fit a header"}
	}
	switch url := v.Get("enterpriseUrl"); {
	case url.Exists() && url.Type != gjson.Null && url.Str != "":
		host, ok := hostOf(url.Str)
		if !ok {
			return entry{}, &fault{CodeHost, "has an enterpriseUrl for " + name + " that is no host name"}
		}
		e.host = host
	case url.Exists() && url.Type != gjson.Null && url.Type != gjson.String:
		return entry{}, &fault{CodeHost, "has an enterpriseUrl for " + name + " that is no text"}
	case name != providers[0]:
		return entry{}, &fault{CodeHost, "has no enterpriseUrl for " + name}
	}
	return e, nil
}

// sendable reports whether a token can stand in a header: printable ASCII.
func sendable(token string) bool {
	return len(token) <= maxToken && !strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' })
}

// hostName is a name of two labels or more whose last one is no number.
var hostName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]$`)

// hostOf reads an enterprise's host as a person may have written it: bare, or as
// a URL with a slash at its end.
func hostOf(text string) (string, bool) {
	host := strings.ToLower(strings.TrimSpace(text))
	for _, scheme := range []string{"https://", "http://"} {
		host = strings.TrimPrefix(host, scheme)
	}
	host = strings.TrimSuffix(host, "/")
	return host, len(host) <= maxHost && hostName.MatchString(host)
}
