package ref

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"vapp.dev/kernels"
)

// numbers returns n seeded floats.
func numbers(n int, deviation float64) []float32 {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * deviation)
	}
	return x
}

func close32(t *testing.T, what string, got []float32, want ...float32) {
	t.Helper()
	for i := range want {
		if d := math.Abs(float64(got[i] - want[i])); !(d <= 1e-6*math.Abs(float64(want[i]))+1e-12) {
			t.Errorf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// TestLinear compares with exact sums of rationals: the only difference is one rounding to
// float32.
func TestLinear(t *testing.T) {
	const rows, in, out = 6, 64, 5
	x, b := numbers(rows*in, 3), numbers(out, 1)
	for _, f := range []kernels.Format{kernels.F32, kernels.BF16, kernels.Q8_0, kernels.Q4_1} {
		w := make([]byte, f.Bytes(in*out))
		Quantize(f, numbers(out*in+1, 1)[:out*in], w)
		values, y := make([]float32, in*out), make([]float32, rows*out)
		Dequantize(f, w, values)
		for i := range y {
			y[i] = -7
		}
		a := LinearArgs{Rows: rows, In: in, Out: out, X: x, W: w, Format: f, Bias: b, Y: y, From: 1, To: out, Row: make([]float32, in)}
		Linear(a)
		for r := range rows {
			if y[r*out] != -7 {
				t.Fatalf("%v: feature 0 was not asked for, it is %v", f, y[r*out])
			}
			for o := 1; o < out; o++ {
				sum := new(big.Rat).SetFloat64(float64(b[o]))
				for i := range in {
					p := new(big.Rat).SetFloat64(float64(x[r*in+i]))
					sum.Add(sum, p.Mul(p, new(big.Rat).SetFloat64(float64(values[o*in+i]))))
				}
				want, _ := sum.Float32()
				if got := y[r*out+o]; got != want && got != math.Nextafter32(want, 0) && got != math.Nextafter32(want, got) {
					t.Errorf("%v: row %d feature %d is %v, want %v", f, r, o, got, want)
				}
			}
		}
	}
}

func TestNorm(t *testing.T) {
	x, residual, y := []float32{3, -4}, []float32{1, 1}, make([]float32, 2)
	Norm(x, nil, []float32{1, 2}, 0, y)
	root := float32(math.Sqrt(12.5))
	close32(t, "norm", y, 3/root, -8/root)
	Norm(x, residual, []float32{1, 1}, 2.5, y) // 4, −3: mean square 12.5
	root = float32(math.Sqrt(15))
	close32(t, "norm with residual", y, 4/root, -3/root)
	close32(t, "residual", residual, 4, -3)
	Norm(x, nil, []float32{1, 1}, 1e-5, x)
	close32(t, "in place", x, 3/float32(math.Sqrt(12.50001)))
	zero := make([]float32, 4)
	Norm(zero, nil, []float32{1, 1, 1, 1}, 1e-5, zero)
	close32(t, "zeros", zero, 0, 0, 0, 0)
}

func TestRotate(t *testing.T) {
	angles := make([]float32, 4)
	Angles(3, []float32{0.5, float32(math.Pi) / 6}, 2, angles)
	close32(t, "angles", angles[:1], 2*float32(math.Cos(1.5)))
	close32(t, "angles", angles[2:], 2*float32(math.Sin(1.5)), 2)
	if math.Abs(float64(angles[1])) > 1e-6 {
		t.Errorf("the cosine of a quarter turn is %v", angles[1])
	}
	// Rotates pair (0, 2) by a quarter turn and pair (1, 3) by 0; 4 and 5 are not rotated.
	x, y := []float32{1, 2, 3, 4, 5, 6}, make([]float32, 6)
	Rotate(x, []float32{0, 1, 1, 0}, y)
	close32(t, "rotate", y, -3, 2, 1, 4, 5, 6)
	Rotate(x, []float32{0, 1, 1, 0}, x)
	close32(t, "in place", x, -3, 2, 1, 4, 5, 6)
	// The pairs are (0, 1) and (2, 3).
	x = []float32{1, 2, 3, 4, 5, 6}
	RotatePairs(x, []float32{0, 1, 1, 0}, y)
	close32(t, "neighbours", y, -2, 1, 3, 4, 5, 6)
	RotatePairs(x, []float32{0, 1, 1, 0}, x)
	close32(t, "neighbours in place", x, -2, 1, 3, 4, 5, 6)
}

func TestSwiGLU(t *testing.T) {
	y := make([]float32, 5)
	SwiGLU([]float32{0, 1, -1, 1000, -1000}, []float32{7, 2, 3, -2, 5}, y)
	e := float32(math.E)
	close32(t, "swiglu", y, 0, 2/(1+1/e), -3/(1+e), -2000, 0)
}

func TestEmbed(t *testing.T) {
	table := make([]byte, kernels.Q8_0.Bytes(3*64))
	Quantize(kernels.Q8_0, numbers(3*64, 1), table)
	all, y := make([]float32, 3*64), make([]float32, 64)
	Dequantize(kernels.Q8_0, table, all)
	Embed(kernels.Q8_0, table, 2, 4, y)
	for i := range y {
		if y[i] != 4*all[128+i] {
			t.Fatalf("column %d is %v, want %v", i, y[i], 4*all[128+i])
		}
	}
}

// TestPages writes with Store and reads with Load and by the definition of the layout.
func TestPages(t *testing.T) {
	const heads, dim, block, slots = 2, 3, 4, 9
	for _, f := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
		half := f.Bytes(heads * dim * block)
		p := Pages{Format: f, BlockSize: block, KVHeads: heads, HeadDim: dim, PageBytes: 4 * half, PagesPerSlab: 2, K: 2 * half, V: 3 * half}
		p.SlabBytes = 2*p.PageBytes + 8
		p.Arena = make([]byte, 2*p.SlabBytes)
		table := []int32{3, 0, 2}
		at := func(b []byte, i int) float32 { return widen(f, b[f.Bytes(int64(i)):]) }
		for pos := range slots {
			k, v := make([]float32, heads*dim), make([]float32, heads*dim)
			for i := range k {
				k[i], v[i] = float32(pos*10+i), -float32(pos*10+i)
			}
			kb, vb := make([]byte, f.Bytes(heads*dim)), make([]byte, f.Bytes(heads*dim))
			Quantize(f, k, kb)
			Quantize(f, v, vb)
			p.Store(table[pos/block], pos%block, kb, vb)
		}
		page := p.Arena[p.SlabBytes+p.PageBytes:] // page 3: the second of the second slab
		if got := at(page[p.K:], (1*dim+2)*block+3); got != 3*10+1*dim+2 {
			t.Errorf("%v: key of head 1, dimension 2, slot 3 is %v", f, got)
		}
		if got := at(page[p.V:], (1*block+3)*dim+2); got != -(3*10 + 1*dim + 2) {
			t.Errorf("%v: value of head 1, slot 3, dimension 2 is %v", f, got)
		}
		k, v := make([]float32, slots*dim), make([]float32, slots*dim)
		p.Load(table, 0, 1, 0, slots, nil, k, v)
		for i := range k {
			if want := float32(i/dim*10 + dim + i%dim); k[i] != want || v[i] != -want {
				t.Fatalf("%v: element %d is %v, %v, want ±%v", f, i, k[i], v[i], want)
			}
		}
	}
}

// TestAttention tests a token that sees only itself, equal scores, and one key with all the
// weight.
func TestAttention(t *testing.T) {
	const heads, dim, tokens = 2, 2, 3
	k, v := []float32{1, 0, 1, 0, 0, 100}, []float32{1, 10, 3, 30, 5, 50}
	q := []float32{1, 0, 9, 9 /* token 0 */, 1, 0, 0, 0 /* 1 */, 0, 1, 0, 0 /* 2 */}
	kb, vb := make([]byte, 4*len(k)), make([]byte, 4*len(v))
	Quantize(kernels.F32, k, kb)
	Quantize(kernels.F32, v, vb)
	a := AttentionArgs{
		Q: q, Y: make([]float32, len(q)), K: kb, V: vb, First: []int32{0, tokens}, Positions: []int32{0, 1, 2}, Heads: heads, Scale: 0.5,
		Pages:     Pages{Format: kernels.F32, BlockSize: 4, KVHeads: 1, HeadDim: dim},
		Workspace: AttentionWorkspace{K: make([]float32, 8), V: make([]float32, 8), P: make([]float64, 4), Acc: make([]float64, dim)},
	}
	Attention(a, 0, 0)
	close32(t, "attention", a.Y, 1, 10, 1, 10 /* 0 */, 2, 20, 2, 20 /* 1 */, 5, 50, 3, 30 /* 2 */)
	q[10], q[11] = 2, 0 // scores 1, 1, 0
	Attention(a, 0, 0)
	e := float32(math.E)
	close32(t, "weights", a.Y[10:], (e+3*e+5)/(2*e+1), 10*(e+3*e+5)/(2*e+1))
}
