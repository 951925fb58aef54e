package backendtest

import (
	"fmt"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// latent tests attention with keys that are values followed by a few stored numbers. The oracle
// has whole keys, and values with as many columns.
func (s *subject) latent(t *testing.T) {
	for _, k := range []struct {
		name    string
		long    int
		formats []kernels.Format
		attentionCase
	}{
		{"deepseek", 40, []kernels.Format{kernels.BF16, kernels.F32, kernels.F16}, attentionCase{heads: 16, dim: 512, latent: 64, block: 16}},
		{"128 heads", 40, []kernels.Format{kernels.F16, kernels.BF16}, attentionCase{heads: 128, dim: 64, latent: 32, block: 32}},
		{"beyond a span", 600, []kernels.Format{kernels.F32, kernels.BF16, kernels.F16, kernels.F8E4M3, kernels.F8E5M2}, attentionCase{heads: 4, dim: 64, latent: 64, block: 32}},
		{"odd sizes", 70, []kernels.Format{kernels.F32, kernels.F16, kernels.BF16, kernels.F8E4M3}, attentionCase{heads: 3, dim: 40, latent: 24, block: 16}},
		{"longer than the value", 70, []kernels.Format{kernels.F32, kernels.BF16}, attentionCase{heads: 2, dim: 32, latent: 96, block: 16}},
	} {
		for _, f := range k.formats {
			s.run(t, fmt.Sprintf("%s/%v", k.name, f), func(t *testing.T) {
				c := k.attentionCase
				c.format, c.kv = f, 1
				c.test(t, s, k.long)
			})
		}
	}
}

// keyWidth returns how many dimensions a key has.
func (c attentionCase) keyWidth() int { return c.dim + c.latent }

// columns returns the columns of a row of c.x: those of queries, keys and values.
func (c attentionCase) columns() (q, k, v int) {
	if c.latent > 0 {
		return c.heads * c.keyWidth(), c.latent, c.dim
	}
	return c.heads * c.dim, c.kv * c.dim, c.kv * c.dim
}

// recordLatent records attention on the second of two layers. Ropes without rotation round values
// and keys to the format of pages.
func (c attentionCase) recordLatent(rec *backend.Recorder, tables []backend.WeightID, scale float32) backend.Value {
	q := input(rec, tables[0], c.heads*c.keyWidth())
	rounded := func(name string, table backend.WeightID, cols int) backend.Value {
		in, unused := rec.New(name, kernels.F32, backend.PerToken, 3*cols), rec.New("unused", kernels.F32, backend.PerToken, cols)
		k, v := rec.New("k", c.format, backend.PerToken, cols), rec.New("v", c.format, backend.PerToken, cols)
		rec.Do(backend.Embed{Ids: 0, Table: table, Y: in, Scale: 1})
		rec.Do(backend.Rope{QKV: in, Angles: backend.NoValue, Q: unused, K: k, V: v, Heads: 1, KVHeads: 1, HeadDim: cols})
		return v
	}
	v, k := rounded("values", tables[1], c.dim), rounded("keys", tables[2], c.latent)
	y := rec.New("y", kernels.F32, backend.PerToken, c.heads*c.dim)
	rec.Do(backend.Attention{Q: q, K: k, V: v, Y: y, Layer: 1, Heads: c.heads, KVHeads: 1, HeadDim: c.dim, Latent: c.latent, Scale: scale})
	rec.Do(backend.StoreKV{K: k, V: v, Layer: 1})
	return y
}

// latentTables adds the tables of recordLatent: queries, and values and keys as V of a QKV.
func (c attentionCase) latentTables(m *tensors) []backend.WeightID {
	width := c.heads * c.keyWidth()
	var q, v, k []float32
	for at := 0; at < len(c.x); at += c.cols {
		row := c.x[at : at+c.cols]
		q = append(q, row[:width]...)
		k = append(append(k, make([]float32, 2*c.latent)...), row[width:width+c.latent]...)
		v = append(append(v, make([]float32, 2*c.dim)...), row[width+c.latent:]...)
	}
	return []backend.WeightID{m.table("q", q, width), m.table("v", v, 3*c.dim), m.table("k", k, 3*c.latent)}
}

// whole is oracle with whole keys, and values with as many columns, of which the last are zeros.
func (c attentionCase) whole(near bool, first, n int, scale float32) (want []float32, unit []float64) {
	w := c
	w.dim, w.latent, w.kv = c.keyWidth(), 0, 1
	w.cols, w.x = (c.heads+2)*w.dim, nil
	for t := range n {
		row := c.x[(first+t)*c.cols:][:c.cols]
		q := row[:c.heads*w.dim]
		k, v := row[len(q):len(q)+c.latent], row[len(q)+c.latent:]
		w.x = append(append(append(w.x, q...), v...), k...)
		w.x = append(append(w.x, v...), make([]float32, c.latent)...)
	}
	wideY, wideUnit := w.oracle(near, 0, n, scale)
	for at := 0; at < len(wideY); at += w.dim {
		want, unit = append(want, wideY[at:at+c.dim]...), append(unit, wideUnit[at:at+c.dim]...)
	}
	return want, unit
}
