package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
)

// CORS configures cross-origin requests of browsers; "*" allows all.
type CORS struct {
	Origins, Methods, Headers []string
	Credentials               bool
}

// allMethods replaces "*" in the list of methods.
const allMethods = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"

func (k CORS) allows(origin string) bool {
	return slices.Contains(k.Origins, "*") || slices.Contains(k.Origins, origin)
}

// cors adds the CORS headers to replies and answers preflight requests. It refuses
// cross-origin requests of origins that are not allowed.
func (s *Server) cors(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r, k, h := c.Request(), settings(c).CORS, c.Response().Header()
		origin := r.Header.Get(echo.HeaderOrigin)
		if origin == "" {
			return next(c)
		}
		preflight := r.Method == http.MethodOptions && r.Header.Get(echo.HeaderAccessControlRequestMethod) != ""
		h.Add(echo.HeaderVary, echo.HeaderOrigin)
		if k.allows(origin) {
			k.mark(h, origin)
		} else if preflight || !sameOrigin(r, origin) {
			return echo.NewHTTPError(http.StatusForbidden, "Requests from pages of this origin are refused: it is not in serve.cors.allowedOrigins.")
		}
		if !preflight {
			return next(c)
		}
		k.preflight(h, r.Header.Get(echo.HeaderAccessControlRequestHeaders))
		return c.NoContent(http.StatusNoContent)
	}
}

// sameOrigin reports whether the origin is this server itself.
func sameOrigin(r *http.Request, origin string) bool {
	_, host, _ := strings.Cut(origin, "://")
	return host != "" && strings.EqualFold(host, r.Host)
}

func (k CORS) mark(h http.Header, origin string) {
	if slices.Contains(k.Origins, "*") && !k.Credentials {
		origin = "*"
	}
	h.Set(echo.HeaderAccessControlAllowOrigin, origin)
	h.Set(echo.HeaderAccessControlExposeHeaders, echo.HeaderXRequestID)
	if k.Credentials {
		h.Set(echo.HeaderAccessControlAllowCredentials, "true")
	}
}

// preflight sets the allowed methods and headers. It replaces "*" by the full list:
// to browsers a wildcard does not include the header Authorization.
func (k CORS) preflight(h http.Header, asked string) {
	methods, headers := strings.Join(k.Methods, ", "), strings.Join(k.Headers, ", ")
	if slices.Contains(k.Methods, "*") {
		methods = allMethods
	}
	if slices.Contains(k.Headers, "*") {
		headers = asked
		h.Add(echo.HeaderVary, echo.HeaderAccessControlRequestHeaders)
	}
	h.Set(echo.HeaderAccessControlAllowMethods, methods)
	h.Set(echo.HeaderAccessControlAllowHeaders, headers)
	h.Set(echo.HeaderAccessControlMaxAge, "600")
}
