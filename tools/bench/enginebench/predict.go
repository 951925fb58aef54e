package enginebench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"vapp.dev/appliance"
	"vapp.dev/engine"
	"vapp.dev/engine/speed"
)

// PredictedStep is a step of a row as the cost model of GPUs predicts it, in the middle of the row: its
// prefill, or its decoding.
type PredictedStep struct {
	Kind     string             `json:"kind"`   // prefill, decode
	Tokens   int                `json:"tokens"` // of the step
	Launches int                `json:"launches"`
	Seconds  float64            `json:"seconds"`
	Fixed    float64            `json:"launch_seconds"` // of Seconds: gaps between launches, and their ramps
	Limit    float64            `json:"limit_seconds"`  // in which the GPU's memory or its matrix units can do it at best
	Bytes    float64            `json:"bytes"`          // weights, keys and values
	Flops    float64            `json:"operations"`
	Kernels  []speed.KernelTime `json:"kernels"` // the longest first
}

// predictor returns the cost model of the plan's GPU.
func predictor(p *appliance.Prepared) (*engine.Predictor, error) {
	if p.Plan.Ranks > 1 {
		return nil, errors.New("the model is split over several devices")
	}
	r, _, err := speed.Estimate(p.Plan.Facts, "", 1)
	if err != nil {
		return nil, err
	}
	return engine.NewPredictor(p.Plan.Options, p.Plan.Account, r)
}

// predicted returns the steps of a row: of its prompts as many as fit a step, or a part of one from the
// middle of its positions; then all streams at the middle of what they generate.
func (s session) predicted(w Work) ([]PredictedStep, error) {
	chunk := s.p.Plan.Options.MaxNumBatchedTokens
	prompts := slices.Repeat([]speed.Row{{Count: w.Prompt, Draw: true}}, max(1, min(w.Streams, chunk/w.Prompt)))
	if w.Prompt > chunk {
		prompts = []speed.Row{{From: (w.Prompt - chunk) / 2, Count: chunk}}
	}
	var out []PredictedStep
	add := func(kind string, rows []speed.Row) error {
		t, ok, err := s.predictor.OnGPU(rows)
		if !ok || err != nil {
			return err
		}
		tokens := 0
		for _, r := range rows {
			tokens += r.Count
		}
		out = append(out, PredictedStep{kind, tokens, t.Launches, t.Seconds, t.Fixed, t.Limit, t.Bytes, t.Flops, t.Kernels})
		return nil
	}
	err := add("prefill", prompts)
	if err == nil && w.Output > 1 {
		err = add("decode", slices.Repeat([]speed.Row{{From: w.Prompt + w.Output/2, Count: 1, Draw: true}}, w.Streams))
	}
	return out, err
}

// kernelTable prints the kernels of steps: measured, predicted, and what the GPU could do at best.
func kernelTable(work string, steps []StepTimes, predicted []PredictedStep) string {
	var out strings.Builder
	for _, s := range steps {
		if len(s.Kernels) == 0 {
			continue
		}
		var all []speed.KernelTime
		for _, p := range predicted {
			if p.Kind == s.Kind {
				all = p.Kernels
			}
		}
		t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(t, "kernel, %s, %s\tlaunches\tµs a step\tpredicted\tlimit\tMB\tGFLOP\t\n", s.Kind, work)
		for _, k := range s.Kernels {
			fmt.Fprintf(t, "%s\t%d\t%.1f\t", k.Op, k.Calls, k.Micros)
			if i := slices.IndexFunc(all, func(p speed.KernelTime) bool { return p.Kernel == k.Op }); i >= 0 {
				p := all[i]
				fmt.Fprintf(t, "%.1f\t%.1f\t%.2f\t%.2f\t\n", 1e6*p.Seconds, 1e6*p.Limit, p.Bytes/1e6, p.Flops/1e9)
			} else {
				fmt.Fprint(t, "\t\t\t\t\n")
			}
		}
		t.Flush() // writing to a strings.Builder does not fail
	}
	return out.String()
}
