package cuda

import (
	"fmt"

	"vapp.dev/engine/backend"
)

// Memory that the driver takes besides the arenas. These values were not measured but taken
// from reports for recent drivers, rounded up.
const (
	contextBytes = 560 << 20 // a context: page tables, and printf buffer and stack of every SM
	moduleBytes  = 48 << 20  // loaded kernels
	libraryBytes = 64 << 20  // device memory of cuBLASLt: its loaded kernels
)

// Host memory that weights pass through while they are packed: pieces of pinned memory, each
// with a flag that a kernel writes.
const (
	pieces       = 8
	pieceBytes   = 4 << 20
	flagBytes    = 64
	stagingBytes = pieces * (pieceBytes + flagBytes)
)

// Memory of captured graphs, fitted to six logs of vLLM (0.28 MiB for each piece and size; a
// mixture of experts has more launches in a piece). The largest residual was 0.04 GiB.
const (
	graphPiece    = 0.28 * (1 << 20) // bytes
	expertFactor  = 1.2
	graphResidual = "±0.04 GiB on the logs it was fitted on"
)

// Overheads lists the context, the modules and, if steps are captured, the graphs.
func (l layout) Overheads(r backend.Reservation) []backend.Overhead {
	out := []backend.Overhead{
		{Name: "context", Bytes: contextBytes, Rule: "the driver's context: assumed bound, not measured"},
		{Name: "modules", Bytes: moduleBytes, Rule: "loaded kernels: assumed bound, not measured"},
	}
	if l.blas {
		out = append(out, backend.Overhead{Name: "cublaslt", Bytes: libraryBytes, Rule: "the library's handle and kernels: assumed bound, not measured"})
	}
	if len(r.Programs) > 0 && len(l.graphs.Captures(r.Programs[0].Bucket)) > 0 {
		out = append(out, l.graphOverhead(r.Programs[0], r.Step.NumSets()))
	}
	if n := r.Arenas[backend.Item]; n > 0 {
		out = append(out, backend.Overhead{Name: "item copy", Bytes: n, Host: true, Rule: fmt.Sprintf("the encoder's input of %d patches as the host writes it, pinned", r.Encoder.Patches)})
	}
	return append(out,
		backend.Overhead{Name: "step copies", Bytes: r.Arenas[backend.StepIO], Host: true, Rule: fmt.Sprintf("%d sets of step buffers as the host writes them, pinned", r.Step.NumSets())},
		backend.Overhead{Name: "staging", Bytes: stagingBytes, Host: true, Rule: fmt.Sprintf("%d pieces of %d MiB that weights go through, pinned until the first step", pieces, pieceBytes>>20)})
}

// graphOverhead estimates the memory of captures. Each step is captured for all sets of step
// buffers. A whole-step graph counts as the pieces that it would be split into.
func (l layout) graphOverhead(p *backend.Program, sets int) backend.Overhead {
	segments, f := 1, 1.0
	for _, op := range p.Ops {
		switch op.(type) {
		case backend.Attention, backend.DeltaNet, backend.Mamba2:
			segments++
		case backend.Experts:
			f = expertFactor
		}
	}
	steps := len(l.graphs.Captures(p.Bucket))
	return backend.Overhead{
		Name: "graphs", Bytes: up(int64(graphPiece*f*float64(sets*steps*segments)), granule), Fitted: true,
		Rule: fmt.Sprintf("%d steps × %d sets of buffers × %d pieces × 0.28 MiB × %g, %s", steps, sets, segments, f, graphResidual),
	}
}
