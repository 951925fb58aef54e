//go:build cgo && linux

package cpu_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/kernels"
)

// noise is a RowReader whose F32 tensors are random numbers.
type noise struct{ cols map[string]int }

func (n noise) ReadRows(tensor string, row0, rows int, dst []byte) error {
	cols := n.cols[tensor]
	for r := range rows {
		g := rand.New(rand.NewPCG(uint64(row0+r), 1))
		for c := range cols {
			binary.LittleEndian.PutUint32(dst[4*(r*cols+c):], math.Float32bits(float32(g.NormFloat64())))
		}
	}
	return nil
}

// tiny is a program of one layer: tokens select rows of noise, which attention reads as Q, K
// and V; then logits, sampled.
type tiny struct {
	heads, kv, dim, vocab, tokens, seqs, length int
	format                                      kernels.Format
	window                                      int // Window of the op and of the class
	chunked                                     bool
	block                                       int // positions of a page; 0: 16
	sinked                                      bool
	softcap                                     float32
	opener                                      backend.Opener // nil: the backend's
}

// device is a tiny program on an open device.
type device struct {
	backend.Device
	exe  backend.Executable
	y    backend.Value
	spec tiny
	src  noise
	back bool // pages are assigned in descending order
}

func (n tiny) record(t testing.TB) (*backend.Program, noise, backend.Value) {
	src := noise{map[string]int{}}
	p := &backend.Program{Name: "tiny", Bucket: backend.Bucket{Tokens: n.tokens, Seqs: n.seqs, Samples: n.seqs}, Vocab: n.vocab}
	weight := func(name string, use backend.Use, rows, cols int) backend.WeightID {
		src.cols[name] = cols
		part := backend.Part{Tensor: name, Rows: rows, Format: kernels.F32}
		if use == backend.Vector {
			part.Elems = cols
		}
		p.Weights = append(p.Weights, backend.WeightSpec{Name: name, Rows: rows, Cols: cols, Source: kernels.F32, Use: use, Parts: []backend.Part{part}})
		return backend.WeightID(len(p.Weights) - 1)
	}
	block := max(n.block, 16)
	c := backend.KVClass{Name: "full", Format: n.format, BlockSize: block, Layers: 1, KVHeads: n.kv, HeadDim: n.dim, PagesPerSlab: 4, MaxPages: (n.length + block - 1) / block, Plane: true}
	c.SlabBytes = 4 * c.PageBytes()
	if n.window > 0 {
		c.Window, c.Chunked, c.MaxPages = n.window, n.chunked, 2*((n.window+block-1)/block+1)
	}
	p.Classes = []backend.KVClass{c}
	wide := (n.heads + 2*n.kv) * n.dim
	table, inv, head := weight("table", backend.Lookup, n.vocab, wide), weight("inv", backend.Vector, 1, n.dim/2), weight("head", backend.Multiply, n.vocab, n.heads*n.dim)
	sinks := weight("sinks", backend.Vector, 1, n.heads)
	r := backend.Record(p)
	ids := r.New("ids", kernels.I32, backend.PerToken, 1)
	r.Do(backend.Tokens{Out: ids})
	r.Do(backend.StoreTokens{Ids: ids})
	x, angles := r.New("qkv", kernels.F32, backend.PerToken, wide), r.New("angles", kernels.F32, backend.PerToken, n.dim)
	r.Do(backend.Embed{Ids: ids, Table: table, Y: x, Scale: 1})
	r.Do(backend.Angles{InvFreq: inv, Scale: 1, Y: angles})
	q, k, v := r.New("q", kernels.F32, backend.PerToken, n.heads*n.dim), r.New("k", n.format, backend.PerToken, n.kv*n.dim), r.New("v", n.format, backend.PerToken, n.kv*n.dim)
	r.Do(backend.Rope{QKV: x, Angles: angles, Q: q, K: k, V: v, Heads: n.heads, KVHeads: n.kv, HeadDim: n.dim, Rotary: n.dim})
	y := r.New("y", kernels.F32, backend.PerToken, n.heads*n.dim)
	r.Do(backend.Attention{Q: q, K: k, V: v, Y: y, Heads: n.heads, KVHeads: n.kv, HeadDim: n.dim, Scale: 0.1, Window: n.window, Chunked: n.chunked, Sinked: n.sinked, Sinks: sinks, Softcap: n.softcap})
	r.Do(backend.StoreKV{K: k, V: v})
	last, logits := r.New("last", kernels.F32, backend.PerSample, n.heads*n.dim), r.New("logits", kernels.F32, backend.PerSample, n.vocab)
	r.Do(backend.Gather{X: y, Y: last})
	r.Do(backend.Linear{X: last, W: head, Bias: backend.NoWeight, Y: logits})
	r.Do(backend.Sample{Logits: logits})
	r.Free(ids, x, angles, q, k, v, y, last, logits)
	p, err := r.Program()
	must(t, err)
	return p, src, y
}

// open opens a device with the program and packs the weights.
func (n tiny) open(t testing.TB, s backend.Settings) *device {
	t.Helper()
	d := n.openUnpacked(t, s)
	d.packAll(t)
	return d
}

func (d *device) packAll(t testing.TB) {
	t.Helper()
	for i := range d.exe.Program().Weights {
		must(t, d.Pack(i, d.src))
	}
}

// openUnpacked is open without the weights.
func (n tiny) openUnpacked(t testing.TB, s backend.Settings) *device {
	t.Helper()
	d, p, err := n.opened(t, s)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	d.exe, err = d.Compile(p)
	must(t, err)
	return d
}

// opened returns the result of Open.
func (n tiny) opened(t testing.TB, s backend.Settings) (*device, *backend.Program, error) {
	t.Helper()
	p, src, y := n.record(t)
	o := n.opener
	if o == nil {
		o = cpu.Opener{}
	}
	facts, err := o.Probe()
	must(t, err)
	layout, err := o.Layout(facts, s)
	must(t, err)
	c := p.Classes[0]
	shape := backend.StepShape{Tokens: n.tokens, Seqs: n.seqs, Samples: n.seqs, Vocab: n.vocab, MaxPages: []int{c.MaxPages}, Bias: 1, Logprobs: 1}
	pages := n.seqs * c.MaxPages
	res, err := dry.Run(layout, p.Weights, []*backend.Program{p}, shape, int64(pages/4+1)*c.SlabBytes)
	must(t, err)
	d := &device{y: y, spec: n, src: src}
	d.Device, err = o.Open(facts, s, res)
	return d, p, err
}

// fill writes a step of n tokens of each sequence from position at on.
func (d *device) fill(set, seqs, n, at int) backend.Binding {
	s, c := d.Step(set), d.exe.Program().Classes[0]
	width := c.MaxPages
	for q := range seqs {
		for i := range n {
			r := q*n + i
			s.Tokens[r], s.Positions[r], s.Seq[r] = int32((q*31+(at+i)*7)%d.spec.vocab), int32(at+i), int32(q)
		}
		for i := range width {
			s.Pages[0][q*width+i] = d.page(q, i)
		}
		if c.Window > 0 {
			d.window(s.Pages[0][q*width:][:width], q, at, at+n)
		}
		s.First[q], s.First[q+1], s.Rows[q] = int32(q*n), int32(q*n+n), int32(q*n+n-1)
		s.Sampling[q] = backend.SampleRow{TopP: 1, Repetition: 1, Seq: int32(q), HistoryLen: int32(at + n)}
	}
	return backend.Binding{Set: set, Tokens: seqs * n, Seqs: seqs, Samples: seqs}
}

// window writes the page table of sequence q. Its blocks use half as many pages as the table
// has entries, in turn.
func (d *device) window(table []int32, q, from, to int) {
	c := d.exe.Program().Classes[0]
	page := func(b int) int32 { return d.page(q, b%(c.MaxPages/2)) }
	for i := range table {
		table[i] = -1
	}
	for b := c.FirstBlock(from); b*c.BlockSize < from; b++ {
		table[c.Entry(b, from)] = page(b)
	}
	for b := c.FirstBlock(to); b*c.BlockSize < to; b++ {
		table[c.StoreEntry(b, to)] = page(b)
	}
}

// page returns the i-th page of sequence q.
func (d *device) page(q, i int) int32 {
	n := q*d.exe.Program().Classes[0].MaxPages + i
	if d.back {
		n = d.spec.seqs*d.exe.Program().Classes[0].MaxPages - 1 - n
	}
	return int32(n)
}

// run launches a step and waits for it.
func (d *device) run(t testing.TB, b backend.Binding) {
	t.Helper()
	must(t, d.Launch(d.exe, b))
	must(t, d.Wait(b.Set))
}

// rows returns a copy of the first n rows of attention's result.
func (d *device) rows(n int) []byte {
	b := d.Device.(backend.Inspector).Scratch(d.y, d.exe.Program())
	return append([]byte(nil), b[:4*n*d.spec.heads*d.spec.dim]...)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
