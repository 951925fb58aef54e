package cuda_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

// panelArgs returns the arguments for a matrix of f.
func (r *rig) panelArgs(f kernels.Format, rows, cols int) (cuda.PanelArgs, cudatest.Grid) {
	r.Helper()
	o, ok := cuda.OrderOf(f)
	if !ok {
		r.Fatalf("%v has no panels", f)
	}
	size := int(f.Bytes(int64(cols)))
	a := cuda.PanelArgs{
		Order: up(r, o.From), Panels: alloc[byte](r, int(cuda.PackedBytes(f, rows, cols))), Bad: up(r, []uint32{0}),
		Count: int32(rows), RowBytes: int32(size), UnitBytes: int32(o.UnitBytes), Bits: int32(o.Bits), Numberless: o.Numberless,
	}
	return a, cudatest.Grid{Blocks: o.PanelGrid(rows, size), Threads: [3]int{cuda.PanelThreads, 1, 1}}
}

// samePanels compares what a kernel packed with Pack.
func (r *rig) samePanels(f kernels.Format, rows, cols int, raw []byte, at cuda.Ptr) {
	r.Helper()
	want := make([]byte, cuda.PackedBytes(f, rows, cols))
	if err := cuda.Pack(f, rows, cols, raw, want); err != nil {
		r.Fatal(err)
	}
	if got := down[byte](r, at, len(want)); !bytes.Equal(got, want) {
		for i := range got {
			if got[i] != want[i] {
				r.Fatalf("%v %d×%d: byte %d is %#x, want %#x", f, rows, cols, i, got[i], want[i])
			}
		}
	}
}

// TestPanels checks that rows of every format become what Pack makes of them: rows that begin
// inside a word, partial panels, and partial units.
func TestPanels(t *testing.T) {
	for _, f := range cuda.PackedFormats() {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			r := newRig(t)
			block, _ := f.Block()
			for _, c := range []struct{ rows, cols int }{{17, 7 * block}, {1, 50 * block}, {32, 3 * max(block, 512)}} {
				raw := make([]byte, int64(c.rows)*f.Bytes(int64(c.cols)))
				for i := range raw {
					raw[i] = byte(r.rnd.Uint32()) &^ 0x44 // no exponent of a NaN
				}
				a, g := r.panelArgs(f, c.rows, c.cols)
				a.Rows = up(r, append(raw[:len(raw):len(raw)], 0, 0, 0))
				for _, order := range cudatest.Schedules {
					r.Schedule(order)
					launch(r, "panels", g, &a)
					r.samePanels(f, c.rows, c.cols, raw, a.Panels)
				}
				if bad := down[uint32](r, a.Bad, 1)[0]; bad != 0 {
					t.Errorf("%d×%d: a finite number is reported as not finite", c.rows, c.cols)
				}
			}
		})
	}
}

// TestPanelHalves checks that panels get 8 rows of each half: read, generated and quantized, whose scales stay in the order
// of rows.
func TestPanelHalves(t *testing.T) {
	const rows, cols = 64, 96
	for _, f := range []kernels.Format{kernels.BF16, kernels.F8E4M3, kernels.MXFP4, kernels.Q5_0} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			r := newRig(t)
			raw, size := r.blocks(f, rows, cols), int(f.Bytes(cols))
			ordered := make([]byte, len(raw))
			for i := range rows {
				copy(ordered[i*size:(i+1)*size], raw[cuda.GateUpRow(rows, i)*size:])
			}
			a, g := r.panelArgs(f, rows, cols)
			a.Rows, a.Half = up(r, append(raw, 0, 0, 0)), rows/2
			launch(r, "panels", g, &a)
			r.samePanels(f, rows, cols, ordered, a.Panels)
		})
	}
	r := newRig(t)
	_, x := stored(kernels.BF16, r.floats(rows*cols, 3))
	raw, _ := stored(kernels.BF16, x)
	p, _ := r.panelArgs(kernels.F8E4M3, rows, cols)
	a := cuda.QuantizeArgs{PanelArgs: p, Scales: alloc[float32](r, rows), ScalesHalf: rows / 2}
	a.Rows = up(r, raw)
	grid := cudatest.Line(rows/cuda.PanelRows, cuda.PanelThreads)
	launch(r, cuda.QuantizeKernel(kernels.BF16), grid, &a)
	want, inOrder := down[float32](r, a.Scales, rows), down[byte](r, a.Panels, rows*cols)
	a.Half, a.Scales, a.Panels = rows/2, alloc[float32](r, rows), alloc[byte](r, rows*cols)
	launch(r, cuda.QuantizeKernel(kernels.BF16), grid, &a)
	r.near("scales of halves", down[float32](r, a.Scales, rows), want, 0)
	if halves := down[byte](r, a.Panels, rows*cols); bytes.Equal(halves, inOrder) {
		t.Error("quantized rows of halves are in their order")
	}
	shuffled := make([]byte, 0, len(raw))
	for i := range rows {
		at := cuda.GateUpRow(rows, i) * cols * 2
		shuffled = append(shuffled, raw[at:at+cols*2]...)
	}
	b := a
	b.Half, b.Rows, b.Scales, b.Panels = 0, up(r, shuffled), alloc[float32](r, rows), alloc[byte](r, rows*cols)
	launch(r, cuda.QuantizeKernel(kernels.BF16), grid, &b)
	if !bytes.Equal(down[byte](r, a.Panels, rows*cols), down[byte](r, b.Panels, rows*cols)) {
		t.Error("quantized rows of halves are not in the order of GateUpRow")
	}
}

// TestPanelsNumberless checks that a single code that is not a number is found, wherever it is.
func TestPanelsNumberless(t *testing.T) {
	for f, code := range map[kernels.Format]byte{kernels.F8E4M3: 0xff, kernels.F8E5M2: 0x7d, kernels.MXFP4: 0xff, kernels.NVFP4: 0xff} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			r := newRig(t)
			const rows, cols = 5, 1152
			raw := make([]byte, rows*f.Bytes(cols))
			every := 1
			if f == kernels.MXFP4 || f == kernels.NVFP4 {
				_, every = f.Block()
			}
			for _, block := range []int{0, len(raw) / every / 2, len(raw)/every - 1} {
				at := block*every + every - 1
				raw[at] = code
				a, g := r.panelArgs(f, rows, cols)
				a.Rows = up(r, raw)
				launch(r, "panels", g, &a)
				if down[uint32](r, a.Bad, 1)[0] == 0 {
					t.Errorf("code %#x at byte %d was not seen", code, at)
				}
				raw[at] = 0
			}
		})
	}
}

// levels returns 256 elements of random bytes that are finite in every format.
func (r *rig) levels(size int) []byte {
	b := make([]byte, 256*size)
	for i := range b {
		b[i] = byte(r.rnd.Uint32()) &^ 0x44
	}
	return b
}

func (r *rig) made(m kernels.Dummy) cuda.MadeArgs {
	return cuda.MadeArgs{Levels: up(r, m.Levels), Key: m.Key, Size: int32(m.Size)}
}

// TestMadePanels checks that generated numbers are those of kernels.Dummy, from any row on;
// blocks of MXFP4 come from two tensors.
func TestMadePanels(t *testing.T) {
	r := newRig(t)
	const rows, cols, row0 = 19, 1056, 1 << 33
	for f, size := range map[kernels.Format]int{kernels.F8E4M3: 1, kernels.BF16: 2} {
		m := kernels.Dummy{Key: 0xfedcba9876543210, Size: size, Levels: r.levels(size)}
		raw := make([]byte, rows*cols*size)
		for i := range rows {
			m.Row(uint64(row0+i), raw[i*cols*size:][:cols*size])
		}
		a, g := r.panelArgs(f, rows, cols)
		a.Made[0], a.Row0[0] = r.made(m), row0
		launch(r, "panels", g, &a)
		r.samePanels(f, rows, cols, raw, a.Panels)
	}
	codes := kernels.Dummy{Key: 5, Size: 1, Levels: r.levels(1)}
	exponents := kernels.Dummy{Key: 6, Size: 1, Levels: r.levels(1)}
	raw, last := make([]byte, rows*cols/32*17), make([]byte, cols/32)
	for i := range rows {
		exponents.Row(uint64(7+i), last)
		for b := range cols / 32 {
			block := raw[(i*cols/32+b)*17:][:17]
			codes.Row(uint64((7+i)*cols/32+b), block[:16])
			block[16] = last[b]
		}
	}
	a, g := r.panelArgs(kernels.MXFP4, rows, cols)
	a.Made[0], a.Exponents[0], a.Row0[0] = r.made(codes), r.made(exponents), 7
	launch(r, "panels", g, &a)
	r.samePanels(kernels.MXFP4, rows, cols, raw, a.Panels)
}

// TestQuantizePanels checks that rows of floats, read and generated, become f8_e4m3 with the
// scale that maps the largest of a row to 448. A row of zeros has scale 1, and a NaN is
// reported.
func TestQuantizePanels(t *testing.T) {
	for _, f := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			r := newRig(t)
			const rows, cols = 21, 1101
			raw, x := stored(f, r.floats(rows*cols, 3))
			clear(raw[:len(raw)/rows])
			clear(x[:cols])
			for _, order := range cudatest.Schedules {
				r.Schedule(order)
				r.quantized(f, rows, cols, raw, x, nil)
			}
			m := kernels.Dummy{Key: 77, Size: len(raw) / len(x)}
			m.Levels, _ = stored(f, r.floats(256, 0.02))
			for i := range rows {
				m.Row(uint64(3+i), raw[i*cols*m.Size:][:cols*m.Size])
			}
			ref.Dequantize(f, raw, x)
			r.quantized(f, rows, cols, nil, x, &m)
			x[5*cols+1100] = float32(math.Inf(-1))
			raw, _ = stored(f, x)
			if a := r.quantize(f, rows, cols, raw, nil); down[uint32](r, a.Bad, 1)[0] == 0 {
				t.Error("an infinity was not seen")
			}
		})
	}
}

func (r *rig) quantize(f kernels.Format, rows, cols int, raw []byte, m *kernels.Dummy) cuda.QuantizeArgs {
	p, _ := r.panelArgs(kernels.F8E4M3, rows, cols)
	a := cuda.QuantizeArgs{PanelArgs: p, Scales: alloc[float32](r, rows)}
	if m != nil {
		a.Made[0], a.Row0[0] = r.made(*m), 3
	} else {
		a.Rows = up(r, raw)
	}
	launch(r, cuda.QuantizeKernel(f), cudatest.Line(ceil(rows, cuda.PanelRows), cuda.PanelThreads), &a)
	return a
}

// quantized compares rows that a kernel rounded with x, rounded here.
func (r *rig) quantized(f kernels.Format, rows, cols int, raw []byte, x []float32, m *kernels.Dummy) {
	r.Helper()
	a := r.quantize(f, rows, cols, raw, m)
	codes, scales := make([]byte, rows*cols), down[float32](r, a.Scales, rows)
	for i := range rows {
		line, most := append([]float32(nil), x[i*cols:(i+1)*cols]...), float32(0)
		for _, v := range line {
			most = max(most, v, -v)
		}
		scale := most / 448
		if scale == 0 {
			scale = 1
		}
		for c := range line {
			line[c] /= scale
		}
		ref.Quantize(kernels.F8E4M3, line, codes[i*cols:(i+1)*cols])
		if scales[i] != scale {
			r.Fatalf("row %d: scale %v, want %v", i, scales[i], scale)
		}
	}
	r.samePanels(kernels.F8E4M3, rows, cols, codes, a.Panels)
	if down[uint32](r, a.Bad, 1)[0] != 0 {
		r.Error("a finite number is reported as not finite")
	}
}
