package backendtest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// encodedRows encodes items and merges their rows into steps: each token with an encoded row has that
// row instead of its embedding, bit by bit, in any order of encodings and steps.
func (s *subject) encodedRows(t *testing.T) {
	const cols, width, most, cache = 12, 48, 9, 6
	m := &tensors{}
	table := m.table("x", normal(rng(3), most*width, 1), width)
	tower := &backend.Program{Name: t.Name(), Bucket: backend.Bucket{Tokens: 16, Seqs: 1, Samples: 4}, Weights: m.specs, Shard: backend.Whole}
	rec := backend.Record(tower)
	px := rec.New("pixels", kernels.F32, backend.PerToken, cols)
	across, down := rec.New("across", kernels.I32, backend.PerToken, 1), rec.New("down", kernels.I32, backend.PerToken, 1)
	rec.Do(backend.Patches{Pixels: px, Across: across, Down: down, Scale: 2, Shift: -1, Square: 2})
	joined := rec.New("joined", kernels.F32, backend.PerSample, width)
	rec.Do(backend.Join{X: px, Y: joined})
	rec.Do(backend.EncoderOutput{X: joined})
	var x, next backend.Value
	r := s.rig(t, plan{tensors: m, vocab: most, items: true, drafts: 1, tower: tower, cache: cache, bucket: backend.Bucket{Tokens: most, Seqs: 2, Samples: 1},
		record: func(rec *backend.Recorder) {
			x = input(rec, table, width)
			rec.Do(backend.Merge{X: x})
			next = input(rec, table, width)
			rec.Do(backend.Merge{X: next, Next: true})
		}})
	exe, err := r.dev.Compile(tower)
	check(t, err)
	enc, rows := r.dev.(backend.Encoder), make([][]float32, cache)
	r.run(feed{tokens: upTo(most)})
	plain := r.floats(x, most)
	encode := func(seed uint64, wide, high int, at int32, waits bool) {
		n, in := wide*high, enc.Item()
		pixels := shades(rng(seed), n*cols)
		for i := range n {
			in.Across[i], in.Down[i] = int32(i/4%(wide/2)*2+i%2), int32(i/4/(wide/2)*2+i/2%2)
		}
		pixels.fill(in, n*cols)
		check(t, enc.Encode(exe, backend.EncodeBinding{Patches: n, Rows: n / 4, At: at}))
		if waits {
			check(t, enc.WaitItem())
		}
		for i := range n / 4 {
			rows[int(at)+i] = make([]float32, width)
			for k := range width {
				rows[int(at)+i][k] = float32(pixels.at(i*width+k)*2) - 1
			}
		}
	}
	merged := func(encoded ...int32) {
		t.Helper()
		after := append(slices.Clone(encoded[1:]), 1) // the successor of the last token is not in the step
		if rows[1] == nil {
			after[most-1] = -1
		}
		r.run(feed{tokens: upTo(2), encoded: encoded[:2], next: after[:2]}, feed{tokens: upTo(most)[2:], encoded: encoded[2:], next: after[2:]})
		for what, at := range map[string]struct {
			value backend.Value
			rows  []int32
		}{"its own": {x, encoded}, "its successor's": {next, after}} {
			got := r.floats(at.value, most)
			for i, e := range at.rows {
				want := plain[i*width : (i+1)*width]
				if e >= 0 {
					want = rows[e]
				}
				if k := bits(got[i*width:(i+1)*width], want); k >= 0 {
					t.Fatalf("token %d of encoded row %d, %s: number %d is %v, not %v", i, e, what, k, got[i*width+k], want[k])
				}
			}
		}
	}
	encode(1, 4, 4, 2, true)
	merged(-1, 2, 3, -1, 4, 5, 5, -1, 2)
	encode(2, 2, 4, 0, true)
	merged(0, 1, 2, 3, 4, 5, -1, -1, 0)
	encode(3, 2, 2, 3, false) // the step runs behind it
	merged(-1, -1, 2, 3, 4, -1, -1, -1, -1)
	check(t, enc.WaitItem())
	for _, bad := range []int32{-2, cache} {
		if err := r.dev.Launch(r.exe, r.fill(0, []feed{{tokens: upTo(1), encoded: []int32{bad}}})); err == nil {
			t.Errorf("encoded row %d of %d: no error", bad, cache)
		}
		if err := r.dev.Launch(r.exe, r.fill(0, []feed{{tokens: upTo(1), next: []int32{bad}}})); err == nil {
			t.Errorf("encoded row %d of %d after a token: no error", bad, cache)
		}
	}
}

// attentionItems: a token sees to its left what its window allows, and all later tokens of its item,
// also those beyond the window. Bits depend neither on chunks between items nor on the batch.
func (s *subject) attentionItems(t *testing.T) {
	for _, c := range []struct {
		format         kernels.Format
		window, keeps  int
		heads, kv, dim int
	}{
		{kernels.F32, 0, 0, 4, 2, 64}, {kernels.F32, 8, 8, 4, 4, 64}, {kernels.F16, 24, 24, 8, 1, 64}, {kernels.BF16, 20, 20, 4, 2, 256},
	} {
		s.run(t, fmt.Sprintf("%v, window %d, %d heads of %d, %d kv", c.format, c.window, c.heads, c.dim, c.kv), func(t *testing.T) {
			a := attentionCase{format: c.format, window: c.window, keeps: c.keeps, heads: c.heads, kv: c.kv, dim: c.dim, block: 16, items: true}
			a.seenItems(t, s)
		})
	}
}

func (c attentionCase) seenItems(t *testing.T, s *subject) {
	const n, scale = 60, 0.17
	items := [][2]int{{0, 7}, {10, 41}, {41, 44}, {50, 60}}
	c.cols, c.vocab = (c.heads+2*c.kv)*c.dim, n
	m := &tensors{}
	c.x = normal(rng(7), n*c.cols, 1)
	table, inv := m.table("x", c.x, c.cols), m.literal("freqs", make([]float32, c.dim/2))
	k := class(c.format, c.block, 2, c.kv, c.dim, (n+c.block-1)/c.block)
	if c.keeps > 0 {
		k.Window, k.MaxPages = c.keeps, 2*((c.keeps+c.block-1)/c.block+1)
	}
	var y backend.Value
	r := s.rig(t, plan{tensors: m, vocab: n, items: true, bucket: backend.Bucket{Tokens: 2 * n, Seqs: 2, Samples: 1}, classes: []backend.KVClass{k}, pages: 2 * k.MaxPages,
		record: func(rec *backend.Recorder) {
			y = c.record(rec, []backend.WeightID{table}, inv, scale)
		}})
	pages := func(seq int) []int32 { return upTo(2 * k.MaxPages)[seq*k.MaxPages:][:k.MaxPages] }
	width := c.heads * c.dim
	run := func(beside bool, ends ...int) (out []float32) {
		from := 0
		for _, to := range ends {
			feeds := []feed{{tokens: upTo(n)[from:to], at: from, pages: pages(0), items: items}}
			if beside {
				feeds = append([]feed{{tokens: upTo(3), pages: pages(1)}}, feeds...)
			}
			b := r.run(feeds...)
			out = append(out, r.floats(y, b.Tokens)[(b.Tokens-(to-from))*width:]...)
			from = to
		}
		return out
	}
	whole := run(false, n)
	want, unit := c.itemOracle(items, n, scale, c.rounding(s.matrixTolerance))
	compareUnits(t, "in one step", whole, want, unit)
	for name, got := range map[string][]float32{"in chunks": run(false, 8, 10, 44, 50, n), "in chunks in a batch": run(true, 7, 46, n)} {
		if s.matrixTolerance {
			compareUnits(t, name, got, want, unit)
		} else if i := bits(got, whole); i >= 0 {
			t.Errorf("%s: token %d: number %d is %v, in one step %v", name, i/width, i%width, got[i], whole[i])
		}
	}
}

// itemOracle returns attention of the table's rows in float64, and the allowed standard error of each
// result, as units does for other kinds.
func (c attentionCase) itemOracle(items [][2]int, n int, scale, round float64) (want []float32, unit []float64) {
	width := c.heads * c.dim
	stored := func(x []float32) []float32 { return decode(c.format, encode(c.format, x)) }
	for t := range n {
		from, to := 0, t+1
		if c.window > 0 {
			from = max(0, to-c.window)
		}
		for _, k := range items {
			if k[0] <= t && t < k[1] {
				to = k[1]
			}
		}
		for h := range c.heads {
			q, kv := c.x[t*c.cols+h*c.dim:][:c.dim], h/(c.heads/c.kv)*c.dim
			weights, off, sum, top := make([]float64, to-from), make([]float64, to-from), 0.0, math.Inf(-1)
			for j := range weights {
				square := 0.0
				for d, v := range stored(c.x[(from+j)*c.cols+width+kv:][:c.dim]) {
					weights[j] += float64(q[d]) * float64(v) * scale
					square += float64(q[d]) * float64(q[d]) * float64(v) * float64(v)
				}
				off[j] = (math.Sqrt(square)*(math.Sqrt(float64(c.dim))/(1<<24)+round)+4*math.Abs(weights[j])/(1<<24))*scale + round
				top = max(top, weights[j])
			}
			for j := range weights {
				weights[j] = math.Exp(weights[j] - top)
				sum += weights[j]
			}
			values := make([][]float32, len(weights))
			for j := range values {
				values[j] = stored(c.x[(from+j)*c.cols+width+c.kv*c.dim+kv:][:c.dim])
			}
			for d := range c.dim {
				var y, square, abs float64
				for j, p := range weights {
					y += p / sum * float64(values[j][d])
				}
				for j, p := range weights {
					v := float64(values[j][d])
					move := p / sum * (off[j]*math.Abs(v-y) + round*math.Abs(v))
					square += move * move
					abs += p / sum * math.Abs(v)
				}
				want = append(want, float32(y))
				unit = append(unit, math.Sqrt(square)+abs*math.Sqrt(float64(to-from+8))/(1<<24)+1e-30)
			}
		}
	}
	return slices.Clip(want), unit
}
