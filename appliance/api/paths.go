package api

import (
	"context"
	"net/http"
	"path/filepath"
	"regexp"

	"github.com/labstack/echo/v4"
)

// keyed is the context key that marks a request with a valid key.
type keyed struct{}

// HasKey reports whether a request has one of the server's keys. On a server without
// keys no request has one.
func HasKey(r *http.Request) bool { return r.Context().Value(keyed{}) != nil }

// hasKey is HasKey for a handler of this package.
func hasKey(c echo.Context) bool { return c.Get(ownerKey) != nil }

// passKey adapts a handler that calls HasKey.
func passKey(h http.Handler) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if hasKey(c) {
			r = r.WithContext(context.WithValue(r.Context(), keyed{}, true))
		}
		h.ServeHTTP(c.Response(), r)
		return nil
	}
}

// folders matches the directories of an absolute path in a text.
var folders = regexp.MustCompile("(^|[\\s\"'`=(\\[,:])(?:file://)?/(?:[^\\s/\"'`,:;()\\[\\]]+/)+")

// WithoutFolders returns a text in which each absolute path is replaced by its last
// element, for clients without a key.
func WithoutFolders(text string) string { return folders.ReplaceAllString(text, "$1") }

// PublicPath returns a path for clients without a key: the last element of an absolute
// one.
func PublicPath(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Base(path)
	}
	return path
}

// modelRoot returns the model's source as the client of a request may see it.
func modelRoot(c echo.Context, root string) string {
	if hasKey(c) {
		return root
	}
	return PublicPath(root)
}

// servedNames returns the served names. Without a key, it omits the model's absolute
// path, which is served as a second name of its last element.
func servedNames(c echo.Context, names []string, root string) (list []string) {
	for i, name := range names {
		if i == 0 || name != root || !filepath.IsAbs(name) || hasKey(c) {
			list = append(list, name)
		}
	}
	return list
}

// phaseReason returns the reason for the phase, without directories or empty where
// the request may not read it.
func (s *Server) phaseReason(c echo.Context) string {
	l := settings(c)
	if s.cfg.Why == nil || !l.trusted(c.Request()) {
		return ""
	}
	if len(l.keys) == 0 {
		return WithoutFolders(s.cfg.Why())
	}
	return s.cfg.Why()
}
