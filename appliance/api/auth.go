package api

import (
	"net"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/anthropic"
	"vapp.dev/appliance/chat"
)

// publicPaths are the paths that need no key. /metrics is another, unless
// GuardMetrics is set.
var publicPaths = map[string]bool{
	"/":       true, // the page holds no data: it requests them with the key that the user enters
	"/health": true, "/livez": true, "/readyz": true, "/ping": true, "/version": true, "/load": true,
	"/openapi.json": true, "/docs": true, "/docs/oauth2-redirect": true,
}

// guard requires a key before the body is read, also on paths that do not exist.
func (s *Server) guard(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r, l := c.Request(), settings(c)
		c.Set(meterKey, l.anonymous)
		if l.unguarded() || r.Method == http.MethodOptions || isPublic(r.URL.Path, l) {
			setClient(c, clientAddress(r))
			return next(c)
		}
		if i := l.keyIndex(r); i >= 0 {
			setClient(c, string(l.owners[i][:]))
			c.Set(meterKey, l.meters[i])
			c.Set(ownerKey, l.owners[i])
			return next(c)
		}
		c.Response().Header().Set(echo.HeaderWWWAuthenticate, "Bearer")
		if isMessages(r.URL.Path) {
			return sendJSON(c, http.StatusUnauthorized, anthropic.Error(http.StatusUnauthorized, "invalid x-api-key"))
		}
		return sendJSON(c, http.StatusUnauthorized, []byte(`{"error":"Unauthorized"}`))
	}
}

// setClient stores the client's identity in the request's context, for the fair
// queues.
func setClient(c echo.Context, client string) {
	c.SetRequest(c.Request().WithContext(chat.WithClient(c.Request().Context(), client)))
}

// clientAddress returns the address that a request came from, without its port.
func clientAddress(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

// keyIndex returns the index of the request's key; −1: it has no known key.
func (l *live) keyIndex(r *http.Request) int {
	if key, given := keyOf(r); given {
		return l.find(key)
	}
	return -1
}

// trusted reports whether a request may read guarded routes, such as /admin/status.
func (l *live) trusted(r *http.Request) bool { return l.unguarded() || l.keyIndex(r) >= 0 }

// unguarded reports whether no key is required of any request.
func (l *live) unguarded() bool { return len(l.keys) == 0 && !l.Guarded }

// keyOf returns the key of a request: a bearer token, or the X-Api-Key header that
// Anthropic's clients send.
func keyOf(r *http.Request) (string, bool) {
	scheme, key, _ := strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(key), true
	}
	key = r.Header.Get("X-Api-Key")
	return key, key != "" && isMessages(r.URL.Path)
}

func isPublic(path string, l *live) bool {
	if strings.TrimSuffix(path, "/") == "/metrics" {
		return !l.GuardMetrics
	}
	return publicPaths[path]
}
