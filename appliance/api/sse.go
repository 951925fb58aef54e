package api

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
)

// writeTimeout ends a stream whose client takes nothing for so long.
const writeTimeout = 2 * time.Minute

// stream answers with server-sent events. What has come since the last write
// leaves in one write. Until the first delta an error has a status of its own.
func (s *Server) stream(c echo.Context, run *chat.Run, to openai.Stream) error {
	ctx := c.Request().Context()
	deltas, err := run.Next(ctx)
	if err != nil {
		return err
	}
	w := c.Response()
	h := w.Header()
	h.Set(echo.HeaderContentType, "text/event-stream; charset=utf-8")
	h.Set(echo.HeaderCacheControl, "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	buf := to.Begin(nil)
	for ; deltas != nil && err == nil; deltas, err = run.Next(ctx) {
		for _, d := range deltas {
			buf = to.Add(buf, d)
		}
		if err := flush(w, buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
	if err != nil {
		e := chat.AsError(err)
		s.explain(c, e)
		return flush(w, openai.Broken(buf, e))
	}
	return flush(w, to.End(buf))
}

// flush sends what is in buf now.
func flush(w *echo.Response, buf []byte) error {
	if len(buf) == 0 {
		return nil
	}
	out := http.NewResponseController(w)
	// a writer without deadlines, as in tests, has no client that hangs
	_ = out.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := w.Write(buf); err != nil {
		return &chat.Error{Kind: chat.Gone, Message: "The client closed the request.", Cause: err}
	}
	return out.Flush()
}
