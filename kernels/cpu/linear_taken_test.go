//go:build cgo

package cpu

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cpu/native"
)

// TestLinearTaken runs parts that take panels from one counter. The bits are those of one part
// alone, however the panels are distributed, and every panel is taken once.
func TestLinearTaken(t *testing.T) {
	const parts = 3
	for _, m := range []Matrix{{Variant: "generic", Format: kernels.BF16}, {Variant: "avx2", Format: kernels.F32}, {Variant: "avx512", Format: kernels.Q8_0},
		{Variant: "avx512bf16", Format: kernels.BF16}, {Variant: "avx512bf16", Format: kernels.Q4_0}, {Variant: softAMX, Format: kernels.Q4_0},
		{Variant: softAMX + outsideSuffix, Format: kernels.Q4_0}, {Variant: W8A8("avx2"), Format: kernels.I8, Scales: ChannelScales}} {
		k, ok := m.Kernel()
		switch m.Variant {
		case softAMX:
			k, ok = softTiles(m.Format)
		case softAMX + outsideSuffix:
			k, ok = softOutside(m.Format)
		}
		if !ok || !present(m.Variant) {
			continue
		}
		for _, rows := range []int{1, 2, 17} {
			s := shape{rows, 64, 1500, 0, true}
			p := newProblem(t, k, s, parts)
			p.compute(k, 1)
			alone := append([]float32(nil), p.Y...)
			for i := range p.Y {
				p.Y[i] = 0
			}
			k.Prepare(&p.LinearArgs, 0, 1)
			var taken int64
			var wg sync.WaitGroup
			_, work := LinearWorkspace(k.variant, k.format, rows, s.in, s.out, parts)
			for part := range parts {
				one := p.LinearArgs
				one.Taken, one.Work = &taken, guarded(t, int(work))
				wg.Go(func() { k.Run(&one, part, parts) })
			}
			wg.Wait()
			sameBits(t, p, alone, fmt.Sprintf("%s %v: %d rows", m.Variant, m, rows))
			if units := int64(s.out+panelRows-1) / panelRows; taken < units {
				t.Errorf("%s %v: %d panels of %d were taken", m.Variant, m, taken, units)
			}
		}
	}
}

// TestLinearTakenNodes runs parts of two nodes with three threads and one. Bits are those of one
// part alone, and each panel is taken once from the counter of the node that has it.
func TestLinearTakenNodes(t *testing.T) {
	const parts, stride = 4, native.TakenStride
	threads := []int32{0, 3, 4}
	for _, m := range []Matrix{{Variant: "generic", Format: kernels.Q4_0}, {Variant: "avx512", Format: kernels.F32}, {Variant: "avx512bf16", Format: kernels.BF16}} {
		k, ok := m.Kernel()
		if !ok || !present(m.Variant) {
			continue
		}
		for _, rows := range []int{1, 17} {
			s := shape{rows, 64, 1500, 0, true}
			p := newProblem(t, k, s, parts)
			p.compute(k, 1)
			alone := append([]float32(nil), p.Y...)
			clear(p.Y)
			k.Prepare(&p.LinearArgs, 0, 1)
			taken := make([]int64, 2*stride)
			var wg sync.WaitGroup
			_, work := LinearWorkspace(k.variant, k.format, rows, s.in, s.out, parts)
			for part := range parts {
				one := p.LinearArgs
				one.Taken, one.NodeThreads, one.Node, one.Work = &taken[0], threads, part/3, guarded(t, int(work))
				wg.Go(func() { k.Run(&one, part, parts) })
			}
			wg.Wait()
			sameBits(t, p, alone, fmt.Sprintf("%s %v: %d rows", m.Variant, m, rows))
			panels := int64(s.out+panelRows-1) / panelRows
			if near := panels * 3 / 4; taken[0]%near != 0 || taken[stride]%(panels-near) != 0 || taken[0] == 0 || taken[stride] == 0 {
				t.Errorf("%s %v: of %d panels %d and %d were taken", m.Variant, m, panels, taken[0], taken[stride])
			}
		}
	}
}

// TestLinearUnits follows a part that runs alone: it takes the units of its own node first, then
// those that the next nodes left, each once, whatever the threads of the nodes and the rows.
func TestLinearUnits(t *testing.T) {
	for _, threads := range [][]int32{{0, 1, 2}, {0, 3, 4}, {0, 2, 4, 6}, {0, 1, 1, 2}, {0, 5}} {
		for _, out := range []int{1, 32, 100, 3200} {
			for _, rows := range []int{1, 40} {
				for node := range len(threads) - 1 {
					a := LinearArgs{Rows: rows, In: 64, Out: out, Taken: &make([]int64, native.TakenStride*len(threads))[0], Node: node, NodeThreads: threads}
					parts := int(threads[len(threads)-1])
					panels := (out + panelRows - 1) / panelRows
					got := native.Units(&a, 12, 0, parts, 1<<16)
					chunks := len(got) / panels
					var want []int64
					for i := range len(threads) - 1 {
						k := (node + i) % (len(threads) - 1)
						first, last := panels*int(threads[k])/parts, panels*int(threads[k+1])/parts
						for u := first * chunks; u < last*chunks; u++ {
							want = append(want, int64(u))
						}
					}
					if chunks < 1 || !slices.Equal(got, want) {
						t.Fatalf("%d rows, %d outputs, threads %v, node %d takes %v, want %v", rows, out, threads, node, got, want)
					}
				}
			}
		}
	}
}
