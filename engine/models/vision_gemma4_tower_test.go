package models

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/enginetest"
	kref "vapp.dev/kernels/ref"
)

// TestTowerRecorded runs the recorded towers op by op in float64, following the ops' documentation,
// and compares the results with transformers' (testdata/record_media.py), image by image.
func TestTowerRecorded(t *testing.T) {
	for _, name := range []string{"tiny-gemma4-tower", "tiny-gemma4-moe-tower"} {
		t.Run(name, func(t *testing.T) { towerGoldens(t, name, func(o *oracle, op backend.Op) { o.op(op) }) })
	}
}

// towerGoldens computes the images of a checkpoint's golden files with run and compares the encoded
// rows.
func towerGoldens(t *testing.T, name string, run func(*oracle, backend.Op)) {
	ck := openTestdata(t, name)
	m, err := New(ck, Build{Shard: backend.Whole, Pipe: backend.Whole, Vision: true})
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/media/" + name + ".*.safetensors")
	if err != nil || len(files) == 0 {
		t.Fatalf("golden files: %v, %v", files, err)
	}
	for _, file := range files {
		g, err := enginetest.ReadGolden(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := range g.Items {
			towerItem(t, fmt.Sprintf("%s, image %d", filepath.Base(file), i), ck, m, g.Items[i], run)
		}
	}
}

// towerItem compares one image.
func towerItem(t *testing.T, what string, ck *checkpoint.Checkpoint, m Model, item enginetest.GoldenItem, run func(*oracle, backend.Op)) {
	t.Helper()
	if item.Patches() > m.(Encoder).Patches() {
		t.Fatalf("%s: %d patches, the tower takes %d", what, item.Patches(), m.(Encoder).Patches())
	}
	p, err := m.(Encoder).RecordEncoder(&backend.Program{Name: "vision", Bucket: backend.Bucket{Tokens: item.Patches(), Seqs: 1}})
	if err == nil {
		err = p.Check()
	}
	if err != nil {
		t.Fatal(err)
	}
	o := &oracle{t: t, ck: ck, p: p, item: item, values: map[backend.Value][]float64{}}
	for _, op := range p.Ops {
		run(o, op)
	}
	if len(o.out) != len(item.Encoded) {
		t.Fatalf("%s: %d numbers, want %d", what, len(o.out), len(item.Encoded))
	}
	var most, size float64
	for i, w := range item.Encoded {
		most, size = max(most, math.Abs(o.out[i]-float64(w))), max(size, math.Abs(float64(w)))
	}
	t.Logf("%s: largest difference %.2g of %.2g", what, most, size)
	if most > 2e-5*size {
		t.Errorf("%s is off by %g, its largest number is %g", what, most, size)
	}
}

// oracle computes a tower's ops one number at a time.
type oracle struct {
	t      *testing.T
	ck     *checkpoint.Checkpoint
	p      *backend.Program
	item   enginetest.GoldenItem
	values map[backend.Value][]float64
	out    []float64
}

// tensor reads a whole tensor.
func (o *oracle) tensor(name string) []float64 {
	info, ok := o.ck.Tensor(name)
	if !ok {
		o.t.Fatalf("%s is absent", name)
	}
	raw := make([]byte, info.Bytes)
	if err := o.ck.ReadRows(name, 0, int(info.Rows()), raw); err != nil {
		o.t.Fatal(err)
	}
	values, out := make([]float32, info.Elements()), make([]float64, info.Elements())
	kref.Dequantize(info.Format, raw, values)
	for i, v := range values {
		out[i] = float64(v)
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
		pixels, across, down := o.make(op.Pixels), o.make(op.Across), o.make(op.Down)
		for i, x := range o.item.Pixels(cols(op.Pixels)) {
			pixels[i] = float64(o.item.Colours()[x])*float64(op.Scale) + float64(op.Shift)
		}
		for i := range across {
			across[i], down[i] = float64(o.item.Columns[i]), float64(o.item.Rows[i])
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
