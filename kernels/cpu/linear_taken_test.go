//go:build cgo

package cpu

import (
	"fmt"
	"sync"
	"testing"

	"vapp.dev/kernels"
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
