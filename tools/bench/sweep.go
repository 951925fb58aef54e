package bench

import (
	"context"
	"fmt"
	"io"
	"slices"

	"vapp.dev/tools/bench/report"
)

// CheckSweep refuses an invalid list of concurrencies.
func (o *Options) CheckSweep(levels []int) error {
	switch {
	case o.MaxConcurrency != 0:
		return refuse("--max-concurrency %d: --sweep-concurrency sets it for each run; give one of the two", o.MaxConcurrency)
	case !slices.IsSorted(levels) || levels[0] < 1 || len(slices.Compact(slices.Clone(levels))) != len(levels):
		return refuse("--sweep-concurrency %v: give numbers above 0, ascending, such as 1,2,4,8", levels)
	}
	return nil
}

// Sweep runs the benchmark once for each concurrency. Each run has prompts of another seed, so that
// the prefix cache does not contain them. It calls watch with every run before it starts, and the
// function that watch returns after it. When ctx ends it returns the finished runs with ctx's
// error.
func (o *Options) Sweep(ctx context.Context, log io.Writer, levels []int, watch func(*Run) func()) (report.Sweep, error) {
	if err := o.CheckSweep(levels); err != nil {
		return nil, err
	}
	var out report.Sweep
	for i, n := range levels {
		one := *o
		one.MaxConcurrency, one.Seed = n, o.Seed+int64(i)
		run, err := one.Open(ctx, log)
		if err != nil {
			return out, err
		}
		o.Model = one.Model
		end := watch(run)
		result, err := run.Serve(ctx)
		end()
		if result.By != nil && (err == nil || result.Completed+result.Failed > 0) {
			out = append(out, result)
			fmt.Fprintln(log, result.Table()+result.Failures()+result.Uncounted()+result.Unfinished())
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}
