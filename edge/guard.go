package edge

import (
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/subjects"
)

// containerHosts are the names that containers have for the machine they run
// on: how the seed's containers reach a login on the host. No page can be served
// from them, for the .internal domain is never resolved in public.
var containerHosts = []string{"host.docker.internal", "host.containers.internal"}

func hostSet(hosts []string) map[string]bool {
	set := make(map[string]bool, len(hosts))
	for _, h := range hosts {
		set[strings.ToLower(strings.TrimSpace(h))] = true
	}
	return set
}

// guard refuses what a web page may send to a loopback port: a request under a
// name that is not this server's (DNS rebinding), or from another site's page.
// There is no CORS: no page of another origin is ever told that it may read.
func (s *Server) guard(r *http.Request) *subjects.Error {
	if s.o.Token != "" {
		return s.checkToken(r)
	}
	// HTTP/1.0 may come without a Host; no browser does.
	if r.Host != "" && !s.hostAllowed(r, r.Host) {
		return refusal(http.StatusForbidden,
			"host: %q is not a name of this server; call it as 127.0.0.1 or localhost, or add the name to the edge's allowed hosts", clip(r.Host))
	}
	for _, o := range r.Header["Origin"] {
		if !s.originAllowed(r, o) {
			return refusal(http.StatusForbidden,
				"origin: a web page of %q may not call this server; only pages of its own address may", clip(o))
		}
	}
	for _, v := range r.Header["Sec-Fetch-Site"] {
		if strings.EqualFold(strings.TrimSpace(v), "cross-site") {
			return refusal(http.StatusForbidden, "sec-fetch-site: a web page of another site may not call this server")
		}
	}
	return nil
}

// checkToken compares in a time that tells nothing of the token.
func (s *Server) checkToken(r *http.Request) *subjects.Error {
	key := r.Header.Get("X-Api-Key")
	if scheme, bearer, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		key = bearer
	}
	if subtle.ConstantTimeCompare([]byte(key), []byte(s.o.Token)) == 1 {
		return nil
	}
	return refusal(http.StatusUnauthorized, "api key: this server takes only callers that know its token; send it as the API key (Authorization: Bearer <token>)")
}

func (s *Server) hostAllowed(r *http.Request, host string) bool {
	name := hostName(host)
	switch name {
	case "127.0.0.1", "localhost", "::1":
		return true
	}
	name = strings.ToLower(name)
	if name == "localhost" || s.hosts[name] || s.hosts[strings.ToLower(host)] || slices.Contains(containerHosts, name) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}
	return ip.Unmap().IsLoopback() || ip.Unmap() == localIP(r)
}

// localIP is the address that the client connected to.
func localIP(r *http.Request) netip.Addr {
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// originAllowed allows pages that this server gave out itself: an origin equal
// to the Host, or to an allowed host as written (another port is another site's).
func (s *Server) originAllowed(r *http.Request, origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	return strings.EqualFold(u.Host, r.Host) || s.hosts[strings.ToLower(u.Host)]
}

// hostName is the host without its port, brackets and trailing dot.
func hostName(host string) string {
	if strings.HasPrefix(host, "[") {
		if end := strings.IndexByte(host, ']'); end > 0 {
			return host[1:end]
		}
		return host
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host, ':') == i {
		host = host[:i]
	}
	return strings.TrimSuffix(host, ".")
}
