package compat

import (
	"cmp"
	"slices"
)

// kvLayer describes the KV or state of one layer on one GPU.
type kvLayer struct {
	kind       layerKind
	token      int64 // bytes per token; 0 for a state
	window     int64
	conv, ssm  int64 // bytes of the convolution state and of the recurrent state
	stage      int64 // pipeline stage
	speculated int64 // draft tokens: each has its own ssm copy in the ideal allocator
}

func (l kvLayer) state() int64 { return l.conv + l.ssm }

// kvLayers lists the layers with KV pages, in order, those of the drafter last. Bytes of a token
// are heads per GPU x (key + value size) x element bytes; states are in memory-planning section 6.
// rebuild applies to full layers and only to the ideal allocator.
func (in *run) kvLayers(rebuild Rebuild) []kvLayer {
	var out []kvLayer
	s, stage := in.shape, int64(0)
	_, last := in.stageLayers(0)
	for i := range s.layers - s.sharedKV {
		for i >= last {
			stage++
			_, last = in.stageLayers(stage)
		}
		out = append(out, in.kvLayer(s.kinds[i], stage, rebuild))
	}
	if in.drafts() {
		for range s.mtpLayers {
			out = append(out, in.kvLayer(full, stage, rebuild))
		}
	}
	return out
}

func (in *run) kvLayer(k layerKind, stage int64, rebuild Rebuild) kvLayer {
	s, tp := in.shape, int64(in.r.TensorParallel)
	l := kvLayer{kind: k, stage: stage}
	switch k {
	case linear:
		kd, vd := s.keyHeads*s.keyDim, s.valueHeads*s.valueDim
		l.speculated = int64(in.r.Speculative.Tokens)
		l.conv = (s.convKernel - 1 + l.speculated) * ((2*kd + vd) / tp) * in.dtype
		l.ssm = s.valueHeads / tp * s.valueDim * s.keyDim * s.stateBytes
	case sliding, chunked:
		l.window = s.window
		l.token = max(1, s.kvHeads/tp) * 2 * s.headDim * in.elem
	default:
		if m := s.latent; m != nil {
			l.token = (m.kvRank + m.rope) * in.elem
			return l
		}
		heads, dim := s.kvHeads, s.headDim
		if s.family == gemma4 {
			heads, dim = s.globalKV, s.globalHeadDim
		}
		l.token = max(1, heads/tp) * s.storedElements(rebuild, dim) * in.elem
	}
	return l
}

// kvGroup is a group of layers of one kind that share block ids.
type kvGroup struct {
	kind   layerKind
	block  int64 // tokens per block
	window int64
	layers []int // indices into the layers
	page   int64 // bytes per page of a layer
}

// cache is the geometry of the KV cache. Its block is the smallest one, in tokens.
type cache struct {
	paging
	groups  []kvGroup
	page    int64   // bytes per page, where all layers have one size
	size    int64   // layers of the largest group on any one stage
	slabs   []int64 // bytes per block id, by pipeline stage: page x size, or the sum of the pages
	bumped  int64   // block size raised for a state, 0 where it was not
	padded  float64
	padding []padding
	attn    int64 // attention layers, including the drafter's
	states  int64 // state layers
	state   int64 // bytes of a state before padding
	newer   bool  // use the formulas of mid 2026 for windows and states
}

// padding is the number of layers that groups lack, and the number of slots.
type padding struct{ layers, of int64 }

// need returns the blocks of one request of n tokens, summed over groups.
func (c *cache) need(n int64) int64 {
	var sum int64
	for _, g := range c.groups {
		sum += g.need(n, c)
	}
	return sum
}

func (g kvGroup) need(n int64, c *cache) int64 {
	switch g.kind {
	case sliding:
		return ceilDiv(min(g.window-1+c.inFlight(), n), g.block) + 1
	case chunked:
		return ceilDiv(min(g.window+c.inFlight(), n), g.block)
	case linear:
		if c.mode == "all" {
			blocks := ceilDiv(n, g.block)
			if c.newer {
				blocks += c.spec
			}
			return blocks
		}
		if c.mode == "align" {
			return 2 + c.spec + c.checkpoints
		}
		return 1 + c.spec
	}
	return ceilDiv(n, g.block)
}

// inFlight returns the tokens in flight: under the newer formulas those of two batches.
func (c *cache) inFlight() int64 {
	if c.newer {
		return 2 * c.flight
	}
	return c.flight
}

// steady returns need after the prefill, when a sliding window holds only its own tokens.
func (c *cache) steady(n int64) int64 {
	var sum int64
	for _, g := range c.groups {
		if g.kind == chunked {
			sum += min(ceilDiv(n, g.block), ceilDiv(g.window, g.block))
			continue
		}
		if g.kind == sliding {
			sum += min(ceilDiv(n, g.block), ceilDiv(g.window, g.block)+1)
			continue
		}
		sum += g.need(n, c)
	}
	return sum
}

// blocks returns the number of block ids in the bytes of one GPU of a stage: available // page //
// size, which equals available // (page x size).
func (c *cache) blocks(available, stage int64) int64 {
	if available <= 0 || c.slabs[stage] == 0 {
		return 0
	}
	return available / c.slabs[stage]
}

// slab returns the bytes of a block id on the GPU where it is largest.
func (c *cache) slab() int64 { return slices.Max(c.slabs) }

// longest returns the largest length for which one request fits, 0 where none does.
func (c *cache) longest(blocks, most int64) int64 {
	lo, hi := int64(0), most
	for lo < hi {
		mid := lo + (hi-lo+1)/2
		if c.need(mid) <= blocks {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

func (l kvLayer) same(o kvLayer) int {
	return cmp.Or(cmp.Compare(l.kind, o.kind), cmp.Compare(l.token, o.token), cmp.Compare(l.window, o.window))
}
