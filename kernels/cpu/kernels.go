//go:build cgo

package cpu

import (
	"vapp.dev/kernels"
	"vapp.dev/kernels/cpu/native"
)

// Sizes that C and Go share: a difference is a compile error.
var (
	_ [native.AttentionSpan]struct{} = [attentionSpan]struct{}{}
	_ [native.AttentionTile]struct{} = [attentionTile]struct{}{}
	_ [native.AttentionPass]struct{} = [attentionPass]struct{}{}
	_ [native.AttentionDim]struct{}  = [attentionDim]struct{}{}
	_ [native.AttentionKeys]struct{} = [attentionKeys]struct{}{}
	_ [native.SampleBins]struct{}    = [sampleBins]struct{}{}
	_ [native.ConvKernel]struct{}    = [MaxConvKernel]struct{}{}
	_ [native.DeltaCols]struct{}     = [deltaCols]struct{}{}
	_ [native.DeltaKeys]struct{}     = [MaxKeyDim]struct{}{}
)

// Kernel returns the address of an op's function in a variant, a vapp_fn of
// native/shared/kernels.h. It returns false if this build has none, or if the system does not
// let this process run it.
func Kernel(op Op, variant string) (uintptr, bool) {
	n, ok := variantNumbers[variant]
	if !ok {
		return 0, false
	}
	f := native.Kernel(int(op), n)
	return f, f != 0
}

// Address returns the kernel's address, for Linear.Kernel.
func (k LinearKernel) Address() uintptr { return k.c.Address() }

// RowAddress returns the address of the kernel's row function, for Embed.Row.
func (k LinearKernel) RowAddress() uintptr { return k.c.RowAddress() }

// PrepareRows returns the number of rows from which on Linear needs OpLinearPrepare; 0: never.
func (k LinearKernel) PrepareRows() int { return k.c.PrepareRows() }

// Dequantize decodes len(dst) elements stored as f: whole blocks of any format except I32 and
// U32. src has exactly their bytes.
func Dequantize(f kernels.Format, src []byte, dst []float32) {
	if elems, _ := f.Block(); len(dst)%elems != 0 || !Lookup(f) || int64(len(src)) != f.Bytes(int64(len(dst))) {
		panic("cpu: Dequantize: lengths do not fit the format")
	}
	if len(dst) > 0 {
		native.Dequantize(int(f), src, dst)
	}
}

// RoundBF16 rounds src to bfloat16, ties to even, in dst: 2·len(src) bytes.
func RoundBF16(src []float32, dst []byte) {
	if len(dst) != 2*len(src) {
		panic("cpu: RoundBF16: lengths differ")
	}
	if len(src) > 0 {
		native.RoundBF16(src, dst)
	}
}
