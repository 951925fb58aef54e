package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/tools/bench/enginebench"
)

// engineFlags are the flags of bench engine.
type engineFlags struct {
	enginebench.Options
	json, turns, limits bool
}

func newBench() *cobra.Command {
	bench := &cobra.Command{
		Use:   "bench",
		Short: "Measure speed, against what this machine can do at most",
		Args:  needArgs(0, 0, "a subcommand"),
	}
	o := engineFlags{}
	eng := &cobra.Command{
		Use:   "engine PROFILE...",
		Short: "Prefill and decode speed of the engine itself, without HTTP",
		Long: `Measures, in one run for each profile: the read bandwidth and multiply-add rate
of this machine (the limits), then prefill and decode tokens per second of the
engine, each also as a share of the limits: of the bandwidth, what a step has to
read (weights once, of a mixture the experts that its tokens are routed to if they
go there evenly, and the pages that attention sees); of the multiply-add rate, two
operations for each weight and token. At the end stand the memory that was planned
and the memory that was held.
A model whose weights are absent runs with random ones (loadFormat "dummy"); with
--layers only its first layers run, and always with random weights. The KV cache is
cut to what the run needs; parsers, media, speculation and the other devices of a
profile are left out.
--work measures other rows than the two: "512+1", one stream that reads 512 tokens and
generates one; "16x128+64", sixteen at once of 128 and 64; "1+128", almost no prompt.
Interrupted, or when the device fails, it prints the rows that it has.
--turns loads the model and then runs the last row once for each line on standard input,
and prints a line of JSON after it: for taking turns with another engine.`,
		Args: needArgs(1, -1, "profiles"),
		RunE: func(c *cobra.Command, args []string) error {
			if o.turns && (o.OpTimes || c.Flags().Changed("repeat") || len(args) > 1) {
				return &usageError{errors.New("--turns: give one profile, and neither --profile nor --repeat"), c.CommandPath()}
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
			defer stop()
			for _, a := range args {
				if err := o.run(ctx, c, a); err != nil {
					return err
				}
			}
			return nil
		},
	}
	eng.Flags().IntVar(&o.Prompt, "prompt-len", 512, "tokens of a prompt")
	eng.Flags().IntVar(&o.Output, "output-len", 64, "tokens to generate")
	eng.Flags().IntVar(&o.Streams, "streams", 16, "requests at once in the concurrent row")
	eng.Flags().IntVar(&o.Repeat, "repeat", 3, "runs of each row; the median is shown")
	eng.Flags().IntVar(&o.Layers, "layers", 0, "run the model's first N layers only; 0: all of them")
	eng.Flags().StringArrayVar(&o.Work, "work", nil, "a row to measure, [STREAMSx]PROMPT+OUTPUT; may be given again")
	eng.Flags().BoolVar(&o.json, "json", false, "print JSON: every run of each row, limits and memory")
	eng.Flags().BoolVar(&o.OpTimes, "profile", false, "also show where steps spend their time, op by op")
	eng.Flags().BoolVar(&o.Eager, "eager", false, "run steps launch by launch, whatever the profile's cudagraph.mode says")
	eng.Flags().BoolVar(&o.limits, "limits", true, "measure what the machine can do; --limits=false leaves out that and all shares of it")
	eng.Flags().BoolVar(&o.turns, "turns", false, "run the last row once for each line on standard input, and print JSON")
	bench.AddCommand(newBenchServe(), newBenchLatency(), newBenchThroughput(), newBenchCompare(), eng)
	return bench
}

// lists are the options of vapp bench that take all words up to the next option.
var lists = []string{"--goodput", "--header", "--metadata"}

// vllmWords rewrites the arguments of vapp bench as vLLM's commands read them: --num_prompts
// becomes --num-prompts, and --metadata a=1 b=2 becomes --metadata a=1 --metadata=b=2.
func vllmWords(args []string) []string {
	if len(args) == 0 || args[0] != "bench" {
		return args
	}
	var out []string
	list, some := "", false // the list option that words belong to, and whether it has a value
	for _, a := range args {
		switch {
		case strings.HasPrefix(a, "--"):
			name, value, given := strings.Cut(a, "=")
			if a = strings.ReplaceAll(name, "_", "-"); slices.Contains(lists, a) {
				list, some = a, given
			} else {
				list = ""
			}
			if given {
				a += "=" + value
			}
		case list != "" && some:
			a = list + "=" + a
		default:
			some = true
		}
		out = append(out, a)
	}
	return out
}

// run measures one profile and prints the report, or takes turns.
func (o engineFlags) run(ctx context.Context, c *cobra.Command, path string) error {
	w := c.OutOrStdout()
	o.Progress = loadProgress(os.Stderr)
	if o.turns {
		return enginebench.Turns(ctx, path, localMachine(), o.Options, c.InOrStdin(), w)
	}
	if o.limits {
		o.Limits = measureLimits
	}
	r, err := enginebench.Run(ctx, path, localMachine(), o.Options)
	if r == nil {
		return err
	}
	if o.json {
		return errors.Join(r.JSON(w), err)
	}
	return errors.Join(r.Text(w), err)
}
