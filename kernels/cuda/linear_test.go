package cuda_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cost"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

// unit returns the number that the columns of a matrix of a format must be a multiple of.
func unit(f kernels.Format) int {
	elems, _ := f.Block()
	return elems
}

// halves lists the offsets of binary16 numbers in blocks that ref does not quantize.
func halves(f kernels.Format) []int {
	switch f {
	case kernels.Q2_K:
		return []int{80, 82}
	case kernels.Q3_K:
		return []int{108}
	case kernels.Q4_K, kernels.Q5_K, kernels.Q5_1:
		return []int{0, 2}
	case kernels.Q6_K:
		return []int{208}
	case kernels.Q5_0, kernels.IQ4_NL:
		return []int{0}
	}
	return nil
}

// blocks returns rows·cols weights stored as f: quantized where ref can quantize, else random
// bits with scales around scale.
func (r *rig) blocks(f kernels.Format, rows, cols int) []byte {
	at := halves(f)
	if at == nil && f != kernels.MXFP4 && f != kernels.I8 && f != kernels.I4 && f != kernels.NVFP4 {
		b, _ := stored(f, r.floats(rows*cols, 0.5))
		return b
	}
	elems, size := f.Block()
	out := make([]byte, rows*cols/elems*size)
	for i := range out {
		out[i] = byte(r.rnd.Uint32())
	}
	for b := range len(out) / size {
		block := out[b*size : (b+1)*size]
		for _, i := range at {
			copy(block[i:], cudatest.Bytes([]uint16{ref.FloatToHalf(float32(r.rnd.Float64()*0.01 + 0.001))}))
		}
		if f == kernels.I4 {
			head := math.Float32bits(float32(r.rnd.Float64()*0.01+0.001))&^ref.ZeroBits | uint32(r.rnd.IntN(17))
			binary.LittleEndian.PutUint32(block, head)
		}
		if f == kernels.NVFP4 {
			if block[8] &= 0x87; r.rnd.IntN(4) > 0 { // subnormal, of either sign
				block[8] |= 0x28 + byte(r.rnd.IntN(2))<<3
			}
		}
		if f == kernels.MXFP4 {
			block[16] = byte(120 + r.rnd.IntN(6))
		}
	}
	return out
}

// matrix is a weight on the device.
type matrix struct {
	f         kernels.Format
	out, in   int
	values    []float32 // [out, in]
	packed    cuda.Ptr
	bytes     int64
	scales    cuda.Ptr
	scaleRows int
}

func (r *rig) matrix(f kernels.Format, out, in int, scales *ref.Scales) matrix {
	r.Helper()
	return r.packed(f, out, in, r.blocks(f, out, in), scales)
}

// packed uploads src in panels.
func (r *rig) packed(f kernels.Format, out, in int, src []byte, scales *ref.Scales) matrix {
	r.Helper()
	m := matrix{f: f, out: out, in: in, values: make([]float32, out*in), bytes: cuda.PackedBytes(f, out, in)}
	ref.Dequantize(f, src, m.values)
	for o := range out {
		scales.Apply(o, m.values[o*in:(o+1)*in])
	}
	dst := make([]byte, m.bytes)
	if err := cuda.Pack(f, out, in, src, dst); err != nil {
		r.Fatal(err)
	}
	m.packed = up(r, dst)
	if scales != nil {
		m.scales = up(r, scales.Values)
	}
	return m
}

// args returns the arguments for a matrix that all kernels of a product share.
func (m matrix) args(scales *ref.Scales) cuda.LinearArgs {
	a := cuda.LinearArgs{W: m.packed, Scales: m.scales, In: int32(m.in), Out: int32(m.out), Splits: 1, Parts: 1, ScaleRows: 1, ScaleCols: 1, ScaleAcross: 1}
	if scales != nil {
		a.ScaleRows, a.ScaleCols, a.ScaleAcross = int32(scales.Rows), int32(scales.Cols), int32(scales.Across)
	}
	return a
}

// packX uploads x as fragments, for l's kernel.
func (r *rig) packX(l cuda.Linear, f kernels.Format, x []float32, rows, in int, order []int32) (y, sums cuda.Ptr) {
	to := cuda.RoundsTo(f)
	bytes, more := to.Bytes(rows, in)
	a := cuda.PackArgs{X: up(r, x), Y: alloc[byte](r, int(bytes)), Sums: alloc[byte](r, int(more)), Order: up(r, order), Rows: int32(rows), In: int32(in)}
	if l.Words {
		a.Words = 1
	} else if l.Plain {
		a.Words = 2
	}
	launch(r, to.Kernel(cuda.FromRows), grid(to, cuda.FromRows, rows, in), &a)
	return a.Y, a.Sums
}

func grid(to cuda.Rounding, s cuda.Source, rows, in int) cudatest.Grid {
	return listGrid(to, s, rows, in, rows)
}

// listGrid returns the launch in a list of up to most rows.
func listGrid(to cuda.Rounding, s cuda.Source, rows, in, most int) cudatest.Grid {
	blocks, threads := to.Grid(s, rows, in, most)
	return cudatest.Grid{Blocks: blocks, Threads: [3]int{threads, 1, 1}}
}

// rounded returns x as linear_pack rounds it.
func rounded(f kernels.Format, x []float32) []float32 {
	if f != kernels.F16 {
		f = kernels.BF16
	}
	_, back := stored(f, x)
	return back
}

// backed returns rounded x as floats.
func (r *rig) backed(to cuda.Rounding, x []float32, rows, in int) []float32 {
	codes, by := roundedTo(to, x, rows, in)
	group := in
	if to.Group != 0 {
		group = to.Group
	}
	for i := range codes {
		if by != nil {
			codes[i] *= by[i/in*ceil(in, group)+i%in/group]
		}
	}
	return codes
}

// rounded returns the product of x as linear_pack rounds it.
func (m matrix) rounded(x, bias []float32, rows int) []float32 {
	return m.product(rounded(m.f, x), bias, rows)
}

// product returns ref's product.
func (m matrix) product(x, bias []float32, rows int) []float32 {
	y := make([]float32, rows*m.out)
	ref.Linear(ref.LinearArgs{
		Rows: rows, In: m.in, Out: m.out, X: x, W: cudatest.Bytes(m.values), Format: kernels.F32, Bias: bias, Y: y,
		To: m.out, Row: make([]float32, m.in),
	})
	return y
}

// yBF16 runs a product once more with Y in bf16, which must be want, its Y in float32, rounded. Of rows without a place in order nothing is
// compared; nil: all have one.
func (r *rig) yBF16(what string, a *cuda.LinearArgs, want []float32, order []int32, run func()) {
	r.Helper()
	kept := *a
	a.Y, a.YBF16 = alloc[uint16](r, len(want)), 1
	run()
	rounded, _ := stored(kernels.BF16, want)
	for i, v := range down[uint16](r, a.Y, len(want)) {
		if w := binary.LittleEndian.Uint16(rounded[2*i:]); v != w && (order == nil || order[i/int(a.Out)] >= 0) {
			r.Fatalf("%s: element %d in bf16 is %#x, want %#x, which is %v", what, i, v, w, want[i])
		}
	}
	*a = kept
}

// TestLinear compares every format and kernel with ref: a single row, rows and features that
// are no whole tiles, splits, scales of every kind.
func TestLinear(t *testing.T) {
	for _, f := range cuda.PackedFormats() {
		t.Run(f.String(), func(t *testing.T) {
			r := newRig(t)
			for _, rows := range []int{1, 11, 32, 137} {
				in, out := 2*unit(f), 75
				if unit(f) <= 32 {
					in = 32 * 11
				}
				if rows == 137 {
					in, out = max(unit(f), 160), 151
				}
				if unit(f) == 1 && rows != 32 {
					in += 5 // the last step is partial
				}
				testLinear(r, f, rows, in, out)
			}
		})
	}
}

func testLinear(r *rig, f kernels.Format, rows, in, out int) {
	l, ok := cuda.ChooseLinear(f, rows)
	if !ok {
		r.Fatalf("%v has no kernel", f)
	}
	scales := (*ref.Scales)(nil)
	if f == kernels.F8E4M3 {
		across := ceil(in, 128)
		scales = &ref.Scales{Values: r.floats(ceil(out, 128)*across, 1), Rows: 128, Cols: 128, Across: across}
	}
	if f == kernels.F8E5M2 || f == kernels.I8 || f == kernels.NVFP4 {
		scales = &ref.Scales{Values: r.floats(out, 1), Rows: 1, Cols: in, Across: 1}
	}
	m := r.matrix(f, out, in, scales)
	x, bias := r.floats(rows*in, 1), r.floats(out, 1)
	want := m.rounded(x, bias, rows)
	xs, sums := r.packX(l, f, x, rows, in, nil)
	for _, n := range []int{1, 3} {
		a := m.args(scales)
		a.X, a.Sums, a.Bias, a.Rows, a.Splits = xs, sums, up(r, bias), int32(rows), int32(n)
		bytes, counters := l.PartialBytes(out, rows, n)
		a.Partial, a.Arrived = alloc[byte](r, int(bytes)), up(r, make([]uint32, counters))
		g := cudatest.Grid{
			Blocks:  l.Blocks(out, rows, n),
			Threads: [3]int{l.Threads, 1, 1}, Shared: l.Shared,
		}
		run := func() []float32 {
			a.Y = alloc[float32](r, rows*out)
			launch(r, l.Kernel, g, &a)
			r.prefetched(l.Kernel, g.Blocks, a, m.bytes, 16)
			for _, n := range down[uint32](r, a.Arrived, counters) {
				if n != 0 {
					r.Errorf("%s leaves %d in its counters", l.Kernel, n)
				}
			}
			return down[float32](r, a.Y, rows*out)
		}
		var got []float32
		if f == kernels.Q4_1 || f == kernels.BF16 {
			got = r.eachSchedule(run)
		} else {
			got = run()
		}
		r.near(fmt.Sprintf("%s, %d rows, %d splits", l.Kernel, rows, n), got, want, exactSums)
		r.yBF16(fmt.Sprintf("%s, %d rows, %d splits", l.Kernel, rows, n), &a, got, nil, func() { launch(r, l.Kernel, g, &a) })
	}
}

// prefetched checks what the last launch prefetched before it waited for the kernel before: bytes of W alone, none of them
// twice, the first ones of each panel of so many features, and as many as the cost model counts or more. Only warpgroups
// prefetch nothing.
func (r *rig) prefetched(kernel string, blocks [3]int, a cuda.LinearArgs, bytes int64, features int) {
	r.Helper()
	got, err := r.Prefetched()
	if err != nil {
		r.Fatal(err)
	}
	if strings.HasSuffix(kernel, "_wide") {
		if len(got) != 0 {
			r.Errorf("%s prefetches %d pieces", kernel, len(got))
		}
		return
	}
	slices.SortFunc(got, func(p, q [2]uint64) int { return cmp.Compare(p[0], q[0]) })
	end, panels := uint64(a.W), ceil(int(a.Out), features)
	there := map[uint64]bool{}
	for _, p := range got {
		if p[0] < end || p[0]+p[1] > uint64(a.W)+uint64(bytes) {
			r.Errorf("%s prefetches %d bytes at %d of %d, up to %d are prefetched already", kernel, p[1], p[0]-uint64(a.W), bytes, end-uint64(a.W))
		}
		end = p[0] + p[1]
		there[p[0]-uint64(a.W)] = true
	}
	total := uint64(0)
	for _, p := range got {
		total += p[1]
	}
	c := cost.Counter{Rows: []cost.Row{{Count: int(a.Rows)}}}
	w, err := c.Count(cost.Launch{Kernel: kernel, Blocks: blocks, Threads: 256, Args: cudatest.Bytes([]cuda.LinearArgs{a})})
	if counted := w.Prefetched; err != nil || counted <= 0 || counted > float64(total) {
		r.Errorf("%s prefetches %d bytes, the cost model counts %.0f (%v)", kernel, total, counted, err)
	}
	for i := range panels {
		if at := uint64(i) * uint64(bytes) / uint64(panels); !there[at] {
			r.Errorf("%s does not prefetch the first bytes of panel %d", kernel, i)
		}
	}
}

// TestLinearPlain multiplies W and X stored row by row; a row's bits must not depend on the
// number of rows. 8-bit numbers have scales for a row or for 128 columns, and W's scales may be
// of parts.
func TestLinearPlain(t *testing.T) {
	for _, to := range []cuda.Rounding{cuda.RoundsTo(kernels.BF16), cuda.RoundsTo(kernels.F16), {Format: kernels.F8E4M3}, {Format: kernels.F8E4M3, Group: 128}} {
		t.Run(fmt.Sprint(to.Format, to.Group), func(t *testing.T) {
			r := newRig(t)
			in := 32 * 21
			if to.Format == kernels.F8E4M3 {
				in *= 2
			}
			for _, rows := range []int{1, 8, 11, 37} {
				testLinearPlain(r, to, rows, in, 76)
			}
			testLinearPlain(r, to, 5, 32, 16)
			testLinearPlain(r, to, 3, 160, 272) // the last unit of 8-bit numbers is half a unit
		})
	}
}

func testLinearPlain(r *rig, to cuda.Rounding, rows, in, out int) {
	f := to.Format
	w, values := stored(f, r.floats(out*in, 1))
	x, bias := r.floats(rows*in, 1), r.floats(out, 1)
	scales := (*ref.Scales)(nil)
	switch {
	case to.Group != 0:
		across := ceil(in, to.Group)
		scales = &ref.Scales{Values: r.floats(ceil(out, to.Group)*across, 1), Rows: to.Group, Cols: to.Group, Across: across}
	case f == kernels.F8E4M3:
		scales = &ref.Scales{Values: r.floats(out, 1), Rows: 1, Cols: in, Across: 1}
	}
	for o := range out {
		scales.Apply(o, values[o*in:(o+1)*in])
	}
	m := matrix{f: f, in: in, out: out, values: values, packed: up(r, w)}
	if scales != nil {
		m.scales = up(r, scales.Values)
	}
	want := m.product(r.backed(to, x, rows, in), bias, rows)
	p := r.packArgs(to, x, rows, in)
	p.Words = 2
	launch(r, to.Kernel(cuda.FromRows), grid(to, cuda.FromRows, rows, in), &p)
	few := []int{8, 16} // rows of a block, of which there may be several
	if rows <= 8 {
		few = []int{rows, 16}
	}
	for _, splits := range []int{1, 3} {
		var first []float32
		for _, by := range few {
			l := cuda.ChoosePlain(f, by)
			bytes, counters := l.PartialBytes(out, rows, splits)
			a := m.args(scales)
			a.X, a.Sums, a.XSteps, a.Bias, a.Rows, a.Splits = p.Y, p.Sums, int32(to.ScaleSteps(in)), up(r, bias), int32(rows), int32(splits)
			a.Partial, a.Arrived = alloc[byte](r, int(bytes)), up(r, make([]uint32, counters))
			g := cudatest.Grid{Blocks: l.Blocks(out, rows, splits), Threads: [3]int{l.Threads, 1, 1}, Shared: l.Shared}
			got := r.eachSchedule(func() []float32 {
				a.Y = alloc[float32](r, rows*out)
				launch(r, l.Kernel, g, &a)
				r.prefetched(l.Kernel, g.Blocks, a, int64(len(w)), 1)
				return down[float32](r, a.Y, rows*out)
			})
			for _, n := range down[uint32](r, a.Arrived, counters) {
				if n != 0 {
					r.Errorf("%s leaves %d in its counters", l.Kernel, n)
				}
			}
			r.near(fmt.Sprintf("%s, %d rows, %d splits", l.Kernel, rows, splits), got, want, exactSums)
			r.yBF16(fmt.Sprintf("%s, %d rows, %d splits", l.Kernel, rows, splits), &a, got, nil, func() { launch(r, l.Kernel, g, &a) })
			if first == nil {
				first = got
			}
			if !slices.Equal(first, got) {
				r.Errorf("%s: other bits than blocks of %d rows give", l.Kernel, few[0])
			}
		}
	}
}

// TestLinearBias checks that rows get a bias, and that memory after them does not.
func TestLinearBias(t *testing.T) {
	r := newRig(t)
	const rows, behind, out = 5, 2, 76
	y, bias := r.floats((rows+behind)*out, 1), r.floats(out, 1)
	a := cuda.LinearBiasArgs{Y: up(r, y), Bias: up(r, bias), N: rows * out / 4, Out: out / 4}
	launch(r, cuda.LinearBias, cudatest.Line(ceil(rows*out/4, 256), 256), &a)
	for i := range rows * out {
		y[i] += bias[i%out]
	}
	r.near("linear_bias", down[float32](r, a.Y, len(y)), y, 0)
}

// TestLinearRounded multiplies X rounded to the format of W: by row, by 128 columns, and with a
// given scale.
func TestLinearRounded(t *testing.T) {
	for _, to := range roundings[2:] {
		t.Run(fmt.Sprint(to.Format, to.Group), func(t *testing.T) {
			r := newRig(t)
			for _, rows := range []int{1, 11, 32, 133} {
				in, out := 365, 75
				if rows == 133 {
					in, out = 160, 150
				}
				testLinearRounded(r, to, rows, in, out)
			}
		})
	}
}

func testLinearRounded(r *rig, to cuda.Rounding, rows, in, out int) {
	scales := &ref.Scales{Values: r.floats(out, 1), Rows: 1, Cols: in, Across: 1}
	if to.Group != 0 {
		across := ceil(in, 128)
		scales = &ref.Scales{Values: r.floats(ceil(out, 128)*across, 1), Rows: 128, Cols: 128, Across: across}
	}
	m := r.matrix(to.Format, out, in, scales)
	x, bias := r.floats(rows*in, 1), r.floats(out, 1)
	want := m.product(r.backed(to, x, rows, in), bias, rows)
	p := r.packArgs(to, x, rows, in)
	launch(r, to.Kernel(cuda.FromRows), grid(to, cuda.FromRows, rows, in), &p)
	l, _ := cuda.ChooseRounded(to.Format, rows)
	a := m.args(scales)
	a.X, a.Sums, a.XSteps, a.Bias, a.Rows = p.Y, p.Sums, int32(to.ScaleSteps(in)), up(r, bias), int32(rows)
	g := cudatest.Grid{Blocks: l.Blocks(out, rows, 1), Threads: [3]int{l.Threads, 1, 1}, Shared: l.Shared}
	run := func() []float32 {
		a.Y = alloc[float32](r, rows*out)
		launch(r, l.Kernel, g, &a)
		return down[float32](r, a.Y, rows*out)
	}
	what := fmt.Sprintf("%s, %d rows", l.Kernel, rows)
	got := run()
	r.near(what, got, want, exactSums)
	r.yBF16(what, &a, got, nil, func() { launch(r, l.Kernel, g, &a) })
	if to.Format == kernels.F8E4M3 {
		r.nearCut(what, run, want, r.backed(to, x, rows, in), m)
	}
}

// wideRounds lists formats of warpgroups' products, and the format that X is rounded to.
var wideRounds = []struct {
	w kernels.Format
	x cuda.Rounding
}{
	{kernels.BF16, cuda.RoundsTo(kernels.BF16)}, {kernels.F16, cuda.RoundsTo(kernels.F16)}, {kernels.F8E4M3, cuda.RoundsTo(kernels.BF16)},
	{kernels.F8E5M2, cuda.RoundsTo(kernels.BF16)}, {kernels.F8E4M3, cuda.Rounding{Format: kernels.F8E4M3, Group: 128}},
	{kernels.F8E4M3, cuda.Rounding{Format: kernels.F8E4M3}},
	{kernels.MXFP4, cuda.RoundsTo(kernels.MXFP4)}, {kernels.Q8_0, cuda.RoundsTo(kernels.Q8_0)}, {kernels.Q4_0, cuda.RoundsTo(kernels.Q4_0)},
	{kernels.IQ4_NL, cuda.RoundsTo(kernels.IQ4_NL)}, {kernels.Q5_0, cuda.RoundsTo(kernels.Q5_0)},
}

// TestLinearWide tests the products of warpgroups: the last step may be single, the ring of
// stages wraps around, and there is one row with one step.
func TestLinearWide(t *testing.T) {
	for _, to := range wideRounds {
		t.Run(fmt.Sprint(to.w, to.x.Format, to.x.Group), func(t *testing.T) {
			r := newRig(t)
			long, short := 365, 27
			if unit(to.w) == 32 {
				long, short = 352, 32
			}
			testLinearWide(r, to.w, to.x, 137, long, 301, to.w == kernels.BF16 || to.w == kernels.MXFP4 || to.w == kernels.Q4_0)
			testLinearWide(r, to.w, to.x, 1, short, 19, true)
			if to.w != kernels.BF16 && to.w != kernels.F16 && to.w != kernels.MXFP4 { // scaled in halves: more stages than a ring has
				testLinearWide(r, to.w, to.x, 90, 1152, 20, to.w == kernels.Q4_0)
			}
		})
	}
}

// TestLinearMid tests the products of few rows by warpgroups: blocks of every size, more rows than a block has, a ring that
// wraps around, splits of which some are empty, and one row with one step. A row's bits do not depend on the other rows.
func TestLinearMid(t *testing.T) {
	for _, to := range wideRounds {
		if l := wideFor(to.w, to.x, 16); !strings.Contains(l.Kernel, "_mid_") {
			continue
		}
		t.Run(fmt.Sprint(to.w, to.x.Format, to.x.Group), func(t *testing.T) {
			r := newRig(t)
			for _, rows := range []int{16, 32, 64} {
				out, in, short := 140, 589, 27
				if rows == 16 {
					out, in = 20, 1165 // as many stages as a ring has, and more
				}
				if unit(to.w) == 32 {
					in, short = in/32*32, 32
				}
				if to.w == kernels.MXFP4 { // a block has 256 features
					out += 130
				}
				l := wideFor(to.w, to.x, rows)
				r.linearWide(l, to.w, to.x, rows+5, in, out, rows == 16 && (to.w == kernels.MXFP4 || to.w == kernels.Q4_0))
				if rows < 64 {
					r.linearWide(l, to.w, to.x, 1, short, 19, false)
				}
			}
		})
	}
}

// wide returns the kernel of warpgroups for many rows, W in a format and the rounding of X.
func wide(w kernels.Format, x cuda.Rounding) cuda.Linear { return wideFor(w, x, cuda.TileRows+1) }

// wideFor returns the kernel of sm_90a for a number of rows.
func wideFor(w kernels.Format, x cuda.Rounding, rows int) cuda.Linear {
	l, _ := cuda.ChooseLinear(w, rows)
	if x.Format == kernels.F8E4M3 {
		l, _ = cuda.ChooseRounded(w, rows)
	}
	return l.Wide(w, rows, "sm_90a")
}

func testLinearWide(r *rig, w kernels.Format, to cuda.Rounding, rows, in, out int, schedules bool) {
	r.linearWide(wide(w, to), w, to, rows, in, out, schedules)
}

// linearWide compares a product of X in word order with ref's, whole and in splits; the first rows alone have the same bits, and so do blocks of 64
// rows and of 128.
func (r *rig) linearWide(l cuda.Linear, w kernels.Format, to cuda.Rounding, rows, in, out int, schedules bool) {
	r.Helper()
	scales := (*ref.Scales)(nil)
	if w == kernels.F8E4M3 {
		scales = &ref.Scales{Values: r.floats(ceil(out, 128)*ceil(in, 128), 1), Rows: 128, Cols: 128, Across: ceil(in, 128)}
	}
	m, x, bias := r.matrix(w, out, in, scales), r.floats(rows*in, 1), r.floats(out, 1)
	a := m.args(scales)
	a.Bias, a.Rows, a.XSteps = up(r, bias), int32(rows), int32(to.ScaleSteps(in))
	p := r.packArgs(to, x, rows, in)
	p.Words = 1
	multiply := func() (g cudatest.Grid) {
		g = cudatest.Grid{Blocks: l.Blocks(out, rows, int(a.Splits)), Threads: [3]int{l.Threads, 1, 1}, Shared: l.Shared}
		launch(r, l.Kernel, g, &a)
		return g
	}
	run := func() []float32 {
		launch(r, to.Kernel(cuda.FromRows), grid(to, cuda.FromRows, rows, in), &p)
		a.X, a.Sums, a.Y = p.Y, p.Sums, alloc[float32](r, rows*out)
		g := multiply()
		r.prefetched(l.Kernel, g.Blocks, a, m.bytes, 16)
		return down[float32](r, a.Y, rows*out)
	}
	what := fmt.Sprintf("%s, %d rows", l.Kernel, rows)
	want := m.product(r.backed(to, x, rows, in), bias, rows)
	a.Splits = 6 // one pair of steps each, rounded up to two: some splits are empty
	bytes, counters := l.PartialBytes(out, rows, int(a.Splits))
	a.Partial, a.Arrived = alloc[byte](r, int(bytes)), up(r, make([]uint32, counters))
	got := run()
	r.near(what+" in splits", got, want, exactSums)
	r.yBF16(what+" in splits", &a, got, nil, func() { multiply() })
	a.Splits = 1
	if schedules {
		got = r.eachSchedule(run)
	} else {
		got = run()
	}
	r.near(what, got, want, exactSums)
	r.yBF16(what, &a, got, nil, func() { multiply() })
	if mid := wideFor(w, to, 64); l.Rows == 128 && strings.Contains(mid.Kernel, "_mid_") {
		wide := l
		l = mid
		if !slices.Equal(run(), got) {
			r.Errorf("%s: blocks of 64 rows have other bits", what)
		}
		l = wide
	}
	if to.Format == kernels.F8E4M3 && (rows > 64 && in < 1000 || schedules) { // a device's sums take long
		r.nearCut(what, run, want, r.backed(to, x, rows, in), m)
	}
	a.Rows, p.Rows = 1, 1
	if alone := run(); !slices.Equal(alone[:out], got[:out]) {
		r.Errorf("%s: the first row has other bits alone", what)
	}
}

// exactSums is the bound of products whose sums are exact but for the roundings of float32, relative to the largest
// result: the emulation's.
const exactSums = 3e-6

// nearCut compares the products of run with want when the units keep as many bits of a sum of E4M3 as those of a device
// do: within ref.SumErrorE4M3, and in the root mean square within its standard error. With three bits fewer they must be
// outside, so that the bounds are tight enough to show an error. x is what the kernel multiplies.
func (r *rig) nearCut(what string, run func() []float32, want, x []float32, m matrix) {
	r.Helper()
	defer r.E4M3Bits(0)
	var top float64
	for _, v := range want {
		top = max(top, math.Abs(float64(v)))
	}
	few := map[int][2]float64{} // the bounds of some results
	for i := 0; i < len(want); i += 1 + len(want)/2000 {
		most, standard := ref.SumErrorE4M3(x[i/m.out*m.in:][:m.in], m.values[i%m.out*m.in:][:m.in])
		few[i] = [2]float64{most + exactSums*top, standard + exactSums*top}
	}
	for _, bits := range []int{ref.SumBitsE4M3, ref.SumBitsE4M3 - 3} {
		r.E4M3Bits(bits)
		got, square, worst := run(), 0.0, 0.0
		for i, bound := range few {
			d := math.Abs(float64(got[i]) - float64(want[i]))
			worst = max(worst, d/bound[0])
			square += d / bound[1] * d / bound[1]
		}
		if rms := math.Sqrt(square / float64(len(few))); bits == ref.SumBitsE4M3 && !(worst <= 1 && rms <= 1) || bits < ref.SumBitsE4M3 && rms <= 1 {
			r.Errorf("%s, units that keep %d bits: %.3g of the bound, root mean square %.3g standard errors", what, bits, worst, rms)
		}
	}
}

// TestLinearLong multiplies rows as long as those of real models, whose weights and inputs wrap around the rings of
// stages many times: a hidden state of 4,096, and 14,336 between the products of an MLP. The tag soak has every format
// and both lengths; without it there are a few.
func TestLinearLong(t *testing.T) {
	long := func(name string, test func(r *rig, in int), lengths ...int) {
		for _, in := range lengths {
			t.Run(fmt.Sprintf("%s/%d", name, in), func(t *testing.T) { test(newRig(t), in) })
		}
	}
	for _, f := range cuda.PackedFormats() {
		lengths := map[kernels.Format][]int{kernels.F16: {4096}, kernels.Q8_0: {14336}, kernels.Q4_K: {4096}}[f]
		if longSoak {
			lengths = []int{4096, 14336}
		}
		for _, rows := range []int{20, 65} { // one block of _64, of _tile
			long(fmt.Sprintf("%v/%d rows", f, rows), func(r *rig, in int) { testLinear(r, f, rows, in, 20) }, lengths...)
		}
	}
	for _, to := range wideRounds {
		lengths := map[kernels.Format][]int{kernels.BF16: {14336}, kernels.F8E4M3: {4096}, kernels.Q4_0: {4096}}[to.w]
		if longSoak {
			lengths = []int{4096, 14336}
		}
		long(fmt.Sprint("wide ", to.w, to.x.Format, to.x.Group), func(r *rig, in int) { testLinearWide(r, to.w, to.x, 9, in, 20, false) }, lengths...)
	}
	for _, to := range roundings[2:] {
		lengths := []int(nil)
		if longSoak {
			lengths = []int{4096, 14336}
		}
		long(fmt.Sprint("x8 ", to.Format, to.Group), func(r *rig, in int) { testLinearRounded(r, to, 65, in, 20) }, lengths...)
	}
}

// TestWidePowers checks that extreme exponents of MXFP4 are multiplied into the fragments as in
// ref, including subnormals and infinities.
func TestWidePowers(t *testing.T) {
	const rows, in, out = 3, 64, 16
	for power, exponents := range map[int][]byte{100: {0, 1, 2, 126, 127}, 99: {0, 1, 128}, 0: {126, 131}, -100: {127, 128, 129, 251, 252, 253, 254}} {
		for _, by := range []int{16, 129} {
			t.Run(fmt.Sprint(power, by), func(t *testing.T) {
				r := newRig(t)
				src := r.blocks(kernels.MXFP4, out, in)
				for i := range len(src) / 17 { // by features: near compares relative to the largest number
					src[17*i+16] = exponents[i/2%len(exponents)]
				}
				m := r.packed(kernels.MXFP4, out, in, src, nil)
				x := r.floats(rows*in, math.Ldexp(1, power))
				l, a := wideFor(m.f, cuda.RoundsTo(m.f), by), m.args(nil)
				a.X, a.Sums = r.packX(l, m.f, x, rows, in, nil)
				a.Rows, a.Y = rows, alloc[float32](r, rows*out)
				launch(r, l.Kernel, cudatest.Grid{Blocks: l.Blocks(out, rows, 1), Threads: [3]int{l.Threads, 1, 1}, Shared: l.Shared}, &a)
				got, want := down[float32](r, a.Y, rows*out), m.rounded(x, nil, rows)
				for f := range out {
					var g, w []float32
					for row := range rows {
						g, w = append(g, got[row*out+f]), append(w, want[row*out+f])
					}
					r.near(fmt.Sprintf("exponent %d", exponents[f%len(exponents)]), g, w, exactSums)
				}
			})
		}
	}
}

// TestLinearParts tests a fused weight whose parts begin new blocks of scales.
func TestLinearParts(t *testing.T) {
	r := newRig(t)
	const in, rows = 256, 2
	parts := []int{40, 24, 136} // the third has two rows of blocks
	out := 200
	values := r.floats(4*2, 1)
	one := &ref.Scales{Values: make([]float32, out*2), Rows: 1, Cols: 128, Across: 2} // by row, for ref
	for o := range out {
		at := 0
		switch {
		case o >= 64+128:
			at = 3
		case o >= 64:
			at = 2
		case o >= 40:
			at = 1
		}
		copy(one.Values[2*o:], values[2*at:2*at+2])
	}
	m := r.matrix(kernels.F8E4M3, out, in, one)
	x := r.floats(rows*in, 1)
	a := m.args(&ref.Scales{Rows: 128, Cols: 128, Across: 2})
	a.Scales, a.Parts, a.Rows = up(r, values), int32(len(parts)), rows
	a.PartRow, a.PartScale = [4]int32{0, 40, 64}, [4]int32{0, 1, 2}
	l, _ := cuda.ChooseLinear(m.f, rows)
	a.X, a.Sums = r.packX(l, m.f, x, rows, in, nil)
	a.Y = alloc[float32](r, rows*out)
	g := cudatest.Grid{Blocks: l.Blocks(out, rows, 1), Threads: [3]int{l.Threads, 1, 1}, Shared: l.Shared}
	launch(r, l.Kernel, g, &a)
	r.near("parts", down[float32](r, a.Y, rows*out), m.rounded(x, nil, rows), exactSums)
}

func TestLinearF32(t *testing.T) {
	r := newRig(t)
	const out = 19
	for _, c := range [][2]int{{1, 45}, {6, 45}, {6, 308}} {
		rows, in := c[0], c[1]
		w, x, bias, want := r.floats(in*out, 1), r.floats(rows*in, 1), r.floats(out, 1), make([]float32, rows*out)
		ref.Linear(ref.LinearArgs{Rows: rows, In: in, Out: out, X: x, W: cudatest.Bytes(w), Format: kernels.F32, Bias: bias, Y: want, To: out, Row: make([]float32, in)})
		y := alloc[float32](r, rows*out)
		a := cuda.LinearArgs{W: up(r, w), X: up(r, x), Bias: up(r, bias), Y: y, Rows: int32(rows), In: int32(in), Out: out}
		launch(r, "linear_f32", cudatest.Grid{Blocks: [3]int{ceil(rows, 4), ceil(out, 8), 1}, Threads: [3]int{256, 1, 1}}, &a)
		r.near("f32", down[float32](r, y, rows*out), want, 1e-6)
	}
}

func TestEmbedPacked(t *testing.T) {
	for _, f := range cuda.PackedFormats() {
		t.Run(f.String(), func(t *testing.T) {
			r := newRig(t)
			in, rows := 2*unit(f), 37
			if in == 2 {
				in = 45
			}
			m := r.matrix(f, rows, in, nil)
			ids := []int32{3, 39, 11, 2, 40, 27}
			want := make([]float32, len(ids)*in)
			for i, id := range ids {
				if row := int(id) - 3; row >= 0 && row < rows {
					for j, v := range m.values[row*in : (row+1)*in] {
						want[i*in+j] = v * 2
					}
				}
			}
			y := alloc[float32](r, len(want))
			launch(r, "embed_packed_"+f.String(), cudatest.Line(len(ids), 64), &cuda.EmbedPackedArgs{IDs: up(r, ids), Table: m.args(nil), Y: y, Scale: 2, Row0: 3})
			r.near(f.String(), down[float32](r, y, len(want)), want, 1e-7)
		})
	}
}

// TestPackRefuses checks that input that no kernel reads is an error, not a wrong product.
func TestPackRefuses(t *testing.T) {
	for _, c := range []struct {
		f          kernels.Format
		rows, cols int
		src        int
	}{{kernels.Q8_0, 4, 40, 4 * 34}, {kernels.Q4_K, 2, 128, 144}, {kernels.F32, 2, 32, 256}, {kernels.BF16, 0, 32, 0}, {kernels.BF16, 2, 32, 100}} {
		if cuda.Pack(c.f, c.rows, c.cols, make([]byte, c.src), make([]byte, cuda.PackedBytes(c.f, c.rows, c.cols))) == nil {
			t.Errorf("%+v was packed", c)
		}
	}
	for f, nan := range map[kernels.Format]byte{kernels.F8E4M3: 0xff, kernels.F8E5M2: 0x7c} {
		src := make([]byte, 32)
		src[31] = nan
		if cuda.Pack(f, 1, 32, src, make([]byte, cuda.PackedBytes(f, 1, 32))) == nil {
			t.Errorf("%v: code %#x was packed", f, nan)
		}
	}
}
