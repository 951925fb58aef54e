//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"fmt"
	"runtime"
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
	*member                             // this rank; its ctx is nil when closed
	modules   map[string]*driver.Module // by kernel file
	blas      *driver.BLAS              // nil: kernels compute all products
	notes     []string
	finding   sync.Mutex // guards functions and stack: several goroutines pack
	functions map[string]*driver.Function
	stack     int                               // bytes of stack that are reserved for a thread
	arenas    [backend.NumArenas]driver.Address // device addresses; Swap's is a mapping of swap
	offsets   []int64                           // of each weight in its arena
	shared    *memory                           // the Weights arena and its users; nil: not allocated yet
	joined    bool                              // another device packed the weights
	host      []byte                            // all sets of step buffers, in host memory
	mapped    driver.Address                    // device address of host
	swap      []byte                            // the Swap arena
	steps     []*backend.Step
	sets      []set
	encoder   encoder
	lists     []*driver.List
	captured  []*captured
	// graphBytes is by how much free memory fell during captures.
	graphBytes int64
	// before is the free memory after the context was created and before any allocation, with the
	// weights of another device as if they were free.
	before  int64
	timer   *opTimer // nil: ops are not measured
	staging staging
	lister  cuda.AttentionLister  // keeps its memory from step to step
	failed  atomic.Pointer[error] // a fatal error of the device; all later calls return it
}

// set is the state of a set of step buffers.
type set struct {
	copied, done *driver.Event
	running      bool
	limit        time.Duration // for the wait for the running launch
}

var (
	_ backend.Inspector      = (*device)(nil)
	_ backend.MemoryReporter = (*device)(nil)
	_ backend.Noter          = (*device)(nil)
)

// errClosed is the error of a closed device.
var errClosed = errors.New("backend cuda: the device is closed")

// Open allocates the arenas of r on the device of f and loads the kernels.
func (Opener) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	l, err := newLayout(f, s)
	if err != nil {
		return nil, err
	}
	for _, p := range r.Programs {
		if err := l.checkGroup(p); err != nil {
			return nil, err
		}
	}
	ordinal, err := find(f)
	if err != nil {
		return nil, err
	}
	d := &device{layout: l, r: r, timer: newOpTimer(s, r.Step.NumSets()), modules: map[string]*driver.Module{}, functions: map[string]*driver.Function{}}
	if d.offsets, err = d.r.Place(name, l); err != nil {
		return nil, err
	}
	if err := d.openOn(ordinal, s); err != nil {
		return nil, err
	}
	return d, nil
}

// openOn opens a GPU and allocates everything that the device needs.
func (d *device) openOn(ordinal int, s backend.Settings) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if d.member, err = openMember(ordinal, d.layout.group); err != nil {
		return err
	}
	if err := d.open(s); err != nil {
		return errors.Join(fmt.Errorf("backend %s: %w", name, err), d.Close())
	}
	return nil
}

// open allocates everything; the context is current.
func (d *device) open(s backend.Settings) (err error) {
	if err := d.joinWeights(s); err != nil {
		return err
	}
	d.stack, _ = stackOf(d.layout.arch())
	if err := d.ctx.ReserveStack(d.stack); err != nil { // before the arenas take what is left
		return err
	}
	var need int64
	for a, n := range d.r.Arenas {
		if backend.Arena(a) != backend.Swap {
			need += n
		}
	}
	there := d.shared.there()
	need -= there
	if err := d.ctx.Require(need); err != nil {
		return err
	}
	if d.before, _, err = d.ctx.Memory(); err != nil {
		return err
	}
	d.before += there
	if d.layout.blas { // before any weight is read
		if d.blas, err = d.ctx.BLAS(); err != nil {
			return err
		}
	}
	for _, stem := range cuda.Stems() {
		b, err := image.Code(stem, d.ctx.Code().Name)
		if err != nil {
			return err
		}
		if d.modules[stem], err = d.ctx.Load(b); err != nil {
			return err
		}
	}
	for a, n := range d.r.Arenas {
		if backend.Arena(a) == backend.Swap || n == 0 || backend.Arena(a) == backend.Weights && d.joined {
			continue
		}
		if d.arenas[a], err = d.ctx.Alloc(n); err != nil {
			return fmt.Errorf("the %v arena of %d bytes: %w", backend.Arena(a), n, err)
		}
	}
	if err := d.openWeights(s); err != nil {
		return err
	}
	if n := d.r.Arenas[backend.Swap]; n > 0 {
		if d.swap, d.arenas[backend.Swap], err = d.ctx.Pinned(n); err != nil {
			return &backend.SwapError{Dir: "the host's memory", Need: n, Err: err}
		}
	}
	if err := errors.Join(d.openSteps(), d.openEncoder()); err != nil {
		return err
	}
	if err := d.join(d.arenas[backend.Workspace]); err != nil { // before any weight is read
		return err
	}
	if err := d.askLibrary(); err != nil {
		return err
	}
	if err := d.work.Fill(d.arenas[backend.Workspace], 0, counters); err != nil {
		return err
	}
	if err := d.work.Fill(d.arenas[backend.StepIO], 0, d.r.Step.Bytes()); err != nil { // as host memory: nothing is sampled yet
		return err
	}
	if err := d.clearUnloaded(); err != nil {
		return err
	}
	return d.work.wait.until(d.work, hangTimeout)
}

// openSteps places the step buffers in host memory that kernels can access.
func (d *device) openSteps() (err error) {
	if d.host, d.mapped, err = d.ctx.Pinned(d.r.Arenas[backend.StepIO]); err != nil {
		return err
	}
	clear(d.host)
	size := d.r.Step.SetBytes()
	d.steps, d.sets = make([]*backend.Step, d.r.Step.NumSets()), make([]set, d.r.Step.NumSets())
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

// do calls f with the context current, unless the device is closed or has failed. If f
// returns a fatal error, the device has failed.
func (d *device) do(f func() error) error {
	if err := d.enter(); err != nil {
		return err
	}
	return d.leave(f())
}

// enter makes the context current and locks the goroutine to its thread until leave.
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

// leave unlocks the thread and returns the error of the work on it. If the error is fatal,
// the device has failed.
func (d *device) leave(err error) error {
	runtime.UnlockOSThread()
	if err == nil {
		return nil
	}
	var r *ranksError
	if fatal(err) || errors.As(err, &r) {
		return d.fail(err)
	}
	return err
}

// fail records err if it is fatal; from then on all calls return the first fatal error.
func (d *device) fail(err error) error {
	err = fmt.Errorf("backend %s: %w", name, err)
	d.failed.CompareAndSwap(nil, &err)
	return *d.failed.Load()
}

// named adds the device's name to an error of do. The error of a failed or closed device has
// it already.
func (d *device) named(err error) error {
	if err == nil || err == errClosed || d.failed.Load() != nil {
		return err
	}
	return fmt.Errorf("backend %s: %w", name, err)
}

// Step returns a set's buffers.
func (d *device) Step(set int) *backend.Step { return d.steps[set] }

// Usage returns the allocated bytes. The step arena has its size on the device and the same
// size again on the host.
func (d *device) Usage() [backend.NumArenas]int64 {
	var u [backend.NumArenas]int64
	for a, p := range d.arenas {
		if p != 0 {
			u[a] = d.r.Arenas[a]
		}
	}
	return u
}

// Memory implements backend.MemoryReporter; before is measured after the context was created.
func (d *device) Memory() (total, before, now int64, err error) {
	err = d.do(func() (err error) {
		now, total, err = d.ctx.Memory()
		return err
	})
	return total, d.before, now, err
}

// Move queues copies of pages to the host and back, in the order of launches. It does not
// wait.
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

// Scratch implements backend.Inspector. It returns a copy.
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
		return d.work.wait.until(d.work, hangTimeout)
	})
	if err != nil {
		return nil
	}
	return out
}
