package api

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
)

// probes are the routes that orchestrators and collectors request every few seconds. Their
// answer 503 means that the server loads or drains, which is no problem of a request.
var probes = map[string]bool{
	"/health": true, "/ping": true, "/livez": true, "/readyz": true, "/load": true, "/metrics": true, "/metrics/": true,
}

// accessLevel returns the log level of a request's access line: error for a failure,
// debug for probes and for the status requests that the page sends each second, warn for
// a request refused because of load or a key's limits, and info for all others.
func accessLevel(route string, status int) slog.Level {
	switch {
	case status == http.StatusInternalServerError:
		return slog.LevelError
	case probes[route], route == statusRoute && status == http.StatusOK:
		return slog.LevelDebug
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// accessAttrs returns the attributes of the access line.
func accessAttrs(c echo.Context, o Observation) []slog.Attr {
	r := c.Request()
	attrs := []slog.Attr{
		slog.String("client", r.RemoteAddr),
		slog.String("method", r.Method),
		slog.String("path", r.URL.Path),
		slog.Int("status", o.Status),
		slog.Duration("duration", o.Duration),
		slog.Any("id", c.Get(idKey)),
	}
	if name, ok := c.Get(adapterKey).(string); ok {
		attrs = append(attrs, slog.String("lora", name))
	}
	return attrs
}

// maxShown is the number of bytes of a body that the log shows.
const maxShown = 4096

// logRequest logs a request for tokens before it is answered: its path and size at
// level info, and the start of its body at level debug.
func (s *Server) logRequest(c echo.Context, body []byte) {
	r := c.Request()
	attrs := []slog.Attr{
		slog.Any("id", c.Get(idKey)), slog.String("client", r.RemoteAddr), slog.String("path", r.URL.Path), slog.Int("bytes", len(body)),
	}
	if s.cfg.Log.Enabled(r.Context(), slog.LevelDebug) {
		attrs = append(attrs, slog.String("body", strings.ToValidUTF8(string(body[:min(len(body), maxShown)]), "\uFFFD")))
	}
	s.cfg.Log.LogAttrs(r.Context(), slog.LevelInfo, "request received", attrs...)
}

// counter counts the bytes read from a body, and removes the read deadline at its end.
type counter struct {
	io.ReadCloser
	n      int64
	length int64 // Content-Length; -1: unknown
	ended  bool  // the body was read to its end
	failed bool  // reading failed
	out    *http.ResponseController
}

func (r *counter) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	r.n += int64(n)
	r.ended, r.failed = r.ended || err == io.EOF, r.failed || err != nil && err != io.EOF
	if err == io.EOF {
		_ = r.out.SetReadDeadline(time.Time{})
	}
	return n, err
}
