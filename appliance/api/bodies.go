package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/budget"
	"vapp.dev/appliance/api/rawjson"
	"vapp.dev/appliance/chat"
)

// Memory of request bodies. While it is read, a body takes its length. From then until
// its prompts are tokenized, the decoded form takes decodedBytes for each byte (the
// text once, twice more while a template renders it; a number of two characters
// becomes four bytes) and decodedValue for each JSON value (measured; messages with two
// fields were the largest).
const (
	firstBytes   = 4 << 10  // read before more is reserved
	smallBody    = 64 << 10 // larger bodies have their own budget, so that small ones do not wait for them
	decodedBytes = 3        // bytes for each byte of the body
	decodedValue = 160      // bytes for each JSON value

	smallRead    = 4 << 20
	smallDecoded = 8 << 20
	fixedBudget  = smallRead + smallDecoded + rawjson.MaxValues*decodedValue
)

// BodyBudget returns the smallest budget with which a body of most bytes can be read
// and decoded while small bodies are also read.
func BodyBudget(most int64) int64 { return (1+decodedBytes)*most + fixedBudget }

// bodies are the budgets of small and large bodies.
type bodies struct {
	small, large lane
	passed       atomic.Int64 // bytes of large bodies since memory was returned to the system
	settling     atomic.Bool
}

// lane is a budget for bodies being read, and one for decoded bodies.
type lane struct{ raw, decoded *budget.Budget }

// newBodies splits a total budget into the lanes.
func newBodies(bytes int64) *bodies {
	most := (bytes - fixedBudget) / (1 + decodedBytes)
	return &bodies{
		small: lane{budget.New(smallRead), budget.New(smallDecoded)},
		large: lane{budget.New(most), budget.New(decodedBytes*most + rawjson.MaxValues*decodedValue)},
	}
}

// Large bodies leave garbage that Go's collector may keep for minutes.
const (
	settleTime  = 2 * time.Second
	settleBytes = 4 << 20
)

// settle returns the memory of large bodies to the system after settleTime without
// large bodies.
func (b *bodies) settle() {
	if b.passed.Load() < settleBytes || !b.large.idle() || !b.settling.CompareAndSwap(false, true) {
		return
	}
	seen := b.passed.Load()
	time.AfterFunc(settleTime, func() {
		b.settling.Store(false)
		switch {
		case !b.large.idle(): // the last large body calls settle again
		case b.passed.CompareAndSwap(seen, 0):
			debug.FreeOSMemory()
		default:
			b.settle()
		}
	})
}

// idle reports whether nothing is reserved.
func (l lane) idle() bool { return l.raw.Idle() && l.decoded.Idle() }

func (b *bodies) lane(bytes int64) lane {
	if bytes <= smallBody {
		return b.small
	}
	return b.large
}

// share is a reserved part of a budget.
type share struct {
	of *budget.Budget
	n  int64
}

func (s *share) release() {
	if s.of != nil {
		s.of.Give(s.n)
	}
	*s = share{}
}

// shrink releases all but n bytes.
func (s *share) shrink(n int64) {
	if s.of != nil && n < s.n {
		s.of.Give(s.n - n)
		s.n = n
	}
}

// reservation is the part of the budgets that a request has reserved.
type reservation struct{ raw, decoded share }

const reservationKey = "held"

// reservationOf returns the request's reservation, an empty one at first.
func reservationOf(c echo.Context) *reservation {
	h, _ := c.Get(reservationKey).(*reservation)
	if h == nil {
		h = &reservation{}
		c.Set(reservationKey, h)
	}
	return h
}

func (h *reservation) release() {
	h.raw.release()
	h.decoded.release()
}

// intake reads one body.
type intake struct {
	c    echo.Context
	b    *bodies
	most int64 // limit of the body's length in bytes
	buf  []byte
}

// read reads the whole body within the budget. Its reservation is released when the
// body is decoded, at the latest when the request ends.
func (s *Server) read(c echo.Context, most int64) (body []byte, err error) {
	b := s.bodies.Load()
	in := &intake{c: c, b: b, most: min(most, b.large.raw.Limit())}
	defer func() {
		if err != nil {
			reservationOf(c).release()
			err = in.explain(err)
		}
	}()
	if c.Request().ContentLength > in.most {
		return nil, &http.MaxBytesError{Limit: in.most}
	}
	for more := true; more; {
		if more, err = in.step(); err != nil {
			return nil, err
		}
	}
	h, n := reservationOf(c), int64(len(in.buf))
	if int64(cap(in.buf)) > 2*n+firstBytes {
		in.buf = append(make([]byte, 0, n), in.buf...)
		h.raw.shrink(n)
	}
	cost := decodedBytes*n + decodedValue*int64(min(rawjson.Values(in.buf), rawjson.MaxValues))
	of := in.b.lane(n).decoded
	if err := of.Take(c.Request().Context(), cost); err != nil {
		return nil, err
	}
	h.decoded = share{of, cost}
	return in.buf, nil
}

// size returns the buffer size of the next step: firstBytes at first, then the whole
// length if it is known, else smallBody and then the limit.
func (in *intake) size() int64 {
	length := in.c.Request().ContentLength
	switch have := int64(cap(in.buf)); {
	case length >= 0 && (have >= firstBytes || length <= firstBytes):
		return length
	case have < firstBytes:
		return min(firstBytes, in.most)
	case have < smallBody:
		return min(smallBody, in.most)
	}
	return in.most
}

// step reserves the next buffer size and reads into the buffer. It returns true when
// the body continues.
func (in *intake) step() (more bool, err error) {
	size, h, r := in.size(), reservationOf(in.c), in.c.Request()
	if len(in.buf) <= firstBytes {
		h.raw.release() // a request must not wait for more of a budget that it holds part of
	}
	of := in.b.lane(size).raw
	if err := of.Take(r.Context(), size); err != nil {
		return false, err
	}
	if size > smallBody {
		in.b.passed.Add(size)
	}
	buf := make([]byte, len(in.buf), size)
	copy(buf, in.buf)
	in.buf = buf
	h.raw.release()
	h.raw = share{of, size}
	out := http.NewResponseController(in.c.Response().Writer)
	p := budget.NewReading(size, size-int64(len(buf)), func() { _ = out.SetReadDeadline(time.Unix(1, 0)) })
	of.Follow(p)
	defer of.Leave(p)
	err = in.fill(r.Body, p)
	switch {
	case p.Ended():
		return false, errSlow
	case err == io.EOF:
		return false, nil
	case err != nil:
		return false, err
	}
	return in.continues(r.Body)
}

// fill reads until the buffer is full.
func (in *intake) fill(from io.Reader, p *budget.Reading) error {
	for len(in.buf) < cap(in.buf) {
		n, err := from.Read(in.buf[len(in.buf):cap(in.buf)])
		in.buf = in.buf[:len(in.buf)+n]
		p.Add(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// continues reports whether a body continues after a full buffer. It returns an error
// when the body exceeds its length or the limit.
func (in *intake) continues(from io.Reader) (bool, error) {
	if n := in.size(); n > int64(len(in.buf)) {
		return true, nil
	}
	switch n, err := io.ReadFull(from, make([]byte, 1)); {
	case n > 0:
		return false, &http.MaxBytesError{Limit: in.most}
	case err != io.EOF:
		return false, err
	}
	return false, nil
}

var errSlow = errors.New("the body comes too slowly")

// explain maps an error of reading the body to an HTTP error. It closes the connection
// after the reply, since the client may still be sending.
func (in *intake) explain(err error) error {
	var large *http.MaxBytesError
	ctx := in.c.Request().Context()
	in.c.Response().Header().Set(echo.HeaderConnection, "close")
	switch {
	case errors.As(err, &large):
		return echo.NewHTTPError(http.StatusRequestEntityTooLarge, fmt.Sprintf("The body is larger than %d bytes.", large.Limit))
	case errors.Is(err, budget.ErrShort):
		return chat.Errorf(chat.Overloaded, "", "The server is overloaded: it is reading as many request bodies as its memory plan allows. Please try again later.")
	case errors.Is(err, errSlow):
		return echo.NewHTTPError(http.StatusRequestTimeout, "The body came too slowly while other requests were waiting to send theirs.")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return echo.NewHTTPError(http.StatusRequestTimeout, fmt.Sprintf("The body did not come within %s.", settings(in.c).BodyTimeout))
	case errors.Is(err, io.ErrUnexpectedEOF), ctx.Err() == nil:
		return chat.Errorf(chat.Malformed, "", "The body could not be read to its end.")
	}
	return ctx.Err()
}
