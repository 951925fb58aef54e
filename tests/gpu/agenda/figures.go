package agenda

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// bench has the fields of vapp bench engine --json that the page shows: rates in tokens per second,
// one for each run; sizes in bytes; limits in bytes and operations per second.
type bench struct {
	Profile string  `json:"profile"`
	Weights string  `json:"weights"`
	Device  string  `json:"device"`
	Load    float64 `json:"load_seconds"`
	Limits  struct {
		Read      float64 `json:"read"`
		Copy      float64 `json:"copy"`
		Library   float64 `json:"library"`
		NoLibrary string  `json:"no_library"`
	} `json:"limits"`
	Matrix      float64    `json:"matrix_rate"`
	Cut         string     `json:"cut"`
	Unpredicted string     `json:"not_predicted"`
	Rows        []benchRow `json:"rows"`
	Memory      memory     `json:"memory"`
}

// benchRow is a measured load.
type benchRow struct {
	Streams   int         `json:"streams"`
	Prompt    int         `json:"prompt"`
	Output    int         `json:"output"`
	Prefill   []float64   `json:"prefill"`
	Decode    []float64   `json:"decode"`
	StepRead  float64     `json:"step_bytes"`
	PromptOp  float64     `json:"prompt_operations"`
	Steps     []step      `json:"steps"`
	Predicted []predicted `json:"predicted"`
}

// read and matrix are the largest rates that were measured, by vapp's kernels or without them.
func (b bench) read() float64   { return max(b.Limits.Read, b.Limits.Copy) }
func (b bench) matrix() float64 { return max(b.Matrix, b.Limits.Library) }

// memory is the planned memory and the memory that the driver reported.
type memory struct {
	Arenas int64 `json:"arenas_planned"`
	Taken  int64 `json:"arenas_taken"`
	GPU    *struct {
		Total  int64 `json:"total"`
		Before int64 `json:"free_before"`
		After  int64 `json:"free_after"`
		Graphs int64 `json:"graphs"`
	} `json:"gpu"`
	Items []struct {
		Name  string `json:"item"`
		Bytes int64  `json:"bytes"`
		Basis string `json:"basis"`
	} `json:"items"`
}

// item returns the bytes of a line of the plan; 0 where there is no such line.
func (m memory) item(name string) int64 {
	for _, it := range m.Items {
		if it.Name == name {
			return it.Bytes
		}
	}
	return 0
}

// benchOf parses the figures of a part; ok is false where it has none.
func benchOf(r Result) (b bench, ok bool) {
	if r.Kind != Bench && r.Kind != Ops || json.Unmarshal(r.Data, &b) != nil {
		return b, false
	}
	return b, len(b.Rows) > 0
}

func median(rates []float64) float64 {
	if len(rates) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(rates))
	return s[len(s)/2]
}

// share formats x as a percentage of limit; – where either is unknown.
func share(x, limit float64) string {
	if x <= 0 || limit <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*x/limit)
}

func number(x float64) string {
	switch {
	case x <= 0:
		return "–"
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// figured is a part with its parsed figures.
type figured struct {
	Result
	bench
}

func figuredOf(results []Result) (out []figured) {
	for _, r := range results {
		if b, ok := benchOf(r); ok && r.Kind == Bench {
			out = append(out, figured{r, b})
		}
	}
	return out
}

// limits writes the limits of the device: what copies of its driver and cuBLASLt reach, what PyTorch
// does, and vapp's kernels.
func (w *page) limits(results []Result) {
	begun, without := false, ""
	row := func(part string, bytes, operations float64) {
		if !begun {
			begun = true
			w.line("## Limits")
			w.line("")
			w.line("What the machine reaches without vapp's kernels: cuMemcpyDtoD, and cuBLASLt's product of 8,192 × 8,192 × 8,192; PyTorch's copy and product; and vapp's own")
			w.line("kernels (two streams added, the same product with what packs it). Shares are of the fastest of the part.")
			w.line("")
			w.head("lrr", "measured by", "GB/s", "bf16 TFLOP/s")
		}
		w.row(part, number(bytes/1e9), number(operations/1e12))
	}
	for _, r := range figuredOf(results) {
		if r.Limits.Copy > 0 || r.Limits.Library > 0 {
			row(r.Name+", driver and cuBLASLt", r.Limits.Copy, r.Limits.Library)
		}
		if r.Limits.Read > 0 || r.Matrix > 0 {
			row(r.Name+", vapp", r.Limits.Read, r.Matrix)
		}
		if r.Limits.NoLibrary != "" {
			without = r.Limits.NoLibrary
		}
	}
	for _, r := range results {
		var t struct {
			Copy  float64 `json:"copy_bytes_a_second"`
			Flops float64 `json:"bf16_flops"`
		}
		if r.Kind == Rates && json.Unmarshal(r.Data, &t) == nil && (t.Copy > 0 || t.Flops > 0) {
			row(r.Title, t.Copy, t.Flops)
		}
	}
	if begun {
		w.line("")
	}
	if without != "" {
		w.line("cuBLASLt is not measured: %s.", strings.TrimSuffix(oneLine(without), "."))
		w.line("")
	}
}

// benches writes one table of all rows of all models.
func (w *page) benches(results []Result) {
	all := figuredOf(results)
	if len(all) == 0 {
		return
	}
	w.line("## Decode and prefill")
	w.line("")
	w.line("Tokens a second of all streams; shares are of the largest bandwidth and bf16 matrix rate that were measured in the same part.")
	w.line("")
	w.head("lrrrrrrrr", "part", "streams", "context", "prefill", "of matrix rate", "decode", "ms a token", "GB a step", "of bandwidth")
	for _, r := range all {
		for _, x := range r.Rows {
			prefill, decode := median(x.Prefill), median(x.Decode)
			token := 0.0
			if decode > 0 {
				token = 1e3 * float64(x.Streams) / decode
			}
			w.row(r.Name, fmt.Sprint(x.Streams), fmt.Sprint(x.Prompt), number(prefill), share(prefill*x.PromptOp, r.matrix()), number(decode), number(token),
				number(x.StepRead/1e9), share(decode/float64(max(1, x.Streams))*x.StepRead, r.read()))
		}
	}
	w.line("")
	for _, r := range all {
		if r.Cut != "" {
			w.line("%s: %s.", r.Name, r.Cut)
			w.line("")
		}
	}
}

// graphs compares parts without graphs with their parts with graphs, row by row.
func (w *page) graphs(results []Result) {
	w.beside(results, "Graphs beside launches", "decode by graphs", "by launches", func(r Result) string { return r.GraphsPart })
}

// dependent does so with parts whose launches are plain.
func (w *page) dependent(results []Result) {
	w.beside(results, "Dependent launches beside plain ones", "decode by dependent launches", "by plain ones", func(r Result) string { return r.DependentPart })
}

// beside compares the rows of parts with those of the parts that they name.
func (w *page) beside(results []Result, title, one, other string, named func(Result) string) {
	any := false
	for _, r := range figuredOf(results) {
		b := r.bench
		o, found := benchBeside(named(r.Result), results)
		if !found {
			continue
		}
		if !any {
			any = true
			w.line("## " + title)
			w.line("")
			w.head("lrrrrr", "part", "streams", "context", one, other, "times")
		}
		for n := range min(len(b.Rows), len(o.Rows)) {
			x, y := b.Rows[n], o.Rows[n]
			w.row(named(r.Result), fmt.Sprint(x.Streams), fmt.Sprint(x.Prompt), number(median(y.Decode)), number(median(x.Decode)), times(median(y.Decode), median(x.Decode)))
		}
	}
	if any {
		w.line("")
	}
}

// benchBeside returns the figures of the part of a name.
func benchBeside(name string, results []Result) (bench, bool) {
	i := slices.IndexFunc(results, func(o Result) bool { return name != "" && o.Name == name })
	if i < 0 {
		return bench{}, false
	}
	return benchOf(results[i])
}

// times formats the ratio of a to b.
func times(a, b float64) string {
	if a <= 0 || b <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", a/b)
}

// memory writes the planned memory, the allocated memory and the memory that the driver reports.
func (w *page) memory(results []Result) {
	all := figuredOf(results)
	if len(all) == 0 {
		return
	}
	w.line("## Plan and reality")
	w.line("")
	w.line("Bytes. Arenas as planned and as asked for; then cuMemGetInfo: what the context took (with what other processes hold),")
	w.line("what free memory fell by from then on, and what of that graphs took, each beside its lines of the plan.")
	w.line("")
	w.head("lrrrrrrrrrr", "part", "s to load", "arenas planned", "asked for", "apart", "context", "planned", "fell by", "planned", "of it graphs", "planned")
	for _, r := range all {
		m, context := r.Memory, r.Memory.item("context")
		var device int64
		for _, it := range m.Items {
			if it.Basis == "exact" || it.Basis == "bound" || it.Basis == "fitted" {
				device += it.Bytes
			}
		}
		cells := []string{r.Name, number(r.Load), fmt.Sprint(m.Arenas), fmt.Sprint(m.Taken), fmt.Sprint(m.Taken - m.Arenas)}
		if g := m.GPU; g != nil {
			cells = append(cells, fmt.Sprint(g.Total-g.Before), fmt.Sprint(context), fmt.Sprint(g.Before-g.After), fmt.Sprint(device-context), fmt.Sprint(g.Graphs), fmt.Sprint(m.item("graphs")))
		} else {
			cells = append(cells, "–", fmt.Sprint(context), "–", fmt.Sprint(device-context), "–", fmt.Sprint(m.item("graphs")))
		}
		w.row(cells...)
	}
	w.line("")
}

// target is a wanted figure.
type target struct {
	what, want string
	got        []string
}

// targets writes the wanted figures and the measured ones, of the best row of each part.
func (w *page) targets(results []Result) {
	decode := target{what: "decode of one stream, share of read bandwidth", want: "85 % from 7B on"}
	prefill := target{what: "prefill, share of bf16 matrix rate", want: "60 %"}
	graphs := target{what: "decode by graphs, times launches, Llama 3.2 1B", want: "3"}
	outside := target{what: "decode of one stream, µs of a step outside of kernels", want: "at most 30"}
	for _, r := range figuredOf(results) {
		b := r.bench
		if r.DependentPart != "" {
			continue
		}
		one, fill := 0.0, 0.0
		for _, x := range b.Rows {
			for _, s := range x.Steps {
				if x.Streams == 1 && s.Kind == "decode" && r.GraphsPart == "" {
					outside.got = append(outside.got, fmt.Sprintf("%s %s", r.Name, number(s.op(between))))
				}
			}
			if x.Streams == 1 && b.read() > 0 {
				one = max(one, median(x.Decode)*x.StepRead/b.read())
			}
			if b.matrix() > 0 {
				fill = max(fill, median(x.Prefill)*x.PromptOp/b.matrix())
			}
		}
		if r.GraphsPart == "" {
			decode.got = append(decode.got, r.Name+" "+share(one, 1))
			prefill.got = append(prefill.got, r.Name+" "+share(fill, 1))
			continue
		}
		if o, ok := benchBeside(r.GraphsPart, results); ok {
			graphs.got = append(graphs.got, r.GraphsPart+" "+times(median(o.Rows[0].Decode), median(b.Rows[0].Decode)))
		}
	}
	if len(decode.got) == 0 {
		return
	}
	w.line("## Targets")
	w.line("")
	w.head("lll", "what", "wanted", "measured")
	for _, t := range []target{decode, prefill, graphs, outside} {
		got := strings.Join(t.got, ", ")
		if got == "" {
			got = "–"
		}
		w.row(t.what, t.want, got)
	}
	w.line("")
}
