package cuda_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

// TestLinearGated compares products that gate and pack with a launch each: to the bit. Rows of halves are taken in the order
// of GateUpRow; sums that are not gated have the bits of those in their own order.
func TestLinearGated(t *testing.T) {
	silu, clamped := cuda.GLUArgs{Alpha: 1}, cuda.GLUArgs{Limit: 1.5, Alpha: 1.702, Shift: 1, Paired: 1}
	gelu := cuda.GLUArgs{Act: 1, Alpha: 1}
	bf16, f16, narrow := cuda.RoundsTo(kernels.BF16), cuda.RoundsTo(kernels.F16), cuda.Rounding{Format: kernels.F8E4M3, Group: 128}
	for _, c := range []struct {
		w    kernels.Format
		x    cuda.Rounding
		l    func(rows int) cuda.Linear
		rows []int
		glu  cuda.GLUArgs
		to   cuda.Rounding
		word int32
	}{
		{kernels.BF16, bf16, own(kernels.BF16), []int{1, 11, 20, 137}, silu, bf16, 0},
		{kernels.BF16, bf16, func(int) cuda.Linear { return own(kernels.BF16)(16) }, []int{3}, silu, bf16, 0}, // a tile without rows
		{kernels.BF16, bf16, own(kernels.BF16), []int{20}, silu, bf16, 2},
		{kernels.F16, f16, own(kernels.F16), []int{3, 130}, gelu, f16, 1},
		{kernels.MXFP4, bf16, own(kernels.MXFP4), []int{5, 16, 33}, clamped, bf16, 0},
		{kernels.F8E4M3, bf16, own(kernels.F8E4M3), []int{2, 70}, silu, bf16, 0},
		{kernels.F8E4M3, cuda.Rounding{Format: kernels.F8E4M3, Group: 128}, rounds(kernels.F8E4M3), []int{4, 66}, silu, bf16, 0},
		{kernels.NVFP4, bf16, own(kernels.NVFP4), []int{9, 65}, gelu, bf16, 0},
		{kernels.BF16, bf16, warpgroups(kernels.BF16, bf16), []int{130}, silu, bf16, 1},
		{kernels.MXFP4, bf16, warpgroups(kernels.MXFP4, bf16), []int{9}, clamped, bf16, 1},
		{kernels.Q8_0, bf16, warpgroups(kernels.Q8_0, bf16), []int{137}, silu, bf16, 1},
		{kernels.F8E4M3, bf16, warpgroups(kernels.F8E4M3, bf16), []int{20}, clamped, f16, 1},
		{kernels.F8E4M3, narrow, warpgroupsFor(kernels.F8E4M3, narrow), []int{13, 20, 50}, silu, narrow, 1},
		{kernels.F8E4M3, narrow, warpgroupsFor(kernels.F8E4M3, narrow), []int{11}, clamped, narrow, 0},
		{kernels.F8E4M3, narrow, warpgroupsFor(kernels.F8E4M3, narrow), []int{73}, gelu, narrow, 1},
		{kernels.F8E4M3, narrow, warpgroupsFor(kernels.F8E4M3, narrow), []int{9}, silu, bf16, 1},
		{kernels.BF16, bf16, byRow(kernels.BF16), []int{2, 11}, silu, bf16, 2},
		{kernels.F8E4M3, cuda.Rounding{Format: kernels.F8E4M3, Group: 128}, byRow(kernels.F8E4M3), []int{8, 13}, gelu, bf16, 2},
	} {
		for _, rows := range c.rows {
			l := c.l(rows)
			t.Run(fmt.Sprint(l.Kernel, rows), func(t *testing.T) {
				testGated(newRig(t), c.w, c.x, l, rows, c.glu, c.to, c.word)
			})
		}
	}
}

func own(f kernels.Format) func(rows int) cuda.Linear {
	return func(rows int) cuda.Linear { l, _ := cuda.ChooseLinear(f, rows); return l }
}

func rounds(f kernels.Format) func(rows int) cuda.Linear {
	return func(rows int) cuda.Linear { l, _ := cuda.ChooseRounded(f, rows); return l }
}

func warpgroups(f kernels.Format, x cuda.Rounding) func(rows int) cuda.Linear {
	return func(int) cuda.Linear { return wide(f, x) }
}

func warpgroupsFor(f kernels.Format, x cuda.Rounding) func(rows int) cuda.Linear {
	return func(rows int) cuda.Linear { return wideFor(f, x, rows) }
}

func byRow(f kernels.Format) func(rows int) cuda.Linear {
	return func(rows int) cuda.Linear { return cuda.ChoosePlain(f, rows) }
}

func testGated(r *rig, w kernels.Format, x cuda.Rounding, l cuda.Linear, rows int, glu cuda.GLUArgs, to cuda.Rounding, word int32) {
	in, out := 2*max(unit(w), 128), 192
	if to.Narrow() {
		out = 512
	}
	gatedCounters, narrow := l.GatesNarrow(to, out, rows)
	if narrow != to.Narrow() {
		r.Fatalf("%s gates in 8 bits: %v", l.Kernel, narrow)
	}
	scales := (*ref.Scales)(nil)
	if w == kernels.F8E4M3 {
		scales = &ref.Scales{Values: r.floats(ceil(out, 64)*ceil(in, 128), 1), Rows: 64, Cols: 128, Across: ceil(in, 128)}
	}
	if w == kernels.NVFP4 {
		scales = &ref.Scales{Values: r.floats(out, 1), Rows: 1, Cols: in, Across: 1}
	}
	src, half := r.blocks(w, out, in), 0
	m := matrix{f: w, out: out, in: in, packed: up(r, src)}
	if scales != nil {
		m.scales = up(r, scales.Values)
	}
	if glu.Paired == 0 {
		half = out / 2
	}
	if !l.Plain {
		m.packed = up(r, panelsOf(r, w, out, in, src, half > 0))
	}
	p := r.packArgs(x, r.floats(rows*in, 1), rows, in)
	p.Words = word
	if !l.Plain && !l.Words {
		p.Words = 0
	}
	launch(r, x.Kernel(cuda.FromRows), grid(x, cuda.FromRows, rows, in), &p)
	bias := up(r, r.floats(out, 1))
	for _, splits := range []int{1, 3} {
		a := m.args(scales)
		a.X, a.Sums, a.XSteps, a.Bias, a.Rows, a.Splits, a.Half = p.Y, p.Sums, int32(x.ScaleSteps(in)), bias, int32(rows), int32(splits), int32(half)
		partial, counters := l.PartialBytes(out, rows, splits)
		a.Partial, a.Arrived = alloc[byte](r, int(partial)), up(r, make([]uint32, counters))
		g := cudatest.Grid{Blocks: l.Blocks(out, rows, splits), Threads: [3]int{l.Threads, 1, 1}, Shared: l.Shared}
		a.Y = alloc[float32](r, rows*out)
		launch(r, l.Kernel, g, &a)
		if l.Plain {
			r.prefetched(l.Kernel, g.Blocks, a, int64(len(src)), 1)
		} else {
			r.prefetched(l.Kernel, g.Blocks, a, cuda.PackedBytes(w, out, in), 16)
		}
		y := a.Y
		if half > 0 { // the same sums as in the order of rows
			b := a
			if b.Half, b.Y = 0, alloc[float32](r, rows*out); !l.Plain {
				b.W = up(r, panelsOf(r, w, out, in, src, false))
			}
			launch(r, l.Kernel, g, &b)
			if got, want := down[float32](r, y, rows*out), down[float32](r, b.Y, rows*out); !slices.Equal(got, want) {
				r.Fatalf("%s: rows in the order of halves have other sums", l.Kernel)
			}
			r.yBF16(l.Kernel, &a, down[float32](r, y, rows*out), nil, func() { launch(r, l.Kernel, g, &a) })
		}
		pack := cuda.GLUPackArgs{Pack: cuda.PackArgs{X: y, Rows: int32(rows), In: int32(out / 2), Words: word}, Act: glu.Act, Paired: glu.Paired, Limit: glu.Limit, Alpha: glu.Alpha, Shift: glu.Shift}
		pack.Pack.Group = int32(to.GroupSteps())
		size, sums := to.Bytes(rows, out/2)
		pack.Pack.Y, pack.Pack.Sums = alloc[byte](r, int(size)), alloc[byte](r, int(sums))
		launch(r, to.Kernel(cuda.FromGLU), grid(to, cuda.FromGLU, rows, out/2), &pack)
		want, wantScales := down[byte](r, pack.Pack.Y, int(size)), down[byte](r, pack.Pack.Sums, int(sums))
		a.Y, a.Act, a.Paired, a.Limit, a.Alpha, a.Shift, a.Words = 0, glu.Act, glu.Paired, glu.Limit, glu.Alpha, glu.Shift, word
		if to.Format == kernels.F16 {
			a.F16 = 1
		}
		for _, order := range cudatest.Schedules {
			r.Schedule(order)
			a.Gated = alloc[byte](r, int(size))
			if narrow {
				a.GatedScales, a.GatedArrived, a.Y = alloc[byte](r, int(sums)), up(r, make([]uint32, gatedCounters)), alloc[float32](r, rows*out/2)
			}
			launch(r, l.Kernel, g, &a)
			if narrow && (!bytes.Equal(down[byte](r, a.GatedScales, int(sums)), wantScales) || slices.Max(down[uint32](r, a.GatedArrived, gatedCounters)) > 0) {
				r.Fatalf("%s, %d splits, order %d: other scales, or counters that are not zero", l.Kernel, splits, order)
			}
			got := down[byte](r, a.Gated, int(size))
			if word == 2 { // rows that pad a tile are of no use
				got, want = got[:rows*out/2*2], want[:rows*out/2*2]
			}
			for i := range got {
				if got[i] != want[i] {
					r.Fatalf("%s, %d splits, order %d: byte %d of %d is %#x, want %#x", l.Kernel, splits, order, i, len(got), got[i], want[i])
				}
			}
		}
		r.Schedule(0)
	}
}

// panelsOf packs src, with halves in the order of GateUpRow.
func panelsOf(r *rig, f kernels.Format, out, in int, src []byte, halves bool) []byte {
	r.Helper()
	rows, size := make([]byte, len(src)), int(f.Bytes(int64(in)))
	for i := range out {
		from := i
		if halves {
			from = cuda.GateUpRow(out, i)
		}
		copy(rows[i*size:(i+1)*size], src[from*size:])
	}
	dst := make([]byte, cuda.PackedBytes(f, out, in))
	if err := cuda.Pack(f, out, in, rows, dst); err != nil {
		r.Fatal(err)
	}
	return dst
}
