package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"vapp.dev/appliance/plan"
)

// benchReport is what bench engine measures of a profile; --json prints it. Rates are
// tokens a second, one for each run; limits and sizes are bytes, and operations a
// second.
type benchReport struct {
	Profile string      `json:"profile"`
	Weights string      `json:"weights"`
	Device  string      `json:"device"`
	Variant string      `json:"variant"`
	Threads string      `json:"threads"`
	Load    float64     `json:"load_seconds"`
	Limits  ceiling     `json:"limits"`
	Matrix  float64     `json:"matrix_rate"` // of the variant that runs
	Rows    []benchRow  `json:"rows"`
	Cut     string      `json:"cut,omitempty"` // why rows are missing
	Memory  benchMemory `json:"memory"`
}

// benchRow is the rates of a row's runs: of the prompts until the last first token, of
// what is generated from then on, and of both together over the whole time.
type benchRow struct {
	benchWork
	Prefill  []float64   `json:"prefill"`
	Decode   []float64   `json:"decode,omitempty"` // absent where one token is generated
	Total    []float64   `json:"total"`
	StepRead float64     `json:"step_bytes"`        // that a decode step reads
	PromptOp float64     `json:"prompt_operations"` // of a prompt token
	DecodeOp float64     `json:"decode_operations"` // of a generated token
	Steps    []benchStep `json:"steps,omitempty"`   // where their time goes
}

// benchMemory holds what was planned against what was taken.
type benchMemory struct {
	Arenas     int64     `json:"arenas_planned"`
	Taken      int64     `json:"arenas_taken"`
	Planned    int64     `json:"planned"`        // with the process
	Peak       int64     `json:"peak,omitempty"` // resident
	Unmeasured string    `json:"peak_not_measured,omitempty"`
	GPU        *benchGPU `json:"gpu,omitempty"`
	// Items are the lines of the ledger.
	Items []benchItem `json:"items,omitempty"`
}

// benchGPU is what the driver says of the device's memory.
type benchGPU struct {
	Total  int64 `json:"total"`
	Before int64 `json:"free_before"` // with the driver's context, and nothing of the engine
	After  int64 `json:"free_after"`
	Graphs int64 `json:"graphs"` // what free memory fell by while they were captured
}

// benchItem is a line of the ledger.
type benchItem struct {
	Name  string `json:"item"`
	Bytes int64  `json:"bytes"`
	Basis string `json:"basis"`
}

// median of rates; of none it is 0.
func median(rates []float64) float64 {
	if len(rates) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(rates))
	return s[len(s)/2]
}

// spread is the median of rates, and beside it half of the distance between the least and
// the most where there are several.
func spread(rates []float64) string {
	text := fmt.Sprintf("%.1f", median(rates))
	if len(rates) > 1 {
		text += fmt.Sprintf(" ± %.1f", (slices.Max(rates)-slices.Min(rates))/2)
	}
	return text
}

func (r benchReport) printJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r benchReport) print(w io.Writer) error {
	fmt.Fprintf(w, "%s, %s, on %s, variant %s, threads %s, loaded in %.1f s\n", r.Profile, r.Weights, r.Device, r.Variant, r.Threads, r.Load)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "work\ttokens/s\tread a step\tof bandwidth\tof matrix rate\t\n")
	for _, x := range r.Rows {
		r.printRow(t, x)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, x := range r.Rows {
		fmt.Fprint(w, opTable(fmt.Sprintf("%d+%d, %s", x.Prompt, x.Output, x.who()), x.Steps))
	}
	if r.Limits.Read > 0 {
		fmt.Fprintf(w, "limits measured in this run: read bandwidth %.1f GB/s, matrix rate %.0f GFLOP/s in f32, %.0f in bf16, %.0f in int8\n",
			r.Limits.Read/1e9, r.Limits.F32/1e9, r.Limits.BF16/1e9, r.Limits.Int8/1e9)
	}
	m := r.Memory
	fmt.Fprintf(w, "memory: arenas %s planned, %s taken, difference=%d; ", plan.Size(m.Arenas), plan.Size(m.Taken), m.Taken-m.Arenas)
	if m.Unmeasured != "" {
		_, err := fmt.Fprintf(w, "peak not measured: %s\n\n", m.Unmeasured)
		return err
	}
	_, err := fmt.Fprintf(w, "peak %s resident, of %s planned with the process\n\n", plan.Size(m.Peak), plan.Size(m.Planned))
	return err
}

// percent is x of a limit; nothing where that was not measured.
func percent(x, limit float64) string {
	if limit <= 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*x/limit)
}

func (r benchReport) printRow(t io.Writer, x benchRow) {
	prefill, decode := median(x.Prefill), median(x.Decode)
	fmt.Fprintf(t, "prefill %d, %s\t%s\t\t\t%s\t\n", x.Prompt, x.who(), spread(x.Prefill), percent(prefill*x.PromptOp, r.Matrix))
	if len(x.Decode) > 0 {
		fmt.Fprintf(t, "decode %d, %s\t%s\t%.2f GB\t%s\t%s\t\n", x.Output, x.who(), spread(x.Decode), x.StepRead/1e9,
			percent(decode/float64(x.Streams)*x.StepRead, r.Limits.Read), percent(decode*x.DecodeOp, r.Matrix))
	}
	if x.Streams > 1 {
		fmt.Fprintf(t, "both %d+%d, %s\t%s\t\t\t\t\n", x.Prompt, x.Output, x.who(), spread(x.Total))
	}
}
