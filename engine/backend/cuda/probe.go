//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
)

// Probe returns the facts of the first device that has kernels, or else of the first device,
// which can be planned for, and whether the machine has a cuBLASLt that multiplies. Errors are those of
// driver.Devices. Where there is a cuBLASLt, the first Probe of a process opens the device and closes it
// again; else Probe allocates nothing on it.
func (Opener) Probe() (backend.Facts, error) {
	all, err := driver.Devices()
	if err != nil {
		return backend.Facts{}, err
	}
	first := all[chosen(all)]
	f, found := factsOf(first), findLibrary(first)
	f.CUBLASLt, f.NoCUBLASLt = found.Version, found.Unusable
	return f, nil
}

// FindLibrary finds the machine's cuBLASLt and makes a product with it, on the device that Probe chooses of these.
func FindLibrary(all []driver.Info) Library {
	return findLibrary(all[chosen(all)])
}

// chosen returns the index of the first device that has kernels, or else 0.
func chosen(all []driver.Info) int { return max(0, slices.IndexFunc(all, hasKernels)) }

func findLibrary(on driver.Info) Library {
	v, path, err := driver.FindBLAS()
	var none *driver.NoBLAS
	if errors.As(err, &none) && none.Absent {
		return Library{Absent: err.Error()}
	}
	l := Library{Path: path, Device: fmt.Sprintf("device %d, %s", on.Ordinal, on.Name)}
	if err == nil {
		var untried error
		if untried, err = tryLibrary(on.Ordinal, v, path); untried != nil {
			l.Untried = untried.Error()
		}
	}
	if err != nil {
		l.Unusable = err.Error()
		return l
	}
	l.Version = driver.BLASVersion(v)
	return l
}

// tried are the libraries that have multiplied in this process, which stay loaded, by tryKey. trying is held while one
// multiplies, so that two do not share the device's free memory.
var (
	tried  sync.Map
	trying sync.Mutex
)

type tryKey struct {
	ordinal, version int
	path             string
}

// tryLibrary makes a handle of the machine's cuBLASLt on a device and a product with it. err says why the library
// cannot be used. It is nil where the device cannot be opened, is full or does not answer, which is untried then,
// because a start without the library would end as well, with an error of its own.
func tryLibrary(ordinal, version int, path string) (untried, err error) {
	trying.Lock()
	defer trying.Unlock()
	key := tryKey{ordinal, version, path}
	if _, ok := tried.Load(key); ok {
		return nil, nil
	}
	ctx, err := driver.Open(ordinal)
	if err != nil {
		return err, nil
	}
	err = ctx.Do(func() error { return multiplyOnce(ctx) })
	var hung *driver.HungError
	if errors.As(err, &hung) {
		return err, nil // closing would wait for the device
	}
	closed := ctx.Close()
	if ofLibrary(err) {
		return nil, err
	}
	if err = errors.Join(err, closed); err == nil {
		tried.Store(key, true)
	}
	return err, nil
}

// ofLibrary reports whether an error of a product says something about the library, not about the device
// or its free memory.
func ofLibrary(err error) bool {
	var failed *driver.BLASError
	if errors.As(err, &failed) {
		return !failed.OutOfMemory()
	}
	var (
		none  *driver.NoBLAS
		old   *driver.BLASTooOld
		noAlg *driver.NoAlgorithm
		wrong *driver.BLASWrong
	)
	return errors.As(err, &none) || errors.As(err, &old) || errors.As(err, &noAlg) || errors.As(err, &wrong)
}

// multiplyOnce multiplies two matrices of bf16 by cuBLASLt on the device of a context that is current, and
// checks the product. It leaves nothing on the device, unless that does not answer.
func multiplyOnce(ctx *driver.Context) (err error) {
	const (
		n, size = 64, 4 << 20 // sides of the matrices; bytes of the workspace
		filled  = 0x40        // the bytes of bf16 3
		want    = 3 * 3 * n
	)
	s, err := ctx.Stream()
	if err != nil {
		return err
	}
	var frees []func() error
	defer func() {
		var hung *driver.HungError
		if errors.As(err, &hung) {
			return
		}
		for _, free := range slices.Backward(frees) {
			if e := free(); err == nil {
				err = e
			}
		}
	}()
	frees = append(frees, s.Close)
	b, err := ctx.BLAS()
	if err != nil {
		return err
	}
	frees = append(frees, b.Close)
	var at [4]driver.Address
	for i, bytes := range []int64{2 * n * n, 2 * n * n, 4 * n * n, size} {
		if at[i], err = ctx.Alloc(bytes); err != nil {
			return err
		}
		frees = append(frees, func() error { return ctx.Free(at[i]) })
		if err := s.Fill(at[i], filled, bytes); err != nil {
			return err
		}
	}
	m := driver.Multiplication{Numbers: driver.BF16, In: n, Out: n, Most: n, Unit: n, W: at[0], X: at[1], Y: at[2], Workspace: at[3], Bytes: size}
	shapes, err := b.Shapes(m)
	if err != nil {
		return err
	}
	i, err := firstThatRuns(s, shapes[0], m, func(e *driver.Event) error { return e.Wait(hangTimeout) })
	if err != nil {
		return err
	}
	y := make([]float32, n*n)
	if err := s.FromDevice(unsafe.Pointer(&y[0]), at[2], 4*n*n); err != nil {
		return err
	}
	if err := s.Wait(hangTimeout); err != nil {
		return err
	}
	for _, v := range y {
		if v != want {
			return b.Wrong(i, v, want)
		}
	}
	return nil
}

// firstThatRuns multiplies by the algorithms of a shape until the library runs one, and returns its index.
// If there is none, the error is the library's last one.
func firstThatRuns(s *driver.Stream, shape driver.Shape, m driver.Multiplication, wait func(*driver.Event) error) (i int, err error) {
	for i = range shape.Algorithms() {
		_, err = shape.Time(s, []driver.Multiplication{m}, i, wait)
		var refused *driver.BLASError
		if !errors.As(err, &refused) {
			break
		}
	}
	return i, err
}

// hasKernels reports whether there are kernels for the device that its driver loads.
func hasKernels(i driver.Info) bool {
	_, err := i.Code()
	return err == nil
}

func factsOf(i driver.Info) backend.Facts {
	f := backend.Facts{
		Backend: name, Device: i.Name, TotalBytes: i.Total, FreeBytes: i.Free(), L2Bytes: i.L2, Measured: true, MemoryLimit: "device",
		Cores: runtime.GOMAXPROCS(0), SMs: i.SMs, Capability: i.Capability(), SharedBytes: int64(i.SharedPerSM), Bandwidth: i.Bandwidth,
		Driver: i.CUDA(),
	}
	if _, err := i.Code(); err != nil {
		var old *driver.DriverTooOld
		if f.PlanOnly = "older than compute capability 8.0: planned only"; errors.As(err, &old) {
			f.PlanOnly = err.Error()
		}
	}
	return f
}

// find returns the ordinal of the device with these facts.
func find(f backend.Facts) (int, error) {
	all, err := driver.Devices()
	if err != nil {
		return 0, fmt.Errorf("backend %s: %w", name, err)
	}
	for _, i := range all {
		if i.Name == f.Device && i.Capability() == f.Capability && i.Total == f.TotalBytes {
			return i.Ordinal, nil
		}
	}
	return 0, fmt.Errorf("backend %s: %w", name, &driver.NoSuchDevice{Name: f.Device, Capability: f.Capability, Total: f.TotalBytes, Have: all})
}
