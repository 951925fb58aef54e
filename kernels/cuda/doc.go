// Package cuda is the catalogue of the CUDA kernels: their names, arguments, grids and
// packed weights, in plain Go. The kernels are the .cu files of this folder, one stem
// an op as in kernels/ref, which defines what they compute; scripts/kernels.sh compiles
// them for devices, and the tests here for the host (emulation/), so that they run
// where there is no GPU.
//
// A kernel takes one struct. Its Go form in args*.go has the same fields in the same
// order: Ptr and int64 are 8 bytes, int32 and float32 are 4, and a struct whose size is
// no multiple of 8 ends in a field of padding.
package cuda

import "vapp.dev/kernels"

// Prefix begins the symbol of every kernel.
const Prefix = "vapp_"

// Ptr is an address in device memory; 0: none.
type Ptr uint64

// Store numbers the formats in which rows of tables, keys and values are kept, as
// numbers.cuh does; ok is false for the others.
func Store(f kernels.Format) (n int32, ok bool) {
	switch f {
	case kernels.F32:
		return 0, true
	case kernels.F16:
		return 1, true
	case kernels.BF16:
		return 2, true
	case kernels.F8E4M3:
		return 3, true
	case kernels.F8E5M2:
		return 4, true
	}
	return 0, false
}
