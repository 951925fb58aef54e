package compat

import "fmt"

// cacheLines adds blocks, tokens and concurrency.
func (o *outcome) cacheLines(r *Report) {
	c := o.cache
	stage, _ := o.least()
	basis, residual := o.fundBasis(stage)
	if o.rel.Reconstructed() {
		basis = Reconstructed
	}
	note := fmt.Sprintf("%d group(s) x %d layers, %s B a page", len(c.groups), c.size, groupDigits(c.page))
	if c.page == 0 {
		note = fmt.Sprintf("1 group of %d layers with pages of their own, %s B a block", c.size, groupDigits(c.slab()))
	}
	blocks := Line{Key: "number of blocks", Value: float64(o.blocks), Unit: "blocks", Basis: basis, Residual: residual, Note: note,
		Text: fmt.Sprintf("# GPU blocks: %d", o.blocks)}
	if o.rel.atLeast(V017) {
		blocks.Text = fmt.Sprintf("  blocks: %d", o.blocks)
	}
	if o.rel == V07 {
		swap := o.cpuBlocks()
		blocks.Text = fmt.Sprintf("# CUDA blocks: %d, # CPU blocks: %d", o.blocks, swap)
		blocks.Note = fmt.Sprintf("%s B a block", groupDigits(c.slab()))
		r.add(blocks)
		swapped := Exact
		if o.r.ranks() > 1 {
			swapped = Derived
		}
		r.add(Line{Key: "CPU blocks", Value: float64(swap), Unit: "blocks", Basis: swapped, Text: fmt.Sprintf("  swap space: %d blocks", swap)})
	} else {
		r.add(blocks)
		r.add(Line{Key: "GPU KV cache size", Value: float64(o.tokens()), Unit: "tokens", Basis: basis, Residual: o.coarse(residual), Note: o.tokensNote(),
			Text: o.sizeText()})
	}
	x := o.concurrency(o.length)
	note = fmt.Sprintf("%d blocks a request, %s tokens in all", c.need(o.length), count(x*float64(o.length), basis))
	if o.pool != nil {
		note = fmt.Sprintf("%d attention blocks, state pool for %d request(s)", o.pool.attention, o.pool.requests)
	}
	if o.auto {
		r.add(Line{Key: "maximum length", Value: float64(o.length), Unit: "tokens", Basis: basis, Residual: residual,
			Text: o.autoText(o.available[stage])})
	}
	r.add(Line{Key: "maximum concurrency", Value: x, Unit: "x", Basis: basis, Residual: residual, Note: note, Text: o.concurrencyText(x)})
}

// sizeText returns the line of the cache's tokens, which in vllm-0.33 has the concurrency too.
func (o *outcome) sizeText() string {
	text := fmt.Sprintf("GPU KV cache size: %s tokens", groupDigits(o.tokens()))
	if o.rel.atLeast(V033) {
		text += ", " + o.rel.concurrency(o.length, o.concurrency(o.length))
	}
	return text
}

func (o *outcome) concurrencyText(x float64) string {
	if o.rel.atLeast(V033) {
		return fmt.Sprintf("  concurrency: %.2fx", x)
	}
	return o.rel.concurrency(o.length, x)
}

// autoText returns the line of the automatic length.
func (o *outcome) autoText(available int64) string {
	switch whole := o.modelLength; {
	case !o.rel.atLeast(V033):
		return fmt.Sprintf("Auto-fit max_model_len: using %d tokens", o.length)
	case o.length == whole:
		return fmt.Sprintf("Auto-fit max_model_len: full model context length %d fits in available KV cache memory (%s GiB GPU)", whole, rounded(gib(available)))
	default:
		return fmt.Sprintf("Auto-fit max_model_len: reduced from %d to %d to fit in available KV cache memory (%s GiB GPU)", whole, o.length, rounded(gib(available)))
	}
}

// coarse widens a bound by one step of the logged number of tokens.
func (o *outcome) coarse(residual float64) float64 {
	if residual == 0 {
		return 0
	}
	return min(100, residual+off(float64(o.cache.block), float64(o.tokens())))
}

// tokensNote returns a warning that the token count of a hybrid model is not its capacity.
func (o *outcome) tokensNote() string {
	if len(o.cache.groups) == 1 || o.pool != nil || o.rel.atLeast(V033) {
		return ""
	}
	return "logged style: blocks // groups x block; not the capacity, which is concurrency x length"
}

// cpuBlocks returns the blocks of the swap space, which only vllm-0.7 has.
func (o *outcome) cpuBlocks() int64 {
	swap := o.r.SwapSpace
	switch swap {
	case 0:
		swap = 4 << 30
	case -1:
		swap = 0
	}
	return swap / o.cache.slab()
}

// graphLines adds the captured graphs and their memory.
func (o *outcome) graphLines(r *Report) {
	p := o.graphs
	if len(p.sizes) == 0 {
		return
	}
	basis := Exact
	if len(o.r.Cudagraph.Sizes) > 0 || o.r.Cudagraph.Mode != "" || o.rel.atLeast(V033) {
		basis = Derived
	}
	r.add(Line{Key: "capture sizes", Value: float64(len(p.sizes)), Unit: "sizes", Basis: basis,
		Text: fmt.Sprintf("cudagraph_capture_sizes: %d sizes, largest %d", len(p.sizes), most(p.sizes))})
	if o.rel.atLeast(V017) {
		piecewise := fmt.Sprintf("PIECEWISE=%d (largest=%d)", len(p.piecewise), most(p.piecewise))
		captured := fmt.Sprintf("%s, FULL=%d (largest=%d)", piecewise, len(p.full), most(p.full))
		text := "Profiling CUDA graph memory: " + captured
		if o.rel.atLeast(V033) {
			text = "  graphs: " + captured
		}
		r.add(Line{Key: "graphs", Value: float64(len(p.piecewise) + len(p.full)), Unit: "graphs", Basis: basis, Text: text, Note: o.capNote()})
	}
	if o.rel.atLeast(V017) && !o.rel.atLeast(V033) {
		r.add(Line{Key: "num_gpu_blocks_override", Value: float64(p.profiled), Unit: "blocks", Basis: basis,
			Text: fmt.Sprintf("Overriding num_gpu_blocks with num_gpu_blocks_override=%d", p.profiled), Note: "while graphs are profiled"})
	}
	bytes, by := o.graphBytes(p)
	if o.profilesGraphs() {
		o.estimateLine(r, bytes)
	}
	r.add(Line{Key: "graph memory", Value: gib(bytes), Unit: "GiB", Basis: Fitted, Residual: off(gib(by), gib(bytes)),
		Text: fmt.Sprintf("Graph capturing finished, took %.2f GiB", gib(bytes))})
	if o.profilesGraphs() {
		o.hint(r)
	}
}

// profilesGraphs reports whether the release estimates the memory of graphs. vllm-0.33 does not if the
// KV bytes are given.
func (o *outcome) profilesGraphs() bool {
	return o.rel.atLeast(V017) && (o.r.KVBytes == 0 || !o.rel.atLeast(V033))
}

func (o *outcome) capNote() string {
	if n := o.stateBlocks(); !o.rel.atLeast(V033) && o.cache.states > 0 && n < o.graphs.profiled {
		return fmt.Sprintf("capped by %d state blocks", n)
	}
	return ""
}

// estimateLine adds the engine's own estimate of graph memory, which differs by up to 38 % from what
// it then captures.
func (o *outcome) estimateLine(r *Report, bytes int64) {
	l := Line{Key: "graph estimate", Unit: "GiB", Basis: Fitted, Residual: off(gib(o.estimateError(bytes)), gib(bytes))}
	if n := o.r.Cudagraph.EstimateBytes; n > 0 {
		bytes, l.Basis, l.Residual, l.Note = n, Derived, 0, "as measured"
	}
	l.Value, l.Text = gib(bytes), fmt.Sprintf("Estimated CUDA graph memory: %.2f GiB total", gib(bytes))
	if o.rel.atLeast(V033) { // printed after the capture, with what that took
		l.Text = fmt.Sprintf("CUDA graph pool memory: %s GiB (estimated)", rounded(gib(bytes)))
	}
	r.add(l)
}

// hint adds the utilization that the release recommends with its estimate of graph memory.
func (o *outcome) hint(r *Report) {
	est, by := o.graphBytes(o.graphs)
	by = o.estimateError(est)
	basis := Fitted
	if n := o.r.Cudagraph.EstimateBytes; n > 0 {
		est, by, basis = n, 5<<20, Derived
	}
	u := o.r.Utilization + float64(est)/float64(o.d.TotalBytes)
	if o.rel.atLeast(V033) {
		u = min(u, 1)
	}
	text := fmt.Sprintf("increase --gpu-memory-utilization from %.4f to %.4f to maintain the same effective KV cache size", o.r.Utilization, u)
	if o.rel.atLeast(V033) {
		text = fmt.Sprintf("To maintain the same effective KV cache size as before, increase --gpu-memory-utilization to %.4f.", u)
	}
	l := Line{Key: "utilization hint", Value: u, Basis: basis, Text: text}
	if basis == Fitted {
		l.Residual = off(float64(by)/float64(o.d.TotalBytes), u)
	}
	r.add(l)
}

// afterwards adds figures that no log of these releases prints.
func (o *outcome) afterwards(r *Report) {
	if o.rel == V07 || o.pool != nil {
		return
	}
	if o.rel.atLeast(V033) {
		o.steadyLine(r)
		return
	}
	stage, _ := o.least()
	basis, residual := o.fundBasis(stage)
	if basis == Exact {
		basis = Derived
	}
	need, x, tokens := o.newer()
	r.add(Line{Key: "newer engine", Value: x, Unit: "x", Basis: basis, Residual: residual,
		Text: fmt.Sprintf("  under the formulas of mid 2026: %.2fx, %s tokens", x, count(float64(tokens), basis)), Note: fmt.Sprintf("%d blocks a request", need)})
	o.steadyLine(r)
}

// steadyLine adds how many requests of the longest length fit once their prefills are done.
func (o *outcome) steadyLine(r *Report) {
	stage, _ := o.least()
	basis, residual := o.fundBasis(stage)
	if basis == Exact {
		basis = Derived
	}
	steady := float64(o.blocks-1) / float64(o.cache.steady(o.length))
	r.add(Line{Key: "steady decode", Value: steady, Unit: "x", Basis: basis, Residual: residual,
		Text: fmt.Sprintf("  held once prefills are done: %.2fx", steady), Note: "windows alone, without the null block"})
}
