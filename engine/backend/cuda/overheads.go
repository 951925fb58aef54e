package cuda

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/cuda"
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

// Overheads lists the context, the modules, the stacks of kernels that have one and, if steps are captured, the graphs.
func (l layout) Overheads(r backend.Reservation) []backend.Overhead {
	out := []backend.Overhead{
		{Name: "context", Bytes: contextBytes, Rule: "the driver's context: assumed bound, not measured"},
		{Name: "modules", Bytes: moduleBytes, Rule: "loaded kernels: assumed bound, not measured"},
	}
	if o := l.stackOverhead(); o.Bytes > 0 {
		out = append(out, o)
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

// contextStack is the local memory in bytes that a context has for each thread from the start (CU_LIMIT_STACK_SIZE); it is
// part of contextBytes.
const contextStack = 1024

// stackOf returns the largest stack of an architecture's kernels, and the kernel. Tests change it.
var stackOf = cuda.StackBytes

// stackOverhead is the local memory of kernels whose stacks exceed the context's: the driver has it for every thread that
// the SMs can run at once, whichever kernel runs. It is taken when the device opens (device.open), before the arenas.
func (l layout) stackOverhead() backend.Overhead {
	if l.other != "" || l.cc < 80 { // planned only
		return backend.Overhead{}
	}
	bytes, kernel := stackOf(l.arch())
	threads := 1536 // of an SM at once
	if l.cc == 80 || l.cc >= 90 && l.cc < 110 {
		threads = 2048
	}
	return backend.Overhead{
		Name: "stacks", Bytes: up(max(0, int64(bytes)-contextStack)*int64(threads)*int64(l.sms), granule),
		Rule: fmt.Sprintf("%d bytes of stack (%s), of which the context has %d, × %d threads × %d SMs", bytes, kernel, contextStack, threads, l.sms),
	}
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
