package api

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
)

const (
	settingsKey = "settings"
	idKey       = "id"
)

// settings are those the request began with.
func settings(c echo.Context) *live { return c.Get(settingsKey).(*live) }

// watch is around everything: it fixes settings and id, and tells log and metrics
// how the request ended.
func (s *Server) watch(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		start, l := time.Now(), s.settings.Load()
		c.Set(settingsKey, l)
		r := c.Request()
		id := r.Header.Get(echo.HeaderXRequestID)
		if !usable(id) {
			id = s.cfg.NewID()
		}
		c.Set(idKey, id)
		if l.RequestIDHeaders {
			c.Response().Header().Set(echo.HeaderXRequestID, id)
		}
		counted := &counter{ReadCloser: r.Body, length: r.ContentLength, out: http.NewResponseController(c.Response().Writer)}
		r.Body = counted
		bound(c, l, counted.out)
		closeUnread(c, counted)
		defer func() {
			holds(c).release()
			s.bodies.settle()
		}()
		if err := next(c); err != nil {
			s.fail(err, c)
		}
		holds(c).release()
		defer s.drain(c, counted, l.MaxBodyBytes)
		o := Observation{
			Method: r.Method, Handler: c.Path(), Status: c.Response().Status, Duration: time.Since(start),
			In: counted.n, Out: c.Response().Size,
		}
		if s.cfg.Observe != nil {
			s.cfg.Observe(o)
		}
		if l.AccessLog {
			s.cfg.Log.LogAttrs(r.Context(), accessLevel(o.Handler, o.Status), "request", accessAttrs(c, o)...)
		}
		return nil
	}
}

// bound gives the client its time: to send the body, and to take the reply. An
// error here is a writer without deadlines, as in tests.
func bound(c echo.Context, l *live, out *http.ResponseController) {
	_ = out.SetWriteDeadline(time.Time{}) // that of the connection's last reply
	if l.BodyTimeout > 0 && c.Request().ContentLength != 0 {
		_ = out.SetReadDeadline(time.Now().Add(l.BodyTimeout))
	}
	if l.WriteTimeout > 0 {
		c.Response().Before(func() { _ = out.SetWriteDeadline(time.Now().Add(l.WriteTimeout)) })
	}
}

// recovered turns a panic into an error of this request alone.
func (s *Server) recovered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.cfg.Log.Error("panic", "id", c.Get(idKey), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = chat.Errorf(chat.Internal, "", "Internal server error.")
		}()
		return next(c)
	}
}

// ready refuses requests while there is no service.
func (s *Server) ready(next func(echo.Context, *chat.Service) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		svc := s.cfg.State.Service()
		if svc == nil {
			c.Response().Header().Set(echo.HeaderRetryAfter, "1")
			return s.notReady()
		}
		if err := serves(c.Path(), svc); err != nil {
			return err
		}
		return next(c, svc)
	}
}

func (s *Server) notReady() error {
	return chat.Errorf(chat.Unavailable, "", "The server is not ready: %s.", s.cfg.State.Phase())
}

// fail answers an error, in a stream that has begun with a record. A client that has
// ended its side of the connection may still read: it gets one too, and the connection
// is closed.
func (s *Server) fail(err error, c echo.Context) {
	w := c.Response()
	if h, ok := err.(*echo.HTTPError); ok && !w.Committed {
		_ = whole(c, h.Code, s.wording(c).status(h.Code, fmt.Sprint(h.Message)))
		return
	}
	e := chat.AsError(err)
	s.explain(c, e)
	if w.Committed {
		if w.Header().Get(echo.HeaderContentType) == eventStream {
			_ = s.flush(w, s.wording(c).broken(e))
		}
		return
	}
	if e.Kind == chat.Gone {
		w.Header().Set(echo.HeaderConnection, "close")
	}
	switch {
	case e.Kind == chat.Overloaded:
		w.Header().Set(echo.HeaderRetryAfter, retryAfter(s.retry()))
	case e.Kind == chat.Unavailable && w.Header().Get(echo.HeaderRetryAfter) == "":
		w.Header().Set(echo.HeaderRetryAfter, "1")
	}
	_ = whole(c, openai.Status(e), s.wording(c).failed(e))
}

// whole answers with a body of known length, so that the client has all of it while the
// rest of its own is drained.
func whole(c echo.Context, status int, body []byte) error {
	c.Response().Before(func() {
		if c.Response().Header().Get(echo.HeaderConnection) == "close" {
			c.Response().Header().Set(echo.HeaderContentLength, strconv.Itoa(len(body)))
		}
	})
	return c.JSONBlob(status, body)
}

// explain logs what the client is not told.
func (s *Server) explain(c echo.Context, e *chat.Error) {
	if e.Kind == chat.Internal || e.Kind == chat.Unavailable && e.Cause != nil {
		s.cfg.Log.ErrorContext(context.WithoutCancel(c.Request().Context()), "request failed", "id", c.Get(idKey), "error", e.Error())
	}
}
