package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/engine"
	"vapp.dev/tools/bench/steps"
)

func newBenchSteps() *cobra.Command {
	var output string
	var rounds int
	c := &cobra.Command{
		Use:   "steps PROFILE --output FILE",
		Short: "Measure how long steps take, and save the cost model for bench replicas",
		Long: `Runs prompts of several lengths, streams that decode, and both together, on the engine
in this process, and fits how long a step takes by what it computes. The file is what
"vapp bench replicas --cost-model" simulates with. Measure on the machine that is to
serve, while it does nothing else.` + offlineNote,
		Args: needArgs(1, 1, "one profile"),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case output == "":
				return &usageError{errors.New("--output: name the file for the cost model"), c.CommandPath()}
			case rounds < 1 || rounds > 1000:
				return &usageError{fmt.Errorf("--rounds %d: give 1 to 1000", rounds), c.CommandPath()}
			}
			return benchSteps(c, args[0], output, rounds)
		},
	}
	c.Flags().StringVar(&output, "output", "", "file for the cost model")
	c.Flags().IntVar(&rounds, "rounds", 3, "how often each load runs")
	return c
}

// benchSteps measures the profile and writes the file.
func benchSteps(c *cobra.Command, path, output string, rounds int) error {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
	defer stop()
	p, handled, err := prepareOffline(c, path)
	if handled || err != nil {
		return err
	}
	defer p.Close()
	if _, err := p.Plan.Simulate(nil); err != nil {
		return err
	}
	var r steps.Recorder
	e, err := p.OpenEngine(ctx, p.EngineConfig(engine.Hooks{Step: r.Step}, loadProgress(os.Stderr)))
	if err != nil {
		return err
	}
	defer e.Close()
	e.SetMaxQueue(0)
	show, end := countProgress(os.Stderr, "Measuring")
	options := p.Plan.Options
	limits := steps.Limits{BatchedTokens: options.MaxNumBatchedTokens, Seqs: options.MaxNumSeqs, ModelLen: options.MaxModelLen, KVTokens: p.Plan.Capacity.Tokens}
	m, n, err := steps.Measure(ctx, e, &r, limits, p.Model.Family.Vocab(), rounds, show)
	end()
	if err != nil {
		return err
	}
	f := stepsOf(p)
	f.Measured, f.Steps, f.Count = time.Now().UTC().Truncate(time.Second), *m, n
	text, err := f.Bytes()
	if err != nil {
		return err
	}
	if err := os.WriteFile(output, text, 0o666); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %d steps on %s; half of them within %+.0f %% and %+.0f %% of the fit\n", output, n, f.Device,
		100*(m.Ratios.At(0.25)-1), 100*(m.Ratios.At(0.75)-1))
	return err
}

// stepsOf returns what a cost model of the plan's engine says of it.
func stepsOf(p *appliance.Prepared) steps.File {
	f := steps.File{Model: filepath.Base(p.Plan.Model.Source), Backend: p.Plan.Backend, KVFormat: p.Plan.Options.KVFormat.String(), Device: p.Plan.Facts.Device, Version: version}
	for _, choice := range p.Plan.Choices {
		if choice.Name == "threads" {
			f.Threads = choice.Value
		}
	}
	return f
}
