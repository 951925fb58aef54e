package front

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"vapp.dev/appliance/api"
	"vapp.dev/appliance/api/budget"
	"vapp.dev/appliance/chat"
)

// Bodies are read up to the name of their model, and kept until the member has read them. Clients
// that write the name last have the whole body in memory here.
const (
	firstBytes = 4 << 10
	smallBody  = 64 << 10 // larger bodies have their own budget, so that small ones do not wait for them
	smallBytes = 4 << 20  // of all small bodies
)

// BodyBytes returns the memory that a front needs for bodies if the largest has that many bytes.
func BodyBytes(largest int64) int64 { return smallBytes + max(smallBody, largest) }

// bodies are the budgets of bodies whose model is looked for.
type bodies struct {
	small, large *budget.Budget
	largest      int64
}

func newBodies(largest int64) bodies {
	return bodies{budget.New(smallBytes), budget.New(max(smallBody, largest)), largest}
}

func (b bodies) of(bytes int64) *budget.Budget {
	if bytes <= smallBody {
		return b.small
	}
	return b.large
}

// intake reads a body until its model is known.
type intake struct {
	w     http.ResponseWriter
	r     *http.Request
	b     bodies
	scan  scan
	buf   []byte
	of    *budget.Budget // of the reserved bytes
	bytes int64
}

// errLarge is a body that is larger than any member takes.
var errLarge = errors.New("the body is too large")

// errSlow is a body that was ended because others waited.
var errSlow = errors.New("the body came too slowly while other requests were waiting to send theirs")

// read reads the body up to its model. It replaces the request's body by one that begins with what
// was read, and whose Close releases the reserved bytes.
func (in *intake) read(timeout time.Duration) error {
	if in.r.ContentLength > in.b.largest {
		return errLarge
	}
	out := http.NewResponseController(in.w)
	if timeout > 0 {
		_ = out.SetReadDeadline(time.Now().Add(timeout)) // tests have writers without deadlines
	}
	for more := true; more && !in.scan.done(); {
		var err error
		if more, err = in.step(out); err != nil {
			in.release()
			return err
		}
	}
	if timeout > 0 {
		_ = out.SetReadDeadline(time.Time{}) // the member sets its own
	}
	in.r.Body = &replay{read: in.buf, rest: in.r.Body, release: sync.OnceFunc(in.release)}
	return nil
}

func (in *intake) release() {
	if in.of != nil {
		in.of.Give(in.bytes)
		in.of = nil
	}
}

// size returns the size of the next buffer.
func (in *intake) size() int64 {
	length := in.r.ContentLength
	switch have := int64(cap(in.buf)); {
	case length >= 0 && (have >= firstBytes || length <= firstBytes):
		return length
	case have < firstBytes:
		return min(firstBytes, in.b.largest)
	case have < smallBody:
		return min(smallBody, in.b.largest)
	}
	return in.b.largest
}

// step reserves and fills the next buffer. It returns true if the body goes on.
func (in *intake) step(out *http.ResponseController) (more bool, err error) {
	size := in.size()
	if size <= int64(len(in.buf)) { // the body is read, or longer than the limit
		if in.r.ContentLength >= 0 {
			return false, nil
		}
		if n, _ := io.ReadFull(in.r.Body, make([]byte, 1)); n > 0 {
			return false, errLarge
		}
		return false, nil
	}
	if len(in.buf) <= firstBytes {
		in.release() // a request must not wait for more of a budget that it holds part of
	}
	of := in.b.of(size)
	if err := of.Take(in.r.Context(), size); err != nil {
		return false, err
	}
	in.release()
	in.of, in.bytes = of, size
	buf := make([]byte, len(in.buf), size)
	copy(buf, in.buf)
	in.buf = buf
	p := budget.NewReading(size, size-int64(len(buf)), func() { _ = out.SetReadDeadline(time.Unix(1, 0)) })
	of.Follow(p)
	defer of.Leave(p)
	switch err = in.fill(p); {
	case p.Ended():
		return false, errSlow
	case err == io.EOF:
		return false, nil
	}
	return true, err
}

// fill reads until the buffer is full or the model is known.
func (in *intake) fill(p *budget.Reading) error {
	for len(in.buf) < cap(in.buf) && !in.scan.done() {
		n, err := in.r.Body.Read(in.buf[len(in.buf):cap(in.buf)])
		in.scan.write(in.buf[len(in.buf) : len(in.buf)+n])
		in.buf = in.buf[:len(in.buf)+n]
		p.Add(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// refuse answers a request whose body could not be read.
func (in *intake) refuse(err error) {
	switch {
	case errors.Is(err, errLarge):
		api.WriteStatus(in.w, in.r, http.StatusRequestEntityTooLarge, fmt.Sprintf("The body is larger than %d bytes.", in.b.largest))
	case errors.Is(err, budget.ErrShort):
		api.WriteError(in.w, in.r, chat.Errorf(chat.Overloaded, "", "The server is overloaded: it is reading as many request bodies as its memory plan allows. Please try again later."))
	case errors.Is(err, errSlow):
		api.WriteStatus(in.w, in.r, http.StatusRequestTimeout, "The body came too slowly while other requests were waiting to send theirs.")
	case errors.Is(err, os.ErrDeadlineExceeded):
		api.WriteStatus(in.w, in.r, http.StatusRequestTimeout, "The body did not come in time (serve.timeouts.body).")
	default:
		api.WriteError(in.w, in.r, chat.Errorf(chat.Malformed, "", "The body could not be read to its end."))
	}
}

// replay is a body whose beginning was read.
type replay struct {
	read    []byte
	rest    io.ReadCloser
	release func()
}

// Read returns what was read first. Then it releases its memory.
func (b *replay) Read(p []byte) (int, error) {
	if len(b.read) == 0 {
		return b.rest.Read(p)
	}
	n := copy(p, b.read)
	if b.read = b.read[n:]; len(b.read) == 0 {
		b.read = nil
		b.release()
	}
	return n, nil
}

// Close closes the body and releases its memory.
func (b *replay) Close() error {
	b.read = nil
	b.release()
	return b.rest.Close()
}
