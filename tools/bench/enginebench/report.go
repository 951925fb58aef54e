package enginebench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"vapp.dev/appliance/plan"
)

// Report is the result of one profile; --json prints it. Rates are tokens per second, one for
// each run; sizes are bytes.
type Report struct {
	Profile string  `json:"profile"`
	Weights string  `json:"weights"`
	Device  string  `json:"device"`
	Variant string  `json:"variant"`
	Threads string  `json:"threads"`
	Load    float64 `json:"load_seconds"`
	Limits  Limits  `json:"limits"`
	Matrix  float64 `json:"matrix_rate"` // limit of the variant that runs
	Rows    []Row   `json:"rows"`
	Cut     string  `json:"cut,omitempty"` // why rows are missing
	// Unpredicted is why the rows of a GPU have no Predicted.
	Unpredicted string `json:"not_predicted,omitempty"`
	Memory      Memory `json:"memory"`
}

// Row holds the rates of a row's runs: Prefill counts prompt tokens until the last stream has
// its first token, Decode the tokens generated after that, Total both over the whole time.
type Row struct {
	Work
	Prefill  []float64   `json:"prefill"`
	Decode   []float64   `json:"decode,omitempty"` // absent where each stream generates one token
	Total    []float64   `json:"total"`
	StepRead float64     `json:"step_bytes"`        // bytes that a decode step reads
	PromptOp float64     `json:"prompt_operations"` // of a prompt token
	DecodeOp float64     `json:"decode_operations"` // of a generated token
	Steps    []StepTimes `json:"steps,omitempty"`   // time of each op
	// Predicted are a step with prompt tokens and one without, as the cost model of GPUs has them.
	Predicted []PredictedStep `json:"predicted,omitempty"`
}

// Memory compares planned with allocated bytes.
type Memory struct {
	Arenas     int64        `json:"arenas_planned"`
	Taken      int64        `json:"arenas_taken"`
	Planned    int64        `json:"planned"`        // arenas and the rest of the process
	Peak       int64        `json:"peak,omitempty"` // resident
	Unmeasured string       `json:"peak_not_measured,omitempty"`
	GPU        *GPUMemory   `json:"gpu,omitempty"`
	Items      []LedgerItem `json:"items,omitempty"`
}

// GPUMemory is the device memory as the driver reports it, in bytes.
type GPUMemory struct {
	Total  int64 `json:"total"`
	Before int64 `json:"free_before"` // after the driver's context was created, before the engine allocates
	After  int64 `json:"free_after"`
	Graphs int64 `json:"graphs"` // decrease of free memory while graphs were captured
}

// LedgerItem is a line of the plan's memory ledger.
type LedgerItem struct {
	Name  string `json:"item"`
	Bytes int64  `json:"bytes"`
	Basis string `json:"basis"`
}

// median returns the median of rates, 0 where there are none.
func median(rates []float64) float64 {
	if len(rates) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(rates))
	return s[len(s)/2]
}

// spread prints the median of rates, followed by ± half of their range where there are
// several.
func spread(rates []float64) string {
	text := fmt.Sprintf("%.1f", median(rates))
	if len(rates) > 1 {
		text += fmt.Sprintf(" ± %.1f", (slices.Max(rates)-slices.Min(rates))/2)
	}
	return text
}

// JSON writes the report, indented.
func (r Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Text writes the report as tables.
func (r Report) Text(w io.Writer) error {
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
		what := fmt.Sprintf("%d+%d, %s", x.Prompt, x.Output, x.streamsText())
		fmt.Fprint(w, opTable(what, x.Steps), kernelTable(what, x.Steps, x.Predicted))
	}
	if r.Limits.Copy > 0 {
		fmt.Fprintf(w, "limits measured in this run: read bandwidth %.1f GB/s, the driver's copies %.1f; matrix rate %.0f GFLOP/s in bf16, ", r.Limits.Read/1e9, r.Limits.Copy/1e9, r.Limits.BF16/1e9)
		if r.Limits.Library > 0 {
			fmt.Fprintf(w, "cuBLASLt's %.0f\n", r.Limits.Library/1e9)
		} else {
			fmt.Fprintf(w, "cuBLASLt's not measured: %s\n", r.Limits.NoLibrary)
		}
	} else if r.Limits.Read > 0 {
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

// percent prints x as a share of limit, "" where limit was not measured.
func percent(x, limit float64) string {
	if limit <= 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*x/limit)
}

func (r Report) printRow(t io.Writer, x Row) {
	prefill, decode := median(x.Prefill), median(x.Decode)
	fmt.Fprintf(t, "prefill %d, %s\t%s\t\t\t%s\t\n", x.Prompt, x.streamsText(), spread(x.Prefill), percent(prefill*x.PromptOp, r.Matrix))
	if len(x.Decode) > 0 {
		fmt.Fprintf(t, "decode %d, %s\t%s\t%.2f GB\t%s\t%s\t\n", x.Output, x.streamsText(), spread(x.Decode), x.StepRead/1e9,
			percent(decode/float64(x.Streams)*x.StepRead, r.Limits.Read), percent(decode*x.DecodeOp, r.Matrix))
	}
	if x.Streams > 1 {
		fmt.Fprintf(t, "both %d+%d, %s\t%s\t\t\t\t\n", x.Prompt, x.Output, x.streamsText(), spread(x.Total))
	}
}
