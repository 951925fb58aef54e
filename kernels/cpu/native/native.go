//go:build cgo

package native

/*
#cgo LDFLAGS: -lm
#include "linear/amx_quant.h"
#include "linear/int8/int8.h"
#include "linear/panel.h"
#include "linear/stored.h"
#include "linear/w8a8/amx.h"
#include "linear/w8a8/w8a8.h"
#include "shared/experts.h"
#include "shared/kernels.h"
#include "shared/linear.h"
#include "shared/quantize.h"
#include "shared/tiles_count.h"
#include "sizes.h"

static void vapp_op_call(uintptr_t f, uintptr_t args, const int32_t *rows)
{
	vapp_call c = {.parts = 1, .rows = rows};
	((vapp_fn)f)((const void *)args, &c);
}

static void vapp_limit_call(uintptr_t f, const void *buffer, int64_t bytes, int64_t rounds, int part, int parts, float *sink)
{
	vapp_limit a = {buffer, bytes, rounds, sink};
	vapp_call c = {.part = part, .parts = parts};
	((vapp_fn)f)(&a, &c);
}

static void vapp_linear_call(const vapp_linear_kernel *k, int prepare, vapp_linear *a, int part, int parts,
	const void *w, const float *bias, const float *x, float *y, void *shared, void *work, int64_t *taken, int32_t node, int32_t nodes, const int32_t *threads)
{
	a->w = w, a->bias = bias, a->x = x, a->y = y, a->shared = shared, a->work = work, a->taken = taken;
	a->nodes.node = node, a->nodes.nodes = nodes, a->nodes.threads = threads;
	if (!prepare) k->run(a, part, parts);
	else if (k->prepare && a->rows >= k->prepare_rows) k->prepare(a, part, parts);
}

// vapp_linear_taken writes the units that a part takes, in order, to out [n] and returns how many.
static int64_t vapp_linear_taken(vapp_linear *a, int64_t *taken, int32_t node, int32_t nodes, const int32_t *threads,
	int tile, int part, int parts, int64_t *out, int64_t n)
{
	a->taken = taken, a->nodes.node = node, a->nodes.nodes = nodes, a->nodes.threads = threads;
	linear_grid g = grid_of(a, tile, part, parts);
	int64_t got = 0;
	for (int64_t u; got < n && (u = linear_unit(a, &g)) >= 0;) out[got++] = u;
	return got;
}

static void vapp_linear_row_call(const vapp_linear_kernel *k, const void *w, int format, int in, int out, int r, float *dst)
{
	k->row(w, format, in, out, r, dst);
}
*/
import "C"

import (
	"runtime"
	"unsafe"

	"vapp.dev/kernels/cpu/isa"

	// The C of the families.
	_ "vapp.dev/kernels/cpu/native/activation"
	_ "vapp.dev/kernels/cpu/native/attention"
	_ "vapp.dev/kernels/cpu/native/experts"
	_ "vapp.dev/kernels/cpu/native/formats"
	_ "vapp.dev/kernels/cpu/native/limits"
	_ "vapp.dev/kernels/cpu/native/linear"
	_ "vapp.dev/kernels/cpu/native/linear/int8"
	_ "vapp.dev/kernels/cpu/native/linear/w8a8"
	_ "vapp.dev/kernels/cpu/native/norm"
	_ "vapp.dev/kernels/cpu/native/portable"
	_ "vapp.dev/kernels/cpu/native/sample"
	_ "vapp.dev/kernels/cpu/native/shared"
	_ "vapp.dev/kernels/cpu/native/state"
)

// Variants of the kernels, with the numbers of C. Int8 or W8A8 is added to another one.
const (
	Generic    = C.VAPP_GENERIC
	AVX2       = C.VAPP_AVX2
	AVX512     = C.VAPP_AVX512
	AVX512BF16 = C.VAPP_AVX512_BF16
	AMX        = C.VAPP_AMX
	AMXSoft    = C.VAPP_AMX_SOFT
	NEON       = C.VAPP_NEON
	DotProd    = C.VAPP_DOTPROD
	I8MM       = C.VAPP_I8MM

	AMXOutside     = C.VAPP_AMX_OUTSIDE
	AMXOutsideSoft = C.VAPP_AMX_OUTSIDE_SOFT

	AVX2Pairs = C.VAPP_AVX2_PAIRS

	Int8 = C.VAPP_INT8
	W8A8 = C.VAPP_W8A8
)

// Numbers of formats and scales; package cpu checks that its own are equal.
const (
	F32     = C.VAPP_F32
	F16     = C.VAPP_F16
	BF16    = C.VAPP_BF16
	Q8_0    = C.VAPP_Q8_0
	Q4_0    = C.VAPP_Q4_0
	Q4_1    = C.VAPP_Q4_1
	Q4_K    = C.VAPP_Q4_K
	Q6_K    = C.VAPP_Q6_K
	Q5_0    = C.VAPP_Q5_0
	Q5_1    = C.VAPP_Q5_1
	Q2_K    = C.VAPP_Q2_K
	Q3_K    = C.VAPP_Q3_K
	Q5_K    = C.VAPP_Q5_K
	IQ4_NL  = C.VAPP_IQ4_NL
	IQ4_XS  = C.VAPP_IQ4_XS
	IQ3_XXS = C.VAPP_IQ3_XXS
	IQ3_S   = C.VAPP_IQ3_S
	IQ2_XXS = C.VAPP_IQ2_XXS
	IQ2_XS  = C.VAPP_IQ2_XS
	IQ2_S   = C.VAPP_IQ2_S
	IQ1_S   = C.VAPP_IQ1_S
	IQ1_M   = C.VAPP_IQ1_M
	TQ1_0   = C.VAPP_TQ1_0
	TQ2_0   = C.VAPP_TQ2_0
	NVFP4   = C.VAPP_NVFP4
	I8      = C.VAPP_I8
	I4      = C.VAPP_I4
	F8E4M3  = C.VAPP_F8_E4M3
	F8E5M2  = C.VAPP_F8_E5M2
	MXFP4   = C.VAPP_MXFP4

	ChannelScales = C.VAPP_CHANNEL_SCALES
	BlockScales   = C.VAPP_BLOCK_SCALES
	PanelScales   = C.VAPP_PANEL_SCALES
	GroupScales   = C.VAPP_GROUP_SCALES
	Scales        = C.VAPP_SCALES // a code is a format and this many times its scales
)

// Sizes of layouts; package cpu checks that its own are equal.
const (
	ScaleK         = C.SCALE_K
	MXK            = C.MX_K
	NVBytes        = C.NV_BYTES
	Panel          = C.PANEL
	KBlock         = C.KBLOCK
	TileRows       = C.TILE_ROWS
	TileK          = C.TILE_K
	TilesK         = C.KTILES
	BF16Pairs      = C.BF16_PAIRS
	BF16StepTiles  = C.BF16_STEP_TILES
	BF16Group      = C.BF16_GROUP
	DecodeRows     = C.DECODE_ROWS
	PairWorkBytes  = C.PAIR_WORK_BYTES
	Group          = C.GROUP
	Int8Tile       = C.INT8_TILE
	XDwords        = C.X_DWORDS
	Int8Block      = C.INT8_BLOCK
	W8K            = C.W8_K
	W8Tail         = C.W8_TAIL
	W8Most         = C.W8_MOST
	QuantWorkBytes = C.sizeof_quant_work
	QuantChunk     = C.QUANT_CHUNK
	QuantSpan      = C.QUANT_SPAN
	QuantPanels    = C.QUANT_PANELS
	QuantFew       = C.QUANT_FEW
	BFMMLATile     = C.BFMMLA_TILE
	StoredWork     = C.STORED_WORK
	StoredMost     = C.STORED_MOST

	ExpertsPhases = C.VAPP_EXPERTS_PHASES

	AttentionSpan = C.VAPP_ATTENTION_SPAN
	AttentionTile = C.VAPP_ATTENTION_TILE
	AttentionPass = C.VAPP_ATTENTION_PASS
	AttentionDim  = C.VAPP_ATTENTION_DIM
	AttentionKeys = C.VAPP_ATTENTION_KEYS
	SampleBins    = C.VAPP_SAMPLE_BINS
	ConvKernel    = C.VAPP_CONV_KERNEL
	DeltaCols     = C.VAPP_DELTA_COLS
	DeltaKeys     = C.VAPP_DELTA_KEYS
)

// StructSizes returns the bytes of the operands' structs, in the order of sizes.h, and those of
// vapp_stack and vapp_experts.
func StructSizes() (structs [27]int, stack, experts uintptr) {
	for i := range structs {
		structs[i] = int(C.vapp_size(C.int(i)))
	}
	return structs, C.sizeof_vapp_stack, C.sizeof_vapp_experts
}

// permitted reports whether the system lets this process run a variant's kernels: AMX needs its
// tile registers granted.
func permitted(variant int) bool {
	return variant != AMX && variant != AMXOutside && variant != W8A8+AMX || isa.Tiles() == nil
}

// Kernel returns the address of an op's function, a vapp_fn; 0 if there is none that this
// process may run.
func Kernel(op, variant int) uintptr {
	if !permitted(variant) {
		return 0
	}
	return uintptr(unsafe.Pointer(C.vapp_kernel(C.int(op), C.int(variant))))
}

// ExpertsPhase returns the address of a phase's function, a vapp_fn.
func ExpertsPhase(phase int) uintptr {
	return uintptr(unsafe.Pointer(C.vapp_experts_phase(C.int(phase))))
}

// Limit runs part of parts of an op that measures a limit: it reads buffer once, or does
// `rounds` rounds. sink has 16 floats for each part.
func Limit(kernel uintptr, buffer []byte, rounds int64, part, parts int, sink []float32) {
	C.vapp_limit_call(C.uintptr_t(kernel), unsafe.Pointer(unsafe.SliceData(buffer)), C.int64_t(len(buffer)), C.int64_t(rounds),
		C.int(part), C.int(parts), floats(sink))
}

// Dequantize decodes len(dst) elements of a format.
func Dequantize(format int, src []byte, dst []float32) {
	C.vapp_dequantize(C.int32_t(format), unsafe.Pointer(&src[0]), C.int64_t(len(dst)), (*C.float)(&dst[0]))
}

// RoundBF16 rounds to bfloat16.
func RoundBF16(src []float32, dst []byte) {
	C.vapp_round_bf16(floats(src), C.int64_t(len(src)), (*C.uint16_t)(unsafe.Pointer(&dst[0])))
}

// RoundF16 rounds to binary16.
func RoundF16(src []float32, dst []byte) {
	C.vapp_round_f16(floats(src), C.int64_t(len(src)), (*C.uint16_t)(unsafe.Pointer(&dst[0])))
}

// QuantizeE4M3 stores x as F8E4M3 and returns its scale, or a NaN or an infinity of x.
func QuantizeE4M3(x []float32, dst []byte) float32 {
	return float32(C.vapp_quantize_e4m3(floats(x), C.int64_t(len(x)), (*C.uint8_t)(&dst[0])))
}

// Levels is bytes of whole cache lines, by where the line was: the modelled first cache (48
// KiB), the second (2 MiB), or beyond.
type Levels struct{ L1, L2, Beyond int64 }

// TileCounts is what kernels on tiles in memory did; see shared/tiles_count.h.
type TileCounts struct {
	Loads, Products, Stores int64  // tiles
	Unpacks                 int64  // instructions that unpack or convert weights
	Tile, Vector, Store     Levels // loads of tiles, reads of vectors, stores of both
	Fetch, FetchNear        Levels // lines prefetched to the second cache, and to the first
	Streamed                int64  // bytes stored past the caches
}

// Beyond returns the bytes that came from beyond the second cache.
func (c TileCounts) Beyond() int64 {
	return c.Tile.Beyond + c.Vector.Beyond + c.Store.Beyond + c.Fetch.Beyond + c.FetchNear.Beyond
}

// Call runs an op's kernel on this thread: args is the address of its operands, rows the count of
// each row symbol.
func Call(kernel, args uintptr, rows []int32) {
	C.vapp_op_call(C.uintptr_t(kernel), C.uintptr_t(args), (*C.int32_t)(unsafe.Pointer(&rows[0])))
}

// CountTiles returns what kernels on tiles in memory do while f runs, on f's thread, starting
// with empty caches.
func CountTiles(f func()) TileCounts {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if C.vapp_count_tiles() == 0 {
		panic("native: no memory to count tiles")
	}
	f()
	var c C.vapp_tile_counts
	C.vapp_counted_tiles(&c)
	levels := func(by int) Levels {
		b := c.bytes[by]
		return Levels{int64(b[0]), int64(b[1]), int64(b[2])}
	}
	return TileCounts{Loads: int64(c.loads), Products: int64(c.products), Stores: int64(c.stores), Unpacks: int64(c.unpacks),
		Tile: levels(C.VAPP_BY_TILE), Vector: levels(C.VAPP_BY_VECTOR), Store: levels(C.VAPP_BY_STORE),
		Fetch: levels(C.VAPP_BY_FETCH), FetchNear: levels(C.VAPP_BY_FETCH_NEAR), Streamed: int64(c.streamed)}
}

// Linear is a kernel of Linear for one variant and one format. The zero Linear has none.
type Linear struct{ c *C.vapp_linear_kernel }

// LinearFor returns the kernel of a variant for a format; false if there is none that this
// process may run.
func LinearFor(variant, format int) (Linear, bool) {
	if !permitted(variant) {
		return Linear{}, false
	}
	k := C.vapp_linear_for(C.int(variant), C.int(format))
	return Linear{k}, k != nil
}

// Address returns the kernel's address, RowAddress that of its row function.
func (k Linear) Address() uintptr    { return uintptr(unsafe.Pointer(k.c)) }
func (k Linear) RowAddress() uintptr { return uintptr(unsafe.Pointer(k.c.row)) }

// PrepareRows returns the number of rows from which on Prepare is needed; 0: never.
func (k Linear) PrepareRows() int {
	if k.c.prepare == nil {
		return 0
	}
	return max(1, int(k.c.prepare_rows))
}

// Row unpacks row r of a packed weight [out,in].
func (k Linear) Row(w []byte, code int32, in, out, r int, dst []float32) {
	C.vapp_linear_row_call(k.c, unsafe.Pointer(&w[0]), C.int(code), C.int(in), C.int(out), C.int(r), floats(dst))
}

// LinearArgs is Y [Rows,Out] = X [Rows,In] · Wᵀ + Bias. W is a packed weight. Rows of X and Y
// are LdX and LdY floats apart. Shared and Work are workspaces; they and W are aligned to 64
// bytes. Parts that run at the same time need a Work each. Bias may be empty. With Taken,
// counters that are 0 before the first part, parts take panels from them until none is left;
// without it each has a fixed share. NodeThreads has the number of threads in the nodes before
// each node, and behind the last: Node is that of the part, and the counters are TakenStride
// apart. It is empty for one node.
type LinearArgs struct {
	Rows, In, Out int
	W             []byte
	Bias, X, Y    []float32
	LdX, LdY      int
	Shared, Work  []byte
	Taken         *int64
	Node          int
	NodeThreads   []int32
}

// TakenStride is the distance between two nodes' counters in LinearArgs.Taken.
const TakenStride = C.VAPP_TAKEN

// Prepare does part of parts of the preparation. All parts must finish before the first Run.
func (k Linear) Prepare(a *LinearArgs, code int32, part, parts int) { k.call(a, code, 1, part, parts) }

// Run computes part of parts of Y.
func (k Linear) Run(a *LinearArgs, code int32, part, parts int) { k.call(a, code, 0, part, parts) }

func (k Linear) call(a *LinearArgs, code int32, prepare, part, parts int) {
	c := C.vapp_linear{
		ldx: C.int64_t(a.LdX), ldy: C.int64_t(a.LdY), rows: C.int32_t(a.Rows), in: C.int32_t(a.In), out: C.int32_t(a.Out),
		format: C.int32_t(code), shared_bytes: C.int64_t(len(a.Shared)), work_bytes: C.int64_t(len(a.Work)),
	}
	C.vapp_linear_call(k.c, C.int(prepare), &c, C.int(part), C.int(parts), unsafe.Pointer(&a.W[0]), floats(a.Bias),
		floats(a.X), floats(a.Y), unsafe.Pointer(unsafe.SliceData(a.Shared)), unsafe.Pointer(unsafe.SliceData(a.Work)), (*C.int64_t)(unsafe.Pointer(a.Taken)),
		C.int32_t(a.Node), C.int32_t(max(0, len(a.NodeThreads)-1)), (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(a.NodeThreads))))
}

// Units returns the units of a grid (panels × chunks of row tiles of `tile` rows) that a part
// takes from a.Taken if no other part runs, at most n, in order.
func Units(a *LinearArgs, tile, part, parts, n int) []int64 {
	out := make([]int64, n+1)
	c := C.vapp_linear{rows: C.int32_t(a.Rows), in: C.int32_t(a.In), out: C.int32_t(a.Out)}
	got := C.vapp_linear_taken(&c, (*C.int64_t)(unsafe.Pointer(a.Taken)), C.int32_t(a.Node), C.int32_t(max(0, len(a.NodeThreads)-1)),
		(*C.int32_t)(unsafe.Pointer(unsafe.SliceData(a.NodeThreads))), C.int(tile), C.int(part), C.int(parts), (*C.int64_t)(unsafe.Pointer(&out[0])), C.int64_t(n))
	return out[:got]
}

// floats returns the address of s, or NULL if s is empty.
func floats(s []float32) *C.float {
	if len(s) == 0 {
		return nil
	}
	return (*C.float)(unsafe.Pointer(&s[0]))
}
