package api

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
)

// Hosts are the host names that clients may use for the server. The check prevents DNS
// rebinding: another site's page could point its own name at the server's address, and
// its requests would look like those of the server's own page.
type Hosts struct {
	Allowed  []string // exact names, ".example.com" for all names below example.com, "*" for every name
	Listen   string   // the profile's listen address, which may be a name
	Loopback bool     // the server listens on a loopback address
}

// checksHosts reports whether Host headers are checked: on a loopback address, when the
// profile names hosts, and when CORS does not allow every origin.
func (l *live) checksHosts() bool {
	return l.Hosts.Loopback || len(l.Hosts.Allowed) > 0 || !slices.Contains(l.CORS.Origins, "*")
}

// allows reports whether a Host header may be used for the server. An IP address always
// may, since DNS cannot change it. So may an empty header, since browsers send one.
func (h Hosts) allows(host string) bool {
	name := hostname(host)
	if _, err := netip.ParseAddr(name); err == nil || name == "" {
		return true
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") || name == hostname(h.Listen) {
		return true
	}
	return slices.ContainsFunc(h.Allowed, func(a string) bool {
		if a = strings.ToLower(a); strings.HasPrefix(a, ".") {
			return strings.HasSuffix(name, a)
		}
		return a == "*" || a == name
	})
}

// hostname returns a host in lower case without port, brackets and final dot.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// hosts refuses requests whose Host header does not name this server.
func (s *Server) hosts(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		host, l := c.Request().Host, settings(c)
		if !l.checksHosts() || l.Hosts.allows(host) {
			return next(c)
		}
		return echo.NewHTTPError(http.StatusForbidden, fmt.Sprintf("The host %.256q is not a name of this server: add it to serve.allowedHosts.", host))
	}
}
