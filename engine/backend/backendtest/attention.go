package backendtest

import (
	"fmt"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// groups are pairs of heads and K/V heads.
var groups = [][2]int{{9, 3}, {4, 4}, {8, 1}}

// attention tests Attention and StoreKV together: sequences of several lengths in one batch,
// split into chunks, on pages in random order that contain NaN from an earlier user.
func (s *subject) attention(t *testing.T) {
	for n, f := range kvFormats {
		for i, dim := range []int{32, 64, 96, 128} {
			for j, g := range groups {
				block := 16 << ((i + j) % 2)
				long := 70
				if dim == 64 && j == n {
					long = 300 // longer than the spans that kernels split histories into
				}
				s.run(t, fmt.Sprintf("%v/%d heads of %d, %d kv, blocks of %d", f, g[0], dim, g[1], block), func(t *testing.T) {
					c := attentionCase{format: f, heads: g[0], kv: g[1], dim: dim, block: block}
					c.test(t, s, long)
				})
			}
		}
	}
}

// attentionCase is one geometry.
type attentionCase struct {
	format                kernels.Format
	heads, kv, dim, block int
	latent                int // numbers of a key behind its value
	window, keeps         int // Window of the op and of its class
	chunked               bool
	sinks                 []float32
	sink                  backend.WeightID
	softcap               float32
	both                  bool
	items                 bool      // Attention.Items
	turning               int       // rotated numbers of a key; the others are the value's times weights. 0: all
	rebuilds              bool      // pages store only the rotated numbers
	weights               []float32 // [dim]
	weight                backend.WeightID
	x                     []float32 // [vocab, columns of q, k and v], the last row NaN
	cols, vocab           int
}

// schedules are the chunks of three sequences, step by step; 0: the sequence is not in the
// step.
func schedules(long int) [][]int {
	var c []int
	for left := long; left > 0; left -= 33 {
		c = append(c, min(33, left))
	}
	return [][]int{{7, 1, 1, 1}, {16, 0, 17, 1}, c}
}

// test runs all schedules and returns each sequence's rows of the result.
func (c attentionCase) test(t *testing.T, s *subject, long int) [][]float32 {
	const most, scale = 66, 0.17
	plans := schedules(long)
	lengths, total := make([]int, len(plans)), 0
	for i, p := range plans {
		for _, n := range p {
			lengths[i] += n
		}
		total += lengths[i]
	}
	queries, keys, values := c.columns()
	c.cols, c.vocab = queries+keys+values, total+1
	r, m := rng(uint64(c.dim*c.heads)), &tensors{}
	c.x = normal(r, c.vocab*c.cols, 1)
	c.saturate()
	c.prepare()
	for i := range c.cols {
		c.x[total*c.cols+i] = float32(math.NaN())
	}
	inv, tables := m.literal("freqs", make([]float32, c.dim/2)), []backend.WeightID(nil)
	if c.latent > 0 {
		tables = c.latentTables(m)
	} else {
		tables = append(tables, m.table("x", c.x, c.cols))
	}
	c.sink = m.literal("sinks", append(c.sinks, make([]float32, c.heads-len(c.sinks))...))
	c.weight = m.literal("weights of keys", append(c.weights, make([]float32, c.dim-len(c.weights))...))
	width, stride := (long+most+c.block-1)/c.block, most
	k := class(c.format, c.block, 2, c.kv, c.dim, width)
	if c.keeps > 0 {
		width, stride = (c.keeps+c.block-1)/c.block+1, c.block
		k.Window, k.Chunked, k.MaxPages = c.keeps, c.chunked, 2*width
	}
	if c.rebuilds || c.latent > 0 {
		k.KeyDim = max(c.turning, c.latent)
		k.SlabBytes = 2*k.PageBytes() + 64
	}
	var y backend.Value
	rig := s.rig(t, plan{tensors: m, vocab: c.vocab, bucket: backend.Bucket{Tokens: most, Seqs: 3, Samples: 1}, classes: []backend.KVClass{k}, pages: 3 * width,
		record: func(rec *backend.Recorder) { y = c.record(rec, tables, inv, scale) }})
	pages := make([][]int32, len(plans))
	for i, p := range r.Perm(3 * width) {
		pages[i%3] = append(pages[i%3], int32(p))
	}
	for _, p := range pages { // the earlier user
		for at := 0; at < width*c.block; at += stride {
			rig.run(feed{tokens: repeat(int32(total), min(stride, width*c.block-at)), at: at, pages: p})
		}
	}
	want, unit := make([][]float32, len(plans)), make([][]float64, len(plans))
	for i, first := 0, 0; i < len(plans); i++ {
		want[i], unit[i] = s.oracles.of(&c, s.matrixTolerance, first, lengths[i], scale)
		first += lengths[i]
	}
	return c.steps(t, rig, y, plans, pages, want, unit)
}

// record records Rope with angles of 0, which leaves its input unchanged, then attention on
// the second of two layers.
func (c attentionCase) record(rec *backend.Recorder, tables []backend.WeightID, inv backend.WeightID, scale float32) backend.Value {
	if c.latent > 0 {
		return c.recordLatent(rec, tables, scale)
	}
	in := input(rec, tables[0], c.cols)
	angles := rec.New("angles", kernels.F32, backend.PerToken, c.dim)
	rec.Do(backend.Angles{InvFreq: inv, Scale: 1, Y: angles})
	q := rec.New("q", kernels.F32, backend.PerToken, c.heads*c.dim)
	k, v := rec.New("k", c.format, backend.PerToken, c.kv*c.dim), rec.New("v", c.format, backend.PerToken, c.kv*c.dim)
	rec.Do(backend.Rope{QKV: in, Angles: angles, Q: q, K: k, V: v, Heads: c.heads, KVHeads: c.kv, HeadDim: c.dim, Rotary: c.dim})
	y := rec.New("y", kernels.F32, backend.PerToken, c.heads*c.dim)
	a := backend.Attention{Q: q, K: k, V: v, Y: y, Layer: 1, Heads: c.heads, KVHeads: c.kv, HeadDim: c.dim, Scale: scale, Softcap: c.softcap, Window: c.window, Chunked: c.chunked, Items: c.items}
	if len(c.sinks) > 0 {
		a.Sinked, a.Sinks = true, c.sink
	}
	if c.rebuilds {
		a.Rebuild = &backend.Rebuild{Weight: c.weight, Rotary: c.turning}
	}
	if c.both {
		a.Bidirectional, a.Class, a.Layer = true, 1<<20, 1<<20 // not read
		rec.Do(a)
		return y
	}
	rec.Do(a)
	rec.Do(backend.StoreKV{K: k, V: v, Layer: 1})
	return y
}

// steps runs the schedules, compares every row and returns the rows of each sequence.
func (c attentionCase) steps(t *testing.T, rig *rig, y backend.Value, plans [][]int, pages [][]int32, want [][]float32, unit [][]float64) [][]float32 {
	t.Helper()
	at, width, all := make([]int, len(plans)), c.heads*c.dim, make([][]float32, len(plans))
	for step := range plans[2] {
		var feeds []feed
		var who []int
		for i, p := range plans {
			if step >= len(p) || p[step] == 0 {
				continue
			}
			first := at[i]
			for j := range i {
				first += len(want[j]) / width
			}
			ids := make([]int32, p[step])
			for j := range ids {
				ids[j] = int32(first + j)
			}
			feeds, who = append(feeds, feed{tokens: ids, at: at[i], pages: pages[i]}), append(who, i)
		}
		b := rig.run(feeds...)
		got, row := rig.floats(y, b.Tokens), 0
		for j, f := range feeds {
			i, n := who[j], len(f.tokens)
			compareUnits(t, fmt.Sprintf("step %d, sequence %d from %d", step, i, at[i]),
				got[row*width:(row+n)*width], want[i][at[i]*width:(at[i]+n)*width], unit[i][at[i]*width:(at[i]+n)*width])
			all[i] = append(all[i], got[row*width:(row+n)*width]...)
			row, at[i] = row+n, at[i]+n
		}
	}
	return all
}

// oracle returns attention of table rows first to first+n−1 as one chunk without history, and
// the allowed standard error of each result:
//
//   - scores: float32 sums, 2⁻²⁴·(√dim·√Σ(q·k)² + 4·|s|) · scale; with pages of
//     BF16 and 8-bit floats queries and weights may be rounded to bf16, 2⁻⁹·√Σ(q·k)²·scale and 2⁻⁹
//     (rounding);
//   - a softcap adds 4·2⁻²⁴ of its own size to a score;
//   - a score's error e moves a result by p·e·(v − y); sums over n positions are float32.
func (c attentionCase) oracle(near bool, first, n int, scale float32) (want []float32, unit []float64) {
	if c.latent > 0 {
		return c.whole(near, first, n, scale)
	}
	width, kvWidth := c.heads*c.dim, c.kv*c.dim
	var q, k, v []float32
	positions := make([]int32, n)
	for t := range n {
		row := c.x[(first+t)*c.cols:][:c.cols]
		q, k, v = append(q, row[:width]...), append(k, row[width:width+kvWidth]...), append(v, row[width+kvWidth:]...)
		positions[t] = int32(t)
	}
	if c.rebuilds { // the oracle uses whole keys
		c.share(k, v)
	}
	a := ref.AttentionArgs{
		Q: q, Y: make([]float32, n*width), K: encode(c.format, k), V: encode(c.format, v), First: []int32{0, int32(n)}, Positions: positions,
		Pages: ref.Pages{Format: c.format, BlockSize: c.block, KVHeads: c.kv, HeadDim: c.dim, Chunked: c.chunked}, Heads: c.heads, Scale: scale,
		Window: c.window, Softcap: c.softcap, Sinks: c.sinks, Bidirectional: c.both,
		Workspace: ref.AttentionWorkspace{K: make([]float32, n*c.dim), V: make([]float32, n*c.dim), P: make([]float64, n), Acc: make([]float64, c.dim)},
	}
	for h := range c.kv {
		ref.Attention(a, 0, h)
	}
	return a.Y, c.units(c.rounding(near), q, decode(c.format, a.K), decode(c.format, a.V), a.Y, float64(scale))
}

// rounding returns the largest rounding error of queries and weights: a backend may multiply
// pages of bf16 and of 8 bits in bf16, and with matrix units pages of fp16 in fp16.
func (c attentionCase) rounding(near bool) float64 {
	switch {
	case c.format == kernels.BF16 || c.format.Bytes(1) == 1:
		return 1.0 / (1 << 9)
	case c.format == kernels.F16 && near:
		return 1.0 / (1 << 12)
	}
	return 1.0 / (1 << 24)
}

func (c attentionCase) units(round float64, q, k, v, y []float32, scale float64) []float64 {
	width, kvWidth := c.heads*c.dim, c.kv*c.dim
	n := len(q) / width
	unit, p, e := make([]float64, len(y)), make([]float64, n), make([]float64, n)
	for t := range n {
		for h := range c.heads {
			qh, sum, top := q[t*width+h*c.dim:][:c.dim], 0.0, math.Inf(-1)
			kvAt := h / (c.heads / c.kv) * c.dim
			from, to := c.seen(t, n)
			for j := from; j < to; j++ {
				var s, square float64
				for d, x := range k[j*kvWidth+kvAt:][:c.dim] {
					s += float64(qh[d]) * float64(x)
					square += float64(qh[d]) * float64(qh[d]) * float64(x) * float64(x)
				}
				p[j], e[j] = s*scale, (math.Sqrt(square)*(math.Sqrt(float64(c.dim))/(1<<24)+round)+4*math.Abs(s)/(1<<24))*scale+round
				if bound := float64(c.softcap); bound > 0 {
					p[j], e[j] = bound*math.Tanh(p[j]/bound), e[j]+4*bound/(1<<24)
				}
				top = max(top, p[j])
			}
			if len(c.sinks) > 0 {
				top = max(top, float64(c.sinks[h]))
				sum = math.Exp(float64(c.sinks[h]) - top)
			}
			for j := from; j < to; j++ {
				p[j] = math.Exp(p[j] - top)
				sum += p[j]
			}
			for d := range c.dim {
				out := (t*c.heads+h)*c.dim + d
				var square, abs float64
				for j := from; j < to; j++ {
					x := float64(v[j*kvWidth+kvAt+d])
					move := p[j] / sum * (e[j]*math.Abs(x-float64(y[out])) + round*math.Abs(x))
					square += move * move
					abs += p[j] / sum * math.Abs(x)
				}
				unit[out] = math.Sqrt(square) + abs*math.Sqrt(float64(to-from+8))/(1<<24) + 1e-30
			}
		}
	}
	return unit
}

// seen returns the range of positions that token t of n attends to.
func (c attentionCase) seen(t, n int) (int, int) {
	to := t + 1
	if c.both {
		to = n
	}
	switch {
	case c.chunked:
		return t - t%c.window, to
	case c.window > 0:
		return max(0, to-c.window), to
	}
	return 0, to
}

func repeat(id int32, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = id
	}
	return ids
}
