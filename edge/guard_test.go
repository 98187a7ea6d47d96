package edge_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/edge"
)

func TestGuard(t *testing.T) {
	r := start(t, replying(chatReply, nil), edge.Options{AllowedHosts: []string{"Box.lan", "gw.corp:8443", "https.corp"}})
	port := r.addr[strings.LastIndexByte(r.addr, ':'):]
	for _, tt := range []struct {
		name, host, origin, site string
		ok                       bool
	}{
		{"plain", "", "", "", true},
		{"localhost", "localhost" + port, "", "", true},
		{"localhost upper", "LocalHost" + port, "", "", true},
		{"localhost dot", "localhost." + port, "", "", true},
		{"no port", "localhost", "", "", true},
		{"other port", "localhost:1", "", "", true},
		{"127.1.2.3", "127.1.2.3", "", "", true},
		{"IPv6", "[::1]" + port, "", "", true},
		{"IPv4 in IPv6", "[::ffff:127.0.0.1]", "", "", true},
		{"container", "host.docker.internal" + port, "", "", true},
		{"allowed", "box.LAN:99", "", "", true},
		{"allowed with port", "gw.corp:8443", "", "", true},
		{"allowed with another port", "gw.corp:8444", "", "", false},
		{"rebinding", "evil.example" + port, "", "", false},
		{"prefix", "localhost.evil.example", "", "", false},
		{"suffix", "evil.localhost", "", "", false},
		{"zero", "0.0.0.0" + port, "", "", false},
		{"LAN address that is not ours", "192.168.1.5" + port, "", "", false},
		{"numbers", "2130706433", "", "", false},
		{"bare IPv6", "::1", "", "", true},
		{"open bracket", "[::1", "", "", false},
		{"own origin", "", "http://" + r.addr, "same-origin", true},
		{"own origin by another name", "localhost" + port, "http://" + r.addr, "", false},
		{"allowed origin", "", "https://https.corp", "", true},
		{"allowed origin with port", "", "https://gw.corp:8443", "", true},
		{"allowed origin at another port", "", "http://box.lan:3000", "", false},
		{"container origin", "", "http://host.docker.internal:3000", "", false},
		{"other port's page", "", "http://127.0.0.1:3000", "", false},
		{"cross-site origin", "", "https://evil.example", "", false},
		{"null origin", "", "null", "", false},
		{"extension", "", "chrome-extension://abc", "", false},
		{"odd origin", "", "://", "", false},
		{"file", "", "file://", "", false},
		{"site none", "", "", "none", true},
		{"cross-site", "", "", "cross-site", false},
		{"cross-site upper", "", "", "Cross-Site", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h []string
			for _, p := range [][2]string{{"Host", tt.host}, {"Origin", tt.origin}, {"Sec-Fetch-Site", tt.site}} {
				if p[1] != "" {
					h = append(h, p[0], p[1])
				}
			}
			for _, path := range []string{"/v1/chat/completions", "/api/complete"} {
				a := r.post(t, path, chatBody, h...)
				if tt.ok && a.status != 200 || !tt.ok && a.status != 403 {
					t.Errorf("%s: %d %s", path, a.status, a.body)
				}
				if !tt.ok && a.errorOf(t)["kind"] != "AUTH_ERROR" {
					t.Errorf("%s: %s", path, a.body)
				}
				if a.header.Get("Access-Control-Allow-Origin") != "" || a.header.Get("X-Content-Type-Options") != "nosniff" {
					t.Errorf("%s: headers %v", path, a.header)
				}
			}
		})
	}
}

func TestPreflightIsRefused(t *testing.T) {
	f := replying(chatReply, nil)
	r := start(t, f, edge.Options{})
	a := r.do(t, "OPTIONS", "/v1/chat/completions", "", "Origin", "http://localhost:3000",
		"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type")
	if a.status != 403 || f.count() != 0 {
		t.Errorf("got %d %v", a.status, a.header)
	}
	for name := range a.header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("CORS: %s", name)
		}
	}
}

// TestConnectedAddressIsAName allows the address that was connected to.
func TestConnectedAddressIsAName(t *testing.T) {
	h := edge.New(replying(`{"canServe":true}`, nil), edge.Options{}).Handler()
	for host, want := range map[string]int{"10.1.2.3:80": 200, "10.1.2.4:80": 403, "": 200} {
		srv := httptest.NewRequest("GET", "/health", nil)
		srv.Host = host
		srv = srv.WithContext(context.WithValue(srv.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 80}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, srv)
		if w.Code != want {
			t.Errorf("host %q: %d, want %d", host, w.Code, want)
		}
	}
}
