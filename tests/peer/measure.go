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

// side is an engine with settings.
type side struct {
	name  string
	tuned bool   // llama.cpp: flash attention on, weights read into huge pages
	file  string // vapp: its profile
	serve bool   // also measured over HTTP
}

// measure runs all sides of a part, one after the other, b.rounds times. Even with an error
// the part should be saved, unless it has no runs.
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
	for range b.rounds {
		steps = append(steps, func() error { return b.turns(ctx, &p, sides) })
		steps = append(steps, b.round(ctx, &p, sides)...)
	}
	// A failed step is reported, also on the page; the other steps still run.
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

// sides returns the sides of a part, and adds a note for sides that this binary or
// machine does not support.
func (b bench) sides(ctx context.Context, p *figures.Part) ([]side, error) {
	plain, err := b.profile(p.Name, "", "")
	if err != nil {
		return nil, err
	}
	out := []side{{name: figures.Llama, serve: true}, {name: figures.Vapp, file: plain, serve: true}, {name: figures.LlamaBest, tuned: true}}
	if strings.HasSuffix(p.Name, "bf16") {
		return out, nil
	}
	if tiles() && figures.FourBits(p.Name) {
		favor, err := b.profile(p.Name, "favor", `cpu: favor: "decode"`)
		if err != nil {
			return nil, err
		}
		out = append(out, side{name: figures.VappFavor, file: favor})
	}
	// The default for GGUF files is f16, which has the same size but is multiplied in f32.
	int8, err := b.profile(p.Name, "int8", `cpu: activations: "int8", memory: kvCacheDtype: "bfloat16"`)
	if err != nil {
		return nil, err
	}
	if r, err := execute(ctx, b.vapp, "plan", int8); err != nil {
		p.Notes = append(p.Notes, "vapp with int8 activations was not measured: "+r.reason())
		return out, nil
	}
	out[1].serve = false // over HTTP only equal settings are compared: llama.cpp has int8 activations
	return append(out, side{name: figures.VappInt8, file: int8, serve: true}), nil
}

// round returns the steps of the sides other than decoding, in turns: short ones twice,
// A B A B, and long ones once, after the first short one of each side.
func (b bench) round(ctx context.Context, p *figures.Part, sides []side) []func() error {
	var out []func() error
	for pass := range 2 {
		for _, s := range sides {
			out = append(out, b.short(ctx, p, s))
			if pass == 0 {
				out = append(out, b.long(ctx, p, s)...)
			}
		}
	}
	return append(out, func() error { return b.pytorch(ctx, p) })
}

// warm is the first work of a side of vapp, a warm-up, because the first run is slower.
const warm = "32+1"

// short measures prefill of 512 tokens with one stream.
func (b bench) short(ctx context.Context, p *figures.Part, s side) func() error {
	if s.file == "" {
		return func() error { return b.llama(ctx, p, s, "512", "0") }
	}
	return func() error { return b.engine(ctx, p, s, "--work", warm, "--work", "512+1") }
}

// long returns the steps that measure 16 streams with and without HTTP, prompts of 2,048
// tokens, and the times of vapp's ops.
func (b bench) long(ctx context.Context, p *figures.Part, s side) []func() error {
	var out []func() error
	add := func(yes bool, step func() error) {
		if yes {
			out = append(out, step)
		}
	}
	more := prompts2048(p.Name)
	if s.file == "" {
		add(more, func() error { return b.llama(ctx, p, s, "2048", "0") })
		add(s.serve, func() error { return b.batched(ctx, p, s) })
		add(s.serve, func() error { return b.serveLlama(ctx, p, s) })
		return out
	}
	add(more, func() error { return b.engine(ctx, p, s, "--work", warm, "--work", "2048+1") })
	add(true, func() error { return b.engine(ctx, p, s, "--work", warm, "--work", "16x128+64") })
	add(s.serve, func() error { return b.serveVapp(ctx, p, s) })
	works := []string{"--work", "512+1", "--work", "1+32", "--work", "16x64+16"}
	if more {
		works = append(works, "--work", "2048+1")
	}
	add(true, func() error { return b.ops(ctx, p, s, works) })
	return out
}

// prompts2048 reports whether a part has targets for prompts of 2,048 tokens.
func prompts2048(part string) bool { return part == "llama1b-bf16" }

func (b bench) model(part string) string {
	return filepath.Join(b.dir, "models", part+".gguf")
}

// profile writes vapp's profile of a part and a kind, with the line extra, and returns its file.
func (b bench) profile(part, kind, extra string) (string, error) {
	name := strings.TrimSuffix(part+"-"+kind, "-")
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
	v, _, err := figures.ReadEngine(r.out, s.rate(p))
	if err != nil {
		return err
	}
	p.Runs = append(p.Runs, b.result(s.name, r, v))
	return nil
}

// rate returns the machine's measured rate for the dtype that a side of vapp multiplies; 0: vapp measures it.
func (s side) rate(p *figures.Part) float64 {
	if s.name == figures.VappInt8 {
		return p.Stat(figures.Machine, figures.RateInt8).Median
	}
	return 0
}

// ops adds a run with the times of the ops of steps and without rates.
func (b bench) ops(ctx context.Context, p *figures.Part, s side, work []string) error {
	args := append([]string{"bench", "engine", "--json", "--profile", "--repeat", "1"}, append(work, s.file)...)
	r, err := execute(ctx, b.vapp, args...)
	if err != nil {
		return err
	}
	_, steps, err := figures.ReadEngine(r.out, s.rate(p))
	run := b.result(s.name, r, nil)
	run.Steps = steps
	p.Runs = append(p.Runs, run)
	return err
}

// llama adds a run of llama-bench.
func (b bench) llama(ctx context.Context, p *figures.Part, s side, prompt, output string) error {
	// The run of 32 tokens is the warm-up; the tool's own warm-up would run every prompt twice.
	r, err := b.llamaTool(ctx, s, "llama-bench", "-m", b.model(p.Name), "-p", "32,"+prompt, "-n", output, "-r", "1", "--no-warmup", "-o", "json")
	if err != nil {
		return err
	}
	v, err := figures.ReadLlamaBench(r.out)
	if err != nil {
		return err
	}
	p.Runs = append(p.Runs, b.result(s.name, r, v))
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
	p.Runs = append(p.Runs, b.result(s.name, r, v))
	return nil
}

// llamaTool runs a tool of llama.cpp with one thread per processor.
func (b bench) llamaTool(ctx context.Context, s side, tool string, args ...string) (outcome, error) {
	args = append(args, "-t", threads())
	c := command{path: filepath.Join(b.dir, "llama.cpp", "bin", tool), args: args}
	if s.tuned {
		c.args = append(c.args, "-fa", "1", "-lm", "none")
		c.env = []string{"GLIBC_TUNABLES=glibc.malloc.hugetlb=1"}
	}
	return c.run(ctx)
}

// result returns a run for the report, with shortened paths.
func (b bench) result(side string, r outcome, v figures.Values) figures.Run {
	words := append([]string{}, r.command...)
	for i, w := range words {
		if filepath.IsAbs(w) {
			words[i] = filepath.Base(w)
		}
	}
	return figures.Run{Side: side, Command: words, Seconds: r.seconds, Foreign: r.foreign, Values: v}
}
