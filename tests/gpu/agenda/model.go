package agenda

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// predicted is a step as the cost model has it, in seconds.
type predicted struct {
	Kind     string  `json:"kind"` // prefill, decode
	Tokens   int     `json:"tokens"`
	Launches int     `json:"launches"`
	Seconds  float64 `json:"seconds"`
	Fixed    float64 `json:"launch_seconds"`
	Limit    float64 `json:"limit_seconds"`
	Kernels  []struct {
		Kernel   string  `json:"kernel"`
		Launches int     `json:"launches"`
		Seconds  float64 `json:"seconds"`
		Limit    float64 `json:"limit_seconds"`
		Bytes    float64 `json:"bytes"`
		Flops    float64 `json:"operations"`
		Bound    string  `json:"bound_by"`
	} `json:"kernels"`
}

// kernelRow is a kernel in a step of a model, or with a shape: microseconds; 0 where unknown.
type kernelRow struct {
	Where     string  `json:"-"`
	Kernel    string  `json:"kernel"`
	Shape     string  `json:"shape"`
	Rows      int     `json:"rows"`
	Launches  int     `json:"-"`
	Measured  float64 `json:"us"`
	Predicted float64 `json:"predicted_us"`
	Limit     float64 `json:"limit_us"`
	MB        float64 `json:"mb"`
	GFLOP     float64 `json:"gflop"`
	Library   float64 `json:"library_us"`
	Bound     string  `json:"-"`
}

// figureMark begins a figure in the output of a test: cudatest.Figure.
const figureMark = "FIGURE {"

// figures returns the kernels whose times a test binary printed.
func figures(r Result) (out []kernelRow) {
	if r.Kind != Tests {
		return nil
	}
	for _, line := range strings.Split(r.Output, "\n") {
		i := strings.Index(line, figureMark)
		if i < 0 {
			continue
		}
		var k kernelRow
		if json.Unmarshal([]byte(line[i+len(figureMark)-1:]), &k) == nil && k.Kernel != "" {
			k.Where, k.Launches = fmt.Sprintf("%s, %d rows", k.Shape, k.Rows), 1
			out = append(out, k)
		}
	}
	return out
}

// most is how many kernels of a step are shown.
const mostKernels = 8

// kernelsOf returns the kernels that take most of each measured step of a part.
func (f figured) kernelsOf() (out []kernelRow) {
	for _, x := range f.Rows {
		for _, s := range x.Steps {
			for _, k := range s.Kernels[:min(mostKernels, len(s.Kernels))] {
				row := kernelRow{Where: fmt.Sprintf("%s, %d × %d, %s", f.Name, x.Streams, x.Prompt, s.Kind), Kernel: k.Op, Launches: int(k.Calls), Measured: k.Micros}
				for _, p := range x.Predicted {
					for _, q := range p.Kernels {
						if p.Kind == s.Kind && q.Kernel == k.Op {
							row.Predicted, row.Limit, row.MB, row.GFLOP, row.Bound = 1e6*q.Seconds, 1e6*q.Limit, q.Bytes/1e6, q.Flops/1e9, q.Bound
						}
					}
				}
				out = append(out, row)
			}
		}
	}
	return out
}

// model writes what the cost model predicted beside what was measured and what the GPU could do at best: the kernels, the
// time in launches and between them, and last the steps.
func (w *page) model(results []Result) {
	var benches, ops []figured
	var kernels []kernelRow
	unpredicted := ""
	for _, r := range results {
		kernels = append(kernels, figures(r)...)
		if b, ok := benchOf(r); ok {
			f := figured{r, b}
			if r.Kind == Bench {
				benches = append(benches, f)
			} else {
				ops = append(ops, f)
			}
			if kernels = append(kernels, f.kernelsOf()...); b.Unpredicted != "" {
				unpredicted = b.Unpredicted
			}
		}
	}
	w.kernels(kernels)
	w.between(ops, benches)
	w.line("## Predicted, measured, limit")
	w.line("")
	w.line("Predictions are kernels/cuda/cost's: bytes, operations, instructions and a fixed time of each launch, at the device's published rates. The limit is")
	w.line("what the memory or the matrix units need at best for weights, keys and values, or for the products. Steps are as streams see them, those with ops by the device's clock.")
	w.line("")
	if unpredicted != "" {
		w.line("Not predicted: %s.", oneLine(unpredicted))
		w.line("")
	}
	begun := false
	for _, f := range append(benches, ops...) {
		for _, x := range f.Rows {
			for _, p := range x.stepsOf() {
				if !begun {
					begun = true
					w.head("llrrrrrr", "part", "step", "launches", "predicted ms", "measured ms", "measured / predicted", "limit ms", "reached")
				}
				w.row(f.Name, fmt.Sprintf("%s %d × %d", p.Kind, x.Streams, x.Prompt), count(p.Launches), number(1e3*p.Seconds), number(p.measured/1e3), times(p.measured, 1e6*p.Seconds), number(1e3*p.Limit), share(1e6*p.Limit, p.measured))
			}
		}
	}
	if !begun && len(kernels) == 0 {
		w.line("Nothing was measured.")
	}
	w.line("")
	w.wrong(kernels)
}

// measuredStep is a predicted step and its measured microseconds. Without a prediction it has no other figures.
type measuredStep struct {
	predicted
	measured float64
}

// stepsOf returns the steps of a row that were measured.
func (x benchRow) stepsOf() (out []measuredStep) {
	for _, kind := range []string{"prefill", "decode"} {
		m := measuredStep{predicted: predicted{Kind: kind}}
		for _, p := range x.Predicted {
			if p.Kind == kind {
				m.predicted = p
			}
		}
		switch rate := median(x.Decode); {
		case kind == "prefill" && m.Tokens > 0 && median(x.Prefill) > 0:
			m.measured = 1e6 * float64(m.Tokens) / median(x.Prefill)
		case kind == "decode" && rate > 0:
			m.measured = 1e6 * float64(x.Streams) / rate
			for _, s := range x.Steps {
				if s.Kind == kind && s.op(all) > s.op(between) {
					m.measured = s.op(all) - s.op(between)
				}
			}
		}
		if m.measured > 0 {
			out = append(out, m)
		}
	}
	return out
}

// kernels writes the kernels of the parts.
func (w *page) kernels(all []kernelRow) {
	if len(all) == 0 {
		return
	}
	w.line("## Kernels")
	w.line("")
	w.line("Microseconds of all launches of a kernel in a step, each between two events, which cost about one. Products of single shapes have cuBLASLt's time beside them.")
	w.line("")
	w.head("llrrrrrrrl", "where", "kernel", "launches", "MB", "GFLOP", "predicted µs", "measured µs", "cuBLASLt µs", "limit µs", "bound by")
	for _, k := range all {
		w.row(k.Where, k.Kernel, count(k.Launches), number(k.MB), number(k.GFLOP), number(k.Predicted), number(k.Measured), number(k.Library), number(k.Limit), k.Bound)
	}
	w.line("")
}

// between writes the time in launches, one by one, beside that of the whole step as a graph.
func (w *page) between(ops, benches []figured) {
	begun := false
	for _, f := range ops {
		for _, x := range f.Rows {
			for _, s := range x.Steps {
				if len(s.Kernels) == 0 || s.Kind != "decode" {
					continue
				}
				in, launches := 0.0, 0
				for _, k := range s.Kernels {
					in, launches = in+k.Micros, launches+int(k.Calls)
				}
				graph, gap, model := 0.0, 0.0, predicted{}
				for _, b := range benches {
					for _, y := range b.Rows {
						for _, t := range y.Steps {
							if b.Name+"-ops" == f.Name && y.Streams == x.Streams && y.Prompt == x.Prompt && t.Kind == s.Kind {
								graph, gap = t.op(all)-t.op(between), t.op(between)
							}
						}
					}
				}
				for _, p := range x.Predicted {
					if p.Kind == s.Kind {
						model = p
					}
				}
				if !begun {
					begun = true
					w.line("## In and between launches")
					w.line("")
					w.line("Of a decode step, microseconds of the device: its launches one by one, each with what is before it; the whole step, as a graph where the models were measured with graphs;")
					w.line("from one step's end to the next one's begin. The model's part is what it gives to gaps and ramps.")
					w.line("")
					w.head("lrrrrrrrr", "part", "streams", "context", "launches", "one by one", "as a graph", "between steps", "predicted", "of it launches")
				}
				w.row(f.Name, fmt.Sprint(x.Streams), fmt.Sprint(x.Prompt), count(launches), number(in), number(graph), number(gap), number(1e6*model.Seconds), number(1e6*model.Fixed))
			}
		}
	}
	if begun {
		w.line("")
	}
}

// wrong lists the kernels that are furthest from their predictions.
func (w *page) wrong(all []kernelRow) {
	all = slices.DeleteFunc(slices.Clone(all), func(k kernelRow) bool { return k.Predicted <= 0 || k.Measured <= 0 })
	apart := func(k kernelRow) float64 { return math.Abs(k.Measured - k.Predicted) }
	slices.SortStableFunc(all, func(a, b kernelRow) int {
		switch {
		case apart(a) > apart(b):
			return -1
		case apart(a) < apart(b):
			return 1
		}
		return 0
	})
	if len(all) == 0 {
		return
	}
	w.line("Furthest from the model, by microseconds:")
	w.line("")
	w.head("llrrrr", "kernel", "where", "predicted µs", "measured µs", "measured / predicted", "limit µs")
	for _, k := range all[:min(12, len(all))] {
		w.row(k.Kernel, k.Where, number(k.Predicted), number(k.Measured), times(k.Measured, k.Predicted), number(k.Limit))
	}
	w.line("")
}

func count(n int) string {
	if n <= 0 {
		return "–"
	}
	return fmt.Sprint(n)
}

// oneLine returns a text without line breaks.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
