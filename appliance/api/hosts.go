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

// Hosts are the names under which clients may reach the server. Without the check a page
// of another site could change the address of its own name to the server's (DNS
// rebinding), and ask as if it were the server's own page.
type Hosts struct {
	Allowed  []string // exact names, ".example.com" for all names below example.com, "*" for every name
	Listen   string   // the address of the profile, which may be a name
	Loopback bool     // the server listens on a loopback address
}

// checked reports whether Host headers are checked: where pages of other sites are kept
// out, and where the profile names hosts.
func (l *live) checked() bool {
	return l.Hosts.Loopback || len(l.Hosts.Allowed) > 0 || !slices.Contains(l.CORS.Origins, "*")
}

// allows reports whether a Host header names the server. An IP address always does: no
// name server can change where it leads. So does an empty one: browsers send a host.
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

// hostname returns a host in lower case without port, brackets and the dot at its end.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// hosts refuses requests that were sent to a name which is not the server's.
func (s *Server) hosts(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		host, l := c.Request().Host, settings(c)
		if !l.checked() || l.Hosts.allows(host) {
			return next(c)
		}
		return echo.NewHTTPError(http.StatusForbidden, fmt.Sprintf("The host %.256q is not a name of this server: add it to serve.allowedHosts.", host))
	}
}
