package config

import (
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

// maxURL bounds a base URL, in bytes.
const maxURL = 2048

// baseForm is what a base URL looks like, less strict than parseBaseURL.
const baseForm = `^[Hh][Tt][Tt][Pp][Ss]?://[^\s?#]+$`

// parseBaseURL checks the root of an API: absolute, http or https, and nothing
// in it that must not be shown. Slashes at its end are cut. problem never
// quotes the text, which may hold a key.
func parseBaseURL(text string) (base, problem string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || len(text) > maxURL || strings.ContainsAny(text, " \t\r\n"):
		return "", "is not a URL; write it such as https://host:8080/v1"
	case u.User != nil:
		return "", "has a user name or password in it, which would show up in logs; put a key in the provider's apiKeyEnvVar"
	case u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "":
		return "", "does not begin with http:// or https://; write it such as https://host:8080/v1"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(text, "#"):
		return "", "has a ? or # in it; write the root of the API only, such as https://host:8080/v1"
	case !validHost(u.Hostname()):
		return "", "has no valid host; write it such as https://host:8080/v1"
	case u.Port() != "" && !validPort(u.Port()) || strings.HasSuffix(u.Host, ":"):
		return "", "has a port that is not 1 to 65535"
	}
	return strings.TrimRight(text, "/"), ""
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_.])?$`)

func validHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return len(host) <= 253 && hostName.MatchString(host)
}

func validPort(port string) bool {
	_, ok := parseWhole(port, bounds{lo: 1, hi: 65535})
	return ok
}

// ollamaURL reads OLLAMA_HOST in Ollama's own forms: host, host:port, :port or
// a URL; http and port 11434 where it says nothing else, port 80 or 443 for a
// URL. An address that only a server can use (0.0.0.0) becomes loopback.
func ollamaURL(text string) (base, problem string) {
	text = strings.Trim(strings.TrimSpace(text), `"'`)
	scheme, rest, hasScheme := strings.Cut(text, "://")
	port := "11434"
	switch {
	case !hasScheme:
		scheme, rest = "http", text
	case scheme == "http":
		port = "80"
	case scheme == "https":
		port = "443"
	}
	hostPort, path, _ := strings.Cut(rest, "/")
	host := strings.Trim(hostPort, "[]")
	if h, p, err := net.SplitHostPort(hostPort); err == nil {
		host, port = h, p
	}
	if path = strings.Trim(path, "/"); path != "" {
		path = "/" + path
	}
	return parseBaseURL(scheme + "://" + net.JoinHostPort(connectable(host), port) + path)
}

// connectable turns an address to listen on into one to connect to.
func connectable(host string) string {
	addr, err := netip.ParseAddr(host)
	switch {
	case host == "":
		return "127.0.0.1"
	case err != nil || !addr.IsUnspecified():
		return host
	case addr.Is4():
		return "127.0.0.1"
	}
	return "::1"
}

// dmrURL makes the root of the Docker Model Runner's API. bad is the variable
// that has the problem.
func dmrURL(host, port string) (base, bad, problem string) {
	host = strings.Trim(host, "[]")
	switch {
	case !validHost(host):
		return "", "DMR_HOST", "must be a host name or an address alone; the port goes into DMR_PORT, a whole URL into LLM_BASE_URL_DMR"
	case !validPort(port):
		return "", "DMR_PORT", "must be a port from 1 to 65535"
	}
	return "http://" + net.JoinHostPort(host, port) + "/engines/v1", "", ""
}
