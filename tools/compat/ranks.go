package compat

import (
	"fmt"
	"strings"
)

// Bounds of the memory that a rank allocates for communication. Only one log has two ranks (tensor
// 2, compute capability 12.0); none has more, or a pipeline.
const (
	// NCCL: NCCL_BUFFSIZE is 4 MiB by default, for each of at most 32 channels, send and receive,
	// ring and tree.
	ncclBuffers = 32 * 2 * 2 * 4 << 20
	// The release's own all-reduce: two buffers of at most 64 MiB (two ranks of compute capability
	// 9.0; other devices have less).
	customAllReduce = 2 * 64 << 20
	// torch's symmetric memory: at most 128 MiB (6 and 8 ranks of compute capability 10.0).
	symmetricMemory = 128 << 20
)

func (r Request) ranks() int { return r.TensorParallel * r.PipelineParallel }

// unknown lists the memory of several ranks that no log shows: bytes outside the allocator, and
// bytes by which the activation peak may be too low.
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

// unknownActivation returns the part of unknown in the activation peak.
func (o *outcome) unknownActivation() []piece {
	_, inside := o.run.unknown(o.activation)
	return inside
}

// unknownNote lists what widens the bounds of a rank's memory.
func unknownNote(list []piece) string {
	var of []string
	for _, p := range list {
		of = append(of, fmt.Sprintf("%s %.0f", p.Name, float64(p.Bytes)/(1<<20)))
	}
	return "not known of several ranks, MiB: " + strings.Join(of, " + ")
}
