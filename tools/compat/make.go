// Package compat computes what a given vLLM release would log for a model, a device and a request:
// weights, KV cache, concurrency and graphs, in the wording of that release, each figure with its
// certainty. It must not import vapp's planner, so that both can be compared; it reads no files.
// Start reading at Make.
//
// Comments cite sections of memory-planning, a reference text on vLLM's memory. Its tables are
// testdata/section9.txt, and the logged runs are testdata/seeds.json.
package compat

import (
	"fmt"
	"slices"
)

// outcome has every figure before it is formatted.
type outcome struct {
	*run
	stages     []loaded
	activation activation
	nonTorch   int64
	nonTorchBy int64   // bound of its error, including the activation's
	unknown    []piece // included in nonTorchBy
	estimate   int64   // graph memory that the budget subtracts
	estimateBy int64
	available  []int64 // KV bytes by stage
	cache      *cache
	blocks     int64
	graphs     graphPlan
	pool       *statePool // nil where states share the blocks of attention
}

// Make computes the report of a release. Its error is an *Error with the refused field, or a
// *DoesNotFitError.
func Make(i Inputs) (Report, error) {
	o, err := work(i)
	if err != nil {
		return Report{}, err
	}
	return o.report(), nil
}

func work(i Inputs) (*outcome, error) {
	in, err := start(i)
	if err != nil {
		return nil, err
	}
	o := &outcome{run: in}
	for stage := range int64(in.r.PipelineParallel) {
		l, err := in.load(stage)
		if err != nil {
			return nil, err
		}
		o.stages = append(o.stages, l)
	}
	if o.cache, err = in.layout(); err != nil {
		return nil, err
	}
	o.activation = in.activation()
	o.activation.encoder = in.encoderPass(in.d.TotalBytes - o.stages[0].total)
	if o.graphs, err = in.graphs(0); err != nil {
		return nil, err
	}
	o.fund()
	if err := o.fit(); err != nil {
		return nil, err
	}
	if o.cache.states > 0 && in.rel.atLeast(V017) {
		o.graphs, err = in.graphs(o.stateBlocks())
	}
	return o, err
}

// layout returns the geometry of the KV cache.
func (in *run) layout() (*cache, error) {
	return layout(in.paging(), in.kvLayers(KeepKV))
}

// fund computes the bytes for the KV cache: memory-planning section 3.
func (o *outcome) fund() {
	r := o.r
	o.nonTorch, o.nonTorchBy = r.NonTorchBytes, 5<<20
	if o.nonTorch == 0 {
		o.nonTorch, o.nonTorchBy = o.fittedNonTorch()
	}
	o.unknown = o.run.unknown(o.activation)
	o.nonTorchBy += total(o.unknown)
	if o.estimates() && len(o.graphs.sizes) > 0 {
		o.estimate, o.estimateBy = o.graphBytes(o.graphs)
		o.estimateBy = o.estimateError(o.estimate)
		if n := r.Cudagraph.EstimateBytes; n > 0 {
			o.estimate, o.estimateBy = n, 5<<20
		}
	}
	for stage, l := range o.stages {
		n := o.budget() - l.total - o.stagePeak(stage).peak() - o.nonTorch - o.estimate
		if r.KVBytes > 0 {
			n = r.KVBytes
		}
		o.available = append(o.available, n)
	}
}

// nonTorchOne is the memory outside the allocator on one GPU: 0.15 GiB.
const nonTorchOne = 161_061_273

// oneBand returns the bound of its error, with the activation's.
func oneBand(rel Release) int64 {
	if rel.atLeast(V033) { // no log of model runner V2 on one GPU has its activation apart
		return 368 << 20
	}
	return 184 << 20
}

// fittedNonTorch returns the memory outside the allocator and the bound of its error: 0.15 GiB on one
// GPU, fitted on logs of compute capability 7.0, 8.0 and 12.0, and the rankFit's on several. The bound
// doubles for other compute capabilities, and for several ranks where all runs have one source.
func (o *outcome) fittedNonTorch() (bytes, by int64) {
	bytes, by = nonTorchOne, oneBand(o.rel)
	seen := []int{70, 80, 120}
	if o.r.ranks() > 1 {
		f := o.rankFit()
		bytes, by, seen = int64(f.middle*(1<<30)), int64(f.band(o.rel)*(1<<30)), f.capabilities
	}
	if !slices.Contains(seen, o.d.capability()) {
		by *= 2
	}
	return bytes, by
}

// least returns the stage with the fewest blocks, which limits the cache.
func (o *outcome) least() (stage int, blocks int64) {
	blocks = -1
	for i, n := range o.available {
		if b := o.cache.blocks(n, int64(i)); blocks < 0 || b < blocks {
			stage, blocks = i, b
		}
	}
	return stage, blocks
}

// fit counts blocks, resolves the automatic length, and refuses what does not fit.
func (o *outcome) fit() error {
	stage, blocks := o.least()
	o.blocks = blocks
	usable := blocks - o.rel.reserved()
	if o.auto {
		o.length = o.cache.longest(usable, o.length)
	}
	need := o.cache.need(o.length)
	if usable <= 0 || o.length == 0 || need > usable {
		longest := o.cache.longest(usable, o.length)
		if need := times(need, o.cache.slabs[stage]); o.length > 0 {
			return &DoesNotFitError{o.rel, int(o.length), need, o.available[stage], int(longest)}
		}
		return &DoesNotFitError{o.rel, 1, times(o.cache.need(1), o.cache.slabs[stage]), o.available[stage], 0}
	}
	if o.rel.Reconstructed() {
		return o.splitStates(o.available[stage])
	}
	if graphs := o.graphs.full; o.rel.atLeast(V033) && o.cache.states > 0 && len(graphs) > 0 && int64(o.r.MaxNumSeqs) > blocks {
		return fault("scheduler.maxNumSeqs", "%d sequences need a state block each to capture graphs, there are %d blocks: lower maxNumSeqs to %d", o.r.MaxNumSeqs, blocks, blocks)
	}
	return nil
}

// tokens returns the logged "GPU KV cache size", which for hybrid models is not the capacity before
// vllm-0.33.
func (o *outcome) tokens() int64 {
	if o.pool != nil {
		return o.pool.attention * o.cache.block
	}
	if o.rel.atLeast(V033) {
		return int64(o.concurrency(o.length) * float64(o.length))
	}
	return o.blocks / int64(len(o.cache.groups)) * o.cache.block
}

// concurrency returns how many requests of a length fit, as the release computes it.
func (o *outcome) concurrency(length int64) float64 {
	if o.pool != nil {
		return o.pool.concurrency
	}
	if o.rel == V07 {
		return float64(o.blocks*o.cache.block) / float64(length)
	}
	return float64(o.blocks) / float64(o.cache.need(length))
}

// stateBlocks returns the cap on the sizes of graphs.
func (o *outcome) stateBlocks() int64 {
	if o.pool != nil {
		return o.pool.attention
	}
	return o.blocks
}

// newer returns figures for the same blocks under the engine of July and August 2026: section 7.
func (o *outcome) newer() (need int64, x float64, tokens int64) {
	c := *o.cache
	c.newer = true
	need = c.need(o.length)
	x = float64(o.blocks) / float64(need)
	return need, x, int64(x * float64(o.length))
}

func (p padding) String() string {
	return fmt.Sprintf("Add %d padding layers, may waste at most %.2f%% KV cache memory", p.layers, float64(p.layers)/float64(p.of)*100)
}
