package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/schema"
)

// benchOptions are the flags of bench engine.
type benchOptions struct {
	prompt, output, streams, repeat int
	layers                          int // of the model, its first ones; 0: all
	profile                         bool
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
profile are left out.`,
		Args: needArgs(1, -1, "profiles"),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
			defer stop()
			for _, a := range args {
				if err := benchEngine(ctx, c.OutOrStdout(), a, o); err != nil {
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
	eng.Flags().BoolVar(&o.profile, "profile", false, "also show where steps spend their time, op by op")
	bench.AddCommand(eng)
	return bench
}

// benchEngine measures one profile.
func benchEngine(ctx context.Context, w io.Writer, path string, o benchOptions) error {
	p, err := o.prepare(path)
	if err != nil {
		return err
	}
	defer p.Close()
	top, err := limits(p)
	if err != nil {
		return err
	}
	held, start := beginPeak(), time.Now()
	config := p.EngineConfig(engine.Hooks{}, loadProgress(os.Stderr))
	config.Options.Backend.Profile = o.profile
	eng, err := engine.Open(ctx, config)
	if err != nil {
		return err
	}
	defer eng.Close()
	b := engineBench{benchOptions: o, p: p, eng: eng, top: top, w: w}
	b.title(time.Since(start))
	if err := b.rows(ctx); err != nil {
		return err
	}
	return b.memory(held)
}

// engineBench is a model that is loaded and measured.
type engineBench struct {
	benchOptions
	p   *appliance.Prepared
	eng *engine.Engine
	top ceiling
	w   io.Writer
}

// title says what runs.
func (b engineBench) title(load time.Duration) {
	p, weights := b.p, "weights of the checkpoint"
	if p.Profile.Model.LoadFormat == "dummy" {
		weights = "random weights"
	}
	if b.layers > 0 {
		weights += fmt.Sprintf(", its first %d layers", b.layers)
	}
	fmt.Fprintf(b.w, "%s, %s, on %s", p.Profile.Name, weights, p.Plan.Facts.Device)
	for _, c := range p.Plan.Choices {
		if c.Name == "variant" || c.Name == "threads" {
			fmt.Fprintf(b.w, ", %s %s", c.Name, c.Value)
		}
	}
	fmt.Fprintf(b.w, ", loaded in %.1f s\n", load.Seconds())
}

// rows measures one stream and several, and prints a line for each.
func (b engineBench) rows(ctx context.Context) error {
	cost, matrix := costOf(b.p.Plan.Account.Reservation, b.prompt+b.output/2), b.top.matrix(b.p.Plan.Choices)
	t := tabwriter.NewWriter(b.w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "work\ttokens/s\tread a step\tof bandwidth\tof matrix rate\t\n")
	var shares []any
	for _, r := range []struct {
		name    string
		streams int
	}{{"one stream", 1}, {fmt.Sprintf("%d streams", b.streams), b.streams}} {
		spent := b.opTimes()
		prefill, decode, err := b.measure(ctx, b.eng, r.streams, int32(b.p.Model.Family.Vocab()))
		if err != nil {
			return err
		}
		fmt.Fprintf(t, "prefill %d, %s\t%.1f\t\t\t%.0f %%\t\n", b.prompt, r.name, prefill, 100*prefill*cost.prompt/matrix)
		bytes := cost.step(r.streams)
		fmt.Fprintf(t, "decode %d, %s\t%.1f\t%.2f GB\t%.0f %%\t%.0f %%\t\n", b.output, r.name, decode, bytes/1e9,
			100*decode/float64(r.streams)*bytes/b.top.read, 100*decode*cost.decode/matrix)
		shares = append(shares, opShares(r.name, spent, b.opTimes()))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if b.profile {
		fmt.Fprint(b.w, shares...)
	}
	_, err := fmt.Fprintf(b.w, "limits measured in this run: read bandwidth %.1f GB/s, matrix rate %.0f GFLOP/s in f32, %.0f in bf16\n",
		b.top.read/1e9, b.top.f32/1e9, b.top.bf16/1e9)
	return err
}

// memory holds the plan against what was taken: the arenas to the byte, and the peak
// of what was resident against everything that is planned.
func (b engineBench) memory(held peak) error {
	var planned, actual int64
	for _, l := range b.p.Plan.Ledger.Compare(b.eng.Usage()) {
		planned, actual = planned+l.Planned, actual+l.Actual
		if l.Difference() != 0 {
			return fmt.Errorf("bench: %v", l)
		}
	}
	fmt.Fprintf(b.w, "memory: arenas %s planned, %s taken, difference=%d; ", plan.Size(planned), plan.Size(actual), actual-planned)
	peak, err := held.bytes()
	if err != nil {
		_, err = fmt.Fprintf(b.w, "peak not measured: %v\n\n", err)
		return err
	}
	_, err = fmt.Fprintf(b.w, "peak %s resident, of %s planned with the process\n\n", plan.Size(peak), plan.Size(b.p.Plan.Ledger.Total()))
	return err
}

// prepare plans a profile for the run: room for its streams, and random weights
// where there are no others.
func (o benchOptions) prepare(path string) (*appliance.Prepared, error) {
	profile, err := schema.Load(path)
	if err != nil {
		return nil, err
	}
	const block = 16
	length := (o.prompt + o.output + block - 1) / block * block
	profile.MaxModelLen = schema.Count(length)
	profile.Scheduler.MaxNumSeqs = min(profile.Scheduler.MaxNumSeqs, max(o.streams, 1))
	profile.Memory.KVCache, profile.Memory.Utilization = 0, 1
	profile.Parsers.Reasoning, profile.Parsers.ToolCall, profile.Parsers.AutoToolChoice = "", "", false
	profile.Speculative, profile.Multimodal, profile.Require = nil, nil, nil
	profile.Parallel.Tensor, profile.Parallel.Pipeline = 1, 1
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
	profile.Memory.KVCache, profile.Memory.Utilization = schema.Bytes(perToken*int64(length*(o.streams+1))+64<<20), 0
	if p.Model.Loadable() != nil {
		profile.Model.LoadFormat = "dummy"
	}
	if err := errors.Join(p.Refuse(), p.Close()); err != nil {
		return nil, err
	}
	return appliance.PrepareProfile(profile, m)
}
