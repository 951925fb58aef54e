package api

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
)

// open are the paths that need no key; /metrics is one of them unless guarded.
var open = map[string]bool{
	"/":       true, // a page without data: it asks for them with the reader's key
	"/health": true, "/livez": true, "/readyz": true, "/ping": true, "/version": true, "/load": true,
	"/openapi.json": true, "/docs": true,
}

// guard asks for a key before anything of the body is read. A path that does not
// exist is guarded too.
func (s *Server) guard(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r, l := c.Request(), settings(c)
		c.Set(meterKey, l.nobody)
		if len(l.keys) == 0 || r.Method == http.MethodOptions || isOpen(r.URL.Path, l) {
			return next(c)
		}
		scheme, key, _ := strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
		if i := l.find(strings.TrimSpace(key)); i >= 0 && strings.EqualFold(scheme, "Bearer") {
			c.Set(meterKey, l.meters[i])
			return next(c)
		}
		c.Response().Header().Set(echo.HeaderWWWAuthenticate, "Bearer")
		return c.JSONBlob(http.StatusUnauthorized, []byte(`{"error":"Unauthorized"}`))
	}
}

func isOpen(path string, l *live) bool {
	if strings.TrimSuffix(path, "/") == "/metrics" {
		return !l.GuardMetrics
	}
	return open[path]
}
