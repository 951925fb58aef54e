//go:build linux && cgo && cuda

package cuda

import (
	"testing"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// TestMultiplication: a request to the library has everything that a launch's arguments say.
func TestMultiplication(t *testing.T) {
	a := cuda.LibraryArgs{W: 1, X: 2, Scales: 3, Sums: 4, Bias: 5, Y: 6, Workspace: 7, In: 8, Out: 9, Most: 10}
	want := driver.Multiplication{
		Numbers: driver.F16, In: 8, Out: 9, Most: 10, Unit: cuda.LibraryUnit, W: 1, X: 2, WScales: 3, XScales: 4, Bias: 5, Y: 6, Workspace: 7,
		Bytes: backend.CUBLASLtWorkspace, Args: int(unsafe.Sizeof(a)), RowsAt: int(unsafe.Offsetof(a.Rows)),
	}
	for i, flags := range [][2]int32{{}, {1, 0}, {0, 1}} {
		a.Blocks, a.YBF16, want.Blocks, want.YBF16 = flags[0], flags[1], flags[0] == 1, flags[1] == 1
		l := launch{kernel: cuda.ChoosePlain(kernels.F16, cuda.DecodeRows+1).Kernel, args: bytesAt([]cuda.LibraryArgs{a})}
		if got := multiplication(l); got != want {
			t.Errorf("%d: %+v, want %+v", i, got, want)
		}
	}
}
