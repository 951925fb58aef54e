package api

import (
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"
)

// maxID is the maximum length of a request id that a client chose.
const maxID = 256

// validID reports whether a request id that a client chose may become part of the
// reply's id: 1 to maxID bytes of printable ASCII, which a header and a log can hold.
func validID(id string) bool {
	return id != "" && len(id) <= maxID && strings.IndexFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// inPath reports whether an id consists of the unreserved characters of RFC 3986, which
// need no escaping in a path. Clients and proxies differ in how they escape others.
func inPath(id string) bool {
	return strings.IndexFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._~", r)
	}) < 0
}

// pathParam returns a decoded parameter of the route's path. echo returns it undecoded
// when the path contains escapes such as %2F.
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
