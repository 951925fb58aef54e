package api

import (
	"io"
	"time"

	"github.com/labstack/echo/v4"
)

// Limits of a drain: reading the rest of a body after its request was refused, so that
// the client reads the reply before the connection closes. A drain can keep a CPU core
// busy that the engine's threads need. When many requests are refused at the same
// time, two drains run and the others wait.
const (
	drainTime   = time.Second     // for one body
	drainWait   = 5 * time.Second // for a turn; then the connection is closed
	drainAtOnce = 2
	drainStep   = 64 << 10 // bytes of one read
)

// drains limits drains to drainAtOnce at a time. It holds the free buffers.
type drains chan []byte

func newDrains() drains {
	d := make(drains, drainAtOnce)
	for range drainAtOnce {
		d <- make([]byte, drainStep)
	}
	return d
}

// run reads at most most bytes of from. It calls begin before the first read. It reads
// nothing when it gets no buffer within wait, or when begin fails.
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

// drain sends the reply, then reads the unread rest of the body.
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
