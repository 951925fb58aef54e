//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// staging is the pinned memory that weights pass through. A goroutine fills a piece with
// rows, and a kernel reads them there; meanwhile other pieces are filled. It exists from the
// first Pack to the first Launch.
type staging struct {
	mu     sync.Mutex // guards the fields below
	memory []byte
	free   chan *piece
	// tables are lookup tables for kernels that pack, by content. They are in the workspace
	// behind the counters, which is unused before the first launch.
	tables map[string]driver.Address
	next   int64
	orders map[kernels.Format]cuda.PanelOrder // cache of order
}

// piece is a part of the memory, with a stream for its rows. One goroutine uses it at a time.
type piece struct {
	host    []byte
	at, bad driver.Address // device addresses of host and numberless
	// numberless becomes 1 if a kernel reads a code that is not a number.
	numberless *uint32
	stream     *driver.Stream
}

// open allocates the memory, once.
func (s *staging) open(ctx *driver.Context) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.memory != nil {
		return nil
	}
	memory, at, err := ctx.Pinned(stagingBytes)
	if err != nil {
		return err
	}
	s.memory, s.free, s.tables, s.next = memory, make(chan *piece, pieces), map[string]driver.Address{}, counters
	s.orders = map[kernels.Format]cuda.PanelOrder{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release(ctx)) // the next Pack tries again and does not wait for a piece
		}
	}()
	for i := range pieces {
		begin, flag := i*pieceBytes, pieces*pieceBytes+i*flagBytes
		p := &piece{host: memory[begin:][:pieceBytes], at: at + driver.Address(begin), bad: at + driver.Address(flag), numberless: (*uint32)(unsafe.Pointer(&memory[flag]))}
		if p.stream, err = ctx.Stream(); err != nil {
			return err
		}
		*p.numberless = 0
		s.free <- p
	}
	return nil
}

// with calls f with a piece and waits for the work on the piece's stream.
func (s *staging) with(f func(p *piece) error) error {
	p := <-s.free
	defer func() { s.free <- p }()
	err := errors.Join(f(p), p.stream.Wait(hangTimeout))
	if *p.numberless != 0 {
		*p.numberless = 0
		err = errors.Join(err, errNaN)
	}
	return err
}

// send copies b to the device; it returns when the copy is complete.
func (s *staging) send(to driver.Address, b []byte) error {
	for len(b) > 0 {
		n := min(len(b), pieceBytes)
		err := s.with(func(p *piece) error {
			copy(p.host, b[:n])
			return p.copy(to, n)
		})
		if err != nil {
			return err
		}
		to, b = to+driver.Address(n), b[n:]
	}
	return nil
}

// order returns the order of panels of a format; ok is false for a format without panels.
func (s *staging) order(f kernels.Format) (o cuda.PanelOrder, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok = s.orders[f]; ok {
		return o, true
	}
	if o, ok = cuda.OrderOf(f); ok {
		s.orders[f] = o
	}
	return o, ok
}

// copy copies the first n bytes of the piece to the device.
func (p *piece) copy(to driver.Address, n int) error {
	return p.stream.ToDevice(to, unsafe.Pointer(&p.host[0]), int64(n))
}

// table returns the device address of b. The first call for b copies it.
func (d *device) table(p *piece, b []byte) (driver.Address, error) {
	s := &d.staging
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.tables[string(b)]; ok {
		return at, nil
	}
	end := s.next + up(int64(len(b)), align)
	if size := d.r.Arenas[backend.Workspace]; end > size {
		return 0, fmt.Errorf("the workspace of %d bytes is too small for the tables that packing weights needs", size)
	}
	at := d.arenas[backend.Workspace] + driver.Address(s.next)
	if err := errors.Join(p.stream.ToDevice(at, unsafe.Pointer(&b[0]), int64(len(b))), p.stream.Wait(hangTimeout)); err != nil {
		return 0, err
	}
	s.tables[string(b)], s.next = at, end
	return at, nil
}

// launchOn runs one kernel of the catalogue after the piece's earlier work.
func launchOn[T any](d *device, p *piece, kernel string, blocks [3]int, args T) error {
	list, err := d.list([]launch{{kernel: kernel, blocks: blocks, threads: [3]int{cuda.PanelThreads, 1, 1}, args: bytesOf(&args)}})
	if err != nil {
		return err
	}
	defer list.Close()
	return list.Run(p.stream, 0, 1, [driver.NumBound]int32{})
}

// close frees the memory; Pack must not be running.
func (s *staging) close(ctx *driver.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.release(ctx)
}

func (s *staging) release(ctx *driver.Context) error {
	if s.memory == nil {
		return nil
	}
	var errs []error
	for len(s.free) > 0 {
		errs = append(errs, (<-s.free).stream.Close())
	}
	errs = append(errs, ctx.FreePinned(s.memory))
	s.memory, s.free, s.tables, s.orders = nil, nil, nil, nil
	return errors.Join(errs...)
}
