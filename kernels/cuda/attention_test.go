package cuda_test

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

// attentionCase is a batch: for each sequence, the positions in pages and the tokens of the
// step.
type attentionCase struct {
	f              kernels.Format
	dim, heads, kv int
	history, count []int
	window         int
	chunked        bool
	sinks          bool
	softcap        float32
	both, many     bool
	key            int // stored dimensions of a key; 0: all
	splits         int
	items          [][3]int // sequence, and the positions [from, to) of an item; the step may end before `to`
	shared         int      // shared memory that a block may have; 0: maxShared
	nan            bool     // a key and a value are NaN
	most           int      // splits of a piece: the launches are by lists; 0: they are not
	short          int      // with lists: the most tokens of sequences whose blocks have 16 rows
	wide           bool     // prompts by the warpgroups of sm_90a
}

// kernel returns the kernel of a case.
func (c attentionCase) kernel(r *rig, many bool) cuda.Attention {
	r.Helper()
	kernel, ok := cuda.ChooseAttention(c.f, c.dim, many, cmp.Or(c.shared, maxShared))
	if c.wide && many {
		kernel, ok = cuda.ChooseAttentionWide(c.f, c.dim)
	}
	if !ok {
		r.Fatal("no kernel")
	}
	return kernel
}

// maxShared is the largest shared memory of a block on Hopper.
const maxShared = 227 << 10

func TestAttention(t *testing.T) {
	decode := attentionCase{f: kernels.BF16, dim: 64, heads: 8, kv: 2, history: []int{0, 70, 200, 15}, count: []int{1, 1, 1, 1}}
	prompt := attentionCase{f: kernels.BF16, dim: 64, heads: 4, kv: 2, history: []int{0, 50, 33}, count: []int{70, 0, 21}, many: true}
	vary := func(c attentionCase, f func(*attentionCase)) attentionCase {
		f(&c)
		return c
	}
	for name, c := range map[string]attentionCase{
		"decode":    decode,
		"prompt":    prompt,
		"one row":   {f: kernels.BF16, dim: 128, heads: 1, kv: 1, history: []int{0}, count: []int{1}},
		"verify":    vary(decode, func(c *attentionCase) { c.count = []int{5, 0, 3, 1} }),
		"window":    vary(decode, func(c *attentionCase) { c.window = 40 }),
		"sinks":     vary(decode, func(c *attentionCase) { c.sinks, c.softcap = true, 20 }),
		"splits":    vary(decode, func(c *attentionCase) { c.splits, c.sinks = 3, true }),
		"long":      {f: kernels.BF16, dim: 64, heads: 2, kv: 1, history: []int{5000}, count: []int{1}, window: 4096, splits: 4},
		"long many": {f: kernels.BF16, dim: 64, heads: 1, kv: 1, history: []int{4000}, count: []int{9}, many: true},
		"behind":    {f: kernels.BF16, dim: 64, heads: 1, kv: 1, history: []int{50}, count: []int{100}, many: true},
		"inside":    {f: kernels.BF16, dim: 64, heads: 1, kv: 1, history: []int{128}, count: []int{100}, window: 90, many: true},
		"windows":   vary(decode, func(c *attentionCase) { c.splits, c.window, c.dim = 3, 90, 72 }),
		"chunk":     vary(decode, func(c *attentionCase) { c.window, c.chunked, c.splits, c.count = 48, true, 3, []int{5, 1, 3, 2} }),
		"chunks":    vary(prompt, func(c *attentionCase) { c.window, c.chunked = 40, true }),
		"f32 chunk": vary(prompt, func(c *attentionCase) { c.f, c.window, c.chunked = kernels.F32, 32, true }),
		"groups":    {f: kernels.BF16, dim: 64, heads: 14, kv: 2, history: []int{20, 3}, count: []int{2, 3}},
		"wide":      {f: kernels.BF16, dim: 64, heads: 40, kv: 1, history: []int{9}, count: []int{1}},
		"f16":       vary(prompt, func(c *attentionCase) { c.f = kernels.F16 }),
		"e4m3":      vary(decode, func(c *attentionCase) { c.f, c.dim = kernels.F8E4M3, 128 }),
		"e5m2":      vary(prompt, func(c *attentionCase) { c.f = kernels.F8E5M2 }),
		"fp8 128":   vary(prompt, func(c *attentionCase) { c.f, c.dim = kernels.F8E4M3, 128 }),
		"128":       vary(prompt, func(c *attentionCase) { c.dim, c.window = 128, 30 }),
		"256":       vary(decode, func(c *attentionCase) { c.dim = 256 }),
		"256 many":  vary(prompt, func(c *attentionCase) { c.dim, c.heads = 256, 2 }),
		"512":       vary(decode, func(c *attentionCase) { c.dim, c.heads = 512, 4 }),
		"512 many":  vary(prompt, func(c *attentionCase) { c.dim, c.heads = 512, 2 }),
		"192":       vary(decode, func(c *attentionCase) { c.dim, c.f = 192, kernels.F8E5M2 }),
		"both":      {f: kernels.BF16, dim: 72, heads: 2, kv: 2, history: []int{0, 0}, count: []int{37, 80}, both: true, many: true},
		"rebuild":   vary(decode, func(c *attentionCase) { c.dim, c.key, c.count = 64, 16, []int{2, 0, 1, 5} }),
		"rebuilt":   vary(prompt, func(c *attentionCase) { c.dim, c.key, c.f, c.heads = 512, 128, kernels.F8E4M3, 2 }),
		"narrow":    vary(prompt, func(c *attentionCase) { c.dim, c.heads, c.shared = 256, 2, 99<<10 }),
		"narrow 8":  vary(prompt, func(c *attentionCase) { c.f, c.dim, c.heads, c.shared, c.window = kernels.F8E4M3, 504, 2, 99<<10, 20 }),
		"f32":       vary(decode, func(c *attentionCase) { c.f, c.dim, c.splits, c.sinks = kernels.F32, 36, 3, true }),
		"f32 many":  vary(prompt, func(c *attentionCase) { c.f, c.dim, c.window, c.softcap = kernels.F32, 80, 25, 7 }),
		"f32 both":  {f: kernels.F32, dim: 33, heads: 2, kv: 1, history: []int{0, 0}, count: []int{19, 1}, both: true},
		"f32 whole": vary(decode, func(c *attentionCase) { c.f, c.dim, c.key, c.count = kernels.F32, 64, 16, []int{2, 0, 1, 5} }),
		"items":     vary(prompt, func(c *attentionCase) { c.items = [][3]int{{0, 3, 30}, {0, 30, 33}, {0, 40, 90}, {2, 33, 54}} }),
		"items seen": vary(prompt, func(c *attentionCase) {
			c.window, c.items, c.dim = 12, [][3]int{{0, 3, 60}, {2, 35, 50}}, 128
		}),
		"items f32": vary(prompt, func(c *attentionCase) { c.f, c.window, c.items = kernels.F32, 12, [][3]int{{0, 3, 60}, {2, 35, 58}} }),
		"nan e4m3":  vary(decode, func(c *attentionCase) { c.f, c.nan = kernels.F8E4M3, true }),
		"nan e5m2":  vary(decode, func(c *attentionCase) { c.f, c.nan, c.count = kernels.F8E5M2, true, []int{1, 0, 2, 1} }), // an infinite value, with a weight that fp16 has
		"many sink": vary(prompt, func(c *attentionCase) { c.sinks, c.window, c.softcap = true, 17, 5 }),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			testAttention(r, c, slices.Contains([]string{"decode", "prompt", "splits", "512", "narrow", "f32", "items"}, name))
		})
	}
}

// TestAttentionKernels runs every kernel once, on a short batch.
func TestAttentionKernels(t *testing.T) {
	r := newRig(t)
	for _, f := range []kernels.Format{kernels.BF16, kernels.F16, kernels.F8E4M3, kernels.F8E5M2} {
		for _, dim := range []int{56, 64, 120, 128, 248, 256, 504, 512} { // of whole tiles too, where a kernel has these dimensions
			for _, shared := range []int{0, maxShared, 99 << 10} {
				testAttention(r, attentionCase{f: f, dim: dim, heads: 2, kv: 1, history: []int{83, 0}, count: []int{1, 3}, many: shared > 0, shared: shared}, false)
			}
		}
	}
}

// batch is the input of a case, for the kernel and for ref.
type batch struct {
	cache            *cache
	floats, q, y     []float32 // queries of the kernel, and as it rounds them
	k, v             []byte
	first, positions []int32
	sinks, rebuild   []float32
	items            []int32
}

func newBatch(r *rig, c attentionCase) batch {
	longest := 0
	b := batch{first: []int32{0}}
	for s, n := range c.count {
		longest = max(longest, c.history[s]+n)
		b.first = append(b.first, b.first[s]+int32(n))
		for i := range n {
			b.positions = append(b.positions, int32(c.history[s]+i))
		}
	}
	tokens := len(b.positions)
	b.cache = newCache(r, c.f, 16, c.kv, c.dim, c.window, len(c.count), longest)
	b.cache.ref.Chunked = c.chunked
	if c.key > 0 {
		b.cache.ref.KeyDim, b.rebuild = c.key, r.floats(c.dim, 1)
	}
	for i := range b.cache.arena {
		b.cache.arena[i] = 0xff // memory that is not stored to is NaN
	}
	b.floats = r.floats(tokens*c.heads*c.dim, 1)
	_, b.q = stored(rowFormat(c.f), b.floats)
	b.k, _ = stored(c.f, r.floats(tokens*c.kv*c.dim, 1))
	b.v, _ = stored(c.f, r.floats(tokens*c.kv*c.dim, 1))
	b.y = make([]float32, tokens*c.heads*c.dim)
	if c.items != nil {
		b.items = make([]int32, tokens)
	}
	for _, i := range c.items {
		for p := i[1]; p < min(i[2], c.history[i[0]]+c.count[i[0]]); p++ {
			b.items[int(b.first[i[0]])+p-c.history[i[0]]] = int32(i[2])
		}
	}
	if c.nan { // in the last sequence, the last token's: NaN, and its neighbour in E5M2
		b.k[(tokens-1)*c.kv*c.dim], b.v[(tokens-1)*c.kv*c.dim+c.dim-1] = 0x7f, 0xff
		b.k[0], b.v[1] = 0x7b, 0x7c
	}
	if c.sinks {
		b.sinks = r.floats(c.heads, 1)
	}
	for s, n := range c.history {
		skip := 0
		switch {
		case c.chunked:
			skip = n / c.window * c.window / 16
		case c.window > 0 && n >= c.window:
			skip = (n - c.window + 1) / 16
		}
		for p := skip * 16; p < n; p++ {
			k, _ := stored(c.f, r.floats(c.kv*c.dim, 1))
			v, _ := stored(c.f, r.floats(c.kv*c.dim, 1))
			b.cache.ref.Store(b.cache.tables[s*b.cache.width+p/16-skip], p%16, k, v)
		}
	}
	return b
}

// rowFormat returns the format that queries are rounded to.
func rowFormat(f kernels.Format) kernels.Format {
	if f == kernels.BF16 || f == kernels.F32 {
		return f
	}
	return kernels.F16
}

func testAttention(r *rig, c attentionCase, schedules bool) {
	b := newBatch(r, c)
	const scale, tokens = 0.11, 4096
	a := ref.AttentionArgs{
		Q: b.q, Y: b.y, K: b.k, V: b.v, First: b.first, Positions: b.positions, Tables: b.cache.tables, Width: b.cache.width,
		Pages: b.cache.ref, Heads: c.heads, Scale: scale, Window: c.window, Sinks: b.sinks, Softcap: c.softcap, Bidirectional: c.both, Rebuild: b.rebuild, Items: b.items,
		Workspace: ref.AttentionWorkspace{K: make([]float32, tokens*c.dim), V: make([]float32, tokens*c.dim), P: make([]float64, tokens), Acc: make([]float64, c.dim)},
	}
	for s := range c.count {
		for h := range c.kv {
			ref.Attention(a, s, h)
		}
	}
	kernel, n := c.kernel(r, c.many), len(b.positions)
	args := cuda.AttentionArgs{
		Pages: b.cache.args(r), Q: up(r, b.floats), K: up(r, b.k), V: up(r, b.v), Sinks: up(r, b.sinks), First: up(r, b.first),
		Positions: up(r, b.positions), Rebuild: up(r, b.rebuild), Items: up(r, b.items), Scale: scale, Softcap: c.softcap, Seqs: int32(len(c.count)), Heads: int32(c.heads),
		Window: int32(c.window), Bidirectional: yes(c.both), Splits: int32(max(1, c.splits)),
	}
	grid := cudatest.Grid{
		Blocks:  [3]int{kernel.Blocks(n, len(c.count), c.heads/c.kv), c.kv * kernel.Parts, max(1, c.splits)},
		Threads: [3]int{kernel.Threads, 1, 1}, Shared: kernel.Shared,
	}
	gate := cuda.Ptr(0)
	run := func() []float32 {
		args.Y = alloc[float32](r, len(b.y))
		if c.most > 0 {
			attendByLists(r, c, args)
			return down[float32](r, args.Y, len(b.y))
		}
		args.Partial = alloc[float32](r, n*c.heads*max(1, c.splits)*(c.dim+2))
		launch(r, kernel.Kernel, grid, &args)
		if c.splits > 1 {
			launch(r, "attention_join", cudatest.Grid{Blocks: [3]int{n, c.heads, 1}, Threads: [3]int{64, 1, 1}}, &cuda.JoinArgs{Attention: args, Gate: gate})
		}
		return down[float32](r, args.Y, len(b.y))
	}
	var got []float32
	if schedules {
		got = r.eachSchedule(run)
	} else {
		got = run()
	}
	bound := 5e-4 // because weights are rounded to fp16
	switch c.f {
	case kernels.BF16:
		bound = 4e-3
	case kernels.F32:
		bound = 3e-6
	}
	r.near(fmt.Sprintf("%+v", c), got, b.y, bound)
	if c.f != kernels.F32 {
		testStoredQueries(r, c, b.floats, got, &args, run)
	}
	if joins := c.splits > 1 && c.most == 0; c.dim%cuda.StepCols == 0 && (joins || c.f != kernels.F32) {
		testPackedOutput(r, got, n, c.heads*c.dim, joins, &args, &gate, run)
	}
}

// testStoredQueries runs attention with queries in the 16 bits that it multiplies: the result has the bits of y, that of float32.
func testStoredQueries(r *rig, c attentionCase, q, y []float32, args *cuda.AttentionArgs, run func() []float32) {
	r.Helper()
	f, floats := rowFormat(c.f), args.Q
	b, _ := stored(f, q)
	args.Q, args.QStored = up(r, b), storeOf(f)
	got := run()
	args.Q, args.QStored = floats, 0
	if !bytes.Equal(cudatest.Bytes(got), cudatest.Bytes(y)) {
		r.Errorf("%+v: other bits than of float32 with queries in %v", c, f)
	}
}

// testPackedOutput runs attention so that it packs its rows, and compares them with a launch that packs y, which gates it
// first where a launch joins attention.
func testPackedOutput(r *rig, y []float32, rows, in int, joins bool, args *cuda.AttentionArgs, gate *cuda.Ptr, run func() []float32) {
	r.Helper()
	to, words := cuda.Rounding{Format: kernels.BF16}, int32(r.rnd.IntN(3))
	if args.F16 = int32(r.rnd.IntN(2)); args.F16 == 1 {
		to.Format = kernels.F16
	}
	size, _ := to.Bytes(rows, in)
	want := cuda.PackArgs{X: up(r, y), Y: up(r, make([]byte, size)), Rows: int32(rows), In: int32(in), Words: words}
	a := cuda.StorePackArgs{Pack: want}
	if joins {
		a.Gate = up(r, r.floats(rows*in, 2))
		*gate = a.Gate
	}
	launch(r, to.Kernel(cuda.FromAttention), grid(to, cuda.FromAttention, rows, in), &a)
	args.Words, args.Packed = words, up(r, make([]byte, size))
	run()
	if !bytes.Equal(down[byte](r, args.Packed, int(size)), down[byte](r, want.Y, int(size))) {
		r.Errorf("%d rows of %d are packed as %d otherwise than by a launch of their own; joined: %v", rows, in, words, joins)
	}
}

// attendByLists launches a case by lists of pieces, few blocks for all of them, and checks that the counters are zero behind it.
func attendByLists(r *rig, c attentionCase, args cuda.AttentionArgs) {
	tokens := 0
	for _, n := range c.count {
		tokens += n
	}
	for _, many := range []bool{false, true} {
		kernel := c.kernel(r, many)
		p := cuda.AttentionPieces{Rows: kernel.Rows, Group: c.heads / c.kv, From: 1, To: c.short, Least: cuda.AttentionKeys, Most: c.most, Window: c.window, Chunked: c.chunked}
		if many {
			p.From, p.To, p.Most = c.short+1, tokens+1, 1
		}
		list := listOf(r.T, p, tokens, len(c.count), c.history, c.count)
		args.List, args.Most, args.Splits = up(r, list), int32(p.Most), 1
		args.Arrived, args.Partial, args.Stats = 0, 0, 0
		var counters []uint32
		if p.Most > 1 {
			n := p.Tokens(tokens, len(c.count))
			values, stats := cuda.PartialBytes(c.heads, c.dim)
			counters = make([]uint32, p.Counters(n, c.kv))
			args.Arrived, args.Partial, args.Stats = up(r, counters), alloc[byte](r, n*p.Most*int(values)), alloc[byte](r, n*p.Most*int(stats))
		}
		blocks := 3
		if many && !c.wide && c.dim > 128 { // a block computes one piece
			blocks = int(list[0]) + 1
		}
		launch(r, kernel.Kernel, cudatest.Grid{Blocks: [3]int{blocks, c.kv * kernel.Parts, 1}, Threads: [3]int{kernel.Threads, 1, 1}, Shared: kernel.Shared}, &args)
		if counters == nil {
			continue
		}
		for i, v := range down[uint32](r, args.Arrived, len(counters)) {
			if v != 0 {
				r.Fatalf("counter %d is %d behind the launch", i, v)
			}
		}
	}
}

// TestAttentionLists: launches by lists compute what ref does, whichever sequences have blocks of 16 rows and however they are
// split, and a sequence has the same bits alone as beside others.
func TestAttentionLists(t *testing.T) {
	decode := attentionCase{f: kernels.BF16, dim: 64, heads: 8, kv: 2, history: []int{0, 70, 300, 15}, count: []int{1, 1, 1, 1}, short: 1, most: 4}
	mixed := attentionCase{f: kernels.BF16, dim: 64, heads: 4, kv: 2, history: []int{250, 3, 130, 7, 40}, count: []int{1, 20, 2, 0, 30}, short: 2, most: 3}
	vary := func(c attentionCase, f func(*attentionCase)) attentionCase {
		f(&c)
		return c
	}
	for name, c := range map[string]attentionCase{
		"decode":  decode,
		"mixed":   mixed,
		"unsplit": vary(mixed, func(c *attentionCase) { c.most = 1 }),
		"sinks":   vary(mixed, func(c *attentionCase) { c.sinks, c.softcap = true, 20 }),
		"window":  vary(decode, func(c *attentionCase) { c.window, c.dim = 150, 72 }),
		"chunk":   vary(mixed, func(c *attentionCase) { c.window, c.chunked = 144, true }),
		"verify":  vary(decode, func(c *attentionCase) { c.count, c.short = []int{5, 0, 3, 6}, 6 }),
		"e4m3":    vary(mixed, func(c *attentionCase) { c.f, c.dim = kernels.F8E4M3, 128 }),
		"wide":    {f: kernels.F16, dim: 64, heads: 40, kv: 1, history: []int{9, 140}, count: []int{1, 2}, short: 2, most: 2},
		"most":    {f: kernels.BF16, dim: 64, heads: 2, kv: 1, history: []int{2999}, count: []int{1}, short: 1, most: cuda.MostSplits},
		"items":   vary(mixed, func(c *attentionCase) { c.items = [][3]int{{1, 5, 18}, {4, 50, 100}} }),
		"nan":     vary(decode, func(c *attentionCase) { c.f, c.dim, c.nan = kernels.F8E4M3, 128, true }),
		"256": vary(mixed, func(c *attentionCase) {
			c.dim, c.history, c.count = 256, []int{150, 3, 70, 7, 40}, []int{1, 5, 2, 0, 37}
		}),
		"248": vary(decode, func(c *attentionCase) { c.f, c.dim, c.window, c.softcap = kernels.F16, 248, 150, 20 }),
		"512": vary(mixed, func(c *attentionCase) {
			c.dim, c.kv, c.history, c.count = 512, 1, []int{130, 3, 70, 7, 20}, []int{1, 3, 2, 0, 17}
		}),
		"rebuild": vary(decode, func(c *attentionCase) { c.f, c.dim, c.key, c.heads, c.sinks = kernels.F8E4M3, 512, 128, 4, true }),
		"narrow": vary(mixed, func(c *attentionCase) {
			c.dim, c.heads, c.kv, c.count, c.shared = 512, 2, 1, []int{1, 5, 2, 0, 9}, 99<<10
		}),
	} {
		t.Run(name, func(t *testing.T) {
			testAttention(newRig(t), c, name == "decode" || name == "mixed" || name == "256")
		})
	}
	for _, dim := range []int{64, 256, 512} {
		mixed := vary(mixed, func(c *attentionCase) {
			if c.dim = dim; dim > 64 {
				c.heads, c.kv, c.count = 2, 1, []int{1, 5, 2, 0, 9}
			}
		})
		t.Run(fmt.Sprint("alone ", dim), func(t *testing.T) {
			r := newRig(t)
			b := newBatch(r, mixed)
			args := cuda.AttentionArgs{
				Pages: b.cache.args(r), Q: up(r, b.q), K: up(r, b.k), V: up(r, b.v), First: up(r, b.first), Positions: up(r, b.positions), Y: alloc[float32](r, len(b.y)),
				Scale: 0.11, Seqs: int32(len(mixed.count)), Heads: int32(mixed.heads),
			}
			attendByLists(r, mixed, args)
			all := down[float32](r, args.Y, len(b.y))
			for s, n := range mixed.count {
				one := mixed
				one.count = make([]int, len(mixed.count))
				one.count[s] = n
				args.Y = alloc[float32](r, len(b.y))
				attendByLists(r, one, args) // lists of one sequence; First is as before
				width := mixed.heads * mixed.dim
				from, to := int(b.first[s])*width, int(b.first[s+1])*width
				if !slices.Equal(down[float32](r, args.Y, len(b.y))[from:to], all[from:to]) {
					t.Errorf("sequence %d has other bits alone", s)
				}
			}
		})
	}
}

// TestAttentionWide: prompts by the warpgroups of sm_90a are what ref computes, with and without lists, whatever of a tile
// is visible, and with more tiles than stages.
func TestAttentionWide(t *testing.T) {
	prompt := attentionCase{f: kernels.BF16, dim: 64, heads: 4, kv: 2, history: []int{0, 50, 33}, count: []int{70, 0, 21}, many: true, wide: true}
	mixed := attentionCase{f: kernels.BF16, dim: 64, heads: 4, kv: 2, history: []int{250, 3, 130, 7, 40}, count: []int{1, 20, 2, 0, 140}, short: 2, most: 3, wide: true}
	vary := func(c attentionCase, f func(*attentionCase)) attentionCase {
		f(&c)
		return c
	}
	for name, c := range map[string]attentionCase{
		"prompt":    prompt,
		"long":      {f: kernels.BF16, dim: 64, heads: 1, kv: 1, history: []int{900}, count: []int{150}, many: true, wide: true},
		"whole":     {f: kernels.BF16, dim: 128, heads: 1, kv: 1, history: []int{640}, count: []int{8}, many: true, wide: true},
		"128":       vary(prompt, func(c *attentionCase) { c.dim, c.history = 128, []int{600, 50, 33} }),
		"256":       vary(prompt, func(c *attentionCase) { c.dim, c.heads, c.history = 256, 2, []int{260, 50, 33} }),
		"512":       {f: kernels.BF16, dim: 512, heads: 2, kv: 1, history: []int{70, 0}, count: []int{80, 5}, many: true, wide: true},
		"504 items": {f: kernels.F16, dim: 504, heads: 2, kv: 2, history: []int{9}, count: []int{40}, window: 20, items: [][3]int{{0, 12, 30}}, many: true, wide: true},
		"f16":       vary(prompt, func(c *attentionCase) { c.f = kernels.F16 }),
		"f16 128":   vary(prompt, func(c *attentionCase) { c.f, c.dim = kernels.F16, 128 }),
		"f16 256":   vary(prompt, func(c *attentionCase) { c.f, c.dim, c.heads = kernels.F16, 256, 2 }),
		"e4m3":      vary(prompt, func(c *attentionCase) { c.f = kernels.F8E4M3 }),
		"e4m3 long": {f: kernels.F8E4M3, dim: 64, heads: 1, kv: 1, history: []int{600}, count: []int{70}, many: true, wide: true},
		"e4m3 128":  vary(prompt, func(c *attentionCase) { c.f, c.dim, c.sinks, c.softcap = kernels.F8E4M3, 128, true, 20 }),
		"e4m3 256":  vary(prompt, func(c *attentionCase) { c.f, c.dim, c.heads, c.window = kernels.F8E4M3, 256, 2, 40 }),
		"e4m3 list": vary(mixed, func(c *attentionCase) { c.f, c.dim = kernels.F8E4M3, 80 }),
		"e4m3 nan":  vary(prompt, func(c *attentionCase) { c.f, c.nan, c.count = kernels.F8E4M3, true, []int{1, 0, 1} }),
		"e5m2":      vary(prompt, func(c *attentionCase) { c.f, c.count = kernels.F8E5M2, []int{7, 0, 21} }),
		"e5m2 256":  {f: kernels.F8E5M2, dim: 256, heads: 2, kv: 1, history: []int{70, 0}, count: []int{9, 5}, window: 40, many: true, wide: true},
		"e5m2 512":  {f: kernels.F8E5M2, dim: 512, heads: 2, kv: 1, history: []int{70, 0}, count: []int{40, 5}, many: true, wide: true},
		"e5m2 nan":  vary(prompt, func(c *attentionCase) { c.f, c.dim, c.nan, c.count = kernels.F8E5M2, 112, true, []int{1, 0, 1} }),
		"72":        vary(prompt, func(c *attentionCase) { c.dim = 72 }),
		"248":       vary(prompt, func(c *attentionCase) { c.dim, c.heads = 248, 2 }),
		"window":    vary(prompt, func(c *attentionCase) { c.window, c.history = 40, []int{300, 50, 129} }),
		"windows":   {f: kernels.BF16, dim: 64, heads: 1, kv: 1, history: []int{100}, count: []int{400}, window: 130, many: true, wide: true},
		"chunks":    vary(prompt, func(c *attentionCase) { c.window, c.chunked = 40, true }),
		"sinks":     vary(prompt, func(c *attentionCase) { c.sinks, c.softcap, c.window = true, 5, 17 }),
		"softcap":   vary(prompt, func(c *attentionCase) { c.softcap = 20 }),
		"items":     vary(prompt, func(c *attentionCase) { c.items = [][3]int{{0, 3, 30}, {0, 30, 33}, {0, 40, 90}, {2, 33, 54}} }),
		"items seen": vary(prompt, func(c *attentionCase) {
			c.window, c.items, c.dim = 12, [][3]int{{0, 3, 60}, {2, 35, 50}}, 128
		}),
		"both":    {f: kernels.BF16, dim: 72, heads: 2, kv: 2, history: []int{0, 0}, count: []int{37, 200}, both: true, many: true, wide: true},
		"groups":  {f: kernels.BF16, dim: 64, heads: 40, kv: 1, history: []int{9}, count: []int{7}, many: true, wide: true},
		"mixed":   mixed,
		"list":    vary(mixed, func(c *attentionCase) { c.sinks, c.window, c.dim = true, 150, 128 }),
		"chunked": vary(mixed, func(c *attentionCase) { c.window, c.chunked = 144, true }),
	} {
		t.Run(name, func(t *testing.T) {
			testAttention(newRig(t), c, slices.Contains([]string{"prompt", "long", "mixed", "512", "e4m3 long"}, name))
		})
	}
	if a, ok := cuda.ChooseAttentionWide(kernels.F32, 64); ok {
		t.Errorf("float32 has %+v", a)
	}
	if a, ok := cuda.ChooseAttentionWide(kernels.F8E4M3, 72); ok {
		t.Errorf("8 bits and heads of 72 have %+v", a)
	}
	if a, ok := cuda.ChooseAttentionWide(kernels.F8E4M3, 512); ok {
		t.Errorf("e4m3 and heads of 512 have %+v", a)
	}
	if a, ok := cuda.ChooseAttentionWide(kernels.BF16, 520); ok {
		t.Errorf("heads of 520 have %+v", a)
	}
}

// TestAhead checks rows that are sequences, as engine/backend defines them: a position whose
// pages are missing becomes the start of the first missing page.
func TestAhead(t *testing.T) {
	r := newRig(t)
	const width, block = 40, 4
	kept, positions := []int32{2, -1, 0, 1, 3}, []int32{5, 30, 120, 159}
	tables := make([]int32, len(kept)*width)
	tables[2*width+1], tables[3*width+7] = -1, -1 // before position 5+2, and after 30+2 of another sequence
	tables[0*width+33] = -1
	tables[3*width+9] = -1
	a := cuda.AheadArgs{
		AcceptedRow: up(r, kept), Positions: up(r, positions), Tables: up(r, tables), First: alloc[int32](r, len(kept)+1), At: alloc[int32](r, len(kept)),
		Seqs: int32(len(kept)), Width: width, Block: block, By: 2,
	}
	launch(r, "ahead", cudatest.Line(2, 96), &a)
	got := fmt.Sprint(down[int32](r, a.First, len(kept)+1), down[int32](r, a.At, len(kept)))
	// 122 and 161 are in blocks 30 and 40, and the table has 40 blocks. 32 needs blocks 0 to 7.
	if want := "[0 1 2 3 4 5] [122 0 4 28 160]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
