package compat

import (
	"slices"
)

// graphPlan lists the CUDA graphs that a release captures.
type graphPlan struct {
	sizes     []int // cudagraph_capture_sizes
	piecewise []int
	full      []int
	profiled  int64 // largest size of the profiling capture, before the state blocks cap it
}

func most(sizes []int) int64 {
	if len(sizes) == 0 {
		return 0
	}
	return int64(slices.Max(sizes))
}

// captureSizes computes the sizes by memory-planning section 5.1.
func (in *run) captureSizes() ([]int, error) {
	r, rel := in.r, in.rel
	seqs, tokens := r.MaxNumSeqs, r.MaxNumBatchedTokens
	if len(r.Cudagraph.Sizes) > 0 {
		return in.givenSizes()
	}
	if rel == V07 {
		out := []int{1, 2, 4}
		for n := 8; out[len(out)-1] < seqs; n += 8 {
			out = append(out, n)
		}
		for len(out) > 1 && out[len(out)-2] >= seqs {
			out = out[:len(out)-1]
		}
		return out, nil
	}
	q, largest := 1+r.Speculative.Tokens, 512
	if in.shape.family == gptOSS {
		largest = 1024
	}
	if rel.atLeast(V033) && in.d.Major == 10 {
		largest = 1024
	}
	top := min(seqs*q*2, largest, tokens)
	if in.shape.family == gptOSS {
		top = min(largest, tokens)
	}
	if rel == V2025Aug {
		top = min(seqs*2, 512, tokens)
	}
	out := steps(top)
	if rel == V2025Aug {
		out = eights(top)
	}
	if rel.atLeast(V033) {
		out = in.decodeSizes(out, top, largest)
	}
	return out, nil
}

// decodeSizes adds what vllm-0.33 captures besides the steps: the largest batch, and the batches of
// decoding sequences with their drafts. top is the largest of the steps.
func (in *run) decodeSizes(sizes []int, top, largest int) []int {
	seqs, tokens, q := in.r.MaxNumSeqs, in.r.MaxNumBatchedTokens, 1+in.r.Speculative.Tokens
	add := func(n int) {
		if n <= min(tokens, largest) {
			sizes = append(sizes, n)
		}
	}
	if tokens <= top {
		add(tokens)
	}
	limit := min(seqs*q*2, largest)
	switch {
	case in.shape.family == gptOSS: // its largest size is given
	case q > 1:
		most := min(seqs, largest)
		for _, n := range append(steps(most), most) {
			if n*q <= limit {
				add(n * q)
			}
		}
	case seqs <= limit:
		add(seqs)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// steps returns 1, 2, 4, the multiples of 8 below 256 and those of 16 from there, up to top.
func steps(top int) []int {
	out := eights(min(top, 255))
	for n := 256; n <= top; n += 16 {
		out = append(out, n)
	}
	return out
}

// eights returns 1, 2, 4 and the multiples of 8, up to top.
func eights(top int) []int {
	var out []int
	for _, n := range []int{1, 2, 4} {
		if n <= top {
			out = append(out, n)
		}
	}
	for n := 8; n <= top; n += 8 {
		out = append(out, n)
	}
	return out
}

// wholeDrafts rounds sizes up to sequences with q tokens each; sizes above the largest are left out.
func wholeDrafts(sizes []int, q int) []int {
	var out []int
	for _, n := range sizes {
		if up := (n + q - 1) / q * q; int64(up) <= most(sizes) {
			out = append(out, up)
		}
	}
	return slices.Compact(out)
}

func (in *run) givenSizes() ([]int, error) {
	if len(in.r.Cudagraph.Sizes) > 4096 {
		return nil, fault("cudagraph.captureSizes", "has %d entries, allowed are 4096", len(in.r.Cudagraph.Sizes))
	}
	out := slices.Clone(in.r.Cudagraph.Sizes)
	slices.Sort(out)
	out = slices.Compact(out)
	limit, name := in.r.MaxNumBatchedTokens, "maxNumBatchedTokens"
	if in.rel == V07 {
		limit, name = in.r.MaxNumSeqs, "maxNumSeqs"
	}
	for _, n := range []int{out[0], out[len(out)-1]} {
		if n < 1 || n > limit {
			return nil, fault("cudagraph.captureSizes", "%d is not in 1 to scheduler.%s %d: such a batch never runs", n, name, limit)
		}
	}
	return out, nil
}

// modes maps cudagraph_mode to the kinds of graphs captured.
var modes = map[string]struct{ piecewise, full, decodeOnly bool }{
	"none": {}, "piecewise": {piecewise: true}, "full": {full: true},
	"full_decode_only": {full: true, decodeOnly: true}, "full_and_piecewise": {true, true, true},
}

// graphs returns the graphs to capture. stateBlocks caps the sizes for models with states; 0: no
// cap.
func (in *run) graphs(stateBlocks int64) (graphPlan, error) {
	if in.r.Cudagraph.EnforceEager || in.mode == "none" {
		return graphPlan{}, nil
	}
	sizes, err := in.captureSizes()
	if err != nil {
		return graphPlan{}, err
	}
	p := graphPlan{sizes: sizes, profiled: most(sizes)}
	q := 1 + in.r.Speculative.Tokens
	use := sizes
	if in.rel.atLeast(V017) {
		use = wholeDrafts(sizes, q)
	}
	if stateBlocks > 0 && !in.rel.atLeast(V033) {
		use = slices.DeleteFunc(slices.Clone(use), func(n int) bool { return int64(n) > stateBlocks })
	}
	m := modes[in.mode]
	switch {
	case m.piecewise && in.rel.atLeast(V033):
		p.piecewise = sizes
	case m.piecewise:
		p.piecewise = use
	}
	for _, n := range use {
		if m.full && (!m.decodeOnly || n <= in.r.MaxNumSeqs*q) {
			p.full = append(p.full, n)
		}
	}
	return p, nil
}

// graphMode returns the cudagraph_mode of the request, or the release's default, and checks it.
func (in *run) graphMode() (string, error) {
	own := map[Release]string{V07: "full", V2025Aug: "piecewise"}
	mode := in.r.Cudagraph.Mode
	if mode == "" || mode == "auto" {
		if d, ok := own[in.rel]; ok {
			return d, nil
		}
		return "full_and_piecewise", nil
	}
	if _, ok := modes[mode]; !ok {
		return "", fault("cudagraph.mode", "no mode %q: known are none, piecewise, full, full_decode_only, full_and_piecewise", clip(mode))
	}
	if in.rel == V07 && mode != "full" && mode != "none" || in.rel == V2025Aug && (mode == "full_decode_only" || mode == "full_and_piecewise") {
		return "", fault("cudagraph.mode", "%v has no %s", in.rel, mode)
	}
	return mode, nil
}

// hopperGraph is what a FULL graph adds on compute capability 9.0, fitted on runs of 0.19.0 on H100.
const hopperGraph = 8 << 20

// graphBytes returns the memory of the captured graphs and the bound of its error, fitted:
// memory-planning section 5.2.
func (in *run) graphBytes(p graphPlan) (bytes, off int64) {
	layers := ceilDiv(in.shape.layers, int64(in.r.PipelineParallel))
	logged := in.r.PipelineParallel == 1 && in.r.ranks() <= 2 // NCCL's memory for graphs is unknown too
	if len(p.piecewise) == 0 {
		n := int64(len(p.full)) * layers * 861 << 10 // 0.84 MiB per layer and size
		if in.rel == V07 && logged {                 // from one log
			return n, n / 5
		}
		return n, n
	}
	f := 1.0
	switch {
	case in.shape.family == gptOSS:
		f = 1.2
	case in.shape.experts > 0:
		f = 2.2
	}
	n := int64(0.28 * (1 << 20) * float64(len(p.piecewise)) * float64(layers+1) * f)
	by := n / 10
	if in.d.Major == 9 {
		n += int64(len(p.full)) * hopperGraph
		by, logged = n/2, in.r.ranks() <= 4
	}
	if f := in.shape.family; f == designed || in.d.Major != 9 && (f == qwen2 || f == qwen3) {
		by *= 2 // no log of these graphs
	}
	if !logged || in.rel.atLeast(V033) { // no log of model runner V2 shows what its graphs take
		by = n
	}
	return n, max(by, 50<<20)
}

// estimateError returns the bound of the error of the engine's own estimate of graph memory. That of
// several ranks was up to 2.2 times the memory that the graphs took, within 100 % of graphBytes.
func (in *run) estimateError(estimate int64) int64 {
	if in.rel.atLeast(V033) || in.r.ranks() > 1 {
		return max(estimate, 256<<20)
	}
	return estimate * 2 / 5
}
