package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/engine"
	"vapp.dev/schema"
)

// benchOptions are the flags of bench engine.
type benchOptions struct {
	prompt, output, streams, repeat int
	layers                          int      // of the model, its first ones; 0: all
	work                            []string // rows in place of the two that prompt, output and streams say
	json, profile, turns, limits    bool
	eager                           bool // no CUDA graphs
}

func newBench() *cobra.Command {
	bench := &cobra.Command{
		Use:   "bench",
		Short: "Measure speed, against what this machine can do at most",
		Args:  needArgs(0, 0, "a subcommand"),
	}
	o := benchOptions{}
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
			if o.turns && (o.profile || c.Flags().Changed("repeat") || len(args) > 1) {
				return &usageError{errors.New("--turns: give one profile, and neither --profile nor --repeat"), c.CommandPath()}
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
			defer stop()
			for _, a := range args {
				if err := benchEngine(ctx, c, a, o); err != nil {
					return err
				}
			}
			return nil
		},
	}
	eng.Flags().IntVar(&o.prompt, "prompt-len", 512, "tokens of a prompt")
	eng.Flags().IntVar(&o.output, "output-len", 64, "tokens to generate")
	eng.Flags().IntVar(&o.streams, "streams", 16, "requests at once in the concurrent row")
	eng.Flags().IntVar(&o.repeat, "repeat", 3, "runs of each row; the median is shown")
	eng.Flags().IntVar(&o.layers, "layers", 0, "run the model's first N layers only; 0: all of them")
	eng.Flags().StringArrayVar(&o.work, "work", nil, "a row to measure, [STREAMSx]PROMPT+OUTPUT; may be given again")
	eng.Flags().BoolVar(&o.json, "json", false, "print JSON: every run of each row, limits and memory")
	eng.Flags().BoolVar(&o.profile, "profile", false, "also show where steps spend their time, op by op")
	eng.Flags().BoolVar(&o.eager, "eager", false, "run steps launch by launch, whatever the profile's cudagraph.mode says")
	eng.Flags().BoolVar(&o.limits, "limits", true, "measure what the machine can do; --limits=false leaves out that and all shares of it")
	eng.Flags().BoolVar(&o.turns, "turns", false, "run the last row once for each line on standard input, and print JSON")
	bench.AddCommand(newBenchServe(), newBenchLatency(), newBenchThroughput(), newBenchCompare(), eng)
	return bench
}

// lists are options of vapp bench that take all words up to the next option.
var lists = []string{"--goodput", "--header", "--metadata"}

// vllmWords takes the words of vapp bench as vLLM's commands do: --num_prompts is
// --num-prompts, and --metadata a=1 b=2 is --metadata a=1 --metadata b=2.
func vllmWords(args []string) []string {
	if len(args) == 0 || args[0] != "bench" {
		return args
	}
	var out []string
	list, some := "", false // the list that words belong to, and whether it has one
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

// benchEngine measures one profile.
func benchEngine(ctx context.Context, c *cobra.Command, path string, o benchOptions) error {
	w := c.OutOrStdout()
	p, err := o.prepare(path)
	if err != nil {
		return err
	}
	defer p.Close()
	var top ceiling
	if o.limits && !o.turns { // who asks for turns measures them between those
		if top, err = limits(p); err != nil {
			return err
		}
	}
	held, start := beginPeak(), time.Now()
	config := p.EngineConfig(engine.Hooks{}, loadProgress(os.Stderr))
	config.Options.Backend.TimeOps = o.profile
	eng, err := engine.Open(ctx, config)
	if err != nil {
		return err
	}
	defer eng.Close()
	debug.FreeOSMemory() // as up does
	b := engineBench{benchOptions: o, p: p, eng: eng}
	if o.turns {
		return b.turns(ctx, c.InOrStdin(), w)
	}
	r := b.report(top, time.Since(start))
	var cut error
	if r.Rows, cut = b.measure(ctx); cut != nil {
		if len(r.Rows) == 0 {
			return cut
		}
		r.Cut = fmt.Sprintf("interrupted after %d rows", len(r.Rows))
		if ctx.Err() == nil {
			r.Cut = fmt.Sprintf("failed after %d rows: %v", len(r.Rows), cut)
		}
	}
	if r.Memory, err = b.memory(held); err != nil {
		return errors.Join(cut, err)
	}
	if o.json {
		return errors.Join(r.printJSON(w), cut)
	}
	return errors.Join(r.print(w), cut)
}

// engineBench is a model that is loaded and measured.
type engineBench struct {
	benchOptions
	p   *appliance.Prepared
	eng *engine.Engine
}

// report says what runs; the rows are still to be measured.
func (b engineBench) report(top ceiling, load time.Duration) benchReport {
	p := b.p
	r := benchReport{
		Profile: p.Profile.Name, Weights: "weights of the checkpoint", Device: p.Plan.Facts.Device,
		Load: load.Seconds(), Limits: top, Matrix: top.matrix(p.Plan.Choices),
	}
	if p.Profile.Model.LoadFormat == "dummy" {
		r.Weights = "random weights"
	}
	if b.layers > 0 {
		r.Weights += fmt.Sprintf(", its first %d layers", b.layers)
	}
	for _, c := range p.Plan.Choices {
		switch c.Name {
		case "variant":
			r.Variant = c.Value
		case "threads":
			r.Threads = c.Value
		}
	}
	return r
}

// measure runs the rows, with what each asks of the machine. Beside an error are the rows
// before it.
func (b engineBench) measure(ctx context.Context) ([]benchRow, error) {
	rows, err := b.rows()
	if err != nil {
		return nil, err
	}
	var out []benchRow
	for _, w := range rows {
		spent := b.opTimes()
		row, err := w.measure(ctx, b.eng, b.repeat, int32(b.p.Model.Family.Vocab()))
		if err != nil {
			return out, err
		}
		cost := costOf(b.p.Plan.Account.Reservation, w.Prompt+w.Output/2)
		row.StepRead, row.PromptOp, row.DecodeOp = cost.step(w.Streams), cost.prompt, cost.decode
		if b.profile {
			row.Steps = opSteps(b.threads(), spent, b.opTimes())
		}
		out = append(out, row)
	}
	return out, nil
}

// memory holds the plan against what was taken: the arenas to the byte, and the peak
// of what was resident against everything that is planned.
func (b engineBench) memory(held peak) (benchMemory, error) {
	m := benchMemory{Planned: b.p.Plan.Ledger.Total()}
	for _, l := range b.p.Plan.Ledger {
		m.Items = append(m.Items, benchItem{l.Name, l.Bytes, string(l.Basis)})
	}
	for _, l := range b.p.Plan.Ledger.Compare(b.eng.Usage()) {
		m.Arenas, m.Taken = m.Arenas+l.Planned, m.Taken+l.Actual
		if l.Difference() != 0 {
			return m, fmt.Errorf("bench: %v", l)
		}
	}
	if total, before, now, ok := b.eng.Memory(); ok {
		graphs, _ := b.eng.GraphBytes()
		m.GPU = &benchGPU{total, before, now, graphs}
	}
	var err error
	if m.Peak, err = held.bytes(); err != nil {
		m.Unmeasured = err.Error()
	}
	return m, nil
}

// prepare plans a profile for the run: room for its streams, and random weights
// where there are no others.
func (o benchOptions) prepare(path string) (*appliance.Prepared, error) {
	profile, err := schema.Load(path)
	if err != nil {
		return nil, err
	}
	rows, err := o.rows()
	if err != nil {
		return nil, err
	}
	length, streams, tokens := workRoom(rows)
	profile.MaxModelLen = schema.Count(length)
	profile.Scheduler.MaxNumSeqs = min(profile.Scheduler.MaxNumSeqs, max(streams, 1))
	profile.Memory.KVCache, profile.Memory.Utilization = 0, 1
	profile.Parsers.Reasoning, profile.Parsers.ToolCall, profile.Parsers.AutoToolChoice = "", "", false
	profile.Speculative, profile.Multimodal, profile.Require = nil, nil, nil
	profile.Parallel.Tensor, profile.Parallel.Pipeline = 1, 1
	if o.eager {
		profile.Cudagraph = &schema.Cudagraph{Mode: "none"}
	}
	m := here()
	if o.layers > 0 {
		dir, err := os.MkdirTemp("", "vapp-bench-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		if m.Config, err = o.cutOf(profile, dir); err != nil {
			return nil, err
		}
	}
	p, err := appliance.PrepareProfile(profile, m)
	if err != nil {
		return nil, err
	}
	perToken := p.Plan.Capacity.BytesPerToken
	// A block of each stream is kept ahead, and slabs of each class are not full.
	slack := min(64<<20, perToken*int64(streams)*benchBlock+2*p.Plan.Account.KV.SlabBytes*int64(len(p.Plan.Account.KV.Specs)))
	profile.Memory.KVCache, profile.Memory.Utilization = schema.Bytes(perToken*int64(tokens)+slack), 0
	if p.Model.Loadable() != nil {
		profile.Model.LoadFormat = "dummy"
	}
	if err := errors.Join(p.Refuse(), p.Close()); err != nil {
		return nil, err
	}
	return appliance.PrepareProfile(profile, m)
}
