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

// staging is the pinned memory that weights go through: a goroutine fills a piece of it
// with rows, and a kernel reads them there. While one piece is on its way others are filled.
// It is there from the first Pack to the first Launch.
type staging struct {
	mu     sync.Mutex // of all below
	memory []byte
	free   chan *piece
	// tables are what kernels look up while weights are packed, by their bytes: they lie in the
	// workspace, which nobody else needs yet, from its counters on.
	tables map[string]driver.Address
	next   int64
	orders map[kernels.Format]cuda.PanelOrder // those that were found
}

// piece is a part of the memory with the stream that its rows go by. It is for one goroutine.
type piece struct {
	host    []byte
	at, bad driver.Address // host, and numberless, as kernels see them
	// numberless becomes 1 where a kernel reads a code that is no number.
	numberless *uint32
	stream     *driver.Stream
}

// open takes the memory, once.
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
			err = errors.Join(err, s.release(ctx)) // the next Pack tries again, and waits for no piece
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

// with calls f with a piece, and waits for what f gave its stream.
func (s *staging) with(f func(p *piece) error) error {
	p := <-s.free
	defer func() { s.free <- p }()
	err := errors.Join(f(p), p.stream.Wait(patience))
	if *p.numberless != 0 {
		*p.numberless = 0
		err = errors.Join(err, errNaN)
	}
	return err
}

// send copies b to the device; it returns when all is there.
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

// order is how panels of a format lie; ok is false of one without panels.
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

// copy brings the first n bytes of the piece to the device as they are.
func (p *piece) copy(to driver.Address, n int) error {
	return p.stream.ToDevice(to, unsafe.Pointer(&p.host[0]), int64(n))
}

// table is where b lies on the device, brought there by the first who asks.
func (d *device) table(p *piece, b []byte) (driver.Address, error) {
	s := &d.staging
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.tables[string(b)]; ok {
		return at, nil
	}
	end := s.next + up(int64(len(b)), align)
	if room := d.r.Arenas[backend.Workspace]; end > room {
		return 0, fmt.Errorf("the workspace of %d bytes has no room for the tables that weights are packed with", room)
	}
	at := d.arenas[backend.Workspace] + driver.Address(s.next)
	if err := errors.Join(p.stream.ToDevice(at, unsafe.Pointer(&b[0]), int64(len(b))), p.stream.Wait(patience)); err != nil {
		return 0, err
	}
	s.tables[string(b)], s.next = at, end
	return at, nil
}

// launch runs one kernel of the catalogue after the piece's work so far.
func launchOn[T any](d *device, p *piece, kernel string, blocks [3]int, args T) error {
	list, err := d.list([]launch{{kernel: kernel, blocks: blocks, threads: [3]int{cuda.PanelThreads, 1, 1}, args: bytesOf(&args)}})
	if err != nil {
		return err
	}
	defer list.Close()
	return list.Run(p.stream, 0, 1, [driver.NumBound]int32{})
}

// close gives the memory back; nobody packs.
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
