package models

import (
	"encoding/binary"
	"math"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// TestTowerRecorded runs the recorded tower op by op in float64, following the ops' documentation,
// and compares the result with transformers' (testdata/record_tower.py).
func TestTowerRecorded(t *testing.T) {
	ck := openTestdata(t, "tiny-gemma4-tower")
	cfg := ck.Config()
	l := &loader{src: ck, Build: Build{Shard: backend.Whole, Pipe: backend.Whole, Vision: true}}
	tower, err := newGemmaTower(cfg, l)
	if err != nil || l.err != nil {
		t.Fatal(err, l.err)
	}
	m := &gemma{vocabulary: vocabulary{Build: l.Build, size: cfg.VocabSize, hidden: cfg.HiddenSize}, cfg: cfg, vision: tower, weights: l.specs}
	p, err := m.RecordEncoder(&backend.Program{Name: "vision", Bucket: backend.Bucket{Tokens: m.Patches(), Seqs: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	run := oracle{t: t, ck: ck, p: p, values: map[backend.Value][]float64{}}
	for _, op := range p.Ops {
		run.op(op)
	}
	want := run.tensor("output")
	if len(run.out) != len(want) || len(want) != 6*cfg.HiddenSize {
		t.Fatalf("%d numbers, want %d", len(run.out), len(want))
	}
	var most, size float64
	for i, w := range want {
		most, size = max(most, math.Abs(run.out[i]-w)), max(size, math.Abs(w))
	}
	t.Logf("largest difference %.2g of %.2g", most, size)
	if most > 2e-5*size {
		t.Errorf("the tower is off by %g, its largest number is %g", most, size)
	}
}

// oracle computes a tower's ops one number at a time.
type oracle struct {
	t      *testing.T
	ck     *checkpoint.Checkpoint
	p      *backend.Program
	values map[backend.Value][]float64
	out    []float64
}

// tensor reads a whole float32 tensor.
func (o *oracle) tensor(name string) []float64 {
	info, ok := o.ck.Tensor(name)
	if !ok || info.Format != kernels.F32 {
		o.t.Fatalf("%s: %v", name, info)
	}
	raw := make([]byte, info.Bytes)
	if err := o.ck.ReadRows(name, 0, int(info.Rows()), raw); err != nil {
		o.t.Fatal(err)
	}
	out := make([]float64, info.Elements())
	for i := range out {
		out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
	}
	return out
}

// weight returns the rows of all parts.
func (o *oracle) weight(id backend.WeightID) (out []float64) {
	s := o.p.Weights[id]
	for _, p := range s.Parts {
		if p.Values != nil {
			for _, v := range p.Values {
				out = append(out, float64(v))
			}
			continue
		}
		all := o.tensor(p.Tensor)
		if s.Use&backend.Vector != 0 {
			out = append(out, all[p.Col0:][:p.Elems]...)
			continue
		}
		out = append(out, all[p.Row0*s.Cols:][:p.Rows*s.Cols]...)
	}
	return out
}

func (o *oracle) make(v backend.Value) []float64 {
	in := o.p.Values[v]
	o.values[v] = make([]float64, o.p.Rows(in.Rows)*in.Cols)
	return o.values[v]
}

func (o *oracle) op(op backend.Op) {
	cols := func(v backend.Value) int { return o.p.Values[v].Cols }
	switch op := op.(type) {
	case backend.Patches:
		for i, x := range o.tensor("input.pixels") {
			if i == 0 {
				o.make(op.Pixels)
			}
			o.values[op.Pixels][i] = x*float64(op.Scale) + float64(op.Shift)
		}
		across, down := o.make(op.Across), o.make(op.Down)
		for i, x := range o.tensor("input.places") {
			[][]float64{across, down}[i%2][i/2] = x
		}
	case backend.Linear:
		x, w, y, in, n := o.values[op.X], o.weight(op.W), o.make(op.Y), cols(op.X), cols(op.Y)
		for i := range y {
			for k := range in {
				y[i] += x[i/n*in+k] * w[i%n*in+k]
			}
		}
	case backend.Embed:
		ids, w, y, n := o.values[op.Ids], o.weight(op.Table), o.make(op.Y), cols(op.Y)
		for i := range y {
			y[i] = w[int(ids[i/n])*n+i%n] * float64(op.Scale)
		}
	case backend.Add:
		for i, x := range o.values[op.X] {
			o.values[op.Into][i] += x
		}
	case backend.Norm:
		o.norm(op, cols(op.X))
	case backend.Angles:
		w, y := o.weight(op.InvFreq), o.make(op.Y)
		for i, at := range [][]float64{o.values[op.Across], o.values[op.Down]} {
			for t, pos := range at {
				for k, f := range w {
					row := y[t*4*len(w)+i*2*len(w):]
					row[k], row[len(w)+k] = math.Cos(pos*f), math.Sin(pos*f)
				}
			}
		}
	case backend.Rope:
		o.rope(op)
	case backend.Attention:
		o.attention(op)
	case backend.GLU:
		x, y, n := o.values[op.X], o.make(op.Y), cols(op.Y)
		for i := range y {
			g, up := x[i/n*2*n+i%n], x[i/n*2*n+n+i%n]
			y[i] = 0.5 * g * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(g+0.044715*g*g*g))) * up
		}
	case backend.AvgPool:
		o.pool(op, cols(op.X))
	case backend.Standardize:
		mean, scale := o.weight(op.Mean), o.weight(op.Scale)
		for i := range o.values[op.X] {
			x := &o.values[op.X][i]
			*x = (*x - mean[i%len(mean)]) * scale[i%len(mean)]
		}
	case backend.EncoderOutput:
		o.out = o.values[op.X]
	default:
		o.t.Fatalf("the oracle has no op %s", backend.OpName(op))
	}
}

func (o *oracle) norm(op backend.Norm, n int) {
	x := o.values[op.X]
	if op.Residual != backend.NoValue {
		r := o.values[op.Residual]
		for i := range r {
			r[i] += x[i]
		}
		x = r
	}
	y, w := make([]float64, len(x)), []float64{}
	if op.W != backend.NoWeight {
		w = o.weight(op.W)
	}
	for row := 0; row < len(x); row += n {
		normalised(x[row:][:n], y[row:][:n], float64(op.Eps))
		for i := range w {
			y[row+i] *= w[i]
		}
	}
	o.values[op.Y] = y
}

func normalised(x, y []float64, eps float64) {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	for i, v := range x {
		y[i] = v / math.Sqrt(sum/float64(len(x))+eps)
	}
}

// rope splits heads, normalizes and rotates them.
func (o *oracle) rope(op backend.Rope) {
	d, heads := op.HeadDim, op.Heads+2*op.KVHeads
	qkv, angles := o.values[op.QKV], o.values[op.Angles]
	outs := [][]float64{o.make(op.Q), o.make(op.K), o.make(op.V)}
	weights := [][]float64{o.weight(op.Norm.Q), o.weight(op.Norm.K), nil}
	for i := range len(qkv) / d {
		t, h, which := i/heads, i%heads, 0
		n := op.Heads
		if h >= op.Heads {
			h, which, n = h-op.Heads, 1, op.KVHeads
		}
		if which == 1 && h >= op.KVHeads {
			h, which = h-op.KVHeads, 2
		}
		y := outs[which][(t*n+h)*d:][:d]
		normalised(qkv[i*d:][:d], y, float64(op.Norm.Eps))
		for k := range y {
			if weights[which] != nil {
				y[k] *= weights[which][k]
			}
		}
		if which == 2 {
			continue
		}
		for axis := range 2 { // each half of the head is rotated by its own halves
			half, row := d/4, angles[t*d+axis*d/2:]
			part := y[axis*d/2:]
			for k := range half {
				a, b := part[k], part[half+k]
				cos, sin := row[k], row[half+k]
				part[k], part[half+k] = a*cos-b*sin, b*cos+a*sin
			}
		}
	}
}

func (o *oracle) attention(op backend.Attention) {
	d, group := op.HeadDim, op.Heads/op.KVHeads
	q, k, v, y := o.values[op.Q], o.values[op.K], o.values[op.V], o.make(op.Y)
	rows := len(q) / (op.Heads * d)
	for i := range rows * op.Heads {
		h := i % op.Heads / group
		scores, sum := make([]float64, rows), 0.0
		for t := range rows {
			for c := range d {
				scores[t] += q[i*d+c] * k[(t*op.KVHeads+h)*d+c]
			}
			scores[t] = math.Exp(scores[t] * float64(op.Scale))
			sum += scores[t]
		}
		for t := range rows {
			for c := range d {
				y[i*d+c] += scores[t] / sum * v[(t*op.KVHeads+h)*d+c]
			}
		}
	}
}

func (o *oracle) pool(op backend.AvgPool, n int) {
	x, y, across, down := o.values[op.X], o.make(op.Y), o.values[op.Across], o.values[op.Down]
	wide := 0.0
	for _, a := range across {
		wide = max(wide, a+1)
	}
	for i, v := range x {
		square := int(across[i/n])/op.Size + int(wide)/op.Size*(int(down[i/n])/op.Size)
		y[square*n+i%n] += v * float64(op.Scale) / float64(op.Size*op.Size)
	}
}
