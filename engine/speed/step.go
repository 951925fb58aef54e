package speed

import (
	"fmt"
	"math"

	"vapp.dev/engine/backend"
)

// Row is one sequence's part of a step: positions From to From+Count−1. Draw means that its last
// position samples a token.
type Row struct {
	From, Count int
	Draw        bool
}

// UnknownOpError reports an op whose time cannot be predicted.
type UnknownOpError struct{ Op string }

func (e *UnknownOpError) Error() string {
	return fmt.Sprintf("speed: no rate of op %s: it was not measured and no table has it", e.Op)
}

// Model predicts the time of a program's steps.
type Model struct {
	bucket backend.Bucket
	terms  []term
	bases  map[string]Basis // by kernel
	gpu    *launches        // nil: terms
}

// term returns the seconds of one op. b has the rows of the step.
type term func(b backend.Bucket, rows []Row) float64

// New returns the model of a program on a layout, with the rates of a machine. It fails with an
// *UnknownOpError for an op without a rate.
func New(l backend.Layout, p *backend.Program, r *Rates) (*Model, error) {
	if r.GPU != nil {
		gpu, err := newLaunches(l, p, *r.GPU)
		return &Model{bucket: p.Bucket, bases: map[string]Basis{}, gpu: gpu}, err
	}
	c := counter{layout: l, p: p, r: r, m: &Model{bucket: p.Bucket, bases: map[string]Basis{}}}
	for _, op := range p.Ops {
		t, err := c.op(op)
		if err != nil {
			return nil, err
		}
		if t != nil {
			c.m.terms = append(c.m.terms, t)
		}
	}
	return c.m, nil
}

// Bases returns the basis of each Linear kernel's rate, by the kernel's name.
func (m *Model) Bases() map[string]Basis { return m.bases }

// Step returns the predicted seconds of a step: the ops run one after the other. On a GPU it is the device's time: what
// the host does for a step runs beside the step before.
func (m *Model) Step(rows []Row) float64 {
	if m.gpu != nil {
		return m.gpu.seconds(rows)
	}
	b := backend.Bucket{Chunk: m.bucket.Chunk, Seqs: len(rows)}
	for _, r := range rows {
		b.Tokens += r.Count
		if r.Draw {
			b.Samples++
		}
	}
	seconds := StepFixed + StepSequence*float64(len(rows))
	for _, t := range m.terms {
		seconds += t(b, rows)
	}
	return seconds
}

// Encode returns the predicted seconds of an encoder program's pass over an item of that many patches,
// which becomes that many rows.
func (m *Model) Encode(patches, rows int) float64 {
	seconds := 0.0
	for _, t := range m.terms {
		seconds += t(backend.Bucket{Chunk: m.bucket.Chunk, Tokens: patches, Seqs: 1, Samples: rows}, []Row{{Count: patches}})
	}
	return seconds
}

// What a step takes beyond its ops, in seconds: the scheduler, the step buffers and the hand-over
// of tokens, for a step and for each of its sequences. StepFixed is assumed, StepSequence was fitted
// (docs/speed.md).
const (
	StepFixed    = 60e-6
	StepSequence = 20e-6
)

// counter counts the work of a program's ops.
type counter struct {
	layout backend.Layout
	p      *backend.Program
	r      *Rates
	m      *Model
}

func (c *counter) op(op backend.Op) (term, error) {
	switch o := op.(type) {
	case backend.Linear:
		return c.linear(o.W, o.Y)
	case backend.HeadLinear:
		return c.linear(o.W, o.Y)
	case backend.Attention:
		return c.attention(o)
	case backend.Experts:
		return c.experts(o)
	case backend.AllReduce:
		return nil, nil // of one rank: nothing is added
	case backend.Adapt:
		return nil, nil // predictions are of steps without adapters, which skip it
	case backend.Merge:
		return nil, nil // it copies rows of images, far fewer numbers than any other op reads
	}
	w, ok := WorkOf(c.p, op)
	if !ok {
		return nil, &UnknownOpError{backend.OpName(op)}
	}
	curve, ok := c.r.Ops[w.Op]
	if !ok {
		return nil, &UnknownOpError{w.Op}
	}
	return func(b backend.Bucket, _ []Row) float64 {
		n := b.Rows(w.Rows)
		if n == 0 {
			return 0
		}
		return curve.At(float64(n) * float64(w.Each))
	}, nil
}

func (c *counter) rows(v backend.Value) backend.Rows { return c.p.Values[v].Rows }

// matrix is a weight, or a part of it in a format of its own.
type matrix struct {
	weights float64
	at      func(rows float64) float64
}

// matrices returns the products that one multiplication with a weight takes: one, or one for each run of
// parts in the same format.
func (c *counter) matrices(id backend.WeightID) ([]matrix, error) {
	var out []matrix
	list := c.p.Weights[id].Segments()
	if list == nil {
		list = []backend.WeightSpec{c.p.Weights[id]}
	}
	for _, w := range list {
		p, err := c.layout.Weight(w)
		if err != nil {
			return nil, err
		}
		n := float64(w.Elems())
		at, basis := c.r.linear(p.Kernel, float64(p.Bytes)/n)
		c.m.bases[p.Kernel] = basis
		out = append(out, matrix{n, at})
	}
	return out, nil
}

// linear counts the product with a weight, or with all matrices of a stack.
func (c *counter) linear(w backend.WeightID, y backend.Value) (term, error) {
	list, err := c.matrices(w)
	if err != nil {
		return nil, err
	}
	rows := c.rows(y)
	return func(b backend.Bucket, _ []Row) float64 {
		n := b.Rows(rows)
		if n == 0 {
			return 0
		}
		t := 0.0
		for _, m := range list {
			t += c.r.Product + m.weights*m.at(float64(n))
		}
		return t
	}, nil
}

// experts counts the experts that a step's tokens reach if routing is uniform and independent, each
// with its share of the rows. Ops["experts"] is the factor, by rows, of what the op takes beyond
// the same products of Linear.
func (c *counter) experts(o backend.Experts) (term, error) {
	factor, ok := c.r.Ops["experts"]
	if !ok {
		return nil, &UnknownOpError{"experts"}
	}
	plain, err := c.expertProducts(o)
	if err != nil {
		return nil, err
	}
	rows := c.rows(o.Y)
	return func(b backend.Bucket, _ []Row) float64 {
		n := float64(b.Rows(rows))
		if n == 0 {
			return 0
		}
		return plain(n) * factor.Held(n)
	}, nil
}

// expertProducts returns the seconds of the products of a mixture of experts, by rows.
func (c *counter) expertProducts(o backend.Experts) (func(n float64) float64, error) {
	var list []matrix
	for _, id := range []backend.WeightID{o.GateUp, o.Down} {
		m, err := c.matrices(id)
		if err != nil {
			return nil, err
		}
		list = append(list, m...)
	}
	experts, top := float64(c.p.Weights[o.GateUp].Experts), float64(o.Top)
	return func(n float64) float64 {
		reached := experts * reachedShare(experts, top, n)
		t := 0.0
		for _, m := range list {
			t += reached * (c.r.Product + m.weights/experts*m.at(n*top/reached))
		}
		return t
	}, nil
}

// reachedShare returns the share of the experts that n rows reach if each takes top of them, uniformly and
// independently.
func reachedShare(experts, top, n float64) float64 { return 1 - math.Pow(1-top/experts, n) }

// ExpertsTime returns the seconds of the products alone of a mixture of experts with n rows. Package
// measure compares the op with it.
func ExpertsTime(l backend.Layout, p *backend.Program, o backend.Experts, r *Rates, n int) (float64, error) {
	c := counter{layout: l, p: p, r: r, m: &Model{bases: map[string]Basis{}}}
	t, err := c.expertProducts(o)
	if err != nil {
		return 0, err
	}
	return t(float64(n)), nil
}

// ExpertsBytes returns the bytes of weights that a mixture of experts reads for n rows, stored as their
// source is.
func ExpertsBytes(p *backend.Program, o backend.Experts, n int) float64 {
	experts := float64(p.Weights[o.GateUp].Experts)
	reached := reachedShare(experts, float64(o.Top), float64(n))
	bytes := 0.0
	for _, id := range []backend.WeightID{o.GateUp, o.Down} {
		w := p.Weights[id]
		bytes += float64(w.Source.Bytes(w.Elems()))
	}
	return reached * bytes
}

// few is the most tokens of a sequence that attention computes as decoding ones.
const few = 8

func (c *counter) attention(o backend.Attention) (term, error) {
	a, ok := c.r.attention(c.p.Values[o.K].Format.String(), o.HeadDim, max(1, o.Heads/max(1, o.KVHeads)))
	if !ok {
		return nil, &UnknownOpError{"attention"}
	}
	heads, kv := float64(o.Heads), float64(o.KVHeads)
	if n := float64(2*o.HeadDim + o.Latent); o.Latent > 0 { // the products of longer keys
		heads, kv = heads*n/float64(2*o.HeadDim), kv*n/float64(2*o.HeadDim)
	}
	return func(_ backend.Bucket, rows []Row) float64 {
		t, decoding, keys := a.Fixed, 0, 0.0
		for _, r := range rows {
			if r.Count <= few {
				decoding++
				keys += float64(r.Count) * float64(seen(r.From, o)) // each token reads its keys
				continue
			}
			t += heads * (a.Row*float64(r.Count) + a.Pair*pairs(r, o))
		}
		return t + heads*a.Seq*float64(decoding) + kv*keys*a.Keys.Held(float64(decoding))
	}, nil
}

// seen returns how many positions the token at position p sees.
func seen(p int, o backend.Attention) int {
	switch {
	case o.Chunked:
		return p%o.Window + 1
	case o.Window > 0:
		return min(p+1, o.Window)
	}
	return p + 1
}

// pairs returns the number of pairs of a token of r and a position that it sees.
func pairs(r Row, o backend.Attention) float64 {
	if o.Bidirectional {
		return float64(r.Count) * float64(r.Count)
	}
	window, first, last := o.Window, r.From+1, r.From+r.Count
	if o.Chunked {
		return pairsBefore(last, window) - pairsBefore(r.From, window)
	}
	if window == 0 || last <= window {
		return float64(first+last) / 2 * float64(r.Count)
	}
	if first >= window {
		return float64(window) * float64(r.Count)
	}
	grow := window - first
	return float64(first+window-1)/2*float64(grow) + float64(window)*float64(r.Count-grow)
}

// pairsBefore returns the pairs of the first n positions of a sequence in chunks.
func pairsBefore(n, chunk int) float64 {
	whole, rest := float64(n/chunk), float64(n%chunk)
	return whole*float64(chunk)*float64(chunk+1)/2 + rest*(rest+1)/2
}
