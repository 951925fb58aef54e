package api

import (
	"context"
	"net/http"
	"path/filepath"
	"regexp"

	"github.com/labstack/echo/v4"
)

// keyed marks the context of a request that showed a key.
type keyed struct{}

// HasKey reports whether a request showed one of the server's keys. Without keys
// every client is anonymous.
func HasKey(r *http.Request) bool { return r.Context().Value(keyed{}) != nil }

// hasKey is HasKey in a handler of this package.
func hasKey(c echo.Context) bool { return c.Get(ownerKey) != nil }

// wrapped serves by a handler that may ask HasKey.
func wrapped(h http.Handler) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if hasKey(c) {
			r = r.WithContext(context.WithValue(r.Context(), keyed{}, true))
		}
		h.ServeHTTP(c.Response(), r)
		return nil
	}
}

// folders are those of an absolute path in a text.
var folders = regexp.MustCompile("(^|[\\s\"'`=(\\[,:])(?:file://)?/(?:[^\\s/\"'`,:;()\\[\\]]+/)+")

// WithoutFolders returns a text with the last element in place of each absolute path: what
// clients without a key may read.
func WithoutFolders(text string) string { return folders.ReplaceAllString(text, "$1") }

// rootOf returns where the model came from, of an absolute path the last element unless the
// request showed a key.
func rootOf(c echo.Context, root string) string {
	if filepath.IsAbs(root) && !hasKey(c) {
		return filepath.Base(root)
	}
	return root
}

// listed returns the served names. The model's absolute path, where it is a second
// name of its last element, is left out unless the request showed a key.
func listed(c echo.Context, names []string, root string) (list []string) {
	for i, name := range names {
		if i == 0 || name != root || !filepath.IsAbs(name) || hasKey(c) {
			list = append(list, name)
		}
	}
	return list
}

// whyOf returns the reason of a phase as the request may read it.
func (s *Server) whyOf(c echo.Context) string {
	l := settings(c)
	if s.cfg.Why == nil || !l.trusted(c.Request()) {
		return ""
	}
	if len(l.keys) == 0 {
		return WithoutFolders(s.cfg.Why())
	}
	return s.cfg.Why()
}
