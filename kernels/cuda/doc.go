// Package cuda is the catalogue of the CUDA kernels, in plain Go: their names, arguments, grids
// and packed weights. The kernels are the .cu files of this folder, with file names as in
// kernels/ref, which defines what they compute. scripts/kernels.sh compiles them for devices;
// CodeFor says what a device loads.
// The tests here compile them for the host (emulation/) and run them without a GPU.
//
// A kernel takes one struct. Its Go form in args*.go has the same fields in the same order: Ptr
// and int64 have 8 bytes, int32 and float32 have 4, and a struct whose size is not a multiple
// of 8 ends in padding.
//
// It must not import the driver or a backend. Start reading at catalogue.go, then args.go.
package cuda

import "vapp.dev/kernels"

// Prefix begins the symbol of every kernel.
const Prefix = "vapp_"

// Ptr is an address in device memory, or 0.
type Ptr uint64

// Store returns the number of a storage format of tables, keys and values, as in numbers.cuh; ok
// is false for other formats.
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
