package api

import (
	"io"
	"log/slog"

	"github.com/labstack/echo/v4"
)

const accessLevel = slog.LevelInfo

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

// counter counts what is read of a body.
type counter struct {
	io.ReadCloser
	n int64
}

func (r *counter) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	r.n += int64(n)
	return n, err
}
