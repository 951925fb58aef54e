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

func TestEmbed(t *testing.T) {
	r := newRig(t)
	for _, f := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
		const rows, cols, row0 = 9, 35, 3
		table, back := stored(f, r.floats(rows*cols, 1))
		ids := []int32{3, 11, 5, 2, 12, 0} // the last three belong to another rank
		want := make([]float32, len(ids)*cols)
		for i, id := range ids {
			if id >= row0 && id < row0+rows {
				ref.Embed(kernels.F32, cudatest.Bytes(back), id-row0, 1.5, want[i*cols:(i+1)*cols])
			}
		}
		y := alloc[float32](r, len(want))
		a := cuda.EmbedArgs{IDs: up(r, ids), Table: up(r, table), Y: y, Scale: 1.5, Rows: int32(len(ids)), Cols: cols, Row0: row0, TableRows: rows}
		launch(r, "embed_"+short(f), cudatest.Line(len(ids), 32), &a)
		r.near(f.String(), down[float32](r, y, len(want)), want, 0)
	}
}

func TestGather(t *testing.T) {
	r := newRig(t)
	for _, cols := range []int{8, 5} {
		x := r.floats(4*cols, 1)
		for _, c := range []struct {
			rows []int32
			last int32
			want []int
		}{{[]int32{2, 0, -1, 2}, 0, []int{2, 0, -1, 2}}, {[]int32{0, 1, 1, 4}, 1, []int{0, -1, 3}}} {
			y := alloc[float32](r, len(c.want)*cols)
			a := cuda.GatherArgs{X: up(r, x), Y: y, Rows: up(r, c.rows), Cols: int32(cols), Last: c.last}
			launch(r, "gather", cudatest.Line(len(c.want), 32), &a)
			want := make([]float32, len(c.want)*cols)
			for i, from := range c.want {
				if from >= 0 {
					copy(want[i*cols:(i+1)*cols], x[from*cols:])
				}
			}
			r.near(fmt.Sprint(c), down[float32](r, y, len(want)), want, 0)
		}
	}
	out := alloc[int32](r, 5)
	a := cuda.TokensArgs{Tokens: up(r, []int32{7, -1, -3, 0, -2}), Sampled: up(r, []int32{40, -1, 42}), Out: out, Rows: 5}
	launch(r, "tokens", cudatest.Line(1, 32), &a)
	if got := fmt.Sprint(down[int32](r, out, 5)); got != "[7 40 42 0 0]" {
		t.Errorf("tokens %s, want [7 40 42 0 0]", got)
	}
}

// normCase is one shape of norm.
type normCase struct {
	rows, cols, segment, threads   int // no threads: norm_rows
	residual, weight, gated, plain bool
	offset, scale                  float32
}

func TestNorm(t *testing.T) {
	r := newRig(t)
	for _, c := range []normCase{
		{1, 64, 64, 32, false, true, false, false, 0, 1},
		{3, 257, 257, 64, true, true, false, false, 1, 1}, // odd columns
		{2, 1000, 1000, 1024, true, false, false, false, 0, 0.5},
		{2, 256, 64, 64, false, true, true, false, 0, 1}, // heads of a gated norm
		{3, 72, 72, 96, false, true, false, true, 0, 1},
		{1, 64, 64, 0, false, true, false, false, 0, 1},
		{3, 257, 257, 0, true, true, false, false, 1, 1},
		{2, 5000, 5000, 0, true, false, false, false, 0, 0.5},
	} {
		x, w, gate, bias := r.floats(c.rows*c.cols, 2), r.floats(c.segment, 1), r.floats(c.rows*c.cols, 1), []float32(nil)
		var residual, wantResidual []float32
		if c.residual {
			residual = r.floats(c.rows*c.cols, 2)
			wantResidual = append(wantResidual, residual...)
		}
		if !c.weight {
			w = nil
		}
		if !c.gated {
			gate = nil
		}
		if c.plain {
			bias = r.floats(c.segment, 1)
		}
		want := make([]float32, len(x))
		for at := 0; at < len(x); at += c.segment {
			in, out := x[at:at+c.segment], want[at:at+c.segment]
			switch {
			case c.plain:
				ref.LayerNorm(in, w, bias, 1e-5, out)
			case c.residual:
				ref.NormOffset(in, wantResidual[at:at+c.segment], w, c.offset, 1e-5, out)
			default:
				ref.NormOffset(in, nil, w, c.offset, 1e-5, out)
			}
			for i := range out {
				out[i] *= c.scale
				if gate != nil {
					out[i] *= ref.SiLU(gate[at+i])
				}
			}
		}
		run := func(x cuda.Ptr, bf16 int32) (y, res []float32) {
			a := cuda.NormArgs{
				X: x, XBF16: bf16, Residual: up(r, residual), W: up(r, w), Bias: up(r, bias), Gate: up(r, gate), Y: alloc[float32](r, len(want)),
				Cols: int32(c.cols), Segment: int32(c.segment), Eps: 1e-5, Offset: c.offset, Scale: c.scale,
			}
			if c.plain {
				a.Plain = 1
			}
			kernel, threads := "norm", c.threads
			if threads == 0 {
				kernel, threads = "norm_rows", cuda.RowThreads(c.cols, len(want)/c.cols)
			}
			launch(r, kernel, cudatest.Line(len(want)/c.segment, threads), &a)
			if residual != nil {
				res = down[float32](r, a.Residual, len(want))
			}
			return down[float32](r, a.Y, len(want)), res
		}
		got := r.eachSchedule(func() []float32 {
			y, res := run(up(r, x), 0)
			r.near("residual", res, wantResidual, 0)
			return y
		})
		r.near(fmt.Sprint(c), got, want, 1e-6)
		r.inBF16(fmt.Sprint(c), x, func(x cuda.Ptr, bf16 int32) []byte {
			y, res := run(x, bf16)
			return slices.Concat(cudatest.Bytes(y), cudatest.Bytes(res))
		})
	}
}

// gelu returns the exact form.
func gelu(v float32) float32 {
	return float32(0.5 * float64(v) * (1 + math.Erf(float64(v)/math.Sqrt2)))
}

func TestElements(t *testing.T) {
	r := newRig(t)
	const n = 301
	x, g := r.floats(n, 3), r.floats(n, 2)
	want := func(f func(i int) float32) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = f(i)
		}
		return out
	}
	for _, c := range []struct {
		kernel string
		act    int32
		want   []float32
	}{
		{"activate", 0, want(func(i int) float32 { return ref.SiLU(x[i]) })},
		{"activate", 1, want(func(i int) float32 { return ref.GELUTanh(x[i]) })},
		{"activate", 2, want(func(i int) float32 { return gelu(x[i]) })},
		{"gate", 0, want(func(i int) float32 { return x[i] * ref.Sigmoid(g[i]) })},
		{"softcap", 0, want(func(i int) float32 { return ref.Softcap(x[i], 3) })},
	} {
		p := up(r, x)
		launch(r, c.kernel, cudatest.Line(ceil(n, 64), 64), &cuda.ElementsArgs{X: p, Gate: up(r, g), N: n, Cap: 3, Act: c.act})
		r.near(c.kernel, down[float32](r, p, n), c.want, 1e-6)
	}
	rows := up(r, x)
	launch(r, "gate", cudatest.Line(ceil(n, 64), 64), &cuda.ElementsArgs{X: rows, Gate: up(r, g), N: n, Cols: 43})
	r.near("gate of rows", down[float32](r, rows, n), want(func(i int) float32 { return x[i] * ref.Sigmoid(g[i/43]) }), 1e-6)
	p := up(r, x)
	launch(r, "add", cudatest.Line(ceil(n, 64), 64), &cuda.AddArgs{X: up(r, g), Into: p, Scale: up(r, []float32{0.75}), N: n})
	r.near("add", down[float32](r, p, n), want(func(i int) float32 { return (x[i] + g[i]) * 0.75 }), 1e-7)
	r.inBF16("add", g, func(g cuda.Ptr, bf16 int32) []byte {
		p := up(r, x)
		launch(r, "add", cudatest.Line(ceil(n, 64), 64), &cuda.AddArgs{X: g, Into: p, N: n, XBF16: bf16})
		return down[byte](r, p, 4*n)
	})
	y := alloc[float32](r, 2*12)
	launch(r, "concat", cudatest.Line(2, 32), &cuda.ConcatArgs{A: up(r, x[:14]), B: up(r, g[:10]), Y: y, NA: 7, NB: 5})
	joined := append(append(append(append([]float32{}, x[:7]...), g[:5]...), x[7:14]...), g[5:10]...)
	r.near("concat", down[float32](r, y, 24), joined, 0)
	launch(r, "reorder", cudatest.Line(2, 32), &cuda.ConcatArgs{A: up(r, x[:6]), B: up(r, []float32{2, 0}), Y: y, NA: 3, NB: 2})
	r.near("reorder", down[float32](r, y, 4), []float32{x[2], x[0], x[5], x[3]}, 0)
}

func TestGLU(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		kernel              string
		act, paired         int32
		limit, alpha, shift float32
	}{{"glu4", 0, 0, 0, 1, 0}, {"glu", 1, 0, 0, 1, 0}, {"glu", 0, 1, 7, 1.702, 1}, {"glu4", 0, 0, 7, 1.702, 1},
		{"glu4", 2, 0, 0, 1, 0}, {"glu4", 1, 0, 4, 1, 0}, {"glu", 2, 1, 4, 1, 0.5}} {
		const rows, cols = 3, 20
		x, want := r.floats(rows*2*cols, 5), make([]float32, rows*cols)
		for i := range rows {
			gate, upper := append([]float32{}, x[i*2*cols:][:cols]...), append([]float32{}, x[i*2*cols+cols:][:cols]...)
			for j := range cols {
				if c.paired == 1 {
					gate[j], upper[j] = x[i*2*cols+2*j], x[i*2*cols+2*j+1]
				}
			}
			out := want[i*cols : (i+1)*cols]
			switch {
			case c.act == 2 || c.act == 1 && c.limit > 0:
				for j := range out {
					g, u := gate[j], upper[j]
					if c.limit > 0 {
						g, u = min(g, c.limit), max(-c.limit, min(u, c.limit))
					}
					act := gelu(g)
					if c.act == 1 {
						act = ref.GELUTanh(g)
					}
					out[j] = (u + c.shift) * act
				}
			case c.limit > 0:
				ref.ClampedGLU(gate, upper, c.limit, c.alpha, c.shift, out)
			case c.act == 1:
				ref.GeGLU(gate, upper, out)
			default:
				ref.SwiGLU(gate, upper, out)
			}
		}
		y := alloc[float32](r, rows*cols)
		a := cuda.GLUArgs{X: up(r, x), Y: y, Rows: rows, Cols: cols, Act: c.act, Paired: c.paired, Limit: c.limit, Alpha: c.alpha, Shift: c.shift}
		launch(r, c.kernel, cudatest.Line(2, 32), &a)
		r.near(fmt.Sprint(c), down[float32](r, y, rows*cols), want, 1e-6)
		r.inBF16(fmt.Sprint(c), x, func(x cuda.Ptr, bf16 int32) []byte {
			a.X, a.XBF16 = x, bf16
			launch(r, c.kernel, cudatest.Line(2, 32), &a)
			return down[byte](r, y, 4*rows*cols)
		})
	}
}

// TestRanks checks the kernels of ops between ranks: sums in the order of ranks, of parts whose
// sizes differ by one, and rows side by side.
func TestRanks(t *testing.T) {
	r := newRig(t)
	for _, world := range []int{2, 3, 5} {
		const n = 1003
		x := make([][]float32, world)
		for k := range x {
			x[k] = r.floats(n, float64(int(1)<<(4*k)))
		}
		for rank := range world {
			begin, end := n*rank/world, n*(rank+1)/world
			var parts []float32
			want := make([]float32, n)
			for i := range want {
				want[i] = float32(math.NaN())
			}
			for k := range x {
				parts = append(parts, x[k][begin:end]...)
				for i := begin; i < end; i++ {
					if k == 0 {
						want[i] = 0
					}
					want[i] += x[k][i]
				}
			}
			y := alloc[float32](r, n)
			launch(r, "sum_ranks", cudatest.Line((n/world+256)/256, 256), &cuda.SumRanksArgs{X: up(r, parts), Y: y, N: n, Rank: int32(rank), World: int32(world)})
			for i, got := range down[float32](r, y, n) {
				if math.Float32bits(got) != math.Float32bits(want[i]) && !(got != got && want[i] != want[i]) {
					t.Fatalf("rank %d of %d: number %d is %v, want %v", rank, world, i, got, want[i])
				}
			}
		}
		const rows, cols = 3, 70
		all := r.floats(world*rows*cols, 1)
		want := make([]float32, 0, len(all))
		for row := range rows {
			for k := range world {
				want = append(want, all[(k*rows+row)*cols:][:cols]...)
			}
		}
		y := alloc[float32](r, len(all))
		launch(r, "join_ranks", cudatest.Line(rows, 64), &cuda.JoinRanksArgs{X: up(r, all), Y: y, Cols: cols, World: int32(world), Rows: rows})
		r.near("join_ranks", down[float32](r, y, len(all)), want, 0)
	}
}
