package compat

// load allocates every tensor of one rank and returns the bytes that stay allocated.
func (in *run) load(stage int64) (loaded, error) {
	s, r, d := in.shape, in.r, in.d
	first, last := in.stageLayers(stage)
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
	case designed:
		w.makeDesign()
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
	}
	out.total, out.bytes, out.tensors = w.a.allocated, w.bytes, w.count
	return out, w.err
}

// stageLayers returns the layers of a pipeline stage. Stages have equal numbers of layers;
// remaining layers go to the last stage in vllm-0.7, and in later releases to the stages before the
// last, from the back.
func (in *run) stageLayers(stage int64) (first, last int64) {
	stages := int64(in.r.PipelineParallel)
	each, rest := in.shape.layers/stages, in.shape.layers%stages
	for i := range stage + 1 {
		n := each
		if from := stages - 1 - i; in.rel != V07 && from >= 1 && from <= rest {
			n++
		}
		if in.rel == V07 && i == stages-1 {
			n += rest
		}
		first, last = last, last+n
	}
	return first, last
}
