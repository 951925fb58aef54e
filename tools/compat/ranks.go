package compat

import (
	"fmt"
	"strings"
)

// Bounds of what a rank takes for its group. One log has two ranks (tensor 2, compute
// capability 12.0), none has more or a pipeline.
const (
	// NCCL: NCCL_BUFFSIZE is 4 MiB by default, for each of at most 32 channels, to send and
	// to receive, for the ring and for the tree.
	ncclBuffers = 32 * 2 * 2 * 4 << 20
	// The release's own all-reduce: two buffers of at most 64 MiB (two ranks of compute
	// capability 9.0; all others have less).
	customAllReduce = 2 * 64 << 20
	// torch's symmetric memory: at most 128 MiB (6 and 8 ranks of compute capability 10.0).
	symmetricMemory = 128 << 20
)

func (r Request) ranks() int { return r.TensorParallel * r.PipelineParallel }

// unknown lists what no log shows of a rank of several: bytes outside the allocator, and
// bytes by which its activation peak may be off.
func (in *run) unknown(a activation) (outside, inside []piece) {
	hidden := int64(in.r.MaxNumBatchedTokens) * in.shape.hidden * in.dtype
	if in.r.TensorParallel > 1 {
		outside = append(outside, piece{"NCCL of tensor", ncclBuffers}, piece{"custom all-reduce", customAllReduce}, piece{"symmetric memory", symmetricMemory})
		inside = append(inside, piece{"all-reduce result", hidden})
	}
	if in.r.PipelineParallel > 1 {
		outside = append(outside, piece{"NCCL of pipeline", ncclBuffers})
		inside = append(inside, piece{"hidden and residual between stages", 2 * hidden}, piece{"sampler of the last stage alone", total(a.sampler)})
	}
	return outside, inside
}

// unknownActivation is the part of unknown that is in the activation peak.
func (o *outcome) unknownActivation() []piece {
	_, inside := o.run.unknown(o.activation)
	return inside
}

// unknownNote says what widens the bounds of a rank's memory.
func unknownNote(list []piece) string {
	var of []string
	for _, p := range list {
		of = append(of, fmt.Sprintf("%s %.0f", p.Name, float64(p.Bytes)/(1<<20)))
	}
	return "not known of several ranks, MiB: " + strings.Join(of, " + ")
}
