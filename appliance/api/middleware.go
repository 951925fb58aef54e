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

// settings returns the settings that the request started with.
func settings(c echo.Context) *live { return c.Get(settingsKey).(*live) }

// watch is the outermost middleware: it sets the request's settings and id, and
// reports the finished request to the log and the metrics.
func (s *Server) watch(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		start, l := time.Now(), s.settings.Load()
		c.Set(settingsKey, l)
		r := c.Request()
		id := r.Header.Get(echo.HeaderXRequestID)
		if !validID(id) {
			id = s.cfg.NewID()
		}
		c.Set(idKey, id)
		if l.RequestIDHeaders {
			c.Response().Header().Set(echo.HeaderXRequestID, id)
		}
		counted := &counter{ReadCloser: r.Body, length: r.ContentLength, out: http.NewResponseController(c.Response().Writer)}
		r.Body = counted
		setDeadlines(c, l, counted.out)
		closeUnread(c, counted)
		defer func() {
			reservationOf(c).release()
			s.bodies.Load().settle()
		}()
		if err := next(c); err != nil {
			s.fail(err, c)
		}
		reservationOf(c).release()
		defer s.drain(c, counted, l.MaxBodyBytes)
		o := Observation{
			Method: r.Method, Handler: c.Path(), Status: c.Response().Status, Duration: time.Since(start),
			In: counted.n, Out: c.Response().Size,
		}
		if s.cfg.Observe != nil {
			s.cfg.Observe(o)
		}
		if level := accessLevel(o.Handler, o.Status); l.AccessLog && s.cfg.Log.Enabled(r.Context(), level) {
			s.cfg.Log.LogAttrs(r.Context(), level, "request", accessAttrs(c, o)...)
		}
		return nil
	}
}

// setDeadlines limits the time that the client has to send the body and to read the
// reply. It ignores the errors of writers without deadlines, which only tests use.
func setDeadlines(c echo.Context, l *live, out *http.ResponseController) {
	_ = out.SetWriteDeadline(time.Time{}) // reset the deadline of the connection's previous reply
	if l.BodyTimeout > 0 && c.Request().ContentLength != 0 {
		_ = out.SetReadDeadline(time.Now().Add(l.BodyTimeout))
	}
	if l.WriteTimeout > 0 {
		c.Response().Before(func() { _ = out.SetWriteDeadline(time.Now().Add(l.WriteTimeout)) })
	}
}

// recoverPanics turns a panic into an error of this request only.
func (s *Server) recoverPanics(next echo.HandlerFunc) echo.HandlerFunc {
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

// ready passes requests on to the service; it refuses them while there is none, or
// when the model does not have the route's task.
func (s *Server) ready(next func(echo.Context, *chat.Service) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		svc, v, err := s.enter(c)
		if err != nil {
			return err
		}
		defer v.end()
		if err := checkTask(c.Path(), svc); err != nil {
			return err
		}
		return next(c, svc)
	}
}

func (s *Server) notReady() error {
	return chat.Errorf(chat.Unavailable, "", "The server is not ready: %s.", s.cfg.State.Phase())
}

// fail answers with an error; in a stream that has started, with a record. A client
// that closed its side of the connection may still read: it gets the error too, and
// the connection is closed.
func (s *Server) fail(err error, c echo.Context) {
	w := c.Response()
	if h, ok := err.(*echo.HTTPError); ok && !w.Committed {
		message := fmt.Sprint(h.Message)
		if err == echo.ErrNotFound {
			message = noRoute(c.Request().URL.Path)
		}
		_ = sendJSON(c, h.Code, s.wording(c).status(h.Code, message))
		return
	}
	e := chat.AsError(err)
	s.logError(c, e)
	if w.Committed {
		if w.Header().Get(echo.HeaderContentType) == eventStream {
			_ = s.flush(w, s.wording(c).streamError(e))
		}
		return
	}
	if e.Kind == chat.Gone {
		w.Header().Set(echo.HeaderConnection, "close")
	}
	switch {
	case e.Kind == chat.Overloaded:
		w.Header().Set(echo.HeaderRetryAfter, retryAfter(s.retryDelay()))
	case e.Kind == chat.Unavailable && w.Header().Get(echo.HeaderRetryAfter) == "":
		w.Header().Set(echo.HeaderRetryAfter, retryAfter(max(time.Second, e.RetryAfter)))
	}
	_ = sendJSON(c, openai.Status(e), s.wording(c).error(e))
}

// sendJSON answers with a JSON body. If the connection closes after the reply, it sets
// Content-Length, so that the client has the whole reply while the rest of the
// request's body is drained.
func sendJSON(c echo.Context, status int, body []byte) error {
	c.Response().Before(func() {
		if c.Response().Header().Get(echo.HeaderConnection) == "close" {
			c.Response().Header().Set(echo.HeaderContentLength, strconv.Itoa(len(body)))
		}
	})
	return c.JSONBlob(status, body)
}

// logError logs the cause of an error, which the client does not get.
func (s *Server) logError(c echo.Context, e *chat.Error) {
	if e.Kind == chat.Internal || e.Kind == chat.Unavailable && e.Cause != nil {
		s.cfg.Log.ErrorContext(context.WithoutCancel(c.Request().Context()), "request failed", "id", c.Get(idKey), "error", e.Error())
	}
}
