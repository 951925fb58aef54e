package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
)

// CORS answers browsers on other origins; "*" allows all.
type CORS struct {
	Origins, Methods, Headers []string
	Credentials               bool
}

// allMethods is what "*" means for methods.
const allMethods = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"

func (k CORS) allows(origin string) bool {
	return slices.Contains(k.Origins, "*") || slices.Contains(k.Origins, origin)
}

// cors marks replies for browsers and answers their preflight requests.
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
		} else if preflight || !own(r, origin) {
			return echo.NewHTTPError(http.StatusForbidden, "Pages of this origin may not ask: it is not in serve.cors.allowedOrigins.")
		}
		if !preflight {
			return next(c)
		}
		k.preflight(h, r.Header.Get(echo.HeaderAccessControlRequestHeaders))
		return c.NoContent(http.StatusNoContent)
	}
}

// own tells a page of this server; what carries no Origin is no page's.
func own(r *http.Request, origin string) bool {
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

// preflight says what is allowed. "*" is spelled out: browsers take a wildcard
// of headers for all but Authorization.
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
