//go:build cgo

package pixels

/*
#include "pixels.h"

static void mix(int set, uint8_t *out, int64_t n, const uint8_t *at, int64_t stride, int64_t ring, int64_t first, const int32_t *w, int64_t taps, int bits)
{
	const vapp_lines in = {at, stride, ring};
	vapp_pixels_of(set)->mix(out, n, &in, first, w, taps, bits);
}

static void rows(int set, uint8_t *out, int64_t out_stride, int64_t out_ring, int64_t to, const uint8_t *in, int64_t in_stride, int64_t in_ring, int64_t from, int64_t last,
	int64_t n, const int32_t *first, const int32_t *end, const int32_t *w, int bits, uint8_t *tile, int64_t pixels)
{
	uint8_t *o[16];
	const uint8_t *i[16];
	for (int64_t j = 0; j < 16; j++) {
		o[j] = out + (to + j) % out_ring * out_stride;
		i[j] = in + (from + j < last ? from + j : last) % in_ring * in_stride;
	}
	vapp_pixels_of(set)->rows(o, i, n, first, end, w, bits, tile, pixels);
}
*/
import "C"

import "vapp.dev/kernels/cpu/isa"

// sets are the instruction sets that have kernels, with their numbers in pixels.h.
var sets = map[string]C.int{isa.AVX2: C.VAPP_PIXELS_AVX2, isa.AVX512: C.VAPP_PIXELS_AVX512, isa.NEON: C.VAPP_PIXELS_NEON}

// Kernel is the passes for an instruction set.
type Kernel struct{ set C.int }

// Best returns the kernel for the first of the instruction sets that has one; false: none has.
func Best(variants []string) (Kernel, bool) {
	for _, v := range variants {
		if set, ok := sets[v]; ok && C.vapp_pixels_of(set) != nil {
			return Kernel{set}, true
		}
	}
	return Kernel{}, false
}

// Mix sets out to line i of the result of w on the lines of in.
func (k Kernel) Mix(out []byte, i int, w *Weights, in Lines) {
	weights := w.Of(i)
	if len(out) == 0 || len(weights) == 0 {
		return
	}
	first := int(w.First[i])
	for s := range min(len(weights), in.Ring) { // panics on a line that in lacks
		in.Line(first+s, len(out))
	}
	C.mix(k.set, (*C.uint8_t)(&out[0]), C.int64_t(len(out)), (*C.uint8_t)(&in.Pix[0]), C.int64_t(in.Stride), C.int64_t(in.Ring), C.int64_t(first),
		(*C.int32_t)(&weights[0]), C.int64_t(len(weights)), C.int(w.Bits))
}

// TileBytes returns the bytes of Rows' tile for lines of at most so many weights.
func TileBytes(most int) int { return 48 * max(192, 4*most) }

// Rows resamples rows of pixels of three bytes by w: Together rows of in, from row `from` on, to the
// rows of out from row `to` on. Row `last` of in stands for those behind it, which in lacks. Rows of
// in have `width` pixels. tile has TileBytes bytes.
func (k Kernel) Rows(out Lines, to int, in Lines, from, last, width int, w *Weights, tile []byte) {
	n := len(w.First)
	for s := range Together { // panics on a row that out or in lacks
		out.Line(to+s, 3*n)
		in.Line(min(from+s, last), 3*width)
	}
	C.rows(k.set, (*C.uint8_t)(&out.Pix[0]), C.int64_t(out.Stride), C.int64_t(out.Ring), C.int64_t(to),
		(*C.uint8_t)(&in.Pix[0]), C.int64_t(in.Stride), C.int64_t(in.Ring), C.int64_t(from), C.int64_t(last),
		C.int64_t(n), (*C.int32_t)(&w.First[0]), (*C.int32_t)(&w.End[0]), (*C.int32_t)(&w.W[0]), C.int(w.Bits), (*C.uint8_t)(&tile[0]), C.int64_t(len(tile)/48))
}
