package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/engine"
	"vapp.dev/engine/tokenizer"
	"vapp.dev/schema"
	"vapp.dev/tools/bench"
	"vapp.dev/tools/bench/offline"
	"vapp.dev/tools/bench/workload"
)

// offlineBench are the flags of bench latency and bench throughput.
type offlineBench struct {
	batch   offline.Batch
	dataset bench.Dataset
	n       int
	prompts int
	seed    int64
	silent  bool // without detokenizing
	json    string
}

const offlineNote = `
The profile runs as with "vapp up", without HTTP. A model without weights runs with
random ones (loadFormat "dummy").`

func newBenchLatency() *cobra.Command {
	o := &offlineBench{}
	c := &cobra.Command{
		Use:   "latency PROFILE",
		Short: "How long one batch takes in this process, without a server",
		Long:  "Prints the mean and the percentiles of the time of a batch of random prompts, from\nsubmission to the last token, as vLLM's \"bench latency\" does." + offlineNote,
		Args:  needArgs(1, 1, "one profile"),
		RunE:  func(c *cobra.Command, args []string) error { return o.run(c, args[0], o.latency) },
	}
	f := c.Flags()
	f.IntVar(&o.batch.Input, "input-len", 32, "tokens of each prompt")
	f.IntVar(&o.batch.Output, "output-len", 128, "tokens to generate for each")
	f.IntVar(&o.batch.Size, "batch-size", 8, "prompts of a batch")
	f.IntVar(&o.batch.Warmups, "num-iters-warmup", 10, "warm-up batches")
	f.IntVar(&o.batch.Iterations, "num-iters", 30, "measured batches")
	f.Int64Var(&o.batch.Seed, "seed", 0, "seed of the prompts' tokens")
	o.flags(c)
	return c
}

func newBenchThroughput() *cobra.Command {
	o := &offlineBench{}
	c := &cobra.Command{
		Use:   "throughput PROFILE",
		Short: "Tokens per second of a workload in this process, without a server",
		Long:  "Submits a whole workload at once and prints requests and tokens per second, as\nvLLM's \"bench throughput\" does." + offlineNote,
		Args:  needArgs(1, 1, "one profile"),
		RunE:  func(c *cobra.Command, args []string) error { return o.run(c, args[0], o.throughput) },
	}
	c.Flags().IntVar(&o.prompts, "num-prompts", 1000, "prompts to answer")
	c.Flags().Int64Var(&o.seed, "seed", 0, "seed of lengths, tokens and order")
	datasetFlags(c, &o.dataset)
	o.flags(c)
	return c
}

func (o *offlineBench) flags(c *cobra.Command) {
	f := c.Flags()
	f.IntVar(&o.n, "n", 1, "answers to each prompt")
	f.BoolVar(&o.silent, "disable-detokenize", false, "do not detokenize in the measured time")
	f.StringVar(&o.json, "output-json", "", "file for the figures")
}

// outcome is a report that can be printed and saved.
type outcome interface {
	Some() bool
	Text() string
	JSON() ([]byte, error)
}

// loaded is an open engine and its tokenizer.
type loaded struct {
	offline.Bench
	text *bench.Local
}

// run opens the profile, measures, and prints and saves the result.
func (o *offlineBench) run(c *cobra.Command, path string, measure func(context.Context, loaded) (outcome, error)) error {
	if err := o.check(c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
	defer stop()
	p, handled, err := prepareOffline(c, path)
	if handled || err != nil {
		return err
	}
	defer p.Close()
	tok, eng, err := openOffline(ctx, p)
	if err != nil {
		return err
	}
	defer tok.Close()
	defer eng.Close()
	l := loaded{offline.Bench{Engine: eng, Text: tok, N: o.n}, bench.NewLocal(tok)}
	if o.silent {
		l.Text = nil
	}
	show, end := countProgress(os.Stderr, "Measuring")
	l.Progress = show
	result, err := measure(ctx, l)
	end()
	if err != nil && !(errors.Is(err, context.Canceled) && result != nil && result.Some()) {
		return err
	}
	return errors.Join(err, o.print(c, result))
}

// print prints and saves the result.
func (o *offlineBench) print(c *cobra.Command, result outcome) error {
	fmt.Fprint(c.OutOrStdout(), result.Text())
	if o.json == "" {
		return nil
	}
	text, err := result.JSON()
	if err != nil {
		return err
	}
	return os.WriteFile(o.json, text, 0o666)
}

func openOffline(ctx context.Context, p *appliance.Prepared) (*tokenizer.Tokenizer, *engine.Engine, error) {
	text, err := p.Model.Checkpoint.TokenizerJSON()
	if err != nil {
		return nil, nil, err
	}
	tok, err := tokenizer.Load(text, tokenizer.LoadOptions{})
	if err != nil {
		return nil, nil, err
	}
	eng, err := p.OpenEngine(ctx, p.EngineConfig(engine.Hooks{}, loadProgress(os.Stderr)))
	if err != nil {
		tok.Close()
		return nil, nil, err
	}
	eng.SetMaxQueue(0)
	return tok, eng, nil
}

// check refuses counts that are too small.
func (o *offlineBench) check(c *cobra.Command) error {
	for _, f := range []struct {
		name  string
		least int
	}{{"n", 1}, {"batch-size", 1}, {"num-iters", 1}, {"num-iters-warmup", 0}, {"num-prompts", 1}, {"input-len", 1}, {"output-len", 1}} {
		flag := c.Flags().Lookup(f.name)
		if flag == nil || !flag.Changed {
			continue // the defaults are valid
		}
		if n, err := c.Flags().GetInt(f.name); err == nil && n < f.least {
			return &usageError{fmt.Errorf("--%s %d: give %d or more", f.name, n, f.least), c.CommandPath()}
		}
	}
	return nil
}

func (o *offlineBench) latency(ctx context.Context, l loaded) (outcome, error) {
	v, err := l.text.Vocabulary(ctx)
	if err != nil {
		return nil, err
	}
	return l.Latency(ctx, o.batch, v)
}

func (o *offlineBench) throughput(ctx context.Context, l loaded) (outcome, error) {
	requests, err := o.dataset.Make(ctx, workload.Maker{Count: o.prompts, Seed: o.seed, Tokenizer: l.text})
	if err != nil {
		return nil, err
	}
	return l.Throughput(ctx, requests)
}

// prepareOffline plans a profile, with random weights where the model has no loadable ones. handled is that of ranked.
func prepareOffline(c *cobra.Command, path string) (_ *appliance.Prepared, handled bool, err error) {
	profile, err := schema.Load(path)
	if err != nil {
		return nil, false, err
	}
	m := localMachine()
	p, err := appliance.PrepareProfile(profile, m)
	if err != nil {
		return nil, false, err
	}
	if err := p.Refuse(); err != nil {
		return nil, false, errors.Join(err, p.Close())
	}
	loadable := p.Model.Loadable() == nil
	if loadable && profile.Parallel.Ranks() == 1 {
		return p, false, nil
	}
	if err := p.Close(); err != nil {
		return nil, false, err
	}
	if !loadable {
		profile.Model.LoadFormat = "dummy"
	}
	if handled, err := ranked(c, profile, &m, appliance.Follow); handled || err != nil {
		return nil, handled, err
	}
	p, err = appliance.PrepareProfile(profile, m)
	return p, false, err
}
