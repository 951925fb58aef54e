package api

import (
	"sync/atomic"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/chat"
)

const visitKey = "visit"

// visit keeps a request's service open until all of its holders have ended it: the handler, and what
// outlives the handler.
type visit struct {
	holders atomic.Int64
	leave   func()
}

func newVisit(leave func()) *visit {
	v := &visit{leave: leave}
	v.hold()
	return v
}

// hold adds a holder, which calls end once.
func (v *visit) hold() { v.holders.Add(1) }

func (v *visit) end() {
	if v.holders.Add(-1) == 0 {
		v.leave()
	}
}

// visitOf returns the visit of a request that entered.
func visitOf(c echo.Context) *visit { return c.Get(visitKey).(*visit) }

// enter waits for the service. If it is not the one that the request's settings are for, the request gets
// the newest settings.
func (s *Server) enter(c echo.Context) (*chat.Service, *visit, error) {
	for {
		svc, leave, err := s.cfg.State.Enter(c.Request().Context())
		if err != nil {
			return nil, nil, err
		}
		v := newVisit(leave)
		l := settings(c)
		if l.Service != svc {
			l = s.settings.Load()
		}
		if l.Service == nil || l.Service == svc {
			c.Set(settingsKey, l)
			c.Set(visitKey, v)
			return svc, v, nil
		}
		v.end() // the engine was replaced in between
	}
}
