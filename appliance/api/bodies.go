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

	"vapp.dev/appliance/api/rawjson"
	"vapp.dev/appliance/chat"
)

// What bodies take of memory. A body takes its length while it is read. Until its
// prompts are tokens it takes what decoding makes of it: its text once, twice while a
// template renders it, or four bytes for a number of two; and a Go value for each
// value (messages of two names were measured to be the largest).
const (
	firstBytes   = 4 << 10  // are read before more is reserved
	smallBody    = 64 << 10 // larger ones have a budget of their own, so that small ones do not wait for them
	decodedBytes = 3        // for each byte
	decodedValue = 160      // bytes for each value

	smallRead    = 4 << 20
	smallDecoded = 8 << 20
	fixedBudget  = smallRead + smallDecoded + rawjson.MaxValues*decodedValue
)

// BodyBudget is the least budget with which a body of most bytes can be read and
// decoded beside small ones.
func BodyBudget(most int64) int64 { return (1+decodedBytes)*most + fixedBudget }

// bodies are the budgets of small and large bodies.
type bodies struct {
	small, large lane
	passed       atomic.Int64 // bytes of large bodies since memory was given back
	settling     atomic.Bool
}

// lane is the budget of bodies that are read, and of those that are decoded.
type lane struct{ raw, decoded *budget }

// newBodies splits a budget of that many bytes.
func newBodies(bytes int64) *bodies {
	most := (bytes - fixedBudget) / (1 + decodedBytes)
	return &bodies{
		small: lane{newBudget(smallRead), newBudget(smallDecoded)},
		large: lane{newBudget(most), newBudget(decodedBytes*most + rawjson.MaxValues*decodedValue)},
	}
}

// Large bodies leave garbage that Go's collector may keep for minutes.
const (
	settleTime  = 2 * time.Second
	settleBytes = 4 << 20
)

// settle gives the memory of large bodies back to the system once none has been here
// for settleTime.
func (b *bodies) settle() {
	if b.passed.Load() < settleBytes || !b.large.idle() || !b.settling.CompareAndSwap(false, true) {
		return
	}
	seen := b.passed.Load()
	time.AfterFunc(settleTime, func() {
		b.settling.Store(false)
		switch {
		case !b.large.idle(): // the last of them comes here again
		case b.passed.CompareAndSwap(seen, 0):
			debug.FreeOSMemory()
		default:
			b.settle()
		}
	})
}

// idle returns whether nothing is reserved.
func (l lane) idle() bool { return l.raw.idle() && l.decoded.idle() }

func (b *bodies) lane(bytes int64) lane {
	if bytes <= smallBody {
		return b.small
	}
	return b.large
}

// share is a part of a budget.
type share struct {
	of *budget
	n  int64
}

func (s *share) release() {
	if s.of != nil {
		s.of.give(s.n)
	}
	*s = share{}
}

// shrink gives back all but n bytes.
func (s *share) shrink(n int64) {
	if s.of != nil && n < s.n {
		s.of.give(s.n - n)
		s.n = n
	}
}

// held is what a request has of the budgets.
type held struct{ raw, decoded share }

const heldKey = "held"

// holds returns what a request has of the budgets.
func holds(c echo.Context) *held {
	h, _ := c.Get(heldKey).(*held)
	if h == nil {
		h = &held{}
		c.Set(heldKey, h)
	}
	return h
}

func (h *held) release() {
	h.raw.release()
	h.decoded.release()
}

// intake reads one body.
type intake struct {
	c    echo.Context
	b    *bodies
	most int64 // bytes of a body
	buf  []byte
}

// read reads the whole body within the budget. What it holds is released when the
// body is decoded, at the latest when the request ends.
func (s *Server) read(c echo.Context, most int64) (body []byte, err error) {
	in := &intake{c: c, b: s.bodies, most: min(most, s.bodies.large.raw.limit)}
	defer func() {
		if err != nil {
			holds(c).release()
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
	h, n := holds(c), int64(len(in.buf))
	if int64(cap(in.buf)) > 2*n+firstBytes {
		in.buf = append(make([]byte, 0, n), in.buf...)
		h.raw.shrink(n)
	}
	cost := decodedBytes*n + decodedValue*int64(min(rawjson.Values(in.buf), rawjson.MaxValues))
	of := in.b.lane(n).decoded
	if err := of.take(c.Request().Context(), cost); err != nil {
		return nil, err
	}
	h.decoded = share{of, cost}
	return in.buf, nil
}

// size is how much the next step reads: firstBytes of any body, then all of one whose
// length is known.
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

// step reserves the next size and reads into it. It returns true when the body goes
// on.
func (in *intake) step() (more bool, err error) {
	size, h, r := in.size(), holds(in.c), in.c.Request()
	if len(in.buf) <= firstBytes {
		h.raw.release() // nobody waits in a budget for more of it
	}
	of := in.b.lane(size).raw
	if err := of.take(r.Context(), size); err != nil {
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
	p := &reading{began: time.Now(), held: size, rest: size - int64(len(buf)), stop: func() { _ = out.SetReadDeadline(time.Unix(1, 0)) }}
	of.follow(p)
	defer of.leave(p)
	err = in.fill(r.Body, p)
	switch {
	case p.isEnded():
		return false, errSlow
	case err == io.EOF:
		return false, nil
	case err != nil:
		return false, err
	}
	return in.beyond(r.Body)
}

// fill reads until the buffer is full.
func (in *intake) fill(from io.Reader, p *reading) error {
	for len(in.buf) < cap(in.buf) {
		n, err := from.Read(in.buf[len(in.buf):cap(in.buf)])
		in.buf = in.buf[:len(in.buf)+n]
		p.add(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// beyond returns whether a body goes on behind a full buffer; an error where it may
// not.
func (in *intake) beyond(from io.Reader) (bool, error) {
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

// explain gives an error of reading a status. The connection does not go on, since
// the rest of the body may be on its way.
func (in *intake) explain(err error) error {
	var large *http.MaxBytesError
	ctx := in.c.Request().Context()
	in.c.Response().Header().Set(echo.HeaderConnection, "close")
	switch {
	case errors.As(err, &large):
		return echo.NewHTTPError(http.StatusRequestEntityTooLarge, fmt.Sprintf("The body is larger than %d bytes.", large.Limit))
	case errors.Is(err, errShort):
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
