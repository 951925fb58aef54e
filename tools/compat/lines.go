package compat

import (
	"fmt"
	"strings"
)

// report returns the lines of an outcome in the order of the release's log.
func (o *outcome) report() Report {
	r := Report{Release: o.rel}
	o.weightLines(&r)
	o.cacheWarnings(&r)
	o.budgetLines(&r)
	o.cacheLines(&r)
	o.graphLines(&r)
	o.afterwards(&r)
	return r
}

// loggedWeights reports whether a log confirms the weight figure of this layout to the last digit.
func (o *outcome) loggedWeights() bool {
	s := o.shape
	one := o.r.TensorParallel == 1 && o.r.PipelineParallel == 1
	half, ampere := o.dtype == 2, o.d.capability() == 80
	switch {
	case !half || o.r.Speculative.Method == "ngram":
		return false
	case s.family == llama:
		return o.rel == V2025Aug && one && s.quant.scheme == plain && o.r.Quantization == ""
	case s.family == qwen2:
		return o.rel == V07 && one && s.quant.scheme == plain && o.r.Quantization == ""
	case s.family == gptOSS:
		return o.rel == V019 && one && s.quant.scheme == mxfp4 && ampere
	case s.family == gemma4:
		return o.rel == V019 && one && s.quant.scheme == plain && (o.r.Quantization == "" || ampere) && !o.r.TextOnly
	}
	return s.family == qwen35 && s.mixture == nil && o.rel.era() == V017.era() && o.r.TensorParallel == 2 && o.r.PipelineParallel == 1 && s.quant.scheme == fp8Blocks && o.d.capability() >= 89 && o.r.TextOnly && o.drafts()
}

func (o *outcome) weightLines(r *Report) {
	basis := Derived
	if o.loggedWeights() {
		basis = Exact
	}
	for stage, l := range o.stages {
		key, note := "model loading", ""
		if len(o.stages) > 1 {
			key = fmt.Sprintf("model loading, stage %d", stage)
			note = fmt.Sprintf("pipeline stage %d of %d", stage, len(o.stages))
		}
		r.add(Line{Key: key, Text: o.rel.loading(l.total), Value: gib(l.total), Unit: "GiB", Basis: basis, Note: note})
		var sum int64
		names := [parts]string{"parameters", "vision tower", "drafter", "cos/sin tables", "scalars"}
		var of []string
		for p, n := range l.bytes {
			sum += n
			if n > 0 {
				of = append(of, fmt.Sprintf("%s %.4f", names[p], gib(n)))
			}
		}
		r.add(Line{Key: strings.Replace(key, "model loading", "sum of tensors", 1), Value: gib(sum), Unit: "GiB", Basis: Derived,
			Text: fmt.Sprintf("  sum of tensors %.4f GiB, allocator rounding %.4f GiB", gib(sum), gib(l.total-sum)), Note: strings.Join(of, ", ")})
	}
}

// cacheWarnings adds the lines about block sizes and padding.
func (o *outcome) cacheWarnings(r *Report) {
	c := o.cache
	if c.states > 0 {
		basis := Derived
		if o.rel.era() == V017.era() && c.mode == "align" && o.shape.mixture == nil && o.r.TensorParallel == o.loggedTensor() && o.r.PipelineParallel == 1 {
			basis = Exact
		}
		if c.bumped > 0 {
			note := ""
			if o.r.BlockSize != 16 {
				note = fmt.Sprintf("memory.blockSize %d is overridden", o.r.BlockSize)
			}
			r.add(Line{Key: "attention block size", Value: float64(c.bumped), Unit: "tokens", Basis: basis, Note: note,
				Text: fmt.Sprintf("Setting attention block size to %d tokens to ensure that attention page size is >= mamba page size.", c.bumped)})
		}
		r.add(Line{Key: "mamba page padding", Value: c.padded, Unit: "%", Basis: basis,
			Text: fmt.Sprintf("Padding mamba page size by %.2f%% to ensure that mamba page size and attention page size are exactly equal.", c.padded),
			Note: fmt.Sprintf("a state is %s B", groupDigits(c.state))})
	}
	for _, p := range c.padding {
		r.add(Line{Key: "padding layers", Value: float64(p.layers), Unit: "layers", Basis: o.arithmetic(), Text: p.String()})
	}
}

// loggedTensor returns the tensor parallel size of the log for the family.
func (o *outcome) loggedTensor() int {
	if o.shape.family == qwen35 {
		return 2
	}
	return 1
}

// arithmetic returns the basis of figures computed from a pinned figure without fitting: exact
// where a log confirms them.
func (o *outcome) arithmetic() Basis {
	logged := map[family]Release{llama: V2025Aug, qwen2: V07, gptOSS: V019, gemma4: V019, qwen35: V017}
	r := o.r
	switch {
	case o.rel.Reconstructed():
		return Reconstructed
	case o.rel != logged[o.shape.family] || o.shape.mixture != nil || r.PipelineParallel > 1 || r.TensorParallel != o.loggedTensor() || r.NoHybridManager || o.elem != 2 || o.cache.mode == "all":
		return Derived
	}
	return Exact
}

// budgetLines adds the lines about the memory for the KV cache.
func (o *outcome) budgetLines(r *Report) {
	if n := o.encoderBudget(); n > 0 {
		l := Line{Key: "encoder cache budget", Value: float64(n), Unit: "tokens", Basis: Exact,
			Text: fmt.Sprintf("Encoder cache will be initialized with a budget of %d tokens", n)}
		d := o.dummy()
		if o.rel.atLeast(V033) {
			l.Text += fmt.Sprintf(", and profiled with %d %s items of the maximum feature size", d.items, d.modality)
		}
		if l.Basis = o.encoderBasis(); o.shape.family == qwen35 && (o.r.MaxPixels == 0 || d.modality == "video") {
			l.Note = "the size of an item is that of the published processor, which config.json does not have"
		}
		r.add(l)
	}
	stage, _ := o.least()
	activation := o.stagePeak(stage)
	peak := activation.peak()
	var of []string
	for _, p := range activation.pieces() {
		of = append(of, fmt.Sprintf("%s %.0f", p.Name, float64(p.Bytes)/(1<<20)))
	}
	made := "MiB: " + strings.Join(of, " + ")
	if o.rel == V07 {
		r.add(Line{Key: "budget", Value: gib(o.budget()), Unit: "GiB", Basis: Exact,
			Text: fmt.Sprintf("the current vLLM instance can use total_gpu_memory (%.2fGiB) x gpu_memory_utilization (%.2f) = %.2fGiB", gib(o.d.TotalBytes), o.r.Utilization, gib(o.budget()))})
		basis, residual := Fitted, off(0.1+gib(total(o.unknown)), gib(peak))
		if o.shape.family == qwen2 && o.d.capability() == 70 && o.r.ranks() == 1 {
			basis, residual = Exact, 0
		}
		r.add(Line{Key: "activation peak", Value: gib(peak), Unit: "GiB", Basis: basis, Residual: residual, Note: made,
			Text: fmt.Sprintf("PyTorch activation peak memory takes %.2fGiB", gib(peak))})
	} else {
		r.add(Line{Key: "budget", Value: gib(o.budget()), Unit: "GiB", Basis: Derived,
			Text: fmt.Sprintf("  budget: %.2f GiB x %.4g = %.2f GiB", gib(o.d.TotalBytes), o.r.Utilization, gib(o.budget()))})
		r.add(Line{Key: "activation and non-torch", Value: gib(peak + o.nonTorch), Unit: "GiB", Basis: Fitted, Residual: off(gib(o.nonTorchBy), gib(peak+o.nonTorch)), Note: made,
			Text: fmt.Sprintf("  activation %.3f GiB + non-torch %.2f GiB", gib(peak), gib(o.nonTorch))})
	}
	l := Line{Key: "available KV cache memory", Value: gib(o.available[stage]), Unit: "GiB", Text: o.rel.available(o.available[stage])}
	l.Basis, l.Residual = o.fundBasis(stage)
	switch {
	case o.r.KVBytes > 0:
		l.Note = "pinned: " + groupDigits(o.r.KVBytes) + " B"
	case o.estimate > 0:
		l.Note = fmt.Sprintf("graphs %.2f GiB taken off", gib(o.estimate))
	}
	if o.r.ranks() > 1 && o.r.KVBytes == 0 {
		if o.r.NonTorchBytes == 0 {
			l.Note = strings.TrimPrefix(l.Note+"; "+o.rankFit().note(), "; ")
		}
	}
	if len(o.unknown) > 0 && o.r.KVBytes == 0 {
		l.Note = strings.TrimPrefix(l.Note+"; "+unknownNote(o.unknown), "; ")
	}
	r.add(l)
}

// fundBasis returns the basis and the residual of the KV bytes of a stage.
func (o *outcome) fundBasis(stage int) (Basis, float64) {
	switch {
	case o.r.KVBytes > 0:
		return o.arithmetic(), 0
	}
	return Fitted, off(gib(o.nonTorchBy+o.estimateBy), gib(o.available[stage]))
}
