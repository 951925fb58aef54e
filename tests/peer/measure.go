package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"vapp.dev/tests/peer/figures"
)

// side is one of those that take turns.
type side struct {
	name  string
	tuned bool   // llama.cpp: flash attention on, weights read into huge pages
	file  string // vapp: its profile
	serve bool   // measured behind HTTP too
}

// measure runs all sides of a part, one after the other, b.rounds times. The part is
// worth saving beside an error too, unless it has no runs.
func (b bench) measure(ctx context.Context, name string) (figures.Part, error) {
	p := figures.Part{Name: name, Date: time.Now()}
	if name == figures.Streams {
		return b.streams(ctx, p)
	}
	sides, err := b.sides(ctx, &p)
	if err != nil {
		return p, err
	}
	steps := []func() error{func() error { return b.limits(ctx, &p) }}
	for round := range b.rounds {
		for _, s := range sides {
			steps = append(steps, b.turn(ctx, &p, s, round)...)
		}
	}
	for _, s := range sides {
		if s.file != "" {
			steps = append(steps, func() error { return b.ops(ctx, &p, s) })
		}
	}
	steps = append(steps, func() error { return b.pytorch(ctx, &p) })
	// A step that fails is told, on the page too; the others are still worth their time.
	var failed []error
	for i, step := range steps {
		begin := time.Now()
		err := step()
		fmt.Fprintf(os.Stderr, "bench-peer: %s: step %d of %d, %.0f s\n", name, i+1, len(steps), time.Since(begin).Seconds())
		if ctx.Err() != nil {
			return p, ctx.Err()
		}
		if err != nil {
			p.Notes = append(p.Notes, "Failed: "+err.Error()+".")
			failed = append(failed, err)
		}
	}
	return p, errors.Join(failed...)
}

// sides of a part, and a note of those that this binary or machine lacks.
func (b bench) sides(ctx context.Context, p *figures.Part) ([]side, error) {
	plain, err := b.profile(p.Name, "")
	if err != nil {
		return nil, err
	}
	out := []side{{name: figures.Llama, serve: true}, {name: figures.Vapp, file: plain, serve: true}, {name: figures.LlamaBest, tuned: true}}
	if strings.HasSuffix(p.Name, "bf16") {
		return out, nil
	}
	int8, err := b.profile(p.Name, `cpu: activations: "int8"`)
	if err != nil {
		return nil, err
	}
	if r, err := execute(ctx, b.vapp, "plan", int8); err != nil {
		p.Notes = append(p.Notes, "vapp with int8 activations was not measured: "+r.reason())
		return out, nil
	}
	out[1].serve = false // like is served beside like: llama.cpp has int8 activations
	return append(out, side{name: figures.VappInt8, file: int8, serve: true}), nil
}

// turn is what a side runs in a round. What takes long runs in the first one only.
func (b bench) turn(ctx context.Context, p *figures.Part, s side, round int) []func() error {
	first := round == 0
	if s.file == "" {
		out := []func() error{func() error { return b.llama(ctx, p, s, first) }}
		if first && s.serve {
			out = append(out, func() error { return b.batched(ctx, p, s) }, func() error { return b.serveLlama(ctx, p, s) })
		}
		return out
	}
	work := []string{"--work", "512+1", "--work", "1+128"}
	if first {
		work = append(work, "--work", "16x128+64")
	}
	out := []func() error{func() error { return b.engine(ctx, p, s, work...) }}
	if first && long(p.Name) {
		out = append(out, func() error { return b.engine(ctx, p, s, "--work", "2048+1") })
	}
	if first && s.serve {
		out = append(out, func() error { return b.serveVapp(ctx, p, s) })
	}
	return out
}

// long tells the part whose targets name a prompt of 2,048 tokens.
func long(part string) bool { return part == "llama1b-bf16" }

func (b bench) model(part string) string {
	return filepath.Join(b.dir, "models", part+".gguf")
}

// profile writes vapp's profile of a part; extra is a further line of it.
func (b bench) profile(part, extra string) (string, error) {
	name := part
	if extra != "" {
		name += "-int8"
	}
	path := filepath.Join(b.dir, "profiles", name+".cue")
	return path, os.WriteFile(path, fmt.Appendf(nil, `package profiles

import "vapp.dev/schema"

schema.#Profile & {
	name: %q
	model: source: "../models/%s.gguf"
	maxModelLen: "1K"
	memory: kvCache: "128MiB"
	scheduler: maxNumSeqs: 16
	serve: {host: "127.0.0.1", port: 0, accessLog: false, servedModelName: ["peer"]}
	%s
}
`, name, part, extra), 0o644)
}

// engine adds a run of vapp bench engine.
func (b bench) engine(ctx context.Context, p *figures.Part, s side, work ...string) error {
	args := append([]string{"bench", "engine", "--json", "--repeat", "1"}, append(work, s.file)...)
	r, err := execute(ctx, b.vapp, args...)
	if err != nil {
		return err
	}
	v, ops, err := figures.ReadEngine(r.out)
	if err != nil {
		return err
	}
	if s.name == figures.VappInt8 { // it multiplies int8, at int8's rate
		if rate := p.Stat(figures.Machine, figures.RateInt8).Median; rate > 0 {
			v[figures.MatrixLimit] = rate / v[figures.PromptOps]
		}
	}
	if _, whole := v[figures.Sixteen]; !whole { // its memory is not what the peer's is compared with
		delete(v, figures.Peak)
		delete(v, figures.Planned)
	}
	p.Runs = append(p.Runs, b.result(s.name, r, v, ops))
	return nil
}

// ops adds a short run that shows where steps spend their time, and no rates.
func (b bench) ops(ctx context.Context, p *figures.Part, s side) error {
	r, err := execute(ctx, b.vapp, "bench", "engine", "--json", "--profile", "--repeat", "1", "--work", "256+16", "--work", "16x32+16", s.file)
	if err != nil {
		return err
	}
	_, ops, err := figures.ReadEngine(r.out)
	p.Runs = append(p.Runs, b.result(s.name, r, nil, ops))
	return err
}

// llama adds a run of llama-bench.
func (b bench) llama(ctx context.Context, p *figures.Part, s side, first bool) error {
	prompts := "32,512"
	if first && long(p.Name) {
		prompts += ",2048"
	}
	// The run of 32 tokens is the warm-up: the tool's own would run every prompt twice.
	r, err := b.llamaTool(ctx, s, "llama-bench", "-m", b.model(p.Name), "-p", prompts, "-n", "128", "-r", "1", "--no-warmup", "-o", "json")
	if err != nil {
		return err
	}
	v, err := figures.ReadLlamaBench(r.out)
	if err != nil {
		return err
	}
	p.Runs = append(p.Runs, b.result(s.name, r, v, ""))
	return nil
}

// batched adds a run of llama-batched-bench.
func (b bench) batched(ctx context.Context, p *figures.Part, s side) error {
	r, err := b.llamaTool(ctx, s, "llama-batched-bench", "-m", b.model(p.Name), "-c", "3072", "-npp", "128", "-ntg", "64", "-npl", "16", "--output-format", "jsonl")
	if err != nil {
		return err
	}
	v, err := figures.ReadBatchedBench(r.out)
	if err != nil {
		return err
	}
	v[figures.Peak] = float64(r.peak)
	p.Runs = append(p.Runs, b.result(s.name, r, v, ""))
	return nil
}

// llamaTool runs a tool of llama.cpp with as many threads as there are processors.
func (b bench) llamaTool(ctx context.Context, s side, tool string, args ...string) (outcome, error) {
	args = append(args, "-t", threads())
	c := command{path: filepath.Join(b.dir, "llama.cpp", "bin", tool), args: args}
	if s.tuned {
		c.args = append(c.args, "-fa", "1", "-lm", "none")
		c.env = []string{"GLIBC_TUNABLES=glibc.malloc.hugetlb=1"}
	}
	return c.run(ctx)
}

// result is a run for the report: paths shortened to what matters.
func (b bench) result(side string, r outcome, v figures.Values, ops string) figures.Run {
	words := append([]string{}, r.command...)
	for i, w := range words {
		if filepath.IsAbs(w) {
			words[i] = filepath.Base(w)
		}
	}
	return figures.Run{Side: side, Command: words, Seconds: r.seconds, Foreign: r.foreign, Values: v, Ops: ops}
}
