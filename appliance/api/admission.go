package api

import (
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/chat"
)

const admissionKey = "admission"

// admission is a place among the requests that may be open.
type admission struct {
	s    *Server
	once sync.Once
	kept bool
}

// end gives the place back.
func (a *admission) end() { a.once.Do(func() { a.s.inFlight.Add(-1) }) }

// keep lets the place outlive the request of HTTP, until end is called.
func (a *admission) keep() (end func()) {
	a.kept = true
	return a.end
}

// admitted counts a request among the open ones before its body is read, or refuses
// it.
func (s *Server) admitted(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		most, a := settings(c).MaxConcurrent, &admission{s: s}
		n := s.inFlight.Add(1)
		c.Set(admissionKey, a)
		defer func() {
			if !a.kept {
				a.end()
			}
		}()
		if most > 0 && n > int64(most) {
			return chat.Errorf(chat.Overloaded, "", "The server is overloaded: %d requests are open. Please try again later.", most)
		}
		return next(c)
	}
}

// closeUnread announces that the connection ends with the reply when the body was not
// read to its end. net/http would read up to 256 KiB first, at the client's pace.
func closeUnread(c echo.Context, body *counter) {
	c.Response().Before(func() {
		if body.unread() {
			c.Response().Header().Set(echo.HeaderConnection, "close")
		}
	})
}

// unread returns whether a request has a body that was not read to its end.
func (r *counter) unread() bool {
	return !r.ended && r.ReadCloser != nil && r.ReadCloser != http.NoBody && r.length != 0
}
