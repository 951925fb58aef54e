package api

import (
	"io"
	"time"

	"github.com/labstack/echo/v4"
)

// Bounds of what is read of a body after its request was refused, so that the client
// sees the reply before the connection is closed. Each drain can keep a processor busy,
// which the engine's threads then wait for: when many requests are refused at the same
// time, all but two wait.
const (
	drainTime   = time.Second     // of one body
	drainWait   = 5 * time.Second // for other bodies; then the connection is closed
	drainAtOnce = 2
	drainStep   = 64 << 10 // of a read
)

// drains reads what is left of refused bodies, drainAtOnce at a time. It holds their
// buffers.
type drains chan []byte

func newDrains() drains {
	d := make(drains, drainAtOnce)
	for range drainAtOnce {
		d <- make([]byte, drainStep)
	}
	return d
}

// run reads at most most bytes of from. It calls begin before the first, and reads
// nothing when its turn does not come within wait or begin fails.
func (d drains) run(from io.Reader, most int64, wait time.Duration, begin func() error) {
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-late.C:
		return
	case buf := <-d:
		defer func() { d <- buf }()
		if begin() != nil {
			return
		}
		for n := 0; most > 0; most -= int64(n) {
			var err error
			if n, err = from.Read(buf[:min(most, int64(len(buf)))]); err != nil {
				return
			}
		}
	}
}

// drain reads what is on its way of a body that was not read, after the reply.
func (s *Server) drain(c echo.Context, body *counter, most int64) {
	r := c.Request()
	if !body.unread() || body.failed || r.ProtoMajor != 1 || r.Header.Get("Expect") != "" || !c.Response().Committed {
		return
	}
	if body.out.Flush() != nil {
		return
	}
	s.drains.run(body, most, drainWait, func() error { return body.out.SetReadDeadline(time.Now().Add(drainTime)) })
}
