package compat

// load makes every tensor of one rank and returns what stays allocated.
func (in *run) load(stage int64) (loaded, error) {
	s, r, d := in.shape, in.r, in.d
	first, last := stageLayers(s.layers, int64(r.PipelineParallel), stage)
	w := &rank{
		shape: s, rel: in.rel, dtype: in.dtype, tp: int64(r.TensorParallel), first: first, last: last,
		sms: int64(d.SMs), built: map[rotary]bool{},
	}
	w.online = r.Quantization == "fp8" && s.quant.scheme == plain
	w.marlin = d.capability() < 89 && (w.online || s.quant.scheme == fp8Blocks || s.quant.scheme == fp8Tensor || s.quant.scheme == fp8Channel)
	switch s.family {
	case gptOSS:
		w.makeGptOSS()
	case gemma4:
		w.makeGemma4(r.TextOnly)
	case qwen35:
		w.makeQwen35(r.TextOnly)
	default:
		w.makeLlama()
	}
	if w.err == nil {
		w.convert()
		w.repackExperts()
		w.repackLinear()
	}
	w.a.trim()
	out := loaded{target: w.a.allocated}
	if w.err == nil && r.Speculative.Method == "mtp" && last == s.layers {
		w.makeMTP()
		w.repackLinear()
	}
	out.total, out.bytes, out.tensors = w.a.allocated, w.bytes, w.count
	return out, w.err
}

// stageLayers are the layers of a pipeline stage: as even as can be, what is
// left over goes to the stages before the last, from the back.
func stageLayers(layers, stages, stage int64) (first, last int64) {
	size := func(i int64) int64 {
		n, rest := layers/stages, layers%stages
		if from := stages - 1 - i; from >= 1 && from <= rest {
			n++
		}
		return n
	}
	for i := range stage {
		first += size(i)
	}
	return first, first + size(stage)
}
