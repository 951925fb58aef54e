//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/image"
)

// device owns the arenas, the kernels and the streams of one GPU.
type device struct {
	layout    layout
	r         backend.Reservation
	*member   // the rank that it is; its ctx is nil when closed
	group     *group
	modules   map[string]*driver.Module // by the kernels' files
	blas      *driver.BLAS              // nil: all products are kernels
	finding   sync.Mutex                // of functions: several goroutines pack
	functions map[string]*driver.Function
	arenas    [backend.NumArenas]driver.Address // that of Swap as kernels see it
	offsets   []int64                           // of weights in their arena
	host      []byte                            // both sets of step buffers, as the host writes them
	mapped    driver.Address                    // host, as kernels see it
	swap      []byte                            // the Swap arena
	steps     [2]*backend.Step
	sets      [2]set
	lists     []*driver.List
	captured  []*captured
	// graphBytes is what free memory fell by while graphs were captured.
	graphBytes int64
	// before is the memory that was free when the context was there and nothing else.
	before  int64
	profile *profiler // nil: nothing is measured
	staging staging
	failed  atomic.Pointer[error] // a fatal error of the device: all that comes later fails with it
}

// set is what is known of a set of step buffers.
type set struct {
	copied, done *driver.Event
	running      bool
	limit        time.Duration // of the wait for what runs
}

var (
	_ backend.Inspector      = (*device)(nil)
	_ backend.MemoryReporter = (*device)(nil)
)

// errClosed is what a closed device answers.
var errClosed = errors.New("backend cuda: the device is closed")

// Open takes the arenas of r on the device of f and loads the kernels.
func (Opener) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	l, err := newLayout(f, s)
	if err != nil {
		return nil, err
	}
	ordinal, err := find(f)
	if err != nil {
		return nil, err
	}
	d := &device{layout: l, r: r, profile: newProfiler(s), modules: map[string]*driver.Module{}, functions: map[string]*driver.Function{}}
	if d.offsets, err = d.r.Place(name, l); err != nil {
		return nil, err
	}
	if err := d.openOn(ordinal); err != nil {
		return nil, err
	}
	return d, nil
}

// openOn opens a GPU and takes of it what the device needs.
func (d *device) openOn(ordinal int) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if d.group, err = openGroup(ordinal); err != nil {
		return err
	}
	d.member = d.group.ranks[0]
	if err := d.open(); err != nil {
		return errors.Join(fmt.Errorf("backend %s: %w", name, err), d.Close())
	}
	return nil
}

// open takes everything; the context is current.
func (d *device) open() (err error) {
	var need int64
	for a, n := range d.r.Arenas {
		if backend.Arena(a) != backend.Swap {
			need += n
		}
	}
	if err := d.ctx.Require(need); err != nil {
		return err
	}
	if d.before, _, err = d.ctx.Memory(); err != nil {
		return err
	}
	if d.layout.blas { // before anything is read for it
		if d.blas, err = d.ctx.BLAS(); err != nil {
			return err
		}
	}
	for _, stem := range cuda.Stems() {
		b, err := image.Fatbin(stem)
		if err != nil {
			return err
		}
		if d.modules[stem], err = d.ctx.Load(b); err != nil {
			return err
		}
	}
	for a, n := range d.r.Arenas {
		if backend.Arena(a) == backend.Swap || n == 0 {
			continue
		}
		if d.arenas[a], err = d.ctx.Alloc(n); err != nil {
			return fmt.Errorf("the %v arena of %d bytes: %w", backend.Arena(a), n, err)
		}
	}
	if n := d.r.Arenas[backend.Swap]; n > 0 {
		if d.swap, d.arenas[backend.Swap], err = d.ctx.Pinned(n); err != nil {
			return &backend.SwapError{Dir: "the host's memory", Need: n, Err: err}
		}
	}
	if err := d.openSteps(); err != nil {
		return err
	}
	if err := d.askLibrary(); err != nil {
		return err
	}
	if err := d.work.Fill(d.arenas[backend.Workspace], 0, counters); err != nil {
		return err
	}
	return d.work.Wait(patience)
}

// openSteps lays the step buffers out over host memory that kernels see.
func (d *device) openSteps() (err error) {
	if d.host, d.mapped, err = d.ctx.Pinned(d.r.Arenas[backend.StepIO]); err != nil {
		return err
	}
	clear(d.host)
	size := d.r.Step.SetBytes()
	for i := range d.steps {
		d.steps[i] = d.r.Step.Carve(d.host[int64(i)*size:][:size])
		if d.sets[i].copied, err = d.ctx.Event(); err != nil {
			return err
		}
		if d.sets[i].done, err = d.ctx.Event(); err != nil {
			return err
		}
	}
	return nil
}

// do calls f with the context current, unless the device is closed or has failed. A fatal
// error stays.
func (d *device) do(f func() error) error {
	if err := d.enter(); err != nil {
		return err
	}
	return d.leave(f())
}

// enter makes the context current on the thread, which is the caller's until it leaves.
func (d *device) enter() error {
	if d.ctx == nil {
		return errClosed
	}
	if failed := d.failed.Load(); failed != nil {
		return *failed
	}
	runtime.LockOSThread()
	if err := d.ctx.Enter(); err != nil {
		return d.leave(err)
	}
	return nil
}

// leave gives the thread back and returns the error of what was done on it, for good where the
// device has failed.
func (d *device) leave(err error) error {
	runtime.UnlockOSThread()
	if err == nil {
		return nil
	}
	var e *driver.Error
	if errors.As(err, &e) && e.Fatal() || hung(err) {
		return d.fail(err)
	}
	return err
}

// hung says that the device does not answer any more.
func hung(err error) bool {
	var h *driver.HungError
	return errors.As(err, &h)
}

// fail has the device answer everything with its first fatal error.
func (d *device) fail(err error) error {
	err = fmt.Errorf("backend %s: %w", name, err)
	d.failed.CompareAndSwap(nil, &err)
	return *d.failed.Load()
}

// named says of an error of do whose it is: that of a device that has failed, or is closed, says
// it already.
func (d *device) named(err error) error {
	if err == nil || err == errClosed || d.failed.Load() != nil {
		return err
	}
	return fmt.Errorf("backend %s: %w", name, err)
}

// Step returns a set's buffers.
func (d *device) Step(set int) *backend.Step { return d.steps[set] }

// Usage is what the driver was asked for; the arena of steps is so much on the device, and
// as much on the host.
func (d *device) Usage() [backend.NumArenas]int64 {
	var u [backend.NumArenas]int64
	for a, p := range d.arenas {
		if p != 0 {
			u[a] = d.r.Arenas[a]
		}
	}
	return u
}

// Memory is backend.MemoryReporter's: before is with the context.
func (d *device) Memory() (total, before, now int64, err error) {
	err = d.do(func() (err error) {
		now, total, err = d.ctx.Memory()
		return err
	})
	return total, d.before, now, err
}

// Move copies pages to the host and back, in the order of launches; nothing is waited for.
func (d *device) Move(moves []backend.PageMove) error {
	return d.named(d.do(func() error {
		for _, m := range moves {
			if err := m.Check(d.r.Classes, d.r.Arenas[backend.KV], d.r.Arenas[backend.Swap]); err != nil {
				return err
			}
			c := d.r.Classes[m.Class]
			page, slot := d.arenas[backend.KV]+driver.Address(c.Address(m.Page)), unsafe.Pointer(&d.swap[c.Address(m.Slot)])
			var err error
			if m.Out {
				err = d.work.FromDevice(slot, page, c.PageBytes())
			} else {
				err = d.work.ToDevice(page, slot, c.PageBytes())
			}
			if err != nil {
				return fmt.Errorf("swap space: %w", err)
			}
		}
		return nil
	}))
}

// Scratch is backend.Inspector's: a copy.
func (d *device) Scratch(v backend.Value, p *backend.Program) []byte {
	in := p.Values[v]
	out := make([]byte, in.Format.Bytes(int64(p.Rows(in.Rows))*int64(in.Cols)))
	if len(out) == 0 {
		return nil
	}
	err := d.do(func() error {
		if err := d.work.FromDevice(unsafe.Pointer(&out[0]), d.arenas[backend.Scratch]+driver.Address(in.Offset), int64(len(out))); err != nil {
			return err
		}
		return d.work.Wait(patience)
	})
	if err != nil {
		return nil
	}
	return out
}

// Close waits for what is running and gives everything back. What hangs keeps it: every call that
// gives back would wait for ever, and the end of the process does.
func (d *device) Close() error {
	if d.ctx == nil {
		return nil
	}
	for _, l := range d.lists {
		l.Close()
	}
	var err error
	failed := d.failed.Load()
	if failed == nil || !hung(*failed) {
		if err = d.group.wait(); err == nil {
			err = errors.Join(d.ctx.Do(d.close), d.group.close())
		}
	}
	switch {
	case failed != nil && hung(*failed):
	case hung(err):
		err = d.fail(err)
	case failed != nil: // nothing of a device that failed can be given back: its context goes
		err = d.group.release()
	default:
		err = errors.Join(err, d.group.release())
	}
	d.ctx, d.arenas, d.steps, d.sets = nil, [backend.NumArenas]driver.Address{}, [2]*backend.Step{}, [2]set{}
	return err
}

func (d *device) close() error {
	var errs []error
	for _, s := range d.sets {
		for _, e := range []*driver.Event{s.copied, s.done} {
			if e != nil {
				errs = append(errs, e.Close())
			}
		}
	}
	for _, c := range d.captured {
		errs = append(errs, c.close())
	}
	errs = append(errs, d.profile.close(), d.staging.close(d.ctx))
	if d.blas != nil {
		errs = append(errs, d.blas.Close())
	}
	for a, p := range d.arenas {
		if p != 0 && backend.Arena(a) != backend.Swap {
			errs = append(errs, d.ctx.Free(p))
		}
	}
	for _, b := range [][]byte{d.host, d.swap} {
		if b != nil {
			errs = append(errs, d.ctx.FreePinned(b))
		}
	}
	for _, m := range d.modules {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
}
