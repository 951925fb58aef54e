//go:build cgo

package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cpu/isa"
	"vapp.dev/kernels/cpu/native"
)

// bothCase is attention without a mask of sequences of these lengths.
type bothCase struct {
	lengths        []int
	heads, kv, dim int
	format         kernels.Format
}

// TestAttentionBoth compares attention without a mask with sums in float64, on every instruction set of
// this machine and on AMX with tiles in memory. The bits do not depend on the size of tiles, nor on the
// sequences beside one.
func TestAttentionBoth(t *testing.T) {
	variants := Variants()
	if isa.Has(AVX512) {
		variants = append(variants, SoftAMX)
	}
	for _, c := range []bothCase{
		{[]int{300}, 2, 2, 72, kernels.F32}, {[]int{49, 1, 130}, 4, 2, 72, kernels.F32}, {[]int{200}, 1, 1, 40, kernels.F16},
		{[]int{257}, 2, 1, 72, kernels.BF16}, {[]int{31, 96}, 2, 2, 24, kernels.BF16},
	} {
		q, k, v := c.numbers()
		want := c.plain(q, k, v)
		for _, variant := range variants {
			most, tiles := 1e-5, variant == AMX || variant == SoftAMX
			switch {
			case tiles && c.format != kernels.BF16:
				continue // the kernel of AVX-512
			case tiles, AttentionPacks(variant, c.format):
				most = 0.02
			}
			t.Run(fmt.Sprintf("%s/%v/%v of %d", variant, c.format, c.lengths, c.dim), func(t *testing.T) {
				got := c.run(t, variant, q, k, v, 1)
				for i := range want {
					if d := math.Abs(float64(got[i]) - want[i]); !(d <= most) {
						t.Fatalf("number %d is %g, want %g", i, got[i], want[i])
					}
				}
				if !slices.Equal(got, c.run(t, variant, q, k, v, 1000)) {
					t.Error("the bits depend on the size of tiles")
				}
				at, width := 0, c.heads*c.dim
				for _, n := range c.lengths {
					one, each := bothCase{[]int{n}, c.heads, c.kv, c.dim, c.format}, c.kv*c.dim
					alone := one.run(t, variant, q[at*width:(at+n)*width], k[at*each:(at+n)*each], v[at*each:(at+n)*each], 1)
					if !slices.Equal(alone, got[at*width:(at+n)*width]) {
						t.Error("the bits depend on the sequences beside it")
					}
					at += n
				}
			})
		}
	}
}

func (c bothCase) rows() (n int) {
	for _, l := range c.lengths {
		n += l
	}
	return n
}

// numbers returns q, k and v; the latter are numbers of the format.
func (c bothCase) numbers() (q, k, v []float32) {
	r := rand.New(rand.NewPCG(uint64(c.dim), 7))
	make := func(n int) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = float32(r.NormFloat64())
		}
		return out
	}
	q, k, v = make(c.rows()*c.heads*c.dim), make(c.rows()*c.kv*c.dim), make(c.rows()*c.kv*c.dim)
	for _, x := range [][]float32{k, v} {
		Dequantize(c.format, c.encode(x), x)
	}
	return q, k, v
}

// encode returns numbers in the format.
func (c bothCase) encode(x []float32) []byte {
	out := make([]byte, c.format.Bytes(int64(len(x))))
	switch c.format {
	case kernels.F16:
		native.RoundF16(x, out)
	case kernels.BF16:
		native.RoundBF16(x, out)
	default:
		copy(unsafe.Slice((*float32)(unsafe.Pointer(&out[0])), len(x)), x)
	}
	return out
}

const bothScale = 0.3

func (c bothCase) plain(q, k, v []float32) []float64 {
	out := make([]float64, len(q))
	begin, group := 0, c.heads/c.kv
	for _, n := range c.lengths {
		p := make([]float64, n)
		for t := range n {
			for h := range c.heads {
				row, kv := q[((begin+t)*c.heads+h)*c.dim:][:c.dim], h/group*c.dim
				top, sum := math.Inf(-1), 0.0
				for j := range p {
					p[j] = 0
					for d, x := range row {
						p[j] += float64(x) * float64(k[(begin+j)*c.kv*c.dim+kv+d]) * bothScale
					}
					top = max(top, p[j])
				}
				for j := range p {
					p[j] = math.Exp(p[j] - top)
					sum += p[j]
				}
				for d := range c.dim {
					y := &out[((begin+t)*c.heads+h)*c.dim+d]
					for j := range p {
						*y += p[j] / sum * float64(v[(begin+j)*c.kv*c.dim+kv+d])
					}
				}
			}
		}
		begin += n
	}
	return out
}

// run runs the kernel for a pool of so many threads.
func (c bothCase) run(t *testing.T, variant string, q, k, v []float32, threads int32) []float32 {
	f, ok := Kernel(OpAttention, variant)
	if !ok {
		t.Skip("not run: this build has no", variant)
	}
	y, keys, values := make([]float32, len(q)), c.encode(k), c.encode(v)
	first := []int32{0}
	for _, n := range c.lengths {
		first = append(first, first[len(first)-1]+int32(n))
	}
	size := AttentionWorkspace(c.dim, 0)
	packed := AttentionPacked(c.rows(), len(c.lengths), c.kv, c.dim)
	work, shared := make([]byte, size+64), make([]byte, packed+64)
	for _, b := range [][]byte{work, shared} {
		for i := range b {
			b[i] = 0xff // NaNs
		}
	}
	a := &Attention{
		Pages: Pages{Format: int32(c.format), KVHeads: int32(c.kv), HeadDim: int32(c.dim), KeyDim: int32(c.dim)},
		Q:     uintptr(unsafe.Pointer(&q[0])), K: uintptr(unsafe.Pointer(&keys[0])), V: uintptr(unsafe.Pointer(&values[0])), Y: uintptr(unsafe.Pointer(&y[0])),
		First: uintptr(unsafe.Pointer(&first[0])), Work: (uintptr(unsafe.Pointer(&work[0])) + 63) &^ 63, WorkBytes: size,
		Heads: int32(c.heads), Scale: bothScale, Bidirectional: 1, Threads: threads,
	}
	rows := []int32{int32(c.rows()), 0, int32(len(c.lengths))}
	if AttentionPacks(variant, c.format) {
		a.Shared, a.SharedBytes, a.Packed = (uintptr(unsafe.Pointer(&shared[0]))+63)&^63, packed, 1
		pack, _ := Kernel(OpAttentionPack, variant)
		native.Call(pack, uintptr(unsafe.Pointer(a)), rows)
		if !slices.Equal(shared[len(shared)-64+int(-uintptr(unsafe.Pointer(&shared[0]))&63):], slices.Repeat([]byte{0xff}, 64-int(-uintptr(unsafe.Pointer(&shared[0]))&63))) {
			t.Error("the packed keys and values take more than AttentionPacked")
		}
	}
	native.Call(f, uintptr(unsafe.Pointer(a)), rows)
	runtime.KeepAlive([]any{q, keys, values, first, work, shared, a})
	return y
}
