package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/tools/bench"
	"vapp.dev/tools/bench/report"
)

// serveBench are the flags of bench serve.
type serveBench struct {
	bench.Options
	place       bench.Place
	save, quiet bool
	sweep       []int
	page        string
	baseline    string
	timeline    bool
	gaps        string // thresholds of the timeline
}

func newBenchServe() *cobra.Command {
	o := &serveBench{}
	c := &cobra.Command{
		Use:   "serve",
		Short: "Speed of a running server with OpenAI's API",
		Long: `Sends a workload to a server and prints throughput, time to first token, time per
output token and inter-token latency, in the rows of vLLM's "bench serve". The
options have vLLM's names and meaning.

Failed requests (an error status, a broken or incomplete stream, a timeout) are in
no average. They are counted by reason below the table, and the exit code is 1 if
there are any. OPENAI_API_KEY is sent as a bearer token.

--dataset-name random-mm adds images of random pixels to random prompts (JPEG, in
data: URLs); it needs --backend openai-chat. Input tokens are those of the text.`,
		Example: `  vapp bench serve --num-prompts 100 --random-input-len 512 --max-concurrency 16
  vapp bench serve --base-url http://127.0.0.1:8080 --tokenizer models/llama \
    --request-rate 4 --goodput ttft:500,tpot:50`,
		RunE: func(c *cobra.Command, args []string) error {
			if o.baseline != "" && len(args) == 1 {
				return printComparison(c, o.baseline, args[0])
			}
			if err := o.words(c, args); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
			defer stop()
			return o.run(ctx, c)
		},
	}
	o.serverFlags(c)
	o.trafficFlags(c)
	datasetFlags(c, &o.Dataset)
	imageFlags(c, &o.Dataset)
	o.reportFlags(c)
	refusedFlags(c)
	return c
}

// refused are options of vLLM that have no meaning here, with a remedy.
var refused = []struct{ flag, why string }{
	{"use-beam-search", "vLLM's client accepts it and sends nothing; for a server with beam search, give --extra-body '{\"use_beam_search\": true}'"},
	{"no-stream", "it belongs to --dataset-name hf, which vapp does not have; leave it out"},
	{"trust-remote-code", "vapp never runs code of a model; leave it out"},
}

func refusedFlags(c *cobra.Command) {
	for _, r := range refused {
		c.Flags().Bool(r.flag, false, r.why)
		_ = c.Flags().MarkHidden(r.flag) // cannot fail: the flag exists
	}
}

func (o *serveBench) serverFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.Backend, "backend", "openai", "request format: openai (completions; also vllm), openai-chat, openai-embeddings")
	f.StringVar(&o.BaseURL, "base-url", "", "server, in place of --host and --port")
	f.StringVar(&o.Host, "host", "127.0.0.1", "server's host")
	f.IntVar(&o.Port, "port", 8000, "server's port")
	f.StringVar(&o.Endpoint, "endpoint", "", "route (default: the request format's)")
	f.StringVar(&o.Model, "model", "", "model (default: the first of /v1/models); a path also selects the tokenizer")
	f.StringVar(&o.ServedModelName, "served-model-name", "", "the model's name in requests, where it differs from --model")
	f.StringVar(&o.Tokenizer, "tokenizer", "", "directory with a tokenizer.json, that file, or a GGUF file (default: the server's /tokenize)")
	f.StringArrayVar(&o.Header, "header", nil, "KEY=VALUE, sent with every request")
	f.BoolVar(&o.Insecure, "insecure", false, "accept any TLS certificate")
	f.IntVar(&o.ReadyTimeoutSec, "ready-check-timeout-sec", 0, "seconds to wait for the server to become ready")
	f.IntVar(&o.RequestTimeoutSec, "request-timeout-sec", 6*60*60, "timeout of a request in seconds")
}

func (o *serveBench) trafficFlags(c *cobra.Command) {
	f := c.Flags()
	f.IntVar(&o.NumPrompts, "num-prompts", 1000, "requests to send")
	f.Float64Var(&o.Arrivals.Rate, "request-rate", math.Inf(1), "requests per second; inf: all at once")
	f.Float64Var(&o.Arrivals.Burstiness, "burstiness", 1, "shape of the gamma distribution of gaps: 1 is a Poisson process, less is burstier, more is more even")
	f.IntVar(&o.MaxConcurrency, "max-concurrency", 0, "concurrent requests at most; 0: no bound")
	f.StringVar(&o.Arrivals.RampUp, "ramp-up-strategy", "", "linear or exponential: increase the rate over the run")
	f.Float64Var(&o.Arrivals.Start, "ramp-up-start-rps", 0, "requests per second at the start of the ramp")
	f.Float64Var(&o.Arrivals.End, "ramp-up-end-rps", 0, "requests per second at its end")
	f.Int64Var(&o.Seed, "seed", 0, "seed of lengths, tokens, order and arrivals")
	f.IntVar(&o.NumWarmups, "num-warmups", 0, "requests before the clock starts")
	f.BoolVar(&o.IgnoreEOS, "ignore-eos", false, "always generate the full output length; default: true for random prompts")
	f.IntVar(&o.Logprobs, "logprobs", 0, "log probabilities to request per token; 0: none")
	for _, s := range benchSampling {
		f.Float64(s, 0, "sent with every request if given")
	}
	f.StringVar(&o.ExtraBody, "extra-body", "", "JSON object whose keys are added to every request")
	f.BoolVar(&o.Profile, "profile", false, "run vLLM's profiler on the server during the benchmark (/start_profile, /stop_profile)")
	f.StringVar(&o.RequestIDPrefix, "request-id-prefix", "", "prefix of x-request-id, followed by the request's number (default: bench- and a random word)")
}

// benchSampling are the sampling options of the command line, which are copied to each request.
var benchSampling = []string{"temperature", "top-p", "top-k", "min-p", "frequency-penalty", "presence-penalty", "repetition-penalty"}

func (o *serveBench) reportFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.Metrics, "percentile-metrics", "ttft,tpot,itl", "metrics to show: ttft, tpot, itl, e2el")
	f.StringVar(&o.Percentiles, "metric-percentiles", "99", "percentiles to show, such as 25,50,99.9")
	f.StringArrayVar(&o.Goodput, "goodput", nil, "limits in ms of good requests, such as ttft:500,tpot:50,e2el:2000")
	f.BoolVar(&o.save, "save-result", false, "save the figures as JSON")
	f.BoolVar(&o.Detailed, "save-detailed", false, "also save the measurements of each request")
	f.BoolVar(&o.place.Append, "append-result", false, "append the figures to the file as a line")
	f.StringVar(&o.place.Dir, "result-dir", "", "where to save (default: the working directory)")
	f.StringVar(&o.place.Name, "result-filename", "", "file to save (default: a name made of label, rate, model and time)")
	f.StringArrayVar(&o.Metadata, "metadata", nil, "KEY=VALUE, saved with the figures")
	f.StringVar(&o.Label, "label", "", "label of the run in the saved file and its name")
	f.BoolVar(&o.timeline, "plot-timeline", false, "write a page with a bar for each request over time, named as the saved result")
	f.StringVar(&o.gaps, "timeline-itl-thresholds", "25,50", "gaps in ms at which the color of a timeline's bars changes")
	f.StringVar(&o.baseline, "compare", "", "saved result to compare this run with; with a second file as argument, compare the two files without a run")
	f.IntSliceVar(&o.sweep, "sweep-concurrency", nil, "run once for each of these concurrencies, such as 1,2,4,8, and print one table")
	f.StringVar(&o.page, "sweep-html", "", "page with the sweep's charts (default, with --save-result: next to the results)")
	f.BoolVar(&o.quiet, "disable-tqdm", false, "show no progress")
}

// words checks the options and sets those that flags cannot set: lists in vLLM's form, and sampling
// options, which are sent only if given.
func (o *serveBench) words(c *cobra.Command, args []string) error {
	given := c.Flags().Changed
	if len(args) > 0 {
		return &usageError{fmt.Errorf("bench serve takes options only; %q was given", args[0]), c.CommandPath()}
	}
	for _, r := range refused {
		if given(r.flag) {
			return &usageError{fmt.Errorf("--%s: %s", r.flag, r.why), c.CommandPath()}
		}
	}
	if _, err := bench.TimelineThresholds(o.gaps); err != nil {
		return &usageError{err, c.CommandPath()}
	}
	if o.timeline && len(o.sweep) > 0 {
		return &usageError{errors.New("--plot-timeline shows one run; a sweep has charts of its own (--sweep-html)"), c.CommandPath()}
	}
	for _, s := range benchSampling {
		if !given(s) {
			continue
		}
		x, err := c.Flags().GetFloat64(s)
		if err != nil {
			return err
		}
		o.Sampling = append(o.Sampling, bench.Option{Key: strings.ReplaceAll(s, "-", "_"), Value: x})
	}
	if !given("ignore-eos") {
		o.IgnoreEOS = o.Dataset.Name == "random" || o.Dataset.Name == "random-mm"
	}
	o.place.Detailed = o.Detailed
	if o.page != "" && len(o.sweep) == 0 {
		return &usageError{errors.New("--sweep-html: there is no sweep; name its concurrencies with --sweep-concurrency"), c.CommandPath()}
	}
	if o.baseline != "" && len(o.sweep) > 0 {
		return &usageError{errors.New("--compare compares two runs; save the sweep and give both files to vapp bench compare"), c.CommandPath()}
	}
	o.Key = os.Getenv("OPENAI_API_KEY")
	if !given("temperature") && o.Backend != string(bench.Embeddings) {
		fmt.Fprintln(os.Stderr, "The server decides how it samples; give --temperature 0 for figures that can be repeated.")
	}
	return nil
}

// run measures, prints and saves. An interrupted run shows its finished requests.
func (o *serveBench) run(ctx context.Context, c *cobra.Command) error {
	if len(o.sweep) > 0 {
		return o.runSweep(ctx, c)
	}
	if o.baseline != "" { // fail before the run, not after it
		if _, err := bench.ReadResults(o.baseline); err != nil {
			return err
		}
	}
	r, err := o.Open(ctx, c.OutOrStdout())
	if err != nil {
		return serveError(err, c)
	}
	end := o.watch(r)
	result, err := r.Serve(ctx)
	end()
	if err != nil && !(errors.Is(err, context.Canceled) && result.By != nil) {
		return err
	}
	return exitCode(errors.Join(err, o.print(c, &result)), result.Failed)
}

// exitCode returns an exitError of 1 if requests failed, unless there is another error.
func exitCode(err error, failed int) error {
	if err == nil && failed > 0 {
		return exitError(1)
	}
	return err
}

// watch shows the progress of a run until the returned function is called.
func (o *serveBench) watch(r *bench.Run) func() {
	if o.quiet {
		return func() {}
	}
	var end func()
	r.Progress, end = countProgress(os.Stderr, "Requests")
	return end
}

func (o *serveBench) print(c *cobra.Command, result *report.Result) error {
	out := c.OutOrStdout()
	fmt.Fprint(out, result.Table(), result.Failures(), result.Uncounted(), result.Unfinished())
	fmt.Fprint(os.Stderr, result.ClientCost())
	if o.save || o.place.Append || o.Detailed {
		path, err := o.place.Save(result)
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "saved", path)
	}
	if o.timeline {
		h, err := bench.TimelineThresholds(o.gaps)
		if err != nil {
			return err
		}
		path, err := o.place.SaveTimeline(result, h)
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "saved", path)
	}
	if o.baseline != "" {
		text, err := bench.CompareWith(o.baseline, result)
		if err != nil {
			return err
		}
		fmt.Fprint(out, "\n", text)
	}
	return nil
}

// runSweep runs the benchmark for several concurrencies.
func (o *serveBench) runSweep(ctx context.Context, c *cobra.Command) error {
	out := c.OutOrStdout()
	sweep, err := o.Sweep(ctx, out, o.sweep, o.watch)
	if len(sweep) == 0 {
		return serveError(err, c)
	}
	fmt.Fprint(out, sweep.Table())
	page := o.page
	if o.save || o.place.Append || o.Detailed {
		path, err := o.place.SaveSweep(sweep)
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "saved", path)
		if page == "" {
			page = bench.PagePath(path)
		}
	}
	if page != "" {
		if err := os.WriteFile(page, []byte(sweep.HTML()), 0o666); err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "saved", page)
	}
	n := 0
	for i := range sweep {
		n += sweep[i].Failed
	}
	return exitCode(err, n)
}

// serveError makes an invalid option a usage error.
func serveError(err error, c *cobra.Command) error {
	var option *bench.OptionError
	if errors.As(err, &option) {
		return &usageError{err, c.CommandPath()}
	}
	return err
}
