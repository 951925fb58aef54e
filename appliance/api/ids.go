package api

import (
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"
)

// maxID bounds a request id that a client chose.
const maxID = 256

// usable reports whether a request id that a client chose becomes part of the reply's:
// at most maxID bytes of printable ASCII, so that it can stand in a header and in a log.
func usable(id string) bool {
	return id != "" && len(id) <= maxID && strings.IndexFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// inPath reports whether an id is the same in a path as escaped in one (RFC 3986,
// unreserved characters): clients differ in what they escape, proxies in what they decode.
func inPath(id string) bool {
	return strings.IndexFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._~", r)
	}) < 0
}

// pathParam returns a parameter of the route's path, decoded. echo matches the path as
// it was sent where decoding it loses something, such as %2F.
func pathParam(c echo.Context, name string) string {
	p := c.Param(name)
	if c.Request().URL.RawPath == "" {
		return p
	}
	if plain, err := url.PathUnescape(p); err == nil {
		return plain
	}
	return p
}
