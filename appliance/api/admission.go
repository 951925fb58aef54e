package api

import (
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/chat"
)

const admissionKey = "admission"

// admission counts one request in Server.inFlight until end.
type admission struct {
	s    *Server
	once sync.Once
	kept bool
}

// end takes the request out of the count.
func (a *admission) end() { a.once.Do(func() { a.s.inFlight.Add(-1) }) }

// keep lets the admission outlive the HTTP request, until end is called.
func (a *admission) keep() (end func()) {
	a.kept = true
	return a.end
}

// admit counts a request as open before its body is read, or refuses it with 503
// when too many are open.
func (s *Server) admit(next echo.HandlerFunc) echo.HandlerFunc {
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

// closeUnread sets "Connection: close" on the reply to a request whose body was not
// read to its end. Otherwise net/http would first read up to 256 KiB of it, however
// slowly the client sends.
func closeUnread(c echo.Context, body *counter) {
	c.Response().Before(func() {
		if body.unread() {
			c.Response().Header().Set(echo.HeaderConnection, "close")
		}
	})
}

// unread reports whether a request has a body that was not read to its end.
func (r *counter) unread() bool {
	return !r.ended && r.ReadCloser != nil && r.ReadCloser != http.NoBody && r.length != 0
}
