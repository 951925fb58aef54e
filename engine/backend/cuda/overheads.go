package cuda

import (
	"fmt"

	"vapp.dev/engine/backend"
)

// What the driver takes beside the arenas. No device was at hand to measure
// these: they are what is reported for recent drivers, rounded up.
const (
	contextBytes = 560 << 20 // a context: page tables, printf and stack of every SM
	moduleBytes  = 48 << 20  // kernels as loaded, and cuBLASLt's
)

// What captured graphs take, fitted on six logs of another engine (0.28 MiB a
// piece and size; a mixture of experts has more launches a piece). The largest
// residual was 0.04 GiB.
const (
	graphPiece    = 0.28 * (1 << 20) // bytes
	expertFactor  = 1.2
	graphResidual = "±0.04 GiB on the logs it was fitted on"
)

// Overheads lists the context, the modules and, where steps are captured, the
// graphs.
func (l layout) Overheads(r backend.Reservation) []backend.Overhead {
	out := []backend.Overhead{
		{Name: "context", Bytes: contextBytes, Rule: "the driver's context: assumed bound, not measured"},
		{Name: "modules", Bytes: moduleBytes, Rule: "loaded kernels: assumed bound, not measured"},
	}
	if n := len(l.graphs.Sizes); n > 0 && l.graphs.Mode != "none" && l.graphs.Mode != "" && len(r.Programs) > 0 {
		out = append(out, l.graphOverhead(n, r.Programs[0]))
	}
	return out
}

func (l layout) graphOverhead(sizes int, p *backend.Program) backend.Overhead {
	pieces, f := 1, 1.0
	for _, op := range p.Ops {
		switch op.(type) {
		case backend.Attention, backend.DeltaNet:
			pieces++
		case backend.Experts:
			f = expertFactor
		}
	}
	return backend.Overhead{
		Name: "graphs", Bytes: up(int64(graphPiece*f*float64(sizes*pieces)), granule), Fitted: true,
		Rule: fmt.Sprintf("%d sizes × %d pieces × 0.28 MiB × %g, %s", sizes, pieces, f, graphResidual),
	}
}
