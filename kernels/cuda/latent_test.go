package cuda_test

import (
	"cmp"
	"fmt"
	"math"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

// latentCase is a batch of attention over latent keys.
type latentCase struct {
	f                   kernels.Format
	rank, rotary, heads int
	history, count      []int
	many                bool
	splits              int
	shared              int  // shared memory that a block may have; 0: maxShared
	nan                 bool // a key and a value of one sequence are NaN
}

func TestLatentAttention(t *testing.T) {
	decode := latentCase{f: kernels.BF16, rank: 72, rotary: 24, heads: 20, history: []int{0, 70, 100, 15}, count: []int{1, 1, 1, 1}}
	prompt := latentCase{f: kernels.BF16, rank: 40, rotary: 16, heads: 3, history: []int{0, 50, 33}, count: []int{50, 0, 21}, many: true}
	deepseek := latentCase{f: kernels.BF16, rank: 512, rotary: 64, heads: 16, history: []int{37, 2}, count: []int{1, 1}}
	vary := func(c latentCase, f func(*latentCase)) latentCase {
		f(&c)
		return c
	}
	for name, c := range map[string]latentCase{
		"decode":        decode,
		"prompt":        prompt,
		"deepseek":      deepseek,
		"deepseek many": vary(deepseek, func(c *latentCase) { c.many, c.heads = true, 40 }),
		"narrow":        vary(deepseek, func(c *latentCase) { c.many, c.shared, c.heads, c.count = true, 99<<10, 9, []int{8, 1} }),
		"long":          vary(deepseek, func(c *latentCase) { c.heads, c.history, c.count = 2, []int{4000}, []int{1} }),
		"long many":     vary(decode, func(c *latentCase) { c.many, c.heads, c.history, c.count = true, 3, []int{4000}, []int{9} }),
		"verify":        vary(decode, func(c *latentCase) { c.count = []int{5, 0, 3, 1} }),
		"splits":        vary(decode, func(c *latentCase) { c.splits, c.rank = 3, 264 }),
		"many splits":   vary(decode, func(c *latentCase) { c.splits, c.many, c.heads = 2, true, 70 }),
		"narrow splits": vary(decode, func(c *latentCase) { c.splits, c.many, c.shared, c.f = 3, true, 99<<10, kernels.F8E4M3 }),
		"f16":           vary(decode, func(c *latentCase) { c.f, c.rank, c.rotary = kernels.F16, 8, 8 }),
		"f16 many":      vary(prompt, func(c *latentCase) { c.f, c.rotary = kernels.F16, 40 }),
		"e4m3":          vary(decode, func(c *latentCase) { c.f = kernels.F8E4M3 }),
		"e4m3 many":     vary(prompt, func(c *latentCase) { c.f = kernels.F8E4M3 }),
		"e5m2":          vary(decode, func(c *latentCase) { c.f, c.rotary = kernels.F8E5M2, 64 }),
		"e5m2 narrow":   vary(prompt, func(c *latentCase) { c.f, c.shared = kernels.F8E5M2, 99<<10 }),
		"nan":           vary(decode, func(c *latentCase) { c.f, c.nan = kernels.F8E4M3, true }),
		"f32":           vary(decode, func(c *latentCase) { c.f, c.rank, c.rotary, c.splits = kernels.F32, 37, 10, 3 }),
		"f32 many":      vary(prompt, func(c *latentCase) { c.f, c.rotary = kernels.F32, 96 }),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c.test(r, name == "decode" || name == "prompt" || name == "narrow" || name == "f32")
		})
	}
	t.Run("each", func(t *testing.T) { // every kernel once
		r := newRig(t)
		for _, f := range []kernels.Format{kernels.BF16, kernels.F16, kernels.F8E4M3, kernels.F8E5M2} {
			for _, shared := range []int{0, maxShared, 99 << 10} {
				latentCase{f: f, rank: 24, rotary: 8, heads: 2, history: []int{19, 0}, count: []int{1, 3}, many: shared > 0, shared: shared}.test(r, false)
				latentCase{f: f, rank: 512, rotary: 64, heads: 2, history: []int{83, 0}, count: []int{1, 3}, many: shared > 0, shared: shared}.test(r, false)
			}
		}
	})
}

func (c latentCase) test(r *rig, schedules bool) {
	const block, scale, positions = 16, 0.11, 4096
	longest := 0
	first, at := []int32{0}, []int32(nil)
	for s, n := range c.count {
		longest = max(longest, c.history[s]+n)
		first = append(first, first[s]+int32(n))
		for i := range n {
			at = append(at, int32(c.history[s]+i))
		}
	}
	tokens, wide := len(at), c.rank+c.rotary
	pages := newCache(r, c.f, block, 1, wide, 0, len(c.count), longest) // with room for wider keys than there are
	pages.ref.HeadDim, pages.ref.KeyDim, pages.ref.Latent = c.rank, c.rotary, true
	for i := range pages.arena {
		pages.arena[i] = 0xff // memory that is not stored to is NaN
	}
	for s, n := range c.history {
		for p := range n {
			k, _ := stored(c.f, r.floats(c.rotary, 1))
			v, _ := stored(c.f, r.floats(c.rank, 1))
			pages.ref.Store(pages.tables[s*pages.width+p/block], p%block, k, v)
		}
	}
	_, q := stored(rowFormat(c.f), r.floats(tokens*c.heads*wide, 1))
	k, _ := stored(c.f, r.floats(tokens*c.rotary, 1))
	v, _ := stored(c.f, r.floats(tokens*c.rank, 1))
	if c.nan { // of the last token
		k[(tokens-1)*c.rotary], v[tokens*c.rank-1] = 0x7f, 0xff
	}
	y := make([]float32, tokens*c.heads*c.rank)
	for s := range c.count {
		ref.Attention(ref.AttentionArgs{
			Q: q, Y: y, K: k, V: v, First: first, Positions: at, Tables: pages.tables, Width: pages.width, Pages: pages.ref, Heads: c.heads, Scale: scale,
			Workspace: ref.AttentionWorkspace{K: make([]float32, positions*wide), V: make([]float32, positions*c.rank), P: make([]float64, positions), Acc: make([]float64, c.rank)},
		}, s, 0)
	}
	kernel, ok := cuda.ChooseLatent(c.f, c.rank, c.rotary, c.many, cmp.Or(c.shared, maxShared))
	if !ok {
		r.Fatal("no kernel")
	}
	splits := max(1, c.splits)
	args := cuda.AttentionArgs{
		Pages: pages.args(r), Q: up(r, q), K: up(r, k), V: up(r, v), First: up(r, first), Positions: up(r, at),
		Scale: scale, Seqs: int32(len(c.count)), Heads: int32(c.heads), Splits: int32(splits), Latent: int32(c.rotary),
	}
	grid := cudatest.Grid{Blocks: [3]int{kernel.Blocks(tokens, len(c.count), c.heads), kernel.Parts, splits}, Threads: [3]int{kernel.Threads, 1, 1}, Shared: kernel.Shared}
	run := func() []float32 {
		args.Y, args.Partial = alloc[float32](r, len(y)), alloc[float32](r, tokens*c.heads*splits*(c.rank+2))
		launch(r, kernel.Kernel, grid, &args)
		if splits > 1 {
			launch(r, "attention_join", cudatest.Grid{Blocks: [3]int{tokens, c.heads, 1}, Threads: [3]int{64, 1, 1}}, &cuda.JoinArgs{Attention: args})
		}
		return down[float32](r, args.Y, len(y))
	}
	got := []float32(nil)
	if schedules {
		got = r.eachSchedule(run)
	} else {
		got = run()
	}
	bound := map[kernels.Format]float64{kernels.BF16: 4e-3, kernels.F32: 3e-6}[c.f]
	r.near(fmt.Sprintf("%+v", c), got, y, cmp.Or(bound, 5e-4)) // weights are rounded to fp16
}

// TestLatentShapes checks that every device has kernels for the heads of published models, that they
// are in the catalogue with their shared memory, and which shapes have none.
func TestLatentShapes(t *testing.T) {
	listed := map[string]cuda.Kernel{}
	for _, k := range cuda.Catalogue() {
		listed[k.Name] = k
	}
	for _, a := range cuda.Architectures() {
		for _, f := range []kernels.Format{kernels.BF16, kernels.F16, kernels.F8E4M3, kernels.F8E5M2, kernels.F32} {
			for _, many := range []bool{false, true} {
				l, ok := cuda.ChooseLatent(f, 512, 64, many, a.Shared)
				if k, there := listed[l.Kernel]; !ok || !there || l.Shared > a.Shared || l.Shared > k.Shared || l.Threads != k.Threads {
					t.Errorf("%v, many %v on %s: %+v, %+v", f, many, a.Name, l, k)
				}
			}
		}
	}
	for _, c := range []struct {
		f            kernels.Format
		rank, rotary int
	}{{kernels.BF16, 520, 64}, {kernels.BF16, 512, 72}, {kernels.BF16, 36, 16}, {kernels.BF16, 32, 12}, {kernels.F32, 512, 130}, {kernels.F32, 513, 64}, {kernels.I8, 512, 64}, {kernels.F16, 0, 64}, {kernels.F16, 64, 0}} {
		if l, ok := cuda.ChooseLatent(c.f, c.rank, c.rotary, false, maxShared); ok {
			t.Errorf("%+v has a kernel: %+v", c, l)
		}
	}
}

func TestLatentRope(t *testing.T) {
	r := newRig(t)
	const rows, eps = 3, 1e-3
	for _, c := range []struct {
		f                         kernels.Format
		heads, nope, rank, rotary int
		pairs                     bool
	}{
		{kernels.F32, 3, 16, 40, 16, true}, {kernels.F32, 2, 0, 512, 64, false}, {kernels.BF16, 9, 24, 72, 80, true},
		{kernels.F16, 1, 8, 32, 6, false}, {kernels.F8E4M3, 2, 16, 40, 16, true}, {kernels.F8E5M2, 2, 16, 40, 16, true},
	} {
		rotate := ref.Rotate
		if c.pairs {
			rotate = ref.RotatePairs
		}
		q, kv, angles, w := r.floats(rows*c.heads*(c.nope+c.rotary), 2), r.floats(rows*(c.rank+c.rotary), 2), r.floats(rows*c.rotary, 1), r.floats(c.rank, 1)
		query := r.floats(rows*c.heads*(c.rank+c.rotary), 1)
		want, k, v := append([]float32{}, query...), make([]float32, rows*c.rotary), make([]float32, rows*c.rank)
		for row := range rows {
			angle, x := angles[row*c.rotary:][:c.rotary], kv[row*(c.rank+c.rotary):][:c.rank+c.rotary]
			for h := range c.heads {
				at := row*c.heads + h
				rotate(q[at*(c.nope+c.rotary)+c.nope:][:c.rotary], angle, want[at*(c.rank+c.rotary)+c.rank:][:c.rotary])
			}
			ref.Norm(x[:c.rank], nil, w, eps, v[row*c.rank:][:c.rank])
			rotate(x[c.rank:], angle, k[row*c.rotary:][:c.rotary])
		}
		bytes := func(n int) int { return int(c.f.Bytes(int64(n))) }
		a := cuda.LatentRopeArgs{
			Q: up(r, q), KV: up(r, kv), Angles: up(r, angles), W: up(r, w), Query: up(r, query), K: alloc[byte](r, bytes(len(k))), V: alloc[byte](r, bytes(len(v))),
			Heads: int32(c.heads), Nope: int32(c.nope), Rank: int32(c.rank), Rotary: int32(c.rotary), Interleaved: yes(c.pairs), Eps: eps,
		}
		launch(r, "latent_rope_"+short(c.f), cudatest.Line(rows, 96), &a)
		read := func(p cuda.Ptr, n int) []float32 {
			out := make([]float32, n)
			ref.Dequantize(c.f, down[byte](r, p, bytes(n)), out)
			return out
		}
		bound := map[kernels.Format]float64{kernels.F32: 1e-6, kernels.BF16: 1.0 / 256, kernels.F16: 1.0 / 2048, kernels.F8E4M3: 1.0 / 16, kernels.F8E5M2: 1.0 / 8}[c.f]
		r.near(fmt.Sprint(c, " query"), down[float32](r, a.Query, len(want)), want, 1e-6)
		r.near(fmt.Sprint(c, " k"), read(a.K, len(k)), k, bound)
		r.near(fmt.Sprint(c, " v"), read(a.V, len(v)), v, bound)
	}
}

// headCase is one shape of head_linear: heads have x and y columns, of which in are read and out
// written.
type headCase struct{ rows, heads, in, x, out, y int }

func TestHeadLinear(t *testing.T) {
	r := newRig(t)
	for _, f := range []kernels.Format{kernels.BF16, kernels.F16, kernels.F32} {
		for i, c := range []headCase{
			{1, 3, 64, 96, 48, 64}, {9, 2, 72, 73, 33, 33}, {16, 2, 35, 37, 20, 21}, {130, 2, 264, 264, 130, 136}, {70, 2, 32, 40, 16, 16},
		} {
			c.test(r, f, i == 1 || i == 4)
		}
	}
}

func (c headCase) test(r *rig, f kernels.Format, schedules bool) {
	size := int(f.Bytes(int64(c.out * c.in)))
	w, packed := r.blocks(f, c.heads*c.out, c.in), []byte(nil)
	for h := range c.heads {
		one := w[h*size:][:size]
		if f != kernels.F32 {
			p := make([]byte, cuda.PackedBytes(f, c.out, c.in))
			if err := cuda.Pack(f, c.out, c.in, one, p); err != nil {
				r.Fatal(err)
			}
			one = p
		}
		packed = append(packed, one...)
	}
	x, y := r.floats(c.rows*c.heads*c.x, 1), r.floats(c.rows*c.heads*c.y, 1)
	for i := range x {
		if i%c.x >= c.in {
			x[i] = float32(math.NaN()) // not read
		}
	}
	want := append([]float32{}, y...)
	for h := range c.heads {
		var in []float32
		for row := range c.rows {
			in = append(in, x[(row*c.heads+h)*c.x:][:c.in]...)
		}
		_, in = stored(rowFormat(f), in)
		out := make([]float32, c.rows*c.out)
		ref.Linear(ref.LinearArgs{Rows: c.rows, In: c.in, Out: c.out, W: w[h*size:][:size], Format: f, X: in, Y: out, To: c.out, Row: make([]float32, ref.Together*c.in)})
		for row := range c.rows {
			copy(want[(row*c.heads+h)*c.y:][:c.out], out[row*c.out:])
		}
	}
	l, ok := cuda.ChooseHeadLinear(f, c.rows)
	if !ok {
		r.Fatal("no kernel")
	}
	a := cuda.HeadLinearArgs{
		W: up(r, packed), X: up(r, x), HeadBytes: int64(len(packed) / c.heads), Rows: int32(c.rows), In: int32(c.in), Out: int32(c.out),
		XCols: int32(c.heads * c.x), XHead: int32(c.x), YCols: int32(c.heads * c.y), YHead: int32(c.y),
	}
	run := func() []float32 {
		a.Y = up(r, y)
		launch(r, l.Kernel, cudatest.Grid{Blocks: [3]int{ceil(c.rows, l.Rows), ceil(c.out, l.Features), c.heads}, Threads: [3]int{256, 1, 1}, Shared: l.Shared}, &a)
		return down[float32](r, a.Y, len(y))
	}
	got := []float32(nil)
	if schedules {
		got = r.eachSchedule(run)
	} else {
		got = run()
	}
	r.near(fmt.Sprintf("%v %+v", f, c), got, want, 3e-6)
}
