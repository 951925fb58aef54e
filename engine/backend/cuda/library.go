//go:build linux && cgo && cuda

package cuda

import (
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// askLibrary asks cuBLASLt for an algorithm for each product of the programs, before weights
// are read. It fails if there is none for one. The algorithms stay fixed while the device is
// open.
func (d *device) askLibrary() error {
	if d.blas == nil {
		return nil
	}
	for _, p := range d.r.Programs {
		for _, v := range variants(p.Bucket) {
			launches, err := d.layout.lower(p, v, d.addresses(0))
			if err != nil {
				return err
			}
			for _, l := range launches {
				if d.layout.kernels[l.kernel].Stem != "" || l.kernel == collective {
					continue
				}
				if err := d.blas.Ask(multiplication(l)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

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
		W: a.W, X: a.X, WScales: a.Scales, XScales: a.Sums, Blocks: a.Blocks != 0, Bias: a.Bias, Y: a.Y, Workspace: a.Workspace, Bytes: backend.CUBLASLtWorkspace,
		Args: len(l.args), RowsAt: int(unsafe.Offsetof(a.Rows)),
	}
}

// numbersOf maps names of formats to the library's formats of W and X.
var numbersOf = map[string]driver.Numbers{
	cuda.ChoosePlain(kernels.BF16, cuda.DecodeRows+1).Kernel:   driver.BF16,
	cuda.ChoosePlain(kernels.F16, cuda.DecodeRows+1).Kernel:    driver.F16,
	cuda.ChoosePlain(kernels.F8E4M3, cuda.DecodeRows+1).Kernel: driver.E4M3,
}
