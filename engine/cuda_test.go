//go:build linux && cgo && cuda

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels/cuda/cudatest"
)

// emulate makes the process use the emulated driver, with few multiprocessors and streams that do
// their work as late as possible. With VAPP_GPU it uses the machine's own driver.
func emulate(t *testing.T) {
	t.Helper()
	cudatest.Use(t)
	if os.Getenv("VAPP_GPU") != "" {
		return
	}
	if err := driver.Emulate("reset,sms=8,order=lazy"); err != nil {
		t.Fatal(err)
	}
}

// graphs are the two ways to run steps: by single launches, and by graphs if there is one.
func graphs() []backend.Graphs {
	return []backend.Graphs{{Mode: "none"}, {Mode: "full_and_piecewise", Sizes: []int{1, 2, 3, 6, 9, 32}}}
}

// likeRef compares the continuations of prompts on cuda with those of plain on ref: token by token
// or, if gap is not 0, by likely.
func likeRef(t *testing.T, plain, y toy, prompts [][]int32, gap float32) {
	t.Helper()
	plain.on = ref.Opener{}
	reference := plain
	want := continued(t, &reference, prompts)
	for _, g := range graphs() {
		run, replayed := y, map[string]int{}
		run.on, run.opts.Backend.Graphs = cuda.Opener{}, g
		run.opts.Backend.Graphs.Query = y.opts.Drafts + 1
		run.hooks.Step = func(s engine.StepStats) { replayed[s.Graph]++ }
		got := continued(t, &run, prompts)
		if gap == 0 && !slices.EqualFunc(got, want, slices.Equal[[]int32]) {
			t.Errorf("graphs %s: %v, ref %v", g.Mode, got, want)
		}
		if gap > 0 {
			likely(t, plain, prompts, got, gap)
		}
		if g.Mode != "none" && (replayed["FULL"] == 0 || replayed["PIECEWISE"] == 0) {
			t.Errorf("steps ran by %v", replayed)
		}
	}
}

// continued returns what a new engine generates from prompts that are submitted together.
func continued(t *testing.T, y *toy, prompts [][]int32) (out [][]int32) {
	t.Helper()
	arrived, step := make(chan struct{}), y.hooks.Step
	y.hooks.Step = func(s engine.StepStats) {
		<-arrived // the prompts of all share steps
		if step != nil {
			step(s)
		}
	}
	e := y.open(t)
	for i, dir := range y.adapters {
		load(t, e, fmt.Sprint(i), dir)
	}
	ledgered(t, y, e)
	submitted := sync.OnceFunc(func() { close(arrived) })
	defer submitted() // also if the test ends early
	var streams []*engine.Stream
	for i, ids := range prompts {
		p := sample.Default()
		p.Temperature, p.MaxTokens, p.IgnoreEOS = 0, 4+i, true
		q := engine.Request{ID: fmt.Sprint(i), Prompt: ids, Params: p}
		if i < len(y.adapters) {
			q.Adapter = q.ID
		}
		s, err := e.Submit(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s...)
	}
	submitted()
	for _, s := range streams {
		tokens, last := collect(t, s)
		if last.Err != nil {
			t.Fatal(last.Err)
		}
		out = append(out, tokens)
	}
	closed(t, e)
	return out
}

// likely checks generated tokens against ref's probabilities: each must be the likeliest, or less
// than gap below it.
func likely(t *testing.T, y toy, prompts, got [][]int32, gap float32) {
	t.Helper()
	e := y.open(t)
	for i, ids := range prompts {
		p := sample.Default()
		p.Temperature, p.MaxTokens, p.IgnoreEOS, p.PromptLogprobs = 0, 1, true, 1
		s, err := e.Submit(context.Background(), engine.Request{ID: fmt.Sprint(i), Prompt: slices.Concat(ids, got[i]), Params: p})
		if err != nil {
			t.Fatal(err)
		}
		evs, err := s[0].Next(context.Background())
		if err != nil || len(evs) == 0 || len(evs[0].Prompt) < len(ids) {
			t.Fatal(evs, err)
		}
		for k, lp := range evs[0].Prompt[len(ids)-1:] {
			if behind := lp.Top[0].Logprob - lp.Logprob; behind > gap {
				t.Errorf("prompt %d: token %d is %d, %g behind ref's %d; the bound is %g", i, k, lp.Token, behind, lp.Top[0].Token, gap)
			}
		}
	}
	closed(t, e)
}

// ledgered compares the driver's allocations with the plan: every arena, graphs within their line,
// and pinned host memory for swap, steps and weights in transfer.
func ledgered(t *testing.T, y *toy, e *engine.Engine) {
	t.Helper()
	acc := y.account(t, y.model)
	want, lines := acc.Reservation.Arenas, map[string]int64{}
	for _, o := range overheads(acc) {
		lines[o.Name] = o.Bytes
	}
	if got := e.Usage(); got != want {
		t.Errorf("arenas of %v, planned %v", got, want)
	}
	if _, here := y.on.(cuda.Opener); !here || driver.Counted("bytes") < 0 {
		return
	}
	var device int64
	for a, n := range want {
		if backend.Arena(a) != backend.Swap {
			device += n
		}
	}
	if n := driver.Counted("bytes"); n != device {
		t.Errorf("the driver was asked for %d bytes, planned are %d", n, device)
	}
	graphs, captures := e.GraphBytes()
	const context = 64 << 20 // of the emulated driver
	if n := driver.Counted("taken"); n != device+graphs+context || captures != (graphs > 0) || graphs > lines["graphs"] {
		t.Errorf("the device has lost %d bytes: arenas of %d, graphs of %d, planned %d, and a context of %d", n, device, graphs, lines["graphs"], context)
	}
	pinned := want[backend.Swap] + lines["step copies"] + lines["item copy"]
	if !captures { // the staging buffer of weights exists until the first step
		pinned += lines["staging"]
	}
	if n := driver.Counted("pinned"); n != pinned {
		t.Errorf("%d bytes of the host are pinned, planned are %d", n, pinned)
	}
}

// overheads returns the lines of what the driver takes in addition to the arenas.
func overheads(a *engine.Account) []backend.Overhead {
	if o, ok := a.Layout.(backend.Overheads); ok {
		return o.Overheads(a.Reservation)
	}
	return nil
}

// closed closes an idle engine and checks that it leaves nothing allocated.
func closed(t *testing.T, e *engine.Engine) {
	t.Helper()
	if err := errors.Join(e.Check(context.Background()), e.Close()); err != nil {
		t.Error(err)
	}
	for _, what := range []string{"bytes", "taken", "pinned"} {
		if n := driver.Counted(what); n > 0 {
			t.Errorf("%s: %d are not given back", what, n)
		}
	}
}
