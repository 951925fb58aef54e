package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/schema"
)

// benchOptions are the flags of bench engine.
type benchOptions struct {
	prompt, output, streams, repeat int
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
engine, each also as a share of its limit. Decode is limited by reading the
weights once a step, prefill by two operations for each weight and token.
A model whose weights are absent runs with random ones (loadFormat "dummy"). The
KV cache is cut to what the run needs.`,
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
	eng, err := engine.Open(ctx, p.EngineConfig(engine.Hooks{}, loadProgress(os.Stderr)))
	if err != nil {
		return err
	}
	defer eng.Close()
	cost := costOf(p.Plan.Account.Reservation)
	weights := "weights of the checkpoint"
	if p.Profile.Model.LoadFormat == "dummy" {
		weights = "random weights"
	}
	fmt.Fprintf(w, "%s, %s, on %s", p.Profile.Name, weights, p.Plan.Facts.Device)
	for _, c := range p.Plan.Choices {
		if c.Name == "variant" || c.Name == "threads" {
			fmt.Fprintf(w, ", %s %s", c.Name, c.Value)
		}
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "work\ttokens/s\tlimit\tshare\tof\t\n")
	row := func(name string, rate, limit float64, what string) {
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.0f %%\t%s\t\n", name, rate, limit, 100*rate/limit, what)
	}
	pre, dec := max(top.bf16, top.f32)/cost.opsPerToken, top.read/cost.bytesPerStep
	for _, r := range []struct {
		name    string
		streams int
	}{{"one stream", 1}, {fmt.Sprintf("%d streams", o.streams), o.streams}} {
		prefill, decode, err := o.measure(ctx, eng, r.streams, int32(p.Model.Family.Vocab()))
		if err != nil {
			return err
		}
		row(fmt.Sprintf("prefill %d, %s", o.prompt, r.name), prefill, pre, "matrix rate")
		row(fmt.Sprintf("decode %d, %s", o.output, r.name), decode, dec*float64(r.streams), "read bandwidth")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "limits measured in this run: read bandwidth %.1f GB/s, matrix rate %.0f GFLOP/s in f32, %.0f in bf16\n\n",
		top.read/1e9, top.f32/1e9, top.bf16/1e9)
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
	m := here()
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

// ceiling is what the machine does at most: bytes read a second, and
// floating-point operations a second by number format.
type ceiling struct{ read, f32, bf16 float64 }

// cost is what a model asks of a machine.
type cost struct{ bytesPerStep, opsPerToken float64 }

// costOf counts the weights that every step multiplies by, and the operations
// of one prompt token: two for each weight but those of the head, which runs on
// sampled rows only.
func costOf(r backend.Reservation) cost {
	var c cost
	for i, w := range r.Weights {
		if w.Use&backend.Multiply == 0 {
			continue
		}
		c.bytesPerStep += float64(r.Packed[i].Bytes)
		if w.Use&backend.Lookup == 0 && w.Group != "head" {
			c.opsPerToken += 2 * float64(w.Elems())
		}
	}
	return c
}
