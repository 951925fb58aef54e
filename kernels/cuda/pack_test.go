package cuda_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

// unpack reads what a kernel packed: [rows, in] numbers, or 8-bit codes.
func (r *rig) unpack(to cuda.Rounding, y cuda.Ptr, rows, in int) []float32 {
	bytes, _ := to.Bytes(rows, in)
	b, out := down[byte](r, y, int(bytes)), make([]float32, rows*in)
	size := int(to.Format.Bytes(1))
	for row := range rows {
		for col := range in {
			t, k := col%32/16, col%16
			lane, n := row%8*4+k%8/2, 4*t+2*(k/8)+k%2
			at := ((row/8*cuda.Steps(in)+col/32)*32+lane)*8*size + n*size
			ref.Dequantize(to.Format, b[at:at+size], out[row*in+col:][:1])
		}
	}
	return out
}

var roundings = []cuda.Rounding{
	{Format: kernels.BF16}, {Format: kernels.F16}, {Format: kernels.F8E4M3}, {Format: kernels.F8E4M3, Group: 128}, {Format: kernels.I8},
}

// roundedTo returns x as a kernel packs it; for 8-bit numbers codes and, by row and group,
// scales.
func roundedTo(to cuda.Rounding, x []float32, rows, in int) (codes, scales []float32) {
	codes = make([]float32, rows*in)
	group := to.Group
	if group == 0 {
		group = in
	}
	for row := range rows {
		for at := 0; at < in; at += group {
			from, dst := x[row*in+at:row*in+min(in, at+group)], codes[row*in+at:]
			switch to.Format {
			case kernels.F8E4M3:
				scales = append(scales, ref.RoundRowE4M3(from, dst))
			case kernels.I8:
				scales = append(scales, ref.RoundRow(from, dst))
			default:
				copy(dst, rounded(to.Format, from))
			}
		}
	}
	return codes, scales
}

// checkPacked compares what was packed with x.
func (r *rig) checkPacked(what string, to cuda.Rounding, a cuda.PackArgs, x []float32) {
	r.Helper()
	rows, in := int(a.Rows), int(a.In)
	want, scales := roundedTo(to, x, rows, in)
	r.near(what, r.unpack(to, a.Y, rows, in), want, 0)
	if scales == nil {
		return
	}
	_, bytes := to.Bytes(rows, in)
	s, groups := down[float32](r, a.Sums, int(bytes)/4), len(scales)/rows
	got := make([]float32, len(scales))
	for i := range got {
		row, group := i/groups, i%groups
		got[i] = s[(row/8*groups+group)*8+row%8]
	}
	r.near(what+": scales", got, scales, 0)
}

// TestPackX packs rows, gated rows and normalized rows as fragments, with widths that are no
// whole steps, in lists of few rows and of many, where a thread takes several turns.
func TestPackX(t *testing.T) {
	for _, to := range roundings {
		for _, c := range []struct{ rows, in, most int }{{1, 320, 1}, {11, 333, 11}, {8, 20, 8}, {9, 1152, 65}} {
			t.Run(fmt.Sprint(to.Format, to.Group, c.rows), func(t *testing.T) {
				r := newRig(t)
				r.most = c.most
				testPackRows(r, to, c.rows, c.in)
				testPackGLU(r, to, c.rows, c.in)
				testPackNorm(r, to, c.rows, c.in)
				testPackChain(r, to, c.rows, c.in)
				testPackHeads(r, to, c.rows, c.in)
				testPackBF16(r, to, c.rows, c.in)
			})
		}
	}
}

// TestPackRows packs rows of 8-bit numbers row by row, with scales of 128 columns as cuBLASLt
// reads them: a group's scales are for rows up to a whole unit, or up to the largest number of
// rows. Memory after a group's rows must not change.
func TestPackRows(t *testing.T) {
	r, to := newRig(t), cuda.Rounding{Format: kernels.F8E4M3, Group: 128}
	for _, c := range []struct{ rows, most, across int }{{1, 256, 64}, {64, 256, 64}, {65, 256, 128}, {11, 20, 20}, {18, 20, 20}} {
		const in = 32 * 9
		x := r.floats(c.rows*in, 3)
		a := r.packArgs(to, x, c.rows, in)
		groups := ceil(in, 128)
		a.Words, a.Most = 2, int32(c.most)
		a.Sums = up(r, slices.Repeat([]float32{-1}, groups*c.across))
		launch(r, to.Kernel(cuda.FromRows), grid(to, cuda.FromRows, c.rows, in), &a)
		codes, scales := roundedTo(to, x, c.rows, in)
		got := make([]float32, c.rows*in)
		ref.Dequantize(kernels.F8E4M3, down[byte](r, a.Y, c.rows*in), got)
		r.near(fmt.Sprint(c, ": codes"), got, codes, 0)
		sums := down[float32](r, a.Sums, groups*c.across)
		want := slices.Repeat([]float32{-1}, len(sums))
		for i, s := range scales {
			want[i%groups*c.across+i/groups] = s
		}
		for i := range want { // padding rows of a tile of 8 are written as zeros
			if row := i % c.across; row >= c.rows && row < ceil(c.rows, 8)*8 {
				want[i] = 0
			}
		}
		r.near(fmt.Sprint(c, ": scales"), sums, want, 0)
	}
}

func (r *rig) packArgs(to cuda.Rounding, x []float32, rows, in int) cuda.PackArgs {
	bytes, sums := to.Bytes(rows, in)
	return cuda.PackArgs{X: up(r, x), Y: alloc[byte](r, int(bytes)), Sums: alloc[byte](r, int(sums)), Rows: int32(rows), In: int32(in), Group: int32(to.GroupSteps())}
}

func testPackRows(r *rig, to cuda.Rounding, rows, in int) {
	x, order, want := r.floats(3*rows*in, 3), make([]int32, rows), make([]float32, rows*in)
	for i := range order {
		if order[i] = int32(3*i + 1); i == 2 {
			order[i] = -1
			continue
		}
		copy(want[i*in:(i+1)*in], x[(3*i+1)*in:])
	}
	if to.Group == 0 && (to.Format == kernels.F8E4M3 || to.Format == kernels.I8) && rows > 8 {
		for _, row := range []int{4, 5} { // rows without a scale
			x[(3*row+1)*in+7] = float32(math.Inf(5 - 2*row))
			want[row*in+7] = x[(3*row+1)*in+7]
		}
		x[(3*5+1)*in+7], want[5*in+7] = float32(math.NaN()), float32(math.NaN())
	}
	a := r.packArgs(to, x, rows, in)
	a.Order = up(r, order)
	launch(r, to.Kernel(cuda.FromRows), grid(to, cuda.FromRows, rows, in), &a)
	r.checkPacked("rows", to, a, want)
	gated, gate := up(r, x), up(r, r.floats(len(x), 2))
	launch(r, "gate", cudatest.Line(ceil(len(x), 64), 64), &cuda.ElementsArgs{X: gated, Gate: gate, N: int64(len(x))})
	clear(want)
	for i, all := 0, down[float32](r, gated, len(x)); i < rows; i++ {
		if order[i] >= 0 {
			copy(want[i*in:(i+1)*in], all[int(order[i])*in:])
		}
	}
	launch(r, to.Kernel(cuda.FromAttention), grid(to, cuda.FromAttention, rows, in), &cuda.StorePackArgs{Pack: a, Gate: gate})
	r.checkPacked("gated rows", to, a, want)
}

func testPackGLU(r *rig, to cuda.Rounding, rows, in int) {
	x := r.floats(rows*2*in, 2)
	for _, paired := range []int32{0, 1} {
		a := cuda.GLUPackArgs{Pack: r.packArgs(to, x, rows, in), Paired: paired, Alpha: 1}
		plain := alloc[float32](r, rows*in)
		launch(r, "glu", cudatest.Line(ceil(rows*in, 64), 64), &cuda.GLUArgs{X: a.Pack.X, Y: plain, Rows: a.Pack.Rows, Cols: a.Pack.In, Paired: paired, Alpha: 1})
		launch(r, to.Kernel(cuda.FromGLU), grid(to, cuda.FromGLU, rows, in), &a)
		r.checkPacked(fmt.Sprint("glu, paired ", paired), to, a.Pack, down[float32](r, plain, rows*in))
	}
}

var bf16 = cuda.Rounding{Format: kernels.BF16}

// listed returns the launch in a list of up to r.most rows.
func (r *rig) listed(to cuda.Rounding, s cuda.Source, rows, in int) cudatest.Grid {
	return listGrid(to, s, rows, in, r.most)
}

func testPackNorm(r *rig, to cuda.Rounding, rows, in int) {
	x, w := r.floats(rows*in, 2), r.floats(in, 1)
	for _, residual := range [][]float32{nil, r.floats(rows*in, 2)} {
		want, sum := make([]float32, rows*in), append([]float32(nil), x...)
		for i, v := range residual {
			sum[i] += v
		}
		for row := range rows {
			ref.NormOffset(sum[row*in:(row+1)*in], nil, w, 1, 1e-6, want[row*in:(row+1)*in])
		}
		run := func() []float32 {
			a := cuda.NormPackArgs{Pack: r.packArgs(to, x, rows, in), Residual: up(r, residual), W: up(r, w), Plain: alloc[float32](r, rows*in), Eps: 1e-6, Offset: 1, Scale: 1}
			launch(r, to.Kernel(cuda.FromNorm), r.listed(to, cuda.FromNorm, rows, in), &a)
			if got, err := r.Prefetched(); err != nil || len(got) != min(1, in/4) || len(got) > 0 && got[0] != [2]uint64{uint64(a.W), uint64(in / 4 * 16)} {
				r.Errorf("%v is prefetched (%v), want %d factors at %d", got, err, in/4*4, a.W)
			}
			plain := down[float32](r, a.Plain, rows*in)
			r.near("norm", plain, want, 1e-6)
			r.checkPacked("norm", to, a.Pack, plain)
			if residual != nil {
				r.near("residual", down[float32](r, a.Residual, rows*in), sum, 0)
			}
			if !to.Narrow() {
				return plain
			}
			twice := cuda.NormPackArgs{Pack: r.packArgs(to, x, rows, in), Residual: up(r, residual), W: a.W, Eps: 1e-6, Offset: 1, Scale: 1}
			words := []int32{0, 1}
			if in%cuda.StepCols == 0 {
				words = append(words, 2)
			}
			for _, w := range words {
				wide := cuda.PackArgs{X: up(r, plain), Rows: a.Pack.Rows, In: a.Pack.In, Words: w}
				bytes, sums := bf16.Bytes(rows, in)
				wide.Y, wide.Sums = alloc[byte](r, int(bytes)), alloc[byte](r, int(sums))
				launch(r, bf16.Kernel(cuda.FromRows), grid(bf16, cuda.FromRows, rows, in), &wide)
				twice.PlainWords, twice.Plain, twice.Residual = 1+w, up(r, slices.Repeat([]byte{0xff}, int(bytes))), up(r, residual)
				launch(r, to.Kernel(cuda.FromNorm), r.listed(to, cuda.FromNorm, rows, in), &twice)
				r.checkPacked("norm, packed twice", to, twice.Pack, plain)
				if !slices.Equal(down[byte](r, twice.Plain, int(bytes)), down[byte](r, wide.Y, int(bytes))) {
					r.Errorf("words %d: the rows in bf16 differ from those of a launch of their own", w)
				}
			}
			return plain
		}
		if rows > 8 {
			r.eachSchedule(run)
		} else {
			run()
		}
	}
}

// testPackChain: norms of two inputs and of their sum, or of one input, before the sum with the residual, its factor and
// the norm that is packed.
func testPackChain(r *rig, to cuda.Rounding, rows, in int) {
	x, other, residual, scale := r.floats(rows*in, 2), r.floats(rows*in, 3), r.floats(rows*in, 2), float32(0.75)
	own, others, post, w := r.floats(in, 1), r.floats(in, 1), r.floats(in, 1), r.floats(in, 1)
	wPost := up(r, post)
	if rows == 1 { // pairs of it are not aligned
		wPost = up(r, append([]float32{0}, post...)) + 4
	}
	for _, chain := range []int32{0, cuda.ChainPost, cuda.ChainJoined, cuda.ChainJoined | cuda.ChainPost} {
		want, sum := make([]float32, rows*in), make([]float32, rows*in)
		for row := range rows {
			v, o := slices.Clone(x[row*in:(row+1)*in]), slices.Clone(other[row*in:(row+1)*in])
			if chain&cuda.ChainJoined != 0 {
				ref.NormOffset(v, nil, own, 0, 1e-6, v)
				ref.NormOffset(o, nil, others, 0, 1e-6, o)
				for i := range v {
					v[i] += o[i]
				}
			}
			if chain&cuda.ChainPost != 0 {
				ref.NormOffset(v, nil, post, 0, 1e-6, v)
			}
			for i := range v {
				sum[row*in+i] = (residual[row*in+i] + v[i]) * scale
			}
			ref.NormOffset(sum[row*in:(row+1)*in], nil, w, 1, 1e-6, want[row*in:(row+1)*in])
		}
		run := func() []float32 {
			a := cuda.NormPackArgs{Pack: r.packArgs(to, x, rows, in), Residual: up(r, residual), W: up(r, w), Plain: alloc[float32](r, rows*in), Eps: 1e-6, Offset: 1, Scale: 1}
			launch(r, to.Kernel(cuda.FromChain), r.listed(to, cuda.FromChain, rows, in), &cuda.ChainPackArgs{
				Norm: a, Kinds: chain, Other: up(r, other), WOwn: up(r, own), WOther: up(r, others), WPost: wPost, SumScale: up(r, []float32{scale}),
			})
			plain := down[float32](r, a.Plain, rows*in)
			r.near(fmt.Sprint("chain ", chain), plain, want, 2e-6)
			single, after := r.singleNorms(&cuda.ChainPackArgs{
				Norm:  cuda.NormPackArgs{Pack: cuda.PackArgs{X: up(r, x), Rows: int32(rows), In: int32(in)}, Residual: up(r, residual), W: a.W, Eps: a.Eps, Offset: a.Offset, Scale: a.Scale},
				Kinds: chain, Other: up(r, other), WOwn: up(r, own), WOther: up(r, others), WPost: up(r, post), SumScale: up(r, []float32{scale}),
			})
			r.near(fmt.Sprint("chain ", chain, " and single launches"), plain, single, 0)
			r.near("residual and single launches", down[float32](r, a.Residual, rows*in), after, 0)
			r.checkPacked("chain", to, a.Pack, plain)
			r.near("residual", down[float32](r, a.Residual, rows*in), sum, 1e-6)
			return plain
		}
		if rows > 8 && chain > cuda.ChainPost {
			r.eachSchedule(run)
		} else {
			run()
		}
	}
	// Rows by order, each as often as it is asked for.
	order, normed, want := make([]int32, rows), make([]float32, rows*in), make([]float32, rows*in)
	a := cuda.NormPackArgs{Pack: r.packArgs(to, x, rows, in), W: up(r, w), Plain: alloc[float32](r, rows*in), Eps: 1e-6, Scale: 1}
	launch(r, to.Kernel(cuda.FromNorm), r.listed(to, cuda.FromNorm, rows, in), &a)
	copy(normed, down[float32](r, a.Plain, rows*in))
	for i := range order {
		if order[i] = int32(r.rnd.IntN(rows+1) - 1); order[i] >= 0 {
			copy(want[i*in:(i+1)*in], normed[int(order[i])*in:])
		}
	}
	a.Plain, a.Pack.Order = 0, up(r, order)
	launch(r, to.Kernel(cuda.FromNorm), r.listed(to, cuda.FromNorm, rows, in), &a)
	r.checkPacked("by order", to, a.Pack, want)
}

// singleNorms does what chain_pack does in launches of their own, and returns what would be packed and the residual.
func (r *rig) singleNorms(a *cuda.ChainPackArgs) (y, residual []float32) {
	rows, in, n := int(a.Norm.Pack.Rows), int(a.Norm.Pack.In), &a.Norm
	norm := func(x, w, y cuda.Ptr, offset, scale float32) {
		launch(r, "norm_rows", cudatest.Line(rows, cuda.RowThreads(in, max(rows, r.most))), &cuda.NormArgs{X: x, W: w, Y: y, Cols: int32(in), Segment: int32(in), Eps: n.Eps, Offset: offset, Scale: scale})
	}
	add := func(x, into, scale cuda.Ptr) {
		launch(r, "add", cudatest.Line(ceil(rows*in, 256), 256), &cuda.AddArgs{X: x, Into: into, Scale: scale, N: int64(rows * in)})
	}
	x := n.Pack.X
	if a.Kinds&cuda.ChainJoined != 0 {
		norm(x, a.WOwn, x, 0, 1)
		norm(a.Other, a.WOther, a.Other, 0, 1)
		add(a.Other, x, 0)
	}
	if a.Kinds&cuda.ChainPost != 0 {
		norm(x, a.WPost, x, 0, 1)
	}
	add(x, n.Residual, a.SumScale)
	norm(n.Residual, n.W, x, n.Offset, n.Scale)
	return down[float32](r, x, rows*in), down[float32](r, n.Residual, rows*in)
}

// testPackBF16: rows in bf16, gated, normalized, added to a residual and by order.
func testPackBF16(r *rig, to cuda.Rounding, rows, in int) {
	w, residual, scale, order := up(r, r.floats(in, 1)), r.floats(rows*in, 2), up(r, []float32{0.75}), make([]int32, rows)
	for i := range order {
		order[i] = int32(rows - 1 - i)
	}
	pack := func(x cuda.Ptr, bf16 int32) cuda.PackArgs {
		a := r.packArgs(to, nil, rows, in)
		a.X, a.XBF16 = x, bf16
		return a
	}
	packed := func(a cuda.PackArgs) []byte {
		size, sums := to.Bytes(rows, in)
		return slices.Concat(down[byte](r, a.Y, int(size)), down[byte](r, a.Sums, int(sums)))
	}
	for _, paired := range []int32{0, 1} {
		r.inBF16(fmt.Sprint("glu, paired ", paired), r.floats(2*rows*in, 2), func(x cuda.Ptr, bf16 int32) []byte {
			a := cuda.GLUPackArgs{Pack: pack(x, bf16), Paired: paired, Alpha: 1}
			launch(r, to.Kernel(cuda.FromGLU), r.listed(to, cuda.FromGLU, rows, in), &a)
			return packed(a.Pack)
		})
	}
	for _, s := range []cuda.Source{cuda.FromNorm, cuda.FromChain} {
		for _, adds := range []bool{false, true} {
			r.inBF16(fmt.Sprint(s, ", added: ", adds), r.floats(rows*in, 2), func(x cuda.Ptr, bf16 int32) []byte {
				a := cuda.ChainPackArgs{SumScale: scale, Norm: cuda.NormPackArgs{Pack: pack(x, bf16), W: w, Plain: alloc[float32](r, rows*in), Eps: 1e-6, Offset: 1, Scale: 1}}
				if adds {
					a.Norm.Residual = up(r, residual)
				} else if s == cuda.FromNorm {
					a.Norm.Pack.Order = up(r, order)
				}
				if s == cuda.FromNorm {
					launch(r, to.Kernel(s), r.listed(to, s, rows, in), &a.Norm)
				} else {
					launch(r, to.Kernel(s), r.listed(to, s, rows, in), &a)
				}
				out := append(packed(a.Norm.Pack), down[byte](r, a.Norm.Plain, 4*rows*in)...)
				if adds {
					out = append(out, down[byte](r, a.Norm.Residual, 4*rows*in)...)
				}
				return out
			})
		}
	}
}

// testPackHeads: segments that are normalized and gated have the bits of norm.
func testPackHeads(r *rig, to cuda.Rounding, rows, in int) {
	segment := map[int]int{320: 64, 333: 111, 20: 5, 1152: 128}[in]
	x := r.floats(rows*in, 2)
	for _, gate := range []cuda.Ptr{0, up(r, r.floats(rows*in, 2))} {
		a := cuda.HeadsPackArgs{Pack: r.packArgs(to, x, rows, in), W: up(r, r.floats(segment, 1)), Gate: gate, Eps: 1e-6, Offset: 1, Scale: 0.5, Segment: int32(segment)}
		plain := alloc[float32](r, rows*in)
		launch(r, "norm", cudatest.Line(rows*in/segment, 32), &cuda.NormArgs{
			X: a.Pack.X, W: a.W, Gate: gate, Y: plain, Cols: int32(in), Segment: a.Segment, Eps: a.Eps, Offset: a.Offset, Scale: a.Scale,
		})
		run := func() []float32 {
			launch(r, to.Kernel(cuda.FromHeads), r.listed(to, cuda.FromHeads, rows, in), &a)
			r.checkPacked(fmt.Sprint("heads, gated ", gate != 0), to, a.Pack, down[float32](r, plain, rows*in))
			return nil
		}
		if rows > 8 && gate != 0 {
			r.eachSchedule(run)
		} else {
			run()
		}
	}
}
