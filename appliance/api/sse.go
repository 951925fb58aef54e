package api

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
)

const eventStream = "text/event-stream; charset=utf-8"

// stream answers with server-sent events. It writes all deltas that have arrived since
// the last write at once. An error before the first delta has its own HTTP status.
func (s *Server) stream(c echo.Context, run *chat.Run, to openai.Stream) error {
	ctx := c.Request().Context()
	deltas, err := next(ctx, run)
	if err != nil {
		return err
	}
	w := s.openStream(c)
	buf := to.Begin(nil)
	for ; deltas != nil && err == nil; deltas, err = next(ctx, run) {
		for _, d := range deltas {
			buf = to.Add(buf, d)
		}
		if err := s.flush(w, buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
	if err != nil {
		return err
	}
	return s.flush(w, to.End(buf))
}

// openStream writes the HTTP header of a stream.
func (s *Server) openStream(c echo.Context) *echo.Response {
	w := c.Response()
	h := w.Header()
	h.Set(echo.HeaderContentType, eventStream)
	h.Set(echo.HeaderCacheControl, "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	return w
}

// flush sends buf within the write timeout.
func (s *Server) flush(w *echo.Response, buf []byte) error {
	if len(buf) == 0 {
		return nil
	}
	out := http.NewResponseController(w)
	// The error of a writer without deadlines, which only tests use, is ignored.
	if t := s.settings.Load().WriteTimeout; t > 0 {
		_ = out.SetWriteDeadline(time.Now().Add(t))
	}
	if _, err := w.Write(buf); err != nil {
		return &chat.Error{Kind: chat.Gone, Message: "The client closed the request.", Cause: err}
	}
	return out.Flush()
}
