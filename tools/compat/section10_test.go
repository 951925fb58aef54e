package compat

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
)

// row is a row of memory-planning section 10: a logged figure and the computed one.
type row struct {
	run, figure, logged, computed, difference, status, note string
	// figured is the figure that the reference text computed, "" where it has none.
	figured string
	within  float64 // fitted: the allowed error, in units of the figure
}

func number(s string) float64 {
	s = strings.NewReplacer(",", "", "x", "", "%", "").Replace(s)
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return math.NaN()
	}
	return x
}

// check checks a row by its status.
func (r row) check(t *testing.T) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s: %s: "+format, append([]any{r.run, r.figure}, args...)...)
	}
	if r.figured != "" && r.figured != r.computed {
		fail("computed %s, the reference has %s", r.computed, r.figured)
	}
	switch r.status {
	case "exact":
		if logged := shorten(r.computed, r.logged); logged != r.logged {
			fail("computed %s, logged %s", r.computed, r.logged)
		}
	case "fitted":
		if d := math.Abs(number(r.computed) - number(r.logged)); math.IsNaN(d) || d > r.within {
			fail("computed %s, logged %s: further apart than %.4g", r.computed, r.logged, r.within)
		}
	}
}

// shorten formats a computed figure with the digits of the log.
func shorten(computed, logged string) string {
	if !strings.Contains(logged, ".") || strings.ContainsAny(logged, "x%/ ") {
		return computed
	}
	_, digits, _ := strings.Cut(logged, ".")
	return strconv.FormatFloat(number(computed), 'f', len(digits), 64)
}

func difference(computed, logged string, digits int) string {
	d := number(computed) - number(logged)
	if math.IsNaN(d) || d == 0 {
		return "0"
	}
	return fmt.Sprintf("%+.*f", digits, d)
}

// rows returns the rows of section 10 for one run.
func (s seed) rows(t testing.TB) []row {
	var out []row
	add := func(key string, r row) {
		r.run, r.logged = s.Run, orDash(s.Logged[key])
		if r.difference == "" {
			r.difference = "0"
		}
		out = append(out, r)
	}
	if len(s.AtGiB) > 0 {
		return s.rowsAt(t)
	}
	o := must(t, s.inputs(t))
	w := o.stages[0]
	weights := fmt.Sprintf("%.4f", gib(w.total))
	note := ""
	if s.Figured["target"] != "" {
		note = fmt.Sprintf("target alone %.4f", gib(w.target))
		if got := fmt.Sprintf("%.4f", gib(w.target)); got != s.Figured["target"] {
			t.Errorf("%s: target alone %s, want %s", s.Run, got, s.Figured["target"])
		}
	}
	add("weights", row{figure: "Model loading, GiB", computed: weights, difference: difference(weights, s.Logged["weights"], 4), status: "exact", note: note, figured: s.Figured["weights"]})
	var sum int64
	for _, n := range w.bytes {
		sum += n
	}
	add("", row{figure: "sum of tensors without allocator rounding, GiB", computed: fmt.Sprintf("%.4f", gib(sum)), difference: fmt.Sprintf("%+.4f", gib(sum)-number(s.Logged["weights"])), status: "derived", figured: s.Figured["sum"]})
	out = append(out, s.cacheRows(t)...)
	out = append(out, s.graphRows(t, o)...)
	out = append(out, s.fittedRows(t, o)...)
	return append(out, s.stateRows(t)...)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// cacheRows returns the rows computed from the logged KV memory, with bytes inside its interval.
func (s seed) cacheRows(t testing.TB) []row {
	lo, hi := s.interval(t)
	o := s.withBytes(t, lo)
	c := o.cache
	out := []row{{figure: "Available KV cache memory, bytes", logged: s.Logged["available"] + " GiB", computed: groupDigits(lo) + " .. " + groupDigits(hi), difference: fmt.Sprintf("%.1f MiB wide", float64(hi-lo+1)/(1<<20)), status: "fits", figured: s.Figured["interval"]}}
	if s.Release != V07 {
		out = append(out, row{figure: "GPU KV cache size, tokens", logged: s.Logged["tokens"], computed: groupDigits(o.tokens()), difference: "0", status: "exact", note: o.tokensNote()})
		mid := s.withBytes(t, bytesOf(number(s.Logged["available"])))
		out = append(out, row{figure: "tokens if the GiB figure is taken as exact", logged: s.Logged["tokens"], computed: groupDigits(mid.tokens()), difference: difference(groupDigits(mid.tokens()), s.Logged["tokens"], 0), status: "derived", note: "what a reader of the rounded log gets", figured: s.Figured["fromGiB"]})
	}
	out = append(out, row{figure: "Maximum concurrency at " + groupDigits(o.length), logged: s.Logged["concurrency"], computed: fmt.Sprintf("%.2fx", o.concurrency(o.length)), difference: "0", status: "exact", note: fmt.Sprintf("%d blocks a request", c.need(o.length))})
	blocks := row{figure: "number of blocks", logged: orDash(s.Logged["blocks"]), status: "fits", difference: "-", note: fmt.Sprintf("%d group(s) x %d layers, %s B a page", len(c.groups), c.size, groupDigits(c.page))}
	if first, last := lo/c.slab(), hi/c.slab(); first == last {
		blocks.computed = strconv.FormatInt(first, 10)
	} else {
		blocks.computed = groupDigits(first) + ".." + groupDigits(last)
	}
	if s.Logged["blocks"] != "" {
		blocks.status, blocks.difference = "exact", "0"
	}
	out = append(out, blocks)
	if want := s.Logged["cpuBlocks"]; want != "" {
		out = append(out, row{figure: "CPU blocks (4 GiB swap)", logged: want, computed: strconv.FormatInt(o.cpuBlocks(), 10), difference: "0", status: "exact"})
	}
	if n := s.Logged["encoder"]; n != "" {
		out = append(out, row{figure: "encoder cache budget, tokens", logged: n, computed: strconv.FormatInt(o.encoderBudget(), 10), difference: "0", status: "exact"})
	}
	return s.named(out)
}

func (s seed) named(rows []row) []row {
	for i := range rows {
		rows[i].run = s.Run
	}
	return rows
}

// graphRows returns the rows of graph sizes and counts.
func (s seed) graphRows(t testing.TB, o *outcome) []row {
	var out []row
	p := o.graphs
	if want := s.Logged["sizes"]; want != "" {
		out = append(out, row{figure: "capture sizes (count, largest)", logged: want, computed: fmt.Sprintf("%d, %d", len(p.sizes), most(p.sizes)), difference: "0", status: "exact"})
	}
	if want := s.Logged["graphs"]; want != "" {
		out = append(out, row{figure: "PIECEWISE / FULL graphs", logged: want, computed: fmt.Sprintf("%d (largest %d) / %d (largest %d)", len(p.piecewise), most(p.piecewise), len(p.full), most(p.full)), difference: "0", status: "exact"})
		out = append(out, row{figure: "num_gpu_blocks_override while profiling graphs", logged: s.Logged["override"], computed: strconv.FormatInt(p.profiled, 10), difference: "0", status: "exact"})
	}
	if want := s.Logged["graphMemory"]; want != "" {
		out = append(out, s.graphMemory(o, "CUDA graph pool actual, GiB", "graphMemory"))
	}
	if s.Logged["estimate"] != "" {
		i := s.inputs(t)
		i.Request.Cudagraph.EstimateBytes = bytesOf(number(s.Logged["estimate"]))
		l, _ := must(t, i).report().Find("utilization hint")
		out = append(out, row{figure: "utilization hint", logged: s.Logged["hint"], computed: fmt.Sprintf("%.4f", l.Value), status: "fits", note: "with the logged estimate of " + s.Logged["estimate"] + " GiB and the total of the line below", difference: difference(fmt.Sprintf("%.4f", l.Value), s.Logged["hint"], 4)})
		lo, hi := s.totals()
		out = append(out, row{figure: "total GPU memory from the utilization hint, GiB", logged: fmt.Sprintf("%.4f -> %s, %s GiB", s.Request.Utilization, s.Logged["hint"], s.Logged["estimate"]), computed: fmt.Sprintf("%.2f .. %.2f", lo, hi), difference: "-", status: "fits", note: "graph estimate / utilization step", figured: s.Figured["total"]})
		if s.Device.TotalGiB < lo || s.Device.TotalGiB > hi {
			t.Errorf("%s: the assumed total %v GiB is outside %.2f .. %.2f", s.Run, s.Device.TotalGiB, lo, hi)
		}
	}
	return s.named(out)
}

func (s seed) graphMemory(o *outcome, figure, key string) row {
	n, by := o.graphBytes(o.graphs)
	note := fmt.Sprintf("%d graphs x %d layers", len(o.graphs.full), o.shape.layers)
	if k := len(o.graphs.piecewise); k > 0 {
		note = fmt.Sprintf("%d x %d pieces", k, o.shape.layers+1)
	}
	c := fmt.Sprintf("%.2f", gib(n))
	return row{figure: figure, logged: s.Logged[key], computed: c, difference: difference(c, s.Logged[key], 2), status: "fitted", within: gib(by) + 0.005, note: note, figured: s.Figured[key]}
}

// totals returns the bounds of total memory that a rounded hint and a rounded estimate allow.
func (s seed) totals() (lo, hi float64) {
	est, step := number(s.Logged["estimate"]), number(s.Logged["hint"])-s.Request.Utilization
	return (est - 0.005) / (step + 0.00005), (est + 0.005) / (step - 0.00005)
}

// fittedRows returns the rows computed from profile and device alone.
func (s seed) fittedRows(t testing.TB, o *outcome) []row {
	var out []row
	var of []string
	for _, p := range o.activation.pieces() {
		of = append(of, fmt.Sprintf("%s %.0f", p.Name, float64(p.Bytes)/(1<<20)))
	}
	made := "activation MiB: " + strings.Join(of, " + ")
	if s.Assumed {
		made = fmt.Sprintf("total %.2f GiB (assumed); ", s.Device.TotalGiB) + made
	}
	peak := fmt.Sprintf("%.3f", gib(o.activation.peak()))
	if s.Release == V07 {
		return s.named([]row{
			{figure: "budget, GiB", logged: s.Logged["budget"], computed: fmt.Sprintf("%.2f", gib(o.budget())), difference: "0", status: "exact", note: "31.74 is itself rounded"},
			{figure: "PyTorch activation peak, GiB", logged: s.Logged["activation"], computed: peak, difference: difference(peak, s.Logged["activation"], 3), status: "exact", note: made, figured: s.Figured["activation"]},
			{figure: "rest for the KV cache, GiB", logged: s.Logged["available"], computed: fmt.Sprintf("%.2f", gib(o.available[0])), difference: "0", status: "exact", note: "with the logged non-torch memory of 0.09 GiB"},
			s.blocksInside(t, o),
		})
	}
	left := gib(o.budget()) - gib(o.stages[0].total) - number(s.Logged["available"]) - gib(o.estimate)
	model := gib(o.activation.peak() + o.nonTorch)
	out = append(out, row{figure: "budget - weights - KV (activation + non-torch), GiB", logged: fmt.Sprintf("%.3f", left), computed: fmt.Sprintf("%.3f", model), difference: fmt.Sprintf("%+.3f", model-left), status: "fitted", within: gib(o.nonTorchBy), note: made})
	if got := peak; got != s.Figured["activation"] {
		t.Errorf("%s: activation %s, the reference has %s", s.Run, got, s.Figured["activation"])
	}
	r := o.report()
	available, _ := r.Find("available KV cache memory")
	c := fmt.Sprintf("%.2f", available.Value)
	out = append(out, row{figure: "Available KV cache memory from the config, GiB", logged: s.Logged["available"], computed: c, difference: difference(c, s.Logged["available"], 2), status: "fitted", within: available.Residual/100*available.Value + 0.005, note: "stated: " + available.tag(), figured: s.Figured["available"]})
	tokens, _ := r.Find("GPU KV cache size")
	c = groupDigits(int64(tokens.Value))
	return s.named(append(out, row{figure: "GPU KV cache size from the config, tokens", logged: s.Logged["tokens"], computed: c, difference: fmt.Sprintf("%+.1f%%", 100*(tokens.Value/number(s.Logged["tokens"])-1)), status: "fitted", within: tokens.Residual / 100 * tokens.Value, note: "stated: " + tokens.tag(), figured: s.Figured["tokens"]}))
}

// blocksInside returns the range of blocks that the rounded GiB figure allows.
func (s seed) blocksInside(t testing.TB, o *outcome) row {
	mid := number(s.Logged["available"])
	slab := float64(o.cache.slab())
	first, last := int64((mid-0.005)*(1<<30)/slab), int64((mid+0.005)*(1<<30)/slab)
	r := row{figure: "CUDA blocks inside the GiB interval", logged: s.Logged["blocks"], computed: fmt.Sprintf("%d..%d", first, last), difference: "-", status: "fits", note: groupDigits(o.cache.slab()) + " B a block", figured: s.Figured["blocks"]}
	if n := int64(number(s.Logged["blocks"])); n < first || n > last {
		t.Errorf("%s: %d blocks logged, the interval allows %s", s.Run, n, r.computed)
	}
	return r
}

// rowsAt returns rows of tokens at given GiB figures, which no log prints.
func (s seed) rowsAt(t testing.TB) []row {
	var out []row
	for _, at := range s.AtGiB {
		n, err := strconv.ParseFloat(at[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		o := s.withBytes(t, int64(n*(1<<30)))
		i := s.inputs(t)
		i.Request.KVBytes, i.Request.TensorParallel, i.Request.PipelineParallel = int64(n*(1<<30)), 1, 2
		if pp := must(t, i); pp.blocks != o.blocks {
			t.Errorf("%s: %d blocks at TP=2, %d at PP=2", s.Run, o.blocks, pp.blocks)
		}
		out = append(out, row{figure: "tokens at " + at[0] + " GiB a GPU", logged: "-", computed: groupDigits(o.blocks * o.cache.block), difference: "-", status: "derived", note: groupDigits(o.cache.slab()) + " B a block at TP=2 (PP=2 gives the same)", figured: at[1]})
	}
	return s.named(out)
}
