//go:build cgo

package cpu

/*
#include "linear_int8_amx.h"
#include "linear_w8a8_amx.h"

static void vapp_linear_call(const vapp_linear_kernel *k, int prepare, vapp_linear *a, int part, int parts,
	const void *w, const float *bias, const float *x, float *y, void *shared, void *work, int64_t *taken)
{
	a->w = w, a->bias = bias, a->x = x, a->y = y, a->shared = shared, a->work = work, a->taken = taken;
	if (!prepare) k->run(a, part, parts);
	else if (k->prepare && a->rows >= k->prepare_rows) k->prepare(a, part, parts);
}

static void vapp_linear_row_call(const vapp_linear_kernel *k, const void *w, int format, int in, int out, int r, float *dst)
{
	k->row(w, format, in, out, r, dst);
}
*/
import "C"

import (
	"fmt"
	"unsafe"

	"vapp.dev/kernels"
)

// Numbers that C and Go share: a difference is a type error.
var (
	_ [C.VAPP_F32]struct{}  = [kernels.F32]struct{}{}
	_ [C.VAPP_F16]struct{}  = [kernels.F16]struct{}{}
	_ [C.VAPP_BF16]struct{} = [kernels.BF16]struct{}{}
	_ [C.VAPP_Q8_0]struct{} = [kernels.Q8_0]struct{}{}
	_ [C.VAPP_Q4_0]struct{} = [kernels.Q4_0]struct{}{}
	_ [C.VAPP_Q4_1]struct{} = [kernels.Q4_1]struct{}{}
	_ [C.VAPP_Q4_K]struct{} = [kernels.Q4_K]struct{}{}
	_ [C.VAPP_Q6_K]struct{} = [kernels.Q6_K]struct{}{}
	_ [C.VAPP_Q5_0]struct{} = [kernels.Q5_0]struct{}{}
	_ [C.VAPP_Q5_1]struct{} = [kernels.Q5_1]struct{}{}
	_ [C.VAPP_Q2_K]struct{} = [kernels.Q2_K]struct{}{}
	_ [C.VAPP_Q3_K]struct{} = [kernels.Q3_K]struct{}{}
	_ [C.VAPP_Q5_K]struct{} = [kernels.Q5_K]struct{}{}

	_ [C.VAPP_IQ4_NL]struct{} = [kernels.IQ4_NL]struct{}{}
	_ [C.VAPP_I8]struct{}     = [kernels.I8]struct{}{}

	_ [C.VAPP_F8_E4M3]struct{} = [kernels.F8E4M3]struct{}{}
	_ [C.VAPP_F8_E5M2]struct{} = [kernels.F8E5M2]struct{}{}
	_ [C.VAPP_MXFP4]struct{}   = [kernels.MXFP4]struct{}{}

	_ [C.VAPP_CHANNEL_SCALES]struct{} = [ChannelScales]struct{}{}
	_ [C.VAPP_BLOCK_SCALES]struct{}   = [BlockScales]struct{}{}
	_ [C.VAPP_PANEL_SCALES]struct{}   = [PanelScales]struct{}{}
	_ [C.VAPP_GROUP_SCALES]struct{}   = [GroupScales]struct{}{}
	_ [C.SCALE_K]struct{}             = [scaleK]struct{}{}
	_ [C.MX_K]struct{}                = [mxK]struct{}{}

	_ [C.PANEL]struct{}             = [panelRows]struct{}{}
	_ [C.KBLOCK]struct{}            = [kBlock]struct{}{}
	_ [C.TILE_ROWS]struct{}         = [amxRows]struct{}{}
	_ [C.TILE_K]struct{}            = [amxK]struct{}{}
	_ [C.FEW]struct{}               = [fewRows]struct{}{}
	_ [C.PAIR_ROOM]struct{}         = [pairRoom]struct{}{}
	_ [C.KTILES * C.TILE_K]struct{} = [amxBlock]struct{}{}

	_ [C.GROUP]struct{}      = [int8Group]struct{}{}
	_ [C.INT8_TILE]struct{}  = [int8Tile]struct{}{}
	_ [C.X_DWORDS]struct{}   = [int8Words]struct{}{}
	_ [C.INT8_BLOCK]struct{} = [int8Block]struct{}{}

	_ [C.W8_K]struct{}    = [w8K]struct{}{}
	_ [C.W8_TAIL]struct{} = [w8Tail]struct{}{}
	_ [C.W8_MOST]struct{} = [w8Most]struct{}{}

	_ [C.INT8_AMX_ROOM]struct{} = [int8AMXRoom]struct{}{}
)

// SoftAMX is amx on tiles in memory: what tests run on a machine without tiles.
const SoftAMX = "amx-soft"

var variantNumbers = map[string]C.int{
	"generic":    C.VAPP_GENERIC,
	"avx2":       C.VAPP_AVX2,
	"avx512":     C.VAPP_AVX512,
	"avx512bf16": C.VAPP_AVX512_BF16,
	"amx":        C.VAPP_AMX,
	SoftAMX:      C.VAPP_AMX_SOFT,

	"generic" + int8Suffix:    C.VAPP_INT8 + C.VAPP_GENERIC,
	"avx2" + int8Suffix:       C.VAPP_INT8 + C.VAPP_AVX2,
	"avx512" + int8Suffix:     C.VAPP_INT8 + C.VAPP_AVX512,
	"avx512bf16" + int8Suffix: C.VAPP_INT8 + C.VAPP_AVX512_BF16,
	"amx" + int8Suffix:        C.VAPP_INT8 + C.VAPP_AMX,
	SoftAMX + int8Suffix:      C.VAPP_INT8 + C.VAPP_AMX_SOFT,
	SoftAMX + w8a8Suffix:      C.VAPP_W8A8 + C.VAPP_AMX_SOFT,

	"generic" + w8a8Suffix:    C.VAPP_W8A8 + C.VAPP_GENERIC,
	"avx2" + w8a8Suffix:       C.VAPP_W8A8 + C.VAPP_AVX2,
	"avx512" + w8a8Suffix:     C.VAPP_W8A8 + C.VAPP_AVX512,
	"avx512bf16" + w8a8Suffix: C.VAPP_W8A8 + C.VAPP_AVX512_BF16,
	"amx" + w8a8Suffix:        C.VAPP_W8A8 + C.VAPP_AMX,
}

// LinearKernel is Linear of one variant for one stored format.
type LinearKernel struct {
	c       *C.vapp_linear_kernel
	variant string
	format  kernels.Format
	scales  Scales
}

// LinearFor returns the kernel of a variant; false where this build has none.
// The CPU must have the variant's instructions.
func LinearFor(variant string, f kernels.Format) (LinearKernel, bool) {
	n, ok := variantNumbers[variant]
	if !ok {
		return LinearKernel{}, false
	}
	k := C.vapp_linear_for(n, C.int(f))
	return LinearKernel{c: k, variant: variant, format: f}, k != nil
}

// Kernel is the kernel that multiplies with m; false where this build has none.
func (m Matrix) Kernel() (LinearKernel, bool) {
	k, ok := LinearFor(m.Variant, m.Format)
	k.scales = m.Scales
	return k, ok
}

// Code is the kernel's stored format and scales, as Linear.Format and Embed.Format
// want them.
func (k LinearKernel) Code() int32 { return int32(k.format) + C.VAPP_SCALES*int32(k.scales) }

// matrix is a weight [rows,cols] of the kernel.
func (k LinearKernel) matrix(rows, cols int) Matrix {
	return Matrix{k.variant, k.format, k.scales, rows, cols}
}

// softTiles is the AMX kernel on tiles kept in memory: what tests run on a machine
// that has its other instructions. Workspaces are those of "amx".
func softTiles(f kernels.Format) (LinearKernel, bool) {
	k := C.vapp_linear_for(C.VAPP_AMX_SOFT, C.int(f))
	return LinearKernel{c: k, variant: "amx", format: f}, k != nil
}

// tileCounts is what the unit of tiles in memory did on this thread, for W8A8, since it was last asked.
func tileCounts() (loads, products int64) {
	var l, p C.int64_t
	C.vapp_w8a8_soft_counts(&l, &p)
	return int64(l), int64(p)
}

// LinearArgs is Y [Rows,Out] = X [Rows,In] · Wᵀ + Bias. W is a packed weight.
// Rows of X and Y are LdX and LdY floats apart. Shared and Work have at least
// the bytes of LinearWorkspace; they and W are aligned to 64 bytes. Parts that
// run at once have Work of their own. Bias may be empty. Parts that share Taken, 0 before
// the first, take panels from it until none is left; without it each has its own.
type LinearArgs struct {
	Rows, In, Out int
	W             []byte
	Bias, X, Y    []float32
	LdX, LdY      int
	Shared, Work  []byte
	Taken         *int64
}

// Prepare does part of parts of what must be finished before the first Run.
func (k LinearKernel) Prepare(a *LinearArgs, part, parts int) { k.call(a, 1, part, parts) }

// Run computes part of parts of Y.
func (k LinearKernel) Run(a *LinearArgs, part, parts int) { k.call(a, 0, part, parts) }

// Row unpacks row r of a packed weight [out,in] to dst [in].
func (k LinearKernel) Row(w []byte, in, out, r int, dst []float32) {
	if packed, _, ok := k.matrix(out, in).Layout(); !ok || int64(len(w)) < packed || r < 0 || r >= out || len(dst) < in {
		panic(fmt.Sprintf("cpu: row %d of [%d,%d] %v in %d bytes to %d floats", r, out, in, k.format, len(w), len(dst)))
	}
	C.vapp_linear_row_call(k.c, unsafe.Pointer(&w[0]), C.int(k.Code()), C.int(in), C.int(out), C.int(r), floatPointer(dst))
}

func (k LinearKernel) call(a *LinearArgs, prepare, part, parts int) {
	if a.Rows == 0 {
		return
	}
	k.check(a, part, parts)
	c := C.vapp_linear{
		ldx: C.int64_t(a.LdX), ldy: C.int64_t(a.LdY), rows: C.int32_t(a.Rows), in: C.int32_t(a.In), out: C.int32_t(a.Out),
		format: C.int32_t(k.Code()), shared_bytes: C.int64_t(len(a.Shared)), work_bytes: C.int64_t(len(a.Work)),
	}
	C.vapp_linear_call(k.c, C.int(prepare), &c, C.int(part), C.int(parts), unsafe.Pointer(&a.W[0]), floatPointer(a.Bias),
		floatPointer(a.X), floatPointer(a.Y), unsafe.Pointer(unsafe.SliceData(a.Shared)), unsafe.Pointer(unsafe.SliceData(a.Work)), (*C.int64_t)(unsafe.Pointer(a.Taken)))
}

// check panics where the slices are too short for the shapes.
func (k LinearKernel) check(a *LinearArgs, part, parts int) {
	packed, _, ok := k.matrix(a.Out, a.In).Layout()
	shared, work := LinearWorkspace(k.variant, k.format, a.Rows, a.In, a.Out, parts)
	switch {
	case !ok, int64(len(a.W)) < packed, a.Rows < 0, part < 0, part >= parts:
	case len(a.Bias) > 0 && len(a.Bias) < a.Out, a.LdX < a.In, a.LdY < a.Out:
	case len(a.X) < (a.Rows-1)*a.LdX+a.In, len(a.Y) < (a.Rows-1)*a.LdY+a.Out:
	case int64(len(a.Shared)) < shared, int64(len(a.Work)) < work:
	default:
		return
	}
	panic(fmt.Sprintf("cpu: Linear %s %v [%d,%d]·[%d,%d]ᵀ part %d of %d: a slice is too short", k.variant, k.format,
		a.Rows, a.In, a.Out, a.In, part, parts))
}

// floatPointer is NULL for an empty slice.
func floatPointer(s []float32) *C.float {
	if len(s) == 0 {
		return nil
	}
	return (*C.float)(unsafe.Pointer(&s[0]))
}
