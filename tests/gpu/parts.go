package main

import (
	"slices"
	"time"

	"vapp.dev/tests/gpu/agenda"
)

// Test binaries of the bundle. Each runs in the directory of its name, which has its package's
// testdata.
const (
	suite   = "cuda"
	goldens = "models"
)

// Rows of a model: streams, prompt tokens and output tokens. The most important come first, because
// a part that runs out of time keeps the rows measured so far.
var (
	short = []string{"1x1024+64", "8x1024+64", "32x1024+64", "1x16384+64", "128x1024+32", "8x16384+32"}
	eager = []string{"1x1024+64", "8x1024+64", "32x1024+64"}
	few   = []string{"1x1024+16", "32x1024+16"}
)

// models are the measured profiles: short loads and the models of the targets first.
var models = []string{"llama-3.2-1b", "qwen2-7b", "gpt-oss-20b", "gemma4-fp8", "qwen35-27b-fp8", "gemma4-bf16"}

// full returns the agenda for a GPU. The most important parts come first, because the time may end
// before the list does. Last come op times, and rows of 16K tokens at 32 and 128 streams, whose
// prompts have half a million tokens or more.
func full() []agenda.Part {
	const s = time.Second
	out := []agenda.Part{
		{Name: "device", Title: "Device", Kind: agenda.Text, Budget: 15 * s, Args: []string{"nvidia-smi"}},
		{Name: "plan", Title: "What vapp finds and plans", Kind: agenda.Text, Budget: 15 * s, Args: []string{"vapp", "plan", "profiles/llama-3.2-1b.cue"}},
		tests("suite", "Ops of the backend against ref", suite, "TestSuite|TestPartsFP8", 100*s),
		tests("replay", "Replayed graphs against launches; prompts by warpgroups", suite, "TestGraphReplay|TestWarpgroups", 30*s),
		tests("made", "Weights that are made up, times of ops", suite, "TestDummyWeights|TestOpTimes", 20*s),
		tests("goldens", "Logits of the small checkpoints against those of transformers", goldens, "TestGoldenCUDA", 60*s),
		model("llama-3.2-1b", 35*s, short...),
		withoutGraphs("llama-3.2-1b-eager", model("llama-3.2-1b", 20*s, eager...)),
		model("qwen2-7b", 40*s, short...),
		{Name: "clocks", Title: "Clocks, errors of memory, other processes", Kind: agenda.Text, Budget: 15 * s, Args: []string{"nvidia-smi", "-q", "-d", "CLOCK,PERFORMANCE,ECC,MEMORY,PIDS"}},
	}
	for _, m := range models[2:] {
		out = append(out, model(m, 45*s, short...))
	}
	out = append(out, library(tests("suite-cublaslt", "Dense products by the machine's cuBLASLt against ref", suite, "TestPartsLibrary", 30*s)))
	for _, m := range []string{"llama-3.2-1b", "qwen2-7b"} {
		out = append(out, library(model(m+"-cublaslt", 35*s, eager...)))
	}
	out = append(out,
		agenda.Part{Name: "serve", Title: "A server against itself", Kind: agenda.Serving, Budget: 45 * s, Args: []string{"gpu-check", "serve", "profiles/served.cue"}},
		agenda.Part{Name: "torch", Title: "PyTorch and transformers", Kind: agenda.Rates, Budget: 60 * s, Args: []string{"python3", "torch_gpu.py"}},
	)
	for _, m := range models[:5] { // gemma4-bf16 has the ops of gemma4-fp8
		out = append(out, ops(m, model(m, 25*s, few...)))
	}
	for _, m := range models {
		p := model(m, 60*s, "32x16384+16")
		p.Name += "-32x16k"
		out = append(out, p)
	}
	for _, m := range []string{"llama-3.2-1b", "gpt-oss-20b", "gemma4-fp8"} { // the KV cache of the others does not fit 80 GB
		p := model(m, 90*s, "128x16384+8")
		p.Name += "-128x16k"
		out = append(out, p)
	}
	return out
}

// tiny returns a short agenda for the emulated driver, with a part of every kind.
func tiny() []agenda.Part {
	const s = time.Second
	small := model("small", 60*s, "1x24+6", "3x24+6")
	small.Args = append(small.Args, "--limits=false") // an emulated device has no limits
	serve := []string{"gpu-check", "serve", "--prompts", "4", "--input", "16", "--output", "4", "--streams", "2", "profiles/small.cue"}
	return []agenda.Part{
		{Name: "plan", Title: "What vapp finds and plans", Kind: agenda.Text, Budget: 60 * s, Args: []string{"vapp", "plan", "profiles/small.cue"}},
		tests("suite", "A few ops of the backend against ref", suite, "TestParts$|TestOpTimes", 300*s),
		tests("goldens", "Logits of a small checkpoint against those of transformers", goldens, "TestGoldenCUDA$/tiny-llama3-tied/f32", 300*s),
		small,
		withoutGraphs("small-eager", small),
		ops("small", small),
		{Name: "serve", Title: "A server against itself", Kind: agenda.Serving, Budget: 120 * s, Args: serve},
		{Name: "torch", Title: "PyTorch and transformers", Kind: agenda.Rates, Budget: 60 * s, Args: []string{"python3", "torch_gpu.py"}},
	}
}

// tests returns a part that runs the tests of a binary that match pattern.
func tests(name, title, binary, pattern string, most time.Duration) agenda.Part {
	args := []string{"tests/" + binary + ".test", "-test.v", "-test.timeout=" + (most - time.Second).String()}
	if pattern != "" {
		args = append(args, "-test.run="+pattern)
	}
	return agenda.Part{Name: name, Title: title, Kind: agenda.Tests, Budget: most, Args: args, Dir: "tests/" + binary, Env: []string{"VAPP_GPU=1"}}
}

// model returns a part that measures rows of a profile of the bundle, with random weights.
func model(name string, most time.Duration, rows ...string) agenda.Part {
	args := []string{"vapp", "bench", "engine", "--json", "--repeat", "1", "--profile", "profiles/" + name + ".cue"}
	for _, r := range rows {
		args = append(args, "--work", r)
	}
	return agenda.Part{Name: name, Title: name, Kind: agenda.Bench, Budget: most, Args: args}
}

// withoutGraphs returns a part that measures the rows of p without CUDA graphs, for comparison. It
// does not measure op times, which would slow the steps.
func withoutGraphs(name string, p agenda.Part) agenda.Part {
	p.Name, p.Title, p.GraphsPart = name, name, p.Name
	p.Args = append(slices.DeleteFunc(slices.Clone(p.Args), func(a string) bool { return a == "--profile" }), "--eager")
	return p
}

// library marks a part that uses cuBLASLt, which a machine need not have.
func library(p agenda.Part) agenda.Part {
	p.Without = "no cuBLASLt ("
	return p
}

// ops returns a part that measures the time of every op of p, without CUDA graphs.
func ops(name string, p agenda.Part) agenda.Part {
	p.Name, p.Title, p.Kind = name+"-ops", name+", op by op", agenda.Ops
	p.Args = append(slices.Clone(p.Args), "--eager", "--limits=false")
	return p
}
