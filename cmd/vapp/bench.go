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
		Short: "Measure speed, and compare it with the limits of this machine",
		Args:  needArgs(0, 0, "a subcommand"),
	}
	o := engineFlags{}
	eng := &cobra.Command{
		Use:   "engine PROFILE|MODEL...",
		Short: "Prefill and decode speed of the engine itself, without HTTP",
		Long: `Measures for each profile: the limits of this machine (read bandwidth and
multiply-add rate), then the prefill and decode speed of the engine in tokens per
second, also as a share of the limits. The share of bandwidth counts the bytes that a
step must read: the weights once (of experts, those that the tokens are routed to if
routing is uniform) and the KV cache that attention reads. The share of the
multiply-add rate counts two operations for each weight and token. The report ends
with planned and allocated memory.
A model without weights runs with random ones (loadFormat "dummy"). With --layers
only its first layers run, always with random weights. The KV cache is reduced to
what the run needs; parsers, media and speculation of the profile are ignored, and
its parallelism unless its ranks are started here (cpu.ranks, GPUs) or by a launcher.
--work replaces the two default rows: "512+1" is one stream of 512 prompt tokens and
one generated token; "16x128+64" is 16 concurrent streams of 128 and 64; "1+128" has
almost no prompt.
If it is interrupted or the device fails, it prints the rows measured so far.
--turns loads the model, then runs the last row once for each line on standard input
and prints a line of JSON after each, to alternate with another engine.

` + argHelp,
		Args: needArgs(1, -1, "profiles or models"),
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
	eng.Flags().IntVar(&o.Prompt, "prompt-len", 512, "prompt length in tokens")
	eng.Flags().IntVar(&o.Output, "output-len", 64, "tokens to generate")
	eng.Flags().IntVar(&o.Streams, "streams", 16, "concurrent requests in the second row")
	eng.Flags().IntVar(&o.Repeat, "repeat", 3, "runs of each row; the median is shown")
	eng.Flags().IntVar(&o.Layers, "layers", 0, "run the model's first N layers only; 0: all of them")
	eng.Flags().StringArrayVar(&o.Work, "work", nil, "a row to measure, [STREAMSx]PROMPT+OUTPUT; may be repeated")
	eng.Flags().BoolVar(&o.json, "json", false, "print JSON: every run of each row, limits and memory")
	eng.Flags().BoolVar(&o.OpTimes, "profile", false, "also show the time of each op in a step")
	eng.Flags().BoolVar(&o.Eager, "eager", false, "run without CUDA graphs, whatever the profile's cudagraph.mode")
	eng.Flags().BoolVar(&o.limits, "limits", true, "measure the limits of the machine; --limits=false omits them and all shares")
	eng.Flags().BoolVar(&o.turns, "turns", false, "run the last row once for each line on standard input, and print JSON")
	profileFlags(eng, false)
	bench.AddCommand(newBenchServe(), newBenchLatency(), newBenchThroughput(), newBenchCompare(), newBenchSteps(), newBenchReplicas(), eng)
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
func (o engineFlags) run(ctx context.Context, c *cobra.Command, arg string) error {
	path, m, err := profileArg(c, arg, localMachine(), argUse{})
	if err != nil {
		return err
	}
	if handled, err := benchRanked(c, path, &m, o.Options); handled || err != nil {
		return err
	}
	w := c.OutOrStdout()
	o.Progress = loadProgress(os.Stderr)
	if o.turns {
		return enginebench.Turns(ctx, path, m, o.Options, c.InOrStdin(), w)
	}
	if o.limits {
		o.Limits = measureLimits
	}
	r, err := enginebench.Run(ctx, path, m, o.Options)
	if r == nil {
		return err
	}
	if o.json {
		return errors.Join(r.JSON(w), err)
	}
	return errors.Join(r.Text(w), err)
}
