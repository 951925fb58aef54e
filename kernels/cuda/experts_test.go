package cuda_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

func TestRoute(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		rows, experts, top int
		scaled, corrected  bool
		router             ref.Router
	}{
		{rows: 1, experts: 8, top: 2}, {rows: 5, experts: 128, top: 8, scaled: true}, {rows: 3, experts: 33, top: 33}, {rows: 2, experts: 512, top: 10, scaled: true},
		{rows: 5, experts: 60, top: 4, router: ref.Router{Score: ref.Softmax}},
		{rows: 3, experts: 64, top: 6, corrected: true, router: ref.Router{Score: ref.Softmax, Normalize: true}},
		{rows: 3, experts: 128, top: 8, corrected: true, scaled: true, router: ref.Router{Score: ref.Sigmoided, Normalize: true, Factor: 2.5}},
		{rows: 5, experts: 256, top: 8, corrected: true, router: ref.Router{Score: ref.Sigmoided, Groups: 8, TopGroups: 4}},
		{rows: 5, experts: 16, top: 1, router: ref.Router{Score: ref.Logit}},
		{rows: 5, experts: 160, top: 6, router: ref.Router{Score: ref.Softmax, Groups: 32, TopGroups: 2, Factor: 16}},
		{rows: 5, experts: 160, top: 6, router: ref.Router{Score: ref.Softmax, Groups: 8, TopGroups: 3, GroupTop: 1, Factor: 16}},
	} {
		logits, router := r.floats(c.rows*c.experts, 2), c.router
		for i := range logits { // ties
			logits[i] = float32(math.Round(float64(logits[i]) * 4))
		}
		logits[0] = float32(math.Inf(-1))
		if c.scaled {
			router.Scale = r.floats(c.experts, 1)
		}
		if c.corrected {
			router.Correction = r.floats(c.experts, 0.3)
		}
		ids, weights := make([]int32, c.rows*c.top), make([]float32, c.rows*c.top)
		for i := range c.rows {
			router.Route(logits[i*c.experts:(i+1)*c.experts], ids[i*c.top:(i+1)*c.top], weights[i*c.top:(i+1)*c.top])
		}
		a := cuda.RouteArgs{
			Logits: up(r, logits), Scale: up(r, router.Scale), Correction: up(r, router.Correction), IDs: alloc[int32](r, len(ids)), Weights: alloc[float32](r, len(ids)),
			Rows: int32(c.rows), Experts: int32(c.experts), Top: int32(c.top), Score: int32(router.Score),
			Groups: int32(router.Groups), TopGroups: int32(router.TopGroups), GroupTop: int32(cmp.Or(router.GroupTop, 2)), Factor: cmp.Or(router.Factor, 1),
		}
		if router.Normalize {
			a.Normalize = 1
		}
		launch(r, "route", cudatest.Line(ceil(c.rows, 2), 64), &a)
		if got := down[int32](r, a.IDs, len(ids)); fmt.Sprint(got) != fmt.Sprint(ids) {
			t.Errorf("%+v: %v, want %v", c, got, ids)
		}
		got := down[float32](r, a.Weights, len(ids))
		r.near(fmt.Sprint(c), got, weights, 1e-6)
		r.routeOrder(a, ids, got)
	}
}

// routeOrder sorts the picks of a by the launch that routes: picks and weights have the bits of route, the place of each
// has its row and belongs to its expert, and all other places are empty.
func (r *rig) routeOrder(a cuda.RouteArgs, ids []int32, weights []float32) {
	r.Helper()
	const block = 8
	blocks := cuda.ExpertBlocks(len(ids), int(a.Experts), block)
	a.IDs, a.Weights = alloc[int32](r, len(ids)), alloc[float32](r, len(ids))
	o := cuda.OrderArgs{
		IDs: a.IDs, Order: alloc[int32](r, blocks*block), Place: alloc[int32](r, len(ids)), Owner: alloc[int32](r, blocks),
		Picks: int32(len(ids)), Top: a.Top, Experts: a.Experts, Block: block, Blocks: int32(blocks),
	}
	g := cudatest.Line(1, 96)
	g.Shared = 8 * int(a.Experts)
	got := r.eachSchedule(func() []float32 {
		launch(r, "route_order", g, &cuda.RouteOrderArgs{Route: a, Order: o})
		order, place, owner := down[int32](r, o.Order, blocks*block), down[int32](r, o.Place, len(ids)), down[int32](r, o.Owner, blocks)
		filled := 0
		for _, row := range order {
			if row >= 0 {
				filled++
			}
		}
		for i, at := range place {
			if order[at] != int32(i)/a.Top || owner[at/block] != ids[i] || filled != len(ids) {
				r.Fatalf("pick %d of expert %d is at %d, which has row %d of expert %d; %d places are filled", i, ids[i], at, order[at], owner[at/block], filled)
			}
		}
		return down[float32](r, a.Weights, len(ids))
	})
	if fmt.Sprint(down[int32](r, a.IDs, len(ids))) != fmt.Sprint(ids) || !slices.Equal(got, weights) {
		r.Errorf("route_order: %v with %v, want %v with %v", down[int32](r, a.IDs, len(ids)), got, ids, weights)
	}
}

// TestRouteNaN checks that a row of NaNs, such as a padding row of a graph, picks valid
// experts, each once.
func TestRouteNaN(t *testing.T) {
	r := newRig(t)
	const experts, top = 40, 20
	logits := make([]float32, experts)
	for i := range logits {
		logits[i] = float32(math.NaN())
	}
	a := cuda.RouteArgs{
		Logits: up(r, logits), IDs: alloc[int32](r, top), Weights: alloc[float32](r, top), Rows: 1, Experts: experts, Top: top, Factor: 1,
	}
	launch(r, "route", cudatest.Line(1, 64), &a)
	ids := down[int32](r, a.IDs, top)
	for i, id := range ids {
		if id < 0 || id >= experts || slices.Contains(ids[:i], id) {
			t.Fatalf("pick %d is expert %d: %v", i, id, ids)
		}
	}
}

// TestExperts sends rows to experts and back: for few rows, for tiles and for warpgroups, whose
// blocks have 128 rows. Some experts have partial blocks, one has no rows.
func TestExperts(t *testing.T) {
	for _, f := range []kernels.Format{kernels.BF16, kernels.MXFP4, kernels.NVFP4} {
		for _, rows := range []int{1, 6, 90} {
			t.Run(fmt.Sprint(f, rows), func(t *testing.T) {
				l, _ := cuda.ChooseLinear(f, max(1, expertTop*rows/expertCount))
				testExperts(newRig(t), f, l, rows)
			})
		}
		if f == kernels.NVFP4 {
			continue // warpgroups do not multiply it
		}
		if f == kernels.MXFP4 {
			t.Run("mid", func(t *testing.T) { testExperts(newRig(t), f, wideFor(f, cuda.RoundsTo(f), 16), 30) })
		}
		for _, rows := range []int{1, 150} {
			t.Run(fmt.Sprint(f, rows, "wide"), func(t *testing.T) { testExperts(newRig(t), f, wide(f, cuda.RoundsTo(f)), rows) })
		}
	}
}

const expertCount, expertTop = 5, 2

// stack returns the experts' matrices, one after the other.
func (r *rig) stack(f kernels.Format, experts, out, in int) (first matrix, values [][]float32) {
	size := cuda.PackedBytes(f, out, in)
	all := make([]byte, 0, int64(experts)*size)
	for range experts {
		m := r.matrix(f, out, in, nil)
		all = append(all, down[byte](r, m.packed, int(size))...)
		values = append(values, m.values)
		first = m
	}
	first.packed = up(r, all)
	return first, values
}

func testExperts(r *rig, f kernels.Format, l cuda.Linear, rows int) {
	const experts, top, cols, width = expertCount, expertTop, 64, 96
	gateUp, gu := r.stack(f, experts, 2*width, cols)
	downs, dn := r.stack(f, experts, cols, width)
	x, bias := r.floats(rows*cols, 1), r.floats(experts*cols, 1)
	ids, weights := make([]int32, rows*top), r.floats(rows*top, 1)
	for i := range rows {
		ids[top*i] = int32(r.rnd.IntN(experts - 1)) // no row picks the last expert
		ids[top*i+1] = (ids[top*i] + 1) % (experts - 1)
	}
	want := make([]float32, rows*cols)
	for i := range ids {
		row, e := i/top, int(ids[i])
		m := gateUp
		m.values = gu[e]
		h := m.rounded(x[row*cols:(row+1)*cols], nil, 1)
		act := make([]float32, width)
		ref.SwiGLU(h[:width], h[width:], act)
		d := downs
		d.values = dn[e]
		for j, v := range d.rounded(act, bias[e*cols:(e+1)*cols], 1) {
			want[row*cols+j] += weights[i] * v
		}
	}
	picks := rows * top
	blocks := cuda.ExpertBlocks(picks, experts, l.Rows)
	packed := blocks * l.Rows
	o := cuda.OrderArgs{
		IDs: up(r, ids), Order: alloc[int32](r, packed), Place: alloc[int32](r, picks), Owner: alloc[int32](r, blocks),
		Picks: int32(picks), Top: top, Experts: experts, Block: int32(l.Rows), Blocks: int32(blocks),
	}
	g := cudatest.Line(1, 64)
	g.Shared = 8 * experts
	launch(r, "experts_order", g, &o)
	places := down[int32](r, o.Order, packed)
	multiply := func(m matrix, x []float32, order []int32, bias cuda.Ptr) []float32 {
		a := m.args(nil)
		a.X, a.Sums = r.packX(l, f, x, packed, m.in, order)
		a.Rows, a.Experts, a.ExpertBytes, a.Bias, a.ExpertBias = int32(packed), o.Owner, m.bytes, bias, int64(m.out)
		a.Y = alloc[float32](r, packed*m.out)
		grid := cudatest.Grid{Blocks: l.Blocks(m.out, blocks*l.Rows, 1), Threads: [3]int{l.Threads, 1, 1}, Shared: l.Shared}
		launch(r, l.Kernel, grid, &a)
		got := down[float32](r, a.Y, packed*m.out)
		r.yBF16(l.Kernel, &a, got, places, func() { launch(r, l.Kernel, grid, &a) })
		return got
	}
	h := multiply(gateUp, x, places, 0)
	act := alloc[float32](r, packed*width)
	launch(r, "glu4", cudatest.Line(ceil(packed*width/4, 256), 256), &cuda.GLUArgs{X: up(r, h), Y: act, Rows: int32(packed), Cols: width, Alpha: 1})
	out := multiply(downs, down[float32](r, act, packed*width), nil, up(r, bias))
	y := alloc[float32](r, rows*cols)
	combine := cuda.CombineArgs{X: up(r, out), Place: o.Place, Weights: up(r, weights), Y: y, Cols: cols, Top: top}
	launch(r, "experts_combine", cudatest.Line(rows, 64), &combine)
	got := down[float32](r, y, rows*cols)
	r.near("experts", got, want, 2e-3) // the product of gate and up is rounded at a different place
	b, _ := stored(kernels.BF16, got)
	combine.Y, combine.YBF16 = alloc[uint16](r, rows*cols), 1
	launch(r, "experts_combine", cudatest.Line(rows, 64), &combine)
	if !bytes.Equal(down[byte](r, combine.Y, len(b)), b) {
		r.Errorf("sums in bf16 are not those in float32, rounded")
	}
	r.inBF16("sums", out, func(x cuda.Ptr, bf16 int32) []byte {
		combine.X, combine.XBF16 = x, bf16
		launch(r, "experts_combine", cudatest.Line(rows, 64), &combine)
		return down[byte](r, combine.Y, len(b))
	})
}

// TestPicks compares products that read rows by the order of places with those of rows packed in that order: they have the same bits,
// also where a block of 128 rows multiplies by 64, and whatever tiles a block of a fixed grid takes. X is row by row, or packed by places too. The
// last step of a stage is missing, and a row with an infinity changes no other. 8-bit floats have scales.
func TestPicks(t *testing.T) {
	for _, f := range cuda.PackedFormats() {
		for _, rows := range []int{16, 32, 64, 129} {
			l := wideFor(f, cuda.RoundsTo(f), rows)
			if p, ok := l.Picks(); ok && p.Rows == min(rows, 128) {
				t.Run(p.Kernel, func(t *testing.T) {
					testPicks(newRig(t), f, l, p, 2, 224, []int{l.Rows/2 + 1, l.Rows / 2, 0, l.Rows + 3})
				})
			}
		}
	}
}

// TestPicksMany has more blocks of rows than lanes that look them up, and blocks of 64 rows with two items.
func TestPicksMany(t *testing.T) {
	l := wideFor(kernels.Q4_0, cuda.RoundsTo(kernels.Q4_0), 129)
	p, _ := l.Picks()
	testPicks(newRig(t), kernels.Q4_0, l, p, 3, 32, append(slices.Repeat([]int{1}, 33), 70))
}

func testPicks(r *rig, f kernels.Format, l, p cuda.Linear, strips, in int, counts []int) {
	const infinite = 9
	experts, out, all := len(counts), 16*l.Panels*(strips-1)+16, 16*l.Panels*(strips-1)+64
	var ids []int32
	for e, n := range counts {
		ids = append(ids, slices.Repeat([]int32{int32(e)}, n)...)
	}
	rows := len(ids)
	blocks := cuda.ExpertBlocks(rows, experts, l.Rows)
	packed := blocks * l.Rows
	o := cuda.OrderArgs{
		IDs: up(r, ids), Order: alloc[int32](r, packed), Place: alloc[int32](r, rows), Owner: alloc[int32](r, blocks),
		Picks: int32(rows), Top: 1, Experts: int32(experts), Block: int32(l.Rows), Blocks: int32(blocks),
	}
	g := cudatest.Line(1, 64)
	g.Shared = 8 * experts
	launch(r, "experts_order", g, &o)
	order := down[int32](r, o.Order, packed)
	slices.Reverse(order[:counts[0]]) // of a block that is not the first of all
	o.Order = up(r, order)
	finite := slices.Clone(order)
	finite[slices.Index(order, infinite)] = -1
	m, _ := r.stack(f, experts, all, in)
	x := r.floats(rows*in, 1)
	x[infinite*in] = float32(math.Inf(1))
	a := m.args(nil)
	a.Out, a.Rows, a.Experts, a.ExpertBytes, a.Bias, a.ExpertBias = int32(out), int32(packed), o.Owner, m.bytes, up(r, r.floats(experts*all, 1)), int64(all)
	if f == kernels.F8E4M3 || f == kernels.F8E5M2 { // of 16 features and 128 columns
		across := ceil(in, 128)
		a.Scales, a.ExpertScales = up(r, r.floats(experts*all/16*across, 1)), int64(all/16*across)
		a.ScaleRows, a.ScaleCols, a.ScaleAcross = 16, 128, int32(across)
	}
	multiprocessors := 3
	multiply := func(l cuda.Linear, a cuda.LinearArgs, args any) {
		grid := cudatest.Grid{Blocks: l.Blocks(int(a.Out), packed, 1), Threads: [3]int{l.Threads, 1, 1}, Shared: l.Shared}
		if l.Walks() {
			grid.Blocks = l.Walk(int(a.Out), packed, multiprocessors)
		}
		if b, ok := args.(*cuda.PicksArgs); ok {
			b.Product = a
			launch(r, l.Kernel, grid, b)
		} else {
			launch(r, l.Kernel, grid, &a)
		}
	}
	sums := func(l cuda.Linear, args any) []float32 {
		a.Y = alloc[float32](r, packed*out)
		multiply(l, a, args)
		y := down[float32](r, a.Y, packed*out)
		for i, row := range order {
			if row < 0 || row == infinite {
				clear(y[i*out : (i+1)*out])
			}
		}
		r.yBF16(l.Kernel, &a, y, finite, func() { multiply(l, a, args) })
		return y
	}
	// gated returns the tiles of 8 rows that have one.
	gated := func(l cuda.Linear, args any) (words []uint32) {
		g, tile := a, 8*all/4
		g.Out, g.Gated, g.Words, g.Alpha, g.Limit, g.Paired = int32(all), alloc[uint32](r, packed*all/4), 1, 1.702, 1.5, 1
		multiply(l, g, args)
		for i, w := range slices.Collect(slices.Chunk(down[uint32](r, g.Gated, packed*all/4), tile)) {
			if order[8*i] >= 0 {
				words = append(words, w...)
			}
		}
		return words
	}
	a.X, a.Sums = r.packX(l, f, x, packed, in, order)
	want := sums(l, nil)
	if got := sums(p, &cuda.PicksArgs{Order: o.Order}); !slices.Equal(got, want) {
		r.Errorf("rows that are packed by places: other bits than %s", l.Kernel)
	}
	some := f == kernels.MXFP4 || f == kernels.F8E4M3
	if some && !slices.Equal(gated(p, &cuda.PicksArgs{Order: o.Order}), gated(l, nil)) {
		r.Errorf("gated: other bits than %s", l.Kernel)
	}
	if some { // features in the order of halves
		a.Half = int32(out / 2)
		if !slices.Equal(sums(p, &cuda.PicksArgs{Order: o.Order}), sums(l, nil)) {
			r.Errorf("halves: other bits than %s", l.Kernel)
		}
		a.Half = 0
	}
	a.X, a.Sums = r.packX(cuda.Linear{Plain: true}, f, x, rows, in, nil)
	gathered := func() []float32 { return sums(p, &cuda.PicksArgs{Order: o.Order, Gathers: 1}) }
	if f == kernels.MXFP4 {
		r.eachSchedule(gathered)
	}
	for _, multiprocessors = range []int{3, 1, 100} { // tiles of the first block of the grid: some, all, one
		if got := gathered(); !slices.Equal(got, want) {
			r.Errorf("rows by their order, %d blocks: other bits than %s", multiprocessors, l.Kernel)
		}
		if !p.Walks() || !some {
			break
		}
	}
}

// TestExpertsF32 multiplies rows of experts in float32, few and many for each: a single row,
// partial tiles, experts without rows and with several blocks. Rows of X are in their own
// order, or in that of places.
func TestExpertsF32(t *testing.T) {
	for _, c := range []struct {
		rows, experts, top, in, out int
		bias                        bool
	}{
		{1, 4, 1, 45, 7, true}, {1, 5, 2, 260, 16, false}, {9, 3, 2, 33, 19, true}, {14, 6, 3, 132, 37, false},
		{33, 2, 1, 7, 1, false}, {40, 3, 1, 45, 131, true}, {40, 2, 1, 16, 5, false}, {70, 3, 2, 19, 129, false}, {150, 4, 2, 36, 70, true},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			r := newRig(t)
			ids := make([]int32, c.rows*c.top)
			for i := range c.rows { // no row picks the last expert, most pick the first
				first := max(0, r.rnd.IntN(c.experts+2)-3)
				for k := range c.top {
					ids[i*c.top+k] = int32((first + k) % (c.experts - 1))
				}
			}
			l := cuda.ChooseExperts(len(ids) / c.experts)
			blocks := cuda.ExpertBlocks(len(ids), c.experts, l.Rows)
			o := cuda.OrderArgs{
				IDs: up(r, ids), Order: alloc[int32](r, blocks*l.Rows), Place: alloc[int32](r, len(ids)), Owner: alloc[int32](r, blocks),
				Picks: int32(len(ids)), Top: int32(c.top), Experts: int32(c.experts), Block: int32(l.Rows), Blocks: int32(blocks),
			}
			g := cudatest.Line(1, 64)
			g.Shared = 8 * c.experts
			launch(r, "experts_order", g, &o)
			place := down[int32](r, o.Place, len(ids))
			for _, placed := range []bool{false, true} {
				r.expertsF32(l, o, ids, place, c.in, c.out, c.bias, placed)
			}
		})
	}
}

// expertsF32 compares one product of picked rows with ref's, row by row; places without a row
// must stay unchanged.
func (r *rig) expertsF32(l cuda.Linear, o cuda.OrderArgs, ids, place []int32, in, out int, biased, placed bool) {
	r.Helper()
	const untouched = 12345
	all, experts := int(o.Block*o.Blocks), int(o.Experts)
	a := cuda.ExpertsArgs{Order: o.Order, Owner: o.Owner, In: int32(in), Out: int32(out)}
	xRows := len(ids) / int(o.Top) // rows of X
	if placed {
		xRows, a.Placed = all, 1
	}
	w, x, bias := r.floats(experts*out*in, 1), r.floats(xRows*in, 1), []float32(nil)
	if biased {
		bias = r.floats(experts*out, 1)
	}
	before := slices.Repeat([]float32{untouched}, all*out)
	want := slices.Clone(before)
	for i, at := range place {
		e, row := int(ids[i]), i/int(o.Top)
		if placed {
			row = int(at)
		}
		b := []float32(nil)
		if biased {
			b = bias[e*out:][:out]
		}
		ref.Linear(ref.LinearArgs{
			Rows: 1, In: in, Out: out, X: x[row*in:][:in], W: cudatest.Bytes(w[e*out*in:][:out*in]), Format: kernels.F32, Bias: b, Y: want[int(at)*out:][:out],
			To: out, Row: make([]float32, in),
		})
	}
	a.X, a.W, a.Bias = up(r, x), up(r, w), up(r, bias)
	got := r.eachSchedule(func() []float32 {
		a.Y = up(r, before)
		launch(r, l.Kernel, cudatest.Grid{Blocks: l.Blocks(out, all, 1), Threads: [3]int{l.Threads, 1, 1}, Shared: l.Shared}, &a)
		return down[float32](r, a.Y, all*out)
	})
	for i, v := range want {
		if (v == untouched) != (got[i] == untouched) {
			r.Fatalf("%s, placed %v: row %d of the blocks, feature %d: %v, want %v", l.Kernel, placed, i/out, i%out, got[i], v)
		}
		if v == untouched {
			got[i], want[i] = 0, 0 // do not count toward the scale of the comparison
		}
	}
	r.near(fmt.Sprintf("%s, placed %v", l.Kernel, placed), got, want, 1e-6)
}
