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
	short  = []string{"1x1024+64", "8x1024+64", "32x1024+64", "1x2048+2", "128x1024+32", "1x16384+64"}
	eager  = []string{"1x1024+64", "8x1024+64", "32x1024+64"}
	few    = []string{"1x1024+16", "32x1024+16"}
	served = []string{"64x1024+32", "1x1024+64", "128x1024+32", "8x16384+32"}
)

// agendaRun is one of the three runs. Each measures something alone, and ends in time.
type agendaRun struct {
	name, title string
	most        time.Duration // for all parts together
	parts       []agenda.Part // the most important first, because the time may end before the list does
	dir         string        // of its report, below the one of all reports
}

// ends is what a run has less than its minutes, to end its last process and to write.
const ends = 20 * time.Second

// runs returns the runs, for a GPU or for the emulated driver.
func runs(small bool) []agendaRun {
	a, b, c := correctness(), speed(), serving()
	if small {
		a, b, c = smallCorrectness(), smallSpeed(), smallServing()
	}
	return []agendaRun{
		{name: "A", title: "correctness", most: 8*time.Minute - ends, parts: a},
		{name: "B", title: "speed", most: 9*time.Minute - ends, parts: b},
		{name: "C", title: "serving", most: 9*time.Minute - ends, parts: c},
	}
}

const s = time.Second

func device() agenda.Part {
	return agenda.Part{Name: "device", Title: "Device", Kind: agenda.Text, Budget: 15 * s, Args: []string{"nvidia-smi"}}
}

// correctness is run A: first what the device and its driver are, then what a wrong kernel would fail
// soonest.
func correctness() []agenda.Part {
	return []agenda.Part{
		device(),
		{Name: "plan", Title: "What vapp finds and plans", Kind: agenda.Text, Budget: 15 * s, Args: []string{"vapp", "plan", "profiles/llama-3.2-1b.cue"}},
		needed(tests("first", "The first kernels of every file", suite, "TestFirst", 60*s)),
		tests("shapes", "Products of the models' shapes against float64 and cuBLASLt", suite, "TestShapes", 110*s),
		tests("suite", "Ops of the backend against ref", suite, "TestSuite|TestPartsFP8", 100*s),
		tests("replay", "Replayed graphs against launches; prompts by warpgroups", suite, "TestGraphReplay|TestWarpgroups", 30*s),
		tests("made", "Weights that are made up, times of ops", suite, "TestDummyWeights|TestOpTimes", 20*s),
		tests("goldens", "Logits of the small checkpoints against those of transformers", goldens, "TestGoldenCUDA", 60*s),
		library(tests("suite-cublaslt", "Dense products by the machine's cuBLASLt against ref", suite, "TestPartsLibrary", 30*s)),
		sanitizer("memcheck", "TestFirst", 60*s),
		sanitizer("racecheck", "TestFirst", 60*s),
		sanitizer("synccheck", "TestFirst", 40*s),
	}
}

// speed is run B: models by the targets, cuBLASLt and PyTorch beside them, and where their time goes.
func speed() []agenda.Part {
	out := []agenda.Part{
		device(),
		model("llama-3.2-1b", 35*s, short...),
		model("llama-3.1-8b", 45*s, short...),
		model("qwen35-27b-fp8", 60*s, short...),
		{Name: "clocks", Title: "Clocks, errors of memory, other processes", Kind: agenda.Text, Budget: 15 * s, Args: []string{"nvidia-smi", "-q", "-d", "CLOCK,PERFORMANCE,ECC,MEMORY,PIDS"}},
		withoutGraphs("llama-3.2-1b-eager", model("llama-3.2-1b", 20*s, eager...)),
		plain("llama-3.1-8b-plain", model("llama-3.1-8b", 25*s, short[:2]...)),
		{Name: "torch", Title: "PyTorch and transformers", Kind: agenda.Rates, Budget: 75 * s, Args: []string{"python3", "torch_gpu.py"}},
		library(model("llama-3.1-8b-cublaslt", 40*s, short...)),
		model("qwen35-27b-x8", 60*s, short...),
		counters("ncu-prefill", "Counters of a prompt's kernels", "linear_.*_wide|attention_.*_(many|wide)"),
		counters("ncu-decode", "Counters of a decode step's kernels", "linear_.*_8|attention_.*_few"),
		library(model("llama-3.2-1b-cublaslt", 30*s, eager...)),
	}
	for _, m := range []string{"llama-3.2-1b", "llama-3.1-8b", "qwen35-27b-fp8"} {
		out = append(out, ops(m, model(m, 25*s, few...)))
	}
	return out
}

// serving is run C: models of experts at many streams, a server, long contexts. Rows of 16K tokens
// come last: their prompts have half a million tokens or more.
func serving() []agenda.Part {
	out := []agenda.Part{
		device(),
		model("gpt-oss-20b", 50*s, served...),
		model("gemma4-fp8", 50*s, served...),
		{Name: "serve", Title: "A server of 64 streams, operated", Kind: agenda.Serving, Budget: 60 * s, Args: []string{"gpu-check", "serve", "--ops", "profiles/served.cue"}},
		{Name: "serve-256", Title: "256 streams of new prompts, one of 32K tokens beside them", Kind: agenda.Serving, Budget: 60 * s,
			Args: []string{"gpu-check", "serve", "--streams", "256", "--prompts", "768", "--long", "32000", "profiles/served.cue"}},
	}
	for _, m := range []string{"gpt-oss-20b", "gemma4-fp8"} {
		out = append(out, ops(m, model(m, 25*s, few...)))
	}
	out = append(out, model("gemma4-bf16", 45*s, served...))
	for _, m := range []string{"llama-3.2-1b", "gpt-oss-20b", "gemma4-fp8"} { // the KV cache of larger ones does not fit 80 GB
		p := model(m, 60*s, "32x16384+16", "128x16384+8")
		p.Name, p.Title = m+"-16k", m+", long contexts"
		out = append(out, p)
	}
	return out
}

// The runs for the emulated driver have a part of every kind.

func smallCorrectness() []agenda.Part {
	return []agenda.Part{
		{Name: "plan", Title: "What vapp finds and plans", Kind: agenda.Text, Budget: 60 * s, Args: []string{"vapp", "plan", "profiles/small.cue"}},
		needed(tests("first", "The first kernels of every file", suite, "TestFirst", 120*s)),
		tests("shapes", "Products of the models' shapes, made smaller", suite, "TestShapes", 120*s),
		tests("suite", "A few ops of the backend against ref", suite, "TestParts$|TestOpTimes", 300*s),
		tests("goldens", "Logits of a small checkpoint against those of transformers", goldens, "TestGoldenCUDA$/tiny-llama3-tied/f32", 300*s),
		library(tests("suite-cublaslt", "Dense products by cuBLASLt against ref", suite, "TestPartsLibrary", 120*s)),
	}
}

func smallSpeed() []agenda.Part {
	small, cublaslt := model("small", 60*s, "1x24+6", "3x24+6"), model("small-cublaslt", 60*s, "1x24+6", "3x24+6")
	for _, p := range []*agenda.Part{&small, &cublaslt} {
		p.Args = append(p.Args, "--limits=false") // an emulated device has no limits
	}
	return []agenda.Part{
		small, withoutGraphs("small-eager", small), plain("small-plain", small), ops("small", small), library(cublaslt),
		{Name: "torch", Title: "PyTorch and transformers", Kind: agenda.Rates, Budget: 60 * s, Args: []string{"python3", "torch_gpu.py"}},
	}
}

func smallServing() []agenda.Part {
	serve := []string{"gpu-check", "serve", "--prompts", "4", "--input", "16", "--output", "4", "--streams", "2", "--long", "40", "profiles/small.cue"}
	return []agenda.Part{{Name: "serve", Title: "A server against itself", Kind: agenda.Serving, Budget: 120 * s, Args: serve}}
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

// needed marks a part after which nothing can be measured if it fails.
func needed(p agenda.Part) agenda.Part {
	p.Needed = true
	return p
}

// counters returns a part that reads the hardware counters of the first two launches of kernels that match a pattern.
func counters(name, title, pattern string) agenda.Part {
	return agenda.Part{Name: name, Title: title, Kind: agenda.Text, Budget: 40 * s, Without: "ERR_NVGPUCTRPERM", Args: []string{
		"ncu", "--target-processes", "all", "--kernel-name", "regex:vapp_(" + pattern + ")", "--launch-count", "2", "--section", "SpeedOfLight", "--section", "Occupancy",
		"./vapp", "bench", "engine", "--json", "--limits=false", "--eager", "--repeat", "1", "--work", "1x2048+4", "profiles/llama-3.1-8b.cue",
	}}
}

// sanitizer returns a part that runs tests of the backend under a tool of compute-sanitizer.
func sanitizer(tool, pattern string, most time.Duration) agenda.Part {
	p := tests(tool, "compute-sanitizer's "+tool, suite, pattern, most)
	p.Args = append([]string{"compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "../cuda.test"}, p.Args[1:]...)
	return p
}

// library marks a part that uses cuBLASLt, which a machine need not have. One that is there and cannot be used has another line,
// and the part fails.
func library(p agenda.Part) agenda.Part {
	p.Without = "no cuBLASLt ("
	return p
}

// plain returns a part that measures the rows of p with plain launches, for comparison with dependent ones.
func plain(name string, p agenda.Part) agenda.Part {
	p.Name, p.Title, p.DependentPart = name, name, p.Name
	p.Args = slices.DeleteFunc(slices.Clone(p.Args), func(a string) bool { return a == "--profile" })
	p.Env = append(slices.Clone(p.Env), "VAPP_PLAIN_LAUNCHES=1")
	return p
}

// ops returns a part that measures the time of every op of p, without CUDA graphs.
func ops(name string, p agenda.Part) agenda.Part {
	p.Name, p.Title, p.Kind = name+"-ops", name+", op by op", agenda.Ops
	p.Args = append(slices.Clone(p.Args), "--eager", "--limits=false")
	return p
}
