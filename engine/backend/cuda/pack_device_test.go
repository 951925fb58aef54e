//go:build linux && cgo && cuda

package cuda

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// loading opens a device for weights, and a program that reads none of them.
func loading(t testing.TB, weights []backend.WeightSpec) *device {
	t.Helper()
	emulated(t)
	f, err := Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	p := &backend.Program{Name: "rows", Bucket: backend.Bucket{Tokens: 1, Seqs: 1, Samples: 1}, Vocab: 32, Weights: weights}
	r := backend.Record(p)
	ids := r.New("ids", kernels.I32, backend.PerToken, 1)
	r.Do(backend.Tokens{Out: ids})
	r.Free(ids)
	l, err := newLayout(f, backend.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := dry.Run(l, weights, []*backend.Program{p}, backend.StepShape{Tokens: 1, Seqs: 1, Samples: 1, Vocab: 32}, 0)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := Opener{}.Open(f, backend.Settings{}, res)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev.(*device)
}

// packed returns weight i as stored on the device.
func (d *device) packed(t testing.TB, i int, src backend.RowReader) []byte {
	t.Helper()
	at, out := d.arenas[backend.Weights]+driver.Address(d.offsets[i]), make([]byte, d.r.Packed[i].Bytes)
	err := d.do(func() error {
		if err := d.work.Fill(at, 0, int64(len(out))); err != nil {
			return err
		}
		return d.work.Wait(hangTimeout)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Pack(i, src); err != nil {
		t.Fatal(err)
	}
	err = d.do(func() error {
		if err := d.work.FromDevice(unsafe.Pointer(&out[0]), at, int64(len(out))); err != nil {
			return err
		}
		return d.work.Wait(hangTimeout)
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// counting is a RowReader that counts rows, for several goroutines; it has no dummy tensors.
type counting struct {
	ck   *checkpoint.Checkpoint
	lock sync.Mutex
	rows map[string]int
}

func count(ck *checkpoint.Checkpoint) *counting {
	return &counting{ck: ck, rows: map[string]int{}}
}

func (c *counting) ReadRows(name string, row0, rows int, dst []byte) error {
	c.lock.Lock()
	c.rows[name] += rows
	c.lock.Unlock()
	return c.ck.ReadRows(name, row0, rows, dst)
}

// copying is a RowReader that copies rows of a buffer, at the speed of memory.
type copying struct{ rows []byte }

func (c copying) ReadRows(_ string, _, _ int, dst []byte) error {
	copy(dst, c.rows)
	return nil
}

// BenchmarkPack measures the host's work for each byte of a weight, without the device's. A
// disk faster than that would not help.
func BenchmarkPack(b *testing.B) {
	const n = 4096
	for _, c := range []struct {
		name string
		spec backend.WeightSpec
	}{
		{"bf16", backend.WeightSpec{Source: kernels.BF16, Parts: []backend.Part{{Tensor: "w", Format: kernels.BF16, Rows: n}}}},
		{"bf16 to f8_e4m3", backend.WeightSpec{Source: kernels.BF16, Target: kernels.F8E4M3, Scaling: backend.PerChannel, Parts: []backend.Part{{Tensor: "w", Format: kernels.BF16, Rows: n}}}},
		{"f8_e4m3", backend.WeightSpec{Source: kernels.F8E4M3, Parts: []backend.Part{{Tensor: "w", Format: kernels.F8E4M3, Rows: n}}}},
		{"mxfp4", backend.WeightSpec{Source: kernels.MXFP4, Parts: []backend.Part{{Tensor: "w", Format: kernels.MXFP4, Rows: n, Scale: "s", ScaleFormat: kernels.U8}}}},
		{"q4_k", backend.WeightSpec{Source: kernels.Q4_K, Parts: []backend.Part{{Tensor: "w", Format: kernels.Q4_K, Rows: n}}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			c.spec.Name, c.spec.Rows, c.spec.Cols, c.spec.Use = c.name, n, n, backend.Multiply
			d := loading(b, []backend.WeightSpec{c.spec})
			if err := driver.Emulate("blocks=none"); err != nil {
				b.Skip("the device is a real one")
			}
			defer driver.Emulate("reset")
			src := copying{make([]byte, pieceBytes)}
			b.SetBytes(n * c.spec.Source.Bytes(n))
			for b.Loop() {
				if err := d.Pack(0, src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// making is counting with dummy tensors.
type making struct{ *counting }

func (m making) Dummy(name string) (kernels.Dummy, bool) { return m.ck.Dummy(name) }

// TestDummyWeights: dummy weights that are generated on the device equal those that are read,
// bit by bit, and none of their rows is read. Scales, and parts that begin within a panel,
// are read.
func TestDummyWeights(t *testing.T) {
	part := func(name string, f kernels.Format, rows int) backend.Part {
		return backend.Part{Tensor: name, Format: f, Rows: rows}
	}
	mx := func(name string, row0, rows int) backend.Part {
		return backend.Part{Tensor: name + "_blocks", Format: kernels.MXFP4, Row0: row0, Rows: rows, Scale: name + "_scales", ScaleFormat: kernels.U8, Stride: 48}
	}
	pairs := mx("pairs", 0, 64)
	pairs.Stride = 64
	use := backend.Multiply
	specs := []backend.WeightSpec{
		{Name: "joined", Rows: 37, Cols: 96, Use: use, Source: kernels.BF16, Parts: []backend.Part{part("q.weight", kernels.BF16, 32), part("k.weight", kernels.BF16, 5)}},
		{Name: "quantized", Rows: 21, Cols: 64, Use: use, Source: kernels.BF16, Target: kernels.F8E4M3, Scaling: backend.PerChannel, Parts: []backend.Part{part("o.weight", kernels.BF16, 21)}},
		{Name: "experts", Rows: 40, Cols: 64, Use: use, Source: kernels.MXFP4, Experts: 3, Parts: []backend.Part{mx("experts", 0, 32), mx("experts", 36, 8)}},
		{Name: "stacked", Rows: 32, Cols: 160, Use: use, Source: kernels.BF16, Target: kernels.F8E4M3, Scaling: backend.PerChannel, Experts: 2, Parts: []backend.Part{{Tensor: "stack", Format: kernels.BF16, Rows: 32, Stride: 32}}},
		{Name: "halves", Rows: 64, Cols: 96, Use: use, Source: kernels.BF16, GateUp: true, Parts: []backend.Part{part("q.weight", kernels.BF16, 32), part("r.weight", kernels.BF16, 32)}},
		{Name: "halves of experts", Rows: 64, Cols: 64, Use: use, Source: kernels.MXFP4, Experts: 2, GateUp: true, Parts: []backend.Part{pairs}},
		{Name: "quantized halves", Rows: 64, Cols: 160, Use: use, Source: kernels.BF16, Target: kernels.F8E4M3, Scaling: backend.PerChannel, GateUp: true, Parts: []backend.Part{part("wide", kernels.BF16, 64)}},
		{Name: "within", Rows: 37, Cols: 96, Use: use, Source: kernels.BF16, Parts: []backend.Part{part("k.weight", kernels.BF16, 5), part("q.weight", kernels.BF16, 32)}},
	}
	ck, err := checkpoint.Dummy(checkpoint.Config{}, []checkpoint.TensorInfo{
		{Name: "q.weight", Shape: []int64{32, 96}, Format: kernels.BF16}, {Name: "k.weight", Shape: []int64{5, 96}, Format: kernels.BF16},
		{Name: "r.weight", Shape: []int64{32, 96}, Format: kernels.BF16}, {Name: "wide", Shape: []int64{64, 160}, Format: kernels.BF16},
		{Name: "pairs_blocks", Shape: []int64{2, 64, 2, 16}, Format: kernels.U8}, {Name: "pairs_scales", Shape: []int64{2, 64, 2}, Format: kernels.U8},
		{Name: "o.weight", Shape: []int64{21, 64}, Format: kernels.BF16}, {Name: "stack", Shape: []int64{2, 32, 160}, Format: kernels.BF16},
		{Name: "experts_blocks", Shape: []int64{3, 48, 2, 16}, Format: kernels.U8}, {Name: "experts_scales", Shape: []int64{3, 48, 2}, Format: kernels.U8},
	}, 3)
	if err != nil {
		t.Fatal(err)
	}
	d := loading(t, specs)
	for i, s := range specs {
		read, made := count(ck), making{count(ck)}
		want, got := d.packed(t, i, read), d.packed(t, i, made)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: generated and read weights differ", s.Name)
		}
		if s.Name == "halves" {
			rows, ordered := make([]byte, 64*96*2), []byte(nil)
			if err := errors.Join(ck.ReadRows("q.weight", 0, 32, rows[:len(rows)/2]), ck.ReadRows("r.weight", 0, 32, rows[len(rows)/2:])); err != nil {
				t.Fatal(err)
			}
			for i := range 64 {
				ordered = append(ordered, rows[cuda.GateUpRow(64, i)*96*2:][:96*2]...)
			}
			if want := make([]byte, len(rows)); cuda.Pack(kernels.BF16, 64, 96, ordered, want) != nil || !bytes.Equal(got[:len(want)], want) {
				t.Errorf("%s: panels do not have gates with their ups", s.Name)
			}
		}
		if n := len(made.rows); (n > 0) != (s.Name == "within") || len(read.rows) == 0 {
			t.Errorf("%s: rows of %v were read, without making up %v", s.Name, made.rows, read.rows)
		}
	}
}
