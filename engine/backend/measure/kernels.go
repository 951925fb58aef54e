package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/speed"
	"vapp.dev/kernels"
)

// Options of Kernels.
type Options struct {
	Opener backend.Opener
	Facts  backend.Facts
	// Base has the threads, and the rates of memory and registers.
	Base speed.Rates
	// Cache is the size of all last-level caches in bytes; 0: unknown. Weights are read from beyond them.
	Cache int64
	// Reads measures the present rate of reading memory, in bytes per second; nil: it is Base.Read all the time.
	// Shared memory changes its rate within seconds: times of reading weights are stated at the median of what
	// Reads returns.
	Reads func() float64
	// Progress is called before each part; it may be nil.
	Progress func(done, of int, what string)
	// Quick measures few kernels with small weights, for tests.
	Quick bool
}

// part is one measurement with a device of its own.
type part struct {
	what string
	run  func(machine, *speed.Rates) error
}

// Kernels measures the kernels of a device with Base.Threads threads: products by format, attention
// by the size of heads, and the other ops. Cancelling ctx ends it between two parts.
func Kernels(ctx context.Context, o Options) (*speed.Rates, error) {
	r := o.Base
	r.Ops, r.Linear, r.Attention = map[string]speed.Curve{}, nil, nil
	list := o.parts()
	present := reading{probe: o.Reads, base: o.Base.Read}
	for i, p := range list {
		if o.Progress != nil {
			o.Progress(i, len(list), p.what)
		}
		m := machine{ctx, o.Opener, o.Facts, backend.Settings{Threads: o.Base.Threads}, rounds, &present}
		if o.Quick {
			m.rounds = 1
		}
		if err := p.run(m, &r); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, fmt.Errorf("measuring %s: %w", p.what, err)
		}
	}
	if o.Progress != nil {
		o.Progress(len(list), len(list), "")
	}
	r = r.AtRead(present.median())
	return &r, r.Check()
}

// stored is a way in which weights are stored.
type stored struct {
	format  kernels.Format
	scaling backend.Scaling
	group   int
	rounded bool // WeightSpec.RoundInputs
}

var plain = []stored{
	{format: kernels.BF16}, {format: kernels.F16}, {format: kernels.F32}, {format: kernels.Q8_0}, {format: kernels.Q4_0}, {format: kernels.Q4_1},
	{format: kernels.Q4_K}, {format: kernels.Q5_K}, {format: kernels.Q6_K}, {format: kernels.IQ4_NL}, {format: kernels.MXFP4}, {format: kernels.I4},
	{format: kernels.F8E4M3, scaling: backend.PerChannel}, {format: kernels.F8E4M3, scaling: backend.PerBlock},
	{format: kernels.I8, scaling: backend.PerChannel}, {format: kernels.I8, scaling: backend.PerGroup, group: 128},
	{format: kernels.I8, scaling: backend.PerChannel, rounded: true},
}

var integers = []stored{
	{format: kernels.Q8_0}, {format: kernels.Q4_0}, {format: kernels.Q4_1}, {format: kernels.Q4_K}, {format: kernels.Q5_K}, {format: kernels.Q6_K}, {format: kernels.I4},
}

// parts lists the measurements; the small ops come first, because products need what one costs at least.
func (o Options) parts() []part {
	out := []part{{"small ops", smallOps}, {"recurrent layers", recurrent}}
	products := func(list []stored, activations, favor string) {
		for _, f := range list {
			name := f.format.String()
			for _, s := range []string{f.scaling.String(), activations, favor} {
				if s != "" {
					name += ", " + s
				}
			}
			if f.rounded {
				name += ", rounded inputs"
			}
			out = append(out, part{"products with " + name, func(m machine, r *speed.Rates) error {
				m.settings.Activations, m.settings.Favor = activations, favor
				return o.product(m, r, f)
			}})
		}
	}
	if o.Quick {
		products(plain[:1], "", "")
	} else {
		products(plain, "", "")
		products(integers, backend.Int8Activations, "")
		products(plain, "", backend.FavorDecode) // auto takes those of prompts
	}
	out = append(out, part{"experts", o.experts})
	heads := func(f kernels.Format, dim, group int) {
		out = append(out, part{fmt.Sprintf("attention with %v, %d query heads of %d", f, group, dim), func(m machine, r *speed.Rates) error {
			return attention(m, r, f, dim, group)
		}})
	}
	for _, dim := range []int{64, 128, 256} {
		for _, group := range []int{1, 8} {
			if o.Quick && (dim > 64 || group > 1) {
				continue
			}
			heads(kernels.F16, dim, group)
			if !o.Quick {
				heads(kernels.BF16, dim, group)
			}
			if dim == 128 {
				heads(kernels.F8E4M3, dim, group)
			}
		}
	}
	return out
}

// Shapes of the programs.
const (
	probeTokens = 512
	probeSeqs   = 64
	probeCols   = 2048
	probeVocab  = 32768
	probeTable  = 8192 // rows of the embedding: steps use tokens below it
)

// fewRows are steps that read all matrices, manyRows those that multiply with some.
var fewRows, manyRows = []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32}, []int{48, 64, 96, 128, 256, 512}

// weight appends a weight of one tensor and returns its id.
func weight(p *backend.Program, w backend.WeightSpec) backend.WeightID {
	id := backend.WeightID(len(p.Weights))
	w.Name = fmt.Sprintf("w%d", id)
	part := backend.Part{Tensor: w.Name, Rows: w.Rows, Format: w.Source}
	if w.Use == backend.Vector {
		part.Elems = w.Cols
	}
	if w.Experts > 0 {
		part.Stride = w.Rows
	}
	if w.Scaling != backend.NoScale {
		part.Scale, part.ScaleFormat = w.Name+".scale", kernels.F32
	}
	w.Parts = []backend.Part{part}
	p.Weights = append(p.Weights, w)
	return id
}

// beyondCache returns the bytes of weights that are read in turn: caches hold a third at most, unless that
// took more than a quarter of the free memory.
func (o Options) beyondCache() int64 {
	n := max(160<<20, 3*o.Cache)
	if o.Facts.FreeBytes > 0 {
		n = min(n, o.Facts.FreeBytes/4)
	}
	return n
}

// product measures the products with weights stored as f.
func (o Options) product(m machine, r *speed.Rates, f stored) error {
	const each = probeCols * probeCols
	bytes := float64(f.format.Bytes(each)) / each
	n := int(float64(o.beyondCache())/bytes/each) + 1
	if o.Quick {
		n = 2
	}
	base := &backend.Program{Bucket: backend.Bucket{Tokens: probeTokens, Seqs: 1, Samples: 1}, Vocab: probeTokens}
	table := weight(base, backend.WeightSpec{Rows: probeTokens, Cols: probeCols, Source: kernels.BF16, Use: backend.Lookup})
	for range n {
		weight(base, backend.WeightSpec{Rows: probeCols, Cols: probeCols, Source: f.format, Use: backend.Multiply, Scaling: f.scaling, GroupSize: f.group, RoundInputs: f.rounded})
	}
	some := max(1, n/10)
	var programs []*backend.Program
	for i, matrices := range []int{n, some} {
		p := *base
		p.Name = fmt.Sprintf("product%d", i)
		rec := backend.Record(&p)
		ids, x, y := rec.New("ids", kernels.I32, backend.PerToken, 1), rec.New("x", kernels.F32, backend.PerToken, probeCols), rec.New("y", kernels.F32, backend.PerToken, probeCols)
		rec.Do(backend.Tokens{Out: ids})
		rec.Do(backend.Embed{Ids: ids, Table: table, Y: x, Scale: 1})
		for w := range matrices {
			rec.Do(backend.Linear{X: x, W: table + 1 + backend.WeightID(w), Bias: backend.NoWeight, Y: y})
		}
		rec.Free(ids, x, y)
		done, err := rec.Program()
		if err != nil {
			return err
		}
		programs = append(programs, done)
	}
	s := m.settings
	l, err := m.opener.Layout(m.facts, s)
	if err != nil {
		return err
	}
	packed, err := l.Weight(base.Weights[1])
	if errors.Is(err, backend.ErrUnsupported) {
		return nil // this variant has no kernel for it
	} else if err != nil {
		return err
	}
	for _, k := range r.Linear {
		if k.Kernel == packed.Kernel {
			return nil // the format has no kernel of its own
		}
	}
	g, err := m.open(programs, 0)
	if err != nil {
		return err
	}
	out := speed.Linear{Kernel: packed.Kernel, Bytes: float64(packed.Bytes) / each}
	var shapes []shape
	matrices := func(rows int) float64 {
		if rows >= manyRows[0] {
			return float64(some)
		}
		return float64(n)
	}
	list := slices.Concat(fewRows, manyRows)
	for _, n := range list {
		e := g.exes[0]
		if n >= manyRows[0] {
			e = g.exes[1]
		}
		shapes = append(shapes, shape{e, []speed.Row{{Count: n}}, out.Bytes * each * matrices(n)})
	}
	times, err := g.time(m.ctx, shapes)
	if err = errors.Join(err, g.close()); err != nil {
		return err
	}
	for i, n := range list {
		out.Rows.X = append(out.Rows.X, float64(n))
		out.Rows.Y = append(out.Rows.Y, max(times[i]["linear"]/matrices(n)-r.Product, 1e-9)/each)
	}
	out.Rows = out.Rows.Rising()
	r.Linear = append(r.Linear, out)
	return nil
}

// attention measures attention for heads of dim, group of them for each of keys and values.
func attention(m machine, r *speed.Rates, f kernels.Format, dim, group int) error {
	const layers = 2
	kv := max(1, 2048/dim/max(1, group/2))
	heads := kv * group
	p := &backend.Program{Name: "attention", Bucket: backend.Bucket{Tokens: probeTokens, Seqs: probeSeqs, Samples: probeSeqs}, Vocab: 1}
	c := backend.KVClass{Name: "full", Format: f, BlockSize: 16, Layers: layers, KVHeads: kv, HeadDim: dim, PagesPerSlab: 4, MaxPages: probePages / 2}
	c.SlabBytes = int64(c.PagesPerSlab) * c.PageBytes()
	p.Classes = []backend.KVClass{c}
	rec := backend.Record(p)
	q, y := rec.New("q", kernels.F32, backend.PerToken, heads*dim), rec.New("y", kernels.F32, backend.PerToken, heads*dim)
	k, v := rec.New("k", f, backend.PerToken, kv*dim), rec.New("v", f, backend.PerToken, kv*dim)
	for layer := range layers {
		rec.Do(backend.Attention{Q: q, K: k, V: v, Y: y, Layer: layer, Heads: heads, KVHeads: kv, HeadDim: dim, Scale: 0.1, Sinks: backend.NoWeight})
	}
	rec.Free(q, y, k, v)
	p, err := rec.Program()
	if err != nil {
		return err
	}
	g, err := m.open([]*backend.Program{p}, probePages)
	if err != nil {
		return err
	}
	const short, long, middle, batch = 16, 4000, 480, 16
	step := func(seqs, from, count int) shape {
		rows := make([]speed.Row, seqs)
		for i := range rows {
			rows[i] = speed.Row{From: from, Count: count}
		}
		return shape{exe: g.exes[0], rows: rows}
	}
	times, err := g.time(m.ctx, []shape{
		step(1, short-1, 1), step(batch, short-1, 1), step(1, long-1, 1), step(batch, middle-1, 1),
		step(1, 0, probeTokens), step(1, 3*probeTokens, probeTokens),
	})
	if err = errors.Join(err, g.close()); err != nil {
		return err
	}
	at := func(i int) float64 { return times[i]["attention"] / layers }
	fixed, several, one, many, first, second := at(0), at(1), at(2), at(3), at(4), at(5)
	positive := func(x float64) float64 { return max(x, 1e-12) }
	h := float64(heads)
	a := speed.Attention{Format: f.String(), HeadDim: dim, Group: group, Fixed: positive(fixed)}
	a.Seq = positive((several - fixed) / (batch - 1) / h)
	a.Keys = speed.Curve{X: []float64{1, batch}, Y: []float64{positive((one - fixed) / (long - short) / float64(kv)), positive((many - several) / (batch * (middle - short)) / float64(kv))}}
	const square = probeTokens * (probeTokens + 1) / 2
	a.Pair = positive((second - first) / (3 * probeTokens * probeTokens) / h)
	a.Row = positive((first - fixed - h*a.Pair*square) / probeTokens / h)
	if a.Row <= 1e-12 {
		a.Pair = positive((first - fixed) / square / h)
	}
	r.Attention = append(r.Attention, a)
	return nil
}

// smallOps measures the ops that neither multiply with weights nor attend, and the least time of a product.
func smallOps(m machine, r *speed.Rates) error {
	const heads, kv, dim, tiny, times, experts, top = 32, 8, 64, 64, 4, 32, 4
	p := &backend.Program{Name: "ops", Bucket: backend.Bucket{Tokens: probeTokens, Seqs: probeSeqs, Samples: probeSeqs}, Vocab: probeVocab}
	c := backend.KVClass{Name: "full", Format: kernels.F16, BlockSize: 16, Layers: 1, KVHeads: kv, HeadDim: dim, PagesPerSlab: 4, MaxPages: probeTokens / 16, Plane: true}
	c.SlabBytes = int64(c.PagesPerSlab) * c.PageBytes()
	p.Classes = []backend.KVClass{c}
	table := weight(p, backend.WeightSpec{Rows: probeTable, Cols: probeCols, Source: kernels.BF16, Use: backend.Lookup})
	inv := weight(p, backend.WeightSpec{Rows: 1, Cols: dim / 2, Source: kernels.F32, Use: backend.Vector})
	norm := weight(p, backend.WeightSpec{Rows: 1, Cols: probeCols, Source: kernels.F32, Use: backend.Vector})
	small := weight(p, backend.WeightSpec{Rows: tiny, Cols: tiny, Source: kernels.BF16, Use: backend.Multiply})
	rec := backend.Record(p)
	f32 := func(name string, rows backend.Rows, cols int) backend.Value {
		return rec.New(name, kernels.F32, rows, cols)
	}
	ids, angles := rec.New("ids", kernels.I32, backend.PerToken, 1), f32("angles", backend.PerToken, dim)
	x, y := f32("x", backend.PerToken, probeCols), f32("y", backend.PerToken, probeCols)
	wide, half := f32("wide", backend.PerToken, 4*probeCols), f32("half", backend.PerToken, 2*probeCols)
	qkv, q := f32("qkv", backend.PerToken, (heads+2*kv)*dim), f32("q", backend.PerToken, heads*dim)
	k, v := rec.New("k", kernels.F16, backend.PerToken, kv*dim), rec.New("v", kernels.F16, backend.PerToken, kv*dim)
	last, logits := f32("last", backend.PerSample, probeCols), f32("logits", backend.PerSample, probeVocab)
	a, b := f32("a", backend.PerToken, tiny), f32("b", backend.PerToken, tiny)
	routed := f32("routed", backend.PerToken, experts)
	chosen, weights := rec.New("chosen", kernels.I32, backend.PerToken, top), f32("weights", backend.PerToken, top)
	rec.Do(backend.Tokens{Out: ids})
	rec.Do(backend.StoreTokens{Ids: ids})
	rec.Do(backend.Angles{InvFreq: inv, Scale: 1, Y: angles})
	rec.Do(backend.Embed{Ids: ids, Table: table, Y: x, Scale: 1})
	for range times {
		rec.Do(backend.Norm{X: x, Residual: y, W: norm, Eps: 1e-5, Y: x})
		rec.Do(backend.Rope{QKV: qkv, Angles: angles, Q: q, K: k, V: v, Heads: heads, KVHeads: kv, HeadDim: dim, Rotary: dim})
		rec.Do(backend.StoreKV{K: k, V: v})
		rec.Do(backend.GLU{X: wide, Y: half})
		rec.Do(backend.Add{X: x, Into: y, Scale: backend.NoWeight})
		rec.Do(backend.Gate{X: x, Gate: y})
		rec.Do(backend.Activate{X: x, Act: backend.GELUTanh})
		rec.Do(backend.Softcap{X: x, Cap: 30})
		rec.Do(backend.Concat{A: x, B: y, Y: half})
		rec.Do(backend.Route{Logits: routed, Ids: chosen, Weights: weights, Top: top, Scale: backend.NoWeight})
		rec.Do(backend.Linear{X: a, W: small, Bias: backend.NoWeight, Y: b})
	}
	rec.Do(backend.Gather{X: x, Y: last})
	rec.Do(backend.Sample{Logits: logits})
	rec.Free(ids, angles, x, y, wide, half, qkv, q, k, v, last, logits, a, b, routed, chosen, weights)
	p, err := rec.Program()
	if err != nil {
		return err
	}
	g, err := m.open([]*backend.Program{p}, probePages)
	if err != nil {
		return err
	}
	steps := [][]speed.Row{decoding(1), decoding(4), decoding(16), decoding(64), prompt(128), prompt(512)}
	return errors.Join(g.ops(m.ctx, p, steps, r), g.close())
}

// decoding returns the rows of a step of n sequences with a token each.
func decoding(n int) []speed.Row {
	rows := make([]speed.Row, n)
	for i := range rows {
		rows[i] = speed.Row{From: 15, Count: 1, Draw: true}
	}
	return rows
}

// prompt returns the row of a step with n tokens of a prompt.
func prompt(n int) []speed.Row { return []speed.Row{{Count: n, Draw: true}} }

// ops times steps of a program and adds the curves of its ops to r.
func (g *rig) ops(ctx context.Context, p *backend.Program, steps [][]speed.Row, r *speed.Rates) error {
	count, work := map[string]int{}, map[string]speed.Work{}
	for _, op := range p.Ops {
		count[backend.OpName(op)]++
		if w, ok := speed.WorkOf(p, op); ok {
			work[w.Op] = w
		}
	}
	var shapes []shape
	for _, rows := range steps {
		shapes = append(shapes, shape{exe: g.exes[0], rows: rows})
	}
	times, err := g.time(ctx, shapes)
	if err != nil {
		return err
	}
	for i, rows := range steps {
		t, b := times[i], backend.Bucket{Seqs: len(rows), Samples: len(rows)}
		for _, row := range rows {
			b.Tokens += row.Count
		}
		for name, w := range work {
			c, x := r.Ops[name], float64(b.Rows(w.Rows)*w.Each)
			if n := len(c.X); n > 0 && c.X[n-1] >= x {
				continue // samples of a prompt's step are one, as those of the first
			}
			c.X, c.Y = append(c.X, x), append(c.Y, max(t[name]/float64(count[name]), 1e-9))
			r.Ops[name] = c
		}
		if n := count["linear"]; n > 0 && len(rows) == 1 && b.Tokens == 1 {
			r.Product = max(t["linear"]/float64(n), 1e-9)
		}
	}
	return nil
}

// recurrent measures the ops of linear attention.
func recurrent(m machine, r *speed.Rates) error {
	const keys, values, dim, kernel = 8, 16, 128, 4
	const cols = (2*keys + values) * dim
	p := &backend.Program{Name: "recurrent", Bucket: backend.Bucket{Tokens: probeTokens, Seqs: probeSeqs, Samples: probeSeqs}, Vocab: 1}
	c := backend.KVClass{Name: "state", Layers: 1, PagesPerSlab: 1, MaxPages: 1, State: &backend.StateShape{
		ConvRows: kernel - 1, ConvCols: cols, ConvFormat: kernels.F32, Heads: values, Rows: dim, Cols: dim, Copies: 1,
	}}
	c.SlabBytes = c.PageBytes()
	p.Classes = []backend.KVClass{c}
	conv := weight(p, backend.WeightSpec{Rows: 1, Cols: cols * kernel, Source: kernels.F32, Use: backend.Vector})
	vector := weight(p, backend.WeightSpec{Rows: 1, Cols: values, Source: kernels.F32, Use: backend.Vector})
	rec := backend.Record(p)
	x, qkv := rec.New("x", kernels.F32, backend.PerToken, cols), rec.New("qkv", kernels.F32, backend.PerToken, cols)
	ba, y := rec.New("ba", kernels.F32, backend.PerToken, 2*values), rec.New("y", kernels.F32, backend.PerToken, values*dim)
	rec.Do(backend.Conv{X: x, Y: qkv, W: conv, Kernel: kernel})
	rec.Do(backend.DeltaNet{QKV: qkv, BA: ba, Y: y, ALog: vector, DtBias: vector, KeyHeads: keys, ValueHeads: values, KeyDim: dim, ValueDim: dim})
	rec.Free(x, qkv, ba, y)
	p, err := rec.Program()
	if err != nil {
		return err
	}
	g, err := m.open([]*backend.Program{p}, probeSeqs)
	if err != nil {
		return err
	}
	steps := [][]speed.Row{decoding(1), decoding(16), decoding(64), prompt(512)}
	for _, rows := range steps {
		for i := range rows {
			rows[i].Draw = false
		}
	}
	return errors.Join(g.ops(m.ctx, p, steps, r), g.close())
}

// experts measures by how much a mixture of experts takes longer than the products of its experts.
func (o Options) experts(m machine, r *speed.Rates) error {
	const experts, top = 16, 4
	cols := 1024
	if o.Quick {
		cols = 64
	}
	p := &backend.Program{Name: "experts", Bucket: backend.Bucket{Tokens: probeTokens, Seqs: probeSeqs, Samples: probeSeqs}, Vocab: probeTokens}
	table := weight(p, backend.WeightSpec{Rows: probeTokens, Cols: experts, Source: kernels.BF16, Use: backend.Lookup})
	input := weight(p, backend.WeightSpec{Rows: probeTokens, Cols: cols, Source: kernels.BF16, Use: backend.Lookup})
	up := weight(p, backend.WeightSpec{Rows: 2 * cols, Cols: cols, Source: kernels.BF16, Use: backend.Multiply, Experts: experts})
	down := weight(p, backend.WeightSpec{Rows: cols, Cols: cols, Source: kernels.BF16, Use: backend.Multiply, Experts: experts})
	rec := backend.Record(p)
	ids, logits := rec.New("ids", kernels.I32, backend.PerToken, 1), rec.New("logits", kernels.F32, backend.PerToken, experts)
	chosen, weights := rec.New("chosen", kernels.I32, backend.PerToken, top), rec.New("weights", kernels.F32, backend.PerToken, top)
	x, y := rec.New("x", kernels.F32, backend.PerToken, cols), rec.New("y", kernels.F32, backend.PerToken, cols)
	rec.Do(backend.Tokens{Out: ids})
	rec.Do(backend.Embed{Ids: ids, Table: table, Y: logits, Scale: 1})
	rec.Do(backend.Embed{Ids: ids, Table: input, Y: x, Scale: 1})
	rec.Do(backend.Route{Logits: logits, Ids: chosen, Weights: weights, Top: top, Scale: backend.NoWeight})
	op := backend.Experts{X: x, Ids: chosen, Weights: weights, Y: y, GateUp: up, Down: down, GateUpBias: backend.NoWeight, DownBias: backend.NoWeight, Top: top, Width: cols}
	rec.Do(op)
	rec.Free(ids, logits, chosen, weights, x, y)
	p, err := rec.Program()
	if err != nil {
		return err
	}
	g, err := m.open([]*backend.Program{p}, 0)
	if err != nil {
		return err
	}
	l, err := m.opener.Layout(m.facts, m.settings)
	if err != nil {
		return errors.Join(err, g.close())
	}
	factor, list := speed.Curve{}, []int{1, 8, 64, 512}
	var shapes []shape
	for _, n := range list {
		rows := decoding(n)
		if n > probeSeqs {
			rows = prompt(n)
		}
		for i := range rows {
			rows[i].Draw = false
		}
		shapes = append(shapes, shape{g.exes[0], rows, speed.ExpertsBytes(p, op, n)})
	}
	times, err := g.time(m.ctx, shapes)
	if err = errors.Join(err, g.close()); err != nil {
		return err
	}
	for i, n := range list {
		plain, err := speed.ExpertsTime(l, p, op, r, n)
		if err != nil {
			return err
		}
		factor.X, factor.Y = append(factor.X, float64(n)), append(factor.Y, max(times[i]["experts"]/plain, 1e-3))
	}
	r.Ops["experts"] = factor
	return nil
}
