package api

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
)

// accessLevel is error for what failed, warn for who is turned away because the
// server or a key has too much to do, debug for the page's look each second, and
// info for all else.
func accessLevel(route string, status int) slog.Level {
	switch {
	case route == statusRoute && status == http.StatusOK:
		return slog.LevelDebug
	case status == http.StatusInternalServerError:
		return slog.LevelError
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// accessAttrs are the facts of the access line.
func accessAttrs(c echo.Context, o Observation) []slog.Attr {
	r := c.Request()
	return []slog.Attr{
		slog.String("client", r.RemoteAddr),
		slog.String("method", r.Method),
		slog.String("path", r.URL.Path),
		slog.Int("status", o.Status),
		slog.Duration("duration", o.Duration),
		slog.Any("id", c.Get(idKey)),
	}
}

// maxShown is how much of a body goes into the log, in bytes.
const maxShown = 4096

// received tells of a request for tokens: at info how large it is and what it is
// for, at debug how its body begins.
func (s *Server) received(c echo.Context, body []byte) {
	r := c.Request()
	attrs := []slog.Attr{
		slog.Any("id", c.Get(idKey)), slog.String("client", r.RemoteAddr), slog.String("path", r.URL.Path), slog.Int("bytes", len(body)),
	}
	if s.cfg.Log.Enabled(r.Context(), slog.LevelDebug) {
		attrs = append(attrs, slog.String("body", strings.ToValidUTF8(string(body[:min(len(body), maxShown)]), "\uFFFD")))
	}
	s.cfg.Log.LogAttrs(r.Context(), slog.LevelInfo, "request received", attrs...)
}

// counter counts what is read of a body, and lifts the bound on its time once all
// of it has come.
type counter struct {
	io.ReadCloser
	n      int64
	length int64 // as announced; -1: not
	ended  bool  // all of it was read
	failed bool  // no more can be read
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
