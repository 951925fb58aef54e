package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/engine"
	"vapp.dev/engine/tokenizer"
	"vapp.dev/tools/bench"
	"vapp.dev/tools/bench/replicas"
	"vapp.dev/tools/bench/steps"
	"vapp.dev/tools/bench/workload"
)

// replicasBench are the flags of bench replicas.
type replicasBench struct {
	target     target
	dataset    bench.Dataset
	arrivals   workload.Arrivals
	prompts    int
	seed       int64
	want       string
	percentile float64
	most       int
	routing    string
	costs      string
	json       bool
}

func newBenchReplicas() *cobra.Command {
	o := &replicasBench{}
	c := &cobra.Command{
		Use:   "replicas PROFILE|MODEL --target ttft:500,itl:50",
		Short: "How many replicas a workload needs for a latency target, by simulation",
		Long: `Simulates replicas of a profile behind a router: the engine's own scheduler makes
the steps of each, on one clock, and every step takes the time of a cost model.
Nothing is loaded. It prints the smallest number of replicas that meets the target,
and what fewer of them do.

--cost-model is a file that vapp bench steps measured on such a machine. Without it
step times are those of vapp plan --speed, and the report says "predicted".
The flags of the workload are those of vapp bench serve; --target has limits in ms of
ttft, itl and e2el.

` + argHelp,
		Example: `  vapp bench steps profiles/smollm2.cue --output steps.json
  vapp bench replicas profiles/smollm2.cue --cost-model steps.json \
    --request-rate 8 --target ttft:500,itl:50
  vapp bench replicas profiles/smollm2.cue --gpu cpu-16c-64g \
    --request-rate 8 --target ttft:500`,
		Args: needArgs(1, 1, "one profile or model"),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args[0]) },
	}
	f := c.Flags()
	f.StringVar(&o.want, "target", "", "limits in ms, such as ttft:500,itl:50,e2el:8000")
	f.Float64Var(&o.percentile, "target-percentile", 95, "percentile of the target")
	f.IntVar(&o.most, "max-replicas", 64, "replicas at most")
	f.StringVar(&o.routing, "routing", "least-requests", "how the router picks a replica: round-robin, least-requests, prefix")
	f.StringVar(&o.costs, "cost-model", "", "file of vapp bench steps (default: the predictions of vapp plan --speed)")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.IntVar(&o.prompts, "num-prompts", 1000, "requests to simulate")
	f.Float64Var(&o.arrivals.Rate, "request-rate", math.Inf(1), "requests per second; inf: all at once")
	f.Float64Var(&o.arrivals.Burstiness, "burstiness", 1, "shape of the gamma distribution of gaps: 1 is a Poisson process, less is burstier, more is more even")
	f.StringVar(&o.arrivals.RampUp, "ramp-up-strategy", "", "linear or exponential: increase the rate over the run")
	f.Float64Var(&o.arrivals.Start, "ramp-up-start-rps", 0, "requests per second at the start of the ramp")
	f.Float64Var(&o.arrivals.End, "ramp-up-end-rps", 0, "requests per second at its end")
	f.Int64Var(&o.seed, "seed", 0, "seed of lengths, tokens, order, arrivals, and of how steps vary")
	datasetFlags(c, &o.dataset)
	o.target.flags(c)
	o.target.configFlag(c)
	backendFlag(c, &o.target.backend)
	profileFlags(c, false)
	return c
}

// check returns what is wrong with the flags, as a usage error.
func (o *replicasBench) check(c *cobra.Command) (replicas.Target, error) {
	t, err := replicas.ParseTarget(o.want, o.percentile)
	switch {
	case o.want == "":
		err = &replicas.TargetError{Text: "", Why: "it is missing"}
	case err != nil:
	case !(o.percentile > 0 && o.percentile <= 100):
		err = fmt.Errorf("--target-percentile %v: give one above 0, at most 100", o.percentile)
	case o.most < 1 || o.most > 4096:
		err = fmt.Errorf("--max-replicas %d: give 1 to 4096", o.most)
	case o.prompts < 1 || o.prompts > 1_000_000:
		err = fmt.Errorf("--num-prompts %d: give 1 to 1000000", o.prompts)
	default:
		err = errors.Join(replicas.CheckRouting(o.routing), o.arrivals.Check())
	}
	if err != nil {
		return t, &usageError{err, c.CommandPath()}
	}
	return t, nil
}

// run simulates and prints.
func (o *replicasBench) run(c *cobra.Command, arg string) error {
	want, err := o.check(c)
	if err != nil {
		return err
	}
	m, err := o.target.machine(c)
	if err != nil {
		return err
	}
	path, m, err := profileArg(c, arg, m, argUse{})
	if err != nil {
		return err
	}
	p, err := appliance.Prepare(path, m)
	if err != nil {
		return err
	}
	defer p.Close()
	setup := replicas.Setup{Seed: o.seed, Routing: o.routing, Target: want, Max: o.most}
	r := replicas.Report{Routing: o.routing, Target: want}
	if err := o.times(p, &setup, &r); err != nil {
		return err
	}
	setup.Engine = func(t engine.StepTimer) (*engine.Simulation, error) { return p.Plan.Simulate(t) }
	w, err := o.workload(c.Context(), p)
	if err != nil {
		return serveError(err, c)
	}
	r.Describe(w)
	if r.Result, err = replicas.Find(w, setup); err != nil {
		return err
	}
	return o.print(c, &r)
}

// print prints the report; the exit code is 1 where no number of replicas meets the target.
func (o *replicasBench) print(c *cobra.Command, r *replicas.Report) error {
	text := r.String()
	if o.json {
		b, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		text = string(b) + "\n"
	}
	if _, err := fmt.Fprint(c.OutOrStdout(), text); err != nil {
		return err
	}
	if r.Need == 0 {
		return exitError(1)
	}
	return nil
}

// times sets the times of steps: those of the file, or predicted ones.
func (o *replicasBench) times(p *appliance.Prepared, s *replicas.Setup, r *replicas.Report) error {
	if o.costs == "" {
		t, source, band, err := p.Plan.StepTimes()
		if err != nil {
			return fmt.Errorf("%w; or give --cost-model, a file of vapp bench steps", err)
		}
		s.Timer, r.Basis, r.Source, r.Band = t, "predicted", source, band
		return nil
	}
	f, err := steps.Read(o.costs)
	if err != nil {
		return err
	}
	if err := f.Matches(o.costs, stepsOf(p)); err != nil {
		return err
	}
	s.Timer, s.Ratios = &f.Steps, f.Steps.Ratios
	r.Basis, r.Source = "measured", fmt.Sprintf("%s, %s; %d steps on %s", f.Device, f.Measured.Format("2006-01-02"), f.Count, f.Model)
	return nil
}

// workload makes the requests and their times. Datasets of text need the model's tokenizer.
func (o *replicasBench) workload(ctx context.Context, p *appliance.Prepared) (replicas.Workload, error) {
	m := workload.Maker{Count: o.prompts, Seed: o.seed, Tokenizer: replicas.IDs{Vocab: p.Model.Family.Vocab()}}
	if o.dataset.Name != "random" && o.dataset.Name != "prefix_repetition" {
		text, err := p.Model.Checkpoint.TokenizerJSON()
		if err != nil {
			return replicas.Workload{}, err
		}
		tok, err := tokenizer.Load(text, tokenizer.LoadOptions{})
		if err != nil {
			return replicas.Workload{}, err
		}
		local := bench.NewLocal(tok)
		defer local.Close()
		m.Tokenizer = local
	}
	requests, err := o.dataset.Make(ctx, m)
	if err != nil {
		return replicas.Workload{}, err
	}
	for i := range requests {
		if q := &requests[i]; len(q.IDs) == 0 {
			if q.IDs, err = m.Tokenizer.Encode(ctx, q.Prompt); err != nil {
				return replicas.Workload{}, err
			}
		}
	}
	return replicas.Workload{Requests: requests, Times: o.arrivals.Times(len(requests), o.seed)}, nil
}
