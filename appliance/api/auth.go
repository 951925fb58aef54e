package api

import (
	"net"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/anthropic"
	"vapp.dev/appliance/chat"
)

// open are the paths that need no key; /metrics is one of them unless guarded.
var open = map[string]bool{
	"/":       true, // a page without data: it asks for them with the reader's key
	"/health": true, "/livez": true, "/readyz": true, "/ping": true, "/version": true, "/load": true,
	"/openapi.json": true, "/docs": true, "/docs/oauth2-redirect": true,
}

// guard asks for a key before anything of the body is read. A path that does not
// exist is guarded too.
func (s *Server) guard(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r, l := c.Request(), settings(c)
		c.Set(meterKey, l.nobody)
		if l.unguarded() || r.Method == http.MethodOptions || isOpen(r.URL.Path, l) {
			ofClient(c, addressOf(r))
			return next(c)
		}
		if i := l.holder(r); i >= 0 {
			ofClient(c, string(l.owners[i][:]))
			c.Set(meterKey, l.meters[i])
			c.Set(ownerKey, l.owners[i])
			return next(c)
		}
		c.Response().Header().Set(echo.HeaderWWWAuthenticate, "Bearer")
		if isMessages(r.URL.Path) {
			return whole(c, http.StatusUnauthorized, anthropic.Error(http.StatusUnauthorized, "invalid x-api-key"))
		}
		return whole(c, http.StatusUnauthorized, []byte(`{"error":"Unauthorized"}`))
	}
}

// ofClient says whose request it is, for the queues in which clients take turns.
func ofClient(c echo.Context, client string) {
	c.SetRequest(c.Request().WithContext(chat.WithClient(c.Request().Context(), client)))
}

// addressOf returns the address that a request came from, without its port.
func addressOf(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

// holder is the index of the key that a request shows; −1: it shows none that is known.
func (l *live) holder(r *http.Request) int {
	if key, given := keyOf(r); given {
		return l.find(key)
	}
	return -1
}

// trusted says that a request may ask what guarded routes tell, /admin/status among them.
func (l *live) trusted(r *http.Request) bool { return l.unguarded() || l.holder(r) >= 0 }

// unguarded reports whether no key is required of any request.
func (l *live) unguarded() bool { return len(l.keys) == 0 && !l.Guarded }

// keyOf is the key of a request: a bearer token, or what Anthropic's clients send.
func keyOf(r *http.Request) (string, bool) {
	scheme, key, _ := strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(key), true
	}
	key = r.Header.Get("X-Api-Key")
	return key, key != "" && isMessages(r.URL.Path)
}

func isOpen(path string, l *live) bool {
	if strings.TrimSuffix(path, "/") == "/metrics" {
		return !l.GuardMetrics
	}
	return open[path]
}
