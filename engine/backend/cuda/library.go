//go:build linux && cgo && cuda

package cuda

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// mostCopies is how many products of a shape are timed one after the other: those of as many layers, so
// that weights come from memory and not from the cache.
const mostCopies = 4

// mostTiming limits the time of all timings of a start together.
var mostTiming = time.Minute

// askLibrary finds an algorithm for each product of the programs, before weights are read: of those
// that cuBLASLt offers the one of the file in the user's cache folder, or the fastest on this device, or
// after mostTiming the first that runs, which is not kept. It fails if there is none for one. The
// algorithms stay fixed while the device is open.
func (d *device) askLibrary() error {
	if d.blas == nil {
		return nil
	}
	of, order, err := d.shapes()
	if err != nil {
		return err
	}
	a := newAlgorithms(d.layout.facts, driver.BLASVersion(d.blas.Version()))
	path, err := a.path()
	if err != nil {
		d.note("cuBLASLt's algorithms are not kept: " + err.Error())
	} else if why := a.read(path); why != "" {
		d.note("cuBLASLt's algorithms are timed again: " + why)
	}
	used, timed, untimed := map[string]bool{}, 0, 0
	end := time.Now().Add(mostTiming)
	for _, shape := range order {
		name := shape.String()
		used[name] = true
		if i := slices.IndexFunc(shape.Algorithms(), func(b driver.Algorithm) bool { return hex.EncodeToString(b[:]) == a.Chosen[name] }); i >= 0 {
			shape.Use(i)
			continue
		}
		choose, late := d.timeShape, !time.Now().Before(end)
		if late {
			choose = d.firstOf
		}
		i, err := choose(shape, of[name])
		if err != nil {
			return err
		}
		shape.Use(i)
		if late {
			untimed++
			continue
		}
		chosen := shape.Algorithms()[i]
		a.Chosen[name] = hex.EncodeToString(chosen[:])
		timed++
	}
	if untimed > 0 {
		d.note(fmt.Sprintf("cuBLASLt's algorithms: %d of %d products were not timed within %v and run by the library's first choice; the next start times them", untimed, len(order), mostTiming))
	}
	if timed == 0 || path == "" {
		return nil
	}
	if err := a.write(path, used); err != nil {
		d.note("cuBLASLt's algorithms are not kept: " + err.Error())
	}
	return nil
}

// shapes returns the shapes of all products in a fixed order, and up to mostCopies products of each.
func (d *device) shapes() (of map[string][]driver.Multiplication, order []driver.Shape, err error) {
	of = map[string][]driver.Multiplication{}
	for _, p := range d.r.Programs {
		for _, v := range variants(p.Bucket) {
			launches, err := d.layout.lower(p, v, d.addresses(0))
			if err != nil {
				return nil, nil, err
			}
			for _, l := range launches {
				if d.layout.kernels[l.kernel].Stem != "" || l.kernel == collective {
					continue
				}
				m := multiplication(l)
				list, err := d.blas.Shapes(m)
				if err != nil {
					return nil, nil, err
				}
				for _, shape := range list {
					name := shape.String()
					if of[name] == nil {
						order = append(order, shape)
					}
					if len(of[name]) < mostCopies {
						of[name] = append(of[name], m)
					}
				}
			}
		}
	}
	return of, order, nil
}

// timeShape returns the index of the shape's fastest algorithm. One that the library refuses to run is
// left out; if it refuses all, the error is its last one.
func (d *device) timeShape(s driver.Shape, ms []driver.Multiplication) (int, error) {
	var refused error
	times := make([]time.Duration, len(s.Algorithms()))
	for i := range times {
		took, err := s.Time(d.work.Stream, ms, i, func(e *driver.Event) error { return d.work.wait.until(e, hangTimeout) })
		var b *driver.BLASError
		switch {
		case errors.As(err, &b):
			times[i], refused = -1, err
		case err != nil:
			return 0, err
		default:
			times[i] = took
		}
	}
	i := fastest(times)
	if i < 0 {
		return 0, refused
	}
	return i, nil
}

// firstOf returns the index of the first of the shape's algorithms that the library runs.
func (d *device) firstOf(s driver.Shape, ms []driver.Multiplication) (int, error) {
	return firstThatRuns(d.work.Stream, s, ms[0], func(e *driver.Event) error { return d.work.wait.until(e, hangTimeout) })
}

// note adds what Notes returns.
func (d *device) note(text string) { d.notes = append(d.notes, text) }

// Notes implements backend.Noter.
func (d *device) Notes() []string { return d.notes }

// runs sets what a launch runs: a kernel, a product of the library, or a collective.
func (d *device) runs(l launch, out *driver.Launch) (err error) {
	switch {
	case l.kernel == collective:
		out.Call = d.member.collective()
	case d.layout.kernels[l.kernel].Stem != "":
		out.Function, err = d.function(l.kernel)
	default:
		out.Product, err = d.blas.Product(multiplication(l))
	}
	return err
}

// multiplication returns a launch's request to the library.
func multiplication(l launch) driver.Multiplication {
	args := make([]cuda.LibraryArgs, 1)
	copy(bytesAt(args), l.args)
	a := args[0]
	return driver.Multiplication{
		Numbers: numbersOf[l.kernel], In: int(a.In), Out: int(a.Out), Most: int(a.Most), Unit: cuda.LibraryUnit,
		W: a.W, X: a.X, WScales: a.Scales, XScales: a.Sums, Blocks: a.Blocks != 0, Bias: a.Bias, Y: a.Y, YBF16: a.YBF16 != 0, Workspace: a.Workspace, Bytes: backend.CUBLASLtWorkspace,
		Args: len(l.args), RowsAt: int(unsafe.Offsetof(a.Rows)),
	}
}

// numbersOf maps names of formats to the library's formats of W and X.
var numbersOf = map[string]driver.Numbers{
	cuda.ChoosePlain(kernels.BF16, cuda.DecodeRows+1).Kernel:   driver.BF16,
	cuda.ChoosePlain(kernels.F16, cuda.DecodeRows+1).Kernel:    driver.F16,
	cuda.ChoosePlain(kernels.F8E4M3, cuda.DecodeRows+1).Kernel: driver.E4M3,
}
